"""What the coordinator of one_message holds: scores by party and row, and a stack for every set of parties.

stack.weight, stack.bias    of every set, numbered by its bits; of many parties only of all of them
cache.scores                (M, N, K) in the order of the groups, about training rows: no part of the model
cache.seen                  (M, N) which of them came in training
cache.evaluated             (N,) which rows were evaluated since
cache.parties               (M,) whose they are
cache.held                  (M, N) which rows they hold, where some lack some
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from colonnade.errors import ConfigError
from colonnade.methods._steps import party_code
from colonnade.methods.base import State, Uploads
from colonnade.models.schema import Schema
from colonnade.models.stacking import fit_stack
from colonnade.privacy.labels import Labels
from colonnade.schedule import RoundPlan

MOST_PARTIES = 8  # for which a stack of every subset is fitted,
MOST_NUMBERS = 2**22  # if all of them together have no more numbers
COLUMNS = "columns"  # what an upload calls those of the guest, where it shows them (`_top.py`)


def no_scores(schema: Schema) -> State:
    """Nothing has come from anybody."""
    parties = [p for group in schema.groups for p in group.parties]
    state = {
        "cache.scores": schema.zeros(len(parties), schema.rows, schema.outputs),
        "cache.seen": torch.zeros(len(parties), schema.rows, dtype=torch.bool, device=schema.device),
        "cache.evaluated": torch.zeros(schema.rows, dtype=torch.bool, device=schema.device),
        "cache.parties": torch.tensor([party_code(party) for party in parties]),
    }
    if schema.held is not None:
        if not bool(schema.held[schema.train.to(schema.held.device)].all(dim=1).any()):
            raise ConfigError("one_message stacks scores of rows that all parties hold, and no training row is one")
        state["cache.held"] = schema.held.T[[schema.parties.index(party) for party in parties]].contiguous()
    return state


def keep_scores(state: State, plan: RoundPlan, uploads: Uploads) -> None:
    """Write the scores of a round down, each the first time that it comes."""
    speakers = torch.tensor([party_code(party) for party in plan.senders], dtype=torch.int64)
    places = torch.isin(state["cache.parties"].cpu(), speakers).nonzero()[:, 0]
    told, rows = every_score(uploads), plan.rows
    for place in places.tolist():
        fresh = ~state["cache.seen"][place, rows]
        if "cache.held" in state:  # of a row that a party lacks there is no score
            fresh = fresh & state["cache.held"][place, rows]
        new = rows[fresh]
        state["cache.scores"][place, new] = told[place, fresh].to(state["cache.scores"])
        state["cache.seen"][place, new] = True


def joined_scores(schema: Schema, kept: Sequence[State]) -> State:
    """What came in several trainings of different parties on the same rows, in the order of the schema's parties."""
    owners = {int(party): (one, k) for one in kept for k, party in enumerate(one["cache.parties"])}
    codes = [party_code(party) for group in schema.groups for party in group.parties]
    each = [owners[party] for party in codes]
    found = {name: torch.stack([one[name][k] for one, k in each]) for name in ("cache.scores", "cache.seen")}
    found["cache.evaluated"] = torch.stack([one["cache.evaluated"] for one in kept]).all(dim=0)
    return {name: value.to(schema.device) for name, value in found.items()} | {"cache.parties": torch.tensor(codes)}


def take_over(state: State, kept: State, places: Tensor) -> None:
    """Put the scores of a former run in the places of the parties that are in both; `places` (N,): its rows, or -1."""
    there = (places >= 0).nonzero()[:, 0]
    rows = places[there]
    former = kept["cache.parties"].tolist()
    for place, party in enumerate(state["cache.parties"].tolist()):
        if party in former:
            for name in ("cache.scores", "cache.seen"):
                value = kept[name][former.index(party)][rows]
                state[name][place, there.to(state[name].device)] = value.to(state[name])


def beside(state: State, rows: Tensor, uploads: Uploads, asked: Sequence[str]) -> Uploads:
    """Uploads of those who were asked, with the others' scores and columns from the state; as one group."""
    codes = torch.tensor([party_code(party) for party in asked], dtype=torch.int64)
    new = torch.isin(state["cache.parties"].cpu(), codes).to(state["cache.scores"].device)
    at = rows.to(state["cache.scores"].device)
    told = {"o": torch.where(new[:, None, None], every_score(uploads).to(at.device), state["cache.scores"][:, at])}
    if "cache.columns" in state:
        told[COLUMNS] = state["cache.columns"][None, at]
    return Uploads((told,))


def evaluated(state: State, rows: Tensor) -> Uploads | None:
    """The scores of these rows, as one group; None where some have not been evaluated."""
    at = rows.to(state["cache.evaluated"].device)
    if not bool(state["cache.evaluated"][at].all()):
        return None
    told = {"o": state["cache.scores"][:, at]}
    if "cache.columns" in state:
        told[COLUMNS] = state["cache.columns"][None, at]
    return Uploads((told,))


def subsets(parties: int, outputs: int) -> list[tuple[int, ...]]:
    """The sets of parties that have a stack: all but the empty one, numbered by their bits; or only the last."""
    everyone = tuple(range(parties))
    if parties > MOST_PARTIES or (2**parties - 1) * parties * outputs**2 > MOST_NUMBERS:
        return [everyone]
    return [tuple(k for k in everyone if number >> k & 1) for number in range(1, 2**parties)]


def no_stack(schema: Schema, labels: Labels) -> State:
    """Stacks that know no score, but how frequent the labels are."""
    parties, outputs = sum(len(group.parties) for group in schema.groups), schema.outputs
    stacks, rows = len(subsets(parties, outputs)), schema.train
    usual = labels.task.constant(labels.held_out(rows).mean(dim=0)).to(schema.device, torch.float64)
    return {
        "stack.weight": schema.zeros(stacks, parties * outputs, outputs).double(),
        "stack.bias": usual.repeat(stacks, 1),
        "stack.rows": torch.zeros((), dtype=torch.int64),
    }


def fit_stacks(state: State, labels: Labels) -> None:
    """A stack of every set, on the rows of which the score of each of its parties has come."""
    parties, _, outputs = state["cache.scores"].shape
    for place, subset in enumerate(subsets(parties, outputs)):
        chosen = list(subset)
        rows = state["cache.seen"][chosen].all(dim=0).nonzero()[:, 0]
        if not len(rows):
            continue
        targets, scores = labels.held_out(rows), state["cache.scores"][chosen][:, rows]  # (M', B, K)
        stack = fit_stack(labels.task, features(scores), targets, labels.weights(rows, targets))
        weight = torch.zeros(parties, outputs, outputs, dtype=torch.float64)
        weight[chosen] = stack.weight.view(len(chosen), outputs, outputs)
        state["stack.weight"][place] = weight.flatten(0, 1).to(rows.device)
        state["stack.bias"][place] = stack.bias.to(rows.device)


def place_of(state: State, number: int) -> int:
    """Where the stack of the set with these bits stands."""
    return number - 1 if len(state["stack.bias"]) > 1 else -1


def margin(state: State, told: Tensor, place: int) -> Tensor:
    """Logits (B, K) of scores (M, B, K), in float64."""
    return features(told).double() @ state["stack.weight"][place] + state["stack.bias"][place]


def features(scores: Tensor) -> Tensor:
    """(M, B, K) -> (B, M K)."""
    return scores.transpose(0, 1).flatten(1)


def every_score(uploads: Uploads) -> Tensor:
    """Every party's scores, (M, B, K): group by group."""
    return torch.cat([group["o"] for group in uploads.groups])
