"""Every metric against scikit-learn's function of that name, also with weights; and that `training.metric` chooses."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import ks_2samp
from sklearn import metrics as sk

from colonnade.errors import ConfigError
from colonnade.evaluate.chance import bootstrap
from colonnade.evaluate.judge import Judge
from colonnade.evaluate.metrics import METRICS, Metric, choose_metric, find_metric, metrics_of
from colonnade.fit import fit
from colonnade.methods import VIMADMM
from colonnade.tasks import TASKS, Task
from colonnade.testing import MetricContract
from tests.federations import small
from tests.trainers import TINY

ROWS = 300
Array = np.ndarray


def made_up(name: str, seed: int = 0) -> tuple[Task, torch.Tensor, torch.Tensor]:
    """A task, outputs of a fair model, and truth."""
    rng = np.random.default_rng(seed)
    width = {"multiclass": 4, "binary": 1, "multilabel": 3, "regression": 2, "count": 1}[name]
    signal = rng.normal(size=(ROWS, width))
    outputs = torch.from_numpy(np.round(signal + rng.normal(size=(ROWS, width)), 1))  # rounded: there are ties
    truth = {
        "multiclass": lambda: signal.argmax(axis=1),
        "binary": lambda: (signal > 0.4).astype(float),
        "multilabel": lambda: (signal > 0.4).astype(float),
        "regression": lambda: 3 + 2 * signal,
        "count": lambda: rng.poisson(np.exp(signal)).astype(float),
    }[name]()
    return TASKS[name](width), outputs, torch.from_numpy(truth)


def share(outputs: Array) -> Array:
    return 1 / (1 + np.exp(-outputs))


def soft(outputs: Array) -> Array:
    e = np.exp(outputs - outputs.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def each(function: Callable[..., float], y: Array, p: Array, **more: Any) -> float:
    """The mean over the columns."""
    return float(np.mean([function(y[:, k], p[:, k], **more) for k in range(y.shape[1])]))


SKLEARN: dict[tuple[str, str], Callable[[Array, Array, Array | None], float]] = {
    ("multiclass", "accuracy"): lambda y, o, w: sk.accuracy_score(y, o.argmax(1), sample_weight=w),
    ("multiclass", "balanced_accuracy"): lambda y, o, w: sk.balanced_accuracy_score(y, o.argmax(1), sample_weight=w),
    ("multiclass", "f1"): lambda y, o, w: sk.f1_score(y, o.argmax(1), average="macro", sample_weight=w),
    ("multiclass", "auc"): lambda y, o, w: sk.roc_auc_score(y, soft(o), multi_class="ovr", sample_weight=w),
    ("multiclass", "log_loss"): lambda y, o, w: sk.log_loss(y, soft(o), sample_weight=w),
    ("multiclass", "brier"): lambda y, o, w: float(np.average(((soft(o) - np.eye(4)[y]) ** 2).sum(axis=1), weights=w)),
    ("binary", "accuracy"): lambda y, o, w: sk.accuracy_score(y, o > 0, sample_weight=w),
    ("binary", "balanced_accuracy"): lambda y, o, w: sk.balanced_accuracy_score(y[:, 0], o[:, 0] > 0, sample_weight=w),
    ("binary", "f1"): lambda y, o, w: sk.f1_score(y, o > 0, sample_weight=w),
    ("binary", "auc"): lambda y, o, w: sk.roc_auc_score(y, o, sample_weight=w),
    ("binary", "average_precision"): lambda y, o, w: sk.average_precision_score(y, o, sample_weight=w),
    ("binary", "log_loss"): lambda y, o, w: sk.log_loss(y, share(o), sample_weight=w),
    ("binary", "brier"): lambda y, o, w: sk.brier_score_loss(y, share(o), sample_weight=w),
    ("multilabel", "accuracy"): lambda y, o, w: each(sk.accuracy_score, y, o > 0, sample_weight=w),
    ("multilabel", "f1"): lambda y, o, w: sk.f1_score(y, o > 0, average="macro", sample_weight=w),
    ("multilabel", "auc"): lambda y, o, w: sk.roc_auc_score(y, o, sample_weight=w),
    ("multilabel", "log_loss"): lambda y, o, w: each(sk.log_loss, y, share(o), sample_weight=w),
    ("multilabel", "brier"): lambda y, o, w: each(sk.brier_score_loss, y, share(o), sample_weight=w),
    ("regression", "r2"): lambda y, o, w: sk.r2_score(y, o, multioutput="variance_weighted", sample_weight=w),
    ("regression", "rmse"): lambda y, o, w: math.sqrt(sk.mean_squared_error(y, o, sample_weight=w)),
    ("regression", "mae"): lambda y, o, w: sk.mean_absolute_error(y, o, sample_weight=w),
    ("count", "r2"): lambda y, o, w: sk.r2_score(y, np.exp(o), sample_weight=w),
    ("count", "rmse"): lambda y, o, w: math.sqrt(sk.mean_squared_error(y, np.exp(o), sample_weight=w)),
    ("count", "mae"): lambda y, o, w: sk.mean_absolute_error(y, np.exp(o), sample_weight=w),
    ("count", "poisson_deviance"): lambda y, o, w: sk.mean_poisson_deviance(y[:, 0], np.exp(o[:, 0]), sample_weight=w),
}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("task", "name"), list(SKLEARN))
def test_it_is_sklearns(task: str, name: str, weighted: bool) -> None:
    kind, outputs, truth = made_up(task)
    weights = np.random.default_rng(5).integers(1, 4, ROWS) * 1.0 if weighted else None
    found = METRICS[name](kind, outputs, truth, None if weights is None else torch.from_numpy(weights))
    assert found == pytest.approx(SKLEARN[task, name](truth.numpy(), outputs.numpy(), weights), abs=1e-10)


def test_ks_is_scipys() -> None:
    kind, outputs, truth = made_up("binary")
    yes = truth[:, 0].numpy() > 0.5
    expected = ks_2samp(outputs[yes, 0], outputs[~yes, 0]).statistic
    assert METRICS["ks"](kind, outputs, truth) == pytest.approx(expected)


def test_every_metric_is_tested_here() -> None:
    assert set(METRICS) - {"ks"} == {name for _, name in SKLEARN}


@pytest.mark.parametrize("task", list(dict.fromkeys(task for task, _ in SKLEARN)))
def test_every_metric_of_these_tasks_is_tested_here(task: str) -> None:
    """Of another task, `TaskContract` holds that its metrics know better models from worse."""
    names = {metric.name for metric in metrics_of(TASKS[task](2))} - {"ks"}
    assert names == {name for kind, name in SKLEARN if kind == task}


@pytest.mark.parametrize(("task", "name"), list(SKLEARN))
def test_the_contract_for_others_knows_which_metrics_ask_for_decisions(task: str, name: str) -> None:
    """The other way round a threshold would move a metric that reads probabilities, or not move one of decisions."""
    kind, outputs, truth = made_up(task)

    def tried(metric: Metric) -> None:
        said = {"metric": metric, "task": kind, "outputs": outputs, "truth": truth}
        type("Tried", (MetricContract,), said)().test_it_says_whether_it_asks_what_was_decided()

    tried(METRICS[name])
    if kind.classes:
        other = not METRICS[name].decides
        with pytest.raises(AssertionError, match=f"decides={not other}.*; got {other}"):
            tried(replace(METRICS[name], decides=other))


def test_the_contract_for_others_refuses_a_metric_whose_better_is_the_wrong_way_round() -> None:
    kind, outputs, truth = made_up("multiclass")
    for better, refused in (("lower", False), ("higher", True)):
        metric = replace(METRICS["log_loss"], better=better)  # type: ignore[arg-type]
        said = {"metric": metric, "task": kind, "outputs": outputs, "truth": truth}
        check = type("Tried", (MetricContract,), said)().test_it_prefers_a_model_that_knows_the_labels
        with pytest.raises(AssertionError, match="is better = 'higher' right") if refused else nullcontext():
            check()


@pytest.mark.parametrize("name", list(METRICS))
def test_a_model_that_knows_the_labels_is_better_than_a_constant_guess(name: str) -> None:
    task = next(t for t in TASKS if METRICS[name] in metrics_of(TASKS[t](2)))
    kind, _, truth = made_up(task)
    perfect = kind.expand(truth, torch.float64)
    perfect = (perfect + 1e-9).log() if task == "count" else perfect if task == "regression" else 20 * perfect - 10
    guess = kind.constant(kind.shares(truth)).expand(ROWS, -1)
    metric = METRICS[name]
    assert metric.sign() * (metric(kind, perfect, truth) - metric(kind, guess, truth)) > 0


def test_rows_that_do_not_define_a_metric_give_nan() -> None:
    one_class = torch.ones(5, 1, dtype=torch.float64)
    for name in ("auc", "average_precision", "ks"):
        value = METRICS[name](TASKS["binary"](1), torch.randn(5, 1), torch.zeros_like(one_class))
        assert math.isnan(value), name
    assert math.isnan(METRICS["accuracy"](TASKS["binary"](1), torch.tensor([[math.nan]]), one_class[:1]))


def test_bootstrap_is_close_to_a_slow_one() -> None:
    kind, outputs, truth = made_up("binary")
    rng = np.random.default_rng(0)
    slow = [sk.average_precision_score(truth[at], outputs[at]) for at in rng.integers(ROWS, size=(600, ROWS))]
    found = bootstrap(METRICS["average_precision"], kind, outputs, truth)
    np.testing.assert_allclose(found, np.quantile(slow, [0.025, 0.975]), atol=0.02)
    assert found == bootstrap(METRICS["average_precision"], kind, outputs, truth)  # the same again


# -- which one chooses ------------------------------------------------------------------------


def test_names_of_earlier_versions_are_found() -> None:
    assert find_metric("AUC").name == "auc" and find_metric("R2").name == "r2"
    assert find_metric("negative log loss").name == "log_loss"
    with pytest.raises(ConfigError, match="metric 'aucc': needed one of accuracy, "):
        find_metric("aucc")


def test_a_metric_of_another_task_is_refused_with_the_ones_there_are() -> None:
    with pytest.raises(ConfigError, match="'rmse' is not for a yes/no task; choose from auc, accuracy"):
        choose_metric(TASKS["binary"](1), "rmse")
    with pytest.raises(ConfigError, match="'ks' is not for a classes task"):
        fit(small(), VIMADMM(), rounds=1, model=TINY, metric="ks")


@pytest.mark.parametrize("name", ["log_loss", "balanced_accuracy"])
def test_training_metric_chooses_the_kept_round(name: str) -> None:
    run = fit(small(rows=200), VIMADMM(), rounds=20, model=TINY, metric=name, evaluate_every=2)
    scores = {h["round"]: h["score"] for h in run.history if "score" in h}
    best = min(scores.values()) if name == "log_loss" else max(scores.values())
    assert run.result["validation_score"] == pytest.approx(best) and scores[run.result["best_round"]] == best
    assert run.metric == run.result["validation_metric"] == name
    assert run.result["validation_metrics"][name] == pytest.approx(best)
    assert run.score == run.metrics[name]["test"]
    assert set(run.metrics) == set(run.result["validation_metrics"]) == {m.name for m in metrics_of(run.task)}


def test_a_metric_without_bounds_stops_by_its_share_of_a_constant_guess() -> None:
    """An RMSE in the hundreds must not stop a run because it moved by more than 0.02."""
    truth = 1000 * torch.randn(50, 1, dtype=torch.float64)
    judge = Judge.of(TASKS["regression"](1), truth, "rmse")
    guess = torch.zeros(50, 1) + truth.mean()
    assert judge.gain(judge(guess)) == pytest.approx(-1.0) and judge.value(-1.0) == pytest.approx(judge(guess))
    assert judge.gain(judge(truth)) == 0.0


def test_protected_labels_cannot_give_every_metric() -> None:
    privacy = {"labels": {"mechanism": "alibi", "epsilon": 2.0}}
    with pytest.raises(ConfigError, match="'log_loss' needs plain labels, and these are protected"):
        fit(small(), VIMADMM(), rounds=1, model=TINY, privacy=privacy, metric="log_loss")
    assert fit(small(), VIMADMM(), rounds=2, model=TINY, privacy=privacy, metric="auc").metric == "auc"
