"""The process of a label holder that serves: it trains versions of one model, one after the other, and keeps the best.

Version 1 is trained at once; others when somebody asks for one (`colonnade models --train`) or when the schedule says
so. Each is a run of its own, NAME-v1, NAME-v2 ..., so the version in use answers predictions while another trains. One
that is not worse than it on the same validation rows is put to use (`comparing.py`).
"""

from __future__ import annotations

import json
import time
from calendar import timegm
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from colonnade.deploy.invitation import RUN
from colonnade.deploy.predict import Wish, predict_rows
from colonnade.deploy.settings import CoordinatorConfig, read_coordinator
from colonnade.deploy.start import linked, run_coordinator, undertaking_now
from colonnade.deploy.withdrawal.start import AT_START, WithdrawalQuestions, ask_parties
from colonnade.engines.message import Notify, named
from colonnade.errors import ColonnadeError, ConfigError, LinkError, RunError, Unwritable
from colonnade.folder import claimed
from colonnade.predict import Prediction
from colonnade.progress import Watcher
from colonnade.service.askers import ModelPlace
from colonnade.service.comparing import Trained, Verdict, compare
from colonnade.service.drifting import ScoreWatch
from colonnade.service.online import Online
from colonnade.service.rows import aligned, see_to_rows
from colonnade.service.versions import (
    Models,
    ask_for_training,
    change_models,
    finished,
    folder_of,
    numbers,
    read_models,
)
from colonnade.withdrawn import read_withdrawn

TICK = 1.0  # seconds between two looks at the queue
BY_SCHEDULE = "the schedule says so"


@dataclass(frozen=True)
class Training:
    """A version that is to be trained now, and why."""

    version: int
    why: str


