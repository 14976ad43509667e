"""Small real runs of separate organisations for the tests of faults, and what two of them must have in common.

Each run has its own server, a coordinator and three parties, all of them processes. A `Deed` arranges what one
of them does at a named point of its work: it dies, dawdles, fills its disk or lies. A deed is done once, whatever
happens to the process afterwards. Children import this file: no pytest here.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import json
import os
import resource
import signal
import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import wraps
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from colonnade.bench import organisations
from colonnade.bench.nats_server import NatsServer
from colonnade.bench.organisations import Organisations, Trial
from colonnade.config import build
from colonnade.deploy import coordinator as coordinator_module
from colonnade.deploy.coordinator import CoordinatorProcess
from colonnade.deploy.party import PartyProcess
from colonnade.deploy.party_setup import PartySetup
from colonnade.deploy.policy import Policy
from colonnade.deploy.taking_over import take_over
from colonnade.deploy.undertaking import Undertaking
from colonnade.engines.coordinator import CoordinatorSide
from colonnade.engines.nats import NatsLink
from colonnade.engines.party import PartySide
from colonnade.engines.remote import Remote
from colonnade.federation import Federation
from colonnade.fit import Trainer
from colonnade.run import Run
from colonnade.store import Store
from colonnade.testing.trainings import timeless
from colonnade.wire.messages import COORDINATOR
from tests.federations import mixed_encoder, small
from tests.processes import LONG

RUN = "test"  # as in tests.rounds: equal runs send equal bytes
PARTIES = ("party_0", "party_1", "party_2")
ROUNDS = 6  # rounds 1 to 6 train, 7 evaluates the validation rows, 8 says stop, 9 evaluates the test rows
EVALUATION, STOP, TEST = ROUNDS + 1, ROUNDS + 2, ROUNDS + 3
PATIENCE = LONG  # seconds until a run that hangs fails its test; a normal one takes one or two
DATA = {"widths": (5, 4, 5), "rows": 90}
METHOD = {"name": "vimadmm", "local_steps": 2}
MODEL = {"hidden": 6, "embedding": 4}
TRAINING = {
    "rounds": ROUNDS,
    "dtype": "float64",
    "evaluate_every": 2,
    "schedule": {"batch": 20},
    "stopping": {"drop": 1e9},
}


# -- deeds ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Point:
    """Before or after a call; `about` says what the call is about: a round, or a kind of message."""

    owner: Any
    name: str
    when: str
    about: Callable[..., object] = lambda *_, **__: None


def _posted(link: NatsLink, *to_send: Any, **_: Any) -> str:
    return f"{to_send[-1].message.kind} {to_send[-1].message.number}"


def _committed(store: Store, facts: Mapping[str, Any], *_: Any, **__: Any) -> object:
    return facts["number"]


def _ordered(_: object, order: Any, *__: Any) -> object:
    return order.number


POINTS = {
    "before learning": Point(PartySide, "answer", "before", _ordered),
    "before a commit": Point(Store, "commit", "before", _committed),
    "after a commit": Point(Store, "commit", "after", _committed),
    "before sending": Point(NatsLink, "send", "before", _posted),
    "after sending": Point(NatsLink, "send", "after", _posted),
    "before the agreement is stored": Point(Store, "describe", "before"),
    "after the agreement is stored": Point(Store, "describe", "after"),
    "all have joined": Point(coordinator_module, "settle", "before"),
    "before a request is sent": Point(Remote, "run_round", "before", _ordered),
    "after a request is sent": Point(Remote, "_collect", "before", lambda _, now: now.request.number),
    "after all answers": Point(CoordinatorSide, "receive", "after", _ordered),
    "after the stop": Point(Trainer, "_finish", "before"),
    "before the test": Point(Trainer, "_test", "before"),
    "after the test": Point(Trainer, "_test", "after"),
    "before saving": Point(Run, "save", "before"),
    "after saving": Point(Run, "save", "after"),
    "before closing": Point(CoordinatorProcess, "_close", "before"),
    "before handling": Point(PartyProcess, "handle", "before"),
}


@dataclass(frozen=True)
class Deed:
    """What somebody does, once, at a point of its work; `act` is a name below, or "module:function"."""

    who: str
    point: str
    about: object = None
    act: str = "die"
    value: Any = None


@dataclass
class Doer:
    """Does the deeds of one process."""

    trial: FaultyTrial
    name: str

    def arm(self) -> None:
        for number, deed in enumerate(self.trial.deeds):
            if deed.who == self.name:
                self._patch(deed, self.trial.place(self.name) / f"deed-{number}")

    def _patch(self, deed: Deed, done: Path) -> None:
        point = POINTS[deed.point]
        original = getattr(point.owner, point.name)

        @wraps(original)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            now = not done.exists() and (deed.about is None or deed.about == point.about(*args, **kwargs))
            if now and point.when == "before":
                self._do(deed, done, args)
            result = original(*args, **kwargs)
            if now and point.when == "after":
                self._do(deed, done, args)
            return result

        setattr(point.owner, point.name, wrapped)

    def _do(self, deed: Deed, done: Path, args: tuple[Any, ...]) -> None:
        done.touch()
        module, _, name = deed.act.rpartition(":")
        act = getattr(importlib.import_module(module), name) if module else ACTS[name]
        act(self, deed.value, args)


def die(doer: Doer, value: Any, args: tuple[Any, ...]) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def dawdle(doer: Doer, value: float, args: tuple[Any, ...]) -> None:
    time.sleep(value)


def wait_for_go(doer: Doer, value: Any, args: tuple[Any, ...]) -> None:
    """Stop where one is until the test lets one go on."""
    deadline = time.monotonic() + PATIENCE
    while not (doer.trial.folder / "go").exists() and time.monotonic() < deadline:
        time.sleep(0.01)


def fill_disk(doer: Doer, value: Any, args: tuple[Any, ...]) -> None:
    """Leave no room on the file system of the process's folder."""
    with (doer.trial.place(doer.name) / "ballast").open("wb", buffering=0) as ballast:
        for size in (2**16, 1):
            try:
                while True:
                    ballast.write(bytes(size))
            except OSError:
                pass


