"""What is doubtful about one party's table: looked at by its owner, before anything is trained.

Everything here needs one table only. What takes the tables of several owners is in `colonnade.check`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

from colonnade.data.column_settings import PartyColumns
from colonnade.data.columns import ColumnPlan
from colonnade.data.file_doubts import EMPTY_WORDS, LEADING_ZEROS, told_of_words
from colonnade.data.kinds import NUMBER, TEXT, is_categorical, kind_of
from colonnade.data.rare import NothingLeft
from colonnade.data.said import as_said
from colonnade.errors import DataError
from colonnade.extras import need

Level = Literal["error", "warning", "note"]
DATES = "dates"
NEARLY_ALL = 0.995  # share of one value from which a column is nearly constant
MOSTLY_EMPTY = 0.5  # share of empty values from which a column is worth a word
SOME = 100_000  # rows of a large table that are looked at
FEW_ROWS = 50  # below, all values may differ by chance
CODES = (-9, -99, -999, -9999, -99999, 99, 999, 9999, 99999, 999999)  # how missing numbers are often written
FAR = 10  # times the spread of the other values
NAMED_LIKE_IDS = re.compile(r"(^|[_\W])(id|ids|key|uuid|guid|nr|number)$", re.IGNORECASE)
WRITTEN_AS_TEXT = "its values look like dates written as text; write YYYY-MM-DD"
READ_AS_NUMBERS = (
    "some of its numbers begin with a zero, as postcodes and other codes do, and it is read as a quantity; say what it "
    "is: kind = 'category' or kind = 'number'"
)
WRITTEN_DATES = (
    re.compile(r"\d{1,2}[./-]\d{1,2}[./-](\d{4}|\d{2})(\s.*)?"),
    re.compile(r"\d{4}[./-]\d{1,2}[./-]\d{1,2}([T\s].*)?"),
)


@dataclass(frozen=True)
class Finding:
    """One sentence about the data; an error stops a training, a warning does not."""

    level: Level
    text: str
    party: str | None = None
    column: str | None = None
    answered_by: tuple[str, ...] = ()  # settings of [training]: with one of them it is no longer doubtful


@dataclass(frozen=True)
class ColumnFacts:
    """A column in numbers."""

    name: str
    kind: str  # numbers, text, booleans, categories, dates, other
    missing: int
    distinct: int  # of a large table: in the rows that were looked at


@dataclass(frozen=True)
class TableFacts:
    """A table in numbers, and what is doubtful about it."""

    party: str
    rows: int
    columns: tuple[ColumnFacts, ...]
    findings: tuple[Finding, ...]


def inspect_table(party: str, frame: Any, settings: PartyColumns | None = None) -> TableFacts:
    """Look at every column of a party's table.

    Args:
        party: whose table.
        frame: pandas.DataFrame without ids and labels.
        settings: what is said about its columns; None: nothing. Those that are ignored are not looked at.
    """
    settings = settings or PartyColumns()
    frame = frame.infer_objects().drop(columns=[n for n in frame.columns if settings.of(n).kind == "ignore"])
    rows = some_rows(len(frame))
    facts, findings, words = [], [], {}
    for name in frame.columns:
        refused = list(_refused(party, frame, str(name), settings))
        said = {} if refused else {key: one for key, one in settings.by_name.items() if key == name}
        seen = as_said(party, frame[[name]], said)
        column = seen[name].iloc[rows]
        about = column_facts(seen, name, column)
        facts.append(about)
        findings += refused or list(_doubts(party, column, about, len(frame)))
        unsaid = settings.of(name).kind == "auto"
        if unsaid and about.kind == TEXT and name in frame.attrs.get(EMPTY_WORDS, ()):
            words[str(name)] = frame.attrs[EMPTY_WORDS][name]
        if unsaid and about.kind == NUMBER and about.distinct > 1 and name in frame.attrs.get(LEADING_ZEROS, ()):
            findings.append(Finding("warning", f"party {party!r}, column {name!r}: {READ_AS_NUMBERS}", party, name))
    if words:
        findings.append(Finding("warning", f"party {party!r}: {told_of_words(words)}", party, next(iter(words))))
    return TableFacts(party, len(frame), tuple(facts), tuple(findings))


def column_facts(frame: Any, name: Any, some: Any) -> ColumnFacts:
    """A column in numbers; `some` are its values in the rows that are looked at."""
    return ColumnFacts(str(name), _kind(some), int(frame[name].isna().sum()), int(some.nunique()))


def some_rows(rows: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """All rows of a table, or of a large one enough of them to see what it is like, evenly spread."""
    return np.arange(0, rows, max(1, rows // SOME))


def _kind(column: Any) -> str:
    types = need("pandas", extra="tables", purpose="a table").api.types
    if is_categorical(column):
        return "categories"
    if types.is_datetime64_any_dtype(column.dtype):
        return DATES
    return kind_of(column.dropna()) or "other"


def _refused(party: str, frame: Any, name: str, settings: PartyColumns) -> Iterator[Finding]:
    """What no plan could be fitted to, and what a plan leaves out, in the plan's own words."""
    own = {key: one for key, one in settings.by_name.items() if key == name}
    alone = settings.model_copy(update={"by_name": own})
    some = some_rows(len(frame))
    try:
        try:
            ColumnPlan.fit(party, frame[[name]], torch.from_numpy(some), alone)
        except NothingLeft:
            if len(some) == len(frame):
                raise
            ColumnPlan.fit(party, frame[[name]], torch.arange(len(frame)), alone)  # some rows have fewer texts twice
    except NothingLeft as error:
        yield Finding("warning", error.told[0], party, name)
        if are_written_dates(frame[name].dropna()):
            yield Finding("warning", f"party {party!r}, column {name!r}: {WRITTEN_AS_TEXT}", party, name)
    except DataError as error:
        yield Finding("error", str(error), party, name)


