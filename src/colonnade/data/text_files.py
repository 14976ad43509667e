"""Text tables (.csv, .tsv): which separator, decimal mark and encoding they have, and their rows as Arrow tables.

What a file leaves open is refused, not guessed: a number column that is read with the wrong decimal mark, or two
columns that are read as one, train without complaint.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import itertools
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import numpy as np

from colonnade.data.ahead import in_order
from colonnade.data.table_file import TextFormat
from colonnade.errors import DataError
from colonnade.extras import need

SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
FALLBACK = "cp1252"  # what is not UTF-8 is nearly always this; read with a warning
EMPTY = (
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA",
    "NULL", "NaN", "None", "n/a", "nan", "null",
)  # fmt: skip
SAMPLE = 1 << 18  # bytes that say what a file is like
CHUNK = 1 << 23  # bytes that one thread takes; larger ones cost the system new pages each time
BLOCK = 1 << 20  # bytes that are parsed at once; a longer line is refused
COMMA_NUMBER = re.compile(r"[+-]?\d+,\d+([eE][+-]?\d+)?")
POINT_NUMBER = re.compile(r"[+-]?\d+\.\d+([eE][+-]?\d+)?")
THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}[,.]\d{3}")
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


class Retyped(Exception):
    """A column turned out to hold something else than its first rows; `types` are those of all rows so far."""

    def __init__(self, types: Mapping[str, Any]) -> None:
        super().__init__("a column has another type than its first rows")
        self.types = types


class TextTable:
    """A text table whose format is known; `DataError` without the file's name where it cannot be read."""

    def __init__(self, path: Path, given: TextFormat, text: Sequence[str] = ()) -> None:
        self.path, self.text = path, text
        with _open(path) as file:
            start = file.read(SAMPLE)
        if not start.strip():
            raise DataError("it is empty; needed a line of column names, and rows")
        encoding = given.encoding or next((name for mark, name in MARKS.items() if start.startswith(mark)), "utf-8")
        if b"\0" in start and not codecs.lookup(encoding).name.startswith(("utf-16", "utf-32")):
            raise DataError("it is not text: it has zero bytes; is it a file of another kind?")
        lines = _whole_lines(_decoded(start, encoding), complete=len(start) < SAMPLE)
        separator = given.separator or _separator(lines, "\t" if ".tsv" in path.name.lower() else ",")
        rows = list(csv.reader(io.StringIO(lines), delimiter=separator))
        self.names = _header([row for row in rows if row])
        self.rows = rows[1:]  # the first ones, which say what the file is like
        decimal = given.decimal or _decimal(self.names, self.rows, separator)
        self.format = TextFormat(separator=separator, decimal=decimal, encoding=encoding)

    def tables(self, types: Mapping[str, Any] | None = None) -> Iterator[Any]:
        """Its rows, as pyarrow tables whose columns have these types; without types those of the first rows.

        Raises:
            Retyped: some later row has another type; begin again with those it names.
        """
        contents = self._contents()
        start = next(contents, None)
        if start is None:
            return
        found = self._types(start, {}) if types is None else types
        everything = itertools.chain([start], contents)
        yield from in_order(lambda content: self._typed(content, found), everything, _arrow().cpu_count())

    def _contents(self) -> Iterator[bytes]:
        """Lines of rows, some megabytes at a time."""
        first = True
        for chunk in self._chunks():
            if chunk.isspace():
                continue
            content = chunk[self._header_end(chunk) :] if first else chunk
            first = False
            if content and not content.isspace():
                yield content

    def _typed(self, content: bytes, types: Mapping[str, Any]) -> Any:
        """Rows as a pyarrow table whose columns have these types; `Retyped` where they do not fit."""
        try:
            found = self._read(content, types)
        except _Mismatch:
            raise Retyped(self._types(content, types)) from None
        holes = [n for n, kind in types.items() if str(kind) == "int64" and found.column(n).null_count]
        if holes:
            raise Retyped({**types, **dict.fromkeys(holes, _arrow().float64())})
        return found.combine_chunks()

    def _chunks(self) -> Iterator[bytes]:
        """UTF-8 text of whole lines, some megabytes at a time."""
        assert self.format.encoding is not None
        decoder = codecs.getincrementaldecoder(self.format.encoding)()
        utf8 = codecs.lookup(self.format.encoding).name in ("utf-8", "utf-8-sig", "ascii")
        rest, start = b"", True
        with _open(self.path) as file:
            while raw := file.read(CHUNK):
                raw = raw.removeprefix(codecs.BOM_UTF8) if start and utf8 else raw
                start = False
                text = raw if utf8 else decoder.decode(raw).encode()
                text = rest + text if rest else text
                cut = _last_line_end(text)
                rest = text[cut:]
                if cut:
                    yield _checked(text[:cut], utf8)
        if rest:
            yield _checked(rest, utf8)

    def _line(self, text: str) -> str:
        """Which line of the file a row is; what is in it is nobody else's business, and messages travel."""
        before, row = 1, re.compile(rb"^" + re.escape(text.encode()) + rb"\r?$", re.MULTILINE)
        for chunk in self._chunks():
            found = row.search(chunk)
            if found is not None:
                lines = chunk.count(b"\n", 0, found.start())
                return f"line {before + lines:,}"
            before += chunk.count(b"\n")
        return "a row"

    def _header_end(self, chunk: bytes) -> int:
        """Where the line of column names ends; blank lines before it count."""
        at = len(chunk) - len(chunk.lstrip(b"\r\n"))
        inside = False
        while at < len(chunk):
            byte = chunk[at : at + 1]
            if byte == b'"':
                inside = not inside
            elif byte in (b"\n", b"\r") and not inside:
                return at + (2 if chunk[at : at + 2] == b"\r\n" else 1)
            at += 1
        return at

    def _types(self, content: bytes, before: Mapping[str, Any]) -> dict[str, Any]:
        """The types of these rows, widened to fit those of earlier ones."""
        found = self._read(content, {name: _arrow().large_string() for name in self.text if name in self.names})
        kinds = {name: _plain(name in self.text, found.column(name)) for name in self.names}
        return {name: _both(before.get(name), kind) for name, kind in kinds.items()}

    def _read(self, content: bytes, types: Mapping[str, Any]) -> Any:
        """Rows as a pyarrow table; line ends inside quotation marks, which take longer, only where there are some."""
        if b'"' not in content:
            return self._parsed(content, types, broken_lines=False)
        lines = _count(content, "\n") + (not content.endswith(b"\n"))
        try:
            found = self._parsed(content, types, broken_lines=False)
        except (DataError, _Mismatch):
            found = None
        if found is not None and found.num_rows == lines:  # every line is a row
            return found
        return self._parsed(content, types, broken_lines=True)

    def _parsed(self, content: bytes, types: Mapping[str, Any], *, broken_lines: bool) -> Any:
        reader = need("pyarrow.csv", extra="tables", purpose="reading a table file")
        invalid: list[Any] = []

        def refuse(row: Any) -> str:
            invalid.append(row)
            return "error"

        parse = reader.ParseOptions(
            delimiter=self.format.separator, newlines_in_values=broken_lines, invalid_row_handler=refuse
        )
        convert = reader.ConvertOptions(
            column_types=dict(types), decimal_point=self.format.decimal, null_values=list(EMPTY), check_utf8=False,
            strings_can_be_null=True, true_values=["true", "True", "TRUE"], false_values=["false", "False", "FALSE"],
        )  # fmt: skip
        options = reader.ReadOptions(column_names=self.names, block_size=BLOCK, use_threads=False)
        try:
            return reader.read_csv(_arrow().BufferReader(content), options, parse, convert)
        except _arrow().ArrowInvalid as error:
            if invalid:
                row = invalid[0]
                raise DataError(
                    f"{self._line(row.text)} has {row.actual_columns} values and the first line has "
                    f"{row.expected_columns} names; correct the row, or say separator = ..."
                ) from None
            if "conversion error" in str(error):
                raise _Mismatch from None
            if "straddling" in str(error):
                raise DataError(
                    "it has a line of more than a million characters; a quotation mark is missing"
                ) from None
            raise DataError(str(error).splitlines()[0]) from None


