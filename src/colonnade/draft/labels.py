"""Which column may be the label, and what it may be: yes or no, classes, a number, a count."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from colonnade.data.frames import Key, names_of
from colonnade.data.kinds import NUMBER, kind_of
from colonnade.data.preprocess import encode_labels
from colonnade.errors import ConfigError, DataError
from colonnade.extras import need
from colonnade.tasks import Task, ways_to_read

NAMED = re.compile(r"(.*[_\W])?(labels?|target|class|outcome|response|churn(ed)?)", re.IGNORECASE)
ANSWER, LENGTHS = "y", {"x", "z"}  # y is an answer, unless it stands beside other lengths of a thing
MOST_CLASSES = 50  # texts beyond are hardly classes
MOST_TOLD = 12  # candidates of one message


@dataclass(frozen=True)
class Candidate:
    """A column that may be the label."""

    party: str
    column: str
    tasks: tuple[type[Task], ...]  # what it may be
    values: str  # for people

    named: bool  # it is called as labels are

    @property
    def words(self) -> str:
        """For people: what it may be, and some values."""
        return f"{' or '.join(task.words for task in self.tasks)}: {self.values}"


@dataclass(frozen=True)
class Label:
    """The chosen column, and what it is."""

    party: str
    column: str
    task: Task
    by_name: bool  # nobody said it: it is the only one that is called as labels are

    @property
    def words(self) -> str:
        """For people."""
        classes = ", ".join(map(str, self.task.classes[:10]))
        return f"{self.task.words} ({classes})" if classes else self.task.words


def candidates(frames: Mapping[str, Any], keys: Mapping[str, Key]) -> list[Candidate]:
    """The columns that may be labels, those first that are called so, then classes before numbers."""
    found = [one for party, frame in frames.items() for one in _of_table(party, frame, names_of(keys.get(party)))]
    return sorted(found, key=lambda one: (not one.named, not one.tasks[0].one_class, len(one.tasks)))


def _of_table(party: str, frame: Any, ids: tuple[str, ...]) -> Iterator[Candidate]:
    lengths = {str(name).lower() for name in frame.columns} >= LENGTHS
    for name in frame.columns:
        if name not in ids:
            tasks, values = _tasks(frame[name].dropna())
            if tasks:
                yield Candidate(party, str(name), tasks, values, _named(str(name), lengths))


def _named(column: str, lengths: bool) -> bool:
    """Whether a column is called as labels are."""
    return NAMED.fullmatch(column) is not None or (column.lower() == ANSWER and not lengths)


def _tasks(column: Any) -> tuple[tuple[type[Task], ...], str]:
    """What the values of a column may be as labels, and some of them."""
    types = need("pandas", extra="tables", purpose="a table").api.types
    kind = None if types.is_datetime64_any_dtype(column.dtype) else kind_of(column)
    if kind is None:
        return (), ""
    seen = column.unique()
    distinct = np.asarray(seen, dtype=np.float64) if kind == NUMBER else np.asarray([str(value) for value in seen])
    ways = ways_to_read(distinct)
    if len(distinct) > min(MOST_CLASSES, max(2, len(column) // 2)):
        ways = tuple(way for way in ways if not way.one_class)
    return ways, _some([f"{value:g}" if kind == NUMBER else str(value) for value in np.sort(distinct)], kind == NUMBER)


def _some(texts: Sequence[str], numbers: bool) -> str:
    """Values for people, of many only the first and the last."""
    if len(texts) == 2:
        return " or ".join(texts)
    few = len(texts) <= 4
    return ", ".join(texts) if few else f"{texts[0]} to {texts[-1]}" if numbers else f"{', '.join(texts[:3])}, ..."


def choose_label(frames: Mapping[str, Any], found: list[Candidate], said: str | None, task: str | None) -> Label:
    """The label and what it is.

    Args:
        frames: pandas data frames by party.
        found: the columns that may be it.
        said: the column, where the user named it.
        task: what it is, where the user said so.

    Raises:
        ConfigError: there are several, or none; they are named. Or what it is could be meant in several ways.
        DataError: the column that was said is no label.
    """
    by_name = [one for one in found if one.named]
    if said is None and len(by_name) != 1:
        raise ConfigError(_which(by_name or found))
    column = by_name[0].column if said is None else said
    holders = [party for party, frame in frames.items() if column in frame.columns]
    if not holders:
        known = [str(name) for frame in frames.values() for name in frame.columns]
        close = difflib.get_close_matches(column, known, n=1)
        raise ConfigError(
            f"no table has the label column {column!r}" + (f"; did you mean {close[0]!r}?" if close else "")
        )
    if len(holders) > 1:
        raise ConfigError(
            f"the label column {column!r} is in the tables of {' and '.join(holders)}; drop it from all but one, or a "
            "party would train on the answer"
        )
    frame = frames[holders[0]]
    known_labels = frame.loc[frame[column].notna(), [column]]
    try:
        return Label(holders[0], column, encode_labels(known_labels, task).task, said is None)
    except DataError as error:
        if task is not None:
            raise
        raise ConfigError(f"{error} (here: --task)") from None


def _which(found: list[Candidate]) -> str:
    if not found:
        return "no column of the tables can be a label: needed one with at least two different values beside the ids"
    listed = "; ".join(f"{one.column} of {one.party} ({one.words})" for one in found[:MOST_TOLD])
    more = f"; and {len(found) - MOST_TOLD} more" if len(found) > MOST_TOLD else ""
    return f"which column is the label? say it with --label COLUMN: {listed}{more}"
