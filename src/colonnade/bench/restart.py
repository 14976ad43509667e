"""Every method, killed at random moments and started again, must end with the bits of a run that was left in peace.

One process (engines `loop` and `stacked`) and separate organisations, in float32 and float64. In one process a kill is
a SIGKILL of the training, followed by `resume`; between organisations the server, the coordinator or a party dies. The
shapes are those in which a restart once differed on some processors: two parties, narrow layers, a wide batch.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import tempfile
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import Field

from colonnade.bench.catalogue import Bench
from colonnade.bench.disturb import Kills, play
from colonnade.bench.nats_server import NatsServer
from colonnade.bench.organisations import Trial
from colonnade.bench.settings import Notify, Options
from colonnade.config import Settings, build
from colonnade.errors import ConfigError, DoubtfulScore, LinkError, RunError
from colonnade.fit import fit, resume
from colonnade.job import load_data
from colonnade.methods import METHODS, make_method
from colonnade.randomness import stream
from colonnade.record import Section, Sections
from colonnade.run import STORE, Run
from colonnade.store import Store
from colonnade.testing.trainings import unsigned
from colonnade.wire.messages import COORDINATOR

ORGANISATIONS = "organisations"
PLACES = ("loop", "stacked", ORGANISATIONS)
DTYPES = ("float32", "float64")
PARTIES = ("party_1", "party_2")
PATIENCE = 300.0  # seconds until a training counts as stuck
# Half of the rows count as unmatched, so that this method has something to guess.
TRIED_WITH: Sections = {"fedmvt": {"matched": 0.5}}
EXCLUDED = {  # method -> why it does not run between organisations
    "centralized": "it pools all columns in one place",
    "fedmvt": "it needs rows that some party lacks, and organisations agree on common rows",
}


class RestartSettings(Settings):
    """Sizes of the restart benchmark."""

    methods: tuple[str, ...] = Field((), description="methods to try; none: every one")
    places: tuple[str, ...] = Field(PLACES, description="loop, stacked, organisations")
    rounds: int = Field(12, ge=3, description="rounds of training")
    kills: int = Field(3, ge=1, description="SIGKILLs per run")
    pause: float = Field(0.04, ge=0, description="seconds by which a round is drawn out")
    batch: int = Field(512, ge=1, description="rows per round")
    hidden: int = Field(12, ge=1, description="hidden width of the local networks")
    embedding: int = Field(6, ge=1, description="width of an embedding")


@dataclass(frozen=True)
class Case:
    """One method in one place with one kind of numbers."""

    method: str
    place: str
    dtype: str
    settings: RestartSettings

    def __str__(self) -> str:
        return f"{self.method}, {self.place}, {self.dtype}"

    @property
    def of_method(self) -> Section:
        """Its settings; noise of a method's own is another at every start between organisations, so it is off there."""
        wanted = {"local_steps": 2, **TRIED_WITH.get(self.method, {})}
        if self.place == ORGANISATIONS:
            wanted["noise"] = False
        return {name: value for name, value in wanted.items() if name in METHODS[self.method].model_fields}

    @property
    def training(self) -> Section:
        """Length, batches, numbers and, in one process, the engine."""
        engine = {} if self.place == ORGANISATIONS else {"engine": self.place, "checkpoint_every": 1}
        s = self.settings
        return {
            "rounds": s.rounds, "dtype": self.dtype, "evaluate_every": 3, "schedule": {"batch": s.batch},
            "stopping": {"drop": 1e9}, **engine,
        }  # fmt: skip

    @property
    def model(self) -> Section:
        """Narrow networks."""
        return {"hidden": self.settings.hidden, "embedding": self.settings.embedding}

    @property
    def data(self) -> Section:
        """The bundled digits."""
        return {"set": "digits", "parties": len(PARTIES)}

    def trial(self, folder: Path, server: NatsServer) -> Trial:
        """The run of separate organisations."""
        return Trial(
            folder=folder,
            run="restart",
            connections={name: server.connection(name) for name in (COORDINATOR, *PARTIES)},
            data=self.data,
            method={"name": self.method, **self.of_method},
            model=self.model,
            training=self.training,
            pause=dict.fromkeys(PARTIES, self.settings.pause),
        )


