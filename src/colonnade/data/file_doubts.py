"""What is doubtful about how a text file writes its values: a data frame of them does not show it any more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from colonnade.data.table_file import TextFormat
from colonnade.data.text_files import EMPTY, TextTable

LEADING_ZEROS = "leading zeros"  # of the attrs of a frame: columns that its file writes with such, which numbers lose
EMPTY_WORDS = "empty words"  # by column, a word in it that is read as empty and may be a value
WORDS = ("None", "NA", "N/A", "n/a", "null", "NULL")  # of EMPTY: no heating, Namibia, a name


def doubts_of(path: Path, given: TextFormat) -> dict[str, object]:
    """The attrs of the frame of a text table, by its first rows."""
    table = TextTable(path, given)
    return {LEADING_ZEROS: _codes(table.names, table.rows), EMPTY_WORDS: _words(table.names, table.rows)}


def told_of_words(words: Mapping[str, str]) -> str:
    """That words in these columns are read as empty, and what to do where they are not."""
    word, columns = next(iter(words.values())), ", ".join(map(repr, words))
    return (
        f"the file writes words such as {word!r} in its text, and they are read as empty values (columns: {columns}); "
        "where one is a value, write it in another way"
    )


def _codes(names: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The columns of whole numbers of which some begin with a zero, as postcodes do and quantities do not."""
    found = []
    for at, name in enumerate(names):
        values = {row[at].strip() for row in rows if len(row) > at and row[at] not in EMPTY}
        if any(len(value) > 1 and value[0] == "0" for value in values) and all(value.isdigit() for value in values):
            found.append(name)
    return found


def _words(names: Sequence[str], rows: Sequence[Sequence[str]]) -> dict[str, str]:
    """The columns in which such a word stands, each with the first of them."""
    found = {}
    for at, name in enumerate(names):
        values = {row[at] for row in rows if len(row) > at}
        if word := next((word for word in WORDS if word in values), None):
            found[name] = word
    return found
