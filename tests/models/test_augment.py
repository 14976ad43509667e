"""Pictures that are changed in training: a slow reference, both sides of a round, engines, restarts and refusals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

import colonnade as cn
from colonnade.errors import ConfigError
from colonnade.fit import fit, resume
from colonnade.methods import VIMADMM
from colonnade.models.augment import Augment
from tests.federations import images, small
from tests.trainers import TINY, assert_same_tensors

CNN: dict[str, Any] = {"encoder": "cnn", "embedding": 4}
BOTH = {"flip": True, "shift": 2}


def slowly(picture: np.ndarray, mirrored: int, down: int, right: int) -> np.ndarray:
    """Pixel by pixel."""
    channels, height, width = picture.shape
    out = np.zeros_like(picture)
    for c in range(channels):
        for i in range(height):
            for j in range(width):
                source_i, source_j = i + down, (width - 1 - j if mirrored else j) + right
                if 0 <= source_i < height and 0 <= source_j < width:
                    out[c, i, j] = picture[c, source_i, source_j]
    return out


@pytest.mark.parametrize("settings", [{"flip": True}, {"shift": 3}, BOTH], ids=str)
def test_it_is_the_slow_one(settings: dict[str, Any]) -> None:
    augment = Augment(**settings)
    x = torch.randn(2, 7, 3, 5, 6, generator=torch.Generator().manual_seed(0))
    changed = augment.changed(x, ("a", "b"), 4, 9)
    for p, party in enumerate("ab"):
        for b, (mirrored, down, right) in enumerate(augment._draws(7, 4, party, 9).tolist()):
            assert np.array_equal(changed[p, b].numpy(), slowly(x[p, b].numpy(), mirrored, down, right))


def test_draws_are_fair_and_of_party_and_round() -> None:
    draws = Augment(**BOTH)._draws(4000, 0, "a", 1)
    assert abs(draws[:, 0].float().mean() - 0.5) < 0.05
    for move in (draws[:, 1], draws[:, 2]):
        assert sorted(set(move.tolist())) == [-2, -1, 0, 1, 2]
    assert not torch.equal(draws, Augment(**BOTH)._draws(4000, 0, "b", 1))
    assert not torch.equal(draws, Augment(**BOTH)._draws(4000, 0, "a", 2))
    assert torch.equal(draws, Augment(**BOTH)._draws(4000, 0, "a", 1))


class Watching(VIMADMM):
    """Notes which pictures it gets."""

    seen: ClassVar[list[tuple[str, int, Tensor]]] = []

    def upload(self, cohort: Any, x: Tensor, training: bool) -> Any:
        self.seen.append(("upload" if training else "evaluation", cohort.round_number or 0, x.clone()))
        return super().upload(cohort, x, training)

    def learn(self, cohort: Any, plan: Any, uploaded: Any, reply: Any) -> None:
        self.seen.append(("learn", plan.number, cohort.x(plan.rows).clone()))
        super().learn(cohort, plan, uploaded, reply)


def test_steps_are_taken_on_what_was_uploaded_and_evaluations_see_pictures_as_they_are() -> None:
    Watching.seen.clear()
    federation = images()
    fit(federation, Watching(local_steps=1), rounds=3, evaluate_every=1, model=CNN, augment=BOTH, batch=100)
    uploads = {number: x for kind, number, x in Watching.seen if kind == "upload"}
    steps = {number: x for kind, number, x in Watching.seen if kind == "learn"}
    assert set(uploads) == set(steps) == {1, 2, 3}
    assert all(torch.equal(uploads[number], steps[number]) for number in steps)
    assert not torch.equal(uploads[1].sort(dim=1).values, uploads[2].sort(dim=1).values)
    plain = torch.stack([p.columns for p in federation.parties])
    evaluated = [x for kind, _, x in Watching.seen if kind == "evaluation"]
    assert evaluated
    for x in evaluated:  # scaled, so compared with each other and not with the columns
        assert x.shape[1] == len(federation.split.validation) and torch.equal(x, evaluated[0])
    assert plain.shape[2:] == uploads[1].shape[2:]


@pytest.mark.parametrize("method", ["vimadmm", "vimadmm_j", "split_learning", "fdml", "local_only"])
def test_engines_agree(method: str) -> None:
    options: dict[str, Any] = {"rounds": 3, "dtype": "float64", "batch": 5, "evaluate_every": 1}
    chosen: dict[str, Any] = {"model": {"encoder": "mlp", "hidden": 5, "embedding": 4}, "augment": BOTH}
    runs = [fit(images(), method, engine=engine, **options, **chosen) for engine in ("loop", "stacked")]
    for name, tensors in runs[0].models.items():
        for key, value in tensors.items():
            torch.testing.assert_close(runs[1].models[name][key], value, rtol=1e-9, atol=1e-9)
    plain = fit(images(), method, **options, model=chosen["model"])
    assert any(
        not torch.equal(value, plain.models[n][k]) for n, own in runs[1].models.items() for k, value in own.items()
    )


def test_a_resumed_run_repeats_the_draws(tmp_path: Path) -> None:
    options: dict[str, Any] = {"rounds": 6, "batch": 4, "checkpoint_every": 2, "augment": BOTH, "seed": 3}
    options["model"] = {"encoder": "mlp", "hidden": 5, "embedding": 4}  # convolutions are timed: two runs may differ
    whole = fit(images(), "vimadmm", local_steps=2, **options)

    def dies(progress: Any) -> bool:
        if progress.round == 5:
            raise InterruptedError
        return False

    with pytest.raises(InterruptedError):
        fit(images(), "vimadmm", local_steps=2, out=tmp_path / "run", watch=dies, **options)
    again = resume(tmp_path / "run", images())
    for name, tensors in whole.models.items():
        assert_same_tensors(again.models[name], tensors, atol=0.0)


@pytest.mark.parametrize(
    ("make", "method", "settings", "words"),
    [
        (small, "vimadmm", {"model": TINY}, "changes pictures, with columns of shape"),
        (images, "vimadmm", {"model": CNN, "augment": {"shift": 8}}, "out of sight"),
        (images, "one_message", {"model": CNN}, "does not learn from batches"),
        (images, "celu_vfl", {"model": CNN, "local_steps": 2}, "also takes steps on rows of earlier rounds"),
        (
            images,
            "local_only",
            {"model": {"encoder": "linear"}, "privacy": {"unit": "row", "epsilon": 8.0, "clip": 1.0}},
            "are not combined",
        ),
    ],
    ids=["tables", "too far", "one message", "earlier rounds", "rows"],
)
def test_refused(make: Any, method: str, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        cn.fit(make(), method, rounds=2, **{"augment": BOTH, **settings})


def test_whole_pictures_of_the_central_reference_are_changed_too() -> None:
    whole = images(parties=1)
    federation = replace(whole, whole=whole.parties[0].columns)
    options: dict[str, Any] = {"rounds": 2, "model": CNN, "evaluate_every": 0}
    plain, changed = (fit(federation, "centralized", augment=augment, **options) for augment in ({}, BOTH))
    assert any(not torch.equal(v, plain.models["everyone"][k]) for k, v in changed.models["everyone"].items())


def test_parties_that_lack_a_row_have_nothing_to_change() -> None:
    held = torch.ones(12, 2, dtype=torch.bool)
    held[:3, 1] = False
    x = {f"camera_{k}": p.columns.numpy() for k, p in enumerate(images().parties)}
    made = cn.Federation.from_arrays(x, images().labels.numpy(), task="multiclass", held=held, split=images().split)
    Watching.seen.clear()
    fit(made, Watching(local_steps=1), rounds=1, model=CNN, augment=BOTH, batch=100, evaluate_every=0)
    upload = next(pictures for kind, _, pictures in Watching.seen if kind == "upload")
    assert int((upload[1].flatten(1) == 0).all(dim=1).sum()) == 3
