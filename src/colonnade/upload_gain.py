"""What do noisy uploads contribute? A run beside itself without their signal, and beside `local_only`.

Behind much noise uploads may say next to nothing, and the parties learn from the labels in the replies alone. A score
and an epsilon do not show that, so three models are measured:

    the run            as it was trained
    signal removed     the same training; zeros in place of every upload, then the same noise (privacy/silence.py)
    local_only         every party alone on the labels it is told; nothing computed from columns leaves in training

with the same rows, settings and seed, so that initial networks, batches and noise are the same draws. All three answer
to the test rows once, after training, with uploads as the run's own evaluation has them, and nothing is chosen by the
answers: neither a round nor a setting. Differences have paired bootstrap intervals over the test rows; with several
seeds they are of the mean, and the spread between seeds is added.

The run's own answers are those of its evaluation, or the stored model gives them again. They are computed in this
process and are in no ledger: only simulations are compared, and nobody is sent anything. Between organisations a
further training is a further run, which everybody has to agree to.
"""

from __future__ import annotations

import json
import math
import statistics
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from colonnade.checkpoint import fingerprint
from colonnade.engines.base import DEPLOYED
from colonnade.errors import ColonnadeError, ConfigError, DoubtfulScore, RunError
from colonnade.evaluate.answers import Evaluated
from colonnade.evaluate.chance import Interval
from colonnade.evaluate.metrics import Metric
from colonnade.evaluate.metrics import metric_of as metric_of_result
from colonnade.evaluate.paired import paired_interval
from colonnade.federation import Federation
from colonnade.fit import Trainer
from colonnade.job import load_data
from colonnade.methods import make_method
from colonnade.methods.base import Method
from colonnade.privacy.ledger import Ledger
from colonnade.privacy.promise import UploadGain
from colonnade.privacy.silence import separable, without_signal
from colonnade.progress import Telling, Watcher
from colonnade.record import RECORD, Difference, read_record
from colonnade.run import Run
from colonnade.wire.messages import Purpose
from colonnade.written import replace_file

Watch = Callable[[str, int], Watcher | None]  # name and rounds of a training -> what watches it
REMOVED, LOCAL = "signal removed", "local_only"
STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)  # 97.5 % of t, 1 degree of freedom and more
SAME = 0.01  # by how much a stored model's score may differ from the recorded one: another processor rounds otherwise


def unwatched(name: str, rounds: int) -> None:
    """Nobody watches."""


def upload_gain(
    run: Run, federation: Federation | None = None, *, seeds: Sequence[int] = (), watch: Watch = unwatched
) -> UploadGain:
    """Train again without the signal and as `local_only`; what the uploads of the run contributed.

    The result is kept in `run.result["uploads"]` and, of a saved run, in its `run.json`.

    Args:
        run: a simulation.
        federation: the data it was trained on; None: those of its configuration.
        seeds: more of them beside the run's own; for each of these the run itself is trained again, too.
        watch: who is told of each training.

    Raises:
        RunError: the run cannot be trained again here, or there is nothing to remove.
    """
    check_can_compare(run)
    federation = _own_data(run) if federation is None else federation
    if run.about.get("data", "") not in ("", fingerprint(federation)):
        raise RunError(f"{_where(run)} was trained on other data than these; give it the same rows and columns")
    if not len(federation.split.test):
        raise RunError(f"{_where(run)} has no test rows, and nothing else may judge it; split some off")
    found = _Comparison(run, federation, watch).measured(_all(run.training.seed, seeds))
    run.result["uploads"] = found
    if run.path is not None:
        write_gain(found, run.path)
    return found


def check_can_compare(run: Run) -> None:
    """Refuse what cannot be trained again, or uploads nothing.

    Raises:
        RunError: with what to do instead.
    """
    if run.about["engine"] == DEPLOYED:
        raise RunError(
            f"{_where(run)} was trained between organisations: training it again is a further run, which releases "
            "again and which every party has to agree to. Propose a run with [method] name = 'local_only' to the same "
            "parties and put the two side by side (colonnade compare RUN OTHER); the signal of uploads is removed in "
            "simulations only"
        )
    if run.method.pools or run.traffic.up == 0:
        raise RunError(
            f"{_where(run)} was trained with {run.method.name}, and no party uploaded anything in training: there is "
            "nothing to remove"
        )
    if run.about.get("joined"):
        raise RunError(f"{_where(run)} was joined by a party after its training; compare the run that it joined")
    if run.about.get("left"):
        raise RunError(f"{_where(run)} was left by a party after its training; compare the run that it left")


def write_gain(found: UploadGain, folder: Path) -> None:
    """Add it to the record of a saved run."""
    record = read_record(folder)
    record["result"]["uploads"] = found
    replace_file(folder / RECORD, json.dumps(record, indent=1).encode())


