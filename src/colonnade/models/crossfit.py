"""CrossFit: J local models of each party of a cohort, each fitted without one fold of the training rows.

    a training row       the score of the model that has not seen it
    any other row        the mean of all J scores

A score of a row that trained the model is too good, and whoever weighs scores would trust it too much. Folds are drawn
from the run's seed and are the same for all parties, so that nobody's model of a fold has seen a label of that fold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from colonnade.errors import ConfigError
from colonnade.models.cohort import Cohort
from colonnade.models.computing import Computing
from colonnade.models.heads import apply_heads
from colonnade.models.increments import Increments
from colonnade.models.lesson import as_score, is_score
from colonnade.models.local import LOCAL, Explains, LocalModel, Regressor, Regressors
from colonnade.models.schema import Schema
from colonnade.models.stack import Mode, Way
from colonnade.randomness import stream

FOLD = LOCAL + "fold."  # before the names of a fold's tensors
NO_FOLD = -1  # of rows that do not train


def folds_of(schema: Schema, folds: int) -> Tensor:
    """(N,) the fold of each training row, equally many in each; -1 for other rows.

    Raises:
        ConfigError: there are too few training rows.
    """
    rows = len(schema.train)
    if rows < 2 * folds:
        raise ConfigError(f"{folds} folds need at least {2 * folds} training rows; there are {rows}")
    found = torch.full((schema.rows,), NO_FOLD, dtype=torch.int64)
    order = torch.from_numpy(stream(schema.seed, "folds").permutation(rows))
    found[schema.train.cpu()] = order % folds
    return found


class CrossFit:
    """The models of all folds as one `LocalModel`, whose output is the mean score; with heads inside."""

    gradients = False  # nobody moves the mean of several models
    parameters: dict[str, Tensor]
    buffers: dict[str, Tensor]

    def __init__(self, members: Sequence[Cohort]) -> None:
        """Of cohorts with equal parties, one for each fold; each has its local models and heads."""
        self.members = list(members)
        self.parameters, self.buffers = {}, {}
        first = self.members[0].encoder
        self.way: Way = first.way
        self.computing: Computing = first.computing

    def output(self, x: Tensor, mode: Mode) -> Tensor:
        """(P, B, K): the mean of the scores, whatever the mode: nobody learns from it."""
        return torch.stack([scores(member, x) for member in self.members]).mean(dim=0)

    def out_of_fold(self, x: Tensor, folds: Tensor) -> Tensor:
        """(P, B, K): each row's score by the model that was fitted without its fold (B,); the mean for rows of none."""
        schema = self.members[0].schema
        found = torch.zeros(*x.shape[:2], schema.outputs, dtype=schema.dtype, device=x.device)
        for fold in range(NO_FOLD, len(self.members)):
            at = (folds == fold).nonzero()[:, 0].to(x.device)
            if len(at):
                some = x.index_select(1, at)
                told = self.output(some, Mode.PREDICT) if fold == NO_FOLD else scores(self.members[fold], some)
                found[:, at] = told
        return found

    def explained(self) -> MeanOfFolds | None:
        """What says what each column of the first party adds to its score; None: its models do not say so."""
        task = self.members[0].schema.task
        encoders = [member.encoder for member in self.members]
        models = [encoder.members[0] for encoder in encoders if isinstance(encoder, Regressors)]
        told = [model for model in models if isinstance(model, Explains) and is_score(model, task)]
        return MeanOfFolds(told) if len(told) == len(encoders) else None

    def tensors(self) -> dict[str, Tensor]:
        """Models and heads of all folds."""
        return {
            f"{FOLD}{fold}.{name}": value
            for fold, member in enumerate(self.members)
            for name, value in member.model().items()
            if not name.startswith("scaling.")
        }

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Put models and heads back."""
        for fold, member in enumerate(self.members):
            start = f"{FOLD}{fold}."
            member.restore({name.removeprefix(start): v for name, v in tensors.items() if name.startswith(start)})

    def pick(self, index: Sequence[int]) -> CrossFit:
        """A copy with some of the parties."""
        return CrossFit([member.pick(index) for member in self.members])

    def put(self, index: Sequence[int], part: CrossFit) -> None:
        """Write a picked copy back into its places."""
        for member, theirs in zip(self.members, part.members, strict=True):
            member.put(index, theirs)

    def blank(self) -> CrossFit:
        """A copy that knows nothing of any party's numbers."""
        return CrossFit([member.blank() for member in self.members])


class MeanOfFolds:
    """The contributions of several models to their mean (it `Explains`)."""

    def __init__(self, models: Sequence[Explains]) -> None:
        self.models = list(models)
        self.counts_from = getattr(models[0], "counts_from", None) if models else None

    def contributions(self, x: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
        """The mean of what they say."""
        found = [model.contributions(x, start) for model in self.models]
        return torch.stack([values for values, _ in found]).mean(dim=0), torch.stack([b for _, b in found]).mean(dim=0)


def scores(cohort: Cohort, x: Tensor) -> Tensor:
    """(P, B, K) what the models of one fold say."""
    with torch.no_grad():
        out = apply_heads(cohort.head, cohort.encode(x, Mode.PREDICT))
    if isinstance(cohort.encoder, Regressors):
        task = cohort.schema.task
        out = torch.stack([as_score(model, task, out[k]) for k, model in enumerate(cohort.encoder.members)])
    return out


def regressors_of(models: LocalModel) -> list[Regressor]:
    """The local models of a cohort that are no networks: of all folds, or as increments begin, where there are any."""
    if isinstance(models, Increments):
        return models.first
    if isinstance(models, CrossFit):
        return [model for member in models.members for model in regressors_of(member.encoder)]
    return list(models.members) if isinstance(models, Regressors) else []