def stop_files_from_growing(doer: Doer, value: Any, args: tuple[Any, ...]) -> None:
    """No file of this process may become longer than the longest one it has."""
    longest = max(file.stat().st_size for file in doer.trial.place(doer.name).iterdir())
    resource.setrlimit(resource.RLIMIT_FSIZE, (longest, longest))


def lose_the_finite_numbers(doer: Doer, value: Any, args: tuple[Any, ...]) -> None:
    """The party's network is NaN from here on, as after steps that were far too long."""
    cohort = args[0].cohort
    cohort.restore({name: tensor * float("nan") for name, tensor in cohort.tensors().items() if "parameter." in name})


def fail_at_learning(doer: Doer, value: Any, args: tuple[Any, ...]) -> None:
    """From here on the method fails on this party's numbers, as a solve of a singular system does; not on zeros."""
    import torch

    learn = type(args[0].method).learn

    def failing(method: Any, cohort: Any, *rest: Any) -> None:
        if bool(cohort.columns.any()):
            raise torch.linalg.LinAlgError("the matrix is singular")  # type: ignore[attr-defined]
        learn(method, cohort, *rest)

    type(args[0].method).learn = failing  # type: ignore[method-assign]


ACTS: dict[str, Callable[[Doer, Any, tuple[Any, ...]], None]] = {
    "die": die,
    "dawdle": dawdle,
    "wait": wait_for_go,
    "fill the disk": fill_disk,
    "stop files from growing": stop_files_from_growing,
    "lose the finite numbers": lose_the_finite_numbers,
    "fail at learning": fail_at_learning,
}


# -- a trial and its processes ------------------------------------------------------------------