class LabelHolderDaemon:
    """A label holder in all versions of its model: it trains in the thread that calls, and predicts in others."""

    def __init__(self, config: Path, overrides: list[str] | None, notify: Notify) -> None:
        self.config, self.overrides, self._notify = config, list(overrides or ()), notify
        read = read_coordinator(config, overrides)
        self.folder, self.name = read.coordinator.folder, read.coordinator.run
        self.pause, self._trouble = read.schedule.seconds, ""
        if not RUN.fullmatch(self.run_of(99_999)):
            raise ConfigError(f"[coordinator] run = {self.name!r} is too long: versions are called {self.run_of(1)!r}")
        if aligned(read):  # what is wrong with it is said now
            undertaking_now(read)
        self.credentials = read.credentials()
        place = ModelPlace(self.folder, read.coordinator.alignment, self.run_of, read.coordinator.withdrawn)
        self.online = None if read.http is None else Online(read.http, place, self.credentials, notify)
        self._drift = ScoreWatch(self.folder, notify)

    def run_of(self, version: int) -> str:
        """The name of a version's run."""
        return f"{self.name}-v{version}"

    def serve(self, watch: Callable[[str], Watcher] | None = None) -> None:
        """Train whatever is due until interrupted; a version that was interrupted goes on after the next start.

        `watch`: the watcher of a run, by its name.
        """
        read = read_coordinator(self.config, self.overrides)
        answering: AbstractContextManager[object] = self.online or nullcontext()
        with claimed(self.folder) as claim, WithdrawalQuestions(read, self._notify), answering:
            claim.note("still serving")
            self._notify("serving", run=self.name, version=read_models(self.folder).used or None)
            while True:
                due = self._due_now()
                if due is None:
                    last = read_models(self.folder).last
                    self._drift.look(time.time(), _seconds(last) if last else None, self.pause)
                    time.sleep(TICK)
                else:
                    self.train(due, watch and watch(self.run_of(due.version)))

    def _due_now(self) -> Training | None:
        """What is to be trained now; nothing while the files cannot be read, which is told once."""
        try:
            due, self._trouble = self.due(time.time()), ""
            return due
        except RunError as error:
            if str(error) != self._trouble:
                self._trouble = str(error)
                self._notify("warning", reason=self._trouble)
            return None

    def due(self, clock: float) -> Training | None:
        """What is to be trained at a time (seconds since 1970); None: nothing."""
        models, known = read_models(self.folder), numbers(self.folder)
        open_ = [n for n in known if not finished(self.folder, n) and n not in models.failed]
        if open_:
            return Training(open_[-1], "it was begun")
        after = max(known, default=0) + 1
        if known and not any(change.version == known[-1] for change in models.changes):
            return Training(known[-1], "it was not compared yet")  # stopped between a training's end and that
        if models.waiting:
            return Training(after, "somebody asked for it")
        if not known:
            return Training(after, "there is none")
        if self.pause is not None and models.last and clock >= _seconds(models.last) + self.pause:
            return Training(after, BY_SCHEDULE)
        return None

    def train(self, due: Training, watch: Watcher | None = None) -> Verdict:
        """Train a version to the end, compare it with the one in use, and put it to use or not."""
        version, place = due.version, folder_of(self.folder, due.version)
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        tell = named(self.run_of(version), self._notify)
        tell("training", version=version, note=due.why)
        if due.why == "somebody asked for it":
            change_models(self.folder, lambda models: replace(models, waiting=max(models.waiting - 1, 0)))
        people = self._people()
        try:
            if not finished(self.folder, version):
                read = read_coordinator(self.config, self.overrides)
                see_to_rows(read, due.why == BY_SCHEDULE, named(self.name, self._notify))
                run_coordinator(self.config, self._overrides(version), tell, watch)
            verdict = self._compared(version)
        except (Unwritable, LinkError):
            raise  # the operator sees to it; the same version goes on afterwards
        except ColonnadeError as error:
            verdict = Verdict(False, str(error))
            self._change(version, verdict, lambda models: _given_up(models, version, verdict))
            if self._somebody_withdrew(people):  # which may be why
                ask_for_training(self.folder)
            return verdict
        self._change(version, verdict, lambda models: _judged(models, version, verdict))
        return verdict

    def _people(self) -> frozenset[str]:
        """Ids of people who have withdrawn by now."""
        return read_withdrawn(read_coordinator(self.config, self.overrides).coordinator.withdrawn).ids

    def _somebody_withdrew(self, before: frozenset[str]) -> bool:
        with suppress(ColonnadeError):  # a party that refused may know of somebody
            ask_parties(read_coordinator(self.config, self.overrides), self._notify, AT_START)
        return self._people() != before

    def _change(self, version: int, verdict: Verdict, change: Callable[[Models], Models]) -> None:
        models = change_models(self.folder, change)
        named(self.run_of(version), self._notify)(models.changes[-1].what, version=version, reason=verdict.why)

    def _overrides(self, version: int) -> list[str]:
        places = {"run": self.run_of(version), "folder": str(folder_of(self.folder, version))}
        return [*self.overrides, *(f"coordinator.{key}={json.dumps(value)}" for key, value in places.items())]

    def _compared(self, version: int) -> Verdict:
        models, read = read_models(self.folder), read_coordinator(self.config, self._overrides(version))
        new = Trained.load(version, folder_of(self.folder, version))
        used = Trained.load(models.used, folder_of(self.folder, models.used)) if models.used else None
        undertaking = undertaking_now(read)
        return compare(new, used, undertaking, lambda folder, run, wish: self._ask(read, folder, run, wish))

    def _ask(self, read: CoordinatorConfig, folder: Path, run: str, wish: Wish) -> Prediction:
        if self.online is not None and self.online.running:  # it may have the version open already
            version = next(n for n in numbers(self.folder) if folder_of(self.folder, n) == folder)
            return self.online.ask(version, wish, read.absence.patience)
        with claimed(folder), linked(self.credentials, run, self._notify) as link:
            return predict_rows(folder, link, replace(wish, patience=read.absence.patience), self._notify)


def _judged(models: Models, version: int, verdict: Verdict) -> Models:
    if verdict.promote:
        return models.promoted(version, verdict.why)
    return models.noted(version, "not promoted", verdict.why)


def _given_up(models: Models, version: int, verdict: Verdict) -> Models:
    return replace(models.noted(version, "failed", verdict.why), failed=(*models.failed, version))


def _seconds(text: str) -> float:
    return float(timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%SZ")))
