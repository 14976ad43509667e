"""Every registered method, as the contract tests walk them: a new one is picked up without being listed here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from colonnade.federation import Federation
from colonnade.methods import METHODS, make_method
from colonnade.methods.base import Method
from colonnade.models.heads import HeadSettings

OF_BINS = {"scorecard"}  # for yes/no labels and columns that are cut into bins: tests/methods/test_scorecard.py
EVERY = sorted(set(METHODS) - OF_BINS)
ONLY_TWO = {"fedmvt"}  # for exactly two parties: `fitting` cuts a federation down for them
NAMES = [name for name in EVERY if name not in ONLY_TWO]  # for any federation
CLOSELY = ("vimadmm", "vimadmm_j", "split_learning", "fdml")  # one method of each kind, tried in every combination
WITHOUT_NETWORKS = {"linear_admm"}  # a party's model is one matrix: no encoder learns, and a solve has no steps
AT_THE_OPENING = {"one_message"}  # what is ever learned is learned from the opening reply; no round moves a party

TRIED_WITH: dict[str, dict[str, Any]] = {  # where rows are missing and labels are guessed, or a training is long
    "assisted_boosting": {"local_steps": 20},
    "fedmvt": {"matched": 0.5, "threshold": 0.4, "host_threshold": 0.37, "emphasis": 0.9},
    "one_message": {"local_steps": 20, "folds": 4},  # as many networks of each party
}
LONGER = {"fedmvt": 10}  # rounds until every setting has had a say, where three are too few


def make(name: str, **settings: Any) -> Method:
    """A method with default settings, except those it declares among `settings` and those it is tried with."""
    known = {k: v for k, v in settings.items() if k in METHODS[name].model_fields}
    return make_method(name, {**TRIED_WITH.get(name, {}), **known})


def covering(choices: Sequence[str]) -> list[tuple[str, str]]:
    """Every method with one of the choices in turn, one method of each kind with all of them."""
    each = [(name, choices[place % len(choices)]) for place, name in enumerate(EVERY) if name not in CLOSELY]
    return each + [(name, choice) for name in CLOSELY for choice in choices]


def fitting(name: str, federation: Federation) -> Federation:
    """The federation, or its first two parties for a method that wants two."""
    return federation.only(federation.names[:2]) if name in ONLY_TWO else federation


def for_heads(name: str, head: HeadSettings, **settings: Any) -> Method:
    """A method that can train such heads: the joint solve is for linear ones only."""
    return make(name, **({"head_update": "sgd"} if head.layers > 1 else {}), **settings)


class Walking:
    """A contract of `colonnade.testing` about the method of the test's parameter."""

    @pytest.fixture(autouse=True)
    def walked(self, name: str) -> None:
        self.method = METHODS[name]
        self.settings = TRIED_WITH.get(name, {})
        self.rounds = LONGER.get(name, 3)
