"""Worth: what `cn.worth` says of a candidate before any training, beside what a training with it really gains.

    [worth]
    sets = ["credit", "bank", "adult"]     which of `table_sets.SETS`; every ordered pair of parties is one question
    rows = 4000                            whose noisy labels are sent, and as many that judge
    epsilon = 1.0                          of these labels

Rows are split as in `bench tables`; a question is about training rows only. What a pair really gains is the test AUC of
LightGBM on the columns of both in one place minus that on the label holder's alone, chosen by validation rows. Every
label holder is also asked about a candidate whose columns are noise. Results, over all pairs and seeds:
    correlation         of the corrected estimates with what was really gained
    mean_error          mean distance of the two; the correction is one factor, by least squares on the other sets
    raw_correlation, raw_error    the same without a correction: what `cn.worth` tells
    interval_covers     share of the intervals that hold what was really gained: they are about the candidate's score,
                        which few rows and noisy labels taught, and not about a training
    ratio_least, ratio_largest    what was really gained over what was told, of candidates that clearly add something
    factor.             of each set, fitted on the others
    noise_covers_zero   share of the candidates of noise whose interval holds 0
    noise_largest       their largest gain
    bytes_down, bytes_up          of one question and its answer
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from pydantic import Field

from colonnade.bench.catalogue import Bench
from colonnade.bench.settings import Notify, Options
from colonnade.bench.table_sets import EVERY_LEVEL, TableSet, folder_of, read_set
from colonnade.bench.tables import JUDGES, Rows, central_trees, split_rows
from colonnade.config import Settings, build
from colonnade.extras import need
from colonnade.federation import Federation, RowSplit
from colonnade.joining.prospect import Prospect
from colonnade.randomness import stream
from colonnade.worth import worth

NOISE, WIDTH = "noise", 5  # a candidate that knows nothing, and its columns


class WorthSettings(Settings):
    """Which sets, and how much is asked."""

    sets: tuple[str, ...] = Field(("credit", "bank", "adult"), min_length=2, description="by name; with an AUC")
    rows: int = Field(4000, ge=100, description="rows whose noisy labels are sent, and as many that judge")
    epsilon: float = Field(1.0, gt=0, description="label privacy of these")


@dataclass(frozen=True)
class Asked:
    """One question, its answer, and the truth."""

    set: str
    prospect: Prospect
    true: float  # what was really gained


def run_worth(bench: Bench, options: Options, notify: Notify) -> dict[str, float | None]:
    """Every pair of every set, with every seed."""
    need("lightgbm", extra="trees", purpose="bench worth")
    settings = build(WorthSettings, bench.tables.get("worth", {}), "worth")
    folder = folder_of(settings.sets, options.data_dir, "bench worth")
    asked: list[Asked] = []
    for name in settings.sets:
        found = read_set(name, folder)
        for seed in range(options.seeds):
            news = one_seed(name, found, seed, settings)
            asked += news
            notify(f"{name}, seed {seed}: " + ", ".join(f"{a.prospect.gain.value:.4f} ({a.true:.4f})" for a in news))
    return summary(asked)


def one_seed(name: str, found: TableSet, seed: int, settings: WorthSettings) -> list[Asked]:
    """Every party as the label holder, every other one and one of noise as candidates."""
    import pandas as pd

    rows, judge = split_rows(found, seed), JUDGES[found.goal]
    truth = found.labels[rows.test]
    noise = stream(seed, "bench worth").normal(size=(len(found.labels), WIDTH))
    tables = {**found.tables, NOISE: pd.DataFrame(noise, columns=[f"n{place}" for place in range(WIDTH)])}
    whole = Federation.from_tables(tables, labels=found.labels, split=_without_counting(rows), columns=EVERY_LEVEL)
    asked = []
    for holder in found.tables:
        alone = judge(truth, central_trees(found.tables[holder], found, rows, seed))
        answers = worth(whole, holder=holder, epsilon=settings.epsilon, rows=settings.rows, seed=seed)
        for other in tables:
            if other == holder:
                continue
            true = 0.0
            if other != NOISE:
                both = pd.concat([tables[party].add_prefix(f"{party} ") for party in (holder, other)], axis=1)
                true = judge(truth, central_trees(both, found, rows, seed)) - alone
            asked.append(Asked(name, answers[other], true))
    return asked


def _without_counting(rows: Rows) -> RowSplit:
    """The split of `bench tables`, without a word that it counted labels: these are public."""
    train, validation, test = (torch.from_numpy(np.sort(part)) for part in (rows.train, rows.validation, rows.test))
    return RowSplit(train, validation, test)


def summary(asked: list[Asked]) -> dict[str, float | None]:
    """The figures of all questions."""
    real = [one for one in asked if one.prospect.candidate != NOISE]
    empty = [one.prospect.gain for one in asked if one.prospect.candidate == NOISE]
    sets = np.array([one.set for one in real])
    told, true = (np.array(values) for values in zip(*((a.prospect.gain.value, a.true) for a in real), strict=True))
    factors = {name: _factor(told[sets != name], true[sets != name]) for name in dict.fromkeys(sets.tolist())}
    corrected = told * np.array([factors[name] for name in sets])
    ratios = [one.true / one.prospect.gain.value for one in real if one.prospect.gain.sure]
    return {
        "correlation": _correlation(corrected, true),
        "mean_error": float(np.abs(corrected - true).mean()),
        "raw_correlation": _correlation(told, true),
        "raw_error": float(np.abs(told - true).mean()),
        "interval_covers": _share([_holds(a.prospect.gain.interval, a.true) for a in real]),
        "ratio_least": min(ratios, default=None),
        "ratio_largest": max(ratios, default=None),
        "noise_covers_zero": _share([_holds(gain.interval, 0.0) for gain in empty]),
        "noise_largest": max(gain.value for gain in empty),
        "pairs": float(len(real)),
        "bytes_down": float(np.mean([one.prospect.down for one in real])),
        "bytes_up": float(np.mean([one.prospect.up for one in real])),
        **{f"factor.{name}": value for name, value in factors.items()},
    }


def _factor(told: Any, true: Any) -> float:
    """By least squares through zero; 1 where nothing was gained anywhere."""
    return float(told @ true / (told @ told)) if bool(told.any()) else 1.0


def _correlation(told: Any, true: Any) -> float | None:
    return float(np.corrcoef(told, true)[0, 1]) if told.std() > 0 and true.std() > 0 else None


def _holds(around: tuple[float, float] | None, value: float) -> bool:
    return around is not None and around[0] <= value <= around[1]


def _share(values: list[bool]) -> float:
    return sum(values) / len(values)