@dataclass(frozen=True)
class FaultyTrial(Trial):
    """A small made-up federation, and what goes wrong in it."""

    deeds: tuple[Deed, ...] = ()
    mixed: bool = False  # two architectures
    policy: Mapping[str, Any] = field(default_factory=dict)  # of every party
    outside: Mapping[str, str] = field(default_factory=dict)  # network namespaces of the processes
    who: tuple[str, ...] = PARTIES  # who takes part
    former: FaultyTrial | None = None  # whose parts are taken over

    def federation(self) -> Federation:
        return small(**self.data).only(self.who)

    def undertaking(self) -> Undertaking:
        return taking_over(self.former, super().undertaking()) if self.former else super().undertaking()

    def setup(self, name: str) -> PartySetup:
        setup, former = replace(super().setup(name), policy=build(Policy, self.policy, "policy")), self.former
        if former is not None:
            setup = replace(setup, finished=lambda run: [former.place(name)])
        return replace(setup, encoders=mixed_encoder) if self.mixed else setup


def taking_over(former: Trial, now: Undertaking, places: Tensor | None = None) -> Undertaking:
    """An undertaking that takes over the parts of a finished trial; `places`: which row each was there."""
    place = former.place(COORDINATOR)
    with contextlib.closing(Store(place / "run.db")) as store:
        about = store.about()
    rows = torch.arange(len(now.labels)) if places is None else places
    return take_over(Run.load(place), about, former.undertaking(), now, rows)


def work(trial: FaultyTrial, name: str) -> None:
    """What a process does; every message it means to send is noted beside its store."""
    if name in trial.outside:
        move_to(trial.outside[name])
    send, notes = NatsLink.send, trial.place(name) / "sent.jsonl"

    def noted(self: NatsLink, *to_send: Any, **options: Any) -> None:
        with notes.open("a") as file:
            for outgoing in to_send:
                digest = hashlib.sha256(outgoing.message.payload).hexdigest()
                what = {"number": outgoing.message.number, "kind": outgoing.message.kind, "part": outgoing.part}
                file.write(json.dumps({**what, "to": outgoing.to, "digest": digest}) + "\n")
        send(self, *to_send, **options)

    NatsLink.send = noted  # type: ignore[method-assign]
    Doer(trial, name).arm()
    organisations.work(trial, name)


def move_to(namespace: str) -> None:
    """Put this process into a network namespace; threads that it starts from now on are there, too."""
    import ctypes

    with Path(f"/run/netns/{namespace}").open() as handle:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(handle.fileno(), 0x40000000) != 0:
            raise OSError(ctypes.get_errno(), f"cannot enter the network namespace {namespace}")


