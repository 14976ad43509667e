"""Records of small runs: one trained from a configuration, several methods with several seeds."""

from __future__ import annotations

import json
from typing import Any

import pytest

from colonnade.fit import fit
from colonnade.methods import make_method
from tests.federations import small

METHODS = ("vimadmm", "vimadmm_j", "local_only", "centralized")
SETTINGS = {"rounds": 4, "evaluate_every": 2, "schedule": {"batch": 40}}


def train(method: str, seed: int = 0, task: str = "multiclass", **settings: Any) -> dict[str, Any]:
    """A record as it is read back from disk."""
    config = {"data": {"set": "digits"}, "method": {"name": method}, "training": {"rounds": 4, "seed": seed}}
    made = make_method(method, {"local_steps": 1, **settings})
    run = fit(small(task=task), made, seed=seed, config=config, **SETTINGS)
    record: dict[str, Any] = json.loads(json.dumps(run.record()))
    return record


@pytest.fixture(scope="session")
def trained() -> dict[tuple[str, int], dict[str, Any]]:
    """Every method with two seeds. Look, do not change."""
    return {(method, seed): train(method, seed) for method in METHODS for seed in (0, 1)}


@pytest.fixture
def record(trained: dict[tuple[str, int], dict[str, Any]]) -> dict[str, Any]:
    """A record of one's own."""
    copy: dict[str, Any] = json.loads(json.dumps(trained["vimadmm", 0]))
    return copy
