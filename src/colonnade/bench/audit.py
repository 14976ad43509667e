"""The audit itself under test: correct code must not be accused, and every planted bug must be caught.

Each seed plays against correct code of every kind of noise (a clipped Gaussian in both number formats, bounded numbers,
counts, a secure sum, both kinds of label noise, training at home), at a full shape and in games; then against each
planted bug, until a check sees it. For the release that nobody wrote down there is a short training, whose ledger is
checked against its traffic twice: as it is, and with one release, another one for each seed, that was never recorded.

Results, all counted over seeds: `correct_below` (no check of any case accuses correct code), `ledger_clean` (a complete
ledger is left alone), `caught.BUG`, `games.BUG` (by the default number of games alone, without the full shape),
`bugs_caught` of `bugs` (in every seed); `smallest_margin`, the least that a bound on correct code was below its claim;
and `smallest_p`, the smallest p-value of correct code, which fails below 1e-4.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context

import torch
from pydantic import Field

from colonnade.audit.at_home import check_at_home
from colonnade.audit.books import AuditedRun, check_books
from colonnade.audit.bugs import MISTAKES, NoBound, OneForgotten, WiderChance, first_failure, plant
from colonnade.audit.checks import Check
from colonnade.audit.label_game import LabelTrial, OpenLabels
from colonnade.audit.planted_elsewhere import MissingShare, kept_too_often, weak_label_noise
from colonnade.audit.planted_rows import LISTED, plant_rows, row_failure
from colonnade.audit.planted_rows import MISTAKES as ROW_MISTAKES
from colonnade.audit.row_game import RowGame
from colonnade.audit.shapes import Layout
from colonnade.audit.target import Target
from colonnade.bench.catalogue import Bench
from colonnade.bench.clock import available_cores
from colonnade.bench.settings import Notify, Options
from colonnade.config import Settings, build
from colonnade.data.sets import load_set
from colonnade.fit import Trainer
from colonnade.methods import VIMADMMJ, LocalOnly
from colonnade.models.encoders import ModelSettings
from colonnade.privacy.bounded import BoundedGaussian
from colonnade.privacy.by_row import LocalSteps, RowNoise
from colonnade.privacy.gaussian import Gaussian, SeededNoise
from colonnade.privacy.labels.settings import LabelSettings, open_labels
from colonnade.privacy.mechanism import Hiding, Mechanism
from colonnade.privacy.pbm import PoissonBinomial
from colonnade.privacy.settings import PrivacySettings
from colonnade.run import Run, Training
from colonnade.tasks import find_task
from colonnade.wire.numbers import Numbers

UNLOGGED = "unlogged_release"
OTHERS = ("no_bound", "wider_chance", "missing_share", "kept_too_often", "weak_label_noise", UNLOGGED)
BUGS = (*(bug for bug in MISTAKES if bug != "none"), *OTHERS, *ROW_MISTAKES)
ROWS_BY_GAME = (
    "rows_unclipped", "rows_mean_clipped", "rows_half_noise", "rows_noise_of_mean", "rows_public_draws", LISTED
)  # fmt: skip
BY_GAMES = ("half_noise", "weak_noise", *ROWS_BY_GAME)  # that the games must see by themselves
PARTIES = ("first", "second", "third")  # of the secure sum, and of training at home


class AuditBenchSettings(Settings):
    """Sizes of the audit benchmark."""

    seeds: int = Field(20, ge=1, description="seeds 0 to n - 1")
    clip: float = Field(1.0, gt=0, description="clipping norm")
    delta: float = Field(1e-5, gt=0, lt=1, description="of epsilon")
    rows: int = Field(1024, ge=1, description="of an upload at the full shape")
    width: int = Field(16, ge=1, description="numbers per row")
    games: int | None = Field(None, ge=1, description="of the first case, in each world; unset: the audit's own choice")
    fewer_games: int = Field(1500, ge=1, description="of the other cases")
    row_games: int = Field(1500, ge=1, description="of training at home (unit ROW), in each world")
    row_sigma: float = Field(1.75, gt=0, description="its noise: 20 steps of 3 parties at rate 1/3 then cost about 8")
    label_rows: int = Field(1200, ge=1, description="rows whose labels are noised at once")
    rounds: int = Field(4, ge=2, description="of the short training whose ledger is checked")
    workers: int = Field(0, ge=0, description="processes; 0: one per core")


@dataclass(frozen=True)
class Seen:
    """What one seed showed."""

    seed: int
    accused: tuple[str, ...]  # checks that fail on correct code
    margin: float  # the least that a bound on correct code was below its claim
    p: float  # the smallest of correct code
    caught: dict[str, bool]  # by bug
    by_games: dict[str, bool]  # by bug, without the full shape
    clean: bool  # a complete ledger raised no complaint


def run_audit(bench: Bench, options: Options, notify: Notify) -> dict[str, float | None]:
    """Play every seed."""
    settings = build(AuditBenchSettings, bench.tables.get("audit", {}), "audit")
    started, seen = time.monotonic(), []
    for found in _seeds(settings):
        seen.append(found)
        missed = [bug for bug, was in found.caught.items() if not was]
        told = f"smallest margin {found.margin:.3f}, smallest p {found.p:.2g}, missed: {', '.join(missed) or 'none'}"
        accused = f", correct code accused: {', '.join(found.accused)}" * bool(found.accused)
        notify(f"seed {found.seed}: {told}{accused}")
    counts = {bug: sum(found.caught[bug] for found in seen) for bug in BUGS}
    return {
        "correct_below": sum(not found.accused for found in seen),
        "smallest_margin": min(found.margin for found in seen),
        "smallest_p": min(found.p for found in seen),
        "ledger_clean": sum(found.clean for found in seen),
        "bugs_caught": sum(count == len(seen) for count in counts.values()),
        "bugs": len(counts),
        **{f"caught.{bug}": count for bug, count in counts.items()},
        **{f"games.{bug}": sum(found.by_games[bug] for found in seen) for bug in BY_GAMES},
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
    """Correct code in every case, then every bug in the case it is one of."""
    correct = list(_correct(settings, seed))
    margins = [c.facts["claimed"] - c.facts["epsilon"] for c in correct if "claimed" in c.facts]  # type: ignore[operator]
    single = _gaussians(settings, seed)[0]
    by_games = {bug: _failed(_planted(single, bug).in_games(seed, settings.games)) for bug in BY_GAMES[:2]}
    at_home = _at_home(settings, seed)
    by_games |= {bug: plant_rows(at_home, bug).check(seed, settings.row_games).failed for bug in ROWS_BY_GAME}
    clean = ledger_seen(seed, settings.rounds, None)
    return Seen(
        seed,
        tuple(check.name for check in correct if check.failed),
        float(min(margins)),
        min(check.p for check in correct if check.p is not None),
        dict(_caught(settings, seed)),
        by_games,
        not clean,
    )


def _correct(settings: AuditBenchSettings, seed: int) -> Iterator[Check]:
    """Every check of correct code, of every kind of noise."""
    others = (_bounded(settings, seed), _counts(settings, seed), _summed(settings, seed))
    for case, target in enumerate((*_gaussians(settings, seed), *others)):
        yield from target.at_full_shape(seed)
        yield from target.in_games(seed, settings.games if case == 0 else settings.fewer_games)
    for mechanism in ("randomised_response", "alibi"):
        yield from _labels(settings, mechanism).checks(seed)
    at_home = _at_home(settings, seed)
    yield at_home.check(seed, settings.row_games)
    yield from check_at_home(at_home.how, at_home.parties, at_home.local_steps)


def _caught(settings: AuditBenchSettings, seed: int) -> Iterator[tuple[str, bool]]:
    """By bug, whether a check sees it: of the Gaussian's bugs, in both cases."""
    for bug in MISTAKES:
        if bug != "none":
            targets = [_planted(target, bug) for target in _gaussians(settings, seed)]
            yield bug, all(first_failure(target, seed) is not None for target in targets)
    bounded, counts, summed = _bounded(settings, seed), _counts(settings, seed), _summed(settings, seed)
    if not isinstance(summed.mechanism, Hiding):
        raise TypeError("the mechanism of a secure sum hides")
    others: dict[str, tuple[Target, Mechanism]] = {
        "no_bound": (bounded, NoBound(bounded.mechanism)),
        "wider_chance": (counts, WiderChance(counts.mechanism)),
        "missing_share": (summed, MissingShare(summed.mechanism, PARTIES[seed % 2])),
    }
    for bug, (target, mechanism) in others.items():
        yield bug, first_failure(replace(target, mechanism=mechanism), seed) is not None
    yield "kept_too_often", _failed(_labels(settings, "randomised_response", kept_too_often).checks(seed))
    yield "weak_label_noise", _failed(_labels(settings, "alibi", weak_label_noise).checks(seed))
    for bug in ROW_MISTAKES:
        yield bug, row_failure(plant_rows(_at_home(settings, seed), bug), seed, settings.row_games) is not None
    yield UNLOGGED, bool(ledger_seen(seed, settings.rounds, seed))


