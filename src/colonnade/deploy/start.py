"""From a configuration file to a running process: what the commands `align`, `party` and `coordinator` call."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import torch

from colonnade.align.files import read_alignment
from colonnade.deploy.coordinator import CoordinatorProcess
from colonnade.deploy.invitation import RUNS, Invitations
from colonnade.deploy.label_beside import labels_beside
from colonnade.deploy.party import PartyProcess
from colonnade.deploy.party_setup import PartySetup
from colonnade.deploy.policy import read_policy
from colonnade.deploy.scores import count_tested
from colonnade.deploy.settings import CoordinatorConfig, PartyConfig, read_coordinator, read_party
from colonnade.deploy.tables import PartyTable
from colonnade.deploy.taking_over import read_taken
from colonnade.deploy.undertaking import Undertaking
from colonnade.deploy.undertaking_files import DEPLOYMENT, alignment_of, check_split, read_undertaking
from colonnade.deploy.withdrawal.limits import people_at
from colonnade.deploy.withdrawal.start import WithdrawalAnswers, hear_at_start, side_of, stop_for
from colonnade.engines.connection import NatsConnection
from colonnade.engines.link import Link
from colonnade.engines.message import Notify
from colonnade.engines.nats import NatsLink
from colonnade.errors import ShortTraining
from colonnade.fit import find_device
from colonnade.folder import claimed
from colonnade.identity.credentials import Credentials
from colonnade.live import Live
from colonnade.methods.rounds import schedule_of
from colonnade.progress import Progress, Watcher
from colonnade.run import Run
from colonnade.withdrawn import read_withdrawn


def run_party(config: Path, overrides: list[str] | None, once: bool, notify: Notify) -> dict[str, str]:
    """Take part until the run is closed (`once`) or until interrupted; how it ended."""
    read = read_party(config, overrides)
    credentials, setup = read.credentials(), party_setup(read)
    run = read.party.one_run
    told = Live(read.party.folder).telling(notify)
    with (
        claimed(read.party.folder),
        connected(credentials, told) as connection,
        linked(credentials, run, told, connection) as link,
        WithdrawalAnswers(read, told, connection),
    ):
        process = PartyProcess(read.party.folder, link, credentials, setup, told)
        try:
            stop = process.serve(once)
            return {"run": run, "party": read.party.name, "stop": stop, "folder": str(read.party.folder)}
        finally:
            with closing(process.store):
                process.tidy()


def party_setup(read: PartyConfig) -> PartySetup:
    """What the files of a party say it brings; what is wrong with them is said now, and here."""
    table = party_table(read)
    find_device(read.party.device, "party.device")
    setup, complete = setup_of(read, table), table.alignment.complete
    setup.columns_of("", torch.arange(complete), complete, setup.left_out())
    return setup


def setup_of(read: PartyConfig, table: PartyTable) -> PartySetup:
    """The same, of a table that was read."""
    p, alignment = read.party, table.alignment
    return PartySetup(
        table.columns,
        read_policy(p.policy),
        model=read.model,
        device=p.device,
        alignment=alignment.digest,
        table=p.called,
        ids=table.ids,
        spent=p.spent,
        former={digest: table.as_of(digest).columns for digest in alignment.extends},
        further=lambda began, named, columns: party_table(read).further(began, named, columns),
        withdrawn=people_at(p.withdrawn, p.alignment, alignment),
        finished=lambda run: [p.takes_over] if p.takes_over else [p.folder / run, p.folder.with_name(run), p.folder],
    )


def party_table(read: PartyConfig) -> PartyTable:
    """A party's table with the rows that are aligned now."""
    p = read.party
    alignment = read_alignment(p.alignment)
    gone = read_withdrawn(p.withdrawn).ids
    text, labels = p.text, labels_beside(read)
    return PartyTable(p.name, p.table, p.id, alignment, p.categories, read.columns, text, gone, p.label, labels)


def run_coordinator(
    config: Path, overrides: list[str] | None, notify: Notify, watch: Watcher | None = None
) -> tuple[Run, Path]:
    """Train to the end; the run and its folder."""
    read = read_coordinator(config, overrides)
    credentials, folder = read.credentials(), read.coordinator.folder
    people = read_withdrawn(read.coordinator.withdrawn).ids  # until the training begins, more may be on the list
    undertaking = undertaking_now(read)
    u = undertaking
    schedule = schedule_of(u.method, u.training.schedule, u.split.train, u.parties, 0)
    if short := schedule.shortfall(u.training.rounds):
        warnings.warn(short, ShortTraining, stacklevel=2)
    run, live = read.coordinator.run, Live(folder)
    told = live.telling(notify)
    with (
        claimed(folder) as claim,
        connected(credentials, told) as connection,
        linked(credentials, run, told, connection) as link,
        linked(credentials, RUNS, told, connection) as runs,
    ):
        hear_at_start(read, told, connection)
        check_people = stop_for(side_of(read), lambda: check_split(u.split, alignment_of(read), read))
        if read_withdrawn(read.coordinator.withdrawn).ids != people:
            undertaking = u = undertaking_now(read)

        def noted(now: Progress) -> bool | None:
            check_people()
            claim.note(f"still training, round {now.round} of {now.rounds}")
            if live.due():
                live.round(now)
            return watch(now) if watch is not None else None

        (folder / DEPLOYMENT).write_text(json.dumps({"config": str(config.resolve()), "run": run}) + "\n")
        invite = Invitations(runs, run, u.parties)
        trained = CoordinatorProcess(folder, link, credentials, undertaking, told, invite).serve(noted)
        live.ended(trained.result["stop"])
        if trained.tested is not None:
            count_tested(folder, trained.tested, trained.model.classes)
        return trained, folder


def undertaking_now(read: CoordinatorConfig) -> Undertaking:
    """What the files of the label holder ask for, and those of the run whose parts are taken over, if it names one."""
    alignment = alignment_of(read)
    return read_taken(read, alignment, read_undertaking(read, alignment))


@contextmanager
def connected(credentials: Credentials, notify: Notify) -> Iterator[NatsConnection]:
    """A connection for several links, open for as long as it is used."""
    connection = NatsConnection(credentials, notify).open()
    try:
        yield connection
    finally:
        connection.close()


@contextmanager
def linked(credentials: Credentials, run: str, notify: Notify, shared: NatsConnection | None = None) -> Iterator[Link]:
    """A link that is open for as long as it is used."""
    link = NatsLink(credentials, run, notify, shared=shared).open()
    try:
        yield link
    finally:
        link.close()
