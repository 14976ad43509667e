"""Metrics by name: each is one function of outputs and labels, for any weights of the rows.

A metric gets weights (R, B) of the rows, one line per resample, and returns one value per line. So the same function
gives a score (weights 1), a score of weighted rows, and the values of a bootstrap. Values are compared with
scikit-learn's functions of the same names in the tests; they are written here again because those take one resample
at a time, which makes an interval slower than the training, and because a yes may be weighted by a belief.

A new metric is a function here and its line in METRICS.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from colonnade.errors import ConfigError
from colonnade.numerals import measured
from colonnade.plugins import Table
from colonnade.tasks import Task

Function = Callable[[Task, Tensor, Tensor, Tensor], Tensor]  # task, outputs (B, K), truth, weights (R, B) -> (R,)


@dataclass(frozen=True)
class Metric:
    """A number that says how good a model is."""

    name: str
    title: str  # for people
    better: Literal["higher", "lower"]
    function: Function
    share: bool = False  # told in per cent
    bounded: bool = True  # differences mean the same whatever the labels are; if not, they are compared with a guess
    tasks: tuple[str, ...] = ()  # it is for, besides those that name it themselves
    decides: bool = False  # it asks what was decided, not how sure the model was

    def __call__(self, task: Task, outputs: Tensor, truth: Tensor, weights: Tensor | None = None) -> float:
        """The value; NaN where these rows do not define it.

        Args:
            task: what kind of labels.
            outputs: (B, K) of a model.
            truth: (B,) classes or (B, K) numbers.
            weights: (B,) of the rows; None: all alike.
        """
        weights = torch.ones(len(outputs), dtype=torch.float64) if weights is None else weights.cpu().double()
        return float(self.values(task, outputs, truth, weights[None])[0])

    def values(self, task: Task, outputs: Tensor, truth: Tensor, weights: Tensor) -> Tensor:
        """(R,) values, one for each line of weights (R, B)."""
        outputs, truth = outputs.detach().cpu(), truth.detach().cpu()  # on the CPU sums have one order
        if outputs.is_floating_point() and not bool(torch.isfinite(outputs).all()):
            return torch.full((len(weights),), math.nan, dtype=torch.float64)
        return self.function(task, outputs, truth, weights)

    def sign(self) -> float:
        """1, or -1 where lower is better."""
        return 1.0 if self.better == "higher" else -1.0

    def told(self, value: float) -> str:
        """The value in words: per cent for shares."""
        return f"{100 * value:.1f} %" if self.share else measured(value, 3)


# -- decisions --------------------------------------------------------------------------------


def accuracy(task: Task, outputs: Tensor, truth: Tensor, weights: Tensor) -> Tensor:
    """The share of right decisions: of the rows, for several labels of all labels."""
    right = task.codes(outputs).reshape(len(outputs), -1) == truth.reshape(len(outputs), -1)  # (B, 1) or (B, K)
    return weights @ right.double().sum(dim=1) / (weights.sum(dim=1) * right.shape[1])


def balanced_accuracy(task: Task, outputs: Tensor, truth: Tensor, weights: Tensor) -> Tensor:
    """The mean over the classes of the share of their rows that is decided right; of classes that have rows."""
    decided, true = _one_hot(task, task.codes(outputs)), _one_hot(task, truth)  # (B, C)
    return ((weights @ (decided * true)) / (weights @ true)).nanmean(dim=1)


def f1(task: Task, outputs: Tensor, truth: Tensor, weights: Tensor) -> Tensor:
    """2 TP / (2 TP + FP + FN) of the yes; for classes and several labels the mean over those that occur."""
    decided, true = _one_hot(task, task.codes(outputs)), _one_hot(task, truth)  # (B, C)
    if not task.exclusive and task.outputs == 1:
        decided, true = decided[:, 1:], true[:, 1:]
    hit, said, there = (weights @ part for part in (decided * true, decided, true))
    return (2 * hit / (said + there)).nanmean(dim=1)


def _one_hot(task: Task, codes: Tensor) -> Tensor:
    """(B, C) zeros and ones: of the classes, of (no, yes), or of several labels."""
    if task.exclusive:
        return torch.nn.functional.one_hot(codes.to(torch.int64), task.outputs).double()
    yes = codes.double().reshape(len(codes), -1)
    return torch.cat([1 - yes, yes], dim=1) if yes.shape[1] == 1 else yes


# -- the order of the scores ------------------------------------------------------------------


def auc(task: Task, outputs: Tensor, truth: Tensor, weights: Tensor) -> Tensor:
    """Area under the ROC curve; the mean over the classes (each against the rest) or labels that have one."""
    yes, scores = _yes(task, truth), outputs.double()
    scores = scores.log_softmax(dim=1) if task.exclusive else scores  # the order of the probabilities, without ties
    found = [area(scores[:, k], yes[:, k], weights) for k in range(scores.shape[1])]
    return torch.stack(found).nanmean(dim=0)


def area(scores: Tensor, yes: Tensor, weights: Tensor) -> Tensor:
    """The chance (R,) that a yes gets a higher score than a no, ties counting half.

    Args:
        scores: (B,).
        yes: (B,) 0 or 1; or between them: a row is then a yes with this weight and a no with the rest.
        weights: (R, B).
    """
    order = _order(scores)
    if order is not None and bool(((yes == 0) | (yes == 1)).all()):
        return _area_without_ties(weights[:, order], yes[order].nonzero()[:, 0])
    ayes, noes = _by_score(scores, yes, weights)
    below = noes.cumsum(dim=1) - noes
    return (ayes * (below + noes / 2)).sum(dim=1) / (ayes.sum(dim=1) * noes.sum(dim=1))


def _area_without_ties(weights: Tensor, places: Tensor) -> Tensor:
    """The same of rows in the order of their scores, of which some are a yes: most classes have few of them."""
    ayes = weights[:, places]
    below = weights.cumsum(dim=1)[:, places] - ayes.cumsum(dim=1)
    total = ayes.sum(dim=1)
    return (ayes * below).sum(dim=1) / (total * (weights.sum(dim=1) - total))


def average_precision(task: Task, outputs: Tensor, truth: Tensor, weights: Tensor) -> Tensor:
    """The mean precision over the recalls, from the highest score down: sum of (R_n - R_n-1) P_n."""
    ayes, noes = (part.flip(1) for part in _by_score(outputs[:, 0], truth[:, 0], weights))
    taken = ayes.cumsum(dim=1) + noes.cumsum(dim=1)
    precision = ayes.cumsum(dim=1) / taken.clamp(min=1e-300)
    return (ayes * precision).sum(dim=1) / ayes.sum(dim=1)


def ks(task: Task, outputs: Tensor, truth: Tensor, weights: Tensor) -> Tensor:
    """Kolmogorov and Smirnov: the largest distance of the two classes' distributions of the score."""
    ayes, noes = _by_score(outputs[:, 0], truth[:, 0], weights)
    apart = ayes.cumsum(dim=1) / ayes.sum(dim=1, keepdim=True) - noes.cumsum(dim=1) / noes.sum(dim=1, keepdim=True)
    return apart.abs().amax(dim=1)


