"""`colonnade privacy page`: what leaves one party, for its data-protection officer."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from colonnade.cli.options import read_config
from colonnade.errors import ConfigError, RunError

if TYPE_CHECKING:
    from colonnade.estimate import Estimate
    from colonnade.federation import Federation
    from colonnade.job import Job
    from colonnade.privacy.sampled import SampledGaussianEvent
    from colonnade.privacy.tally import Tally
    from colonnade.report.officer_source import Flow, Source


def source_of(what: Path, party: str | None, overrides: list[str] | None, data_dir: Path | None) -> Source:
    """What a page is made of: a run's folder, a party's folder, or a configuration file."""
    from colonnade.report.officer_source import is_party_folder, of_party, of_run

    if what.is_dir() and (overrides or data_dir):
        raise ConfigError("--set and --data-dir are for a configuration file; what has been trained is not changed")
    if is_party_folder(what):
        found = of_party(what)
        if party not in (None, found.party):
            raise RunError(f"{what} is the folder of {found.party!r}, and has nothing about {party!r}")
        return found
    if party is None:
        raise ConfigError("--party NAME: whose page? a party, or coordinator for the label holder's")
    return of_run(what, party) if what.is_dir() else planned(what, party, overrides, data_dir)


def planned(config: Path, party: str, overrides: list[str] | None, data_dir: Path | None) -> Source:
    """Before training: messages and bytes of a rehearsal, figures of the settings."""
    from colonnade.estimate import estimate
    from colonnade.job import read_job
    from colonnade.privacy.statement import Statement
    from colonnade.report.officer_source import Source, circumstances
    from colonnade.wire.messages import COORDINATOR

    job = read_job(read_config(config, overrides, data_dir))
    federation = job.federation()
    names = federation.names
    if job.method.pools:
        raise ConfigError(f"{job.method.name} has all columns in one place, and nobody sends anything")
    if party == COORDINATOR or party not in names:
        told = "replies are counted when they are made" if party == COORDINATOR else f"there are {', '.join(names)}"
        raise ConfigError(f"--party {party}: before training there is a page for each party only; {told}")
    found, place = estimate(job, federation), names.index(party)
    about = circumstances(job.method, job.privacy, deployed=False, uploaded=found.traffic.up > 0)
    statement = Statement.from_tally(_tallies(job, found, federation), job.privacy, about)
    down = sum(int(one.down[place]) for one in found.traffic.rounds)
    made = (party, names, job.method, job.privacy)
    return Source(*made, "plan", str(config), statement, _flows(job, found, place), down=down)


def _tallies(job: Job, found: Estimate, federation: Federation) -> list[Tally]:
    """What each party would have spent when training is over; no figure where the method brings noise of its own."""
    from colonnade.methods.base import brings
    from colonnade.privacy.accounting import shift_of
    from colonnade.privacy.tally import Tally

    names = federation.names
    if job.privacy.by_row:
        event = _at_home(job, federation)
        return [Tally(name, 1, math.inf, (), (), simulated=False, sampled=(event,)) for name in names]
    own = brings(job.method)
    sent = [sum(bool(one.up[place]) for one in found.traffic.rounds) for place in range(len(names))]
    most, made = max(sent), []
    for name, releases in zip(names, sent, strict=True):
        shift = math.inf if releases else 0.0
        if job.privacy.protects and releases:
            shift = shift_of(job.privacy.noise(most), releases, job.privacy.neighbours)
        bare = () if job.privacy.protects or own or not releases else (("TRAIN", releases),)
        made.append(Tally(name, releases, shift, bare, (own,) if own else (), simulated=False))
    return made


def _at_home(job: Job, federation: Federation) -> SampledGaussianEvent:
    """What the ledger of each party would say of its training at home."""
    from colonnade.methods.by_row import local_steps_of
    from colonnade.methods.rounds import schedule_of
    from colonnade.privacy.gaussian import SystemNoise
    from colonnade.privacy.sampled import SampledGaussianEvent

    training, names = job.on(federation).training, federation.names
    schedule = schedule_of(job.method, training.schedule, federation.split.train, names, training.seed)
    event = job.privacy.row_noise(local_steps_of(job.method, schedule, training.rounds), SystemNoise()).event
    assert isinstance(event, SampledGaussianEvent)
    return event


def _flows(job: Job, found: Estimate, place: int) -> tuple[Flow, ...]:
    """Uploads of training, and of evaluation if anything may leave for it."""
    from colonnade.report.officer_source import Flow, noise_words, planned_uploads
    from colonnade.wire.messages import COORDINATOR

    traffic = found.traffic.to_json()
    training = planned_uploads(traffic, place, noise_words(job.method, job.privacy), found.batch)
    looks = [one for one in traffic if one["evaluation_up"]]
    size = sum(one["evaluation_up"] for one in looks) // len(found.traffic.parties)
    evaluation = Flow("EVALUATE", COORDINATOR, len(looks), 0, "", size)
    return tuple(flow for flow in (training, evaluation) if flow.messages)
