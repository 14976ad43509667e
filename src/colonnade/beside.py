"""Is it worth joining? Each party alone, all together, and all columns in one place, on the same rows.

All are trained by the same method, network and settings; only the columns differ. What stays at home needs no
protection, so a party alone and all columns in one place are trained without the privacy settings of the federation. A
method that refuses one party, or adds noise by itself, is replaced by `centralized` there, and a note says so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from colonnade.checkpoint import fingerprint
from colonnade.engines.base import Encoders
from colonnade.errors import ConfigError
from colonnade.evaluate.answers import Evaluated
from colonnade.evaluate.metrics import Metric
from colonnade.evaluate.metrics import metric_of as metric_of_result
from colonnade.evaluate.paired import independent_interval, paired_interval
from colonnade.federation import Federation
from colonnade.fit import Trainer
from colonnade.job import Job
from colonnade.many import Entry, of_rows
from colonnade.methods.base import Method, brings
from colonnade.methods.centralized import Centralized
from colonnade.methods.without import AddsScores
from colonnade.privacy.settings import PrivacySettings
from colonnade.record import Difference, RunRecord, TrialRecord, Worth
from colonnade.report.compared import spread
from colonnade.report.words import labels_noised, listing
from colonnade.report.worth import FILE, FORMAT, JOINT, ONE_PLACE, read_worth, sure
from colonnade.run import Run
from colonnade.tasks import task_about
from colonnade.written import replace_file

BESIDE = ("alone", "central")
MISSED = (
    "Part of this price may be what only shows when columns of several parties are seen together, which no sum of "
    "scores has. What gets some of it back: vimadmm_j with lifts, or split_learning (documentation, page "
    '"Interactions").'
)
Role = Literal["alone", "joint", "central"]


@dataclass(frozen=True)
class Trial:
    """One training of the question, for every seed."""

    role: Role
    who: str
    job: Job
    folder: str
    note: str = ""  # which other method trains it, and why


@dataclass
class Trained:
    """A trial and its runs; answers to the test rows are known of those that were trained just now."""

    trial: Trial
    columns: int  # numbers of each row that it reads
    records: list[RunRecord] = field(default_factory=list)
    answers: list[Evaluated | None] = field(default_factory=list)

    @property
    def score(self) -> float | None:
        """On the test rows, the mean over the seeds; None where one has none."""
        return spread([record["result"]["test_score"] for record in self.records])[0]

    def interval(self) -> tuple[float, float] | None:
        """The mean of the ends: seeds share the test rows, and with them most of what is uncertain."""
        ends = [record["result"].get("test_interval") for record in self.records]
        known = [(end[0], end[1]) for end in ends if end]
        if len(known) < len(ends) or not known:
            return None
        return sum(low for low, _ in known) / len(known), sum(high for _, high in known) / len(known)


def read_beside(given: Any) -> tuple[str, ...]:
    """What to train beside the joint model, checked."""
    names = list(given) if isinstance(given, (list, tuple)) else given
    if not isinstance(names, list) or any(name not in BESIDE for name in names) or len(set(names)) < len(names):
        raise ConfigError(f'beside = {given!r} is not valid: needed "alone", "central" or both, e.g. ["alone"]')
    return tuple(names)


def trials(job: Job, federation: Federation, beside: Sequence[str]) -> list[Trial]:
    """The joint training, and what is to be trained beside it.

    Raises:
        ConfigError: the federation has one party, or the method is no federation itself.
    """
    if len(federation.parties) < 2:
        raise ConfigError(f"{federation.name} has one party: there is nothing to join, and nothing to compare with")
    if job.method.pools:
        raise ConfigError(f"{job.method.name} has all columns in one place already; compare a federated method")
    found = [Trial("joint", JOINT, job, job.method.name)]
    if "alone" in beside:
        for name in federation.names:
            found.append(_beside(job, federation, "alone", f"{name} alone", {"only": [name]}))
    if "central" in beside:
        found.append(_beside(job, federation, "central", ONE_PLACE, {"pooled": True}))
    return found


def _beside(job: Job, federation: Federation, role: Role, who: str, choice: Mapping[str, Any]) -> Trial:
    names = tuple(choice.get("only", ("everyone",)))
    data = {**job.labelled_data, **choice}  # the rows of the joint training, whether or not labels were counted
    model = job.model.only(names) if set(job.model.parties) - set(names) else job.model
    training = job.training.on_parties(names)
    other = replace(
        job, data=data, model=model, training=training, privacy=PrivacySettings(), encoders=_own(job.encoders, names)
    )
    part = other.part_of(federation)
    method, note = _method(other, part)
    if "rows" in data:  # made in Python
        other = replace(other, data={**data, **of_rows(fingerprint(part.pooled() if method.pools else part))})
    other = replace(other, method=method, tables=_tables(other, method))
    folder = "-".join((role, *(re.sub(r"[^\w.-]", "_", name) for name in choice.get("only", ()))))
    return Trial(role, who, other, folder, note)


def _method(job: Job, part: Federation) -> tuple[Method, str]:
    """The method of the joint training, or `centralized` and why."""
    if brings(job.method):
        return Centralized(), f"centralized, because {job.method.name} adds noise by itself"
    try:
        training = job.training.model_copy(update={"engine": "loop"})  # opens faster, refuses the same
        Trainer.open(part, job.method, training, job.model, job.encoders, None)
    except ConfigError as error:
        return Centralized(), f"centralized, because {job.method.name} refuses one party ({error})"
    return job.method, ""


def _tables(job: Job, method: Method) -> dict[str, Any]:
    """The sections of a trial, for its record and for other processes; nothing where the job was made in Python."""
    if not job.tables:
        return {}
    kept = {name: section for name, section in job.tables.items() if name != "privacy"}
    named = {} if method is job.method else {"method": {"name": method.name}}
    sections = {"model": job.model, "training": job.training}
    given = {name: settings.model_dump(exclude_unset=True) for name, settings in sections.items()}
    return {**kept, "data": job.data, **{name: section for name, section in given.items() if section}, **named}


def _own(encoders: Encoders, names: Sequence[str]) -> Encoders:
    """The user's networks for these parties; all columns in one place have the built-in one."""
    if not isinstance(encoders, Mapping):
        return None if tuple(names) == ("everyone",) else encoders
    return {name: made for name, made in encoders.items() if name in names} or None