def _failed(checks: Iterable[Check]) -> bool:
    return any(check.failed for check in checks)


def _planted(target: Target, bug: str) -> Target:
    clip = target.mechanism.event.clipped
    return replace(target, mechanism=plant(bug, target.mechanism, clip.clip if clip else 1.0))


def _target(settings: AuditBenchSettings, mechanism: Mechanism, releases: int, dtype: torch.dtype) -> Target:
    layout = Layout.of((settings.rows, settings.width), dtype)
    return Target(mechanism, layout, Numbers(dtype=dtype), releases, settings.delta)


def _gaussians(settings: AuditBenchSettings, seed: int) -> tuple[Target, Target]:
    """One release with sigma 1 in float32; and four with sigma 2 in float64, the same epsilon, composed."""
    once = Gaussian(settings.clip, 1.0, SeededNoise(seed))
    four = Gaussian(settings.clip, 2.0, SeededNoise(seed))
    return _target(settings, once, 1, torch.float32), _target(settings, four, 4, torch.float64)


def _bounded(settings: AuditBenchSettings, seed: int) -> Target:
    return _target(settings, BoundedGaussian(1.0, 4.0, settings.width, SeededNoise(seed)), 1, torch.float32)


def _counts(settings: AuditBenchSettings, seed: int) -> Target:
    return _target(settings, PoissonBinomial(16, 0.05, settings.width, SeededNoise(seed)), 1, torch.float32)


