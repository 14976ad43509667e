"""Separate organisations compute what the engines of one process compute, over a real server and its processes.

One method of each kind of message; `test_link.py` walks all of them over a link in memory, which is the same code but
for the server.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from colonnade.bench.noise import SeededNoise
from colonnade.config import build
from colonnade.methods import METHODS
from colonnade.models.encoders import ModelSettings
from colonnade.run import Run
from colonnade.store import Store
from colonnade.testing.trainings import timeless
from colonnade.wire.messages import COORDINATOR
from tests.contracts.registry import NAMES, make
from tests.deploy.trials import DATA, MODEL, PARTIES, TRAINING, Ending, Stage
from tests.federations import mixed_encoder, small
from tests.nats_server import needs_nats
from tests.trainers import assert_same_tensors, changed, open_trainer

pytestmark = needs_nats
# Heads at the coordinator, heads at the parties, a model at the coordinator, labels at the parties, whole numbers.
DEPLOYED = ("vimadmm", "vimadmm_j", "split_learning", "local_only", "vfl_pbm")
SIGMA = 0.05

# Parties of two shapes are the rule here: DATA has widths 5, 4 and 5.
SCENARIOS: dict[str, dict[str, Any]] = {
    "plain": {},
    "noise": {"noise": SIGMA},
    "two architectures": {"mixed": True, "noise": SIGMA},
    "participation": {"schedule": {"batch": 20, "participation": 0.5}, "noise": SIGMA},
    "eight bits": {"wire": {"numbers": "int8"}},
}


def cases() -> list[tuple[str, str]]:
    """Each with noise, which takes the way of plain uploads and one step more; one of them in all scenarios."""
    return [(n, s) for n in DEPLOYED for s in SCENARIOS if s == "noise" or n == "vimadmm"]


def spec(name: str) -> dict[str, Any]:
    settings = {"local_steps": 2, "noise": False}  # noise of a method's own would be another at each organisation
    return {"name": name, **{k: v for k, v in settings.items() if k in METHODS[name].model_fields}}


def in_process(name: str, scenario: Mapping[str, Any], engine: str) -> Run:
    training = {**TRAINING, **{k: v for k, v in scenario.items() if k in ("schedule", "wire")}}
    return open_trainer(
        small(**DATA),
        make(name, local_steps=2, noise=False),
        model=build(ModelSettings, MODEL, "model"),
        encoders=mixed_encoder if scenario.get("mixed") else None,
        mechanism=SeededNoise(SIGMA) if scenario.get("noise") else None,
        engine=engine,
        **training,
    ).train()


def deployed(folder: Path, name: str, scenario: Mapping[str, Any]) -> tuple[Stage, Ending]:
    training = {**TRAINING, **{k: v for k, v in scenario.items() if k in ("schedule", "wire")}}
    options = {k: v for k, v in scenario.items() if k == "mixed"}
    with Stage(folder, method=spec(name), training=training, noise=scenario.get("noise", 0.0), **options) as stage:
        return stage, stage.play()


def gathered(stage: Stage, like: Run) -> Run:
    """The deployed model in one place, which is never done: the coordinator's part and every party's."""
    models = {}
    for party in PARTIES:
        store = Store(stage.trial.place(party) / "party.db")
        saved = store.snapshot()
        store.close()
        assert saved is not None
        models[party] = {k: saved.tensors[f"cohort.{k}"][0] for k in like.models[party]}
    state = Run.load(stage.trial.place(COORDINATOR)).model.state
    return changed(like, models=models, state=state, path=None)


@pytest.mark.parametrize(("name", "scenario"), cases())
def test_organisations_agree_with_the_engines_of_one_process(name: str, scenario: str, tmp_path: Path) -> None:
    stage, ending = deployed(tmp_path, name, SCENARIOS[scenario])
    stacked = in_process(name, SCENARIOS[scenario], "stacked")
    here = gathered(stage, stacked)
    assert_same_tensors(here.model.flat(), stacked.model.flat(), atol=1e-9)
    federation = small(**DATA)
    columns = {party.name: party.columns[federation.split.test] for party in federation.parties}
    torch.testing.assert_close(here.logits(columns), stacked.logits(columns), rtol=0, atol=1e-9)

    loop = in_process(name, SCENARIOS[scenario], "loop")
    assert here.fingerprint() == loop.fingerprint()  # one party at a time on both sides: to the last bit
    for owner in (COORDINATOR, *PARTIES):
        assert ending.ledgers[owner] == [timeless(r) for r in loop.ledger if r.owner == owner], owner
    assert ending.traffic == loop.traffic.to_json()
    assert ending.history == [{k: v for k, v in entry.items() if k != "seconds"} for entry in loop.history]
    assert ending.result == {k: v for k, v in loop.result.items() if k != "seconds"}


@pytest.mark.parametrize("name", [name for name in NAMES if make(name).pools])
def test_a_method_that_pools_columns_is_refused(name: str, tmp_path: Path) -> None:
    with Stage(tmp_path, method={"name": name}) as stage:
        stage.organisations.start(COORDINATOR)
        assert stage.wait_until_gone(COORDINATOR) == [2]
    assert stage.failure(COORDINATOR) == (
        f"ConfigError: method {name!r} puts all columns in one place; it is a reference for simulation"
    )
    assert stage.sent(COORDINATOR) == []
