"""Trainings of a benchmark that are kept in a folder, so that one that was stopped goes on with what is missing.

Several processes may be given the same folder: each takes trainings that nobody else has taken, and waits for the
others at the end, so that all of them find the same. What a killed process was training is taken by another. A run
that another commit, machine or setting gave is refused.
"""

from __future__ import annotations

import functools
import hashlib
import json
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import colonnade
from colonnade.bench.outcome import commit, machine, place_of
from colonnade.errors import ConfigError, RunError
from colonnade.folder import claimed, in_use
from colonnade.job import Job
from colonnade.record import RECORD
from colonnade.run import Run
from colonnade.written import replace_file

ABOUT = "bench.json"  # beside the files of the run: what it is of
PAUSE = 1.0  # seconds between questions whether others are done


@dataclass(frozen=True)
class Piece:
    """One training of a benchmark, by a name that no other one has."""

    name: str
    job: Job
    train: Callable[[], Run]
    signal: bool = True

    def about(self) -> dict[str, object]:
        """What a kept run must be of to stand for this training."""
        job = self.job
        return {
            "name": self.name,
            "signal": self.signal,
            "commit": _commit(),
            "sources": _sources(),
            "machine": place_of(machine(job.training.device)),
            "data": job.data,
            "method": [job.method.name, job.method.model_dump()],
            "model": job.model.model_dump(mode="json"),
            "training": job.training.model_dump(mode="json"),
            "privacy": job.privacy.model_dump(mode="json"),
        }


_commit = functools.cache(commit)  # asks git, which a process that waits for others would do every second


@functools.cache
def _sources() -> str:
    """Of the program itself: a commit with changes on top, or none at all, does not say what trained."""
    package, found = Path(colonnade.__file__).parent, hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        found.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes())
    return found.hexdigest()


@dataclass(frozen=True)
class KeptRuns:
    """A folder with a folder for each training."""

    folder: Path

    def has(self, piece: Piece) -> bool:
        """Whether the run of a training is there.

        Raises:
            ConfigError: there is one that something else gave.
        """
        place = self.folder / piece.name
        if not (place / RECORD).exists():
            return False
        try:
            there = json.loads((place / ABOUT).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            there = {}
        here = json.loads(json.dumps(piece.about(), default=str))
        other = next((key for key in here if there.get(key) != here[key]), None)
        if other is not None:
            raise ConfigError(
                f"--runs {str(self.folder)!r}: the run {piece.name!r} there is of another {other}; name another folder"
            )
        return True

    def load(self, piece: Piece) -> Run | None:
        """The run of a training, if it is there; refused as by `has`."""
        return Run.load(self.folder / piece.name) if self.has(piece) else None

    def take(self, piece: Piece) -> bool:
        """Train, unless another process is at it."""
        place = self.folder / piece.name
        with ExitStack() as held:
            try:
                claim = held.enter_context(claimed(place))
            except RunError:
                if in_use(place) is None and not (place / RECORD).exists():
                    raise  # nobody is at it: the folder cannot be used
                return False
            if not (place / RECORD).exists():
                claim.note("still training")
                run = piece.train()
                replace_file(place / ABOUT, json.dumps(piece.about(), default=str).encode())
                run.save(place)
        return True


def share(kept: KeptRuns, missing: Callable[[], Sequence[Piece]]) -> None:
    """Take trainings until none is missing; those that others are at are waited for."""
    while pieces := missing():
        if not any(kept.take(piece) for piece in pieces):
            time.sleep(PAUSE)
