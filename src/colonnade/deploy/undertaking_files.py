"""From the files of the label holder to what it undertakes."""

from __future__ import annotations

import torch

from colonnade.align.files import Alignment, read_alignment
from colonnade.data.beside import Beside
from colonnade.deploy.settings import CoordinatorConfig, split_of
from colonnade.deploy.tables import LabelTable
from colonnade.deploy.undertaking import PURPOSES, Undertaking
from colonnade.deploy.withdrawal.limits import check_rows
from colonnade.errors import RowsDisagree
from colonnade.methods.base import check_lacking
from colonnade.record import RECORD, STORE
from colonnade.row_split import RowSplit
from colonnade.store import peek
from colonnade.withdrawn import read_withdrawn

DEPLOYMENT = "deployment.json"  # beside the run: where its configuration file is, for later predictions


def alignment_of(read: CoordinatorConfig) -> Alignment:
    """The rows that are aligned now; of a run that began before they were extended, those that there were then."""
    alignment = read_alignment(read.coordinator.alignment)
    begun = peek(read.coordinator.folder / STORE, "$.agreement.proposal.alignment")
    return alignment.as_of(begun[0]) if begun is not None and begun[0] in alignment.extends else alignment


def read_undertaking(read: CoordinatorConfig, alignment: Alignment) -> Undertaking:
    """What the files of the label holder ask for."""
    c = read.coordinator
    strange = [name for name in c.parties if name not in (*c.own, *alignment.agreed.parties)]
    if strange:
        raise RowsDisagree(
            f"rows were aligned with {', '.join(alignment.agreed.parties)}, and not with {', '.join(strange)}; run "
            "`colonnade align` with everybody first"
        )
    beside = Beside(c.weights, split_of(c, read.privacy.labels.protects), c.by)
    lacking = c.parties if c.train_on == "all" else ()
    if lacking:
        check_lacking(read.method)
    gone = left_out_by(read, alignment)
    labels = LabelTable.read(
        c.table, c.id, c.label, c.task, alignment, beside, c.classes, c.text, lacking=lacking, withdrawn=gone
    )
    if not (c.folder / RECORD).exists():
        check_split(labels.split, alignment, read)
    return Undertaking(
        parties=c.parties,
        labels=labels.labels,
        task=labels.task,
        split=labels.split,
        method=read.method,
        model=read.model,
        training=read.training.in_rounds(read.method, labels.split.train, c.parties),
        absence=read.absence,
        privacy=read.privacy,
        alignment=alignment.digest,
        former=alignment.extends,
        purposes=PURPOSES if c.predictions else PURPOSES[:2],
        config=read.tables,
        weights=labels.weights,
        by=labels.by,
        held=labels.held,
        own=c.own,
        withdrawn=tuple(alignment.rows_of(gone).tolist()),
    )


def left_out_by(read: CoordinatorConfig, alignment: Alignment) -> frozenset[str]:
    """Ids that a run leaves out: of people who have withdrawn by now, or by when it began."""
    store, now = read.coordinator.folder / STORE, read_withdrawn(read.coordinator.withdrawn).ids
    if peek(store, "$.agreement.proposal.run") is None:
        return now
    then = peek(store, "$.withdrawn")
    numbers = dict(zip(alignment.rows.tolist(), alignment.ids, strict=True))
    return frozenset(numbers[row] for row in (then[0] if then else ()) if row in numbers)


def check_split(split: RowSplit, alignment: Alignment, read: CoordinatorConfig) -> None:
    """Refuse to go on with a run whose rows are of people who withdrew since it began."""
    c, rows = read.coordinator, torch.cat([split.train, split.validation, split.test])
    gone = alignment.rows_of(read_withdrawn(c.withdrawn).ids)
    check_rows(rows, torch.from_numpy(gone), f"run {c.run!r} began with")
