"""Combinations of some parties' scores: fitted on validation rows at the end of a training, or when they are asked for.

Lifted scores (`methods/_lifts.py`) turn on the sides of the guest's columns: a set without the guest has their plain
parts, and its combination is fitted to these. So is one of all parties, to tell what lifting adds.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from colonnade.errors import ConfigError
from colonnade.models.subsets import Combinations, all_subsets, combine, fit_subsets
from colonnade.tasks import Task

MOST_PARTIES = 8  # for which a combination of every set is fitted,
MOST_WORK = 2**31  # if all of them together are no more multiplications a step
SCORES, TARGETS, COUNTS = "subset.scores", "subset.targets", "subset.counts"  # (M, B, K), (B, K), (B,)
PLAIN, GUEST = "subset.plain", "subset.guest"  # (M, B, K) what lifted scores are without the guest, and its place
WEIGHTS, BIAS, FITTED = "subset.weights", "subset.bias", "subset.fitted"  # (2^M - 1, M), (2^M - 1, K), (2^M - 1,)
PLAIN_WEIGHTS, PLAIN_BIAS = "plain.weights", "plain.bias"  # (M,), (K,) of the plain parts of all parties
WHOLE_WEIGHTS, WHOLE_BIAS = "whole.weights", "whole.bias"  # (M,), (K,) of all parties, where their sum is no answer


def settled(task: Task, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The state with a combination of every set of parties instead of remembered scores, if sets are few."""
    if SCORES not in state:
        return dict(state)
    state = dict(state) | _plain_parts(task, state)
    parties, rows, outputs = state[SCORES].shape
    work = (2**parties - 1) * rows * outputs * (parties + outputs) ** 2
    if parties > MOST_PARTIES or work > MOST_WORK:
        return state
    found = _fitted(task, state, all_subsets(parties))
    rest = {name: value for name, value in state.items() if name not in (SCORES, TARGETS, COUNTS, PLAIN, GUEST)}
    device = state[SCORES].device
    kept = {WEIGHTS: found.weights, BIAS: found.bias, FITTED: found.fitted}
    return rest | {name: value.to(device) for name, value in kept.items()}


def _plain_parts(task: Task, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The combination of the plain parts of lifted scores of all parties; nothing of other scores."""
    if PLAIN not in state:
        return {}
    everybody = torch.ones(1, len(state[PLAIN]), dtype=torch.bool)
    found = fit_subsets(task, state[PLAIN], state[TARGETS], everybody, state.get(COUNTS))
    if not bool(found.fitted.all()):
        return {}
    device = state[PLAIN].device
    return {PLAIN_WEIGHTS: found.weights[0].to(device), PLAIN_BIAS: found.bias[0].to(device)}


def _fitted(task: Task, state: Mapping[str, Tensor], sets: Tensor) -> Combinations:
    """The best combination for each of the sets (S, M), of lifted scores where the guest is in it."""
    told = state[TARGETS], sets, state.get(COUNTS)
    found = fit_subsets(task, state[SCORES], *told)
    if PLAIN not in state:
        return found
    plain, with_guest = fit_subsets(task, state[PLAIN], *told), sets[:, int(state[GUEST])]
    pairs = ((getattr(found, name), getattr(plain, name)) for name in ("weights", "bias", "fitted"))
    chosen = [torch.where(with_guest.view(-1, *[1] * (one.dim() - 1)), one, other) for one, other in pairs]
    return Combinations(*chosen)


def combined(task: Task, state: Mapping[str, Tensor], scores: Tensor, present: Tensor) -> Tensor:
    """Logits (B, K) of those present (M,), at least one: the combination that was fitted for them, or is fitted now."""
    here = present.cpu()
    if WEIGHTS in state:
        number = sum(2**place for place in here.nonzero()[:, 0].tolist())
        weights, bias, fitted = (state[name][number - 1] for name in (WEIGHTS, BIAS, FITTED))
    else:
        found = _fitted(task, state, here[None])
        weights, bias, fitted = found.weights[0], found.bias[0], found.fitted[0]
    if not bool(fitted):
        raise ConfigError(
            "no combination of these parties could be fitted on the validation rows, whose scores of some party were "
            "far too large; wait until all are there (--absent refuse)"
        )
    return combine(weights, bias, scores, here)