def _yes(task: Task, truth: Tensor) -> Tensor:
    """(B, K) how much a row is a yes of each output."""
    return _one_hot(task, truth) if task.exclusive else truth.double().reshape(len(truth), -1)


def _order(scores: Tensor) -> Tensor | None:
    """(B,) the rows by ascending score; None where two have the same."""
    ranked, order = scores.double().sort()
    return order if bool((ranked[1:] > ranked[:-1]).all()) else None


def _by_score(scores: Tensor, yes: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Weights (R, G) of the yes and the no at each different score, ascending."""
    y, order = yes.double(), _order(scores)
    if order is not None:
        heavy = weights[:, order]
        return heavy * y[order], heavy * (1 - y[order])
    _, place = scores.double().unique(return_inverse=True)
    empty = torch.zeros(len(weights), int(place.max()) + 1, dtype=torch.float64)
    return empty.index_add(1, place, weights * y), empty.index_add(1, place, weights * (1 - y))


# -- probabilities ----------------------------------------------------------------------------


def log_loss(task: Task, outputs: Tensor, truth: Tensor, weights: Tensor) -> Tensor:
    """The mean of -log p of what is true; for several labels over all labels."""
    y = _yes(task, truth)
    cells = 1 if task.exclusive else y.shape[1]
    return _mean(task.losses(outputs.double(), y).sum(dim=1) / cells, weights)


def brier(task: Task, outputs: Tensor, truth: Tensor, weights: Tensor) -> Tensor:
    """The mean squared distance of probabilities from what is true: over the classes summed, over labels averaged."""
    y = _yes(task, truth)
    cells = 1 if task.exclusive else y.shape[1]
    return _mean((task.mean(outputs.double()) - y).square().sum(dim=1) / cells, weights)


# -- numbers ----------------------------------------------------------------------------------


def r2(task: Task, outputs: Tensor, truth: Tensor, weights: Tensor) -> Tensor:
    """1 - squared errors / squared distances from the mean, over all numbers together; NaN where all are alike."""
    y, p = truth.double(), task.mean(outputs.double())
    off = weights @ (y - p).square().sum(dim=1)
    centred = y - y.mean(dim=0)
    spread = weights @ centred.square().sum(dim=1)
    spread = spread - ((weights @ centred).square() / weights.sum(dim=1, keepdim=True)).sum(dim=1)
    least = weights.sum(dim=1) * (4 * torch.finfo(y.dtype).eps * y.abs().max()) ** 2  # rounding of equal numbers
    return torch.where(spread > least, 1 - off / spread, math.nan)


def rmse(task: Task, outputs: Tensor, truth: Tensor, weights: Tensor) -> Tensor:
    """The root of the mean squared error."""
    return _mean((truth.double() - task.mean(outputs.double())).square().mean(dim=1), weights).sqrt()


def mae(task: Task, outputs: Tensor, truth: Tensor, weights: Tensor) -> Tensor:
    """The mean absolute error."""
    return _mean((truth.double() - task.mean(outputs.double())).abs().mean(dim=1), weights)


def poisson_deviance(task: Task, outputs: Tensor, truth: Tensor, weights: Tensor) -> Tensor:
    """The mean of 2 (y log(y/mu) - y + mu): 0 for a model that knows every count."""
    y, mu = truth.double(), task.mean(outputs.double()).clamp(min=1e-300)
    return _mean(2 * (torch.xlogy(y, y / mu) - y + mu).mean(dim=1), weights)


def _mean(rows: Tensor, weights: Tensor) -> Tensor:
    return weights @ rows / weights.sum(dim=1)


BUILT_IN: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("accuracy", "accuracy", "higher", accuracy, share=True, decides=True),
        Metric("balanced_accuracy", "balanced accuracy", "higher", balanced_accuracy, share=True, decides=True),
        Metric("f1", "F1", "higher", f1, decides=True),
        Metric("auc", "AUC", "higher", auc),
        Metric("average_precision", "average precision", "higher", average_precision),
        Metric("ks", "KS", "higher", ks),
        Metric("log_loss", "log loss", "lower", log_loss),
        Metric("brier", "Brier score", "lower", brier),
        Metric("r2", "R2", "higher", r2),
        Metric("rmse", "RMSE", "lower", rmse, bounded=False),
        Metric("mae", "MAE", "lower", mae, bounded=False),
        Metric("poisson_deviance", "Poisson deviance", "lower", poisson_deviance, bounded=False),
    )
}


def _wrong(name: str, metric: Any) -> str:
    """What is wrong with a metric of another package; empty: nothing."""
    if not isinstance(metric, Metric):
        return f"needs to be a colonnade.evaluate.metrics.Metric; it is {metric!r}"
    return "" if metric.name == name else f"calls itself {metric.name!r}; the name of its entry point must be the same"


METRICS: Table[Metric] = Table("colonnade.metrics", BUILT_IN, _wrong)
FORMER = {"negative log loss": "log_loss"}  # names in runs of earlier versions, which also wrote AUC and R2


def find_metric(name: str) -> Metric:
    """The metric of that name; the names of earlier versions too."""
    found = METRICS.get(name) or METRICS.get(FORMER.get(name, name.lower()))
    if found is None:
        raise ConfigError(f"metric {name!r}: needed one of {', '.join(METRICS)}")
    return found


def find_title(title: str) -> Metric | None:
    """The metric that people call so; None: none is called so."""
    return next((metric for metric in METRICS.values() if metric.title == title), None)


def metric_of(task: Task, result: Mapping[str, Any]) -> Metric:
    """The metric that a stored result is judged by."""
    return find_metric(str(result.get("metric") or task.former_metric or task.metric))


def metrics_of(task: Task) -> tuple[Metric, ...]:
    """Every metric that a task has, the one that chooses its model first."""
    others = (metric.name for metric in METRICS.usable().values() if task.name in metric.tasks)
    names = dict.fromkeys([task.metric, *task.metrics, *others])
    return tuple(METRICS[name] for name in names)


def choose_metric(task: Task, name: str | None) -> Metric:
    """The metric that chooses the kept round; refused by name where the task does not have it."""
    if name is None:
        return METRICS[task.metric]
    metric, having = find_metric(name), metrics_of(task)
    if metric not in having:
        raise ConfigError(
            f"metric = {name!r} is not for a {task.words} task; choose from {', '.join(one.name for one in having)}"
        )
    return metric


def choose_metrics(task: Task, names: Sequence[str] | None) -> Sequence[Metric]:
    """Metrics of these names, if the task has them; None: all that it has."""
    if isinstance(names, str):
        raise ConfigError(f"metrics: needed a list of names, e.g. [{names!r}]; got the text {names!r}")
    return metrics_of(task) if names is None else [choose_metric(task, name) for name in names]
