"""Files of runs, models and parts: each is written whole or not at all, and checked when it is read."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from colonnade.data.columns import ColumnPlan
from colonnade.data.stored import from_bytes, to_bytes
from colonnade.errors import DataError, RunError
from colonnade.privacy import chain
from colonnade.privacy.chain import CHAIN, HEAD, StoredLine, last, linked
from colonnade.privacy.ledger import Entry, Ledger
from colonnade.privacy.training_rows import TrainingRows
from colonnade.written import replace_file

MODEL, LEDGER = "model.safetensors", chain.LEDGER
COLUMNS = "columns.skops"  # how tables became columns, by party, where the training was from tables
TRAINED = "training_rows.safetensors"  # digests of the rows that trained with noise
KEPT = "kept_scores.safetensors"  # what the label holder keeps of the parties' uploads, so that one more can join
LONGEST_LINE = 2**16  # bytes of a line of a ledger: many times what one has
_RUN, _DIGEST = "of.run", "of.digest"  # in it: the id of the run and the fingerprint of all numbers, as bytes

Tensors = Mapping[str, Tensor]


def fingerprint(tensors: Tensors) -> str:
    """SHA-256 over every number: equal for tensors that are bit-identical."""
    digest = hashlib.sha256()
    for name, value in sorted(tensors.items()):
        digest.update(name.encode())
        digest.update(value.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def read_json(path: Path) -> Any:
    """The plain values of a file; `RunError` if it is damaged, `FileNotFoundError` if it is not there."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:  # UnicodeDecodeError is one
        raise RunError(f"{path} is damaged ({error}); restore it from a copy") from None


# -- writing ------------------------------------------------------------------------------------


def write_tensors(folder: Path, tensors: Tensors) -> None:
    """The numbers of a model."""
    replace_file(folder / MODEL, save({k: v.detach().cpu().contiguous() for k, v in tensors.items()}))


def write_plans(folder: Path, plans: Mapping[str, ColumnPlan]) -> str | None:
    """How tables became columns, and the digest of the file; None, and no file, where there were no tables."""
    if not plans:
        (folder / COLUMNS).unlink(missing_ok=True)  # of another model
        return None
    content = to_bytes(plans)
    replace_file(folder / COLUMNS, content)
    return hashlib.sha256(content).hexdigest()


def write_ledger(folder: Path, ledger: Ledger) -> None:
    """One line per release, each with its hash in the chain."""
    replace_file(folder / LEDGER, _lines(linked(release.to_json() for release in ledger)))


def append_ledger(path: Path, releases: Iterable[Entry]) -> None:
    """Add releases to the ledger in a file, whose chain goes on."""
    new = [replace(release, chain="").to_json() for release in releases]
    path.touch()
    append_lines(path, linked(new, last_hash(path)))


def append_lines(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    """Add lines that have their hashes to the ledger in a file, all of them or none."""
    with path.open("ab", buffering=0) as file:
        before, text = file.tell(), _lines(lines)
        try:
            if file.write(text) != len(text):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(file.fileno())
        except OSError:  # half a line would damage the file
            file.truncate(before)
            raise


def write_trained(folder: Path, trained: TrainingRows | None, run: str) -> None:
    """What a model knows its training rows by, after a training with noise."""
    if trained is not None:
        replace_file(folder / TRAINED, trained.to_bytes(run))
    else:
        (folder / TRAINED).unlink(missing_ok=True)  # of another run


def write_kept(folder: Path, kept: Tensors, run: str) -> None:
    """What the label holder keeps beside the model."""
    if kept:
        said = {_RUN: run, _DIGEST: fingerprint(kept)}
        of = {name: torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8) for name, text in said.items()}
        replace_file(folder / KEPT, save(of | {k: v.detach().cpu().contiguous() for k, v in kept.items()}))
    else:
        (folder / KEPT).unlink(missing_ok=True)  # of another run


def _lines(lines: Iterable[Mapping[str, Any]]) -> bytes:
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