# -- what came out ------------------------------------------------------------------------------


def weigh(found: Sequence[Trained]) -> Worth:
    """What joining is worth, from runs that are finished."""
    joint = next(one for one in found if one.trial.role == "joint")
    record = joint.records[0]
    metric = metric_of_result(task_about(record["about"]), record["result"])
    best = _best(metric, [one for one in found if one.trial.role == "alone"])
    central = next((one for one in found if one.trial.role == "central"), None)
    price = None if central is None else _difference(metric, central, joint)
    missed = price is not None and sure(metric, price) > 0 and _adds_up(joint.trial.job)
    return {
        "format": FORMAT,
        "metric": metric.name,
        "rows": record["about"]["rows"]["test"],
        "trials": [_line(metric, one) for one in found],
        "best": None if best is None else best.trial.who,
        "gain": None if best is None else _difference(metric, joint, best),
        "price": price,
        "notes": [*([MISSED] if missed else []), *_notes([one.trial for one in found])],
    }


def _adds_up(job: Job) -> bool:
    """Whether nothing but a sum of the parties' scores is predicted, and no noise cost anything either."""
    lifted = bool(getattr(job.method, "lifts", 0))
    return isinstance(job.method, AddsScores) and not lifted and job.privacy == PrivacySettings()


def _notes(several: Sequence[Trial]) -> list[str]:
    """One sentence for each reason why another method trained something."""
    reasons = dict.fromkeys(trial.note for trial in several if trial.note)
    return [f"{listing([t.who for t in several if t.note == why])}: trained by {why}." for why in reasons]


