"""What this package adds keeps every promise of the built-in ones."""

from pathlib import Path

import numpy as np
import torch
from colonnade_toy.rate import ERROR_RATE
from colonnade_toy.share import Share
from colonnade_toy.signs import Signs, SignsEvent
from colonnade_toy.slope import SharedSlope

from colonnade import Run, fit
from colonnade.privacy.accounting import exact_epsilon, shift_of
from colonnade.privacy.gaussian import Gaussian, SeededNoise
from colonnade.privacy.registry import kind_of
from colonnade.tasks import find_task
from colonnade.testing import MethodContract, MetricContract, TaskContract, small

RANDOM = torch.Generator().manual_seed(0)


class TestSharedSlope(MethodContract):
    method = SharedSlope


class TestShare(TaskContract):
    task = Share
    labels = np.random.default_rng(0).uniform(size=60)


class TestErrorRate(MetricContract):
    metric = ERROR_RATE
    task = find_task("multiclass")(3)
    outputs = torch.randn(50, 3, generator=RANDOM)
    truth = torch.randint(0, 3, (50,), generator=RANDOM)


def test_its_local_model_trains_by_name_is_saved_and_predicts_again(tmp_path: Path) -> None:
    options = {"rounds": 4, "dtype": "float64", "out": tmp_path / "run"}
    run = fit(small(), "vimadmm_j", model={"party_0": {"encoder": "halfway"}, "hidden": 4}, **options)
    assert list(run.models["party_0"]) != list(run.models["party_1"]), "one party has it, the others networks"
    rows = small().select([0, 1, 2])
    assert torch.equal(Run.load(tmp_path / "run").logits(rows), run.logits(rows))
    ridge = fit(small(), "vimadmm_j", model={"party_0": {"encoder": "ridge"}, "hidden": 4}, rounds=4, dtype="float64")
    assert not torch.equal(run.logits(rows), ridge.logits(rows))


def test_a_ledger_with_its_mechanism_is_read_again_with_the_same_epsilon(tmp_path: Path) -> None:
    mechanism = Signs(Gaussian(1.0, 5.0, SeededNoise(0)))
    run = fit(small(), "vimadmm_j", rounds=2, mechanism=mechanism, out=tmp_path / "run")
    loaded = Run.load(tmp_path / "run")
    assert {type(release.event) for release in loaded.ledger if release.mechanism == "toy signs"} == {SignsEvent}
    assert run.epsilon is not None
    assert loaded.epsilon == run.epsilon
    assert float(run.epsilon) == exact_epsilon(shift_of(5.0, 2), run.privacy.delta)
    assert kind_of("toy signs sum").words.startswith("clipped, Gaussian noise")