@dataclass(frozen=True)
class _Comparison:
    run: Run
    federation: Federation
    watch: Watch

    def measured(self, seeds: Sequence[int]) -> UploadGain:
        notes: list[str] = []
        ours = [self._as_it_was(seed) for seed in seeds]
        removed = self._each(seeds, REMOVED, self._removed, notes)
        local = self._each(seeds, LOCAL, self._local, notes)
        metric = metric_of_result(self.run.task, self.run.result)
        return {
            "metric": metric.name,
            "rows": len(self.federation.split.test),
            "seeds": list(seeds),
            "noise": any(not r.event.bare for r in self.run.ledger if r.purpose is Purpose.TRAIN and self._party(r)),
            "evaluated": self.run.result["test_score"] is not None,
            "score": _mean(metric, ours),
            "removed": _mean(metric, removed),
            "local_only": _mean(metric, local),
            "gain": difference(metric, ours, removed),
            "over_local": difference(metric, ours, local),
            "notes": notes,
        }

    def _each(self, seeds: Sequence[int], name: str, train: Callable[[int], Run], notes: list[str]) -> list[Evaluated]:
        """The answers of one kind of model; none, with a note, where it cannot be trained."""
        try:
            return [answers_of(train(seed), self.federation) for seed in seeds]
        except ColonnadeError as error:
            notes.append(f"{name} was not measured: {error}")
            return []

    def _as_it_was(self, seed: int) -> Evaluated:
        if seed == self.run.training.seed:
            return answers_of(self.run, self.federation)
        return answers_of(self._train(self._open(seed), f"seed {seed}"), self.federation)

    def _removed(self, seed: int) -> Run:
        trainer = self._open(seed)
        used = {r.event.kind for r in self.run.ledger if r.purpose is Purpose.TRAIN and self._party(r)}
        for side in trainer.engine.parties():
            if used - {side.gate.protection.training.event.kind}:
                raise ConfigError("the run had a mechanism of your own before its uploads, which is not stored")
            if not separable(side.gate.protection):
                raise ConfigError(f"{self.run.method.name} has its noise in the model, which makes the uploads")
            side.gate.protection = without_signal(side.gate.protection)
        return self._train(trainer, REMOVED)

    def _local(self, seed: int) -> Run:
        return self._train(self._open(seed, local_method(self.run)), LOCAL)

    def _open(self, seed: int, method: Method | None = None) -> Trainer:
        run, on = self.run, {"seed": seed}
        if not torch.cuda.is_available():
            on["device"] = "cpu"  # type: ignore[assignment]
        training = run.training.model_copy(update=on)
        about = {"id": run.id, "ways": run.about["ways"], "config": None} if method is None else None
        made = (run.method if method is None else method, training, run.model_settings, run.encoders)
        return Trainer.open(self.federation, *made, None, about, run.privacy)

    def _train(self, trainer: Trainer, name: str) -> Run:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DoubtfulScore)  # a control may well be no better than a guess
            return trainer.train(telling=Telling(self.watch(name, trainer.training.rounds)))

    def _party(self, release: object) -> bool:
        return getattr(release, "owner", "") in self.run.models


def local_method(run: Run) -> Method:
    """`local_only` with as many local steps as the run's method, and what [compare.local_only] says."""
    steps = getattr(run.method, "local_steps", None)
    given = {"local_steps": steps} if isinstance(steps, int) else {}
    section: Mapping[str, object] = ((run.config or {}).get("compare") or {}).get(LOCAL, {})
    made: Method = make_method(LOCAL, {**given, **section})
    return made


def answers_of(run: Run, federation: Federation) -> Evaluated:
    """A run's answers to the test rows: those of its own evaluation, or of its model now. No ledger has these.

    Raises:
        RunError: the model does not give the score that was recorded.
    """
    if run.tested is not None:
        return run.tested
    rows = federation.split.test
    model = replace(run.model, ledger=Ledger(), path=None, trained=None)  # nothing leaves, so nothing is recorded
    said = model.answers(model.logits(federation.select(rows)))
    weights = None if federation.weights is None else federation.weights[rows]
    found = Evaluated(run.task, said, federation.labels[rows], weights)
    recorded, metric = run.result["test_score"], metric_of_result(run.task, run.result)
    now = metric(run.task, said.to(metric), found.truth, weights)
    if recorded is not None and not abs(now - recorded) <= SAME * max(1.0, abs(recorded)):
        raise RunError(
            f"the stored model has test {metric.title} {metric.told(now)} on these rows, and {metric.told(recorded)} "
            "was recorded: are they the rows of its training?"
        )
    return found


def difference(metric: Metric, ours: Sequence[Evaluated], theirs: Sequence[Evaluated]) -> Difference | None:
    """Of two models, each with all seeds; None where one has no score."""
    a, b = _mean(metric, ours), _mean(metric, theirs)
    if a is None or b is None:
        return None
    around = paired_interval(metric, ours, theirs)
    apart = [_score(metric, one) - _score(metric, other) for one, other in zip(ours, theirs, strict=True)]
    wide = None if around is None else _widened(around, a - b, apart)
    return {"value": a - b, "interval": None if wide is None else list(wide), "paired": True}


def _widened(around: Interval, middle: float, apart: Sequence[float]) -> Interval:
    """An interval over rows with the uncertainty over seeds added, where there are several."""
    if len(apart) < 2:
        return around
    student = STUDENT[len(apart) - 2] if len(apart) - 2 < len(STUDENT) else 2.0
    seeds = student * statistics.stdev(apart) / math.sqrt(len(apart))
    return middle - math.hypot(middle - around[0], seeds), middle + math.hypot(around[1] - middle, seeds)


def _mean(metric: Metric, models: Sequence[Evaluated]) -> float | None:
    values = [_score(metric, one) for one in models]
    return statistics.fmean(values) if values and all(map(math.isfinite, values)) else None


def _score(metric: Metric, one: Evaluated) -> float:
    return metric(one.task, one.answers.to(metric), one.truth, one.weights)


def _all(own: int, more: Sequence[int]) -> list[int]:
    return list(dict.fromkeys([own, *more]))


def _own_data(run: Run) -> Federation:
    if run.config is None:
        raise RunError(
            f"{_where(run)} was started from Python, so its data are not known; there: run.upload_gain(federation)"
        )
    return load_data(run.config.get("data", {"set": "digits"}), run.about)


def _where(run: Run) -> str:
    return f"run {run.id}" if run.path is None else str(run.path)
