"""A search of a method's settings on the validation rows, with the same budget for every method.

A trial trains with some settings and every seed of the budget; its score is the mean of the validation scores. The
first trial has the settings as they are, those that a training chooses by the networks (`Job.suited`) included, so
the result is at least as good as they are, on these rows. The others are proposed by Optuna's tree-structured Parzen
estimator. The test rows are not hidden but absent: trials get a federation without them. Everything is in one SQLite
file, so that an interrupted search goes on, with the same proposals as if it had not been interrupted.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel

from colonnade.engines.own_code import OwnCode
from colonnade.errors import ConfigError, RunError
from colonnade.evaluate.judge import Judge
from colonnade.evaluate.metrics import Metric, choose_metric, find_metric
from colonnade.extras import need
from colonnade.federation import Federation
from colonnade.job import Job
from colonnade.methods.base import Method
from colonnade.privacy import repeats
from colonnade.privacy.settings import PrivacySettings
from colonnade.privacy.tally import TallyRecord, tally
from colonnade.progress import Progress
from colonnade.randomness import key
from colonnade.search_space import Space, flat, with_settings

STUDY = "study.db"  # the file of a search in its folder
SPENT = "spent"  # what a trial's trainings released, in the file
WORST = -1e9  # the score of settings that diverge; a mean of scores is never so low


@dataclass(frozen=True)
class Budget:
    """What every method may spend."""

    trials: int = 20
    rounds: int = 100
    seeds: tuple[int, ...] = (0,)


@dataclass(frozen=True)
class Outcome:
    """The best settings of a method, and what they were chosen from."""

    method: str
    settings: Mapping[str, object] = field(repr=False)  # all of them
    chosen: Mapping[str, object]  # those that were searched
    score: float | None  # None: every trial diverged
    usual: float | None  # the score of the settings as they were; None where they are outside the space
    trials: int
    diverged: int
    metric: str  # what the scores are
    spent: Sequence[repeats.Training] | None = field(default=(), repr=False)  # None: a trial does not say

    @property
    def together(self) -> str:
        """What all trainings of the search cost together; empty: nothing was promised."""
        return repeats.of_searches([self.spent])

    @property
    def gain(self) -> float:
        """The score as a number that rises with better settings; only where there is one."""
        return find_metric(self.metric).sign() * (0.0 if self.score is None else self.score)


Told = Callable[[Progress], None] | None
Watcher = Callable[[int, float | None, Progress | None], None]  # trials done, the best score, the round of this one


# -- what trials see --------------------------------------------------------------------------


def without_test(federation: Federation) -> Federation:
    """The same federation with the rows that train and validate, and no others."""
    split = federation.split
    return federation.take(torch.cat([split.train, split.validation]).sort().values)


def price(privacy: PrivacySettings) -> str | None:
    """What a search costs that the budget of the final run does not show; None where nothing is promised.

    Raises:
        ConfigError: there would be no validation score.
    """
    if not privacy.evaluates():
        raise ConfigError(
            "tune needs a validation score, and with [privacy] mechanism = 'gaussian' evaluation on the validation "
            "rows is a release that is not made; set privacy.evaluation = 'simulated' where the data may be seen, or "
            "tune without [privacy]"
        )
    if privacy.noised or privacy.labels.protects:
        return (
            "every trial is a training of its own, and its validation score is a release: the epsilon of a run with "
            "the best settings does not cover this search; search on data that need no protection if that matters"
        )
    return None


# -- the search -------------------------------------------------------------------------------


def search_settings(
    job: Job, federation: Federation, space: Space, budget: Budget, path: Path, watch: Watcher | None = None
) -> Outcome:
    """Try settings of the job's method until the budget is spent; what an earlier call did is counted.

    Args:
        job: what to train, suited to the data; its method's settings are the first trial.
        federation: the data; test rows are taken out here.
        space: what to search.
        budget: trials, and rounds and seeds of each.
        path: the SQLite file, made if it is not there.
        watch: told of every round.

    Raises:
        ConfigError: there is nothing to judge by, or the library is missing.
        RunError: the file holds another search of this method.
    """
    price(job.privacy)
    if not len(federation.split.validation) or job.training.evaluate_every == 0:
        raise ConfigError("tune judges by validation rows; the data need some, and training.evaluate_every above 0")
    if not space:
        raise ConfigError(f"method {job.method.name!r} has nothing to search; name a setting with --search")
    federation = without_test(federation)
    metric = _judging(job, federation)
    sign = metric.sign()  # trials are compared by what rises
    with _study(job, space, budget, path, job.own_code(federation)) as study:
        while len(done := _completed(study)) < budget.trials:
            seed = key(job.training.seed, "tune", job.method.name, len(done)) % 2**32
            study.sampler = need("optuna", extra="tune", purpose="tune").samplers.TPESampler(seed=seed)
            trial = study.ask()
            chosen = {name: dimension.draw(name, trial) for name, dimension in space.items()}
            best = max((t.value for t in done if t.value > WORST), default=None)
            told = _told(watch, len(done), None if best is None else sign * best)
            tried, spent = replace(job, method=with_settings(job.method, chosen)), list[list[TallyRecord]]()
            score = _score(tried, federation, budget, told, spent)
            trial.set_user_attr(SPENT, spent)  # with the trial: a search that goes on counts it
            study.tell(trial, score)
        outcome = _outcome(job, _completed(study), space, metric)
    if watch is not None:
        watch(outcome.trials, outcome.score, None)
    return outcome


def _judging(job: Job, federation: Federation) -> Metric:
    """What the trials are judged by: another metric than was asked for, where the validation rows do not define it."""
    rows, name = federation.split.validation, job.training.metric
    if job.privacy.labels.protects:
        return choose_metric(federation.task, name)
    return Judge.of(federation.task, federation.labels[rows], name).metric


def _told(watch: Watcher | None, done: int, best: float | None) -> Told:
    return None if watch is None else lambda now: watch(done, best, now)


def _score(job: Job, federation: Federation, budget: Budget, told: Told, spent: list[list[TallyRecord]]) -> float:
    """The mean of the validation scores over the seeds; settings that diverge once are no settings.

    What every training released is added to `spent`.
    """
    scores = []
    for seed in budget.seeds:
        training = job.training.model_copy(update={"rounds": budget.rounds, "epochs": None, "seed": seed})
        run = replace(job, training=training).fit(federation, None, told)
        spent.append([one.to_json() for one in tally(run.ledger, job.privacy.neighbours)])
        result = run.result
        value = result["validation_score"]
        if result["diverged"] or value is None or not math.isfinite(value):
            return WORST
        scores.append(find_metric(result["validation_metric"]).sign() * float(value))
    return statistics.fmean(scores)


@contextmanager
def _study(job: Job, space: Space, budget: Budget, path: Path, code: OwnCode) -> Iterator[Any]:
    """The method's study in the file, with the settings as they are as its first trial; closed afterwards."""
    optuna = need("optuna", extra="tune", purpose="tune")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    path.parent.mkdir(parents=True, exist_ok=True)
    storage = optuna.storages.RDBStorage(f"sqlite:///{path.resolve()}")
    try:
        study = optuna.create_study(
            storage=storage, study_name=job.method.name, direction="maximize", load_if_exists=True
        )
        terms = _terms(job, space, budget, code)
        if study.user_attrs.get("terms", terms) != terms:
            raise RunError(f"{path} holds a search of {job.method.name} on other terms; choose another --out")
        study.set_user_attr("terms", terms)
        _begin(optuna, study, flat(job.method.model_dump()), space)
        yield study
    finally:
        storage.remove_session()
        storage.engine.dispose()


