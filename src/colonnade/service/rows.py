"""Rows for the next version of a model: aligned, where there are none, and extended where the schedule says so."""

from __future__ import annotations

from colonnade.align.files import ABOUT
from colonnade.deploy.aligning import How, align_label_holder
from colonnade.deploy.sections import CoordinatorFile
from colonnade.engines.message import Notify
from colonnade.errors import ColonnadeError


def aligned(read: CoordinatorFile) -> bool:
    """Whether there is an alignment, good or not."""
    return (read.coordinator.alignment / ABOUT).exists()


def see_to_rows(read: CoordinatorFile, by_schedule: bool, notify: Notify) -> None:
    """Align with the parties, who serve or are started by hand; to extend is not worth a training that does not begin.

    Raises:
        ColonnadeError: there is no alignment, and none can be made.
    """
    if not aligned(read):
        made, _ = align_label_holder(read, How(), notify)
        notify("aligned", rows=len(made.ids), digest=made.digest[:12])
    elif by_schedule and read.schedule.align == "more":
        try:
            made, _ = align_label_holder(read, How(more=True, patience=read.schedule.patience), notify)
            notify("aligned", rows=len(made.ids), digest=made.digest[:12])
        except ColonnadeError as error:
            notify("not aligned", reason=str(error), note="training goes on with the rows there are")
