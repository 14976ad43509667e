"""Cases of one benchmark: several methods or settings, each trained with all seeds, on the same rows where data agree.

    [data] [model] [training]     what all cases share
    [[cases]]
    key = "vimadmm_published"     what its results are called; the method's name if left out
    method = { name = "vimadmm", ... }
    privacy = { ... }             as in any configuration file
    data, model, training = { ... }    what differs from the section that all share
    tries = [{ method = { rho = 2.0 } }, { training = { rounds = 400 } }]
    signal = false                the noise of its uploads without the uploads: what is left is not due to them
    seeds = 1                     at most so many seeds, whatever was asked for: a row that is no headline
    judged_by = "true labels"     tries under label privacy, where validation scores are of noisy labels

Of several `tries` validation rows choose one, with seed 0: every try is trained without test rows. What the chosen one
trained is then measured on the test rows as the run of seed 0, and the other seeds are trained with its settings. A try
is laid over the case, setting by setting; an empty one is the case as it is.
Scores of noisy labels tell settings apart only where these differ by more than the noise. `judged_by = "true labels"`
takes the accuracy on the same rows by their labels as they are, which no epsilon covers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, TypeVar, cast

import torch
from pydantic import Field

from colonnade.bench.accuracy import case_job, watcher
from colonnade.bench.catalogue import Bench
from colonnade.bench.kept_runs import KeptRuns, Piece, share
from colonnade.bench.outcome import read
from colonnade.bench.settings import Notify, Options
from colonnade.config import Settings, build
from colonnade.errors import ConfigError
from colonnade.evaluate.chance import measured
from colonnade.evaluate.metrics import METRICS
from colonnade.federation import Federation
from colonnade.job import Job
from colonnade.methods.rounds import schedule_of
from colonnade.privacy.settings import PrivacySettings
from colonnade.record import Result
from colonnade.run import Run
from colonnade.search import without_test

Section = dict[str, object]
FAINT = 1e-6  # what is left of an upload whose signal is taken away: a share of its norm


class Case(Settings):
    """One method with its settings."""

    key: str = Field("", description="what its results are called; empty: the method's name")
    method: Section = Field(description="as [method] has it")
    data: Section = Field(default_factory=dict, description="what differs from [data]")
    model: Section = Field(default_factory=dict, description="what differs from [model]")
    training: Section = Field(default_factory=dict, description="what differs from [training]")
    privacy: Section = Field(default_factory=dict, description="as [privacy] has it")
    tries: tuple[dict[str, Section], ...] = Field(({},), min_length=1, description="settings to choose from")
    signal: bool = Field(True, description="false: only the noise of its uploads leaves")
    seeds: int | None = Field(None, ge=1, description="at most so many seeds; none: as many as are asked for")
    judged_by: Literal["validation scores", "true labels"] = Field(
        "validation scores", description="what chooses a try: the score of its run, or accuracy by labels without noise"
    )

    @property
    def name(self) -> str:
        """What its results are called."""
        return self.key or str(self.method["name"])

    @property
    def keys(self) -> list[str]:
        """What its results end in."""
        return [f".{self.name}"]

    def within(self, results: Collection[str]) -> bool:
        """Whether these results have figures of it, under each of its keys."""
        return all(any(key.endswith(ending) for key in results) for ending in self.keys)

    def sections(self, number: int = 0) -> dict[str, Section]:
        """The sections of one try; those that say nothing are left out."""
        own = {name: getattr(self, name) for name in ("method", "data", "model", "training", "privacy")}
        strange = self.tries[number].keys() - own.keys()
        if strange:
            raise ConfigError(f"a try of {self.name!r} has a section {min(strange)!r}; there are {', '.join(own)}")
        merged = {name: {**given, **self.tries[number].get(name, {})} for name, given in own.items()}
        return {name: section for name, section in merged.items() if section}


Kind = TypeVar("Kind", bound=Case)


def read_cases(bench: Bench, kind: type[Kind]) -> list[Kind]:
    """The cases of a file.

    Raises:
        ConfigError: there are none.
    """
    cases = [build(kind, case, f"benchmark {bench.name}: cases") for case in bench.tables.get("cases", ())]
    if not cases:
        raise ConfigError(f"benchmark {bench.name} has no [[cases]]")
    return cases


def selected(cases: Sequence[Kind], options: Options) -> list[Kind]:
    """The cases that were asked for by name, or by what their results end in ("eps8.vimadmm"); all if none was.

    Those that the file `options.beyond` has are left out.

    Raises:
        ConfigError: a name is nobody's.
    """
    there = {} if options.beyond is None or not options.beyond.exists() else read(options.beyond).results
    return [case for case in _named(cases, options.only) if not case.within(there)]


def _named(cases: Sequence[Kind], only: Sequence[str]) -> list[Kind]:
    known = {case.name for case in cases} | {_ending(key) for case in cases for key in case.keys}
    strange = next((name for name in only if name not in known), None)
    if strange is not None:
        raise ConfigError(f"--only {strange}: there is no such case; there are {', '.join(sorted(known))}")
    return [case for case in cases if not only or {case.name, *map(_ending, case.keys)} & set(only)]


def _ending(key: str) -> str:
    return key.lstrip("._")


def each_case(
    bench: Bench, cases: Sequence[Kind], options: Options, notify: Notify
) -> Iterator[tuple[Kind, list[Run], int | None]]:
    """Every case with its runs, seeds 0 to n - 1, and the number of the try if there was a choice.

    All settings are read before anything is trained, so that a mistake in the last case does not cost hours.
    """
    plans = [_Plan(case, tuple(_jobs(bench, case, n, options) for n in range(len(case.tries)))) for case in cases]
    loaded = _Loaded()
    kept = None if options.runs is None else KeptRuns(options.runs)
    if kept is not None and not options.finished:
        share(kept, lambda: [piece for plan in plans for piece in plan.missing(kept, loaded, notify)])
    for case, plan in zip(cases, plans, strict=True):
        lacking = plan.missing(kept, loaded, quiet) if kept is not None and options.finished else []
        if lacking:
            notify(f"{case.name}: left out, {lacking[0].name} is missing")
            continue
        yield case, *plan.runs(kept, loaded, notify)


class _Loaded(dict[str, Federation]):
    """The data of the last job, because most cases share them; and what is known of tries, by name."""

    def __init__(self) -> None:
        super().__init__()
        self.scores: dict[str, float] = {}
        self.trained: dict[str, Run] = {}

    def run_of(self, piece: Piece, kept: KeptRuns | None) -> Run:
        """A try that was trained, here or in the folder; trained now if it was not."""
        if kept is not None and (run := kept.load(piece)) is not None:
            return run
        if piece.name not in self.trained:
            self.trained[piece.name] = piece.train()
        return self.trained[piece.name]

    def of(self, job: Job) -> Federation:
        key = json.dumps(job.data, sort_keys=True, default=str)
        if key not in self:
            self.clear()
            self[key] = job.federation()
        return self[key]


@dataclass(frozen=True)
class _Plan:
    """A case with the jobs of its tries, each with every seed."""

    case: Case
    jobs: tuple[tuple[Job, ...], ...]

    def runs(self, kept: KeptRuns | None, loaded: _Loaded, notify: Notify) -> tuple[list[Run], int | None]:
        """The runs of the chosen try, and its number if there was a choice."""
        tries = self._tries(loaded, notify)
        chosen = self._choose(tries, kept, loaded, notify) if tries else 0
        runs = [_run_of(piece, kept) for piece in self._seeds(chosen, tries, kept, loaded, notify)]
        loaded.trained.clear()
        return runs, chosen if tries else None

    def missing(self, kept: KeptRuns, loaded: _Loaded, notify: Notify) -> list[Piece]:
        """The trainings that are not there and can be begun: no seed before all tries."""
        tries = self._tries(loaded, notify)
        if lacking := [piece for piece in tries if not kept.has(piece)]:
            return lacking
        chosen = self._choose(tries, kept, loaded, quiet) if tries else 0
        return [piece for piece in self._seeds(chosen, tries, kept, loaded, notify) if not kept.has(piece)]

    def _choose(self, tries: Sequence[Piece], kept: KeptRuns | None, loaded: _Loaded, notify: Notify) -> int:
        """The number of the try with the best score; the first of equals."""
        for piece in tries:
            if piece.name not in loaded.scores:
                loaded.scores[piece.name] = self._judge(loaded.run_of(piece, kept), piece.job, loaded)
        scores = [loaded.scores[piece.name] for piece in tries]
        notify(f"{self.case.name}: {self.case.judged_by}: {', '.join(f'{100 * score:.2f} %' for score in scores)}")
        return scores.index(max(scores))

    def _judge(self, run: Run, job: Job, loaded: _Loaded) -> float:
        """How good a try is on validation rows; -1: its run has no score."""
        score = run.result["validation_score"]
        if score is None or self.case.judged_by == "validation scores":
            return -1.0 if score is None else score
        federation = loaded.of(job)
        rows = federation.split.validation
        decided = torch.from_numpy(run.predict_proba(_as_trained(run, federation).select(rows))).argmax(1)
        return float((decided == federation.labels[rows]).double().mean())

    def _tries(self, loaded: _Loaded, notify: Notify) -> list[Piece]:
        """Every try with the first seed, without test rows; none where there is no choice."""
        first = [seeds[0] for seeds in self.jobs]
        if len(first) == 1:
            return []

        def train(job: Job, number: int) -> Run:
            return self._fit(job, without_test(loaded.of(job)), f"try {number}", notify)

        return [self._piece(f"try-{n}", job, partial(train, job, n)) for n, job in enumerate(first)]

    def _seeds(
        self, chosen: int, tries: Sequence[Piece], kept: KeptRuns | None, loaded: _Loaded, notify: Notify
    ) -> list[Piece]:
        """The chosen settings with every seed; with the first one they are trained already where they were a try."""

        def train(job: Job, seed: int) -> Run:
            if tries and seed == 0:
                return on_test_rows(loaded.run_of(tries[chosen], kept), loaded.of(job))
            return self._fit(job, loaded.of(job), f"seed {seed}", notify)

        jobs = enumerate(self.jobs[chosen])
        return [self._piece(f"seed-{seed}", job, partial(train, job, seed)) for seed, job in jobs]

    def _piece(self, what: str, job: Job, train: Callable[[], Run]) -> Piece:
        return Piece(f"{self._name}-{what}", job, train, self.case.signal)

    def _fit(self, job: Job, federation: Federation, what: str, notify: Notify) -> Run:
        job = _silenced(job, federation, self.case)
        return job.fit(federation, watch=watcher(f"{self.case.name}, {what}", notify))

    @property
    def _name(self) -> str:
        """Of folders: a case may have the name of another one, under another budget."""
        return "+".join(_ending(key) for key in self.case.keys)


def _run_of(piece: Piece, kept: KeptRuns | None) -> Run:
    run = None if kept is None else kept.load(piece)
    return piece.train() if run is None else run


def on_test_rows(run: Run, federation: Federation) -> Run:
    """A run that was trained without test rows, with what its model says about those of the federation."""
    if run.result["diverged"] and run.result["best_round"] is None:  # as in training: there is nothing to measure
        return run
    task, labels, rows = federation.task, federation.labels, federation.split.test
    outputs = run.model.logits(_as_trained(run, federation).select(rows))
    weights = None if federation.weights is None else federation.weights[rows]
    shares = task.shares(labels[federation.split.train])
    found = measured(task, outputs, labels[rows], shares, METRICS[run.metric], weights, run.model.decision)
    run.result = cast(Result, {**run.result, **found})
    return run


def _as_trained(run: Run, federation: Federation) -> Federation:
    """The data as the run's method has them: one that pools columns has one party."""
    return federation.pooled() if run.method.pools else federation


def quiet(_: str) -> None:
    """Tell nobody."""


def _jobs(bench: Bench, case: Case, number: int, options: Options) -> tuple[Job, ...]:
    seeds = options.seeds if case.seeds is None else min(case.seeds, options.seeds)
    return tuple(case_job(bench, case.sections(number), options, seed) for seed in range(seeds))


def _silenced(job: Job, federation: Federation, case: Case) -> Job:
    """The job as it is; or, where the signal is taken away, with uploads so faint that only their noise is left."""
    if case.signal:
        return job
    privacy, training = job.privacy, job.training
    deviation = FAINT  # of uploads without noise next to nothing leaves
    if privacy.protects and privacy.clip is not None:
        schedule = schedule_of(job.method, training.schedule, federation.split.train, federation.names, training.seed)
        deviation = privacy.clip * privacy.noise(schedule.most_releases(training.rounds))
    faint = FAINT * (privacy.clip or FAINT)
    quiet = {**privacy.model_dump(exclude_unset=True), "mechanism": "gaussian", "evaluation": "simulated"}
    quiet |= {"clip": faint, "sigma": deviation / faint}
    return replace(job, privacy=build(PrivacySettings, quiet, "privacy"))
