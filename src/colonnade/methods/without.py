"""Predictions without some of the parties: which methods have an answer then, and the one that sums have.

A method that adds up a score of every party says what these are (`AddsScores`), and nothing else:

    evaluation   the label holder has every party's score of the validation rows; it remembers those of the kept round
    the end      a combination is fitted for every set of parties (`_combinations.py`) and kept with the model; the
                 scores are forgotten. Of many parties there are too many sets: then scores and labels of the validation
                 rows stay in the label holder's part, and a combination is fitted when it is asked for
    prediction   of all parties: the method's own; of some: the combination of their set

Where training itself lacked parties, in rows that they do not hold or rounds that they were left out of, the sum of all
is one of terms that also had to do without each other. Then all parties are combined, too, before each evaluation.

Only `labels.held_out` is used, so that protected labels stay protected. Under a secure sum nobody's score can be read,
and nothing is fitted; nor where no validation row was ever evaluated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from colonnade.errors import ConfigError
from colonnade.methods._combinations import (
    COUNTS,
    GUEST,
    PLAIN,
    PLAIN_BIAS,
    PLAIN_WEIGHTS,
    SCORES,
    TARGETS,
    WEIGHTS,
    WHOLE_BIAS,
    WHOLE_WEIGHTS,
    combined,
)
from colonnade.methods._lifts import giver, without_sides
from colonnade.methods.base import FitsOutputs, Method, State, Uploads, on_scale
from colonnade.models.schema import Schema
from colonnade.models.subsets import combine, fit_subsets
from colonnade.privacy.labels import Labels
from colonnade.tasks import Task


@runtime_checkable
class PredictsWithout(Protocol):
    """A method that has an answer of its own where some parties say nothing."""

    def knows_subsets(self, state: Mapping[str, Tensor]) -> bool:
        """Whether this model has such answers; otherwise it needs combinations."""

    def predict_without(self, state: State, uploads: Uploads, present: Sequence[Tensor]) -> Tensor:
        """Logits (B, K) from those present, at least one: a mask (P,) per group; the others' entries are no uploads."""


@runtime_checkable
class AddsScores(Protocol):
    """A method whose prediction adds up a score of every party: answers without some of them are fitted for it."""

    def scores(self, state: State, uploads: Uploads) -> Tensor:
        """(M, B, K) what each party adds to the sum, group by group."""


def check_party_dropout(method: Method, rate: float, goes_on: bool, layers: int) -> None:
    """Refuse to leave parties out of rounds where that means nothing, or where uploads are remembered.

    `layers` of the heads: one of several has biases, which add something of who says nothing.
    """
    if not rate:
        return
    no_rounds = method.needs_uploads == "nothing" or getattr(method, "once", False) or getattr(method, "whole", False)
    if no_rounds or not isinstance(method, AddsScores):
        raise ConfigError(
            f"schedule.party_dropout: {method.name} has no round in which the sum of some parties' scores is taught; "
            "leave it out, or use vimadmm_j, vimadmm or fdml"
        )
    if layers > 1 and method.needs_uploads == "each":
        raise ConfigError(
            f"schedule.party_dropout: heads of {layers} layers at the coordinator have biases, so that a party that is "
            "left out would still add a number; use model.head.layers = 1"
        )
    if goes_on:
        raise ConfigError(
            "schedule.party_dropout counts nothing of who is left out, and absence.then = 'continue' its last upload; "
            "use 'wait' or 'stop'"
        )


def fit_for_all(
    method: Method, state: State, uploads: Sequence[Uploads], labels: Labels, rows: Tensor, places: Tensor | None
) -> None:
    """Fit what the prediction of all parties needs to validation rows, whose uploads come in pieces.

    `places` are those of the rows that a combination may be fitted to; None: training lacked no party, and none is
    needed. Never called under a secure sum.
    """
    if isinstance(method, FitsOutputs):
        method.fit_outputs(state, uploads, labels, rows)
    elif places is not None and isinstance(method, AddsScores) and not _knows_subsets(method, state):
        scores, rows = _scores(method, state, uploads), rows[places.to(rows.device)]
        scores, targets = scores[:, places.to(scores.device)], labels.held_out(rows)
        everybody = torch.ones(1, len(scores), dtype=torch.bool)
        found = fit_subsets(labels.task, scores, targets, everybody, labels.weights(rows, targets))
        if not bool(found.fitted.all()):
            return  # the sum stays as it is, and its score says how good that is
        state[WHOLE_WEIGHTS] = found.weights[0].to(scores.device)
        state[WHOLE_BIAS] = found.bias[0].to(scores.device)


def _scores(method: AddsScores, state: State, uploads: Sequence[Uploads]) -> Tensor:
    return torch.cat([method.scores(state, one) for one in uploads], dim=1)


