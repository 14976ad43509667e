"""Predictions about rows that trained, after a training with noise: refused, unless the owner says otherwise.

A prediction leaves without noise. About a row that trained it is the upload of the training once more, bare, and one
such question about all training rows undoes what the noise promised. So

    in one process           rows that have the columns of a training row are refused, see `TrainingRows`
    between organisations    each party refuses the row numbers that the run agreed to train on

What is released all the same says so in the ledger (`training_rows`: how many). A saved run keeps digests of its
training rows, so that it recognises them when it is loaded. Whoever has the folder and the exact columns of a row can
therefore tell whether it trained; the networks beside them, which no noise covers either, tell more.
"""

from __future__ import annotations

import hashlib
import secrets
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load, save
from torch import Tensor

from colonnade.errors import Refused, RunError, UnknownTrainingRows
from colonnade.federation import Federation
from colonnade.privacy.events import Parameters
from colonnade.privacy.ledger import Entry
from colonnade.rows import Rows
from colonnade.wire.messages import COORDINATOR, Purpose

NOTE = "training_rows"  # what the ledger calls their number
WHY = "would release them without the noise that their training promised"
ACCIDENTS = 0.01  # the share of new rows that may have the columns of a training row without being one
_CHUNK, _DIGEST, _SALT, _PARTY = 4096, 8, 16, "party/"  # rows at once, bytes of a digest and of its key

Digests = np.ndarray[Any, np.dtype[np.uint64]]


