"""The trees on top of one_message's stacks, at the coordinator: one model for each set of the guest and others.

top.NUMBER       LightGBM's text for the set with these bits; empty: the linear stack is all there is
cache.columns    (N, F) the guest's columns of the rows that it was asked about: no part of the model
cache.seed       of the trees
cache.expected   how many scores there will be: trees are grown once, when the last of them has come
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from colonnade.errors import ConfigError
from colonnade.methods import _stacks
from colonnade.methods._stacks import COLUMNS
from colonnade.methods._steps import party_code
from colonnade.methods.base import State, Uploads
from colonnade.models.cohort import Cohort
from colonnade.models.local import tensor_text, text_tensor
from colonnade.models.schema import Group, Schema
from colonnade.models.top import grow_top, lightgbm, top_output
from colonnade.privacy.labels import Labels
from colonnade.privacy.sealed import Array
from colonnade.randomness import key

NOTE = "guest_columns"  # what its ledger calls their number
MOST_PARTIES = 4  # for which every set of the guest and others has trees; of more, only all of them together


def array(group: Group) -> Array:
    """The guest's columns in its upload: they arrive as they are."""
    return Array(group.columns, exact=True, note=NOTE)


def columns_of(cohort: Cohort, x: Tensor) -> Tensor:
    """(1, B, F) the guest's columns, as its local model reads them."""
    return x.flatten(2).to(cohort.schema.dtype)


def check_columns(cohort: Cohort) -> None:
    """Refuse columns that are no numbers to compare."""
    if not cohort.columns.is_floating_point():
        raise ConfigError(
            f"stack = 'trees' compares numbers, and the columns of the guest {cohort.names[0]!r} are tokens; use "
            "stack = 'linear'"
        )


def no_top(schema: Schema, guest: str) -> State:
    """No tree for any set, and no row of the guest's columns."""
    lightgbm()  # refuse now, not after all scores have come
    parties = [party for group in schema.groups for party in group.parties]
    if schema.held is not None and len(parties) > 1 and len(_stacks.subsets(len(parties), schema.outputs)) == 1:
        raise ConfigError(
            f"stack = 'trees' has no answer about rows that some of {len(parties)} parties lack; use stack = 'linear', "
            f"or at most {_stacks.MOST_PARTIES} parties"
        )
    width = next(group.columns for group in schema.groups if guest in group.parties)
    none: State = {f"top.{number}": text_tensor("") for number in _numbers(len(parties), parties.index(guest))}
    seed = torch.tensor(key(schema.seed, "trees on top") % 2**31)
    told = len(schema.train) * len(parties) if schema.held is None else int(schema.held[schema.train].sum())
    return none | {
        "cache.columns": schema.zeros(schema.rows, width),
        "cache.seed": seed,
        "cache.expected": torch.tensor(told),
    }


def joined_columns(kept: Sequence[State]) -> State:
    """The guest's columns among what several trainings kept."""
    return {name: one[name] for one in kept for name in ("cache.columns",) if name in one}


def take_over(state: State, kept: State, places: Tensor) -> None:
    """Put the guest's columns of a former run in their places; `places` (N,): its rows, or -1."""
    if "cache.columns" in state and "cache.columns" in kept:
        there = (places >= 0).nonzero()[:, 0]
        columns = state["cache.columns"]
        columns[there.to(columns.device)] = kept["cache.columns"][places[there]].to(columns)


def _numbers(parties: int, guest: int) -> list[int]:
    """The sets that have trees, by their bits; of the guest alone, its local model has seen all there is."""
    everyone = 2**parties - 1
    if parties > MOST_PARTIES:
        return [everyone]
    return [number for number in range(1, everyone + 1) if number >> guest & 1 and number != 1 << guest]


def shown(uploads: Uploads) -> Tensor | None:
    """(B, F) the guest's columns in uploads; None: they have none."""
    return next((group[COLUMNS][0] for group in uploads.groups if COLUMNS in group), None)


def keep_columns(state: State, rows: Tensor, uploads: Uploads) -> None:
    """Write the guest's columns of some rows down."""
    told = shown(uploads)
    if told is not None and "cache.columns" in state:
        state["cache.columns"][rows] = told.to(state["cache.columns"])


def grow(state: State, labels: Labels, guest: str) -> None:
    """Trees for every set that has them, on the rows of which the score of each of its parties has come."""
    scores, seen = state["cache.scores"], state["cache.seen"]
    if int(seen.sum()) < int(state["cache.expected"]):
        return
    place = state["cache.parties"].tolist().index(party_code(guest))
    for number in _numbers(len(scores), place):
        chosen = _members(number)
        rows = seen[chosen].all(dim=0).nonzero()[:, 0]
        if not len(rows):
            continue
        told, targets = scores[:, rows], labels.held_out(rows)
        margin = _stacks.margin(state, told, _stacks.place_of(state, number))
        x = _features(state["cache.columns"][rows], told, chosen)
        counts, seed = labels.weights(rows, targets), key(int(state["cache.seed"]), "set", str(number))
        text = grow_top(labels.task, x, margin, targets, counts, seed)
        state[f"top.{number}"] = text_tensor(text).to(rows.device)


def outputs(state: State, told: Tensor, number: int, columns: Tensor | None) -> Tensor:
    """Logits (B, K) of scores (M, B, K) by the stack of a set, with its trees if it has any and the columns came."""
    margin = _stacks.margin(state, told, _stacks.place_of(state, number))
    text = state.get(f"top.{number}")
    if text is not None and columns is not None and len(text):
        x = _features(columns, told, _members(number))
        margin = margin + top_output(tensor_text(text), x, margin.shape[1]).to(margin.device)
    return margin.to(told.dtype)


def _members(number: int) -> list[int]:
    """The places of the parties in a set."""
    return [place for place in range(number.bit_length()) if number >> place & 1]


def _features(columns: Tensor, told: Tensor, chosen: list[int]) -> Tensor:
    """(B, F + m K) columns, and the scores of some parties."""
    return torch.cat([columns.double(), _stacks.features(told[chosen]).double()], dim=1)