class _Mismatch(Exception):
    """A value does not have the type of its column."""


def read_text_tables(path: Path, given: TextFormat, text: Sequence[str] = ()) -> Iterator[tuple[bool, Any]]:
    """(whether to begin again, an Arrow table of rows) until all rows have been read with one type per column."""
    types: Mapping[str, Any] | None = None
    table, again = TextTable(path, given, text), False
    while True:
        try:
            for rows in table.tables(types):
                yield again, rows
                again = False
            return
        except Retyped as other:
            types, again = other.types, True
        except UnicodeDecodeError:
            if given.encoding is not None:
                raise DataError(f"it is not {given.encoding} text; say encoding = ... as it was written") from None
            warnings.warn(
                f"table file {str(path)!r} is not UTF-8 text and is read as Windows text (cp1252); if letters come out "
                "wrong, say encoding = ...",
                stacklevel=2,
            )
            given = given.model_copy(update={"encoding": FALLBACK})
            table, types, again = TextTable(path, given, text), None, True


# -- what a file is like ------------------------------------------------------------------------


def _separator(lines: str, usual: str) -> str:
    """The character that cuts every line into equally many parts, at least two; refused where there are several."""
    widths = {one: _width(lines, one) for one in SEPARATORS}
    fitting = {one: width for one, width in widths.items() if width > 1}
    if len(fitting) > 1:
        told = " or ".join(f"{SEPARATORS[one]} ({width} columns)" for one, width in fitting.items())
        raise DataError(f"its columns may be separated by {told}; say separator = {next(iter(fitting))!r} or another")
    if fitting:
        return next(iter(fitting))
    header = lines.split("\n", 1)[0]
    return max([usual, *SEPARATORS], key=header.count)  # the first of equals: the usual one


