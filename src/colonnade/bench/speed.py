"""The speed benchmark: rounds, z-steps and local steps against the paper's way and against bare products.

All figures come from one run on one machine. What is compared is measured in turn, after a warm-up, and
medians are taken; how many is in `SpeedSettings`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from colonnade.admm.step import update_z
from colonnade.bench.catalogue import Bench
from colonnade.bench.clock import WARM_UP, medians, seconds
from colonnade.bench.convolutions import compare_cnn_steps
from colonnade.bench.growth import cost_growth, memory_growth
from colonnade.bench.made_up import local_work, make_federation, make_method, make_model, one_round, open_trainer
from colonnade.bench.paper_way import PaperWay, Problem, open_pool, solve_rows
from colonnade.bench.settings import Notify, Options, Shape, SpeedSettings
from colonnade.config import build
from colonnade.federation import Federation
from colonnade.fit import Trainer
from colonnade.privacy.gaussian import Gaussian, NoiseSource, SeededNoise, SystemNoise
from colonnade.tasks.multiclass import Multiclass

Results = dict[str, float | None]
T = TypeVar("T")

NOISE: dict[str, NoiseSource] = {"noised": SystemNoise(), "simulated_noise": SeededNoise(0)}
ZSTEPS_AT_ONCE = 20  # one takes a millisecond, too little to time beside a pool that takes a hundred


def run_speed(bench: Bench, options: Options, notify: Notify) -> Results:
    """Every figure of the speed benchmark."""
    settings = build(SpeedSettings, bench.tables.get("speed", {}), "speed")
    device = torch.device(options.device or "cpu")
    # Memory comes first: what other measurements leave behind would be counted in or out.
    results = memory_growth(settings, device, notify)
    federation = make_federation(settings.mnist)
    trainer = open_trainer(settings.mnist, federation, device)
    rounds, problems = compare_rounds(settings, federation, trainer, device, notify)
    results |= rounds
    results |= compare_zsteps(settings, problems, device, notify)
    results |= gate_shares(settings, trainer, device, notify)
    results |= noised_gates(settings, federation, device, notify)
    if device.type == "cpu":
        results |= bmm_fraction(settings, trainer, notify)
    else:
        results |= compare_cnn_steps(settings, device, notify)
    return results | cost_growth(settings, device, notify)


def compare_rounds(
    settings: SpeedSettings, federation: Federation, trainer: Trainer, device: torch.device, notify: Notify
) -> tuple[Results, list[Problem]]:
    """A whole round, ours and the paper's way: as published, single-threaded, optimised. And the z-problems it met."""
    shape, ours = settings.mnist, one_round(trainer)
    processes = torch.get_num_threads()

    def paper_way(workers: int) -> PaperWay:
        return PaperWay.open(federation, make_method(shape), make_model(shape), shape.batch, device, workers)

    with open_pool(processes) as pool:
        notify("rounds: ours, and the paper's way with one pool and loaders without workers")
        way = paper_way(workers=0)
        plain = medians({"ours": ours, "plain": lambda: way.round(pool)}, settings.rounds, device)
        problems = way.problems
        notify("rounds: the paper's way with a worker in each loader")
        way = paper_way(settings.loader_workers)
        workers = medians({"workers": lambda: way.round(pool)}, settings.rounds, device)["workers"]

    def published(more_threads: bool) -> None:
        with open_pool(processes, more_threads=more_threads) as fresh:
            way.round(fresh)

    notify("rounds: the paper's way with a new pool each round, as published, and with one thread per process")
    both = {"published": lambda: published(True), "single_threaded": lambda: published(False)}
    fresh_pools = medians(both, settings.published_rounds, device, 1)
    as_published = fresh_pools["published"]
    way.close()
    optimised = min(plain["plain"], workers, as_published)
    return {
        "ms_per_round": 1e3 * plain["ours"],
        "baseline_ms_per_round": 1e3 * as_published,
        "round_ratio": as_published / plain["ours"],
        "single_threaded_baseline_ms_per_round": 1e3 * fresh_pools["single_threaded"],
        "single_threaded_round_ratio": fresh_pools["single_threaded"] / plain["ours"],
        "optimised_baseline_ms_per_round": 1e3 * optimised,
        "optimised_round_ratio": optimised / plain["ours"],
    }, problems


