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

Of several `tries` validation rows choose one, with seed 0: every try is trained without test rows, and the chosen one
is trained again with all seeds. A try is laid over the case, setting by setting; an empty one is the case as it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from pydantic import Field

from colonnade.bench.accuracy import case_job, watcher
from colonnade.bench.catalogue import Bench
from colonnade.bench.settings import Notify, Options
from colonnade.config import Settings, build
from colonnade.errors import ConfigError
from colonnade.federation import Federation
from colonnade.job import Job
from colonnade.methods.rounds import schedule_of
from colonnade.privacy.settings import PrivacySettings
from colonnade.run import Run
from colonnade.tune import without_test

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

    @property
    def name(self) -> str:
        """What its results are called."""
        return self.key or str(self.method["name"])

    @property
    def keys(self) -> list[str]:
        """What its results end in."""
        return [f".{self.name}"]

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


def selected(cases: Sequence[Kind], only: Sequence[str]) -> list[Kind]:
    """The cases that were asked for by name, or by what their results end in ("eps8.vimadmm"); all if none was.

    Raises:
        ConfigError: a name is nobody's.
    """
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
    jobs = [[_jobs(bench, case, number, options) for number in range(len(case.tries))] for case in cases]
    shared: dict[str, Federation] = {}
    for case, tried in zip(cases, jobs, strict=True):
        federation = _load(shared, tried[0][0])
        chosen = choose([seeds[0] for seeds in tried], federation, case.name, notify)
        runs = [
            _silenced(job, federation, case).fit(federation, watch=watcher(f"{case.name}, seed {seed}", notify))
            for seed, job in enumerate(tried[chosen])
        ]
        yield case, runs, chosen if len(tried) > 1 else None


def choose(jobs: Sequence[Job], federation: Federation, name: str, notify: Notify) -> int:
    """The job with the best validation score; the first of equals. Nobody sees a test row."""
    if len(jobs) == 1:
        return 0
    blind, scores = without_test(federation), []
    for number, job in enumerate(jobs):
        score = job.fit(blind, watch=watcher(f"{name}, try {number}", notify)).result["validation_score"]
        scores.append(-1.0 if score is None else score)
    notify(f"{name}: validation scores {', '.join(f'{100 * score:.2f} %' for score in scores)}")
    return scores.index(max(scores))


def _jobs(bench: Bench, case: Case, number: int, options: Options) -> list[Job]:
    seeds = options.seeds if case.seeds is None else min(case.seeds, options.seeds)
    return [case_job(bench, case.sections(number), options, seed) for seed in range(seeds)]


def _load(shared: dict[str, Federation], job: Job) -> Federation:
    """The data of a job; those of the last one are kept, because most cases share them."""
    key = json.dumps(job.data, sort_keys=True, default=str)
    if key not in shared:
        shared.clear()
        shared[key] = job.federation()
    return shared[key]


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
