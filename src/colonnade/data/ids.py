"""The ids of rows: which columns they are, as text, and where those of one table are in another.

Ids are compared as text, exactly: what one side takes for the same may be two at the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from colonnade.data.frames import Key, as_frame, listed, names_of
from colonnade.errors import ConfigError, DataError
from colonnade.extras import need

# The id of all tables, or one per party; an id is a column, or several that are the id together; None: no ids.
Ids = str | Sequence[str] | Mapping[str, str | Sequence[str]] | None
Places = np.ndarray[Any, np.dtype[np.int64]]  # of rows in a table; -1: nowhere
AT_ONCE = 1 << 20  # ids that are matched at once
BETWEEN = "|"  # between the parts of an id of several columns; a part that has it itself gets a backslash before it

SPELLINGS = {
    "spaces around them": str.strip,
    "'.0' at the end": lambda id: id.removesuffix(".0"),
    "leading zeros": lambda id: id.lstrip("0"),
    "capitals": str.casefold,
}


def id_columns(id: Ids, parties: Iterable[str]) -> dict[str, Key]:
    """The id of each party's table; empty where no id is named."""
    names = list(parties)
    if id is None:
        return {}
    if not isinstance(id, Mapping):
        return dict.fromkeys(names, _key("id", id))
    for party in (*names, *id):
        if party not in id:
            raise ConfigError(f"id names no column for party {party!r}; give one for each of {', '.join(names)}")
        if party not in names:
            raise ConfigError(f"id names a column for {party!r}, who has no table; parties: {', '.join(names)}")
    keys = {party: _key(f"id of party {party!r}", id[party]) for party in names}
    widths = {party: len(names_of(key)) for party, key in keys.items()}
    if len(set(widths.values())) > 1:
        told = ", ".join(f"{party}: {width}" for party, width in widths.items())
        raise ConfigError(f"id: all tables need ids of equally many columns; got {told}")
    return keys


def id_columns_of_new(id: Ids, trained: Mapping[str, Key | None]) -> dict[str, Key]:
    """The id of each party's new table: of parties that nobody named, the one of the training."""
    if isinstance(id, Mapping):
        id = {**{party: _listed(key) for party, key in trained.items() if key is not None}, **id}
    return id_columns(id, trained)


def _listed(key: Key) -> str | Sequence[str]:
    return key if isinstance(key, str) else list(key)


def _key(what: str, columns: Any) -> Key:
    if isinstance(columns, str):
        return columns
    if not isinstance(columns, Sequence) or not columns or not all(isinstance(name, str) for name in columns):
        raise ConfigError(f"{what}: needed a column name, a list of them, or one per party; got {columns!r}")
    if len(set(columns)) < len(columns):
        raise ConfigError(f"{what}: {list(columns)} names a column twice")
    return columns[0] if len(columns) == 1 else tuple(columns)


def ids_of(whose: str, table: Any, id: Key) -> tuple[str, ...]:
    """The ids of a table as text, in its order; `DataError` if a column is missing or an id is empty or repeated."""
    return tuple(text_ids(whose, as_frame(whose, table, id), id))


def by_id(whose: str, frame: Any, key: Key, kept: Sequence[str] = ()) -> Any:
    """The frame indexed by its ids as text; columns of the id that are `kept` are columns, too."""
    ids = text_ids(whose, frame, key)
    return without_id(frame, key, kept).set_axis(ids, axis=0)


def without_id(frame: Any, key: Key, kept: Sequence[str] = ()) -> Any:
    """The frame without the columns of its id; those that are `kept`, which files have as text, as what they mean."""
    left = frame.drop(columns=[name for name in names_of(key) if name not in kept])
    return left.assign(**{name: _meant(frame[name]) for name in kept})


def _meant(column: Any) -> Any:
    """Numbers or dates where a column has nothing else; else as it is."""
    pd = need("pandas", extra="tables", purpose="joining tables")
    if not pd.api.types.is_object_dtype(column.dtype) and not isinstance(column.dtype, pd.StringDtype):
        return column
    numbers = pd.to_numeric(column, errors="coerce")
    if numbers.notna().all():
        return numbers
    dates = pd.to_datetime(column, errors="coerce", format="ISO8601")
    return dates if dates.notna().all() else column


def text_ids(whose: str, frame: Any, key: Key) -> Any:
    """Ids as a pandas.Index of text, so that 7 in one table meets '7' in another."""
    pd = need("pandas", extra="tables", purpose="joining tables")
    pc = need("pyarrow.compute", extra="tables", purpose="joining tables")
    parts = []
    for name in names_of(key):
        if name not in frame.columns:
            raise DataError(f"{whose} has no id column {name!r}; columns: {listed(frame)}")
        part, empty = _texts(whose, frame[name])
        if len(empty):
            raise DataError(
                f"{whose}, id column {name!r}: {len(empty)} ids are empty (first at rows "
                f"{', '.join(map(str, empty[:3]))}, counted from 0); give those rows an id or drop them"
            )
        parts.append(part)
    text = parts[0] if len(parts) == 1 else _joined(parts)
    if any(pc.count_distinct(part).as_py() < len(part) for part in _by_last_byte(text)):
        counted = pc.value_counts(text)
        twice = counted.field("values").filter(pc.greater(counted.field("counts"), 1)).to_pylist()
        raise DataError(
            f"{whose}, id column {told(key)}: {len(twice)} ids occur more than once "
            f"(first: {', '.join(map(repr, twice[:3]))}); keep one row per id"
        )
    return pd.Index(pd.array(text, dtype="str"))


