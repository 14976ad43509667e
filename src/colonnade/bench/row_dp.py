"""Unit ROW: what `local_only` reaches where every party trains by DP-SGD, beside the same method without noise.

Kind `row_dp`, cases of one job as `cases.py` has them. Results of a case called KEY, means over seeds:

    accuracy_KEY, accuracy_std_KEY      test rows, in per cent, and the spread over seeds
    epsilon_KEY, epsilon_rdp_KEY        what training cost one row at all parties (unit ROW, delta of the case), by PLD
                                        and by RDP; a case without noise has none
    chosen_KEY                          which of its tries validation rows chose

Kind `tables_row_dp`, two-class sets of `table_sets.SETS` with the protocol of `bench tables`:

    [tables_row_dp]
    sets = ["credit", "bank", "adult"]
    epsilon = 3.0                       of each row, with delta
    tries = [{ rounds = 100, lr = 2.0 }]    settings to choose from, by the AUC of validation rows with the first seed

    auc.SET, auc_none.SET               with noise, and of local_only as it comes without
    auc_gap.SET                         the second less the first; its standard error over seeds: auc_gap_se.
    epsilon.SET, epsilon_rdp.SET        as above

Weights per party and the kept round come from validation rows, which epsilon does not cover, nor does it cover how the
columns of tables become numbers, nor the choice among tries.
"""

from __future__ import annotations

import statistics
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from pydantic import Field

from colonnade.bench.cases import Case, each_case, read_cases, selected
from colonnade.bench.catalogue import Bench
from colonnade.bench.settings import Notify, Options
from colonnade.bench.table_sets import EVERY_LEVEL, TableSet, folder_of, read_set
from colonnade.bench.tables import split_rows
from colonnade.config import Settings, build
from colonnade.errors import ConfigError, ShortTraining
from colonnade.evaluate.metrics import choose_metric
from colonnade.federation import Federation, RowSplit
from colonnade.fit import fit
from colonnade.methods import LocalOnly
from colonnade.models.optimise import SGD
from colonnade.privacy.sampled import sampled_epsilon, sampled_rdp
from colonnade.privacy.tally import tally
from colonnade.row_split import ColumnsFrom
from colonnade.run import Run
from colonnade.search import without_test


def run_row_dp(bench: Bench, options: Options, notify: Notify) -> dict[str, float | None]:
    """Train every case with seeds 0 to n - 1 on the same rows."""
    results: dict[str, float | None] = {}
    for case, runs, chosen in each_case(bench, selected(read_cases(bench, Case), options), options, notify):
        tests = [100 * run.result["test_score"] for run in runs if run.result["test_score"] is not None]
        whole = len(tests) == len(runs)  # a run that has no score is not left out: there is no mean then
        results[f"accuracy_{case.name}"] = statistics.fmean(tests) if whole else None
        results[f"accuracy_std_{case.name}"] = statistics.stdev(tests) if whole and len(tests) > 1 else None
        results |= {f"{name}_{case.name}": value for name, value in epsilons(runs).items()}
        if chosen is not None:
            results[f"chosen_{case.name}"] = chosen
    return results


def epsilons(runs: Sequence[Run]) -> dict[str, float]:
    """What training cost a row in the run that cost it most; empty where nothing is promised."""
    if not runs[0].privacy.by_row:
        return {}
    delta = runs[0].privacy.delta
    events = [{event for mine in tally(run.ledger, "absent") for event in mine.sampled} for run in runs]
    return {
        "epsilon": max(sampled_epsilon(list(each), delta) for each in events),
        "epsilon_rdp": max(sampled_rdp(list(each), delta) for each in events),
    }


# -- tables -----------------------------------------------------------------------------------


class Try(Settings):
    """One way to train with noise."""

    rounds: int = Field(100, ge=1, description="steps of each party")
    batch: int = Field(4096, ge=1, description="rows that a step draws on average")
    lr: float = Field(2.0, gt=0, description="step size of the first step; it halves every third of the rounds")
    clip: float = Field(1.0, gt=0, description="norm of one row's gradient")
    encoder: str = Field("tanh", description="local model")
    embedding: int = Field(16, ge=1, description="its width")


