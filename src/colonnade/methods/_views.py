"""Rows that only one of two parties holds: which they are, what stands in for the view that is missing, pseudo-labels.

A *view* of a row is one party's representation of it, h = [u, c]: a part u that only this party can know (unique), and
at the end a part c that both should agree on (shared). Who holds which row is what the federation says; where all hold
all, it can be simulated: `draw_holders` draws by seed whose view of which training row is as if it were not there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from colonnade.errors import ConfigError
from colonnade.methods._server import COORDINATOR, get_server
from colonnade.models.heads import apply_heads, dropout_keys, open_heads
from colonnade.models.optimise import Optimiser
from colonnade.models.schema import Schema
from colonnade.randomness import dropout_key, permutation

# Who holds a row: both parties, the first of the federation alone, the second alone, neither (such rows do not train).
BOTH, FIRST, SECOND, NOBODY = 0, 1, 2, 3
CLASSIFIERS = ("joint", "first", "second")  # on both views side by side, on one, on the other


# -- who holds what ---------------------------------------------------------------------------


def find_holders(schema: Schema, matched: float, guest: int) -> tuple[Tensor, Tensor]:
    """Who holds each row, (N,) BOTH, FIRST, SECOND or NOBODY; and whether its label is known, (N,)."""
    if len(schema.parties) != 2:
        raise ConfigError(
            f"fedmvt is for exactly two parties; this federation has {len(schema.parties)}: keep two of them "
            "(Federation.only), or use split_learning"
        )
    if schema.held is None and schema.labelled is None:
        holders = draw_holders(schema, matched)
        return holders, holds(holders, guest)
    if matched < 1:
        raise ConfigError(
            f"matched = {matched} simulates rows that are not shared, and this federation has real ones; leave it at "
            "1, or simulate on Federation.matched()"
        )
    everything = torch.ones(schema.rows, 2, dtype=torch.bool, device=schema.device)
    first, second = (everything if schema.held is None else schema.held).T
    holders = torch.full((schema.rows,), NOBODY, dtype=torch.uint8, device=schema.device)
    holders[first & second], holders[first & ~second], holders[second & ~first] = BOTH, FIRST, SECOND
    if not bool((holders[schema.train.to(schema.device)] == BOTH).any()):
        raise ConfigError("fedmvt needs training rows that both parties hold, and there is none; match some first")
    return holders, everything[:, 0] if schema.labelled is None else schema.labelled


def draw_holders(schema: Schema, matched: float) -> Tensor:
    """(N,) BOTH, FIRST or SECOND. `matched` of the training rows and all other rows are held by both."""
    holders = torch.zeros(schema.rows, dtype=torch.uint8)
    order = permutation(schema.train.cpu().sort().values, schema.seed, "matched rows")
    rest = order[max(1, round(matched * len(order))) :]
    holders[rest[0::2]], holders[rest[1::2]] = FIRST, SECOND
    return holders.to(schema.device)


def holds(holders: Tensor, place: int) -> Tensor:
    """Whether the party at this place of the federation (0 or 1) holds each row."""
    return (holders == BOTH) | (holders == FIRST + place)


# -- what stands in for a missing view --------------------------------------------------------


def attend(queries: Tensor, keys: Tensor, values: Tensor, temperature: float) -> Tensor:
    """softmax(queries keys^T / (T sqrt(d))) values: a mean of the values, of like keys most; zero without keys."""
    scale = temperature * math.sqrt(max(1, keys.shape[1]))
    return ((queries @ keys.mT) / scale).softmax(dim=1) @ values


def parts(view: Tensor, shared: int) -> tuple[Tensor, Tensor]:
    """Unique and shared part; the last `shared` numbers are shared."""
    return view[:, : view.shape[1] - shared], view[:, view.shape[1] - shared :]


def estimate(own: Tensor, other: Tensor, held: tuple[Tensor, Tensor], shared: int, temperature: float) -> Tensor:
    """The other's view (B, d) of every row as far as one's own tells; `held`: by oneself, by the other."""
    (u, c), (v, d) = parts(own, shared), parts(other, shared)
    both = held[0] & held[1]
    unique = attend(u, u[both], v[both], temperature)  # like the matched rows that look alike to me
    common = attend(c, d[held[1]], d[held[1]], temperature)  # like the other's rows that look like mine
    return torch.cat([unique, common], dim=1)


# -- the terms of the objective ---------------------------------------------------------------


def gap(one: Tensor, other: Tensor) -> Tensor:
    """The mean squared difference of all numbers; 0 where there are none."""
    return (one - other).square().sum() / max(1, one.numel())


def overlap(view: Tensor, shared: int) -> Tensor:
    """|U^T C|_F / n: how much the unique and the shared part of n rows say the same."""
    u, c = parts(view, shared)
    size: Tensor = torch.linalg.vector_norm(u.mT @ c)  # its slope at zero is zero
    return size / max(1, len(view))


def weigh(counted: Tensor, both: Tensor, emphasis: float) -> Tensor:
    """Weights (B,) of the counted rows; they sum to 1, matched ones have `emphasis` of it, or their share if larger."""
    matched, rest = (counted & both).double(), (counted & ~both).double()
    share = matched.sum() / counted.sum().clamp(min=1)
    share = torch.where((share > 0) & (share < 1), share.clamp(min=emphasis), share)
    return share * matched / matched.sum().clamp(min=1) + (1 - share) * rest / rest.sum().clamp(min=1)


# -- the classifiers --------------------------------------------------------------------------


def open_classifiers(state: dict[str, Tensor], schema: Schema, optimiser: Optimiser) -> None:
    """Three first models in the state, where `_server.step_server` finds and trains them as one."""
    one, other = (group.width for group in schema.groups for _ in group.parties)
    for name, width in zip(CLASSIFIERS, (one + other, one, other), strict=True):
        drawn = open_heads(schema.head, (f"{COORDINATOR} {name}",), width, schema.outputs, schema.seed)
        state |= {f"server.{name}.{k}": v.to(schema.device, schema.dtype) for k, v in drawn.items()}
    state |= {f"step.{k}": v for k, v in optimiser.open(list(get_server(state).values())).items()}
    state["drop.rate"] = torch.tensor(schema.head.dropout, dtype=torch.float64, device=schema.device)
    keys = [dropout_key(schema.seed, f"{COORDINATOR} {name}") for name in CLASSIFIERS]
    state["drop.key"] = dropout_keys(keys, schema.device)


def classify(
    models: Mapping[str, Tensor], views: Sequence[Tensor], drop: tuple[float, Tensor, int] | None = None
) -> list[Tensor]:
    """Logits (B, K) of the joint, the first and the second classifier; `drop`: rate, keys and round, while learning."""
    inputs, logits = (torch.cat(list(views), dim=1), *views), []
    for i, (name, x) in enumerate(zip(CLASSIFIERS, inputs, strict=True)):
        model = {k.removeprefix(f"{name}."): v for k, v in models.items() if k.startswith(f"{name}.")}
        rate, keys, round_number = drop or (0.0, None, 0)
        logits.append(
            apply_heads(model, x.unsqueeze(0), rate, None if keys is None else keys[i : i + 1], round_number)[0]
        )
    return logits
