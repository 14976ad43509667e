"""The question to a candidate: noisy labels of some rows, and other rows to score. Made at the label holder.

    told      rows whose labels are sent, by randomised response, drawn once for all candidates
    judged    as many other rows, whose labels are not sent: the candidate's scores of these are judged

Nothing a candidate answers about told rows would prove anything, since whoever repeats the labels it got looks
knowledgeable; so it is not asked about them. Of numbers and counts one bit is told, whether the label is above the
median of the judged rows, and no number.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from colonnade.errors import ConfigError, DataError
from colonnade.joining.sides import with_sides
from colonnade.privacy.gate import CoordinatorGate
from colonnade.privacy.labels.settings import LabelSettings, check_counted, check_split_alone, open_labels
from colonnade.privacy.ledger import Ledger
from colonnade.privacy.sealed import Release
from colonnade.randomness import stream
from colonnade.tasks import Task
from colonnade.tasks.binary import Binary
from colonnade.wire.messages import Purpose, Query, Request

NUMBER = 1  # of the one round that a question is
ROWS = 4000  # told by default, and as many judged
FEWEST = 100  # of either
EPSILON = 1.0
ABOVE = "above the median of the rows that are judged"


@dataclass(frozen=True)
class Labelled:
    """What the label holder has, by row number; it stays there."""

    values: Tensor = field(repr=False)  # (N,) or (N, K)
    task: Task
    rows: Tensor = field(repr=False)  # that may train: validation and test rows are not touched
    weights: Tensor | None = field(default=None, repr=False)  # (N,) how much each row counts; None: all alike
    stratified: bool = False  # the rows were split by counting labels


@dataclass(frozen=True)
class Sample:
    """Row numbers, ascending; no row is in both."""

    told: Tensor = field(repr=False)
    judged: Tensor = field(repr=False)


@dataclass(frozen=True)
class Question:
    """What leaves the label holder, and what it is about."""

    sample: Sample
    task: Task  # of what was told: the labels' own, or above and below the median, and whether sides agree
    epsilon: float
    release: Release = field(repr=False)
    sides: int = 0  # columns of the label holder whose sides were told, too

    @property
    def cut(self) -> bool:
        """Whether numbers became yes and no."""
        return bool(self.task.positive == ABOVE)


def draw_sample(rows: Tensor, most: int, seed: int) -> Sample:
    """`most` rows to tell and as many to judge by, or half of the rows each where they are fewer.

    Raises:
        ConfigError: `most` is no number of rows.
        DataError: there are too few rows.
    """
    if isinstance(most, bool) or not isinstance(most, int) or most < FEWEST:
        raise ConfigError(
            f"rows = {most!r}: needed a whole number of {FEWEST} or more rows whose noisy labels are sent"
        )
    if len(rows) < 2 * FEWEST:
        raise DataError(
            f"an estimate needs {2 * FEWEST} labelled training rows, half to send noisy labels of and half to judge "
            f"by; there are {len(rows)}"
        )
    mixed = rows[torch.from_numpy(stream(seed, "worth rows").permutation(len(rows)))]
    size = min(most, len(rows) // 2)
    return Sample(mixed[:size].sort().values, mixed[size : 2 * size].sort().values)


def told_labels(labelled: Labelled, sample: Sample) -> tuple[Tensor, Task]:
    """What is told of each row, before noise: the label, or of a number whether it is above the median."""
    values, task = labelled.values, labelled.task
    if task.label_noise is not None:
        return values, task
    if task.outputs > 1:
        raise ConfigError(f"a {task.words} task with {task.outputs} numbers per row has no one bit to tell; choose one")
    first = values.reshape(len(values), -1)[:, :1].double()
    above = (first > first[sample.judged].median()).double()
    return above, Binary(1, positive=ABOVE)


def ask(
    name: str,
    candidates: tuple[str, ...],
    labelled: Labelled,
    sample: Sample,
    epsilon: float,
    key: int,
    ledger: Ledger,
    sides: Tensor | None = None,
) -> Question:
    """Make the question, the same for all candidates, and write what it releases into the ledger.

    Args:
        name: of the federation or run.
        candidates: who may read it.
        labelled: the labels; of those that are told, only noisy ones leave.
        sample: which rows.
        epsilon: of one row's whole label, delta 0.
        key: of the noise: secret, and for these labels only. The same key and sample ask the same again.
        ledger: of the label holder.
        sides: (N, G) of columns of the label holder, where interactions are asked for; None: they are not.
    """
    settings = LabelSettings(mechanism="randomised_response", epsilon=_checked(epsilon), uniform_rounds=0)
    check_counted(labelled.task.positive, settings)
    check_split_alone(labelled.stratified, settings)
    said, meaning = told_labels(labelled, sample)
    if sides is not None:
        said, meaning = with_sides(said, meaning, sides)
    labels = open_labels(said, meaning, sample.told, settings, key)
    targets = labels.compact(sample.told)
    if not meaning.exclusive:
        targets = targets.bool()  # travels as bits
    queries = (Query(Purpose.TRAIN, candidates, sample.told), Query(Purpose.EVALUATE, candidates, sample.judged))
    gate = CoordinatorGate(name, ledger, candidates, (), labels)
    down = gate.release(Request(NUMBER, queries, candidates), {"targets": targets}, ())
    return Question(sample, meaning, epsilon, down.everyone, 0 if sides is None else sides.shape[1])


def _checked(epsilon: float) -> float:
    if isinstance(epsilon, bool) or not isinstance(epsilon, (int, float)) or not 0 < epsilon < float("inf"):
        raise ConfigError(f"epsilon = {epsilon!r}: needed a finite number above 0, for instance 1.0")
    return float(epsilon)