class TablesRowSettings(Settings):
    """Which sets, which promise, and settings to choose from."""

    sets: tuple[str, ...] = Field(("credit", "bank", "adult"), min_length=1, description="by name")
    epsilon: float = Field(3.0, gt=0, description="of each row at all parties")
    delta: float = Field(1e-5, gt=0, lt=1, description="of epsilon")
    plain_rounds: int = Field(200, ge=1, description="of local_only without noise")
    tries: tuple[Try, ...] = Field((Try(),), min_length=1, description="settings to choose from")


def run_tables_row_dp(bench: Bench, options: Options, notify: Notify) -> dict[str, float | None]:
    """Every set with every seed."""
    settings = build(TablesRowSettings, bench.tables.get("tables_row_dp", {}), "tables_row_dp")
    names = options.only or settings.sets
    folder = folder_of(names, options.data_dir, "bench tables-row-dp")
    results: dict[str, float | None] = {}
    for name in names:
        found = read_set(name, folder)
        if found.goal != "auc":
            raise ConfigError(f"bench tables-row-dp is about two classes; {name!r} is judged by {found.goal}")
        results |= _one_set(name, found, settings, options.seeds, notify)
    return results


def _one_set(
    name: str, found: TableSet, settings: TablesRowSettings, seeds: int, notify: Notify
) -> dict[str, float | None]:
    chosen = _chosen(federation_of(found, 0, "others"), settings, f"{name}: ", notify)
    private, plain = [], []
    for seed in range(seeds):
        private.append(private_run(federation_of(found, seed, "others"), settings.tries[chosen], settings, seed))
        plain.append(_quietly(federation_of(found, seed), LocalOnly(), rounds=settings.plain_rounds, seed=seed))
        both = ", ".join(f"{_auc(run):.4f}" for run in (private[-1], plain[-1]))
        notify(f"{name}, seed {seed}: AUC with and without noise {both}")
    gaps = [_auc(without) - _auc(with_noise) for with_noise, without in zip(private, plain, strict=True)]
    return {
        f"auc.{name}": statistics.fmean(map(_auc, private)),
        f"auc_none.{name}": statistics.fmean(map(_auc, plain)),
        f"auc_gap.{name}": statistics.fmean(gaps),
        f"auc_gap_se.{name}": statistics.stdev(gaps) / len(gaps) ** 0.5 if len(gaps) > 1 else None,
        **{f"{key}.{name}": value for key, value in epsilons(private).items()},
        f"chosen.{name}": float(chosen),
    }


def federation_of(found: TableSet, seed: int, columns_from: ColumnsFrom = "training") -> Federation:
    """The tables of a set with the split of `bench tables`."""
    rows = split_rows(found, seed)
    train, validation, test = (torch.from_numpy(part) for part in (rows.train, rows.validation, rows.test))
    split = RowSplit(train, validation, test)
    tables, labels = dict(found.tables), found.labels
    return Federation.from_tables(
        tables, labels=labels, task="binary", split=split, columns_from=columns_from, columns=EVERY_LEVEL
    )


def private_run(federation: Federation, one: Try, settings: TablesRowSettings, seed: int) -> Run:
    """One training with noise; it is evaluated at its end only."""
    method = LocalOnly(optimiser=SGD(lr=one.lr, weight_decay=0.0, halve_every=max(1, one.rounds // 3)))
    return _quietly(
        federation,
        method,
        rounds=one.rounds,
        seed=seed,
        batch=one.batch,
        evaluate_every=one.rounds,
        model={"encoder": one.encoder, "embedding": one.embedding},
        privacy={"unit": "row", "epsilon": settings.epsilon, "delta": settings.delta, "clip": one.clip},
    )


def _chosen(federation: Federation, settings: TablesRowSettings, name: str, notify: Notify) -> int:
    if len(settings.tries) == 1:
        return 0
    blind = without_test(federation)
    runs = [private_run(blind, one, settings, 0) for one in settings.tries]
    scores = [run.result["validation_score"] or 0.0 for run in runs]
    notify(f"{name}validation AUC of the tries {', '.join(f'{score:.4f}' for score in scores)}")
    return scores.index(max(scores))


def _quietly(federation: Federation, method: LocalOnly, **options: Any) -> Run:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ShortTraining)  # steps draw their rows: plans are not what trains
        return fit(federation, method, metric=choose_metric(federation.task, "auc").name, progress=False, **options)


def _auc(run: Run) -> float:
    score = run.result["test_score"]
    if score is None:
        raise ConfigError("a run of bench tables-row-dp has no test score")
    return float(score)