@dataclass(frozen=True)
class TrainingRows:
    """The rows that trained a run, known by digests of their columns (as float32) under a key of the run's own.

    A row is a training row if it equals one in the columns of all parties, or in those of a single party that tell
    rows apart: it is the party's own upload that would leave, whatever the others' columns are. Columns that several
    training rows share (two yes/no columns, an account without any bookings) tell none of them apart, and new rows
    have them, too. So only columns that a single training row has count; and none of a party's, where more than
    `ACCIDENTS` of new rows would have such columns by accident.
    """

    salt: bytes = field(repr=False)
    together: Digests = field(repr=False)  # of all parties' columns
    apart: Mapping[str, Digests] = field(repr=False)  # by party, of columns that tell a row apart

    @classmethod
    def of(cls, federation: Federation) -> TrainingRows:
        """Those of the data of a run. Rows that a party does not hold are none of its training rows."""
        train, salt = federation.split.train, secrets.token_bytes(_SALT)
        found = {party.name: _digests(salt, party.name, party.columns, train) for party in federation.parties}
        held = torch.ones(len(train), len(found)) > 0 if federation.held is None else federation.held[train]
        apart = {name: _telling(found[name][mine]) for name, mine in zip(found, held.T.numpy(), strict=True)}
        complete = held.all(dim=1).numpy()
        return cls(salt, np.unique(_joined(salt, found)[complete]), apart)

    @classmethod
    def of_one(cls, party: str, columns: Tensor, train: Tensor) -> TrainingRows:
        """What a party alone keeps: the training rows among its columns (N, ...), where these tell them apart."""
        salt = secrets.token_bytes(_SALT)
        found = _digests(salt, party, columns, train)
        return cls(salt, found[:0], {party: _telling(found)})

    def among(self, columns: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """(B,) which of some rows (B, ...) are training rows: by the columns of each party, and under "" by all.

        Of some parties' columns: by each of theirs.
        """
        here = [name for name in self.apart if name in columns]
        given = {n: _digests(self.salt, n, columns[n], torch.arange(len(columns[n]))) for n in here}
        found = {name: np.isin(digests, self.apart[name]) for name, digests in given.items()}
        if len(here) == len(self.apart):
            found[""] = np.isin(_joined(self.salt, given), self.together)
        return {name: torch.from_numpy(which) for name, which in found.items()}

    def recognises(self, columns: Mapping[str, Tensor]) -> bool:
        """Whether columns of these parties tell every training row apart, by themselves or all together."""
        here = [name for name in self.apart if name in columns]
        return len(here) == len(self.apart) or any(len(self.apart[name]) >= len(self.together) for name in here)

    def of_party(self, party: str) -> TrainingRows:
        """What one party may keep of it: rows that its own columns tell apart."""
        return TrainingRows(self.salt, self.together[:0], {party: self.apart[party]})

    def to_bytes(self, run: str) -> bytes:
        """A safetensors file. Digests are sorted: no order of rows ties one party's to another's."""
        facts = {"run": run.encode(), "salt": self.salt}
        arrays = {name: np.frombuffer(value, dtype=np.uint8) for name, value in facts.items()}
        return save({**arrays, "together": self.together, **{_PARTY + name: d for name, d in self.apart.items()}})

    @classmethod
    def from_bytes(cls, content: bytes, run: str) -> TrainingRows:
        """The inverse of `to_bytes`; `RunError`, if they are of another run."""
        read = load(content)
        if read.pop("run").tobytes().decode() != run:
            raise RunError(f"the training rows stored with run {run} are those of another run; restore its folder")
        salt, together = read.pop("salt").tobytes(), read.pop("together")
        return cls(salt, together, {name.removeprefix(_PARTY): digests for name, digests in sorted(read.items())})


def noised(ledger: Iterable[Entry]) -> bool:
    """Whether uploads of training left with noise."""
    return any(r.purpose is Purpose.TRAIN and r.owner != COORDINATOR and not r.event.bare for r in ledger)


def check_new(trained: TrainingRows | None, noisy: bool, rows: Rows, release: bool) -> Tensor:
    """(B,) which of these rows trained with noise; `Refused`, if some did and may not be released.

    `noisy` says whether there was noise at all (`noised`). Where the run does not know its training rows, the
    federation that the rows were selected from does; raw rows are then let through with a warning.
    """
    nothing = torch.zeros(len(rows), dtype=torch.bool)
    if not noisy:
        return nothing
    by = {} if trained is None else trained.among(rows.columns)
    if trained is not None and not release and not trained.recognises(rows.columns):
        raise Refused(
            "without all parties it cannot be told whether these rows trained this run, which had noise: the columns "
            f"that are there do not tell rows apart, and predicting training rows {WHY}; give tables of all parties, "
            "or say that it is meant: releases_training_rows = True on the run or model, on the command line "
            "--training-rows release"
        )
    if rows.training is not None and (trained is None or rows.plans):  # encoded alike: it is the run's federation
        by["the federation"] = rows.training
    if not by and not release:
        warnings.warn(
            "this run was saved without digests of its training rows, so it cannot recognise them: make sure that none "
            f"of these rows trained it, since predicting them {WHY}",
            UnknownTrainingRows,
            stacklevel=6,  # where `predict` was called
        )
    found = torch.stack([nothing, *by.values()]).any(dim=0)
    if bool(found.any()) and not release:
        raise Refused(
            f"{int(found.sum())} of these rows trained this run: predicting them {WHY}; leave them out, or say that it "
            "is meant: releases_training_rows = True on the run or model, on the command line --training-rows release "
            f"({_recognised(by, rows, found)})"
        )
    return found


def _recognised(by: Mapping[str, Tensor], rows: Rows, found: Tensor) -> str:
    """By whose columns, and the first of them."""
    first = int(found.nonzero()[0])
    named = f"row {first}, counted from 0" if rows.index is None else f"row {rows.index[first]}"
    whose = [name for name, which in by.items() if name and bool(which.any())]
    told = [*whose[:3], *([f"{len(whose) - 3} more"] if len(whose) > 3 else [])]
    return f"recognised by {', '.join(told) or 'the columns of all parties together'}; first: {named}"


def note(count: int) -> Parameters:
    """What the ledger says of a release about so many training rows."""
    return ((NOTE, float(count)),) if count else ()


# -- digests ------------------------------------------------------------------------------------


def _telling(digests: Digests) -> Digests:
    """Those that one row alone has; none, if new rows have such columns by accident too often.

    How often is the Good-Turing estimate: the values seen once have together about the probability 2 * n2 / n, where n2
    values were seen twice among n rows. One value seen twice is no evidence.
    """
    values, counts = np.unique(digests, return_counts=True)
    twice = 2 * int(np.count_nonzero(counts == 2))
    return values[counts == 1] if twice <= max(2, ACCIDENTS * len(digests)) else values[:0]


def _digests(salt: bytes, party: str, columns: Tensor, rows: Tensor) -> Digests:
    """(B,) of some rows of a party's columns (N, ...)."""
    return _hashed(salt, party, _pieces(columns.detach().flatten(1), rows))


def _joined(salt: bytes, found: Mapping[str, Digests]) -> Digests:
    """(B,) of the digests of all parties."""
    together = np.stack([found[name] for name in sorted(found)], axis=1)
    return _hashed(salt, "", (row.tobytes() for row in together))


def _pieces(flat: Tensor, rows: Tensor) -> Iterator[bytes]:
    for some in rows.split(_CHUNK):
        chunk = flat[some].cpu().float() + 0.0  # no negative zero
        yield from (row.tobytes() for row in chunk.numpy())


def _hashed(salt: bytes, whose: str, rows: Iterable[bytes]) -> Digests:
    person = hashlib.blake2b(whose.encode(), digest_size=hashlib.blake2b.PERSON_SIZE).digest()
    empty = hashlib.blake2b(key=salt, digest_size=_DIGEST, person=person)
    told = bytearray()
    for row in rows:
        one = empty.copy()
        one.update(row)
        told += one.digest()
    return np.frombuffer(bytes(told), dtype=np.uint64)