def _doubts(party: str, column: Any, about: ColumnFacts, rows: int) -> Iterator[Finding]:
    """What trains, but probably not as it was meant."""

    def warning(text: str) -> Finding:
        return Finding("warning", f"party {party!r}, column {about.name!r}: {text}", party, about.name)

    values = column.dropna()
    if about.distinct <= 1:
        yield warning(f"all values are {_shown(values.iloc[0]) if len(values) else 'empty'}; it tells nothing, drop it")
        return
    if about.missing > MOSTLY_EMPTY * rows:
        yield warning(f"{about.missing:,} of {rows:,} values are empty; the model learns from few")
    common = values.value_counts(sort=True)
    share = float(common.iloc[0]) / len(column)
    if share >= NEARLY_ALL:
        yield warning(f"{share:.1%} of the values are {_shown(common.index[0])}; it tells next to nothing")
    if is_identifier(column, about):
        yield warning("every row has another value, as ids have; a model learns nothing from it, drop it")
    if about.kind == TEXT and are_written_dates(common.index):
        yield warning(WRITTEN_AS_TEXT)
    if about.kind == NUMBER:
        yield from (warning(text) for text in _codes(values.to_numpy(dtype=np.float64)))


def _shown(value: Any) -> str:
    return repr(value.item() if hasattr(value, "item") else value)


def is_identifier(column: Any, about: ColumnFacts) -> bool:
    """Whether no two rows have the same value, and it is text, a row number, or called an id."""
    if len(column) < FEW_ROWS or about.distinct < len(column):
        return False
    if about.kind in (TEXT, "categories"):
        return True
    types = need("pandas", extra="tables", purpose="a table").api.types
    if not types.is_integer_dtype(column.dtype):
        return False
    numbered = int(column.max()) - int(column.min()) < 1.1 * len(column)
    return numbered or bool(NAMED_LIKE_IDS.search(about.name))


def are_written_dates(values: Any) -> bool:
    """Whether these texts are all dates of one form, which was not recognised as one."""
    some = [str(value).strip() for value in values[:100]]
    return len(some) > 1 and any(all(form.fullmatch(text) for text in some) for form in WRITTEN_DATES)


def _codes(values: Any) -> Iterator[str]:
    """Numbers that stand for something else: the same extreme value several times, far from all others."""
    for code in (values.min(), values.max()):
        rest = values[values != code]
        if code not in CODES or len(rest) == 0 or len(values) - len(rest) < 2:
            continue
        low, middle, high = np.quantile(rest, [0.01, 0.5, 0.99])
        if abs(code - middle) > FAR * max(high - low, 1e-12):
            yield (
                f"{len(values) - len(rest)} of {len(values)} values are {code:g}, far from all others; if that means "
                f"missing, leave those values empty, or say so: empty = [{code:g}]"
            )
