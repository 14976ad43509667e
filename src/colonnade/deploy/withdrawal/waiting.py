"""Withdrawals of other organisations that wait for a person: more people than may withdraw there in a day unasked.

    withdrawn-waiting.json        beside the list: whose rows another organisation leaves out, and since when it waits
    decision-<digest>.json        beside it: approved or refused, when, by whom and why; signed by this organisation

Without a limit, one organisation could take any number of rows from everybody. What waits is not in the list: the
rows are used as before, but for what the other organisation refuses by itself. A refusal is remembered, because the
other organisation says all it knows every time.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

from pydantic import Field

from colonnade.config import Settings
from colonnade.errors import RunError
from colonnade.folder import claimed
from colonnade.withdrawn import PATIENCE, Withdrawal, now, put, read_withdrawn, withdraw

FORMAT = 1
PREFIX = "withdrawal:"  # no run's name has a colon
A_DAY = timedelta(days=1)


class WithdrawalLimit(Settings):
    """How many people another organisation may withdraw here without a person being asked."""

    most_rows: int = Field(
        10, ge=0, description="people whom one other organisation may withdraw in 24 hours; more wait for a person"
    )
    most_share: float = Field(
        0.01, ge=0, le=1, description="the same, as a share of the aligned rows; the larger of the two holds; 1: any"
    )

    def allowed(self, rows: int) -> int:
        """How many people in 24 hours, of so many aligned rows."""
        return max(self.most_rows, math.floor(self.most_share * rows))


@dataclass(frozen=True)
class Waiting:
    """People whom another organisation leaves out, and who are not in the list here."""

    by: str
    ids: tuple[str, ...]
    time: str
    why: str
    refused: bool = False
    because: str = ""

    @property
    def name(self) -> str:
        """What `colonnade approve` calls it."""
        return f"{PREFIX}{self.by}"

    @property
    def digest(self) -> str:
        """Of exactly these people: a decision about others says nothing about them."""
        return hashlib.sha256(json.dumps([self.by, sorted(self.ids)]).encode()).hexdigest()

    def to_json(self) -> dict[str, object]:
        """Without ids: who it is stays in the file."""
        facts = {"name": self.name, "by": self.by, "people": len(self.ids), "time": self.time, "why": self.why}
        return {**facts, "state": "refused" if self.refused else "waits for approval", "because": self.because}

    def __str__(self) -> str:
        state = f"refused ({self.because or 'no reason was given'})" if self.refused else "waits for approval"
        return f"{self.name}: {state}: {self.why}"


def waiting_file(withdrawn: Path) -> Path:
    """Beside the list."""
    return withdrawn.with_name(f"{withdrawn.stem}-waiting.json")


def read_waiting(withdrawn: Path) -> tuple[Waiting, ...]:
    """What waits or was refused beside a list; people who are in the list by now do not.

    Raises:
        RunError: it cannot be read.
    """
    path, known = waiting_file(withdrawn), read_withdrawn(withdrawn).ids
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
        if said["format"] != FORMAT:
            raise ValueError(f"its format is {said['format']!r}, known is {FORMAT}")
        found = [Waiting(**{**one, "ids": tuple(map(str, one["ids"]))}) for one in said["waiting"]]
    except FileNotFoundError:
        return ()
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunError(
            f"{path} cannot be read ({error}); put it back from a copy, or remove it: what waits is told again"
        ) from None
    left = (replace(one, ids=tuple(id for id in one.ids if id not in known)) for one in found)
    return tuple(one for one in left if one.ids)


def admit(withdrawn: Path, ids: Sequence[str], by: str, allowed: int) -> tuple[list[str], Waiting | None]:
    """Enter people whom another organisation leaves out, if they are few enough; else they wait.

    Args:
        withdrawn: the list.
        ids: of all people whom it leaves out.
        by: who it is.
        allowed: how many it may withdraw in 24 hours.

    Returns:
        The ids that were not in the list and are now; and what waits, if there is more of it than before.
    """
    with _alone(withdrawn):
        held = [one for one in read_waiting(withdrawn) if one.by == by]
        people = read_withdrawn(withdrawn)
        there = people.ids.union(*(one.ids for one in held))
        fresh = [id for id in dict.fromkeys(ids) if id not in there]
        if not fresh:
            return [], None
        if len(fresh) + _today(people.people, by) <= allowed:
            return withdraw(withdrawn, fresh, by), None
        before = next((one for one in held if not one.refused), None)
        together = (*(before.ids if before else ()), *fresh)
        many = "1 person" if len(together) == 1 else f"{len(together):,} people"
        why = f"{by} leaves out {many}; without a person's approval at most {allowed:,} in 24 hours"
        waits = Waiting(by, together, now(), why)
        _write(withdrawn, [*(one for one in read_waiting(withdrawn) if one != before), waits])
    return [], waits


def settle(withdrawn: Path, waits: Waiting, approved: bool, because: str, who: str) -> None:
    """Do what a person decided: enter the people, or remember the refusal."""
    with _alone(withdrawn):
        if approved:
            withdraw(withdrawn, waits.ids, waits.by, approved=who)
        others = [one for one in read_waiting(withdrawn) if one.digest != waits.digest]
        _write(withdrawn, others if approved else [*others, replace(waits, refused=True, because=because)])


def named(withdrawn: Path, name: str) -> Waiting | None:
    """What is decided about under a name: what waits, else what was refused last, for people may change their minds."""
    found = [one for one in read_waiting(withdrawn) if one.name == name]
    return next((one for one in found if not one.refused), found[-1] if found else None)


def _today(people: Collection[Withdrawal], by: str) -> int:
    """How many one organisation has withdrawn in the last 24 hours; those whom a person approved do not count."""
    since = (datetime.now(timezone.utc) - A_DAY).strftime("%Y-%m-%dT%H:%M:%SZ")
    return sum(one.by == by and one.time > since and not one.approved for one in people)


def _alone(withdrawn: Path) -> AbstractContextManager[object]:
    """Nobody else counts or changes what waits meanwhile."""
    path = waiting_file(withdrawn)
    return claimed(path.with_name(f".{path.name}"), patience=PATIENCE)


def _write(withdrawn: Path, waiting: Sequence[Waiting]) -> None:
    put(waiting_file(withdrawn), {"format": FORMAT, "waiting": [asdict(one) for one in waiting]})
