"""What scores are made of, and how much each column matters. Plain results, for tables and files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from colonnade.extras import need
from colonnade.tasks import Task

if TYPE_CHECKING:
    from pandas import DataFrame

BASE, TOTAL = "(base)", "(total)"  # in tables; no column of a table is called so


@dataclass(frozen=True)
class Contributions:
    """For each row, what each column of a party (or each party) adds to a base: together they are the score.

    Numbers are on the scale of the score before it becomes a probability: log odds for yes/no, logits for classes.
    """

    of: str  # what `total` is, in words
    way: str  # how the numbers were found, in words
    names: tuple[str, ...]  # columns of a party, or parties
    outputs: tuple[str, ...]  # classes, labels or numbers; one for a yes/no task
    base: Tensor = field(repr=False)  # (K,) what they are added to
    values: Tensor = field(repr=False)  # (B, names, K)
    total: Tensor = field(repr=False)  # (B, K)
    index: Any = field(default=None, repr=False)  # what the rows are called; None: by position
    error: float = 0.0  # of one number at most: what was missing of an integral, or the standard error over orders

    @property
    def gap(self) -> float:
        """How far base and contributions are from the total, at most: rounding, and the network's own numbers."""
        return float((self.base + self.values.sum(dim=1) - self.total).abs().max())

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """One line per row and output: its name, the output if there are several, base, contributions, total."""
        index = range(len(self.total)) if self.index is None else self.index
        base, values, total = self.base.tolist(), self.values.tolist(), self.total.tolist()
        for at, name in enumerate(index):
            for k, output in enumerate(self.outputs):
                told = (name, output) if len(self.outputs) > 1 else (name,)
                yield (*told, base[k], *(one[k] for one in values[at]), total[at][k])

    @property
    def header(self) -> list[str]:
        """The headings of `rows`."""
        return ["row", *(["output"] if len(self.outputs) > 1 else []), BASE, *self.names, TOTAL]

    def to_frame(self) -> DataFrame:
        """A line per row (and output): the base, what each name adds to it, and the total."""
        pandas: Any = need("pandas", extra="tables", purpose="data frames")
        keys = self.header[: self.header.index(BASE)]
        frame = pandas.DataFrame(list(self.rows()), columns=self.header)
        return frame.set_index(keys)

    def to_json(self) -> dict[str, object]:
        """Plain values, without the rows."""
        return {
            "of": self.of,
            "way": self.way,
            "names": list(self.names),
            "outputs": list(self.outputs),
            "base": self.base.tolist(),
            "rows": len(self.total),
            "gap": self.gap,
            "error": self.error,
        }


@dataclass(frozen=True)
class Importance:
    """How much each column matters: what changes when its values are dealt out anew among the rows."""

    of: str  # what changes, in words
    parties: tuple[str, ...]  # whose column, in the order of `columns`
    columns: tuple[str, ...]
    draws: Tensor = field(repr=False)  # (draws, columns)
    rows: int
    score: float | None = None  # of the model as it is, where a metric is measured

    @property
    def mean(self) -> list[float]:
        """Over the draws."""
        found: list[float] = self.draws.mean(dim=0).tolist()
        return found

    @property
    def spread(self) -> list[float]:
        """The standard deviation over the draws; 0 of a single one."""
        found: list[float] = self.draws.std(dim=0, unbiased=len(self.draws) > 1).tolist()
        return found

    def ranked(self) -> list[tuple[str, str, float, float]]:
        """Party, column, mean and spread, the most important column first."""
        found = zip(self.parties, self.columns, self.mean, self.spread, strict=True)
        return sorted(found, key=lambda one: -one[2])

    def to_frame(self) -> DataFrame:
        """A line per column, the most important first."""
        pandas: Any = need("pandas", extra="tables", purpose="data frames")
        return pandas.DataFrame(self.ranked(), columns=["party", "column", "importance", "spread"])

    def to_json(self) -> dict[str, object]:
        """Plain values."""
        lines = [dict(zip(("party", "column", "importance", "spread"), one, strict=True)) for one in self.ranked()]
        return {"of": self.of, "rows": self.rows, "draws": len(self.draws), "score": self.score, "columns": lines}


def output_names(task: Task) -> tuple[str, ...]:
    """What the numbers of a score are about."""
    return ("score",) if task.outputs == 1 else tuple(str(name) for name in task.classes or range(task.outputs))


def summed(values: Tensor, places: Sequence[Sequence[int]]) -> Tensor:
    """(B, C, K) of values (B, F, K) of encoded columns: those of one column together."""
    out = values.new_zeros((values.shape[0], len(places), values.shape[2]))
    for at, mine in enumerate(places):
        out[:, at] = values[:, list(mine)].sum(dim=1)
    return out


def numbered(width: int) -> dict[str, tuple[int, ...]]:
    """Columns without names: each encoded one by its number."""
    return {str(at): (at,) for at in np.arange(width).tolist()}
