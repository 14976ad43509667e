"""Scores of a model, counted: those of the test rows when it was trained, and those of predictions, day by day.

    <run's folder>/scores.json    counts in the same bins; no row, no id

Test rows and not validation rows are what the served ones are held against: the kept round was chosen by the latter.
Counts are kept in memory and written once a minute and at the end, so that a prediction does not wait for the disk; a
process that is killed loses the last minute of them, and nothing else.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from colonnade.data.drift import Counted
from colonnade.errors import RunError
from colonnade.evaluate.answers import Evaluated
from colonnade.folder import claimed
from colonnade.model import Model
from colonnade.predict import Prediction
from colonnade.psi import Shift
from colonnade.tasks import Task
from colonnade.written import replace_file

FILE = "scores.json"
FORMAT = 1
EVERY = 60.0  # seconds between two writings
KEPT = 400  # days
A_DAY = 86400.0  # seconds


@dataclass(frozen=True)
class Scores:
    """What is kept of a model's scores."""

    outputs: tuple[Counted, ...]  # one per class or number, of the test rows
    served: Mapping[str, list[list[int]]] = field(default_factory=dict)  # by day, counts of each output

    def shifts(self, days: float, clock: float) -> list[Shift]:
        """How far the scores of predictions of the last days have moved."""
        first = _day(clock - days * A_DAY)
        found = [counts for day, counts in self.served.items() if day > first]
        moved = []
        for at, output in enumerate(self.outputs):
            now = np.array([[0] * len(output.counts), *(counts[at] for counts in found)]).sum(axis=0)
            moved.append(Shift.of(output.name, np.array(output.counts), now))
        return moved

    def to_json(self) -> dict[str, object]:
        """Plain values."""
        return {"format": FORMAT, "outputs": [asdict(one) for one in self.outputs], "served": dict(self.served)}


def read_scores(folder: Path) -> Scores | None:
    """Those of a run's folder; None: they were not counted."""
    try:
        said = json.loads((folder / FILE).read_text(encoding="utf-8"))
        if said["format"] != FORMAT:
            raise ValueError(f"its format is {said['format']!r}, known is {FORMAT}")
        outputs = tuple(
            Counted(str(one["name"]), "number", tuple(map(int, one["counts"])), tuple(map(float, one["cuts"])))
            for one in said["outputs"]
        )
        served = {str(day): [[int(n) for n in one] for one in counts] for day, counts in said["served"].items()}
        shape = [len(one.counts) for one in outputs]
        if any([len(one) for one in counts] != shape for counts in served.values()):
            raise ValueError("its bins do not fit")
        return Scores(outputs, served)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        why = f"{folder / FILE} cannot be read ({error}); remove it: only the counts of scores are lost"
        raise RunError(why) from None


def count_tested(folder: Path, tested: Evaluated, classes: Sequence[object]) -> None:
    """Keep how the scores of the test rows are distributed, once."""
    if (folder / FILE).exists():
        return
    values = _scores(tested.task, tested.answers.calibrated)
    names = _names(classes, values.shape[1])
    outputs = tuple(Counted.numbers(name, "number", values[:, at]) for at, name in enumerate(names))
    _write(folder, Scores(outputs))


class Served:
    """Counts the scores of predictions of one run; calls come from one thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: Scores | None = None
        with suppress(RunError):  # `colonnade drift` says so: a prediction does not depend on it
            self._known = read_scores(folder)
        self._days: dict[str, list[np.ndarray[Any, Any]]] = {}
        self._written = time.monotonic()

    def add(self, model: Model, found: Prediction) -> None:
        """Count what was answered."""
        if self._known is None:
            return
        values = _scores(model.task, model.answers(found.logits, None, found.complete).calibrated)
        day, outputs = _day(time.time()), self._known.outputs
        new = [np.array(one.of_numbers(values[:, at])) for at, one in enumerate(outputs)]
        before = self._days.get(day)
        self._days[day] = new if before is None else [a + b for a, b in zip(before, new, strict=True)]
        if time.monotonic() - self._written > EVERY:
            self.write()

    def write(self) -> None:
        """Add what was counted to the file."""
        if not self._days:
            return
        with suppress(RunError), claimed(self._folder / ".scores"):  # a prediction does not depend on it
            known = read_scores(self._folder)
            if known is not None:
                served = {day: [np.array(one) for one in counts] for day, counts in known.served.items()}
                for day, new in self._days.items():
                    old = served.get(day)
                    served[day] = new if old is None else [a + b for a, b in zip(old, new, strict=True)]
                kept = sorted(served)[-KEPT:]
                _write(self._folder, Scores(known.outputs, {day: [c.tolist() for c in served[day]] for day in kept}))
        self._days, self._written = {}, time.monotonic()


def _write(folder: Path, scores: Scores) -> None:
    try:
        replace_file(folder / FILE, (json.dumps(scores.to_json()) + "\n").encode(), mode=0o600)
    except OSError as error:
        raise RunError(f"{folder / FILE} cannot be written: {error.strerror}") from None


def _scores(task: Task, outputs: Tensor) -> np.ndarray[Any, Any]:
    """(B, K) probabilities, or the numbers that are predicted."""
    with torch.no_grad():
        return np.asarray(task.mean(outputs.double()).cpu().numpy(), dtype=np.float64)


def _names(classes: Sequence[object], outputs: int) -> list[str]:
    named = [str(name) for name in classes][-outputs:]
    return named if len(named) == outputs else [f"output {at}" for at in range(outputs)]


def _day(clock: float) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(clock))
