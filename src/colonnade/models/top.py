"""Trees on top of a linear stack, for what no sum of scores can say.

    F(c, s) = margin(s) + T(c, s)

with scores s of all parties and columns c of one of them. T are boosted trees, grown by LightGBM from the margin (its
`init_score`) and by the loss of the task: what the stack says already is no news to them. T is the mean of three
models, each grown without a third of the rows, which says how many trees are useful. If the loss of all rows, each by
the model that has not seen it, is not lower than that of the stack by more than chance would make it, T is zero and the
stack stays as it is: few rows have little to say that scores do not, and trees find something in any.

Every output has trees of its own, classes share one model. What is kept is LightGBM's own text. The same rows, in the
same order, give the same trees: seeds come from the run, and there is one thread.
"""

from __future__ import annotations

import functools
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from colonnade.extras import need
from colonnade.models.trees import BETWEEN, CLASSES, FEWEST, FIXED, HARD, OBJECTIVES, SHARE, TreeSettings, Values
from colonnade.randomness import key, stream
from colonnade.tasks import Task

FOLDS = 3  # models for each output; on validation rows better than one, and their judgement much better than a tenth's
HOW = TreeSettings(rate=0.05)  # the slower rate was better on validation rows; all else is as at the parties
SURE = 2.0  # standard errors of the mean gain that trees must bring; in trials those with less lost as often as not
REMEMBERED = 64  # models that are not read again from their text


def lightgbm() -> Any:
    """The library, or `DataError` with what to install."""
    return need("lightgbm", extra="trees", purpose="stack = 'trees'")


def grow_top(task: Task, x: Tensor, margin: Tensor, targets: Tensor, counts: Tensor | None, seed: int) -> str:
    """The trees as text; empty: none is useful.

    Args:
        task: what the labels are.
        x: (B, D) columns and scores.
        margin: (B, K) where the trees start from.
        targets: (B, K) the labels.
        counts: (B,) how much each row counts; None: all alike.
        seed: of the folds, and of LightGBM.
    """
    table, start, y = (value.detach().double().cpu().numpy() for value in (x, margin, targets))
    if len(table) < 2 * FOLDS:
        return ""
    folds = stream(seed, "folds of a top").permutation(len(table)) % FOLDS
    heavy = None if counts is None else counts.double().cpu().numpy()
    rows = _Rows(task, table, heavy, folds, seed)
    if task.exclusive:
        texts = rows.grown(CLASSES, start, y, 0)
    else:
        objective = HARD if task.family == "bernoulli" else OBJECTIVES[task.family]
        each = [rows.grown(objective, start[:, [k]], y[:, [k]], k) for k in range(y.shape[1])]
        texts = [text for several in each for text in several]
    return BETWEEN.join(texts) if any(texts) else ""


def top_output(text: str, x: Tensor, outputs: int) -> Tensor:
    """(B, K) in float64 on the CPU: what the trees add for columns and scores x (B, D)."""
    found = np.zeros((len(x), outputs))
    table = x.detach().double().cpu().numpy()
    for place, model in enumerate(_read(text) if text and len(x) else ()):
        if model is not None:
            told = _told(model, table)
            at = slice(None) if told.shape[1] > 1 else slice(place // FOLDS, place // FOLDS + 1)
            found[:, at] += told / FOLDS
    return torch.from_numpy(found)


@functools.lru_cache(maxsize=REMEMBERED)
def _read(text: str) -> tuple[Any, ...]:
    """The models, fold by fold and output by output; None where there is none."""
    library = lightgbm()
    return tuple(library.Booster(model_str=one) if one else None for one in text.split(BETWEEN))


def _told(model: Any, table: Values) -> Values:
    """(B, 1) of one output, (B, K) of classes."""
    told: Values = model.predict(table, raw_score=True, num_threads=HOW.threads)
    return told.reshape(len(table), -1)


@dataclass(frozen=True)
class _Rows:
    """Rows that learn and judge."""

    task: Task
    table: Values  # (B, D)
    counts: Values | None  # (B,)
    folds: Values  # (B,)
    seed: int

    def grown(self, objective: str, start: Values, y: Values, output: int) -> list[str]:
        """Models for targets y (B, 1), or for classes y (B, K), as LightGBM's texts; empty ones: they are of no use."""
        added, texts = np.zeros_like(start), []
        for fold in range(FOLDS):
            held = self.folds == fold
            texts.append(self._without(held, objective, start, y, key(self.seed, "top", str(output), fold) % 2**31))
            added[held] = _told(lightgbm().Booster(model_str=texts[-1]), self.table[held])
        gain = self._losses(start, y) - self._losses(start + added, y)
        chance = float(gain.std(unbiased=False)) * len(gain) ** 0.5
        return texts if float(gain.sum()) > SURE * chance else [""] * FOLDS

    def _without(self, held: Values, objective: str, start: Values, y: Values, seed: int) -> str:
        """A model that some rows do not teach, but tell when to stop."""
        library = lightgbm()
        parameters = FIXED | {
            "objective": objective,
            "learning_rate": HOW.rate,
            "num_leaves": HOW.leaves,
            "lambda_l2": HOW.l2,
            "min_data_in_leaf": min(HOW.smallest_leaf, max(FEWEST, int((~held).sum()) // SHARE)),
            "feature_fraction": HOW.columns,
            "max_bin": HOW.bins,
            "num_threads": HOW.threads,
            "seed": seed,
        }
        wanted, first = y[:, 0], start[:, 0]
        if objective == CLASSES:
            parameters["num_class"], wanted, first = y.shape[1], y.argmax(axis=1), start

        def part(rows: Values, of: Any = None) -> Any:
            heavy = None if self.counts is None else self.counts[rows]
            given = {"label": wanted[rows], "weight": heavy, "init_score": first[rows], "reference": of}
            return library.Dataset(self.table[rows], params=parameters, **given)

        learning = part(~held)
        judging, stop = [part(held, learning)], [library.early_stopping(HOW.patience, verbose=False)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that no split is left is no news
            model = library.train(parameters, learning, HOW.most, valid_sets=judging, callbacks=stop)
        return str(model.model_to_string(num_iteration=model.best_iteration or None))

    def _losses(self, outputs: Values, y: Values) -> Tensor:
        """(B,) the loss of each row, as it counts."""
        cells = self.task.losses(torch.from_numpy(outputs), torch.from_numpy(y))
        return cells.sum(dim=1) * (1.0 if self.counts is None else torch.from_numpy(self.counts))