def _best(metric: Metric, alone: Sequence[Trained]) -> Trained | None:
    """By the validation rows: chosen by the test rows it would be too good."""
    known = {one.trial.who: value for one in alone if (value := _validation(metric, one)) is not None}
    measured = [one for one in alone if one.trial.who in known and one.score is not None]
    return max(measured, key=lambda one: metric.sign() * known[one.trial.who], default=None)


def _validation(metric: Metric, one: Trained) -> float | None:
    """The metric on the validation rows; None where protected labels judged them, which is another number."""
    if any(labels_noised(record) for record in one.records):
        return None
    return spread([(record["result"].get("validation_metrics") or {}).get(metric.name) for record in one.records])[0]


def _line(metric: Metric, one: Trained) -> TrialRecord:
    around = one.interval()
    return {
        "role": one.trial.role,
        "who": one.trial.who,
        "runs": [record["id"] for record in one.records],
        "method": one.trial.job.method.name,
        "columns": one.columns,
        "score": one.score,
        "interval": None if around is None else list(around),
        "validation": _validation(metric, one),
    }


def _difference(metric: Metric, ours: Trained, theirs: Trained) -> Difference | None:
    a, b = ours.score, theirs.score
    if a is None or b is None:
        return None
    known = [[one for one in side.answers if one is not None] for side in (ours, theirs)]
    paired = all(len(own) == len(side.records) for own, side in zip(known, (ours, theirs), strict=True))
    if paired:
        around = paired_interval(metric, *known)
    else:
        ends = ours.interval(), theirs.interval()
        around = independent_interval(a, ends[0], b, ends[1]) if ends[0] and ends[1] else None
    return {"value": a - b, "interval": None if around is None else list(around), "paired": paired}


@dataclass
class Question:
    """Trials that are trained with several seeds, and what is known of them until they are weighed."""

    trials: Sequence[Trial]
    seeds: Sequence[int]
    answers: dict[str, Evaluated] = field(default_factory=dict, repr=False)  # to the test rows, by folder

    @property
    def entries(self) -> list[Entry]:
        """What to train, trial by trial, seed by seed."""
        return [Entry(_folder(trial, seed), _seeded(trial.job, seed)) for trial in self.trials for seed in self.seeds]

    def done(self, folder: str, run: Run) -> None:
        """Keep a run's answers until they are weighed."""
        if run.tested is not None:
            self.answers[folder] = run.tested

    def weigh(self, federation: Federation, records: Sequence[RunRecord]) -> Worth:
        """What joining is worth; the records are those of `entries`."""
        found, left = [], iter(records)
        for trial in self.trials:
            answers = [self.answers.get(_folder(trial, seed)) for seed in self.seeds]
            found.append(Trained(trial, trial.job.part_of(federation).width, [next(left) for _ in self.seeds], answers))
        return weigh(found)

    def settle(self, federation: Federation, records: Sequence[RunRecord], folder: Path) -> Worth:
        """The same, written as worth.json beside the runs; what is there already stays if nothing was trained."""
        earlier = read_worth(folder, records)
        if earlier is not None and not self.answers:
            return earlier
        return write_worth(self.weigh(federation, records), folder)


def write_worth(found: Worth, folder: Path) -> Worth:
    """Write worth.json beside the runs."""
    replace_file(folder / FILE, json.dumps(found, indent=1).encode())
    return found


def _folder(trial: Trial, seed: int) -> str:
    return f"{trial.folder}-{seed}"


def _seeded(job: Job, seed: int) -> Job:
    training = job.training.model_copy(update={"seed": seed})
    tables = job.tables and {**job.tables, "training": {**job.tables.get("training", {}), "seed": seed}}
    return replace(job, training=training, tables=tables)