def _begin(optuna: Any, study: Any, usual: Mapping[str, Any], space: Space) -> None:
    """The first trial is what is there; one that was interrupted is done again."""
    if not study.trials and all(dimension.holds(usual[name]) for name, dimension in space.items()):
        study.enqueue_trial({name: usual[name] for name in space})
    for trial in study.get_trials(states=(optuna.trial.TrialState.RUNNING,)):
        study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
        if trial.params:
            study.enqueue_trial(trial.params)


def _terms(job: Job, space: Space, budget: Budget, code: OwnCode) -> str:
    """All that must be the same for trials to be compared; the number of trials may grow."""
    parts: dict[str, BaseModel | Method] = {"model": job.model, "training": job.training, "privacy": job.privacy}
    settings = {name: part.model_dump() for name, part in {**parts, "method": job.method}.items()}
    settings["training"] = {k: v for k, v in settings["training"].items() if k not in ("rounds", "seed", "device")}
    data = {k: v for k, v in job.data.items() if k != "data_dir"}
    asked = {"rounds": budget.rounds, "seeds": budget.seeds, "space": {k: vars(d) for k, d in space.items()}}
    own = {"own_code": code} if code else {}
    return json.dumps({**settings, **asked, "data": data, **own}, sort_keys=True, default=str)


def _completed(study: Any) -> list[Any]:
    return [trial for trial in study.get_trials(deepcopy=False) if trial.state.name == "COMPLETE"]


def _outcome(job: Job, trials: list[Any], space: Space, metric: Metric) -> Outcome:
    sign = metric.sign()
    good = [trial for trial in trials if trial.value > WORST]
    best = max(good, key=lambda trial: trial.value, default=None)  # the first of equals
    before = flat(job.method.model_dump())
    usual = next((sign * t.value for t in good if all(t.params[name] == before[name] for name in space)), None)
    chosen = {name: before[name] if best is None else best.params[name] for name in space}
    settings = with_settings(job.method, chosen).model_dump()
    score = None if best is None else sign * float(best.value)
    counts = len(trials), len(trials) - len(good)
    return Outcome(job.method.name, settings, chosen, score, usual, *counts, metric.name, _spent(job, trials))


def _spent(job: Job, trials: Sequence[Any]) -> list[repeats.Training] | None:
    """What the trainings of all trials cost; trials of an earlier version do not say what they released."""
    if not all(SPENT in trial.user_attrs for trial in trials):
        return None
    kept = [one for trial in trials for one in trial.user_attrs[SPENT]]
    return repeats.read_kept(kept, job.privacy, job.privacy.exposure(job.method.exposes))
