"""Client explanation: what head norms say about the parties, and what that is good for. Needs only torch and NumPy.

    [data] [method] [model] [training]   the run that is explained
    [explain]
    ask = { rows = "test", noise = 10.0 }    settings of the explanation
    high = [6, 7, 8]                         parties (from 1) that must weigh much
    low = [1, 14]                            and little
    shares = [0.5, 0.2]                      of the parties, for training again with the most and least important
    noisy = 7                                whose columns become noise
    [explain.rivals]                         methods that are trained with that party too, by name
    [explain.retrain]                        what differs in [method] for accuracies after training again

Accuracies are on test rows, in per cent, of the round that validation rows chose: `all` of the explained run, and
`all_again`, `topN`, `bottomN` of training again, all three with the same settings. `tsne_most_important`: of 100
points in a t-SNE of that party's embeddings so many have a nearest neighbour of their own class (`ask.tsne`, needs
scikit-learn). `rank_correlation_...` is Spearman's, tie-aware; Kendall's tau-b stands beside it. Places count from 1,
the heaviest, by mean norms over seeds.
"""

from __future__ import annotations

import importlib.util
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from pydantic import Field

from colonnade.bench.accuracy import watcher
from colonnade.bench.catalogue import Bench
from colonnade.bench.settings import Notify, Options
from colonnade.config import Settings, build
from colonnade.explain.denoise import denoise
from colonnade.explain.explain import explain
from colonnade.explain.explanation import Explanation, Points
from colonnade.explain.ranks import places
from colonnade.explain.retrain import Again
from colonnade.explain.settings import ExplainSettings
from colonnade.explain.summary import summarise
from colonnade.federation import Federation
from colonnade.job import Job, read_job
from colonnade.progress import Watcher
from colonnade.run import Run

Results = dict[str, float | None]


class ExplainBenchSettings(Settings):
    """What is asked, and what is trained again."""

    ask: ExplainSettings = Field(ExplainSettings(rows="test"), description="settings of the explanation")
    high: tuple[int, ...] = Field((6, 7, 8), min_length=1, description="parties that must weigh much, from 1")
    low: tuple[int, ...] = Field((1, 14), min_length=1, description="parties that must weigh little")
    shares: tuple[float, ...] = Field((0.5, 0.2), description="of the parties, to train again with")
    noisy: int = Field(7, ge=1, description="the party whose columns become noise, from 1")
    std: float = Field(1.0, gt=0, description="of that noise, in units of the columns")
    epochs: tuple[int, ...] = Field((2, 5, 10), min_length=1, description="epochs after which accuracy is taken")
    epoch: int = Field(53, ge=1, description="rounds in an epoch")
    rivals: dict[str, dict[str, object]] = Field(default_factory=dict, description="other methods, as in [method]")
    retrain: dict[str, object] = Field(
        default_factory=dict,
        description="what differs in [method] for accuracies after training again; weights are compared as in [method]",
    )


def run_explain(bench: Bench, options: Options, notify: Notify) -> Results:
    """Explain and train again with seeds 0 to n - 1 on the same rows."""
    settings = build(ExplainBenchSettings, bench.tables.get("explain", {}), f"benchmark {bench.name}: explain")
    if settings.ask.tsne and importlib.util.find_spec("sklearn") is None:
        notify("there will be no t-SNE: it needs scikit-learn, which is not installed here")
        settings = settings.model_copy(update={"ask": settings.ask.model_copy(update={"tsne": 0})})
    jobs = [_job(bench, options, seed) for seed in range(options.seeds)]
    federation = jobs[0].federation()
    found = [_one_seed(job, federation, settings, seed, notify) for seed, job in enumerate(jobs)]
    results = average(found)
    return results | _places(results, settings)


def _job(bench: Bench, options: Options, seed: int) -> Job:
    tables = {key: dict(value) for key, value in bench.tables.items() if key != "explain"}
    if options.data_dir is not None:
        tables.setdefault("data", {})["data_dir"] = str(options.data_dir)
    if options.device is not None:
        tables.setdefault("training", {})["device"] = options.device
    return read_job(tables, seed=seed)


def _one_seed(job: Job, federation: Federation, settings: ExplainBenchSettings, seed: int, notify: Notify) -> Results:
    def watch(name: str, rounds: int) -> Watcher:
        return watcher(f"seed {seed}, {name}", notify)

    run = job.fit(federation, watch=watch("all parties", job.training.rounds))
    found = explain(run, federation, settings.ask)
    results = _agreement(found) | _apart(found.tsne or ()) | {"all": _percent(run.result["test_score"])}
    again = Again(_again(job, run, federation, settings, watch), "test", watch)
    results["all_again"] = _percent(again.run.result["test_score"])
    by_norm = found.order("norm") if found.norm is not None else found.ranked()  # the paper's claim is about norms
    summary = summarise(again, federation, by_norm, settings.shares)
    for one in summary["sets"]:
        side = "top" if one["which"] == "most" else "bottom"
        results[f"{side}{100 * one['share']:g}"] = _percent(one["score"])
    for share in settings.shares:
        top, bottom = (results[f"{side}{100 * share:g}"] for side in ("top", "bottom"))
        results[f"gap{100 * share:g}"] = None if top is None or bottom is None else top - bottom
    return results | _denoise(run, again, job, federation, settings, found.norm or ())