def remembered(
    method: Method, state: State, uploads: Sequence[Uploads], labels: Labels, rows: Tensor
) -> dict[str, Tensor]:
    """Every party's scores of validation rows, which come in pieces, and their labels; nothing of other methods."""
    if not isinstance(method, AddsScores) or _knows_subsets(method, state):
        return {}
    scores = _scores(method, state, uploads)
    if len(scores) < 2:  # the only party, or the total of a secure sum
        return {}
    targets = labels.held_out(rows)
    counts = labels.weights(rows, targets)
    kept = {SCORES: scores.contiguous(), TARGETS: targets.double()}
    guest = giver(uploads[0])
    if guest is not None:
        plain = _scores(method, state, [without_sides(one) for one in uploads])
        kept |= {PLAIN: plain.contiguous(), GUEST: torch.tensor(guest)}
    return kept if counts is None else kept | {COUNTS: counts.double()}


def plain_outputs(method: Method, state: State, uploads: Uploads) -> Tensor | None:
    """What lifted scores would predict without the guest's sides, on the scale of the labels; None: there are none."""
    if PLAIN_WEIGHTS not in state or not isinstance(method, AddsScores):
        return None
    scores = method.scores(state, without_sides(uploads))
    everybody = torch.ones(len(scores), dtype=torch.bool)
    return on_scale(state, combine(state[PLAIN_WEIGHTS], state[PLAIN_BIAS], scores, everybody))


def check_can_leave_out(method: Method, state: Mapping[str, Tensor], secure_sum: bool) -> None:
    """Refuse by name a prediction without a party, where the model has no answer; before anybody is asked anything.

    Parties that were trained together correct each other. Their sum without one term is a model that nobody trained:
    in one trial it said yes to 48 % of the rows instead of 3 %.
    """
    if secure_sum:
        raise ConfigError(
            "a secure sum opens only with all parties, and two predictions that differ by one party would show what it "
            "said: nobody can be left out; use --absent refuse"
        )
    if _knows_subsets(method, state) or WEIGHTS in state or SCORES in state:
        return
    if isinstance(method, AddsScores):
        raise ConfigError(
            f"this {method.name} model has no answer without one of its parties: combinations of the others are fitted "
            "on evaluated validation rows, and there were none (no such rows, no evaluation, or a version before "
            "combinations); wait until all are there (--absent refuse)"
        )
    raise ConfigError(
        f"{method.name} has no answer without one of its parties, because they were trained together: what the others "
        "say alone is no prediction; wait until all are there (--absent refuse), or train one_message, vimadmm_j or "
        "another method that answers without some parties"
    )


def _knows_subsets(method: Method, state: Mapping[str, Tensor]) -> bool:
    return isinstance(method, PredictsWithout) and method.knows_subsets(state)


def in_their_places(
    method: Method, schema: Schema, told: Mapping[str, Mapping[str, Tensor]], rows: int
) -> tuple[Uploads, list[Tensor]]:
    """Uploads (B, ...) by party, of some of them, group by group as those of all; and who they are, a mask per group.

    Where nobody uploaded there are zeros, which are not to be read.
    """
    groups, present = [], []
    for group in schema.groups:
        full = {
            name: schema.zeros(len(group.parties), *array.shape(rows)).to(array.dtype or schema.dtype)
            for name, array in method.upload_arrays(schema, group).items()
        }
        for place, party in enumerate(group.parties):
            for name, value in told.get(party, {}).items():
                full[name][place] = value
        groups.append(full)
        present.append(torch.tensor([party in told for party in group.parties], device=schema.device))
    return Uploads(tuple(groups)), present


def outputs(method: Method, state: State, uploads: Uploads) -> Tensor:
    """A method's prediction from the uploads of all parties, on the scale of the labels."""
    if WHOLE_WEIGHTS not in state or not isinstance(method, AddsScores):
        return on_scale(state, method.predict(state, uploads))
    scores = method.scores(state, uploads)
    everybody = torch.ones(len(scores), dtype=torch.bool)
    return on_scale(state, combine(state[WHOLE_WEIGHTS], state[WHOLE_BIAS], scores, everybody))


def outputs_of(method: Method, task: Task, state: State, uploads: Uploads, present: Sequence[Tensor]) -> Tensor:
    """The prediction of those present, a mask (P,) per group, on the scale of the labels; others' uploads are not read.

    Raises:
        ConfigError: somebody is missing, and the model has no answer then.
    """
    here = torch.cat(tuple(present))
    if bool(here.all()):
        return outputs(method, state, uploads)
    check_can_leave_out(method, state, secure_sum=False)
    if isinstance(method, PredictsWithout) and method.knows_subsets(state):
        return on_scale(state, method.predict_without(state, uploads, present))
    if not isinstance(method, AddsScores):
        raise ConfigError(f"{method.name} does not say what each of its parties adds, so nobody can be left out")
    return on_scale(state, combined(task, state, method.scores(state, uploads), here))