def _width(lines: str, separator: str) -> int:
    """How many columns all lines have with this separator; 0 where they differ."""
    try:
        widths = {len(row) for row in csv.reader(io.StringIO(lines), delimiter=separator) if row}
    except csv.Error:
        return 0
    return widths.pop() if len(widths) == 1 else 0


def _header(rows: Sequence[Sequence[str]]) -> list[str]:
    """The column names; a file that begins with data, or has columns without a name, is refused."""
    names = [name.strip() for name in rows[0]]
    unnamed = [at for at, name in enumerate(names) if not name]
    if unnamed:
        hint = "row numbers? pandas: to_csv(index=False)" if unnamed == [0] else "a separator too many?"
        raise DataError(f"column {unnamed[0] + 1} of {len(names)} has no name in the first line ({hint})")
    numbered = [[str(at + first) for at in range(len(names))] for first in (0, 1)]
    if all(NUMBER.fullmatch(name) for name in names) and names not in numbered:
        raise DataError(f"its first line has numbers ({', '.join(names[:3])}) where column names are needed; add them")
    twice = next((name for at, name in enumerate(names) if name in names[:at]), None)
    if twice is not None:
        raise DataError(f"it has the column {twice!r} more than once; rename or drop one")
    return names


def _decimal(names: Sequence[str], rows: Sequence[Sequence[str]], separator: str) -> str:
    """The decimal mark of the numbers; a comma where some column has only such, refused where columns differ.

    Who separates columns by semicolons mostly does so because the comma is the decimal mark, and then a point may be
    between thousands: 1.500 would be read as one and a half without a word.
    """
    marked = {",": COMMA_NUMBER, ".": POINT_NUMBER}
    seen: dict[str, list[str]] = {mark: [] for mark in marked}
    column: dict[str, str] = {}
    for at, name in enumerate(names):
        values = [row[at].strip() for row in rows if len(row) > at and row[at] not in EMPTY]
        for mark, pattern in marked.items():
            hits = [value for value in values if pattern.fullmatch(value)]
            if hits and all(pattern.fullmatch(value) or value.lstrip("+-").isdigit() for value in values):
                column.setdefault(mark, f"{name!r} ({hits[0]})")
                seen[mark] += hits
    if seen[","] and seen["."]:
        raise DataError(
            f"column {column[',']} has numbers with a decimal comma and column {column['.']} with a point; say "
            "decimal = ',' or '.', or write them alike"
        )
    for mark, called, open_beside in ((",", "comma", separator != ","), (".", "point", separator == ";")):
        if seen[mark] and open_beside and all(THOUSANDS.fullmatch(value) for value in seen[mark]):
            raise DataError(
                f"column {column[mark]}: the {called} may be a decimal mark or mark thousands; say decimal = ..."
            )
    return "," if seen[","] and separator != "," else "."


