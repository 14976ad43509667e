"""The usual optimiser of methods where parties have convolutions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import colonnade as cn
from colonnade.methods import VIMADMM, VIMADMMJ, SplitLearning
from colonnade.methods._convolutions import FOR_CONVOLUTIONS, LOCAL_OPTIMISER, for_networks
from colonnade.models.optimise import SGD, AdamW

CONV = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.LazyLinear(2))
FLAT = nn.Sequential(nn.Flatten(), nn.Linear(12, 2))


@pytest.mark.parametrize("kind", [VIMADMM, VIMADMMJ])
def test_where_all_have_convolutions_steps_are_larger_and_fall(kind: type[Any]) -> None:
    assert for_networks(kind(), [CONV, CONV]).optimiser == FOR_CONVOLUTIONS


@pytest.mark.parametrize(
    "method",
    [
        VIMADMM(optimiser=AdamW(lr=1e-3, weight_decay=1e-3)),  # said, although it is the usual one of other networks
        VIMADMM(optimiser=SGD(lr=0.1)),
        VIMADMM.paper("cifar10"),
        VIMADMMJ.paper("cifar10"),
        SplitLearning(),  # has one optimiser for all networks
    ],
    ids=lambda method: method.name,
)
def test_what_was_said_stays(method: Any) -> None:
    assert for_networks(method, [CONV, CONV]) is method


@pytest.mark.parametrize("models", [[FLAT, FLAT], [CONV, FLAT], [CONV, object()]], ids=["none", "one", "no network"])
def test_one_without_convolutions_keeps_the_usual_one(models: list[object]) -> None:
    method = VIMADMM()
    assert for_networks(method, models) is method


def test_the_words_say_the_numbers() -> None:
    for name in ("lr", "weight_decay", "halve_every"):
        said = f"{name} = {getattr(FOR_CONVOLUTIONS, name):g}"
        assert said in LOCAL_OPTIMISER.replace("3e-3", "0.003"), said


def pictures() -> cn.Federation:
    """Twenty-four small pictures in two patches."""
    draw = torch.Generator().manual_seed(0)
    patches = {name: torch.randn(24, 3, 5, 5, generator=draw).numpy() for name in ("left", "right")}
    labels = (patches["left"].mean((1, 2, 3)) > 0).astype(int)
    return cn.Federation.from_arrays(patches, labels, task="binary")


def test_a_run_records_what_it_used_and_goes_on_with_it(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"rounds": 2, "local_steps": 1, "model": {"encoder": "cnn", "embedding": 4}}
    run = cn.fit(pictures(), "vimadmm", **settings)
    assert run.method.optimiser == FOR_CONVOLUTIONS
    run.save(tmp_path / "run")
    assert cn.Run.load(tmp_path / "run").method.optimiser == FOR_CONVOLUTIONS
    flat = cn.fit(pictures(), "vimadmm", **{**settings, "model": {"encoder": "linear", "embedding": 4}})
    assert flat.method.optimiser == VIMADMM().optimiser
    named = cn.fit(pictures(), "vimadmm", lr=0.01, **settings)
    assert (named.method.optimiser.lr, named.method.optimiser.halve_every) == (0.01, 0)


def test_a_search_begins_with_it_and_says_so() -> None:
    """All settings of a trial are named, so what a training would have chosen is chosen before the search."""
    settings: dict[str, Any] = {"rounds": 2, "local_steps": 1, "model": {"encoder": "cnn", "embedding": 4}}
    best = cn.tune(pictures(), "vimadmm", trials=1, **settings)
    assert best.method.optimiser == FOR_CONVOLUTIONS and best.score == best.before
    assert best.fit(rounds=2).method == cn.fit(pictures(), "vimadmm", **settings).method
    around = cn.tune(pictures(), "vimadmm", trials=1, search={"rho": [2.0]}, **settings)
    assert around.method.optimiser == FOR_CONVOLUTIONS
