"""How far columns and scores have moved since a training: a party's columns at home, the scores at the label holder."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from colonnade.align.files import ABOUT, read_alignment
from colonnade.align.ids import read_ids
from colonnade.data.columns import ColumnPlan
from colonnade.data.drift import Reference
from colonnade.data.frames import names_of, read_table
from colonnade.data.new_columns import unwarned
from colonnade.deploy.export import DRIFT
from colonnade.deploy.scores import read_scores
from colonnade.deploy.sections import PartyFile
from colonnade.errors import ConfigError, DataError, RunError
from colonnade.part import Part
from colonnade.psi import LARGE, SOME, TOO_FEW, Shift
from colonnade.saved import read_json
from colonnade.withdrawn import read_withdrawn


@dataclass(frozen=True)
class Drift:
    """What has moved since a model was trained."""

    run: str
    folder: Path
    rows: int  # that were counted now
    shifts: Sequence[Shift] = field(repr=False)
    of: str = "columns"  # or scores
    doubts: Sequence[str] = field(default=(), repr=False)  # what is to be said of rows that were aligned since

    @property
    def large(self) -> int:
        """How many have moved far, or cannot be compared."""
        return sum(shift.alarming for shift in self.shifts)

    def summary(self) -> str:
        """One sentence, without any name of a column."""
        few = sum(shift.verdict == TOO_FEW for shift in self.shifts)
        some = sum(shift.psi is not None and shift.psi >= SOME for shift in self.shifts) - few
        told = f"{self.large} of {len(self.shifts)} {self.of} have moved far (PSI from {LARGE:g} on, or not comparable)"
        more = f"; {max(some, 0)} are above {SOME:g}" if some > self.large else ""
        return told + more + (f"; of {few} there are too few rows to say" if few else "")

    def to_json(self) -> dict[str, object]:
        """Plain values."""
        told = {"run": self.run, "folder": str(self.folder), "rows": self.rows, "of": self.of, "large": self.large}
        shifts = [shift.to_json() for shift in self.shifts]
        return {**told, "shifts": shifts} | ({"doubts": list(self.doubts)} if self.of == "columns" else {})


def column_drift(read: PartyFile, run: str | None = None, whole: bool = False) -> Drift:
    """A party's table as it is now against the training rows of a run.

    Args:
        read: party.toml.
        run: its name; None: the last that was finished.
        whole: all rows of the table, not only those that are aligned.

    Raises:
        ConfigError: there is no such run, or none that counted its training rows.
    """
    p = read.party
    place = _chosen(p.folder, run)
    reference = Reference.from_json(read_json(place / DRIFT))
    plan = Part.load(place).plans.get(p.name)
    if plan is None:
        raise RunError(f"{place} does not say how its table became columns; train again")
    frame = read_table(p.table, id=p.id, categories=p.categories, text=p.text)
    ids = read_ids(frame, p.id, f"table {p.table.name!r}")
    frame = frame.drop(columns=list(names_of(p.id)))
    gone = read_withdrawn(p.withdrawn).ids
    kept = np.array([id not in gone for id in ids], dtype=bool)
    if not whole and (p.alignment / ABOUT).exists():
        rows = {*read_alignment(p.alignment).ids}
        kept &= np.array([id in rows for id in ids], dtype=bool)
    now, new = frame[kept], frame[kept & ~_began_with(place, p.alignment, ids)]
    doubts = _doubts(plan, new)
    return Drift(_name(place), place, len(now), reference.shifts(plan, now), doubts=doubts)


def _began_with(place: Path, alignment: Path, ids: Sequence[str]) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """(R,) which rows of a table the run of a folder began with; all of them, where nobody knows."""
    began = read_json(place / "party.json")["proposal"].get("alignment")
    if not began or not (alignment / ABOUT).exists():
        return np.ones(len(ids), dtype=bool)
    aligned = read_alignment(alignment)
    if began not in (aligned.digest, *aligned.extends):
        return np.ones(len(ids), dtype=bool)
    rows = {*aligned.as_of(began).ids}
    return np.array([id in rows for id in ids], dtype=bool)


def _doubts(plan: ColumnPlan, new: Any) -> list[str]:
    """What is to be said of new rows: a few among many move no share of a bin, and are wrong all the same."""
    if not len(new):
        return []
    with unwarned() as doubts:
        try:
            plan.transform(new)
        except DataError as error:
            return [*doubts, str(error)]
    return doubts


def score_drift(folder: Path, days: float, clock: float | None = None) -> Drift:
    """Scores of predictions of the last days against those of the test rows when the model was trained."""
    known = read_scores(folder)
    if known is None:
        raise ConfigError(
            f"{folder} has no counts of scores: no test rows were evaluated (with noise none are), or an earlier "
            "version trained it"
        )
    shifts = known.shifts(days, time.time() if clock is None else clock)
    return Drift(folder.name, folder, max((shift.rows[1] for shift in shifts), default=0), shifts, "scores")


def _chosen(folder: Path, run: str | None) -> Path:
    places = [folder, *folder.iterdir()] if folder.is_dir() else []
    found = {_name(place): place for place in places if (place / DRIFT).exists()}
    if run is not None and run not in found:
        raise ConfigError(
            f"no finished run {run!r} in {str(folder)!r}; there are: {', '.join(sorted(found)) or 'none'}"
        )
    if not found:
        raise ConfigError(f"no run in {str(folder)!r} is finished: there are no training rows to compare with")
    return found[run] if run is not None else max(found.values(), key=lambda place: (place / DRIFT).stat().st_mtime_ns)


def _name(place: Path) -> str:
    try:
        return str(read_json(place / "party.json")["proposal"]["run"])
    except (OSError, KeyError, TypeError):
        return place.name
