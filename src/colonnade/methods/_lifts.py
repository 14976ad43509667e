"""Lifted scores: a sum that also sees what shows only together with a column of the guest.

    yhat = sum_k ( o_k0 + sum_g phi_g o_kg )      phi_g = +1 or -1: the side of its cut that the guest's column g is on

A party's outputs are 1 + G blocks of as many as the task has. The guest sends its sides beside them, as bytes, which
the replies pass on to everybody; where they are not known (the guest lacks the row, or was left out of the round),
phi = 0 and the sum is a plain one. `methods/vimadmm_j.py` says why training on it is ADMM.
"""

from __future__ import annotations

import torch
from torch import Tensor

from colonnade.errors import ConfigError
from colonnade.methods._guest import is_shown
from colonnade.methods.base import Method, Uploads
from colonnade.models.cohort import KEPT, Cohort
from colonnade.models.sides import Cuts, find_cuts, some_of
from colonnade.privacy.gate import SIDES as NOTED
from colonnade.privacy.sealed import Array

SIDES = "sides"  # what upload and reply call them; codes: 0 not known, 1 below the cut, 2 above
PLACES, VALUES = f"{KEPT}places", f"{KEPT}cuts"  # (1, G) in the guest's memory, and in its part of the model


def sides_array(lifts: int) -> dict[str, Array]:
    """What the guest declares besides its outputs."""
    return {SIDES: Array(lifts, torch.uint8, note=NOTED)}


def open_sides(cohort: Cohort, lifts: int) -> None:
    """Choose the guest's columns and their cuts by its training rows; where there are none, a model is opened again."""
    train = cohort.schema.train
    held = cohort.holding(train)
    rows = some_of(train if held is None else train[held[0].to(train.device)])
    found = find_cuts(cohort.x(rows)[0], lifts) if len(rows) else _no_cuts(cohort, lifts)
    check_enough(found, lifts, cohort.names[0])
    cohort.memory[PLACES], cohort.memory[VALUES] = found.places[None], found.values[None]


def check_enough(found: Cuts, lifts: int, guest: str) -> None:
    """Refuse more lifts than the guest has columns for."""
    if len(found.places) < lifts:
        raise ConfigError(
            f"lifts = {lifts}: {len(found.places)} columns of party {guest!r} have a tenth of the training rows on "
            f"either side of their median; use at most as many"
        )


def check_sides(method: Method, party: str, columns: Tensor) -> None:
    """The same, where a party is asked to join as the guest: of the columns (N, ...) of its training rows."""
    lifts = getattr(method, "lifts", 0)
    if lifts and is_shown(method, (party,)):
        check_enough(find_cuts(columns, lifts), lifts, party)


def _no_cuts(cohort: Cohort, lifts: int) -> Cuts:
    zeros = torch.zeros(lifts, dtype=torch.int64, device=cohort.device)
    return Cuts(zeros, zeros.to(cohort.columns.dtype))


def sides(cohort: Cohort, x: Tensor) -> dict[str, Tensor]:
    """(1, B, G) the codes of the guest's columns x (1, B, ...)."""
    cuts = Cuts(cohort.memory[PLACES][0], cohort.memory[VALUES][0])
    return {SIDES: cohort.silent_where_lacking((cuts.above(x[0])[None] + 1).to(torch.uint8))}


def factors(codes: Tensor) -> Tensor:
    """(B, 1 + G) float64: 1 and the phi_g of codes (B, G), which come from outside."""
    phi = (codes == 2).double() - (codes == 1).double()
    return torch.cat([torch.ones_like(phi[:, :1]), phi], dim=1)


def codes_of(uploads: Uploads) -> Tensor:
    """(B, G) what the guest said of these rows."""
    codes: Tensor = next(group[SIDES][0] for group in uploads.groups if SIDES in group)
    return codes


def lifted(outputs: Tensor, phi: Tensor) -> Tensor:
    """(..., B, K) the sum of blocks (..., B, (1 + G) K), each times its factor (B, 1 + G)."""
    blocks: Tensor = outputs.unflatten(-1, (phi.shape[1], -1))
    terms = blocks * phi.to(outputs).unsqueeze(-1)
    return terms.sum(dim=-2)


def spread(moves: Tensor, phi: Tensor) -> Tensor:
    """(B, (1 + G) K) moves (B, K) of a lifted sum, for each of its blocks."""
    return (phi.to(moves).unsqueeze(-1) * moves.unsqueeze(-2)).flatten(-2)


def giver(uploads: Uploads) -> int | None:
    """The place of the guest among all parties, group by group; None: nobody says sides."""
    place = 0
    for group in uploads.groups:
        if SIDES in group:
            return place
        place += len(next(iter(group.values())))
    return None


def without_sides(uploads: Uploads) -> Uploads:
    """The same, as if nobody knew them."""
    return Uploads(tuple({name: _silent(name, value) for name, value in group.items()} for group in uploads.groups))


def _silent(name: str, value: Tensor) -> Tensor:
    return torch.zeros_like(value) if name == SIDES else value
