"""Task: what the labels of one kind mean, as one object; `tasks/` has one file for each kind.

Everything about a kind of label stands in its file: how labels are read, the loss, its z-step, what outputs say, how
good a constant guess is. Nothing outside `tasks/` asks which task it has; it asks the task.

All losses here belong to exponential families with their natural link, so that for every task

    loss(o, y) = A(o) - y . o + const        slope = mean(o) - y        mean = dA/do

which is why a sum of outputs over parties can be trained by ADMM with one z-step per row.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
import torch
from torch import Tensor

from colonnade.errors import ConfigError
from colonnade.record import TaskAbout

Array = np.ndarray[Any, Any]
Classes = int | Sequence[Any] | None  # how many, numbered from 0; or which, in their order (no, yes)
Pictures = Literal["", "scores", "classes", "labels", "numbers", "counts"]
Family = Literal["", "bernoulli", "multinomial", "normal", "poisson"]
T = TypeVar("T", bound="Task")
TEXT = "text"  # what labels are unless they were something else


@dataclass(frozen=True)
class Scaling:
    """How labels are scaled for training, and outputs scaled back: all (K,).

    targets = (labels - shift) / scale; outputs = trained outputs * back_scale + back_shift.
    """

    shift: Tensor
    scale: Tensor
    back_shift: Tensor
    back_scale: Tensor


@dataclass(frozen=True)
class Read:
    """Labels as training reads them, and the task they make."""

    values: Tensor = field(repr=False)  # (N,) classes 0..K-1, or (N, K) float64; a yes/no task: (N, 1) zeros and ones
    task: Task


@dataclass(frozen=True)
class Task(ABC):
    """One kind of label, with the facts about these labels.

    Shapes: an *output* row has `outputs` numbers, (..., B, K); *targets* (B, K) are what training compares them with;
    *truth* is labels as `Read.values` has them.
    """

    name: ClassVar[str]  # what settings and stored runs call it
    words: ClassVar[str]  # what people call it: "a ... task"
    metric: ClassVar[str]  # chooses the kept round unless `training.metric` says otherwise
    loss_metric: ClassVar[str] = ""  # the metric that is the loss, where `metric` is not
    former_metric: ClassVar[str] = ""  # judged runs of version 0.1, which did not say it; empty: `metric`
    metrics: ClassVar[tuple[str, ...]] = ()  # all that are recorded; others may say that they are for this task, too
    exclusive: ClassVar[bool] = False  # outputs are classes of which exactly one is true
    one_class: ClassVar[bool] = False  # each row has exactly one class, which may have a weight
    pictures: ClassVar[Pictures] = ""  # what a report shows of the test rows; empty: the metrics alone
    family: ClassVar[Family] = ""  # of its loss: a local model may know it by this name; empty: least squares will do
    label_noise: ClassVar[Literal["classes", "flags"] | None] = None  # what a label mechanism can hide; None: nothing

    outputs: int
    names: tuple[str, ...] = ()  # of the classes, (no, yes) for yes/no, of several labels; empty: 0, 1, ...
    kind: str = TEXT  # what the labels were that `names` writes as text, so that predictions equal them
    positive: str = ""  # of yes/no: by which rule the second class counts as yes

    # -- reading ------------------------------------------------------------------------------

    @classmethod
    @abstractmethod
    def read(cls, seen: Array, classes: Classes) -> Read:
        """Labels as numbers; `DataError` where they are not of this kind.

        Args:
            seen: (N,) or (N, K) numbers, booleans or text, finite, at least one row.
            classes: which classes there are, where some may have no row here; None: those that occur.
        """

    def again(self, seen: Array) -> Tensor:
        """Labels of other rows of this task, as `Read.values` has them; they may be of one class only."""
        classes = (self.names or len(self.classes)) if self.classes and not self.several() else None
        return self.read(seen, classes).values

    @classmethod
    def several(cls) -> bool:
        """Whether a row may have several labels, each in a column of its own."""
        return False

    # -- training -----------------------------------------------------------------------------

    @abstractmethod
    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The loss of every cell (..., B, K); their sum over a row is the row's loss, up to a constant."""

    def loss(self, outputs: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        """The loss of all rows, summed; `weights` (B,) of the rows."""
        cells = self.losses(outputs, targets)
        return cells.sum() if weights is None else (cells * weights.to(cells.dtype)[:, None]).sum()

    @abstractmethod
    def mean(self, outputs: Tensor) -> Tensor:
        """What outputs say that targets are on average (..., K)."""

    @abstractmethod
    def spread(self, outputs: Tensor) -> Tensor:
        """How `mean` changes with the output of its own place (..., K); classes pull on each other besides."""

    def slope(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Derivative of each row's loss in its outputs (..., B, K)."""
        return self.mean(outputs) - targets

    def curvature(self, outputs: Tensor) -> Tensor:
        """How strongly the loss bends in each output (..., K), where outputs are moved one by one and all at once."""
        return self.spread(outputs)

    def curvature_of(self, gap: Tensor) -> Tensor | None:
        """The same from gap = targets - mean (..., K) alone, if targets are 0 or 1 or numbers; None: it needs more."""
        return None

    @abstractmethod
    def prox(self, total: Tensor, dual: Tensor, targets: Tensor, rho: float | Tensor) -> Tensor:
        """The z-step: argmin_z loss(z, y) - dual . z + rho/2 |z - total|^2 of each row; all (B, K).

        `rho` may be one number per row (B, 1).
        """

    def scaling(self, values: Tensor) -> Scaling | None:
        """How to scale labels with these training values (R, K); None: not at all."""
        return None

    def smoothed(self, targets: Tensor, smoothing: float) -> Tensor:
        """Targets with a little weight on every class, a regulariser; tasks without classes keep theirs."""
        return targets

    def compact(self, values: Tensor) -> Tensor:
        """Labels (or scaled labels) in a small form that can travel; `expand` reads it."""
        return values.to(torch.float32)

    def expand(self, compact: Tensor, dtype: torch.dtype) -> Tensor:
        """Targets (B, K) from compact labels."""
        return compact.to(dtype)

    def by_class(self, targets: Tensor) -> Tensor:
        """(B, C) how much of a row is of each class, in the order of `classes`; only where each row has one class."""
        return targets

    @abstractmethod
    def notes(self, total: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """How well the rows of a round are predicted already, by its name; targets as training has them."""

    @abstractmethod
    def pseudo(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """A model's own labels (B, K) as targets, and how sure it is of each row (B,), 0 to 1; 0: it never is."""

    # -- label privacy --------------------------------------------------------------------------

    @property
    def label_distance(self) -> float:
        """The L1 distance of the two most different targets of a row: what label noise must hide."""
        return float(self.outputs)

    # -- answers ------------------------------------------------------------------------------

    @property
    def classes(self) -> tuple[Any, ...]:
        """The classes in the order of `probabilities`, as the labels were; the labels of several; none for numbers."""
        return ()

    def codes(self, outputs: Tensor) -> Tensor:
        """Decisions from outputs: class numbers (B,), zeros and ones (B, K), or numbers (B, K)."""
        return self.mean(outputs)

    def moved(self, outputs: Tensor, threshold: float) -> Tensor:
        """Outputs that are decided for a yes where its probability is above a threshold; for yes/no tasks only."""
        raise ConfigError(f"threshold = {threshold!r} is for a yes/no task; this is a {self.words} task")

    @abstractmethod
    def decide(self, outputs: Tensor) -> Array:
        """Predictions: classes (B,) as the labels were, zeros and ones (B, K) of several labels, or numbers."""

    @abstractmethod
    def probabilities(self, outputs: Tensor) -> Array:
        """(B, K), one column per class in the order of `classes`; `ConfigError` where there are none."""

    # -- how good -----------------------------------------------------------------------------

    def shares(self, truth: Tensor, weights: Tensor | None = None) -> Tensor:
        """(K,) the mean of the targets of these labels: of classes and flags how often each occurs.

        `weights` (N,) of the rows; None: all alike.
        """
        cells = self.expand(truth, torch.float64)
        if weights is None:
            return cells.mean(dim=0)
        heavy = weights.to(cells)[:, None]
        return (cells * heavy).sum(dim=0) / heavy.sum()

    @abstractmethod
    def constant(self, shares: Tensor) -> Tensor:
        """The outputs (K,) of whoever knows nothing but the shares and always says the same."""

    def known(self, truth: Tensor, shares: Tensor) -> str:
        """A warning, where rows to test on have labels that no training row had; empty: none."""
        return ""

    @abstractmethod
    def by_kind(self, outputs: Tensor, truth: Tensor) -> list[float]:
        """How good outputs are on each kind of row or label: accuracy of each class or label, R2 of each number."""

    @abstractmethod
    def kinds(self, truth: Tensor) -> tuple[list[int], list[str]]:
        """Each row's (N,) place among a few named kinds, for a picture, and their names; by the first label only."""

    # -- records ------------------------------------------------------------------------------

    def about(self) -> TaskAbout:
        """The task as a run stores it."""
        about: TaskAbout = {"task": self.name, "outputs": self.outputs, "class_names": list(self.names)}
        if self.names:
            about["class_kind"] = self.kind
        if self.positive:
            about["positive"] = {"class": [*self.names, "0", "1"][1], "why": self.positive}
        return about