def compare_zsteps(settings: SpeedSettings, problems: list[Problem], device: torch.device, notify: Notify) -> Results:
    """The same z-problems, one per row of a batch: batched Newton, and L-BFGS-B in a pool, opened for it or kept."""
    notify("z-steps")
    rho = problems[0][4]
    dual, total, targets = (_stacked(problems, at, device) for at in (2, 3, 1))

    def once() -> Tensor:
        return update_z(total, dual, targets, rho, Multiclass(total.shape[1]))

    def ours() -> None:
        for _ in range(ZSTEPS_AT_ONCE):
            once()

    processes = torch.get_num_threads()
    with open_pool(processes) as pool:
        taken = medians({"ours": ours, "theirs": lambda: solve_rows(problems, pool)}, settings.zsteps, device)
        gap = np.abs(once().double().cpu().numpy() - solve_rows(problems, pool)).max()

    def published() -> None:
        with open_pool(processes, more_threads=True) as fresh:
            solve_rows(problems, fresh)

    as_published = medians({"published": published}, settings.published_rounds, device, 1)["published"]
    own = taken["ours"] / ZSTEPS_AT_ONCE
    return {
        "zstep_ratio": as_published / own,
        "zstep_ms": 1e3 * own,
        "baseline_zstep_ms": 1e3 * as_published,
        "optimised_zstep_ratio": taken["theirs"] / own,
        "optimised_baseline_zstep_ms": 1e3 * taken["theirs"],
        "zstep_gap": float(gap),
    }


def _stacked(problems: list[Problem], at: int, device: torch.device) -> Tensor:
    return torch.from_numpy(np.stack([np.asarray(problem[at]) for problem in problems])).to(device, torch.float32)


def gate_shares(settings: SpeedSettings, trainer: Trainer, device: torch.device, notify: Notify) -> Results:
    """The share of a round from an upload to its sealed messages (protect, encode, hash, record); and of replies.

    On a GPU it is what the round waits for: uploads are hashed beside it, and replies sealed before the next upload.
    """
    notify("the gate")
    inside = {"gate_share": 0.0, "reply_gate_share": 0.0}

    def timed(gate: Any, key: str) -> None:
        release = gate.release

        def watched(*args: Any, **options: Any) -> Any:
            out, taken = _result_and_seconds(lambda: release(*args, **options), device)
            inside[key] += taken
            return out

        gate.release = watched

    for side in trainer.engine.parties():
        timed(side.gate, "gate_share")
    timed(trainer.coordinator.gate, "reply_gate_share")
    step = one_round(trainer)
    for _ in range(WARM_UP):
        step()
    inside = dict.fromkeys(inside, 0.0)
    total = sum(seconds(step, device) for _ in range(settings.steps))
    shares: Results = {key: value / total for key, value in inside.items()}
    return shares | {"gate_ms": 1e3 * inside["gate_share"] / settings.steps}


def noised_gates(settings: SpeedSettings, federation: Federation, device: torch.device, notify: Notify) -> Results:
    """The same with clipping and noise: the operating system's, and that of simulations."""
    results: Results = {}
    for name, source in NOISE.items():
        trainer = open_trainer(settings.mnist, federation, device, Gaussian(1.0, 10.0, source))
        found = gate_shares(settings, trainer, device, notify)
        results |= {f"{name}_{key}": found[key] for key in ("gate_share", "gate_ms")}
    return results


def _result_and_seconds(work: Callable[[], T], device: torch.device) -> tuple[T, float]:
    kept: list[T] = []
    taken = seconds(lambda: kept.append(work()), device)
    return kept[0], taken


def bmm_fraction(settings: SpeedSettings, trainer: Trainer, notify: Notify) -> Results:
    """Bare `torch.bmm` time of the products in one local step, divided by the time that the step takes."""
    notify("local steps")
    shape, device = settings.mnist, torch.device("cpu")
    work, products = local_work(shape, trainer), _products(shape)

    def bare() -> None:
        for _ in range(shape.local_steps):
            for left, right, out in products:
                torch.bmm(left, right, out=out)

    taken = medians({"bare": bare, "steps": lambda: work(shape.local_steps)}, settings.steps, device)
    return {
        "bmm_fraction": taken["bare"] / taken["steps"],
        "bmm_ms": 1e3 * taken["bare"] / shape.local_steps,
        "step_ms": 1e3 * taken["steps"] / shape.local_steps,
    }


def _products(shape: Shape) -> list[tuple[Tensor, Tensor, Tensor]]:
    """(left, right, output) of every matrix product in one local step."""
    width = int(torch.Size(shape.columns).numel())
    P, B, H, D, K = shape.parties, shape.batch, shape.hidden, shape.embedding, shape.classes

    def filled(*sizes: int) -> Tensor:
        return torch.full(sizes, 0.5)

    x, h, e, g = filled(P, B, width), filled(P, B, H), filled(P, B, D), filled(P, B, K)  # activations, gradient
    w1, w2, w = filled(P, H, width), filled(P, D, H), filled(P, D, K)  # as nn.Linear keeps them; heads (in, out)
    pairs = [
        (x, w1.mT),  # forward
        (h, w2.mT),
        (e, w),
        (g, w.mT),  # backward: embedding
        (h.mT, e),  # second layer
        (e, w2),  # hidden
        (x.mT, h),  # first layer
    ]
    return [(left, right, torch.bmm(left, right)) for left, right in pairs]
