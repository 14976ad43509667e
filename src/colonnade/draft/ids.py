"""Which columns of several tables are the ids of the same rows."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from colonnade.data.frames import Key, names_of
from colonnade.data.ids import Ids, id_columns, is_in, text_ids, told
from colonnade.data.inspect import NAMED_LIKE_IDS
from colonnade.errors import ConfigError, DataError, RowsDisagree
from colonnade.extras import need

SOME = 0.05  # share of the smallest table's ids that must meet where columns have the same name
FEW = 6  # tables whose ids stand in one sentence
MANY = 0.5  # the same where they have different names: small whole numbers meet by chance


@dataclass(frozen=True)
class Match:
    """A way to match the rows of all tables; without keys they are matched by position."""

    keys: Mapping[str, Key]
    common: int  # rows that all tables have
    by_chance: bool = False  # the ids may be nothing but row numbers of different things

    @property
    def alike(self) -> bool:
        """Whether all tables call it the same."""
        return len(set(self.keys.values())) == 1

    @property
    def words(self) -> str:
        """For people: 'customer', or bank 'customer' and telco 'subscriber'."""
        if not self.keys:
            return "the order of the rows"
        if self.alike:
            return told(next(iter(self.keys.values())))
        return ", ".join(f"{party} {told(key)}" for party, key in self.keys.items())

    @property
    def options(self) -> str:
        """What to type to choose it."""
        if self.alike:
            return " ".join(f"--id {name}" for name in names_of(next(iter(self.keys.values()))))
        return " ".join(f"--id {party}={name}" for party, key in self.keys.items() for name in names_of(key))


def choose_match(frames: Mapping[str, Any], said: Ids, in_order: bool) -> Match:
    """How the rows of the tables belong together.

    Args:
        frames: pandas data frames by party.
        said: the id, where the user named it.
        in_order: the user said that there is none, and all tables have the same rows in the same order.

    Raises:
        ConfigError: there are several ways, or none; the ways are named.
        DataError: the id that was said is missing, empty or repeated in a table.
    """
    if in_order:
        return _by_position(frames, said)
    if said is not None:
        keys = id_columns(said, frames)
        ids = {party: text_ids(f"party {party!r}", frame, keys[party]) for party, frame in frames.items()}
        return Match(keys, _common(ids))
    ways = find_matches(frames)
    if len(ways) == 1 and not ways[0].by_chance:
        return ways[0]
    if len(ways) == 1 and len(frames) <= FEW:
        raise ConfigError(
            f"the tables have no id of one name; {ways[0].words} have {ways[0].common:,} values in common, but are "
            f"numbered through, as rows of anything are: if they mean the same people, say {ways[0].options}"
        )
    if len(ways) > 1 and len(frames) <= FEW:
        listed = "; ".join(f"{way.words} ({way.common:,} ids in all tables): {way.options}" for way in ways[:5])
        raise ConfigError(f"the tables can be matched in {len(ways)} ways, say which one: {listed}")
    if len(frames) == 1:
        return Match({}, len(next(iter(frames.values()))))
    raise ConfigError(_no_way(frames))


def _by_position(frames: Mapping[str, Any], said: Ids) -> Match:
    if said is not None:
        raise ConfigError("--same-order says that there is no id, and --id names one; say one of them")
    lengths = {party: len(frame) for party, frame in frames.items()}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{party}: {rows:,}" for party, rows in lengths.items())
        raise RowsDisagree(f"--same-order needs tables of equally many rows; got {listed}")
    return Match({}, next(iter(lengths.values())))


def find_matches(frames: Mapping[str, Any]) -> list[Match]:
    """All ways to match the tables: by columns of one name; else by two of them together; else by different names."""
    columns = {party: _possible(frame) for party, frame in frames.items()}
    if len(frames) == 1:
        party, ids = next(iter(columns.items()))
        return [Match({party: name}, len(those)) for name, those in ids.items() if NAMED_LIKE_IDS.search(name)]
    for ways in (_of_one_name(columns), _of_two_columns(frames)):
        found = list(ways)
        if found:
            return found
    return [
        replace(way, by_chance=any(_numbered(frames[party][key]) for party, key in way.keys.items()))
        for way in _of_different_names(columns)
    ]


def _numbered(column: Any) -> bool:
    """Whether it holds 1, 2, 3, ... or nearly so, in any order."""
    whole = need("pandas", extra="tables", purpose="a table").api.types.is_integer_dtype(column.dtype)
    return whole and int(column.max()) - int(column.min()) < 1.1 * len(column)


def _possible(frame: Any) -> Mapping[str, Any]:
    """Columns without empty or repeated values that may be ids, with their values as text."""
    found = {}
    for name in frame.columns:
        if _is_written(frame[name]) and frame[name].is_unique:
            ids = _ids(frame, str(name))
            if ids is not None:
                found[str(name)] = ids
    return found


def _is_written(column: Any) -> bool:
    """Whether it holds whole numbers or text, as ids do."""
    types = need("pandas", extra="tables", purpose="a table").api.types
    whole = types.is_integer_dtype(column.dtype)
    return whole or ((types.is_string_dtype(column.dtype) or types.is_object_dtype(column.dtype)) and len(column) > 0)


def _ids(frame: Any, key: Key) -> Any:
    """Ids as text; None where some are empty or repeated."""
    try:
        return text_ids("", frame, key)
    except DataError:
        return None


def _of_one_name(columns: Mapping[str, Mapping[str, Any]]) -> Iterator[Match]:
    first, *others = columns.values()
    for name in first:
        if all(name in other for other in others):
            yield from _met(dict.fromkeys(columns, name), {p: ids[name] for p, ids in columns.items()}, SOME)


def _of_two_columns(frames: Mapping[str, Any]) -> Iterator[Match]:
    first, *others = frames.values()
    shared = [str(name) for name in first.columns if all(name in other.columns for other in others)]
    shared = [name for name in shared if all(_is_written(frame[name]) for frame in frames.values())]
    for key in itertools.combinations(shared, 2):
        ids = {party: _ids(frame, key) for party, frame in frames.items()}
        if all(those is not None for those in ids.values()):
            yield from _met(dict.fromkeys(frames, key), ids, SOME)


def _of_different_names(columns: Mapping[str, Mapping[str, Any]]) -> Iterator[Match]:
    """Every choice of one column per table; tables have few columns that may be ids."""
    parties = list(columns)
    first, *others = parties
    for name, ids in columns[first].items():
        meeting: list[Sequence[str]] = [
            [other for other, theirs in columns[party].items() if _share({first: ids, party: theirs}) >= MANY]
            for party in others
        ]
        for names in itertools.product(*meeting):
            keys = dict(zip(parties, (name, *names), strict=True))
            yield from _met(keys, {party: columns[party][key] for party, key in keys.items()}, MANY)


def _met(keys: Mapping[str, Key], ids: Mapping[str, Any], least: float) -> Iterator[Match]:
    if _share(ids) >= least:
        yield Match(keys, _common(ids))


def _common(ids: Mapping[str, Any]) -> int:
    """How many ids all tables have."""
    first, *others = ids.values()
    shared = first
    for other in others:
        shared = shared[is_in(shared, other)]
    return len(shared)


def _share(ids: Mapping[str, Any]) -> float:
    return _common(ids) / min(map(len, ids.values()))


def _no_way(frames: Mapping[str, Any]) -> str:
    """Why no id was found, and which tables do belong together."""
    pairs = []
    for one, other in itertools.combinations(list(frames)[:FEW], 2):
        ways = find_matches({one: frames[one], other: frames[other]})
        if len(ways) == 1 and not ways[0].by_chance:
            pairs.append(f"{one} and {other} by {ways[0].words}")
    remedy = (
        "name the id (--id COLUMN, or --id PARTY=COLUMN for each), or if the rows are in the same order, --same-order"
    )
    if not pairs:
        return f"no column with different values in every row is shared by the tables {', '.join(frames)}; {remedy}"
    return (
        f"the tables {', '.join(frames)} have no id that all of them share; some do ({'; '.join(pairs[:3])}): name "
        f"only the files that belong together, or {remedy}"
    )
