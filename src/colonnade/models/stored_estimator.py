"""A fitted scikit-learn estimator as bytes: skops, never pickle, and equal bytes for equal estimators.

skops writes a zip: a description in JSON and an array in each other file. It names parts by where they lay in memory,
and dates its files; here they are numbered in the order in which they come, and undated, so that a run that is trained
again has the same fingerprint. Before anything is built, every type that a file names is held against those that skops
trusts and a list of others that may be in it.
"""

from __future__ import annotations

import io
import itertools
import json
import zipfile
from typing import Any

import numpy as np

from colonnade.errors import ModelError
from colonnade.extras import ONE_READER, need

SCHEMA = "schema.json"  # where a skops file says what it holds
PART, FILE = "__id__", "file"  # how it names its parts
NPY = b"\x93NUMPY"  # how a file with an array begins
PLAIN = "JsonNode"  # texts and numbers, which no two parts share
BEGINNING = (1980, 1, 1, 0, 0, 0)  # the earliest date that a zip file can have


def to_bytes(estimator: Any) -> bytes:
    """An estimator as a file; whatever skops raises where it cannot."""
    skops = need("skops.io", extra="tables", purpose="keeping an estimator as a local model")
    written = zipfile.ZipFile(io.BytesIO(skops.dumps(estimator)))
    rename = _Renaming()
    schema = rename(json.loads(written.read(SCHEMA)))
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for old, new in rename.files.items():
            _write(archive, new, _without_gaps(written.read(old)))
        _write(archive, SCHEMA, json.dumps(schema).encode())
    return out.getvalue()


def types_in(content: bytes) -> set[str]:
    """The types of a file beyond those that skops trusts itself, of scikit-learn and numpy; nothing is built."""
    skops = need("skops.io", extra="tables", purpose="reading an estimator as a local model")
    return set(skops.get_untrusted_types(data=content))


def from_bytes(content: bytes, trusted: set[str]) -> Any:
    """The estimator of a file.

    Raises:
        ModelError: it holds a type that is not trusted.
    """
    found = types_in(content)
    strange = sorted(found - trusted)
    if strange:
        raise ModelError(
            f"the saved local model holds a {strange[0]}, which a fitted estimator of this kind does not; it is not "
            "read: pass the same encoders= as in training, or restore the files from a copy"
        )
    skops = need("skops.io", extra="tables", purpose="reading an estimator as a local model")
    with ONE_READER:
        return skops.loads(content, trusted=sorted(found))


class _Renaming:
    """A description whose parts and files are numbered as they come; `files` are their old and new names."""

    def __init__(self) -> None:
        self.files: dict[str, str] = {}
        self._parts: dict[int, int] = {}
        self._count = itertools.count()

    def __call__(self, node: Any) -> Any:
        if isinstance(node, list):
            return [self(one) for one in node]
        if not isinstance(node, dict):
            return node
        found = {name: self(value) for name, value in node.items() if name not in (PART, FILE)}
        if PART in node:
            alone = node.get("__loader__") == PLAIN  # whether two equal numbers are one object is Python's own affair
            found[PART] = next(self._count) if alone else self._of_part(node[PART])
        if FILE in node:
            found[FILE] = self.files.setdefault(node[FILE], f"{len(self.files)}.{node[FILE].rpartition('.')[2]}")
        return found

    def _of_part(self, old: int) -> int:
        if old not in self._parts:
            self._parts[old] = next(self._count)
        return self._parts[old]


def _without_gaps(content: bytes) -> bytes:
    """An array of records without what lay in memory between their fields; other files as they are."""
    if not content.startswith(NPY):
        return content
    with ONE_READER:
        values = np.load(io.BytesIO(content), allow_pickle=False)
    if values.dtype.names is None:
        return content
    clean = np.zeros(values.shape, values.dtype)  # zeros_like would leave the gaps as they were in memory
    for name in values.dtype.names:
        clean[name] = values[name]
    out = io.BytesIO()
    np.save(out, clean, allow_pickle=False)
    return out.getvalue()


def _write(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    archive.writestr(zipfile.ZipInfo(name, BEGINNING), content, zipfile.ZIP_DEFLATED)
