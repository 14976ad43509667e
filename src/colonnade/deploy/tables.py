"""From an organisation's table and its aligned rows to columns or labels by row number."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from colonnade.align.files import Alignment
from colonnade.align.ids import read_ids
from colonnade.data.beside import Beside
from colonnade.data.column_settings import PartyColumns
from colonnade.data.columns import ColumnPlan
from colonnade.data.drift import Reference
from colonnade.data.frames import Key, read_table
from colonnade.data.ids import Places, places, told, without_id
from colonnade.data.new_columns import unwarned
from colonnade.data.preprocess import encode_labels
from colonnade.data.stored import check_can_store
from colonnade.data.table_file import TextFormat
from colonnade.deploy.label_beside import check_no_label
from colonnade.deploy.party_setup import Columns, Further
from colonnade.errors import DataError, Refused, RowsDisagree
from colonnade.extras import need
from colonnade.federation import RowSplit, Task, check_labels
from colonnade.mapped import large, zeros
from colonnade.rows import Grouping
from colonnade.tasks.weights import row_weights


@dataclass(frozen=True)
class PartyTable:
    """A party's table with its aligned rows."""

    party: str
    path: Path
    id: Key
    alignment: Alignment
    categories: tuple[str, ...] = ()  # columns that hold categories although they look like numbers
    settings: PartyColumns | None = None  # how columns become numbers; None: as they are
    text: TextFormat | None = None  # how a text file is written; None: as the file itself shows
    withdrawn: frozenset[str] = frozenset()  # ids of people who withdrew
    label: str | None = None  # the column that is predicted, where the table has it: nobody may learn from it
    predicted: tuple[str, ...] = ()  # labels of this organisation, which a table may only have as `label`

    def columns(
        self, seen: Tensor, rows: int, left_out: Tensor | None = None, plan: ColumnPlan | None = None
    ) -> Columns:
        """Columns (R, F) by row number; statistics and categories come from the rows that are `seen` alone.

        `left_out`: rows of people who had withdrawn when the run began. They count as rows that the party does not
        have, and need not be in the table any more. `plan`: as in a former run, instead of statistics of these rows.

        Raises:
            DataError: a column of the `plan` is missing or of another kind than it was.
        """
        check_can_store()
        a = self.alignment
        if rows not in (a.complete, a.agreed.rows):
            raise RowsDisagree(f"the run is about {rows} rows; the alignment of {self.party!r} has {a.complete}")
        whole = read_table(self.path, id=self.id, categories=self.categories, text=self.text)
        out = np.isin(a.rows, np.empty(0) if left_out is None else left_out.numpy())
        frame, at = _aligned(whole, self.id, self.path, a, out)
        for name in self.categories:
            if name not in frame.columns:
                raise DataError(f"categories names {name!r}, which is no column of the table {self.path.name!r}")
        frame = without_label(frame, self.label)
        check_no_label(frame, self.predicted, self.path.name)
        if not len(frame.columns):
            raise DataError(f"the table {self.path.name!r} has no columns besides the id {told(self.id)}")
        place = np.full(max(rows, int(a.rows.max()) + 1), -1)  # by row number, where it is in the table
        place[a.rows[~out]] = at[~out]
        mine = torch.from_numpy(place[seen.numpy()])
        if plan is None:
            plan = ColumnPlan.fit(self.party, frame, mine[mine >= 0], self.settings, id=self.id)
            plan = replace(plan, label=self.label)
            values = plan.encode(frame, place, on_disk=large(len(place) * plan.width))
        else:
            with unwarned():
                values = plan.transform(frame, place)
        reference = Reference.of(plan, frame, mine[mine >= 0].numpy())
        return Columns(values, torch.from_numpy(place >= 0), scaled=True, plan=plan, reference=reference)

    def as_of(self, digest: str) -> PartyTable:
        """The same with the rows of an alignment that was extended since."""
        return replace(self, alignment=self.alignment.as_of(digest))

    def further(self, began: str, named: str, columns: Columns) -> Further:
        """Columns of all rows by now, for a run that began with the rows of another alignment.

        Args:
            began: digest of the alignment that the run began with.
            named: digest of the alignment that rows are asked about of; this one, or one that it extends.
            columns: those of the run: its rows stay as they are, and new ones are encoded as they were.

        Raises:
            Refused: one of the two is not this alignment, nor extended by it.
            DataError: a column of the new rows is missing or of another kind than in training.
        """
        a = self.alignment
        for digest in (named, began):
            if digest not in (a.digest, *a.extends):
                raise Refused(
                    f"the request is about rows of the alignment {named[:12]}, the run began with {began[:12]}, and "
                    f"{self.party!r} has {a.digest[:12]}, which does not extend both; run `colonnade align --more` on "
                    "all sides"
                )
        if columns.plan is None:
            raise Refused(f"the columns of {self.party!r} are of no table, so that it has no further rows")
        whole = read_table(self.path, id=self.id, categories=self.categories, text=self.text)
        out = np.isin(a.rows, a.rows_of(self.withdrawn))
        frame, at = _aligned(whole, self.id, self.path, a, out)
        rows, old = a.agreed.rows, len(columns.values)
        values = zeros((rows, columns.plan.width), on_disk=large(rows * columns.plan.width))
        held = torch.zeros(rows, dtype=torch.bool)
        values[:old], held[:old] = columns.values, columns.held[:old]
        new = (a.rows >= self.as_of(began).alignment.agreed.rows) & ~out
        doubts: list[str] = []
        if new.any():
            numbers = torch.from_numpy(a.rows[new])
            with unwarned() as doubts:
                values[numbers], held[numbers] = columns.plan.transform(frame.iloc[at[new]]), True
        counts = {step.agreed.digest: step.agreed.rows for step in a.former} | {a.digest: rows}
        return Further(replace(columns, values=values, held=held), self.ids, counts, len(doubts))

    def ids(self, rows: Tensor) -> list[str]:
        """The ids of row numbers that this party holds."""
        at = np.searchsorted(self.alignment.rows, rows.numpy())
        return [self.alignment.ids[place] for place in at]


