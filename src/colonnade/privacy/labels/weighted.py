"""Labels whose rows count differently: by a number of the label holder's for each row, by class, or by both.

The weight of a class is taken of the targets that training sees, w = targets . class weights. Behind a label mechanism
these are beliefs, made from the noisy label, so a weight tells nothing that the noisy label does not.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from colonnade.errors import ConfigError
from colonnade.privacy.labels import Labels
from colonnade.privacy.labels.around import AroundLabels
from colonnade.privacy.labels.settings import LabelSettings
from colonnade.tasks.weights import BALANCED, ClassWeights, class_weights


@dataclass(frozen=True)
class WeightedLabels(AroundLabels):
    """Labels as they are inside, and weights with mean 1 over the training rows; with a mechanism, of classes only."""

    rows: Tensor | None = field(repr=False)  # (N,) float64, each row's own; None: all alike
    classes: Tensor | None = field(repr=False)  # (C,) float64; None: all alike
    scale: float = 1.0

    def weights(self, rows: Tensor, targets: Tensor) -> Tensor:
        """(B,) in the dtype of the targets."""
        found = torch.full((len(targets),), self.scale, dtype=torch.float64, device=targets.device)
        if self.rows is not None:
            found = found * self.rows[rows.to(self.rows.device)]
        if self.classes is not None:
            found = found * (self.task.by_class(targets.double()) @ self.classes)
        return found.to(targets.dtype)


def weigh(
    labels: Labels,
    rows: Tensor | None,
    classes: ClassWeights | None,
    truth: Tensor,
    train: Tensor,
    settings: LabelSettings,
) -> Labels:
    """The labels with weights, if there are any.

    Args:
        labels: as training may see them.
        rows: (N,) weights of the rows; None: all alike.
        classes: weights of the classes; None: all alike.
        truth: plain labels by row number, which only "balanced" counts, and only where they are not protected.
        train: rows that train and have a label: over these the mean weight is 1.
        settings: how labels are protected.

    Raises:
        ConfigError: the task has no classes, or the weights would tell what the label mechanism hides.
    """
    if rows is None and classes is None:
        return labels
    _check_protected(rows, classes, settings)
    device = truth.device
    own = None if rows is None else rows.to(device, torch.float64)
    by_class = None
    if classes is not None:
        by_class = class_weights(labels.task, classes, truth[train.to(device)]).to(device)
    plain = WeightedLabels(labels, own, by_class)
    mean = float(plain.weights(train, labels.held_out(train).double()).mean())
    return WeightedLabels(labels, own, by_class, 1 / mean)


def _check_protected(rows: Tensor | None, classes: ClassWeights | None, settings: LabelSettings) -> None:
    if not settings.protects:
        return
    if rows is not None:
        raise ConfigError(
            f"label mechanism {settings.mechanism!r} does not cover weights of rows, which could tell labels; leave "
            "one of the two out (class_weights with numbers may stay)"
        )
    if classes == BALANCED:
        raise ConfigError(
            f"class_weights = 'balanced' counts the plain labels, which label mechanism {settings.mechanism!r} does "
            "not cover; give the weights as numbers, e.g. { yes = 5.0 }"
        )
