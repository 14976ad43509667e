"""Extending an alignment: old rows keep their numbers, and rows of ids that had none come after them.

Both sides go through the alignment once more with the ids alone that have no row yet, so nothing is asked or told about
old rows. What they agree on is numbered from 0 as ever; each side puts it after the rows that it has. The digest of an
extension covers that of the alignment before it: two sides with other old rows do not end with the same one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from colonnade.align.files import Alignment, Step
from colonnade.align.match import Agreed
from colonnade.align.settings import AlignSettings
from colonnade.errors import ConfigError, DataError, RowsDisagree


def check_same(settings: AlignSettings, former: Agreed) -> None:
    """An extension is among the same parties, and keeps rows by the same rule."""
    if settings.parties != former.parties:
        raise ConfigError(
            f"the alignment is with {', '.join(former.parties)}, and this would be with {', '.join(settings.parties)}; "
            "an extension is among the same parties: for others, align anew without --more"
        )
    if settings.keep != former.keep:
        raise ConfigError(
            f"the alignment has keep = {former.keep!r}, and the configuration says {settings.keep!r}; an extension "
            "keeps rows by the same rule: put it back, or align anew without --more"
        )


def new_ids(ids: Sequence[str], former: Alignment, withdrawn: Collection[str] = ()) -> tuple[str, ...]:
    """The ids that have no row yet. Of people who withdrew, ids need not be there any more, and get no row.

    Raises:
        RowsDisagree: an id that has a row is not among them any more.
        DataError: every id has a row.
    """
    here, old = set(ids), set(former.ids)
    gone = len(old - here - {*withdrawn})
    if gone:
        raise RowsDisagree(
            f"{gone:,} of {len(old):,} aligned ids are not in the table any more; an extension keeps all rows: put "
            "them back, or align anew without --more (people who withdrew: `colonnade forget`)"
        )
    found = tuple(id for id in ids if id not in old and id not in withdrawn)
    if not found:
        raise DataError(f"all {len(here):,} ids of the table have a row already; there is nothing to extend")
    return found


def agreed_with(former: Agreed, step: Agreed) -> Agreed:
    """What all sides know of the rows of `former` with those of a step after them.

    With keep = "partial" all new rows are among those after the complete ones, whoever holds them.
    """
    if step.keep == "all":
        return replace(step, extends=former.digest, complete=former.complete + step.complete)
    return replace(step, extends=former.digest, complete=former.complete, partial=former.partial + step.rows)


def extended(former: Alignment, step: Alignment) -> Alignment:
    """One side's rows of `former`, and after them those of a step."""
    agreed = agreed_with(former.agreed, step.agreed)
    presence = None
    if step.presence is not None:
        nothing = np.ones(len(former.rows), dtype=bool)  # a party of the label holder's own that was not named before
        held = former.presence or {}
        presence = {name: np.concatenate([held.get(name, nothing), new]) for name, new in step.presence.items()}
    return Alignment(
        step.me,
        agreed,
        np.concatenate([former.rows, former.agreed.rows + step.rows]),
        (*former.ids, *step.ids),
        presence,
        step.report,
        (*former.former, Step(former.agreed, former.report, former.time)),
    )