def without_label(frame: Any, label: str | None) -> Any:
    """A party's table without the column that is predicted, which its label holder's may have."""
    return frame if label is None else frame.drop(columns=label, errors="ignore")


@dataclass(frozen=True)
class LabelTable:
    """The label holder's labels by row number; rows without a label take part in prediction only."""

    labels: Tensor = field(repr=False)  # (N,) or (N, K)
    task: Task
    split: RowSplit
    weights: Tensor | None = field(default=None, repr=False)  # (N,) how much each row counts; None: all alike
    by: Grouping | None = field(default=None, repr=False)  # groups that the test rows are also measured by
    held: Tensor | None = field(default=None, repr=False)  # (N, M) who holds which row; None: all hold all

    @classmethod
    def read(  # noqa: PLR0913 - one argument per fact about the table
        cls,
        path: Path,
        id: Key,
        label: str,
        task: str | None,
        alignment: Alignment,
        beside: Beside,
        classes: tuple[str, ...] | None = None,
        text: TextFormat | None = None,
        *,
        lacking: tuple[str, ...] = (),
        withdrawn: Collection[str] = (),
    ) -> LabelTable:
        """Labels of the rows that all parties hold, split as what is `beside` them says.

        `lacking`: the parties, where rows that some of them do not hold also train.
        `withdrawn`: ids of people who withdrew: they have no label, whatever the table says.
        """
        out = np.isin(alignment.rows, alignment.rows_of(withdrawn))
        frame, place = _aligned(read_table(path, id=id, text=text), id, path, alignment, out, beside.in_id(id))
        for what, column in (("label", label), *beside.roles.items()):
            if column not in frame.columns:
                raise DataError(f"the table {path.name!r} has no {what} column {column!r}; columns: {', '.join(frame)}")
        frame = frame[[label, *dict.fromkeys(beside.roles.values())]].iloc[place]
        rows = alignment.agreed.rows if lacking else alignment.complete
        target = frame[[label]].iloc[:rows]
        known = np.flatnonzero(target[label].notna().to_numpy() & ~out[:rows])
        if not len(known):
            raise DataError(f"none of the {rows} aligned rows has a label in {label!r}")
        read = encode_labels(target.iloc[known], task, classes)
        at = torch.from_numpy(known)
        _, facts = beside.split_off(frame.iloc[known], {})
        split = beside.splitter(facts, read)(at < alignment.complete)
        check_labels(read, split)
        full = torch.zeros(rows, *read.values.shape[1:], dtype=read.values.dtype)
        full[at] = read.values
        placed = RowSplit(at[split.train], at[split.validation], at[split.test], split.stratified)
        return cls(full, read.task, placed, *_placed(beside, facts, at, rows), _presence(alignment, lacking))


def _presence(alignment: Alignment, parties: tuple[str, ...]) -> Tensor | None:
    """(N, M) which of these parties holds which row; None: all hold all, or nobody asks."""
    if not parties or not alignment.agreed.partial:
        return None
    if alignment.presence is None:
        raise RowsDisagree("the alignment does not say who holds which row; align again with keep = 'partial'")
    everything = np.ones(alignment.agreed.rows, dtype=bool)
    return torch.from_numpy(np.stack([alignment.presence.get(party, everything) for party in parties], axis=1))


def _placed(beside: Beside, facts: Any, at: Tensor, rows: int) -> tuple[Tensor | None, Grouping | None]:
    """Weights and groups of all rows, of which only those `at` these places have a label."""
    heavy, groups = None, beside.grouping(facts)
    if "weights" in facts.columns:
        values = np.full(rows, np.nan)
        values[at.numpy()] = facts["weights"].to_numpy()
        heavy = row_weights(values, rows, torch.zeros(rows, dtype=torch.bool).index_fill_(0, at, True))
    if groups is not None:
        groups = replace(groups, codes=torch.full((rows,), -1).index_copy_(0, at, groups.codes))
    return heavy, groups


def _aligned(
    frame: Any, id: Key, path: Path, alignment: Alignment, out: np.ndarray, kept: Sequence[str] = ()
) -> tuple[Any, Places]:
    """A table with its ids as index, and where in it the aligned rows are, in the order of their numbers.

    `out`: (R,) which of them need not be there; their places may be -1. `kept`: columns of the id that stay columns.
    """
    pd = need("pandas", extra="tables", purpose="a table")
    ids = pd.Index(read_ids(frame, id, f"table {path.name!r}"), dtype="str")
    at = places(pd.Index(alignment.ids, dtype="str"), ids)
    gone = int(((at < 0) & ~out).sum())
    if gone:
        raise RowsDisagree(
            f"{gone} of {len(alignment.ids)} aligned ids are not in {path.name!r} any more; "
            "put the table back that was aligned, or align again (a run that began before people withdrew needs their "
            'lines: documentation, page "Withdrawal")'
        )
    return without_id(frame, id, kept).set_axis(ids, axis=0), at