def _summed(settings: AuditBenchSettings, seed: int) -> Target:
    from colonnade.privacy.secure_sum.adders import simulated  # needs a library that not everybody installs

    noise = {"mechanism": "gaussian", "clip": settings.clip, "sigma": 1.0}
    privacy = build(PrivacySettings, noise | {"secure_sum": {"use": True, "colluders": 1}}, "privacy")
    adders = simulated("audit", PARTIES, seed, privacy)
    mechanism = privacy.protection(1, SeededNoise(seed), adders).training
    target = _target(settings, mechanism, 1, torch.float32)
    return replace(target, parties=PARTIES, opener=adders.opener(1))


def _at_home(settings: AuditBenchSettings, seed: int) -> RowGame:
    """Training at home of three parties, about what epsilon 8 allows."""
    plan = LocalSteps(rows=900, batch=300, steps=20, parties=len(PARTIES))
    how = RowNoise(settings.clip, settings.row_sigma, plan, SeededNoise(seed))
    return RowGame(how, LocalOnly(), PARTIES, find_task("multiclass")(10), torch.float32, settings.delta)


def _labels(settings: AuditBenchSettings, mechanism: str, opened: OpenLabels = open_labels) -> LabelTrial:
    noise = build(LabelSettings, {"mechanism": mechanism, "epsilon": 1.0}, "labels")
    return LabelTrial(noise, find_task("multiclass")(10), settings.label_rows, opened)


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
