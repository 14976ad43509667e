"""What is doubtful about labels, and about columns beside them: looked at by the label holder alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from torch import Tensor

from colonnade.data.inspect import Finding
from colonnade.data.kinds import NUMBER, Levels, is_categorical, kind_of
from colonnade.tasks import Task

FEW = 20  # rows of a class below which nothing can be learned about it, and little be measured
RARE = 0.1  # of an even share of the rows, below which a model may never predict a class: 5 % of two classes
TELLS_ALL = 0.995  # how well one column alone may rank or tell the label before it looks like the label itself
ROWS_PER_LEVEL = 5  # categories with fewer rows tell every label by chance


def inspect_labels(task: Task, labels: Tensor) -> Iterator[Finding]:
    """Class balance: a note for all, a warning where a class is too small.

    Args:
        task: what the labels are.
        labels: the known ones, (N,) or (N, 1) classes by number.
    """
    if not task.classes or task.several():
        return
    counts = np.bincount(labels.flatten().long().numpy(), minlength=len(task.classes))
    total = int(counts.sum())
    told = ", ".join(f"{name}: {count:,}" for name, count in zip(task.classes[:10], counts, strict=False))
    more = f" and {len(counts) - 10} more classes" if len(counts) > 10 else ""
    yield Finding("note", f"labels: {told}{more}")
    for name, count in zip(task.classes, counts, strict=True):
        if count < FEW:
            yield Finding(
                "warning",
                f"class {str(name)!r} has {count} of {total:,} rows; at least {FEW} are needed to learn and to measure "
                "it: join it with another class, or collect more",
            )
        elif count < RARE * total / len(counts):
            yield Finding("warning", _rare(task, str(name), int(count), total), answered_by=_answers(task))


def _answers(task: Task) -> tuple[str, ...]:
    """Settings of [training] for rare classes; only a yes/no task has a threshold."""
    return ("class_weights",) if task.exclusive else ("class_weights", "decision.decide_by")


def _rare(task: Task, name: str, count: int, total: int) -> str:
    told = f"class {name!r} is rare: {count:,} of {total:,} rows ({100 * count / total:.2g} %), so a model may never "
    if task.exclusive:
        return f'{told}predict it; set training.class_weights = "balanced", and judge by balanced_accuracy'
    return (
        f'{told}predict it at the threshold 0.5; set training.decision.decide_by = "f1" (validation rows choose the '
        'threshold) or training.class_weights = "balanced", and judge by auc or average_precision, not by accuracy'
    )


def inspect_leaks(party: str, frame: Any, task: Task, labels: Tensor) -> Iterator[Finding]:
    """Columns that tell the label alone.

    Only for columns of whoever holds the labels: of another party's columns this would be a release.

    Args:
        party: the label holder's name.
        frame: its columns, pandas.DataFrame with as many rows as labels, in the same order.
        task: what the labels are.
        labels: the known ones.
    """
    if labels.dim() > 1 and labels.shape[1] != 1:
        return
    y = labels.flatten().numpy()
    for name in frame.columns:
        how = _tells(frame[name], y, bool(task.classes), len(task.classes or ()))
        if how:
            yield Finding(
                "warning",
                f"party {party!r}, column {name!r} alone tells the label ({how}); if it is only known afterwards, drop "
                "it, or the model will not work on new rows",
                party,
                str(name),
            )


def _tells(column: Any, y: Any, classes: bool, count: int) -> str:
    known = column.notna().to_numpy()
    if known.sum() < 2 * ROWS_PER_LEVEL or len(np.unique(y[known])) < 2:
        return ""
    column, y = column[known], y[known]
    kind = kind_of(column)
    if kind == NUMBER and not is_categorical(column):
        values = column.to_numpy(dtype=np.float64)
        if not classes:
            return _correlated(values, y)
        return _ranked(values, y) if count == 2 else ""
    return _grouped(column, kind or "text", y) if classes else ""


def _correlated(values: Any, y: Any) -> str:
    if values.std() == 0 or y.std() == 0:
        return ""
    r = abs(float(np.corrcoef(values, y)[0, 1]))
    return f"correlation {r:.4f}" if r >= TELLS_ALL else ""


def _ranked(values: Any, y: Any) -> str:
    """The area under the ROC curve of the column itself, whichever way round."""
    from sklearn.metrics import roc_auc_score

    auc = float(roc_auc_score(y, values))
    auc = max(auc, 1 - auc)
    return f"AUC {auc:.4f}" if auc >= TELLS_ALL else ""


def _grouped(column: Any, kind: str, y: Any) -> str:
    """How often the most frequent class of a row's category is right."""
    levels = Levels.of(column, kind)
    if len(levels.texts) * ROWS_PER_LEVEL > len(y):
        return ""
    counts = np.zeros((len(levels.texts), int(y.max()) + 1))
    np.add.at(counts, (levels.codes, y.astype(np.int64)), 1)
    right, blind = counts.max(axis=1).sum() / len(y), counts.sum(axis=0).max() / len(y)
    return f"{right:.1%} right by its categories" if right >= TELLS_ALL and right > blind + (1 - blind) / 2 else ""
