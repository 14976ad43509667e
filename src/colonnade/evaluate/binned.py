"""What the pictures of a report need of the test rows: counts and means of many rows, never a row.

Records are passed on, and a small count gives a label away to whoever knows what the model said of the row. So rows
are put into bins by what the model said of them: at most MOST, each of at least FEWEST rows, and those of which it said
the same are in one bin. At the ends of bins the curves are exact: a point of the ROC curve, of precision and recall or
of the gain is a sum over bins. A quantile is given where at least FEWEST rows lie beyond it; the outer bins of a
histogram are open.

yes/no       bins by probability: ROC, precision and recall, gain, calibration
classes      bins by the probability of the class decided for; each class against the rest
labels       each label
numbers      bins by prediction, residuals actual - predicted
counts       the same; residuals are those of the Poisson deviance, sign(y - mu) sqrt(2 (y log(y/mu) - y + mu))
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from colonnade.evaluate.answers import Answers, Evaluated
from colonnade.evaluate.metrics import area
from colonnade.record import Binned, Histogram, KindScores, NumberBinned, NumberBins, ScoreBins
from colonnade.tasks import Task

FEWEST = 10  # rows behind every number
MOST, TENTHS, TWENTIETHS = 100, 10, 20  # bins of curves; of calibration and counts; of numbers
MOST_NUMBERS = 4  # of a row, in pictures
STEP, REACH = 0.25, 3.0  # of a histogram, in standard deviations: width of a bin, and where the outer ones begin
QUANTILES = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
PROTECTED = "labels are protected in this run, and curves of the test rows count plain labels many times over"
DIGITS = 5  # that count, of means and quantiles


def binned(tested: Evaluated) -> Binned:
    """What the pictures of this task need; `left_out` says why there is nothing."""
    task, answers, truth, weights = tested.task, tested.answers, tested.truth.detach().cpu(), tested.weights
    heavy = torch.ones(len(truth), dtype=torch.float64) if weights is None else weights.detach().cpu().double()
    if why := _too_little(task, answers, truth):
        return withheld(why)
    return KINDS[task.pictures](task, answers, truth, heavy)


def withheld(why: str) -> Binned:
    """Nothing, and the reason."""
    return {"fewest": FEWEST, "left_out": why}


def _too_little(task: Task, answers: Answers, truth: Tensor) -> str:
    """Why there is nothing to show; empty: there is."""
    if task.pictures not in KINDS:
        return f"a {task.words} task names no pictures"
    if len(truth) < FEWEST:
        return f"there are {len(truth)} test rows, and each point of a curve needs {FEWEST}"
    if task.pictures == "scores" and min(int(truth.sum()), int((1 - truth).sum())) < FEWEST:
        return f"fewer than {FEWEST} test rows are a yes, or a no"
    finite = bool(torch.isfinite(answers.calibrated).all())
    return "" if finite else "the model's outputs for the test rows are not all finite"


def _of_yes_no(task: Task, answers: Answers, truth: Tensor, weights: Tensor) -> Binned:
    return {"fewest": FEWEST, "scores": score_bins(_said(task, answers)[:, 0], truth.double()[:, 0], weights, MOST)}


def _of_classes(task: Task, answers: Answers, truth: Tensor, weights: Tensor) -> Binned:
    sure, place = _said(task, answers).max(dim=1)
    right, decided = (place == truth).double(), task.codes(answers.decided).cpu()
    scores = answers.calibrated.detach().cpu().double().log_softmax(dim=1)
    hot = [torch.nn.functional.one_hot(codes.long(), task.outputs).double() for codes in (decided, truth)]
    top, each = score_bins(sure, right, weights, TENTHS), _each(hot[0], scores, hot[1], weights)
    return {"fewest": FEWEST, "top": top, "each": each}


def _of_labels(task: Task, answers: Answers, truth: Tensor, weights: Tensor) -> Binned:
    decided = task.codes(answers.decided).cpu().double()
    each = _each(decided, answers.calibrated.detach().cpu().double(), truth.double(), weights)
    return {"fewest": FEWEST, "each": each}


def _of_numbers(task: Task, answers: Answers, truth: Tensor, weights: Tensor) -> Binned:
    said, true, deviance = _said(task, answers), truth.double().reshape(len(truth), -1), task.pictures == "counts"
    shown = range(min(MOST_NUMBERS, true.shape[1]))
    found = [number_binned(said[:, k], true[:, k], weights, deviance) for k in shown]
    return {"fewest": FEWEST, "numbers": found, "deviance": deviance}


def _said(task: Task, answers: Answers) -> Tensor:
    return task.mean(answers.calibrated.detach().cpu().double())


KINDS: Mapping[str, Callable[[Task, Answers, Tensor, Tensor], Binned]] = {
    "scores": _of_yes_no,
    "classes": _of_classes,
    "labels": _of_labels,
    "numbers": _of_numbers,
    "counts": _of_numbers,
}


def places(by: Tensor, most: int) -> Tensor:
    """(B,) the bin of each row, numbered from 0 by rising `by` (B,).

    At most `most` bins, of about equal size, each of FEWEST rows or more (one bin where there are not so many); rows of
    equal `by` are in one bin.
    """
    _, value, counts = by.unique(return_inverse=True, return_counts=True)  # ascending
    begins = counts.cumsum(0) - counts
    size = max(FEWEST, -(-len(by) // most))
    first = begins // size  # which bins values begin in; a value of many rows leaves small ones behind it
    rows = torch.zeros(int(first[-1]) + 1, dtype=torch.int64).index_add(0, first, counts)
    return torch.tensor(_joined(rows.tolist()))[first[value]]


def _joined(rows: Sequence[int]) -> list[int]:
    """The new number of each of some bins, so that none has fewer than FEWEST rows."""
    numbers, held, number = [], 0, 0
    for count in rows:
        numbers.append(number)
        held += count
        if held >= FEWEST:
            held, number = 0, number + 1
    return [min(n, max(number - 1, 0)) for n in numbers]  # what is left at the end joins the last


def score_bins(sure: Tensor, yes: Tensor, weights: Tensor, most: int) -> ScoreBins:
    """Rows by their probability (B,) of what `yes` (B,) says is so, 0 or 1."""
    place = places(sure, most)
    rows, heavy = _sums(place, torch.ones_like(sure)), _sums(place, weights)
    lowest = torch.full_like(rows, 1.0).scatter_reduce(0, place, sure, "amin")
    return {
        "rows": [int(n) for n in rows.tolist()],
        "yes": _rounded(_sums(place, weights * yes)),
        "no": _rounded(_sums(place, weights * (1 - yes))),
        "mean": _rounded(_ratio(_sums(place, weights * sure), heavy)),
        "lowest": [round(value, 4) for value in lowest.tolist()],  # of one row, hence rounded
    }


def number_binned(said: Tensor, true: Tensor, weights: Tensor, deviance: bool) -> NumberBinned:
    """One number (B,) that was predicted."""
    residual = deviance_residuals(said, true) if deviance else true - said
    place = places(said, TENTHS if deviance else TWENTIETHS)
    heavy = _sums(place, weights)
    middle = _ratio(_sums(place, weights * residual), heavy)
    spread = _ratio(_sums(place, weights * (residual - middle[place]).square()), heavy).sqrt()
    apart = float(true.std(unbiased=False))  # the digits that count are those in which rows differ
    bins: NumberBins = {
        "rows": [int(n) for n in _sums(place, torch.ones_like(said)).tolist()],
        "predicted": _rounded(_ratio(_sums(place, weights * said), heavy), apart),
        "actual": _rounded(_ratio(_sums(place, weights * true), heavy), apart),
        "residual": _rounded(middle),
        "spread": _rounded(spread),
    }
    return {"bins": bins, "residuals": histogram(residual), "quantiles": _quantiles(residual)}


def deviance_residuals(said: Tensor, true: Tensor) -> Tensor:
    """How far counts (B,) are from their expectation, on the scale of the Poisson deviance."""
    mu = said.clamp(min=1e-300)
    return (true - mu).sign() * (2 * (torch.xlogy(true, true / mu) - true + mu)).clamp(min=0).sqrt()


def histogram(values: Tensor) -> Histogram:
    """How many rows have which value (B,), every row counting once."""
    middle, deviation = values.mean(), values.std(unbiased=False)
    steps = torch.arange(-REACH, REACH + STEP, STEP, dtype=torch.float64)
    edges = middle + deviation * steps
    rows = torch.bincount(torch.bucketize(values, edges, right=True), minlength=len(edges) + 1).tolist()
    numbers = _joined(rows)
    together = [0] * (numbers[-1] + 1)
    for number, count in zip(numbers, rows, strict=True):
        together[number] += count
    kept = [edge for edge, before, after in zip(edges.tolist(), numbers, numbers[1:], strict=False) if after > before]
    return {"edges": [_short(edge) for edge in kept], "rows": together}


def _quantiles(values: Tensor) -> list[list[float]]:
    """[share, value] of those beyond which enough rows lie."""
    shares = [share for share in QUANTILES if min(share, 1 - share) * len(values) >= FEWEST]
    found = np.quantile(values.numpy(), shares) if shares else ()  # torch's takes 16 million values at most
    return [[share, _short(float(value))] for share, value in zip(shares, found, strict=True)]


def _each(decided: Tensor, scores: Tensor, true: Tensor, weights: Tensor) -> list[KindScores]:
    """Every class against the rest, or every label: of decisions, scores and what is true, all (B, C)."""
    return [_kind(decided[:, k], scores[:, k], true[:, k], weights) for k in range(true.shape[1])]


def _kind(decided: Tensor, scores: Tensor, true: Tensor, weights: Tensor) -> KindScores:
    rows = int(true.sum())
    if min(rows, len(true) - rows) < FEWEST:
        return {"rows": None, "precision": None, "recall": None, "f1": None, "auc": None}
    hit, said, there = (float(weights @ part) for part in (decided * true, decided, true))
    return {
        "rows": rows,
        "precision": hit / said if said else None,
        "recall": hit / there if there else None,
        "f1": 2 * hit / (said + there) if said + there else None,
        "auc": float(area(scores, true, weights[None])[0]),
    }


def _sums(place: Tensor, values: Tensor) -> Tensor:
    """(bins,) of values (B,)."""
    return torch.zeros(int(place.max()) + 1, dtype=torch.float64).index_add(0, place, values.double())


def _ratio(part: Tensor, whole: Tensor) -> Tensor:
    return part / whole.clamp(min=1e-300)  # a bin of rows without weight


def _rounded(values: Tensor, apart: float = 0.0) -> list[float]:
    return [_short(value, apart) for value in values.nan_to_num().tolist()]  # a guess may be infinite; a page may not


def _short(value: float, apart: float = 0.0) -> float:
    """To the digits that count, of the number or, where numbers far from 0 are told apart, of their distance."""
    far = abs(value) / apart if apart > 0 else 1.0
    digits = DIGITS + max(0, math.ceil(math.log10(max(far, 1.0))))
    return float(f"{value:.{digits}g}") if abs(value) < 1e5 or value != int(value) else value
