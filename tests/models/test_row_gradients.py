"""Sums of clipped gradients against one row at a time by autograd, and what cannot be clipped."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from colonnade.engines.base import Encoders
from colonnade.errors import ModelError
from colonnade.federation import Federation
from colonnade.fit import Trainer
from colonnade.methods import LocalOnly
from colonnade.models.cohort import Cohort
from colonnade.models.encoders import ModelSettings
from colonnade.models.heads import apply_heads
from colonnade.models.row_gradients import Batch, clipped_sums
from colonnade.models.stack import Mode
from tests.federations import images, mixed_encoder, small
from tests.trainers import open_trainer

PRIVATE = {"unit": "row", "sigma": 1.0}


def opened(
    federation: Federation, model: dict[str, Any] | None = None, encoders: Encoders = None, dtype: str = "float64"
) -> Trainer:
    settings = ModelSettings(**(model or {"encoder": "tanh", "embedding": 5}))
    options: dict[str, Any] = {"rounds": 3, "privacy": PRIVATE, "encoders": encoders, "dtype": dtype}
    return open_trainer(federation, LocalOnly(), model=settings, **options)


def cohorts(trainer: Trainer) -> list[Cohort]:
    return [side.cohort for side in trainer.engine.parties()]


def batch_of(cohort: Cohort, rows: int = 9) -> Batch:
    """Different rows at every party; the last two of the first party are not there."""
    s, p = cohort.schema, len(cohort.names)
    at = torch.stack([torch.arange(k, k + rows) % s.rows for k in range(p)])
    here = torch.ones(p, rows, dtype=torch.bool)
    here[0, -2:] = False
    classes = (torch.arange(p * rows) % s.outputs).view(p, rows)
    return Batch(cohort.x_of_each(at), functional.one_hot(classes, s.outputs).to(s.dtype), here)


def slowly(cohort: Cohort, batch: Batch, norm: float) -> list[Tensor]:
    """One party and one row after the other."""
    parameters = cohort.trained(("head", "encoder"))
    sums = [torch.zeros_like(p) for p in parameters]
    for k in range(len(cohort.names)):
        for i in range(batch.x.shape[1]):
            if not batch.here[k, i]:
                continue
            x = batch.x[:, i : i + 1]
            logits = apply_heads(cohort.head, cohort.encode(x, Mode.LEARN))[k]
            loss = cohort.schema.task.loss(logits, batch.targets[k, i : i + 1])
            gradients = [g[k] for g in torch.autograd.grad(loss, parameters)]
            size = torch.sqrt(sum((g.square().sum() for g in gradients), torch.zeros(())))
            factor = min(1.0, norm / max(1e-300, float(size)))
            for total, gradient in zip(sums, gradients, strict=True):
                total[k] += factor * gradient
    return sums


def grouped(party: str, shape: tuple[int, ...]) -> nn.Module:
    """No chain of linear layers: convolutions, GroupNorm, and a frozen layer."""
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3))
    network[1].weight.requires_grad_(False)
    return network


def frozen(party: str, shape: tuple[int, ...]) -> nn.Module:
    """A chain whose first weights stay as they are."""
    network = nn.Sequential(nn.Flatten(), nn.Linear(shape[0], 6), nn.Tanh(), nn.Linear(6, 4), nn.ReLU())
    network[1].weight.requires_grad_(False)
    return network


CASES: dict[str, tuple[Federation, dict[str, Any] | None, Encoders]] = {
    "tanh": (small(), None, None),
    "linear": (small(), {"encoder": "linear", "embedding": 3}, None),
    "mlp and an mlp head": (small(), {"encoder": "mlp", "hidden": 6, "head": {"layers": 2, "dropout": 0.0}}, None),
    "two groups": (small(), None, mixed_encoder),
    "frozen": (small(), None, frozen),
    "yes or no": (small(task="binary"), None, None),
    "several labels": (small(task="multilabel"), None, None),
    "convolutions": (images(), None, grouped),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("norm", [0.05, 100.0], ids=["all cut", "none cut"])
def test_sums_are_those_of_single_rows(name: str, norm: float) -> None:
    federation, model, encoders = CASES[name]
    for cohort in cohorts(opened(federation, model, encoders)):
        batch = batch_of(cohort)
        found, wanted = clipped_sums(cohort, batch, norm), slowly(cohort, batch, norm)
        assert len(found) == len(wanted) > 0
        for mine, theirs in zip(found, wanted, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", ["tanh", "convolutions"])
def test_no_row_adds_more_than_the_norm(name: str) -> None:
    federation, model, encoders = CASES[name]
    cohort = cohorts(opened(federation, model, encoders, dtype="float32"))[0]
    whole = batch_of(cohort)
    whole.x.mul_(1e4)
    without = Batch(whole.x, whole.targets, whole.here.clone())
    without.here[:, 3] = False
    both = [torch.cat([s.flatten(1) for s in clipped_sums(cohort, b, 0.7)], dim=1) for b in (whole, without)]
    norms = (both[0] - both[1]).norm(dim=1)
    assert bool((norms <= 0.7 * (1 + 1e-12)).all()) and bool((norms > 0.69).all())


def test_a_row_that_is_not_finite_counts_nothing() -> None:
    cohort = cohorts(opened(small(), dtype="float32"))[0]
    batch = batch_of(cohort)
    wanted = Batch(batch.x.clone(), batch.targets, batch.here.clone())
    wanted.here[:, 2] = False
    batch.x[:, 2] = torch.inf
    for mine, theirs in zip(clipped_sums(cohort, batch, 1.0), clipped_sums(cohort, wanted, 1.0), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=0)


def test_opacus_adds_up_the_same() -> None:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the library's own imports
        from opacus import GradSampleModule
    cohort = cohorts(opened(small()))[0]
    batch = batch_of(cohort)
    network = nn.Sequential(nn.Linear(5, 5), nn.Tanh(), nn.Linear(5, cohort.schema.outputs, bias=False)).double()
    network[0].load_state_dict({k.removeprefix("1."): v[1] for k, v in cohort.encoder.parameters.items()})  # type: ignore[union-attr]
    network[2].weight.data.copy_(cohort.head["weight.0"][1].T)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = GradSampleModule(network, loss_reduction="sum")
        cohort.schema.task.loss(theirs(batch.x[1].flatten(1)), batch.targets[1]).backward()
    each = [p.grad_sample for p in theirs.parameters()]
    factor = (0.05 / sum(g.flatten(1).square().sum(dim=1) for g in each).sqrt()).clamp(max=1)
    weight, bias, head = (torch.einsum("b...,b->...", g, factor) for g in each)
    found = dict(zip(("head", "weight", "bias"), clipped_sums(cohort, batch, 0.05), strict=True))
    torch.testing.assert_close(found["weight"][1], weight)
    torch.testing.assert_close(found["bias"][1], bias)
    torch.testing.assert_close(found["head"][1], head.T)


def with_layer(layer: nn.Module) -> Any:
    return lambda party, shape: nn.Sequential(nn.Flatten(), nn.Linear(shape[0], 4), layer)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "BatchNorm": (
        {"encoders": with_layer(nn.BatchNorm1d(4))},
        "'2' of party 'party_0' is BatchNorm1d, which mixes rows",
    ),
    "dropout": ({"model": {"encoder": "mlp", "dropout": 0.5}}, "is KeyedDropout, whose choice follows from a row's"),
    "dropout of a head": ({"model": {"encoder": "tanh", "head": {"layers": 2}}}, "model.head.dropout = 0.25"),
    "hooks": (
        {"encoders": with_layer(nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)))},
        "needs the gradient of every row",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_networks_whose_rows_cannot_be_told_apart_are_refused(name: str) -> None:
    options, reason = REFUSED[name]
    with pytest.raises(ModelError, match=reason):
        opened(small(), options.get("model"), options.get("encoders"))


@pytest.mark.parametrize("kind", ["trees", "ridge"])
def test_models_without_gradients_are_refused(kind: str) -> None:
    with pytest.raises(ModelError, match=r"party 'party_0' has none \(it is trees, ridge"):
        opened(small(), {"encoder": kind})


def test_a_row_that_stands_there_often_would_count_as_many() -> None:
    data = small()
    often = torch.cat([data.split.train, data.split.train[:1].repeat(300)])
    with pytest.raises(ModelError, match="a training row stands there more than once"):
        opened(replace(data, split=replace(data.split, train=often)), {"encoder": "tanh"})