class Stage:
    """A server and the organisations of one trial; use it as a context manager."""

    def __init__(self, folder: Path, *deeds: Deed, server: NatsServer | None = None, **changes: Any) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.server = server or NatsServer(folder / "nats", PARTIES)
        plain: dict[str, Any] = {"data": DATA, "method": METHOD, "model": MODEL, "training": TRAINING, "noise": 0.05}
        connections = self.server.connections()
        self.trial = FaultyTrial(folder, RUN, connections, deeds=deeds, **{**plain, **changes})
        self.organisations = self._people(self.trial)
        self.kills = 0

    @staticmethod
    def _people(trial: FaultyTrial) -> Organisations:
        return Organisations(trial, work)

    def change(self, **changes: Any) -> None:
        """From the next start on, somebody brings something else."""
        processes = self.organisations.processes
        self.trial = replace(self.trial, **changes)
        self.organisations = self._people(self.trial)
        self.organisations.processes = processes

    def __enter__(self) -> Stage:
        self.server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End whatever is at work."""
        self.organisations.stop()
        self.server.close()

    # -- letting it run -----------------------------------------------------------------------

    def revive(self) -> bool:
        """Start again whoever was killed; whether anybody is at work. An error of anybody is an error of the test."""
        for name, process in list(self.organisations.processes.items()):
            ended_with = process.exitcode  # read once: it may die between two questions
            if ended_with == -signal.SIGKILL:
                self.kills += 1
                self.organisations.start(name)
            elif ended_with:
                raise AssertionError(f"{name} ended with {ended_with}: {self.failure(name)}")
        return bool(self.organisations.running())

    def play(self, patience: float = PATIENCE) -> Ending:
        """Start everybody who is not there, and let them come to the end."""
        self.organisations.start()
        play_all({"it": self}, patience)
        return self.ending()

    def kill(self, name: str) -> None:
        """SIGKILL to a process, and wait until it is gone."""
        self.organisations.kill(name)

    def wait_for(self, who: str, event: str, patience: float = PATIENCE, **facts: Any) -> dict[str, Any]:
        """Wait until somebody has said this; an entry of `facts` may be a test of the value."""

        def fits(entry: Mapping[str, Any]) -> bool:
            told = {k: entry.get(k) for k in facts}
            return entry["event"] == event and all(
                v(told[k]) if callable(v) else v == told[k] for k, v in facts.items()
            )

        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            found = next((entry for entry in self.events(who) if fits(entry)), None)
            if found is not None:
                return found
            time.sleep(0.01)
        raise AssertionError(f"{who} never said {event} {facts}; it said {self.events(who)[-5:]}")

    def go(self) -> None:
        """Let somebody who waits for it go on."""
        (self.trial.folder / "go").touch()

    def wait_until_gone(self, *names: str, patience: float = PATIENCE) -> list[int | None]:
        """Wait until these processes have ended; their exit codes."""
        for name in names:
            self.organisations.processes[name].join(patience)
        return [self.organisations.processes[name].exitcode for name in names]

    # -- what is left of it -------------------------------------------------------------------

    def events(self, who: str) -> list[dict[str, Any]]:
        return self.organisations.events(who)

    def said(self, who: str, event: str) -> list[dict[str, Any]]:
        """All events of one kind."""
        return [entry for entry in self.events(who) if entry["event"] == event]

    def failure(self, who: str) -> str:
        """The last sentence of a process that could not go on, with its kind."""
        told = self.said(who, "failed")
        if not told:
            process = self.organisations.processes[who]
            return f"{who} ended with {process.exitcode} and did not say why; last: {self.events(who)[-3:]}"
        return f"{told[-1]['kind']}: {told[-1]['error']}"

    def sent(self, who: str) -> list[dict[str, Any]]:
        """Every message that somebody meant to send, in order, over all its lives."""
        path = self.trial.place(who) / "sent.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def ending(self) -> Ending:
        return Ending.of(self)

    def ledger(self, party: str) -> list[dict[str, Any]]:
        """What a party has released."""
        store = Store(self.trial.place(party) / "party.db")
        try:
            saved = store.snapshot()
            return [timeless(release) for release in saved.ledger] if saved else []
        finally:
            store.close()

    def state(self, party: str) -> str:
        """A digest of everything that a party has stored."""
        with contextlib.closing(sqlite3.connect(f"file:{self.trial.place(party)}/party.db?mode=ro", uri=True)) as store:
            return hashlib.sha256("\n".join(store.iterdump()).encode()).hexdigest()


def play_all(stages: Mapping[str, Stage], patience: float = PATIENCE) -> None:
    """Let several trials come to their end at the same time; they wait more than they work."""
    deadline = time.monotonic() + patience
    playing = dict(stages)
    while playing:
        playing = {name: stage for name, stage in playing.items() if stage.revive()}
        if playing and time.monotonic() > deadline:
            last = {n: {w: s.events(w)[-3:] for w in s.organisations.running()} for n, s in playing.items()}
            raise AssertionError(f"still at work after {patience} s: {last}")
        time.sleep(0.02)


def play_cases(
    folder: Path, cases: Mapping[str, Sequence[Deed]], calm: Ending, at_once: int = 5, **changes: Any
) -> dict[str, str]:
    """Play a run for each case, some at a time; what is wrong with those that do not end like the calm one."""
    problems: dict[str, str] = {}
    waiting = [(case, Stage(folder / f"case-{n}", *cases[case], **changes)) for n, case in enumerate(cases)]
    playing: list[tuple[str, Stage, float]] = []
    with contextlib.ExitStack() as stack:
        while waiting or playing:
            while waiting and len(playing) < at_once:
                case, stage = waiting.pop(0)
                stack.enter_context(stage).organisations.start()
                playing.append((case, stage, time.monotonic() + PATIENCE))
            for item in list(playing):
                if (problem := _problem(item[1], item[2], calm)) is not None:
                    playing.remove(item)
                    item[1].close()
                    problems |= {item[0]: problem} if problem else {}
            time.sleep(0.02)
    return problems


def _problem(stage: Stage, deadline: float, calm: Ending) -> str | None:
    """None while it is at work; then what is wrong, or nothing."""
    try:
        if stage.revive():
            stuck = {who: stage.events(who)[-3:] for who in stage.organisations.running()}
            return f"still at work: {stuck}" if time.monotonic() > deadline else None
    except AssertionError as error:
        return str(error)
    differences = stage.ending().differences(calm)
    twice = [message for who in (COORDINATOR, *PARTIES) for message in two_versions(stage.sent(who))]
    if stage.kills != len(stage.trial.deeds):
        return f"{stage.kills} were killed, not {len(stage.trial.deeds)}"
    if differences or twice:
        return f"differs in {differences}; sent in two versions: {twice}"
    return ""


# -- how it ended -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ending:
    """Everything that must be the same, whatever happened on the way."""

    model: str  # fingerprint of the coordinator's part
    models: dict[str, str]  # digests of all that a party holds, its model among it
    ledgers: dict[str, list[dict[str, Any]]]  # of the parties and the coordinator
    result: dict[str, Any]  # scores, rounds, reason
    history: list[dict[str, Any]]
    traffic: list[dict[str, Any]]

    @classmethod
    def of(cls, stage: Stage) -> Ending:
        run = Run.load(stage.trial.place(COORDINATOR))
        models, ledgers = {}, {COORDINATOR: [timeless(release) for release in run.ledger]}
        for party in PARTIES:
            store = Store(stage.trial.place(party) / "party.db")
            saved = store.snapshot()
            store.close()
            assert saved is not None, f"{party} has stored nothing"
            models[party] = digest_of(saved.tensors)
            ledgers[party] = [timeless(release) for release in saved.ledger]
        result = {k: v for k, v in run.result.items() if k != "seconds"}
        history = [{k: v for k, v in entry.items() if k != "seconds"} for entry in run.history]
        return cls(run.fingerprint(), models, ledgers, result, history, run.traffic.to_json())

    def differences(self, other: Ending) -> list[str]:
        """The parts in which two endings differ."""
        return [part.name for part in fields(self) if getattr(self, part.name) != getattr(other, part.name)]


def digest_of(tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name, value in sorted(tensors.items()):
        digest.update(f"{name}{tuple(value.shape)}{value.dtype}".encode())
        digest.update(value.contiguous().numpy().tobytes())
    return digest.hexdigest()


def two_versions(messages: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Releases that a process meant to send with two different contents: two noises for one round."""
    first: dict[tuple[Any, ...], Any] = {}
    releases = ("TRAIN", "EVALUATE", "PREDICT", "ALL", "OWN")
    mine = [m for m in messages if m["kind"] in releases]
    return [
        m for m in mine if first.setdefault((m["number"], m["kind"], m["part"], m["to"]), m)["digest"] != m["digest"]
    ]


def orders(seen: Sequence[Mapping[str, Any]]) -> list[int]:
    """The rounds that events speak of."""
    return [int(entry["round"]) for entry in seen]