def run_restart(bench: Bench, options: Options, notify: Notify) -> dict[str, float | None]:
    """How many killed runs were tried, and how many of them ended with the same bits as an undisturbed one."""
    settings = build(RestartSettings, bench.tables.get("restart", {}), "restart")
    if unknown := set(settings.places) - set(PLACES):
        raise ConfigError(f"restart.places has {sorted(unknown)[0]!r}; choose from {', '.join(PLACES)}")
    for method, reason in EXCLUDED.items():
        notify(f"not between organisations: {method}, because {reason}")
    started, tried, identical, kills = time.monotonic(), 0, 0, 0
    for number, case in enumerate(cases(settings)):
        same, killed = _try(case, stream(number, "kills"), notify)
        tried, identical, kills = tried + 1, identical + same, kills + killed
        notify(
            f"{case}: {killed} kills, {'identical' if same else 'DIFFERENT'}; {identical} of {tried} identical so far"
        )
    spent = time.monotonic() - started
    return {"tried": tried, "identical": identical, "different": tried - identical, "kills": kills, "seconds": spent}


def cases(settings: RestartSettings) -> list[Case]:
    """Every method in every place it can run in, in both kinds of numbers."""
    return [
        Case(method, place, dtype, settings)
        for place in settings.places
        for method in settings.methods or sorted(n for n in METHODS if not getattr(METHODS[n], "reads_bins", False))
        for dtype in DTYPES
        if not (place == ORGANISATIONS and method in EXCLUDED)
    ]


def _try(case: Case, random: np.random.Generator, notify: Notify) -> tuple[bool, int]:
    """Whether a killed run ends like an undisturbed one, and how often it was killed; stuck counts as different."""
    s = case.settings
    kills = Kills(random, s.kills, s.rounds, s.pause)
    try:
        if case.place == ORGANISATIONS:
            peaceful, _ = play(PARTIES, case.trial, None)
            ending, killed = play(PARTIES, case.trial, kills)
            return ending == peaceful, killed
        with tempfile.TemporaryDirectory() as text:
            _see_through(case, Path(text) / "peaceful", None)
            killed = _see_through(case, Path(text) / "killed", kills)
            return _facts(Path(text) / "killed") == _facts(Path(text) / "peaceful"), killed
    except (LinkError, RunError) as error:
        notify(f"{case}: {error}")
        return False, 0


# -- one process ----------------------------------------------------------------------------------


def _see_through(case: Case, folder: Path, kills: Kills | None) -> int:
    """Train in a process of its own until it is done; kill it on the way, and resume."""
    moments = [] if kills is None else np.sort(kills.random.integers(0, kills.rounds, kills.count)).tolist()
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, "sklearn.datasets"])
    folder.mkdir()
    for at in [*moments, None]:
        process = context.Process(target=work, args=(case, folder, kills.pause if kills else 0.0), daemon=True)
        process.start()
        if at is not None and kills is not None:
            _wait_for_round(folder, at, process)
            time.sleep(float(kills.random.uniform(0, 2 * kills.pause)))
            if process.pid and process.is_alive():
                os.kill(process.pid, signal.SIGKILL)
        process.join(PATIENCE)
        if process.is_alive():
            process.kill()
            raise RunError(f"a training did not end within {PATIENCE:.0f} s")
        if process.exitcode not in (0, -signal.SIGKILL):
            raise RunError(f"a training ended with exit status {process.exitcode}")
    return len(moments)


def _wait_for_round(folder: Path, number: int, process: Any) -> None:
    """Until a training has got so far, or is over."""
    said, deadline = folder / "round", time.monotonic() + PATIENCE
    while process.is_alive() and time.monotonic() < deadline:
        text = said.read_text() if said.exists() else ""
        if text.isdigit() and int(text) >= number:
            return
        time.sleep(0.005)


def work(case: Case, folder: Path, pause: float) -> None:
    """What the process does: begin the training, or go on with it."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", DoubtfulScore)  # twelve rounds need not teach anything
    federation, run = load_data(case.data), folder / "run"

    def watch(progress: Any) -> None:
        (folder / "round").write_text(str(progress.round))
        time.sleep(pause)

    if _begun(run):
        resume(run, federation, watch=watch)
        return
    method = make_method(case.method, case.of_method)
    fit(federation, method, model=case.model, out=run, watch=watch, **case.training)


def _begun(run: Path) -> bool:
    if not (run / STORE).exists():
        return False
    store = Store(run / STORE)
    try:
        return store.begun
    finally:
        store.close()


def _facts(folder: Path) -> Mapping[str, Any]:
    """What must be equal: the model, the history without its times, the bytes, every release but its digest."""
    run = Run.load(folder / "run")
    history = [{name: value for name, value in entry.items() if name != "seconds"} for entry in run.history]
    ledger = [unsigned(release) for release in run.ledger]
    return {
        "fingerprint": run.fingerprint(),
        "score": run.result["test_score"],
        "history": json.dumps(history),
        "traffic": run.traffic.to_json(),
        "ledger": ledger,
    }
