"""People who withdrew: an organisation's list of their ids, and the marks of models that trained with their rows.

    withdrawn.json             beside party.toml or coordinator.toml: ids, when, who said so, why; who has confirmed
    <run's folder>/withdrawn.json   a mark: with how many rows of people who withdrew since this run was trained

The list is outside of every run's folder, so that no old copy of a run brings an id back. It only grows. It is written
whole or not at all, for its owner's eyes only. A list that cannot be read stops whoever needs it: no list would mean
that nobody withdrew.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path

from colonnade.errors import DataError, RunError, Unwritable
from colonnade.folder import claimed
from colonnade.written import keep_file

FILE = "withdrawn.json"
FORMAT = 1
HERE = "here"  # who said so, where it was this organisation
MOST_REASON = 300  # characters
PATIENCE = 10.0  # seconds to wait for another process that writes the list


@dataclass(frozen=True)
class Withdrawal:
    """One person: the id, when it was entered, who said so, and why."""

    id: str
    time: str
    by: str = HERE
    reason: str = ""
    approved: str = ""  # who approved it here, where that was asked for


@dataclass(frozen=True)
class Confirmation:
    """What another organisation has said last: that it leaves out a set of rows, or why it cannot."""

    time: str
    digest: str = ""  # of the set (`rows_digest`); empty: it has not confirmed
    rows: int = 0
    note: str = ""


@dataclass(frozen=True)
class Withdrawn:
    """A list as it is now."""

    people: tuple[Withdrawal, ...] = ()
    confirmed: Mapping[str, Confirmation] = field(default_factory=dict)

    @property
    def ids(self) -> frozenset[str]:
        """Whose rows are never used again."""
        return frozenset(person.id for person in self.people)

    def check(self, names: Collection[str]) -> None:
        """Refuse to predict about people who withdrew.

        Raises:
            DataError: with how many they are, and the first.
        """
        when = {person.id: person.time[:10] for person in self.people}
        gone = [name for name in names if name in when]
        if gone:
            raise DataError(
                f"{len(gone)} of {len(names)} ids are of people who withdrew (first: {gone[0]!r}, on {when[gone[0]]}); "
                "nothing is predicted about them: leave them out"
            )


def read_withdrawn(path: Path) -> Withdrawn:
    """The list in a file; an empty one where there is none.

    Raises:
        RunError: it cannot be read.
    """
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
        if said["format"] != FORMAT:
            raise ValueError(f"its format is {said['format']!r}, known is {FORMAT}")
        people = tuple(Withdrawal(**person) for person in said["people"])
        if not all(isinstance(person.id, str) and person.id for person in people):
            raise ValueError("an entry without an id")
        return Withdrawn(people, {who: Confirmation(**told) for who, told in said["confirmed"].items()})
    except FileNotFoundError:
        return Withdrawn()
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunError(
            f"{path} cannot be read ({error}), so nobody knows who withdrew; put it back from a copy: nothing is "
            "aligned, trained or predicted without it"
        ) from None


def withdraw(path: Path, ids: Iterable[str], by: str = HERE, reason: str = "", approved: str = "") -> list[str]:
    """Enter ids; those that were not in the list before. Those that were keep what the list says of them."""
    asked = list(dict.fromkeys(ids))
    if not asked or not all(asked):
        raise DataError("there is no id to forget, or an empty one; needed at least one")
    if len(reason) > MOST_REASON:
        raise DataError(f"the reason has {len(reason)} characters; needed at most {MOST_REASON}")
    new: list[str] = []

    def change(known: Withdrawn) -> Withdrawn:
        there, at = known.ids, now()
        new[:] = [id for id in asked if id not in there]
        said = " ".join(reason.split())
        return replace(known, people=(*known.people, *(Withdrawal(id, at, by, said, approved) for id in new)))

    _change(path, change)
    return new


def confirm(path: Path, who: str, told: Confirmation) -> None:
    """Keep what another organisation has confirmed, in place of what it confirmed before."""
    _change(path, lambda known: replace(known, confirmed={**known.confirmed, who: told}))


def _change(path: Path, change: Callable[[Withdrawn], Withdrawn]) -> None:
    with claimed(path.with_name(f".{path.name}"), patience=PATIENCE):  # another process may be writing it just now
        before = read_withdrawn(path)
        after = change(before)
        if after != before:
            _write(path, after)


def _write(path: Path, known: Withdrawn) -> None:
    content = {
        "format": FORMAT,
        "people": [asdict(person) for person in known.people],
        "confirmed": {who: asdict(told) for who, told in known.confirmed.items()},
    }
    put(path, content)


def put(path: Path, content: Mapping[str, object]) -> None:
    """Write JSON, for the owner only."""
    try:
        keep_file(path, (json.dumps(content, indent=1) + "\n").encode(), 0o600)
    except OSError as error:
        raise Unwritable(f"{path} cannot be written: {error.strerror}; nobody was forgotten: see to the disk") from None


def now() -> str:
    """The time, as it is written into files."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def stamp(path: Path) -> tuple[int, int, int] | None:
    """Changes whenever the file does; None: there is none."""
    try:
        at = path.stat()
    except OSError:
        return None
    return at.st_mtime_ns, at.st_size, at.st_ino


# -- marks of models ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mark:
    """A model that was trained with rows of people who withdrew since."""

    trained: int  # rows
    time: str  # of the last of them

    def __str__(self) -> str:
        what = "1 row of a person" if self.trained == 1 else f"{self.trained:,} rows of people"
        return f"trained with {what} who withdrew since"


def mark(folder: Path, rows: Collection[int]) -> Mark | None:
    """Mark a run's folder for rows that trained; with those of an earlier mark. None: there are none."""
    before = _marked(folder)
    all_rows = sorted({*before, *rows})
    if set(all_rows) != set(before):
        put(folder / FILE, {"format": FORMAT, "rows": all_rows, "time": now()})
    return read_mark(folder)


def read_mark(folder: Path) -> Mark | None:
    """The mark of a run's folder, if it has one."""
    try:
        said = json.loads((folder / FILE).read_text(encoding="utf-8"))
        return Mark(len(said["rows"]), str(said["time"])) if said["rows"] else None
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{folder / FILE} cannot be read ({error}); remove it, and `colonnade forget` again") from None


def _marked(folder: Path) -> list[int]:
    try:
        return [int(row) for row in json.loads((folder / FILE).read_text(encoding="utf-8"))["rows"]]
    except (OSError, ValueError, KeyError, TypeError):
        return []
