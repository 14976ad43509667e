"""A party's own columns, for its own people: what each adds to the score of a row, and how much each matters.

Computed where the party's table is; nothing leaves and no ledger grows. Columns are those of the table: what one of
them was encoded to counts together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from colonnade.data.frames import as_frame, is_frame, names_of
from colonnade.data.ids import text_ids
from colonnade.errors import ConfigError, DataError
from colonnade.explain.attribute import attribute
from colonnade.explain.contributions import Contributions, Importance, output_names
from colonnade.explain.shares import Share, share_in_model, share_of_part
from colonnade.extras import need
from colonnade.model import Model
from colonnade.part import Part
from colonnade.randomness import stream
from colonnade.rows import Rows
from colonnade.tasks import Task

DRAWS = 5  # how often the values of a column are dealt out anew, unless somebody says otherwise


def explain_part(part: Part, table: Any, background: Any = None, seed: int = 0) -> Contributions:
    """See `Part.contributions`."""
    return _contributions(share_of_part(part), part, table, background, seed)


def explain_party(model: Model, party: str, table: Any, background: Any = None, seed: int = 0) -> Contributions:
    """The same with the coordinator's part, where all parts of a model are in one place; see `Model.contributions`."""
    share, part = share_in_model(model, party), model.part(party)
    return _contributions(share, part, table, background, seed, model.task)


def importance_of_part(part: Part, table: Any, draws: int = DRAWS, seed: int = 0) -> Importance:
    """See `Part.importance`."""
    return _importance(share_of_part(part), part, table, draws, seed)


def importance_of_party(model: Model, party: str, table: Any, draws: int = DRAWS, seed: int = 0) -> Importance:
    """The same with the coordinator's part, where all parts of a model are in one place."""
    return _importance(share_in_model(model, party), model.part(party), table, draws, seed)


def dealt(columns: Tensor, places: tuple[int, ...], order: Tensor) -> Tensor:
    """Columns (B, ...) of which some have the values of other rows."""
    flat = columns.flatten(1).clone()
    flat[:, list(places)] = flat[order][:, list(places)]
    return flat.reshape(columns.shape)


def order_of(seed: int, party: str, column: int, draw: int, rows: int) -> Tensor:
    """The order in which a column's values are dealt out, each draw and column its own."""
    return torch.from_numpy(stream(seed, f"explain column {column}", party, draw).permutation(rows))


def check_draws(draws: int, rows: int) -> None:
    """Refuse what no importance can be measured with."""
    if isinstance(draws, bool) or not isinstance(draws, (int, np.integer)) or draws < 1:
        raise ConfigError(f"draws = {draws!r}: needed a whole number from 1")
    if rows < 2:
        raise DataError("importance needs at least two rows: the values of a column are dealt out anew among them")


def _contributions(
    share: Share, part: Part, table: Any, background: Any, seed: int, task: Task | None = None
) -> Contributions:
    columns = read_own(part, table)
    start, told = _start(share, part, background)
    found = attribute(share, columns, start, seed)
    with torch.no_grad():
        total = share(columns)
    way = f"{found.way}, counted from {told}"
    names = output_names(task or part.design.task)
    index = row_names(part, table)
    return Contributions(
        share.of, way, tuple(share.places), names, found.base, found.values.detach(), total, index, found.error
    )


def _start(share: Share, part: Part, background: Any) -> tuple[Tensor, str]:
    """The row from which is counted, and what it is in words; a local model may count from elsewhere."""
    own = getattr(share.regressor, "counts_from", None)
    if own is not None and background is not None:
        raise ConfigError(f"the local model of party {part.party!r} counts from {own}; leave background out")
    if own is not None:
        return torch.zeros(part.shape, dtype=torch.float64), str(own)
    if background is not None:
        rows = read_own(part, background)
        return rows.mean(dim=0), f"the mean of {len(rows):,} background rows"
    if share.start is None:
        raise ConfigError(
            f"party {part.party!r} did not keep its mean training row (its columns came encoded, or an earlier version "
            "saved it): pass rows to count from, background=table"
        )
    return share.start, "the mean training row"


def _importance(share: Share, part: Part, table: Any, draws: int, seed: int) -> Importance:
    columns = read_own(part, table)
    check_draws(draws, len(columns))
    changes = torch.zeros(draws, len(share.places), dtype=torch.float64)
    with torch.no_grad():
        before = _told_apart(share(columns), part.design.task)
        for draw in range(draws):
            for at, places in enumerate(share.places.values()):
                order = order_of(seed, part.party, at, draw, len(columns))
                after = _told_apart(share(dealt(columns, places, order)), part.design.task)
                changes[draw, at] = (after - before).abs().mean()
    names = tuple(share.places)
    of = f"mean absolute change of {share.of}"
    return Importance(of, (part.party,) * len(names), names, changes, len(columns))


def _told_apart(outputs: Tensor, task: Task) -> Tensor:
    """Of classes only differences matter: a number that is added to all of them changes nothing."""
    return outputs - outputs.mean(dim=1, keepdim=True) if task.exclusive else outputs


def read_own(part: Part, given: Any) -> Tensor:
    """(B, ...) float64: a party's columns, from its table, everybody's tables, or rows of the training's federation.

    Raises:
        DataError: these are not columns of this party, or rows that were encoded otherwise.
    """
    if not isinstance(given, Rows):
        return part.read(_own_table(part, given)).double()
    plan, columns = part.plans.get(part.party), given.columns.get(part.party)
    fits = plan is None or plan.agrees(given.plans.get(part.party))
    if columns is None or not fits or tuple(columns.shape[1:]) != part.shape:
        raise DataError(
            f"these rows have no columns of party {part.party!r} as its part reads them; pass its table, or rows of "
            "the federation of the training"
        )
    return columns.double()


def _own_table(part: Part, given: Any) -> Any:
    """A party's table, also where everybody's are given by name."""
    mine = given.get(part.party) if isinstance(given, Mapping) else None
    return given if mine is None or not is_frame(mine) else mine


def row_names(part: Part, given: Any) -> Any:
    """The ids of a table as it has them, where it has those of the training; None: rows have no names."""
    plan, table = part.plans.get(part.party), _own_table(part, given)
    if plan is None or plan.id is None or not is_frame(table):
        return None
    frame, names = as_frame(f"party {part.party!r}", table, plan.id), names_of(plan.id)
    if not set(names) <= set(frame.columns):
        return None
    if len(names) > 1:
        return text_ids(f"party {part.party!r}", frame, plan.id)
    return need("pandas", extra="tables", purpose="a table").Index(frame[names[0]], name=names[0])
