"""Federation: parties with columns, a label holder, and the rows they agree on.

What every entry point takes. Rows are numbered 0..N-1 in one agreed order; everything
later (duals, remembered uploads, schedules) is addressed by these numbers, never by a
position in a loader.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

import numpy as np
import torch
from torch import Tensor

from colonnade.errors import ConfigError, DataError, RowsDisagree
from colonnade.randomness import permutation


class Task(str, Enum):
    """What the labels are; decides the loss and the prox step."""

    MULTICLASS = "multiclass"  # one of K classes: (N,) integers 0..K-1
    BINARY = "binary"  # yes or no: (N,) zeros and ones, one logit
    MULTILABEL = "multilabel"  # any of K labels: (N, K) zeros and ones
    REGRESSION = "regression"  # (N, K) real numbers


@dataclass(frozen=True)
class Party:
    """One owner of columns: `columns` is (N, ...) floating point, row i is agreed row i."""

    name: str
    columns: Tensor = field(repr=False)


@dataclass(frozen=True)
class RowSplit:
    """Which agreed rows train, choose the model, and are touched once at the end."""

    train: Tensor = field(repr=False)
    validation: Tensor = field(repr=False)
    test: Tensor = field(repr=False)

    @staticmethod
    def random(rows: int, *, validation: float = 0.1, test: float = 0.15, seed: int = 0) -> RowSplit:
        """A shuffled split by fractions."""
        order = permutation(torch.arange(rows), seed, "split")
        n_test, n_val = round(test * rows), round(validation * rows)
        return RowSplit(order[n_test + n_val :], order[n_test : n_test + n_val], order[:n_test])


@dataclass(frozen=True)
class Federation:
    """Parties, labels and the rows they agree on. Build one with `from_arrays` or `from_tables`."""

    parties: tuple[Party, ...]
    labels: Tensor = field(repr=False)
    outputs: int  # width of a logit row: classes, labels, targets, or 1 for a binary task
    task: Task
    split: RowSplit
    name: str = "federation"
    whole: Tensor | None = field(default=None, repr=False)  # columns before splitting, if known
    ids: tuple[str, ...] = field(default=(), repr=False)  # the owners' ids of rows 0..N-1, if any
    class_names: tuple[str, ...] = ()  # of classes 0..K-1, where the labels were text
    scaled: bool = False  # the columns are on a common scale already; otherwise parties see to it themselves

    @property
    def rows(self) -> int:
        """Number of agreed rows N."""
        return len(self.labels)

    @property
    def names(self) -> tuple[str, ...]:
        """Party names, in federation order."""
        return tuple(party.name for party in self.parties)

    @classmethod
    def from_arrays(
        cls,
        columns: Mapping[str, Any],
        labels: Any,
        *,
        task: Task | str | None = None,
        split: RowSplit | None = None,
        name: str = "federation",
        whole: Tensor | None = None,
        ids: Sequence[str] = (),
        scaled: bool = False,
    ) -> Federation:
        """From one array of shape (N, ...) per party, rows already in one common order."""
        if not columns:
            raise DataError("a federation needs at least one party; got none")
        parties = tuple(Party(str(k), _floating(str(k), v)) for k, v in columns.items())
        y, task, outputs = _read_labels(labels, Task(task) if task is not None else None)
        for party in parties:
            if len(party.columns) != len(y):
                raise RowsDisagree(
                    f"party {party.name!r} has {len(party.columns)} rows but there are {len(y)} labels; "
                    "align the tables first, or use Federation.from_tables with an id column"
                )
        split = split if split is not None else RowSplit.random(len(y))
        _check_split(split, len(y))
        return cls(parties, y, outputs, task, split, name, whole, tuple(ids), scaled=scaled)

    @classmethod
    def from_tables(
        cls,
        tables: Mapping[str, Any],
        *,
        labels: str | Any,
        id: str | None = None,
        task: Task | str | None = None,
        split: RowSplit | None = None,
        name: str = "federation",
    ) -> Federation:
        """From data frames joined on `id`; `labels` names a column of one table, or is a frame or array.

        Numeric columns are standardised and text columns one-hot encoded with statistics of
        the training rows, each party on its own.
        """
        from colonnade.data.table import join_tables  # pandas is optional: imported only here

        return join_tables(tables, labels=labels, id=id, task=task, split=split, name=name)

    def pooled(self) -> Federation:
        """All columns in one place: what the `centralized` reference trains on."""
        if self.whole is not None:
            columns = self.whole
        else:
            columns = torch.cat([p.columns.flatten(1) for p in self.parties], dim=1)
        return replace(self, parties=(Party("everyone", columns),), whole=columns)

    def only(self, names: Sequence[str]) -> Federation:
        """The same rows with some of the parties."""
        unknown = [n for n in names if n not in self.names]
        if unknown:
            raise ConfigError(f"no party called {unknown[0]!r}; parties: {', '.join(self.names)}")
        keep = tuple(p for p in self.parties if p.name in names)
        return replace(self, parties=keep, whole=None)


def _floating(name: str, values: Any) -> Tensor:
    columns = values if isinstance(values, Tensor) else torch.from_numpy(np.ascontiguousarray(values))
    if columns.dim() == 1:
        columns = columns.unsqueeze(1)
    if not columns.is_floating_point():
        columns = columns.to(torch.float32)
    if columns.numel() == 0:
        raise DataError(f"party {name!r} has no values (shape {tuple(columns.shape)})")
    bad = ~torch.isfinite(columns.flatten(1)).all(dim=1)
    if bool(bad.any()):
        raise DataError(
            f"party {name!r} has NaN or infinite values in {int(bad.sum())} of {len(columns)} rows "
            f"(first: row {int(bad.nonzero()[0])}); fill or drop them before training"
        )
    return columns


def _read_labels(values: Any, task: Task | None) -> tuple[Tensor, Task, int]:
    raw = values if isinstance(values, Tensor) else torch.from_numpy(np.ascontiguousarray(values))
    if raw.dim() == 0 or len(raw) == 0:
        raise DataError("labels are empty; wanted one per row")
    if raw.is_floating_point() and not bool(torch.isfinite(raw).all()):
        raise DataError("labels contain NaN or infinite values; drop those rows before training")
    if task is None:
        whole = not raw.is_floating_point() or bool((raw == raw.round()).all())
        task = Task.MULTICLASS if raw.dim() == 1 and whole else Task.REGRESSION
        if raw.dim() == 2 and whole and bool(((raw == 0) | (raw == 1)).all()):
            task = Task.MULTILABEL
    if task is Task.MULTICLASS:
        return _classes(raw)
    y = raw.to(torch.float64).reshape(len(raw), -1)
    if task in (Task.BINARY, Task.MULTILABEL) and not bool(((y == 0) | (y == 1)).all()):
        raise DataError(f"a {task.value} task wants labels 0 and 1; got values from {y.min():g} to {y.max():g}")
    if task is Task.BINARY and y.shape[1] != 1:
        raise DataError(f"a binary task wants one label per row; got {y.shape[1]}")
    return y, task, y.shape[1]


def _classes(raw: Tensor) -> tuple[Tensor, Task, int]:
    if raw.dim() != 1:
        raise DataError(f"a multiclass task wants labels of shape (rows,); got {tuple(raw.shape)}")
    y = raw.to(torch.int64)
    if bool((y != raw).any()) or int(y.min()) < 0:
        raise DataError(
            f"class labels must be whole numbers from 0; got values from {raw.min():g} to {raw.max():g}; "
            "number the classes 0, 1, 2, ..."
        )
    classes = max(2, int(y.max()) + 1)
    if classes > len(y):
        raise DataError(f"labels go up to {classes - 1} but there are only {len(y)} rows; number the classes 0, 1, ...")
    return y, Task.MULTICLASS, classes


def _check_split(split: RowSplit, rows: int) -> None:
    for part in ("train", "validation", "test"):
        index: Tensor = getattr(split, part)
        if len(index) and (int(index.min()) < 0 or int(index.max()) >= rows):
            raise DataError(f"the {part} split names row {int(index.max())} but there are {rows} rows")
    everything = torch.cat([split.train, split.validation, split.test])
    if len(everything.unique()) != len(everything):
        raise DataError("train, validation and test rows overlap; a row may be in one of them only")
    if not len(split.train):
        raise DataError("the split leaves no training rows")
