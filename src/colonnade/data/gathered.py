"""Rows that arrive part by part, as one pandas data frame; large ones lie in a file that is mapped into memory.

Mapped columns are read-only and cost no memory of the process: the system loads what is read and forgets it again. The
files have no name any more once they are mapped, so that nothing is left behind whatever happens.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import numpy as np

from colonnade.errors import DataError
from colonnade.extras import need
from colonnade.temporary import temporary_folder

IN_MEMORY = 1 << 26  # bytes; larger tables are mapped from a file


def gather(parts: Iterable[tuple[bool, Any]], limit: int | None = None) -> Any:
    """One pandas.DataFrame of pyarrow tables with equal columns.

    Args:
        parts: tables, each with whether everything before it is void.
        limit: more bytes than these are mapped from a file in the folder for temporary files; None: `IN_MEMORY`.

    Raises:
        DataError: there is no room for that file.
    """
    pa = need("pyarrow", extra="tables", purpose="reading a table file")
    with ExitStack() as stack:
        kept: list[Any] = []
        size, files = 0, None
        for again, table in parts:
            if again:
                kept, size, files = [], 0, None
            kept.append(table)
            size += table.nbytes
            if files is None and size > (IN_MEMORY if limit is None else limit):
                files = MappedColumns(
                    Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="colonnade-", dir=temporary_folder())))
                )
            if files is not None:
                for one in kept:
                    files.add(one)
                kept = []
        if files is not None:
            kept = []
            pa.default_memory_pool().release_unused()  # what reading took, the next steps have use for
            return files.frame()
        if not kept:
            raise DataError("it has no rows; needed at least one")
        return as_pandas(pa.concat_tables(kept))


def as_pandas(table: Any) -> Any:
    """A pyarrow table as a pandas.DataFrame: dates as datetime64, an empty column as numbers that are all missing."""
    pa = need("pyarrow", extra="tables", purpose="a table")
    for at, field in enumerate(table.schema):
        if pa.types.is_null(field.type):
            table = table.set_column(at, field.name, table.column(at).cast(pa.float64()))
    return table.to_pandas(date_as_object=False)


class MappedColumns:
    """Columns in files of one folder: numbers and dates as they lie in memory, text as Arrow keeps it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.rows = folder, 0
        self.schema: Any = None
        self._numbers: dict[str, tuple[IO[bytes], Any]] = {}
        self._text: tuple[Any, Any] | None = None
        self._rest: list[Any] = []  # booleans, categories and rare types, which stay in memory

    def add(self, table: Any) -> None:
        """Append rows."""
        pa = need("pyarrow", extra="tables", purpose="a table")
        if self.schema is None:
            self.schema = table.schema
        try:
            text = [name for name in table.column_names if _is_text(table.schema.field(name).type)]
            plain = [name for name in table.column_names if _numpy_type(table.schema.field(name).type) is not None]
            for name in plain:
                self._add_numbers(name, table.column(name))
            if text:
                self._add_text(table.select(text))
            rest = [name for name in table.column_names if name not in text and name not in plain]
            if rest:
                self._rest.append(table.select(rest))
        except (OSError, pa.ArrowException) as error:
            raise DataError(f"no room for it in {self.folder.parent} ({error}); set TMPDIR to a larger disk") from None
        self.rows += table.num_rows

    def frame(self) -> Any:
        """All rows; the files may be removed afterwards."""
        pd = need("pandas", extra="tables", purpose="a table")
        pa = need("pyarrow", extra="tables", purpose="a table")
        columns: dict[str, Any] = {}
        for name, (file, kind) in self._numbers.items():
            file.close()
            columns[name] = np.asarray(np.memmap(file.name, dtype=kind, mode="r", shape=(self.rows,)))
        if self._text is not None:
            writer, sink = self._text
            writer.close()
            sink.close()
            mapped = pa.ipc.open_file(pa.memory_map(str(self.folder / "text.arrow"))).read_all()
            for name in mapped.column_names:
                columns[name] = mapped.column(name).to_pandas()
        if self._rest:
            rest = as_pandas(pa.concat_tables(self._rest).unify_dictionaries())
            columns.update({name: rest[name] for name in rest.columns})
        return pd.DataFrame({name: columns[name] for name in self.schema.names}, copy=False)

    def _add_numbers(self, name: str, column: Any) -> None:
        kind = _numpy_type(column.type)
        if name not in self._numbers:
            self._numbers[name] = ((self.folder / f"{len(self._numbers)}.column").open("wb"), kind)
        if column.null_count and kind.kind in "iu":
            raise DataError(f"column {name!r} has whole numbers and empty values; give it as float64")
        for chunk in column.chunks:
            values = chunk.to_numpy(zero_copy_only=False)
            self._numbers[name][0].write(np.ascontiguousarray(values, dtype=kind).view(np.uint8).data)

    def _add_text(self, table: Any) -> None:
        pa = need("pyarrow", extra="tables", purpose="a table")
        table = table.cast(pa.schema([(name, pa.large_string()) for name in table.column_names]))
        if self._text is None:
            sink = pa.OSFile(str(self.folder / "text.arrow"), "wb")
            self._text = pa.ipc.new_file(sink, table.schema), sink
        self._text[0].write_table(table)


def _is_text(kind: Any) -> bool:
    types = need("pyarrow", extra="tables", purpose="a table").types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _numpy_type(kind: Any) -> Any:
    """How numbers and dates lie in memory; None: something else, or dates with a time zone."""
    types = need("pyarrow", extra="tables", purpose="a table").types
    if types.is_null(kind):
        return np.dtype(np.float64)
    if types.is_date(kind):
        return np.dtype("datetime64[s]")
    if types.is_timestamp(kind):
        return None if kind.tz else np.dtype(f"datetime64[{kind.unit}]")
    plain = types.is_integer(kind) or types.is_floating(kind)
    return np.dtype(kind.to_pandas_dtype()) if plain else None