def last_hash(path: Path) -> str:
    """The last hash of the chain in a file: it stands in the last line, unless an earlier version wrote that."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - LONGEST_LINE))
        tail = file.read().splitlines()
        try:
            if tail and (found := json.loads(tail[-1]).get(CHAIN)):
                return str(found)
            file.seek(0)
            return last(json.loads(line) for line in file)
        except (ValueError, AttributeError, TypeError) as error:
            raise RunError(f"{path} is damaged ({error}); restore it from a copy") from None


# -- reading ------------------------------------------------------------------------------------


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """The numbers of a model."""
    try:
        return load((folder / MODEL).read_bytes())
    except FileNotFoundError:
        raise _lacks(folder, MODEL) from None
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise _damaged(folder, error) from None


def read_kept(folder: Path, run: str) -> dict[str, Tensor]:
    """What the label holder kept beside the model; nothing, where there is no such file.

    Raises:
        RunError: it is damaged, or of another run.
    """
    path = folder / KEPT
    if not path.exists():
        return {}
    try:
        kept = load(path.read_bytes())
        of = kept.pop(_RUN).numpy().tobytes().decode()
        digest = kept.pop(_DIGEST, torch.tensor([])).numpy().tobytes().decode()  # earlier versions wrote none
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise _damaged(folder, error) from None
    if of != run:
        raise RunError(f"{path} is of another run than {run}; restore the folder of the run")
    if digest and digest != fingerprint(kept):
        raise RunError(f"{path} was changed or is damaged: its digest does not fit; restore it from a copy")
    return kept


def read_lines(path: Path) -> list[StoredLine]:
    """The lines of a ledger in a file as they are, whatever they say.

    Raises:
        RunError: there is no such file, or a line is no JSON object.
    """
    lines = []
    try:
        with path.open(encoding="utf-8") as file:
            for number, text in enumerate(file, 1):
                lines.append(json.loads(text))
                if not isinstance(lines[-1], dict):
                    raise RunError(f"line {number} of {path} is no entry of a ledger; restore it from a copy")
    except FileNotFoundError:
        raise _lacks(path.parent, path.name) from None
    except ValueError as error:  # UnicodeDecodeError is one
        raise RunError(f"line {len(lines) + 1} of {path} is damaged ({error}); restore it from a copy") from None
    return lines


def read_signed(folder: Path) -> Mapping[str, Any] | None:
    """The signed end of the ledger in a folder; None, where there is none."""
    try:
        found = read_json(folder / HEAD)
    except FileNotFoundError:
        return None
    if not isinstance(found, dict):
        raise RunError(f"{folder / HEAD} is damaged; restore it from a copy")
    return found


def read_ledger(folder: Path) -> Ledger:
    """Every release so far."""
    try:
        lines = (folder / LEDGER).read_text(encoding="utf-8").splitlines()
        return Ledger(Entry.from_json(json.loads(line)) for line in lines)
    except FileNotFoundError:
        raise _lacks(folder, LEDGER) from None
    except (ValueError, KeyError, TypeError) as error:
        raise _damaged(folder, error) from None


def read_plans(folder: Path, digest: str | None, record: str) -> dict[str, ColumnPlan]:
    """How the tables became columns; nothing, where `record` (the file that says so) has no digest of them."""
    if not digest:
        return {}
    path = folder / COLUMNS
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise _lacks(folder, COLUMNS) from None
    if hashlib.sha256(content).hexdigest() != digest:
        raise RunError(f"{path} does not belong to its {record}; restore both from one copy")
    try:
        return from_bytes(content)
    except DataError as error:
        raise RunError(f"{path} cannot be used: {error}") from None


def read_trained(folder: Path, noisy: bool, run: str) -> TrainingRows | None:
    """Digests of the training rows; None where there was no noise, or no file: earlier versions saved none."""
    path = folder / TRAINED
    if not noisy or not path.exists():
        return None
    try:
        return TrainingRows.from_bytes(path.read_bytes(), run)
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise _damaged(folder, error) from None


def _lacks(folder: Path, name: str) -> RunError:
    return RunError(f"{folder} lacks {name}; restore it or train again")


def _damaged(folder: Path, error: Exception) -> RunError:
    return RunError(f"the files of {folder} are damaged ({error}); restore them from a copy")


def beginning(flat: Mapping[str, Tensor], start: str) -> dict[str, Tensor]:
    """The tensors whose names begin so, without that beginning."""
    return {name.removeprefix(start): value for name, value in flat.items() if name.startswith(start)}