def _again(job: Job, run: Run, federation: Federation, settings: ExplainBenchSettings, watch: Any) -> Run:
    """The run that is repeated with other columns: the explained one, or one with other settings."""
    if not settings.retrain:
        return run
    other = read_job({**job.tables, "method": {**job.tables["method"], **settings.retrain}})
    return other.fit(federation, watch=watch("all parties, retraining settings", other.training.rounds))


def _agreement(found: Explanation) -> Results:
    results: Results = {}
    for measure in ("noise", "shapley", "mask"):
        pair = found.agree("norm", measure)
        results |= {f"rank_correlation_{measure}": pair.spearman, f"kendall_{measure}": pair.kendall}
    return results | {f"norm_{number}": value for number, value in enumerate(found.norm or (), start=1)}


def _apart(pictures: Sequence[Points]) -> Results:
    """How far a t-SNE keeps classes apart: the share of points whose nearest neighbour is of their class, in %."""
    results: Results = {}
    for picture in pictures:
        points, kinds = torch.tensor(picture["points"]), torch.tensor(picture["labels"])
        gaps = torch.cdist(points, points).fill_diagonal_(math.inf)
        results[f"tsne_{picture['which'].replace(' ', '_')}"] = 100 * float(
            (kinds[gaps.argmin(dim=1)] == kinds).double().mean()
        )
    return results


def _places(results: Results, settings: ExplainBenchSettings) -> Results:
    """Where the parties stand that must weigh much and little, by their mean norms."""
    norms = [value for key, value in results.items() if key.startswith("norm_") and value is not None]
    place = places(norms)
    most, least = (statistics.fmean(norms[n - 1] for n in numbers) for numbers in (settings.high, settings.low))
    return {
        "high_worst_place": max(place[number - 1] for number in settings.high),
        "low_best_place": min(place[number - 1] for number in settings.low),
        "high_over_low": most / least,
    }


def _denoise(
    run: Run, again: Again, job: Job, federation: Federation, settings: ExplainBenchSettings, norm: Sequence[float]
) -> Results:
    """Accuracies of all methods with a noisy party; and whether the weights of the explained run would have told."""
    party, seed = federation.names[settings.noisy - 1], job.training.seed
    methods = {run.method.name: again.run.method}
    for name, spec in settings.rivals.items():
        methods[name] = read_job({**job.tables, "method": {"name": name, **spec}}).method
    lengths = [epoch * settings.epoch for epoch in settings.epochs]
    same = again.run is run
    table = denoise(
        again,
        federation,
        party,
        norm=norm if same else None,
        methods=methods,
        std=settings.std,
        lengths=lengths,
        seed=seed,
    )
    told = table
    if not same:  # weights are compared under the settings of the explained run
        told = denoise(
            Again(run, "test", again.watch), federation, party, norm=norm, methods={run.method.name: run.method},
            std=settings.std, lengths=lengths[-1:], seed=seed,
        )  # fmt: skip
    results: Results = {}
    for name, scores in table["scores"].items():
        suffix = "" if name == run.method.name else f".{name}"
        for epoch, score in zip(settings.epochs, scores, strict=True):
            results[f"denoise_epoch{epoch}{suffix}"] = _percent(score)
    return results | _fall(told, party, settings.noisy - 1)


def _fall(told: Mapping[str, Any], party: str, at: int) -> Results:
    was, now = (places(told[key])[at] for key in ("norm_before", "norm_after"))
    named = [fall["party"] for fall in told["fallen"]]
    return {
        "noisy_place_before": was,
        "noisy_place_after": now,
        "noisy_place_fall": now - was,
        "noisy_named": float(party in named[:1]),
        "others_named": float(len([name for name in named if name != party])),
    }


def average(seeds: Sequence[Mapping[str, float | None]]) -> Results:
    """Means and deviations over seeds; of `noisy_place_fall` the worst seed, because all of them must show it."""
    results: Results = {}
    for key in seeds[0]:
        known = [value for value in (seed[key] for seed in seeds) if value is not None]
        whole = len(known) == len(seeds)  # a seed without a value is not left out: there is no mean then
        summary = min if key == "noisy_place_fall" else statistics.fmean
        results[key] = float(summary(known)) if whole else None
        if whole and len(known) > 1 and not key.startswith(("norm_", "noisy_", "others_")):
            results[f"{key}_std"] = statistics.stdev(known)
    return results


def _percent(score: float | None) -> float | None:
    return None if score is None else 100 * score
