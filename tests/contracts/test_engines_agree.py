"""`loop` is the reference; `stacked` must agree with it for every method, model and schedule."""

from __future__ import annotations

from typing import Any

import pytest
from torch import nn

from colonnade.evaluate.metrics import METRICS
from colonnade.federation import Federation
from colonnade.methods.base import Method
from colonnade.models.encoders import ModelSettings
from colonnade.models.heads import HeadSettings
from colonnade.models.optimise import SGD
from colonnade.testing.methods import assert_engines_agree
from tests.contracts.registry import CLOSELY, EVERY, ONLY_TWO, covering, fitting, for_heads, make
from tests.federations import digits, images, mixed_encoder, normed_encoder, small
from tests.mechanisms import Noise, Rounding
from tests.trainers import TINY, TrainedRound, assert_same_tensors, open_trainer, record, rounds_of

MLP_HEAD = HeadSettings(layers=2, dropout=0.25)

# What changes how parties are visited, grouped or randomised. Every one must give the same run on both engines.
SCENARIOS: dict[str, dict[str, Any]] = {
    "plain": {},
    "noise": {"mechanism": Noise()},
    "participation": {"schedule": {"batch": 20, "participation": 0.5}},
    "silent parties do not learn": {"schedule": {"batch": 20, "participation": 0.5, "silent_learn": False}},
    "participation and noise": {"schedule": {"batch": 20, "participation": 0.5}, "mechanism": Noise()},
    "two widths": {"federation": small(widths=(5, 3, 5, 3))},
    "two architectures": {"encoders": mixed_encoder},
    "head dropout": {"model": ModelSettings(hidden=6, embedding=4, head=MLP_HEAD)},
    "encoder dropout": {"model": ModelSettings(hidden=6, embedding=4, dropout=0.3)},
    "batch norm and dropout": {"encoders": normed_encoder},
    "regression": {"federation": small(task="regression")},
    "multilabel": {"federation": small(task="multilabel")},
    "binary": {"federation": small(task="binary")},
}


# One method of each kind is compared in all of them, the others where engines are most likely to differ.
USUAL = ("plain", "batch norm and dropout")
IN_TURN = ("participation", "regression", "binary", "two architectures")  # and one of these each


def opened(name: str, scenario: dict[str, Any], **training: Any) -> tuple[Federation, Method, dict[str, Any]]:
    options = {"schedule": {"batch": 20}, "model": TINY, **scenario, **training}
    federation = options.pop("federation", None) or small()
    return fitting(name, federation), for_heads(name, options["model"].head, local_steps=2), options


def applicable() -> list[tuple[str, str]]:
    """Every method in every scenario that means something to it: who never speaks in training cannot be silent."""
    silence = ("participation", "silent")
    without = {
        n: (*silence, "two") if make(n).pools else silence if make(n).needs_uploads == "nothing" else () for n in EVERY
    }
    return [
        (name, scenario)
        for at, name in enumerate(EVERY)
        for scenario in (SCENARIOS if name in CLOSELY else (*USUAL, IN_TURN[at % len(IN_TURN)]))
        if not scenario.startswith(without[name])
    ]


@pytest.mark.parametrize(("name", "scenario"), applicable())
def test_whole_trajectories_agree(name: str, scenario: str) -> None:
    federation, method, options = opened(name, SCENARIOS[scenario])
    assert_engines_agree(federation, method, **options)


@pytest.mark.parametrize(("name", "scenario"), covering(["participation", "batch norm and dropout"]))
def test_every_message_is_the_same_to_the_last_byte(name: str, scenario: str) -> None:
    """Uploads rounded to a grid hide the last bits in which a batched product differs; then all bytes agree."""
    federation, method, options = opened(
        name, SCENARIOS[scenario], rounds=5, evaluate_every=2, mechanism=Rounding(2**-20)
    )
    digests = []
    for engine in ("loop", "stacked"):
        trainer = open_trainer(federation, method, engine=engine, **options)
        for _ in rounds_of(trainer):
            pass
        digests.append(sorted((r.number, r.digest) for r in trainer.ledger))
    assert digests[0] == digests[1]


def own_cnn(party: str, shape: tuple[int, ...]) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(shape[0], 6, 3, padding=1),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(6 * 64, 5),
        nn.ReLU(),
    )


ONE_STEP = {
    "mlp": (1e-5, {"model": ModelSettings(encoder="mlp", hidden=20, embedding=8)}, ()),
    "cnn": (1e-3, {"model": ModelSettings(encoder="cnn", embedding=8)}, ("vmap",)),
    "cnn of the user's": (1e-3, {"encoders": own_cnn}, ("vmap",)),
    "cnn, one by one": (1e-3, {"encoders": own_cnn}, ("each",)),
    "resnet18": (1e-3, {"model": ModelSettings(encoder="resnet18", embedding=8)}, ("vmap",)),
}


@pytest.mark.parametrize("network", ONE_STEP)
@pytest.mark.parametrize("name", ["vimadmm", "vimadmm_j"])
def test_one_step_in_float32_agrees(name: str, network: str) -> None:
    """SGD, because Adam's first step is the sign of the gradient and a gradient of 1e-9 has none."""
    tolerance, options, ways = ONE_STEP[network]
    method = make(name, local_steps=1, optimiser=SGD(lr=0.05, momentum=0.9))
    after = []
    for engine, way in (("loop", ()), ("stacked", ways)):
        trainer = open_trainer(
            images(), method, engine=engine, ways=way, dtype="float32", rounds=1, evaluate_every=1, **options
        )
        after.append(trainer.train().model.flat())
    assert_same_tensors(after[0], after[1], atol=tolerance)


@pytest.mark.parametrize("name", CLOSELY)
def test_accuracy_over_a_run_in_float32_agrees(name: str) -> None:
    """Within 0.2 points over all 1,797 digits."""
    federation = digits(parties=2 if name in ONLY_TWO else 4)
    columns = {p.name: p.columns for p in (federation.pooled() if make(name).pools else federation).parties}
    method = make(name, local_steps=5, noise=False, matched=1.0)  # draws may differ where a last bit does
    accuracy = []
    for engine in ("loop", "stacked"):
        trainer = open_trainer(
            federation, method, model=ModelSettings(hidden=24, embedding=12), engine=engine, dtype="float32",
            rounds=25, evaluate_every=5, schedule={"batch": 256},
        )  # fmt: skip
        accuracy.append(METRICS["accuracy"](federation.task, trainer.train().logits(columns), federation.labels))
    assert accuracy[0] > 0.6
    assert abs(accuracy[0] - accuracy[1]) <= 0.002


def test_a_difference_between_engines_would_be_seen() -> None:
    """The same comparison, with noise that depends on the engine: it must fail."""
    federation, method, options = opened("vimadmm", {}, rounds=3, evaluate_every=1)
    loop = record(federation, method, engine="loop", mechanism=Noise(1e-3, seed=1), **options)
    stacked = record(federation, method, engine="stacked", mechanism=Noise(1e-3, seed=2), **options)
    assert (loop.logits[0] - stacked.logits[0]).abs().max() > 1e-6


def test_an_round_shows_all_its_messages() -> None:
    trainer = open_trainer(small(), make("vimadmm"), rounds=2, evaluate_every=1)
    seen: list[TrainedRound] = list(rounds_of(trainer))
    assert sum(len(e.payloads) for e in seen) == len(trainer.ledger)
