"""What a classifier took for what: its confusion matrix as cells, as a table and in words."""

from __future__ import annotations

from dataclasses import dataclass

from colonnade.report import words
from colonnade.report.record import Record
from colonnade.report.tables import Table

MOST_CLASSES = 20  # a larger confusion matrix is no longer read cell by cell
MOST_PAIRS = 5


def classes_table(record: Record) -> Table | None:
    """Accuracy of each class and what it is most often mistaken for."""
    confusion = record["result"].get("confusion")
    if not confusion:
        return None
    rows, names = [], class_names(record)
    for true, counts in enumerate(confusion):
        wrong = [(n, predicted) for predicted, n in enumerate(counts) if predicted != true and n]
        often = max(wrong, default=None)
        mistaken = f"{names[often[1]]} ({words.count(often[0], 'time')})" if often else "never wrong"
        accuracy = f"{100 * counts[true] / sum(counts):.1f} %" if sum(counts) else "no rows"
        rows.append((names[true], f"{sum(counts):,}", accuracy, mistaken))
    columns = ("class", "test rows", "decided right", "mistaken for")
    return Table("Accuracy per class", columns, tuple(rows), frozenset({0, 3}))


def class_names(record: Record) -> list[str]:
    """What the classes are called; their numbers where they have no names."""
    named = record["about"].get("class_names")
    return [str(name) for name in named or range(len(record["result"].get("confusion") or []))]


@dataclass(frozen=True)
class Cell:
    """One cell of the confusion matrix."""

    count: int
    share: float  # of the true class's rows
    right: bool


def confusion_cells(record: Record) -> list[list[Cell]]:
    """The confusion matrix, true classes down, predicted across; empty if absent or too large to read."""
    confusion = record["result"].get("confusion")
    if not confusion or len(confusion) > MOST_CLASSES:
        return []
    return [
        [Cell(n, n / max(1, sum(counts)), true == predicted) for predicted, n in enumerate(counts)]
        for true, counts in enumerate(confusion)
    ]


def confused_pairs(record: Record) -> list[str]:
    """The most frequent mistakes, in words."""
    confusion = record["result"].get("confusion") or []
    names = class_names(record)
    pairs = [(n, -t, -p) for t, row in enumerate(confusion) for p, n in enumerate(row) if t != p and n]
    often = sorted(pairs, reverse=True)[:MOST_PAIRS]
    return [f"{names[-t]} taken for {names[-p]} ({words.count(n, 'time')})" for n, t, p in often]
