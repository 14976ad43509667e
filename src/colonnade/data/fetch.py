"""Find a data file: in the folder the user names, in the cache, else download it once, checked.

A download goes to a temporary file beside its final place and is renamed only when its checksum is right,
so nothing half-written is ever found. Messages say which file is missing, where it was looked for, which
address was tried and why that failed.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import tempfile
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from colonnade.errors import DataError, MissingData

TIMEOUT = 30.0  # seconds without a byte before a download is given up
BLOCK = 1 << 20


@dataclass(frozen=True)
class DataFile:
    """A published file: its name, its checksum ("sha256:..." or "md5:...") and where to download it."""

    name: str
    digest: str
    urls: tuple[str, ...] = ()


def places(folder: str, data_dir: str | Path | None = None) -> list[Path]:
    """Where the files of a data set may be, in the order they are looked for.

    Args:
        folder: the data set's own folder.
        data_dir: the folder a user named: the data set's own, or one that holds it.
    """
    named = [] if data_dir is None else [Path(data_dir).expanduser(), Path(data_dir).expanduser() / folder]
    return [*named, cache_dir() / folder]


def cache_dir() -> Path:
    """Where downloads are kept: $COLONNADE_DATA, else ~/.cache/colonnade."""
    chosen = os.environ.get("COLONNADE_DATA")
    return Path(chosen).expanduser() if chosen else Path.home() / ".cache" / "colonnade"


def find(name: str, folders: Sequence[Path]) -> Path | None:
    """The first of `folders` that has a file or folder called `name`, with the name."""
    return next((folder / name for folder in folders if (folder / name).exists()), None)


def fetch(file: DataFile, folders: Sequence[Path], *, download: bool = True) -> Path:
    """A checked local copy of a published file.

    Args:
        file: what is wanted.
        folders: where to look, from `places`; a download is kept in the last one, the cache.
        download: whether the network may be used.

    Raises:
        MissingData: the file is nowhere and could not be downloaded.
        DataError: a file of that name is there but has another checksum.
    """
    found = find(file.name, folders)
    if found is not None:
        verify(found, file.digest)
        return found
    reasons = []
    for url in file.urls if download else ():
        try:
            return _download(url, file, folders[-1] / file.name)
        except (OSError, http.client.HTTPException, DataError) as error:
            reasons.append(f"{url}: {error}")
    if not download:
        reasons.append("downloading is switched off" + "".join(f" ({url})" for url in file.urls))
    raise missing(file.name, folders, "; ".join(reasons) or "there is no address to download it from")


def verify(path: Path, digest: str) -> None:
    """Raise DataError, naming the file and both checksums, unless the file has this one."""
    try:
        with path.open("rb") as stream:
            kind = digest.partition(":")[0]
            state = hashlib.new(kind, usedforsecurity=False)  # against damage, not against an adversary
            while block := stream.read(BLOCK):
                state.update(block)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error}") from None
    _compare(str(path), digest, state.hexdigest())


def missing(what: str, folders: Sequence[Path], reason: str) -> MissingData:
    """The error for a file that is nowhere."""
    looked = ", ".join(str(folder) for folder in folders)
    return MissingData(
        f"{what} was not found in {looked} and could not be downloaded: {reason}; "
        "put it into one of these folders, or name the folder that has it: --data-dir FOLDER"
    )


def _download(url: str, file: DataFile, target: Path) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    state = hashlib.new(file.digest.partition(":")[0], usedforsecurity=False)
    with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{file.name}.", delete=False) as part:
        try:
            with urllib.request.urlopen(url, timeout=TIMEOUT) as answer:
                while block := answer.read(BLOCK):
                    state.update(block)
                    part.write(block)
            part.close()
            _compare(file.name, file.digest, state.hexdigest())
            Path(part.name).chmod(0o644)  # temporary files are private, a shared cache is not
            Path(part.name).replace(target)
        except BaseException:  # an interrupt must not leave a part behind either
            part.close()
            Path(part.name).unlink()
            raise
    return target


def _compare(name: str, wanted: str, got: str) -> None:
    kind, _, expected = wanted.partition(":")
    if got != expected:
        raise DataError(
            f"{name} is damaged or another version: its {kind} is {got}, needed {expected}; delete it and get it again"
        )