def _open(path: Path) -> IO[bytes]:
    if path.name.lower().endswith(".gz"):
        return gzip.open(path, "rb")  # type: ignore[return-value]  # a GzipFile reads bytes
    return path.open("rb")


def _decoded(start: bytes, encoding: str) -> str:
    """The first bytes as text; half a character at their end is left out, and what is not UTF-8 is told later."""
    with suppress(UnicodeDecodeError):
        return codecs.getincrementaldecoder(encoding)().decode(start)
    return start.decode(FALLBACK, errors="replace")


def _whole_lines(text: str, complete: bool) -> str:
    text = text.replace("\r\n", "\n").replace("\r", "\n").lstrip("\n")
    end = text.rfind("\n") + 1
    return text if complete or not end else text[:end]


def _last_line_end(text: bytes) -> int:
    """Behind the last line end that is not inside quotation marks; 0: there is none."""
    end = text.rfind(b"\n") + 1
    if b'"' not in text:
        return end
    quotes = _count(text[:end], '"')
    while end and quotes % 2:
        before = text.rfind(b"\n", 0, end - 1) + 1
        quotes -= text.count(b'"', before, end)
        end = before
    return end


def _count(text: bytes, character: str) -> int:
    """How often an ASCII character is in a text; `bytes.count` is slow where that is often."""
    return int(np.count_nonzero(np.frombuffer(text, dtype=np.uint8) == ord(character)))


def _checked(text: bytes, utf8: bool) -> bytes:
    """The same bytes; UnicodeDecodeError where they are no UTF-8."""
    if utf8 and not text.isascii():
        text.decode("utf-8")
    return text


# -- types --------------------------------------------------------------------------------------


def _arrow() -> Any:
    return need("pyarrow", extra="tables", purpose="reading a table file")


def _plain(text: bool, column: Any) -> Any:
    """One of: null, int64, float64, bool, timestamp, large_string."""
    pa = _arrow()
    kind = column.type
    if text or pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_time(kind):
        return pa.large_string()
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return pa.large_string() if getattr(kind, "tz", None) else pa.timestamp("ns" if _fine(kind) else "s")
    if pa.types.is_integer(kind) and column.null_count:
        return pa.float64()
    known = pa.types.is_null(kind) or pa.types.is_boolean(kind) or pa.types.is_integer(kind)
    return kind if known or pa.types.is_floating(kind) else pa.large_string()


def _fine(kind: Any) -> bool:
    return getattr(kind, "unit", "s") == "ns"


def _both(one: Any, other: Any) -> Any:
    """The narrowest type that holds values of both."""
    pa = _arrow()
    if one is None or one == other or pa.types.is_null(one):
        return other
    if pa.types.is_null(other):
        return pa.float64() if pa.types.is_integer(one) else one
    if all(pa.types.is_integer(kind) or pa.types.is_floating(kind) for kind in (one, other)):
        return pa.float64()
    if all(pa.types.is_timestamp(kind) for kind in (one, other)):
        return pa.timestamp("ns")
    return pa.large_string()
