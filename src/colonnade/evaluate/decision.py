"""Decision: how outputs of a yes/no model become calibrated probabilities, and from which probability on a yes is said.

Fitted by the label holder on the validation rows of the kept round, stored with its part of the model as plain numbers,
and used by every prediction. Nothing of it is sent to a party.

isotonic   a rising step function of the log odds, linear between its steps (as scikit-learn's IsotonicRegression)
platt      log odds * slope + offset, fitted to Platt's smoothed labels (Platt 1999)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor

from colonnade.config import Settings
from colonnade.errors import ConfigError, DataError
from colonnade.tasks import Task

EDGE = 1e-6  # calibrated probabilities stay so far from 0 and 1: their log odds are finite
BINS = 10  # of the calibration error
Array = np.ndarray[Any, Any]


class DecisionSettings(Settings):
    """Of yes/no tasks: how a yes is decided and probabilities are calibrated, both fitted on validation rows."""

    decide_by: Literal["f1", "cost", "share"] | None = Field(
        None,
        description="chooses the probability above which a yes is said: best F1, least cost, or a share; unset: 0.5",
    )
    false_positive: float = Field(1.0, gt=0, description="cost: of a yes that is a no")
    false_negative: float = Field(1.0, gt=0, description="cost: of a no that is a yes")
    yes_share: float | None = Field(
        None, gt=0, lt=1, description="share: how many rows are a yes, e.g. 0.1: the top 10 %"
    )
    calibration: Literal["isotonic", "platt"] | None = Field(None, description="corrects the probabilities; unset: not")

    @model_validator(mode="after")
    def _whole(self) -> DecisionSettings:
        if (self.decide_by == "share") != (self.yes_share is not None):
            raise ValueError("decide_by = 'share' and yes_share = 0.1 (how many are a yes) belong together")
        if self.decide_by != "cost" and self.model_fields_set & {"false_positive", "false_negative"}:
            usual = self.false_positive == self.false_negative == 1.0
            if not usual:
                raise ValueError("false_positive and false_negative are costs: they need decide_by = 'cost'")
        return self

    @property
    def asked(self) -> bool:
        """Whether anything is to be fitted."""
        return self.decide_by is not None or self.calibration is not None

    @property
    def needs_labels(self) -> bool:
        """Whether labels are needed: a share is counted on outputs alone."""
        return self.decide_by in ("f1", "cost") or self.calibration is not None


def check_decision(settings: DecisionSettings, task: Task, truth: Tensor, protected: bool, evaluates: bool) -> None:
    """Refuse before training what could not be fitted after it.

    Args:
        settings: what was asked for.
        task: of the labels.
        truth: (B, 1) labels of the validation rows.
        protected: labels are noised, for the parties cannot be told anything of the plain ones.
        evaluates: whether outputs of validation rows are ever seen.
    """
    if not settings.asked:
        return
    name = "decide_by" if settings.decide_by else "calibration"
    if not task.one_class or task.exclusive:
        raise ConfigError(f"training.decision.{name} is for a yes/no task; this is a {task.words} task")
    if not evaluates or not len(truth):
        raise ConfigError(
            f"training.decision.{name} is fitted on evaluated validation rows, and there are none; leave it out, or "
            "give some, with training.evaluate_every above 0 and evaluation allowed"
        )
    if protected and settings.needs_labels:
        raise ConfigError(
            f"training.decision.{name} needs plain labels, and these are protected: noisy ones would bias it; "
            "decide_by = 'share' needs none"
        )
    if settings.needs_labels and not bool((truth != truth[:1]).any()):
        raise DataError(
            f"training.decision.{name}: all {len(truth)} validation rows have one label; give them both, e.g. by a "
            "stratified split"
        )


@dataclass(frozen=True)
class Decision:
    """A fitted decision."""

    rows: int  # validation rows that it was fitted on
    by: str = ""  # f1, cost or share; empty: the threshold was not chosen
    threshold: float = 0.5  # of the calibrated probability
    calibration: str = ""  # isotonic or platt; empty: none
    points: tuple[tuple[float, float], ...] = field(default=(), repr=False)  # (log odds, probability); (slope, offset)

    def calibrated(self, outputs: Tensor) -> Tensor:
        """Outputs (B, 1) as log odds of calibrated probabilities; unchanged where there is no calibration."""
        if not self.calibration:
            return outputs
        odds = outputs.detach().cpu().double()
        if self.calibration == "platt":
            ((slope, offset),) = self.points
            return odds * slope + offset
        at, levels = np.array(self.points).T
        found = np.clip(np.interp(odds.numpy(), at, levels), EDGE, 1 - EDGE)
        return torch.from_numpy(found).logit()

    def decided(self, task: Task, outputs: Tensor, threshold: float | None = None) -> Tensor:
        """Outputs whose sign says yes or no, by the threshold of the model or another one."""
        chosen = self.threshold if threshold is None else threshold
        return task.moved(self.calibrated(outputs), chosen)

    def to_json(self) -> dict[str, object]:
        """Plain values."""
        return {**vars(self), "points": [list(point) for point in self.points]}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Decision:
        """The inverse of `to_json`."""
        points = tuple((float(a), float(b)) for a, b in values["points"])
        threshold, calibration = float(values["threshold"]), str(values["calibration"])
        if not 0 < threshold < 1 or (calibration and not points) or calibration not in ("", "isotonic", "platt"):
            raise ValueError(f"decision {threshold!r}, {calibration!r}")
        return cls(int(values["rows"]), str(values["by"]), threshold, calibration, points)


def fit_decision(
    settings: DecisionSettings, task: Task, outputs: Tensor, truth: Tensor, weights: Tensor | None = None
) -> Decision:
    """Calibrate first, then choose the threshold of the calibrated probabilities.

    Args:
        settings: what was asked for.
        task: yes/no.
        outputs: (B, 1) of the kept round on the validation rows.
        truth: (B, 1) zeros and ones.
        weights: (B,) of the rows; None: all alike.
    """
    odds = outputs.detach().cpu().double().numpy()[:, 0]
    yes = truth.detach().cpu().double().numpy()[:, 0]
    heavy = np.ones(len(yes)) if weights is None else weights.cpu().double().numpy()
    fitted = Decision(len(yes))
    if settings.calibration is not None:
        fit = _isotonic if settings.calibration == "isotonic" else _platt
        fitted = Decision(len(yes), calibration=settings.calibration, points=fit(odds, yes, heavy))
    if settings.decide_by is None:
        return fitted
    sure = task.mean(fitted.calibrated(outputs.detach().cpu().double())).numpy()[:, 0]
    threshold = choose_threshold(settings, sure, yes, heavy)
    return Decision(len(yes), settings.decide_by, threshold, fitted.calibration, fitted.points)


def choose_threshold(settings: DecisionSettings, sure: Array, yes: Array, weights: Array) -> float:
    """The best threshold between two neighbouring probabilities, below all, or above all; the highest of several.

    Args:
        settings: by what.
        sure: (B,) probabilities of a yes.
        yes: (B,) zeros and ones.
        weights: (B,) of the rows.
    """
    levels, place = np.unique(np.clip(sure, EDGE**2, 1 - 1e-12), return_inverse=True)
    ends = np.concatenate([[levels[0] / 2], (levels[1:] + levels[:-1]) / 2, [(1 + levels[-1]) / 2]])
    above = [_from(place, len(levels), weights * one) for one in (yes, 1 - yes)]  # weight said yes at each threshold
    hits, alarms = above
    if settings.decide_by == "f1":
        worth = 2 * hits / np.maximum(hits + alarms + (weights * yes).sum(), 1e-300)
    elif settings.decide_by == "cost":
        worth = -(settings.false_positive * alarms + settings.false_negative * (hits[0] - hits))
    else:
        worth = -np.abs((hits + alarms) / weights.sum() - (settings.yes_share or 0))
    best = np.flatnonzero(worth >= worth.max() - 1e-12)[-1]
    return float(ends[best])


def _from(place: Array, count: int, weights: Array) -> Array:
    """(count + 1,) the weight at or above each level; nothing above the last."""
    at = np.bincount(place, weights=weights, minlength=count)
    return np.concatenate([np.cumsum(at[::-1])[::-1], [0.0]])


def _isotonic(odds: Array, yes: Array, weights: Array) -> tuple[tuple[float, float], ...]:
    from sklearn.isotonic import IsotonicRegression  # slow to import

    fitted = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(odds, yes, weights)
    return tuple(zip(fitted.X_thresholds_.tolist(), fitted.y_thresholds_.tolist(), strict=True))


def _platt(odds: Array, yes: Array, weights: Array) -> tuple[tuple[float, float], ...]:
    """Newton's method on the log loss of labels that were moved a little towards each other."""
    ayes, noes = float((weights * yes).sum()), float((weights * (1 - yes)).sum())
    targets = np.where(yes > 0, (ayes + 1) / (ayes + 2), 1 / (noes + 2))
    rows = np.stack([odds, np.ones_like(odds)], axis=1)

    def loss(at: Array) -> float:
        line = rows @ at
        return float((weights * (np.logaddexp(0, line) - targets * line)).sum())

    at = np.array([0.0, np.log((ayes + 1) / (noes + 1))])
    for _ in range(100):
        p = 1 / (1 + np.exp(-np.clip(rows @ at, -500, 500)))
        slope = rows.T @ (weights * (p - targets))
        curve = (rows * (weights * p * (1 - p))[:, None]).T @ rows + 1e-10 * np.eye(2)
        step, length = np.linalg.solve(curve, slope), 1.0
        while loss(at - length * step) > loss(at) and length > 1e-10:
            length /= 2
        at = at - length * step
        if np.abs(slope).max() < 1e-9 * max(1.0, float(weights.sum())):
            break
    return ((float(at[0]), float(at[1])),)


def calibration_error(sure: Tensor, truth: Tensor, weights: Tensor | None = None) -> float:
    """The expected calibration error: how far mean probability and share of yes are apart in ten equal ranges."""
    p, y = sure.double().flatten(), truth.double().flatten()
    heavy = torch.ones_like(p) if weights is None else weights.double()
    place = (p * BINS).long().clamp(0, BINS - 1)
    apart = torch.zeros(BINS, dtype=torch.float64).index_add(0, place, heavy * (p - y))
    return float(apart.abs().sum() / heavy.sum())
