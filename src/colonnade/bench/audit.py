"""The audit itself under test: correct code must stay below its ledger, and every planted bug must be caught.

Each seed plays the client-level game through a real gate, once against the correct mechanism and once against each
planted bug, and holds the bound against the epsilon that the exact accountant gives the gate's own ledger. For the
release that nobody wrote down there is a short training, whose ledger is checked against its traffic twice: as it is,
and with one release, another one for each seed, that was never recorded.

Results, all counted over seeds: `correct_below` (in every case of the game), `ledger_clean` (a complete ledger is left
alone), `caught.BUG` (in every case that can show it), `bugs_caught` of `bugs` (in every seed); and `smallest_margin`,
the least that a bound on correct code was below the ledger's figure.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

import torch
from pydantic import Field

from colonnade.audit.books import AuditedRun, check_books
from colonnade.audit.bugs import MISTAKES, OneForgotten, plant
from colonnade.audit.through_gate import ThroughGate
from colonnade.audit.trial import Trial
from colonnade.bench.catalogue import Bench
from colonnade.bench.clock import available_cores
from colonnade.bench.settings import Notify, Options
from colonnade.config import Settings, build
from colonnade.data.sets import load_set
from colonnade.fit import Trainer
from colonnade.methods import VIMADMMJ
from colonnade.models.encoders import ModelSettings
from colonnade.privacy.gaussian import Gaussian, SeededNoise
from colonnade.privacy.settings import PrivacySettings
from colonnade.run import Run, Training

RELEASES_NEEDED = {"reused_noise": 2}  # noise that is used twice cannot be seen in one release
UNLOGGED = "unlogged_release"


class GameSettings(Settings):
    """One case of the game."""

    sigma: float = Field(1.0, gt=0, description="noise per cell, in units of the clipping norm")
    releases: int = Field(1, ge=1, description="of one party; the exact accountant composes them")
    runs: int = Field(1000, ge=1, description="games in each of the two worlds")


class AuditBenchSettings(Settings):
    """Sizes of the audit benchmark."""

    seeds: int = Field(20, ge=1, description="seeds 0 to n - 1")
    clip: float = Field(1.0, gt=0, description="clipping norm")
    delta: float = Field(1e-5, gt=0, lt=1, description="of epsilon")
    games: tuple[GameSettings, ...] = Field((GameSettings(),), min_length=1, description="cases of the game")
    rounds: int = Field(4, ge=2, description="of the short training whose ledger is checked")
    workers: int = Field(0, ge=0, description="processes; 0: one per core")


@dataclass(frozen=True)
class Seen:
    """What one seed showed."""

    seed: int
    margins: tuple[float, ...]  # by case: the ledger's figure less the bound on correct code
    caught: dict[str, bool]  # by bug
    clean: bool  # a complete ledger raised no complaint


def run_audit(bench: Bench, options: Options, notify: Notify) -> dict[str, float | None]:
    """Play every seed."""
    settings = build(AuditBenchSettings, bench.tables.get("audit", {}), "audit")
    started, seen = time.monotonic(), []
    for found in _seeds(settings):
        seen.append(found)
        missed = [bug for bug, was in found.caught.items() if not was]
        notify(f"seed {found.seed}: smallest margin {min(found.margins):.3f}, missed: {', '.join(missed) or 'none'}")
    counts = {bug: sum(found.caught[bug] for found in seen) for bug in seen[0].caught}
    return {
        "correct_below": sum(min(found.margins) > 0 for found in seen),
        "smallest_margin": min(min(found.margins) for found in seen),
        "ledger_clean": sum(found.clean for found in seen),
        "bugs_caught": sum(count == len(seen) for count in counts.values()),
        "bugs": len(counts),
        **{f"caught.{bug}": count for bug, count in counts.items()},
        "seeds": len(seen),
        "seconds": time.monotonic() - started,
    }


def _seeds(settings: AuditBenchSettings) -> Iterator[Seen]:
    """One seed after the other; in processes, since the games are made of many small steps."""
    workers = settings.workers or available_cores()
    everything = range(settings.seeds)
    if workers == 1:
        yield from (one_seed(settings, seed) for seed in everything)
        return
    with ProcessPoolExecutor(workers, get_context("spawn"), initializer=torch.set_num_threads, initargs=(1,)) as pool:
        yield from pool.map(one_seed, [settings] * settings.seeds, everything)


def one_seed(settings: AuditBenchSettings, seed: int) -> Seen:
    """Correct code and every bug, in every case that can show it."""
    margins = []
    caught: dict[str, bool] = {bug: True for bug in (*MISTAKES, UNLOGGED) if bug != "none"}
    for game in settings.games:
        mechanism = Gaussian(settings.clip, game.sigma, SeededNoise(seed))
        trial = Trial(mechanism, settings.clip, game.sigma, game.releases, game.runs, settings.delta)
        margins.append(margin(trial, seed))
        for bug in MISTAKES:
            if bug != "none" and game.releases >= RELEASES_NEEDED.get(bug, 1):
                caught[bug] = caught[bug] and margin(trial, seed, bug) < 0
    clean, forgotten = ledger_seen(seed, settings.rounds, None), ledger_seen(seed, settings.rounds, seed)
    caught[UNLOGGED] = bool(forgotten)
    return Seen(seed, tuple(margins), caught, not clean)


def margin(trial: Trial, seed: int, bug: str | None = None) -> float:
    """The epsilon of the gate's own ledger less the bound that the game gives; negative: something is wrong."""
    mechanism = trial.mechanism if bug is None else plant(bug, trial.mechanism, trial.clip)
    gate = ThroughGate(mechanism)
    bound = trial.bound(seed, gate)
    return gate.spent("audited 0", trial.releases, trial.delta) - bound.epsilon


def ledger_seen(seed: int, rounds: int, forget: int | None) -> tuple[str, ...]:
    """What is found wrong with the ledger of a short training that forgets one upload, or none."""
    federation = load_set("digits", parties=3)
    training = Training(rounds=rounds, seed=seed, evaluate_every=0, schedule={"batch": 128})
    privacy, model = PrivacySettings(mechanism="gaussian", clip=1.0, sigma=2.0), ModelSettings(hidden=8, embedding=4)
    trainer = Trainer.open(federation, VIMADMMJ(local_steps=1), training, model, None, None, privacy=privacy)
    if forget is not None:
        forgetful = OneForgotten(trainer.ledger, forget % (rounds * len(federation.parties)))  # one for all gates
        for side in trainer.engine.parties():
            side.gate.ledger = forgetful
    mechanism = trainer.engine.parties()[0].gate.protection.training
    run: Run = trainer.train()
    return check_books(run, AuditedRun(trainer.coordinator.schedule, federation.split, mechanism)).problems