def _texts(whose: str, values: Any) -> tuple[Any, Any]:
    """A column as Arrow text, and the places where it is empty."""
    pd = need("pandas", extra="tables", purpose="joining tables")
    pa = need("pyarrow", extra="tables", purpose="joining tables")
    pc, types = need("pyarrow.compute", extra="tables", purpose="joining tables"), pd.api.types
    hole = values.isna().to_numpy()
    if types.is_float_dtype(values.dtype) and bool((values[~hole] % 1 == 0).all()):
        _check_exact(whose, values)
        values = values.where(~hole, 0).astype(np.int64)  # 7.0 is how a whole number looks after a trip through a sheet
    if types.is_integer_dtype(values.dtype) or isinstance(values.dtype, pd.StringDtype):
        text = pa.array(values.array)
    else:
        text = pa.array(values.astype(object).map(str).to_numpy(dtype=object), pa.large_string())
    text = pa.chunked_array(text) if isinstance(text, list) else text
    text = pc.cast(text, pa.large_string())
    nothing = pc.or_kleene(pc.utf8_is_space(text), pc.equal(text, ""))  # trimming would copy every id
    blank = nothing.to_numpy(zero_copy_only=False).astype(bool)
    return text, (hole | blank).nonzero()[0]


def _check_exact(whose: str, values: Any) -> None:
    """Refuse floats of a size at which two ids have been made one."""
    kind = np.finfo(getattr(values.dtype, "numpy_dtype", values.dtype))
    if float(values.abs().max()) >= 2.0 ** (kind.nmant + 1):
        raise DataError(
            f"{whose}, id column {values.name!r}: {kind.dtype} does not tell whole numbers from "
            f"{2 ** (kind.nmant + 1):,} on apart, and there are such ids, which may be those of others; read the "
            "column as text or as integers"
        )


def _joined(parts: Sequence[Any]) -> Any:
    """Ids of several columns as one text; different ids stay different."""
    pa = need("pyarrow", extra="tables", purpose="joining tables")
    pc = need("pyarrow.compute", extra="tables", purpose="joining tables")
    escaped = [
        pc.replace_substring(pc.replace_substring(part, "\\", "\\\\"), BETWEEN, f"\\{BETWEEN}") for part in parts
    ]
    return pc.binary_join_element_wise(*escaped, pa.scalar(BETWEEN, pa.large_string()))


def told(key: Key) -> str:
    """An id's columns, for messages."""
    return " + ".join(map(repr, names_of(key)))


def places(ids: Any, among: Any) -> Places:
    """Where each of some ids is among others, both pandas indexes without repetitions; -1: nowhere."""
    pa = need("pyarrow", extra="tables", purpose="joining tables")
    pc = need("pyarrow.compute", extra="tables", purpose="joining tables")
    if ids is among or (len(ids) == len(among) and ids.equals(among)):
        return np.arange(len(ids))
    one, other = pa.array(ids), pa.array(among)
    if min(len(one), len(other)) <= AT_ONCE or not (pa.types.is_large_string(one.type) and one.type == other.type):
        found = pc.index_in(one, value_set=other.cast(one.type))
        return np.asarray(pc.fill_null(found, -1)).astype(np.int64)
    out, (mine, theirs) = np.full(len(one), -1), (_last_bytes(text) for text in (one, other))
    for byte in np.unique(mine):
        at, there = (mine == byte).nonzero()[0], (theirs == byte).nonzero()[0]
        found = pc.index_in(one.filter(mine == byte), value_set=other.filter(theirs == byte))
        place = np.asarray(pc.fill_null(found, -1))
        out[at[place >= 0]] = there[place[place >= 0]]
    return out


def _by_last_byte(text: Any) -> Iterator[Any]:
    """Texts in parts, so that equal ones are in one part: a table of all would take several times their memory."""
    if len(text) <= AT_ONCE:
        yield text
        return
    last = _last_bytes(text)
    yield from (text.filter(last == byte) for byte in np.unique(last))


def _last_bytes(text: Any) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """(N,) the last byte of every text; 0 of an empty one."""
    parts = []
    for chunk in text.chunks if hasattr(text, "chunks") else [text]:
        _, offsets, letters = chunk.buffers()
        ends = np.frombuffer(offsets, dtype=np.int64)[chunk.offset : chunk.offset + len(chunk) + 1]
        bytes_ = np.frombuffer(letters or b"\0", dtype=np.uint8)
        parts.append(np.where(np.diff(ends) > 0, bytes_[np.maximum(ends[1:] - 1, 0)], 0).astype(np.uint8))
    return np.concatenate(parts)


def is_in(ids: Any, among: Any) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which of some ids are among others."""
    return places(ids, among) >= 0


def written_differently(one: Any, other: Any) -> str:
    """How ids of two tables that do not meet are written, where that is all that keeps them apart; else nothing.

    Args:
        one: pandas.Index of ids of one table; those that the other has, too, are kept apart by nothing.
        other: the other table's.

    Returns:
        "12 ids of {} and {} differ only in leading zeros", to be formatted with the tables' names; or "".
    """
    one, other = one.difference(other), other.difference(one)
    for how, same in SPELLINGS.items() if len(one) and len(other) else ():
        common = set(map(same, one)) & set(map(same, other))
        if common:
            return f"{len(common):,} ids of {{}} and {{}} differ only in {how}"
    return ""
