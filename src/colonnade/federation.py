"""Federation: parties with columns, a label holder, and the rows they agree on.

What every entry point takes. Rows are numbered 0..N-1 in one agreed order; everything
later (duals, remembered uploads, schedules) is addressed by these numbers, never by a
position in a loader.

A row may be *partial*: some party does not hold it, or nobody knows its label. Such rows can only train, and only with
methods that take them (docs/subsets.md; without a label `fedmvt`); `Federation.matched` leaves them out. What a party
does not hold is zero in its columns, an unknown label is zero too, and `held` and `labelled` say that neither may be
read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from colonnade.errors import ConfigError, DataError, RowsDisagree
from colonnade.mapped import side_by_side, taken
from colonnade.row_split import ColumnsFrom, RowSplit, SplitSettings, check_split, random_split
from colonnade.rows import Grouping, RowIds, Rows, as_columns, check_order, row_numbers
from colonnade.tasks import Classes, Read, Task, read_labels
from colonnade.tasks.reading import as_array
from colonnade.tasks.weights import row_weights

if TYPE_CHECKING:
    from colonnade.data.columns import ColumnPlan

__all__ = ["Federation", "Party", "RowSplit", "Task"]  # Task: what a user of federations needs with them


@dataclass(frozen=True)
class Party:
    """One owner of columns: `columns` is (N, ...) floating point or int64, row i is agreed row i.

    Whole numbers are cast and scaled like others, unless the party's network begins with an `nn.Embedding`.
    """

    name: str
    columns: Tensor = field(repr=False)
    held: Tensor | None = field(default=None, repr=False)  # (N,) which rows it holds; None: all


@dataclass(frozen=True)
class Federation:
    """Parties, labels and the rows they agree on. Build one with `from_arrays` or `from_tables`."""

    parties: tuple[Party, ...]
    labels: Tensor = field(repr=False)
    task: Task
    split: RowSplit
    name: str = "federation"
    whole: Tensor | None = field(default=None, repr=False)  # columns before splitting, if known
    ids: Sequence[str] = field(default=(), repr=False)  # the owners' ids of rows 0..N-1, if any
    scaled: bool = False  # the columns are on a common scale already; otherwise parties see to it themselves
    labelled: Tensor | None = field(default=None, repr=False)  # (N,) whose label is known; None: of all rows
    plans: Mapping[str, ColumnPlan] = field(default_factory=dict, repr=False)  # how tables became columns, by owner
    weights: Tensor | None = field(default=None, repr=False)  # (N,) how much each row counts; None: all alike
    by: Grouping | None = field(default=None, repr=False)  # groups that the test rows are also measured by
    columns_from: ColumnsFrom = "training"  # the rows whose statistics are in `plans`
    guest: str | None = None  # the party whose table has the labels, if one has: it belongs to the label holder

    @property
    def outputs(self) -> int:
        """Width of a row of outputs: classes, labels, numbers, or 1 for a yes/no task."""
        return self.task.outputs

    @property
    def rows(self) -> int:
        """Number of agreed rows N."""
        return len(self.labels)

    @property
    def names(self) -> tuple[str, ...]:
        """Party names, in federation order."""
        return tuple(party.name for party in self.parties)

    @property
    def held(self) -> Tensor | None:
        """(N, M) which party holds which row; None: everybody holds everything."""
        if all(party.held is None for party in self.parties):
            return None
        everything = torch.ones(self.rows, dtype=torch.bool)
        return torch.stack([everything if p.held is None else p.held for p in self.parties], dim=1)

    @property
    def complete(self) -> Tensor:
        """(N,) the rows that every party holds and whose label is known."""
        known = torch.ones(self.rows, dtype=torch.bool) if self.labelled is None else self.labelled.clone()
        return known if self.held is None else known & self.held.all(dim=1)

    @property
    def partial(self) -> bool:
        """Whether some row is not complete: only methods made for such rows take it."""
        return self.held is not None or self.labelled is not None

    @classmethod
    def from_arrays(  # noqa: PLR0913 - one argument per fact about the data
        cls,
        columns: Mapping[str, Any],
        labels: Any,
        *,
        task: Task | str | None = None,
        split: RowSplit | None = None,
        name: str | None = None,
        whole: Tensor | None = None,
        ids: Sequence[str] = (),
        scaled: bool = False,
        held: Any = None,
        labelled: Any = None,
        classes: Classes = None,
        positive: Any = None,
        weights: Any = None,
    ) -> Federation:
        """From one array of shape (N, ...) per party, rows already in one common order.

        Args:
            columns: by party; what it has in rows that it does not hold is dropped unread, NaN is welcome there.
            labels: one per row, numbers or text; of rows that are not `labelled` anything.
            task: what the labels are. None: two different values are yes/no, more texts are classes, numbers with
                fractions are numbers; more than two whole numbers are refused, since they may be either.
            split: which rows train, validate and test; partial rows may only train. Random if None.
            name: the federation's name; None: those of its parties, e.g. bank+telco.
            whole: the columns before they were split, if known.
            ids: the owners' ids of the rows, if any.
            scaled: the columns are on a common scale already.
            held: (N, M) booleans, which party (in the order of `columns`) holds which row; None: all hold all.
            labelled: (N,) booleans, whose label is known; None: of all rows.
            classes: which classes there are, in their order (of a yes/no task: no, yes), or how many, numbered from
                0. None: those that occur. To be said where a class may have no row here.
            positive: of two classes the one that counts as yes. None: yes, true or 1, else the rarer one.
            weights: one positive number per row, how much it counts in training and in every metric. None: all alike.

        Examples:
            >>> import numpy as np
            >>> bank, telco = np.random.default_rng(0).normal(size=(2, 40, 3))
            >>> churn = ["yes" if x > 0 else "no" for x in bank[:, 0] + telco[:, 1]]
            >>> federation = Federation.from_arrays({"bank": bank, "telco": telco}, churn)
            >>> federation.names, federation.rows, federation.task.classes
            (('bank', 'telco'), 40, ('no', 'yes'))
        """
        if not isinstance(columns, Mapping):
            raise DataError(
                f"columns must be given by party name, e.g. {{'bank': x1, 'telco': x2}}; got {type(columns).__name__}"
            )
        if not columns:
            raise DataError("a federation needs at least one party; got none")
        check_order({**{f"party {p!r}": x for p, x in columns.items()}, "the labels": labels, "the weights": weights})
        raw = as_array(labels)
        given = _mask("labelled", labelled, len(raw))
        read = read_labels(raw, task, classes, given, positive)
        rest = {"split": split, "name": name, "whole": whole, "ids": ids, "scaled": scaled, "weights": weights}
        return cls.of_read(columns, read, held=held, labelled=given, **rest)

    @classmethod
    def of_read(  # noqa: PLR0913 - one argument per fact about the data
        cls,
        columns: Mapping[str, Any],
        read: Read,
        *,
        split: RowSplit | Callable[[Tensor], RowSplit] | None = None,
        name: str | None = None,
        whole: Tensor | None = None,
        ids: Sequence[str] = (),
        scaled: bool = False,
        held: Any = None,
        labelled: Any = None,
        weights: Any = None,
    ) -> Federation:
        """As `from_arrays`, with labels that were read already; `split` may be made of which rows are complete."""
        y, given = read.values, _mask("labelled", labelled, len(read.values))
        mask = _mask("held", held, len(y), len(columns))
        whose = [None] * len(columns) if mask is None else [_unless_all(one) for one in mask.T]
        of_each = zip(columns.items(), whose, strict=True)
        parties = tuple(Party(str(k), as_columns(str(k), v, mine), mine) for (k, v), mine in of_each)
        for party in parties:
            if len(party.columns) != len(y):
                raise RowsDisagree(
                    f"party {party.name!r} has {len(party.columns)} rows but there are {len(y)} labels; "
                    "align the tables first, or use Federation.from_tables with an id column"
                )
        everything = RowSplit(torch.arange(len(y)), torch.arange(0), torch.arange(0))
        name = named_after([party.name for party in parties]) if name is None else name
        heavy = None if weights is None else row_weights(weights, len(y), given)
        made = cls(parties, y, read.task, everything, name, whole, tuple(ids), scaled, _unless_all(given))
        chosen = split if isinstance(split, RowSplit) else (split or random_split)(made.complete)
        made = replace(made, split=chosen, weights=heavy)
        check_split(made.split, len(y))
        _check_partial(made)
        _check_taught(made)
        return made

    @classmethod
    def from_tables(  # noqa: PLR0913 - one argument per fact about the data
        cls,
        tables: Mapping[str, Any],
        *,
        labels: str | Any,
        id: str | Sequence[str] | Mapping[str, str | Sequence[str]] | None = None,
        task: Task | str | None = None,
        split: RowSplit | SplitSettings | Mapping[str, Any] | None = None,
        name: str | None = None,
        keep: Literal["all", "labelled", "partial"] = "all",
        classes: Classes = None,
        positive: Any = None,
        weights: str | Any = None,
        by: str | None = None,
        columns: Mapping[str, Any] | None = None,
        columns_from: ColumnsFrom = "training",
    ) -> Federation:
        """From data frames or table files joined on `id`; `labels` names a column of one table, or is a frame or array.

        `id` is a column of every table, a list of columns that are the id together, or one of these per party. Numeric
        columns are standardised and text columns one-hot encoded with statistics of the training rows, each party on
        its own; how is kept in `plans`, so that a run can score new tables. `columns` says otherwise, by party and by
        name (docs/tables.md). `columns_from="others"`: statistics of rows that do not train, as `privacy.unit = "row"`
        needs them. `keep="all"`: rows that all tables have and that have a label. `keep="labelled"`: also labelled rows
        that only some tables have. `keep="partial"`: also rows without a label. Both can only train.
        `task`, `classes` and `positive` are those of `from_arrays`; `weights` too, or a column of the table that has
        the labels, which is no column of the model.
        `split` says how rows are split, e.g. `{"test": 0.25, "groups": "household"}` (`SplitSettings`; its columns are
        then no columns of the model); without it, at random, classes in the same proportion in each part. `by` names a
        column beside the labels: test rows are also measured by its groups.

        Examples:
            >>> import pandas as pd
            >>> ids = [f"c{number}" for number in range(40)]
            >>> bank = pd.DataFrame({"customer": ids, "income": range(40), "churn": ["no", "yes"] * 20})
            >>> telco = pd.DataFrame({"customer": ids[::-1], "minutes": range(40), "plan": ["s", "m", "l", "s"] * 10})
            >>> federation = Federation.from_tables({"bank": bank, "telco": telco}, labels="churn", id="customer")
            >>> [(party.name, tuple(party.columns.shape)) for party in federation.parties]
            [('bank', (40, 1)), ('telco', (40, 4))]
        """
        from colonnade.data.table import join_tables  # pandas is optional: imported only here

        meaning: dict[str, Any] = {"task": task, "classes": classes, "positive": positive, "columns": columns}
        beside: dict[str, Any] = {"split": split, "weights": weights, "by": by, "columns_from": columns_from}
        return join_tables(tables, labels=labels, id=id, name=name, keep=keep, **beside, **meaning)

    @property
    def width(self) -> int:
        """How many numbers of a row all parties hold together."""
        return sum(math.prod(party.columns.shape[1:]) for party in self.parties)

    def pooled(self) -> Federation:
        """All columns in one place: what the `centralized` reference trains on."""
        held = self.held
        if self.whole is not None and held is None:
            columns = self.whole
        else:
            columns = side_by_side([p.columns for p in self.parties])
        everyone = Party("everyone", columns, None if held is None else held.all(dim=1))
        return replace(self, parties=(everyone,), whole=columns, guest=None)

    def only(self, names: Sequence[str]) -> Federation:
        """The same rows with some of the parties; what none of them holds does not train any more."""
        unknown = [n for n in names if n not in self.names]
        if unknown:
            raise ConfigError(f"no party called {unknown[0]!r}; parties: {', '.join(self.names)}")
        keep = tuple(p for p in self.parties if p.name in names)
        plans = {name: plan for name, plan in self.plans.items() if name in names}
        guest = self.guest if self.guest in names else None
        left = replace(self, parties=keep, whole=None, plans=plans, guest=guest)
        if left.held is None:
            return left
        train = self.split.train[left.held.any(dim=1)[self.split.train]]
        check_split(replace(self.split, train=train), self.rows)
        return replace(left, split=replace(self.split, train=train))

    def select(self, rows: Any) -> Rows:
        """Some of the rows for prediction, as the networks read them: `run.predict(federation.select(rows))`.

        `rows` is a tensor, array or list of row numbers, or of (N,) booleans; `DataError` for numbers that no row has.
        """
        rows = row_numbers(rows, self.rows)
        training = torch.zeros(self.rows, dtype=torch.bool)
        training[self.split.train] = True
        columns = {party.name: taken(party.columns, rows) for party in self.parties}
        some = {party.name: _unless_all(party.held, rows) for party in self.parties}
        held = {name: mine for name, mine in some.items() if mine is not None}
        return Rows(columns, plans=self.plans, training=training[rows], held=held)

    def _repr_html_(self) -> str:
        from colonnade.report.notebook import of_federation  # only a notebook asks

        return of_federation(self)

    def matched(self) -> Federation:
        """Only the rows that all parties hold and that have a label: what every method can be trained on."""
        if not self.partial:
            return self
        complete = self.complete
        if not bool(complete[self.split.train].any()):
            raise DataError("no training row is held by all parties and has a label; there is nothing to match")
        return self.take(complete.nonzero().squeeze(1))

    def take(self, rows: Any) -> Federation:
        """Some of the rows (as for `select`, each once), numbered anew; they train, validate or test as before."""
        rows = row_numbers(rows, self.rows, once=True)
        place = torch.full((self.rows,), -1, dtype=torch.int64)
        place[rows] = torch.arange(len(rows))
        train, validation, test = (
            found[found >= 0]
            for found in (place[self.split.train], place[self.split.validation], place[self.split.test])
        )
        return replace(
            self,
            parties=tuple(Party(p.name, taken(p.columns, rows), _unless_all(p.held, rows)) for p in self.parties),
            labels=self.labels[rows],
            split=replace(self.split, train=train, validation=validation, test=test),
            whole=None if self.whole is None else taken(self.whole, rows),
            ids=_taken_ids(self.ids, rows),
            labelled=_unless_all(self.labelled, rows),
            weights=None if self.weights is None else self.weights[rows],
            by=None if self.by is None else self.by.take(rows),
        )


# -- partial rows -----------------------------------------------------------------------------


def named_after(parties: Sequence[str], most: int = 3) -> str:
    """A name for the data of these parties: `bank+telco`, `party_1+party_2+party_3+5 more`."""
    more = len(parties) - most
    return "+".join([*parties[:most], *([f"{more} more"] if more > 0 else [])])


def _taken_ids(ids: Sequence[str], rows: Tensor) -> Sequence[str]:
    if isinstance(ids, RowIds):
        return ids.take(rows)
    return tuple(ids[row] for row in rows.tolist()) if ids else ()


def _mask(what: str, values: Any, *shape: int) -> Tensor | None:
    """Booleans of this shape."""
    if values is None:
        return None
    told = values.cpu().numpy() if isinstance(values, Tensor) else np.ascontiguousarray(values)
    if told.dtype != bool or told.shape != shape:
        came = type(values).__name__ if told.dtype.hasobject else f"{told.dtype} of shape {told.shape}"
        raise DataError(f"{what}: needed booleans of shape {shape}; got {came}")
    mask: Tensor = torch.from_numpy(told)
    return mask


def _unless_all(mask: Tensor | None, rows: Tensor | None = None) -> Tensor | None:
    """The mask, of some rows if they are given; None where it says nothing."""
    chosen = mask if mask is None or rows is None else mask[rows]
    return None if chosen is None or bool(chosen.all()) else chosen.clone()


def _check_partial(federation: Federation) -> None:
    """Refuse rows of nobody, partial rows that do not train, and parties or labels that have nothing to teach."""
    split, held, complete = federation.split, federation.held, federation.complete
    for part in ("validation", "test"):
        index: Tensor = getattr(split, part)
        wrong = index[~complete[index]]
        if len(wrong):
            raise DataError(
                f"{len(wrong)} {part} rows are not held by all parties or have no label (first: row {int(wrong[0])}); "
                "such rows may only train"
            )
    if federation.labelled is not None and not bool(federation.labelled[split.train].any()):
        raise DataError("no training row has a label; at least one must")
    if held is None:
        return
    nobody = (~held.any(dim=1)).nonzero()
    if len(nobody):
        raise DataError(f"{len(nobody)} rows are held by no party (first: row {int(nobody[0])}); leave them out")
    for name, mine in zip(federation.names, held.T, strict=True):
        if not bool(mine[split.train].any()):
            raise DataError(f"party {name!r} holds no training row; leave it out")


def _check_taught(federation: Federation) -> None:
    """Refuse labels of the training rows, where they are known, that teach nothing."""
    known, train = federation.labelled, federation.split.train
    _check_differ(federation.task, federation.labels[train if known is None else train[known[train]]])


def check_labels(read: Read, split: RowSplit) -> None:
    """Refuse a split that does not fit these labels, or that leaves nothing to learn from them."""
    check_split(split, len(read.values))
    _check_differ(read.task, read.values[split.train])


def _check_differ(task: Task, taught: Tensor) -> None:
    """Refuse training rows that are all of one class, or one number: every model would learn to say it always."""
    if not len(taught) or (task.classes and task.several()) or bool((taught != taught[:1]).any()):
        return
    only = repr(str(task.classes[int(taught.flatten()[0])])) if task.classes else f"{float(taught.flatten()[0]):g}"
    raise DataError(f"all training rows have the label {only}, so there is nothing to learn; split differently")
