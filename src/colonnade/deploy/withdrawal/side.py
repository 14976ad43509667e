"""One organisation's list of people who withdrew, seen through its alignment; and what becomes of new rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from colonnade.align.files import ABOUT, Alignment, Heading, read_alignment, read_heading
from colonnade.deploy.decision import Decision, decide
from colonnade.deploy.withdrawal.marks import Marked, mark_runs
from colonnade.deploy.withdrawal.waiting import Waiting, WithdrawalLimit, admit, named, read_waiting, settle
from colonnade.engines.message import Notify
from colonnade.errors import ConfigError
from colonnade.identity.credentials import Credentials
from colonnade.withdrawn import Confirmation, confirm, now, read_withdrawn


@dataclass(frozen=True)
class Aligned:
    """An organisation's alignment; its rows, perhaps millions, are read only where somebody has withdrawn."""

    folder: Path
    heading: Heading

    @classmethod
    def at(cls, folder: Path) -> Aligned:
        """The one in a folder."""
        return cls(folder, read_heading(folder))

    @cached_property
    def whole(self) -> Alignment:
        """With its rows."""
        return read_alignment(self.folder)

    def rows_of(self, ids: frozenset[str]) -> np.ndarray:
        """(K,) row numbers of those of these ids that have one, ascending."""
        return self.whole.rows_of(ids) if ids else np.empty(0, dtype=np.int64)

    def ids_of(self, rows: np.ndarray) -> list[str]:
        """The ids of those of these rows that are held here."""
        if not len(rows):
            return []
        numbers = dict(zip(self.whole.rows.tolist(), self.whole.ids, strict=True))
        return [numbers[row] for row in rows.tolist() if row in numbers]

    def rows_under(self, digest: str) -> int:
        """How many rows there were under a digest: its own, or that of an alignment that it extends."""
        return next(step.rows for step in (self.heading.agreed, *self.heading.former) if step.digest == digest)


@dataclass(frozen=True)
class Side:
    """An organisation: where its list, its alignment and its runs are."""

    file: Path
    alignment: Path
    runs: Path  # the folder that its runs are in, or that is one
    store: str  # the name of a run's store there
    limit: Callable[[], WithdrawalLimit] = WithdrawalLimit  # how many people others may withdraw here unasked

    def rows(self, alignment: Aligned) -> np.ndarray:
        """Rows of people who withdrew, as this organisation knows."""
        return alignment.rows_of(read_withdrawn(self.file).ids)

    def adopt(self, rows: np.ndarray, by: str, alignment: Aligned, notify: Notify) -> int:
        """Enter the people of rows that another organisation leaves out; how many were not known. Models are marked.

        Rows that this organisation does not hold are nobody here. More people than may be withdrawn unasked wait for a
        person, who is told.
        """
        ids = alignment.ids_of(rows)
        if not ids:
            return 0
        new, waits = admit(self.file, ids, by, self.limit().allowed(alignment.heading.agreed.rows))
        if waits is not None:
            told = f"see `colonnade forget`, then `colonnade approve {waits.name}`, or `colonnade refuse {waits.name}`"
            notify("approval needed", party=by, people=len(waits.ids), reason=waits.why, note=told)
        if new:
            notify("forgotten", party=by, rows=len(new))
            tell_damage(self.mark(alignment), notify)
        return len(new)

    def waits(self, rows: np.ndarray, alignment: Aligned) -> int:
        """Of these rows, how many are used here all the same: a person has not approved of leaving them out."""
        return len(
            np.intersect1d(rows, alignment.rows_of(frozenset(id for one in read_waiting(self.file) for id in one.ids)))
        )

    def mark(self, alignment: Aligned | None = None) -> list[Marked]:
        """Mark all models here that trained with rows of people who withdrew; those, and those where it is unclear."""
        found = Aligned.at(self.alignment) if alignment is None else alignment
        return mark_runs(self.places(), self.store, found.heading, self.rows(found))

    def places(self) -> Iterable[Path]:
        """The folders that may hold a run."""
        if self.runs.is_dir():
            yield self.runs
            yield from sorted(path for path in self.runs.iterdir() if path.is_dir() and not path.name.startswith("."))

    def confirmed(self, who: str, digest: str, rows: int, note: str = "") -> None:
        """Keep what another organisation confirmed; the time is that of the first time it did."""
        before = read_withdrawn(self.file).confirmed.get(who)
        if before is None and not rows and not note:
            return  # nobody has withdrawn: there is nothing to confirm
        if before is None or (before.digest, before.note) != (digest, note):
            confirm(self.file, who, Confirmation(now(), digest, rows, note))


def tell_damage(marked: Iterable[Marked], notify: Notify) -> None:
    """Name the runs that could not be marked."""
    for one in marked:
        if one.damage:
            notify("not marked", run=one.run, reason=str(one))


def decide_withdrawal(side: Side, name: str, decision: Decision, me: Credentials) -> Waiting:
    """Sign what a person decided about a withdrawal that waits, and do it; what it was about.

    Args:
        side: of this organisation.
        name: `withdrawal:` and who leaves the people out.
        decision: what was decided, and by whom; which people it is about is filled in here.
        me: whose key signs it.

    Raises:
        ConfigError: nothing of this name waits.
    """
    waits = named(side.file, name)
    if waits is None:
        known = ", ".join(one.name for one in read_waiting(side.file)) or "none"
        raise ConfigError(f"no withdrawal {name!r} waits for approval here; open: {known}")
    decide(side.file.parent, replace(decision, run=name, proposal=waits.digest), me)
    settle(side.file, waits, decision.approved, decision.because, decision.by or me.name)
    if decision.approved and (side.alignment / ABOUT).exists():
        side.mark()
    return waits
