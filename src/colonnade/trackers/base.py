"""What all trackers share: which figures and settings may leave, and that none of them ends a training."""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeGuard

from colonnade.errors import TrackingEnded
from colonnade.live import figures

if TYPE_CHECKING:
    from colonnade.progress import Progress
    from colonnade.record import RunRecord
    from colonnade.run import Run

Setting = str | float | bool
SECTIONS = ("method", "model", "training", "privacy")  # [data] names columns and files
# Below other names stands what somebody else named: parties, classes, columns.
INNER = frozenset({
    "optimiser", "ridge", "trees", "head", "schedule", "stopping", "decision", "wire", "secure_sum", "labels",
})  # fmt: skip
# Texts that are words of ours. All others may be names of parties, columns, classes or files.
WORDS = frozenset({
    "name", "kind", "mechanism", "unit", "neighbours", "evaluation", "order", "shuffle", "dtype", "device", "engine",
    "metric", "encoder", "precision", "numbers",
})  # fmt: skip


def settings_of(record: RunRecord) -> dict[str, Setting]:
    """The settings of a run that may leave, by dotted name: numbers, yes and no, and words of ours.

    Under noise the seed does not: in a simulation the noise is drawn from it.
    """
    told: dict[str, object] = {section: record.get(section, {}) for section in SECTIONS}
    told["method"] = {**record["method"]["settings"], "name": record["method"]["name"]}
    found = {name: value for section, body in told.items() for name, value in _inside(section, body)}
    privacy = record.get("privacy", {})
    parts = (privacy, privacy.get("labels", {}))
    if any(part.get(name) is not None for part in parts for name in ("epsilon", "sigma")):
        found.pop("training.seed", None)
    return found


def _inside(prefix: str, body: object) -> Iterator[tuple[str, Setting]]:
    for name, value in body.items() if isinstance(body, Mapping) else ():
        if isinstance(value, Mapping):
            yield from _inside(f"{prefix}.{name}", value) if name in INNER else ()
        elif isinstance(value, bool) or _finite(value) or (isinstance(value, str) and name in WORDS):
            yield f"{prefix}.{name}", value


def results_of(record: RunRecord) -> dict[str, float]:
    """The figures at the end, by name; those of the test rows only where they were measured."""
    result, traffic = record["result"], record["traffic"]
    told = {
        f"validation {result.get('validation_metric', 'score')} of the kept round": result["validation_score"],
        f"test {result.get('metric', 'score')}": result["test_score"],
        "kept round": result["best_round"],
        "rounds": result["rounds"],
        "bytes": traffic["up"] + traffic["down"],
        "seconds": result["seconds"],
    }
    return _figures(told)


def _figures(told: Mapping[str, object]) -> dict[str, float]:
    return {name: float(value) for name, value in told.items() if _finite(value)}


def _finite(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and math.isfinite(value)


@dataclass
class Tracker(ABC):
    """A callback (`on_round`, `on_end`) that writes to a library; `open`, `write` and `close` are the library's."""

    _state: str = field(default="new", init=False, repr=False)  # then "open", at last "closed"
    _scored: int | None = field(default=None, init=False, repr=False)
    _round: int = field(default=0, init=False, repr=False)

    def on_round(self, progress: Progress) -> None:
        """Write a round: a score under the round after which it was measured, once."""
        told = figures(progress)
        values = _figures({name: told.get(name) for name in ("bytes", "seconds", "epsilon")})
        texts = {"epsilon": str(told["epsilon_is"])} if "epsilon" in values else {}

        def send() -> None:
            if progress.scored is not None and progress.scored != self._scored and _finite(progress.score):
                self._scored = progress.scored
                self.write({progress.judged: float(progress.score or 0.0)}, progress.scored, {})
            if progress.round > self._round:  # the last round is told twice: again when it was evaluated
                self._round = progress.round
                self.write(values, progress.round, texts)

        self._carefully(send)

    def on_end(self, run: Run) -> None:
        """Write what came out, and the settings; of a run that was finished before, nothing."""
        if self._state == "new":
            return
        record = run.record()
        self._carefully(lambda: self.finish(results_of(record), settings_of(record), record["result"]["stop"]))
        self._state, self._scored, self._round = "new", None, 0  # for the next training

    def _carefully(self, call: Callable[[], None]) -> None:
        if self._state == "closed":
            return
        try:
            if self._state == "new":
                self.open()
                self._state = "open"
            call()
        except Exception as error:  # of a library, of its server, of the disk: whatever it is, the training goes on
            self._state = "closed"
            what = " ".join(f"{type(error).__name__}: {error}".split())[:300]
            told = f"{type(self).__name__} failed and gets no more figures ({what}); the training goes on"
            warnings.warn(told, TrackingEnded, stacklevel=4)

    @abstractmethod
    def check(self) -> None:
        """Say now if the library is not installed."""

    @abstractmethod
    def open(self) -> None:
        """Begin to write, when the first round is done."""

    @abstractmethod
    def write(self, values: Mapping[str, float], step: int, texts: Mapping[str, str]) -> None:
        """Figures of one round, and what belongs to some of them."""

    @abstractmethod
    def finish(self, results: Mapping[str, float], settings: Mapping[str, Setting], stop: str) -> None:
        """What came out, and with which settings; nothing is written afterwards."""
