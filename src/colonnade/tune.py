"""Search a method's settings on the validation rows, with the same budget for every method.

A trial trains with some settings and every seed of the budget; its score is the mean of the validation scores. The
first trial has the settings as they are, so the result is at least as good as they are, on these rows. The others are
proposed by Optuna's tree-structured Parzen estimator. The test rows are not hidden but absent: trials get a
federation without them. Everything is in one SQLite file, so that an interrupted search goes on, with the same
proposals as if it had not been interrupted.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel

from colonnade.config import unknown_key, with_overrides
from colonnade.errors import ConfigError, RunError
from colonnade.evaluate.judge import Judge
from colonnade.evaluate.metrics import Metric, choose_metric, find_metric
from colonnade.extras import need
from colonnade.federation import Federation
from colonnade.job import Job
from colonnade.methods import make_method
from colonnade.methods.base import Method
from colonnade.privacy.settings import PrivacySettings
from colonnade.progress import Progress
from colonnade.randomness import key

STEP_SIZES = {"sgd": (1e-3, 1.0), "adamw": (1e-4, 1e-1)}  # by kind of optimiser, so that all methods get the same
DECAYS = (1e-6, 1e-1)
FACTOR = 10.0  # other settings are searched from a tenth to ten times what they are
STEPS_FACTOR = 4
SEARCHED = ("rho", "beta", "kappa", "local_steps")  # and all step sizes: what changes neither bytes nor promises
WORST = -1e9  # the score of settings that diverge; a mean of scores is never so low


@dataclass(frozen=True)
class Dimension:
    """The values that one setting may take."""

    low: float = 0.0
    high: float = 0.0
    log: bool = False
    whole: bool = False
    choices: tuple[Any, ...] = ()

    def holds(self, value: Any) -> bool:
        """Whether a value is one of them."""
        if self.choices:
            return value in self.choices
        return isinstance(value, (int, float)) and self.low <= value <= self.high

    def draw(self, name: str, trial: Any) -> Any:
        """What Optuna proposes."""
        if self.choices:
            return trial.suggest_categorical(name, list(self.choices))
        if self.whole:
            return trial.suggest_int(name, int(self.low), int(self.high), log=self.log)
        return trial.suggest_float(name, self.low, self.high, log=self.log)


Space = dict[str, Dimension]


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

    @property
    def gain(self) -> float:
        """The score as a number that rises with better settings; only where there is one."""
        return find_metric(self.metric).sign() * (0.0 if self.score is None else self.score)


Watcher = Callable[[int, float | None, Progress | None], None]  # trials done, the best score, the round of this one


# -- what is searched -------------------------------------------------------------------------


def declared_space(method: Method) -> Space:
    """What is searched if nobody says otherwise: step sizes, decays, penalties and local steps.

    A method may say itself, `search: ClassVar = {"rho": "0.1:10:log"}`. Settings that change what is sent or what is
    promised (bits, noise) are never searched by themselves: more accuracy for less privacy is no improvement.
    """
    values = flat(method.model_dump())
    own: Mapping[str, str] | None = getattr(type(method), "search", None)
    if own is not None:
        return {name: read_dimension(name, text, values[name]) for name, text in own.items()}
    return {name: found for name, value in values.items() if (found := _usual(name, value, values)) is not None}


def _usual(name: str, value: Any, values: Mapping[str, Any]) -> Dimension | None:
    section, _, last = name.rpartition(".")
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    kind = values.get(f"{section}.kind")
    if last == "lr" and kind in STEP_SIZES:
        return Dimension(*STEP_SIZES[kind], log=True)
    if last == "weight_decay":
        return Dimension(*DECAYS, log=True)
    if value <= 0 or not (last in SEARCHED or last.endswith("lr")):
        return None  # zero means: switched off
    if isinstance(value, int):
        return Dimension(max(1, value // STEPS_FACTOR), STEPS_FACTOR * value, log=True, whole=True)
    return Dimension(value / FACTOR, value * FACTOR, log=True)


def asked_space(methods: Mapping[str, Method], searches: list[str]) -> dict[str, Space]:
    """What `KEY=LOW:HIGH[:log]` and `KEY=A,B,C` ask to search, for each method that has the setting.

    Raises:
        ConfigError: a text cannot be read, no method has the setting, or a method has none of them.
    """
    values = {name: flat(method.model_dump()) for name, method in methods.items()}
    spaces: dict[str, Space] = {name: {} for name in methods}
    for item in searches:
        setting, equals, text = (part.strip() for part in item.partition("="))
        if not equals or not text:
            raise ConfigError(f"--search {item!r}: wanted KEY=LOW:HIGH, KEY=LOW:HIGH:log or KEY=A,B,C")
        owners = [name for name in methods if setting in values[name]]
        if not owners:
            known = sorted({known for found in values.values() for known in found})
            raise ConfigError(unknown_key(setting, known, "--search"))
        for name in owners:
            spaces[name][setting] = read_dimension(setting, text, values[name][setting])
    for name, space in spaces.items():
        if not space:
            raise ConfigError(f"method {name!r} has none of the settings that --search names; leave it out")
    return spaces


def read_dimension(name: str, text: str, value: Any) -> Dimension:
    """A range or a list of choices; `value` is what the setting is now, and says whether it counts something."""
    low, colon, rest = text.partition(":")
    if not colon:
        chosen = tuple(with_overrides({}, [f"a.b={part.strip()}"])["a"]["b"] for part in text.split(","))
        return Dimension(choices=chosen)
    high, _, how = rest.partition(":")
    try:
        ends = float(low), float(high)
    except ValueError:
        ends = math.nan, math.nan
    log, whole = how == "log", isinstance(value, int) and not isinstance(value, bool)
    if how not in ("", "log") or not ends[0] < ends[1] < math.inf or ends[0] <= (0 if log else -math.inf):
        above = ", both above 0" if log else ""
        raise ConfigError(f"--search {name}={text}: wanted LOW:HIGH or LOW:HIGH:log with LOW below HIGH{above}")
    if whole and any(end != round(end) for end in ends):
        raise ConfigError(f"--search {name}={text}: {name} counts something; wanted whole numbers")
    return Dimension(*ends, log=log, whole=whole)


def flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, object]:
    """Nested settings as dotted names."""
    out: dict[str, object] = {}
    for name, value in settings.items():
        out |= flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return out


def with_settings(method: Method, chosen: Mapping[str, Any]) -> Method:
    """The method with some settings, named by dots, changed."""
    settings = json.loads(json.dumps(method.model_dump()))
    for name, value in chosen.items():
        table, (*path, last) = settings, name.split(".")
        for part in path:
            table = table[part]
        table[last] = value
    changed: Method = make_method(method.name, settings)
    return changed


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
            "tune needs a validation score, and with [privacy] mechanism = 'gaussian' a look at the validation rows is "
            "a release that is not made; set privacy.evaluation = 'simulated' where the data may be seen, or tune "
            "without [privacy]"
        )
    if privacy.protects or privacy.labels.protects:
        return (
            "every trial is a training of its own, and its validation score is a release: the epsilon of a run with "
            "the best settings does not cover this search; search on data that need no protection if that matters"
        )
    return None


# -- the search -------------------------------------------------------------------------------


def search(
    job: Job, federation: Federation, space: Space, budget: Budget, path: Path, watch: Watcher | None = None
) -> Outcome:
    """Try settings of the job's method until the budget is spent; what an earlier call did is counted.

    Args:
        job: what to train; its method's settings are the first trial.
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
    if not len(federation.split.validation) or not job.training.evaluate_every:
        raise ConfigError("tune judges by validation rows; the data need some, and training.evaluate_every above 0")
    if not space:
        raise ConfigError(f"method {job.method.name!r} has nothing to search; name a setting with --search")
    federation = without_test(federation)
    metric = _judging(job, federation)
    sign = metric.sign()  # trials are compared by what rises
    with _study(job, space, budget, path) as study:
        while len(done := _completed(study)) < budget.trials:
            seed = key(job.training.seed, "tune", job.method.name, len(done)) % 2**32
            study.sampler = need("optuna", extra="tune", purpose="tune").samplers.TPESampler(seed=seed)
            trial = study.ask()
            chosen = {name: dimension.draw(name, trial) for name, dimension in space.items()}
            best = max((t.value for t in done if t.value > WORST), default=None)
            told = _told(watch, len(done), None if best is None else sign * best)
            study.tell(trial, _score(replace(job, method=with_settings(job.method, chosen)), federation, budget, told))
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


