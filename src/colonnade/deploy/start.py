"""From a configuration file to a running process: what the commands `align`, `party` and `coordinator` call."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from colonnade.align.files import Alignment, read_alignment
from colonnade.data.beside import Beside
from colonnade.deploy.coordinator import PURPOSES, CoordinatorProcess, Undertaking
from colonnade.deploy.party import PartyProcess
from colonnade.deploy.party_setup import PartySetup
from colonnade.deploy.policy import read_policy
from colonnade.deploy.settings import CoordinatorConfig, PartyConfig, read_coordinator, read_party, split_of
from colonnade.deploy.tables import LabelTable, PartyTable
from colonnade.engines.link import Link
from colonnade.engines.message import Notify
from colonnade.engines.nats import NatsLink
from colonnade.errors import ShortTraining
from colonnade.fit import find_device
from colonnade.folder import claimed
from colonnade.identity.credentials import Credentials
from colonnade.methods.base import check_lacking
from colonnade.methods.rounds import schedule_of
from colonnade.progress import Progress, Watcher
from colonnade.run import Run

DEPLOYMENT = "deployment.json"  # beside the run: where its configuration file is, for later predictions


def run_party(config: Path, overrides: list[str] | None, once: bool, notify: Notify) -> dict[str, str]:
    """Take part until the run is closed (`once`) or until interrupted; how it ended."""
    read = read_party(config, overrides)
    credentials, setup = read.credentials(), party_setup(read)
    with claimed(read.party.folder), linked(credentials, read.party.run, notify) as link:
        process = PartyProcess(read.party.folder, link, credentials, setup, notify)
        try:
            stop = process.serve(once)
            return {"run": read.party.run, "party": read.party.name, "stop": stop, "folder": str(read.party.folder)}
        finally:
            process.store.close()


def party_setup(read: PartyConfig) -> PartySetup:
    """What the files of a party say it brings."""
    p = read.party
    alignment = read_alignment(p.alignment)
    table = PartyTable(p.name, p.table, p.id, alignment, p.categories, read.columns, p.text)
    find_device(p.device, "party.device")
    table.columns(torch.arange(alignment.complete), alignment.complete)  # what is wrong with it is said now, and here
    policy = read_policy(p.policy)
    return PartySetup(
        table.columns,
        policy,
        model=read.model,
        device=p.device,
        alignment=alignment.digest,
        table=p.called,
        ids=table.ids,
        spent=p.spent,
    )


def run_coordinator(
    config: Path, overrides: list[str] | None, notify: Notify, watch: Watcher | None = None
) -> tuple[Run, Path]:
    """Train to the end; the run and its folder."""
    read = read_coordinator(config, overrides)
    credentials, folder = read.credentials(), read.coordinator.folder
    undertaking = read_undertaking(read, read_alignment(read.coordinator.alignment))
    u = undertaking
    schedule = schedule_of(u.method, u.training.schedule, u.split.train, u.parties, 0)
    if short := schedule.shortfall(u.training.rounds):
        warnings.warn(short, ShortTraining, stacklevel=2)
    with claimed(folder) as claim, linked(credentials, read.coordinator.run, notify) as link:

        def noted(now: Progress) -> bool | None:
            claim.note(f"still training, round {now.round} of {now.rounds}")
            return watch(now) if watch is not None else None

        (folder / DEPLOYMENT).write_text(json.dumps({"config": str(config.resolve())}) + "\n")
        return CoordinatorProcess(folder, link, credentials, undertaking, notify).serve(noted), folder


def read_undertaking(read: CoordinatorConfig, alignment: Alignment) -> Undertaking:
    """What the files of the label holder ask for."""
    c = read.coordinator
    beside = Beside(c.weights, split_of(c, read.privacy.labels.protects), c.by)
    lacking = c.parties if c.train_on == "all" else ()
    if lacking:
        check_lacking(read.method)
    labels = LabelTable.read(c.table, c.id, c.label, c.task, alignment, beside, c.classes, c.text, lacking=lacking)
    return Undertaking(
        parties=c.parties,
        labels=labels.labels,
        task=labels.task,
        split=labels.split,
        method=read.method,
        model=read.model,
        training=read.training.in_rounds(read.method, labels.split.train, c.parties),
        absence=read.absence,
        privacy=read.privacy,
        alignment=alignment.digest,
        purposes=PURPOSES if c.predictions else PURPOSES[:2],
        config=read.tables,
        weights=labels.weights,
        by=labels.by,
        held=labels.held,
        own=c.own,
    )


@contextmanager
def linked(credentials: Credentials, run: str, notify: Notify) -> Iterator[Link]:
    """A link that is open for as long as it is used."""
    link = NatsLink(credentials, run, notify).open()
    try:
        yield link
    finally:
        link.close()