def _told(watch: Watcher | None, done: int, best: float | None) -> Callable[[Progress], None] | None:
    return None if watch is None else lambda now: watch(done, best, now)


def _score(job: Job, federation: Federation, budget: Budget, told: Callable[[Progress], None] | None) -> float:
    """The mean of the validation scores over the seeds; settings that diverge once are no settings."""
    scores = []
    for seed in budget.seeds:
        training = job.training.model_copy(update={"rounds": budget.rounds, "seed": seed})
        result = replace(job, training=training).fit(federation, None, told).result
        value = result["validation_score"]
        if result["diverged"] or value is None or not math.isfinite(value):
            return WORST
        scores.append(find_metric(result["validation_metric"]).sign() * float(value))
    return statistics.fmean(scores)


@contextmanager
def _study(job: Job, space: Space, budget: Budget, path: Path) -> Iterator[Any]:
    """The method's study in the file, with the settings as they are as its first trial; closed afterwards."""
    optuna = need("optuna", extra="tune", purpose="tune")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    path.parent.mkdir(parents=True, exist_ok=True)
    storage = optuna.storages.RDBStorage(f"sqlite:///{path.resolve()}")
    try:
        study = optuna.create_study(
            storage=storage, study_name=job.method.name, direction="maximize", load_if_exists=True
        )
        terms = _terms(job, space, budget)
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


def _terms(job: Job, space: Space, budget: Budget) -> str:
    """All that must be the same for trials to be compared; the number of trials may grow."""
    parts: dict[str, BaseModel | Method] = {"model": job.model, "training": job.training, "privacy": job.privacy}
    settings = {name: part.model_dump() for name, part in {**parts, "method": job.method}.items()}
    settings["training"] = {k: v for k, v in settings["training"].items() if k not in ("rounds", "seed", "device")}
    data = {k: v for k, v in job.data.items() if k != "data_dir"}
    asked = {"rounds": budget.rounds, "seeds": budget.seeds, "space": {k: vars(d) for k, d in space.items()}}
    return json.dumps({**settings, **asked, "data": data}, sort_keys=True, default=str)


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
    return Outcome(job.method.name, settings, chosen, score, usual, len(trials), len(trials) - len(good), metric.name)
