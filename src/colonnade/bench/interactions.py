"""Interactions: what every sum of scores misses, on tables that are made up for it; and whether the question sees it.

    xor        a yes is likelier where the second columns of both parties have the same sign
    product    a yes is likelier where both second columns are large
    additive   nothing shows only together: here nobody may be warned

Two parties with five columns each, of which the first adds to the log odds of a yes in every set. A quarter of the rows
tests, of the rest 15 % validate. Results, means over seeds, by set:
    auc.one_message.     the sum of cross-fitted scores of boosted trees
    auc.vimadmm_j.       the sum of logits of networks that were trained together
    auc.split_learning.  a network of two layers over embeddings of both: it sees interactions, and costs many rounds
    auc.central.         LightGBM on all columns in one place
    auc.lifted.          vimadmm_j with lifts = 5 and boosted trees at both parties: each score may turn on the side of
                         its median that any of the bank's five columns is on
    told.                share of the seeds in which that run says itself that lifting adds something: on test rows,
                         against its own plain parts, with a 95 % interval above 0
    mb.lifted.           what that run sends, up and down, in MB
    warned.              share of the seeds in which `cn.worth(..., interactions=5)` warns, at the default epsilon of 1
    products.            gain of products of the parties' scores in a stack, on the test rows: a test that sees nothing
"""

from __future__ import annotations

import statistics
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from pydantic import Field

from colonnade.bench.catalogue import Bench
from colonnade.bench.settings import Notify, Options
from colonnade.bench.table_sets import EVERY_LEVEL, TableSet
from colonnade.bench.tables import JUDGES, central_trees, split_rows
from colonnade.config import Settings, build
from colonnade.extras import need
from colonnade.federation import Federation, RowSplit
from colonnade.fit import fit
from colonnade.joining.gain import balanced_folds, gain_of
from colonnade.randomness import stream
from colonnade.run import Run
from colonnade.worth import worth

Array = np.ndarray[Any, Any]
COLUMNS, LIFTS = 5, 5


class InteractionsSettings(Settings):
    """How large the tables are, and how long networks train."""

    rows: int = Field(12000, ge=2000, description="of each table")
    epochs: int = Field(40, ge=1, description="of networks, at most; validation rows choose the round")
    rounds: int = Field(40, ge=1, description="of boosted trees with lifted scores, at most; the same")


def _xor(a: Array, b: Array) -> Array:
    return np.asarray(0.7 * a[:, 0] + 0.7 * b[:, 0] + 1.5 * np.sign(a[:, 1] * b[:, 1]))


def _product(a: Array, b: Array) -> Array:
    return np.asarray(0.5 * a[:, 0] + 0.5 * b[:, 0] + 4 * a[:, 1].clip(0) * b[:, 1].clip(0) - 1)


def _additive(a: Array, b: Array) -> Array:
    return np.asarray(0.7 * a[:, 0] + 0.7 * b[:, 0] + 1.5 * np.sign(a[:, 1]) * 0.5 + 1.5 * np.sign(b[:, 1]) * 0.5)


MADE: Mapping[str, Callable[[Array, Array], Array]] = {"xor": _xor, "product": _product, "additive": _additive}


def make_set(name: str, rows: int, seed: int) -> TableSet:
    """The tables of two parties, and yes or no."""
    import pandas as pd

    draw = stream(seed, f"bench interactions {name}")
    a, b = draw.normal(size=(2, rows, COLUMNS))
    labels = (draw.random(rows) < 1 / (1 + np.exp(-MADE[name](a, b)))).astype(np.int64)
    heads = [f"c{place}" for place in range(COLUMNS)]
    tables = {"bank": pd.DataFrame(a, columns=heads), "shop": pd.DataFrame(b, columns=heads)}
    return TableSet("auc", tables, labels)


def run_interactions(bench: Bench, options: Options, notify: Notify) -> dict[str, float | None]:
    """Every set with every seed."""
    need("lightgbm", extra="trees", purpose="bench interactions")
    settings = build(InteractionsSettings, bench.tables.get("interactions", {}), "interactions")
    results: dict[str, float | None] = {}
    for name in MADE:
        taken: dict[str, list[float]] = {}
        for seed in range(options.seeds):
            for key, value in one_seed(name, settings, seed).items():
                taken.setdefault(key, []).append(value)
            notify(f"{name}, seed {seed}: " + ", ".join(f"{key} {values[-1]:.4f}" for key, values in taken.items()))
        results |= {f"{key}.{name}": statistics.fmean(values) for key, values in taken.items()}
    return results


def one_seed(name: str, settings: InteractionsSettings, seed: int) -> dict[str, float]:
    """All models on the same rows."""
    import pandas as pd

    found = make_set(name, settings.rows, seed)
    rows = split_rows(found, seed)
    train, validation, test = (torch.from_numpy(np.sort(part)) for part in (rows.train, rows.validation, rows.test))
    split = RowSplit(train, validation, test)
    whole = Federation.from_tables(dict(found.tables), labels=found.labels, split=split, columns=EVERY_LEVEL)
    pooled = pd.concat([table.add_prefix(f"{party} ") for party, table in found.tables.items()], axis=1)
    trained = {name: _trained(whole, name, settings, seed) for name in RECIPES}
    asked = worth(whole, holder="bank", interactions=LIFTS, seed=seed)["shop"].interaction
    assert asked is not None, "interactions were asked for"
    lifted = trained["lifted"]
    central = JUDGES["auc"](found.labels[rows.test], central_trees(pooled, found, rows, seed))
    return {
        **{f"auc.{method}": run.result["test_score"] or 0.0 for method, run in trained.items()},
        "auc.central": central,
        "told": float((lifted.result["lifts"]["interval"] or [0.0])[0] > 0),
        "mb.lifted": (lifted.traffic.up + lifted.traffic.down) / 1e6,
        "warned": float(asked.sure),
        "products": _products(whole, trained["one_message"]),
    }


RECIPES: Mapping[str, Mapping[str, Any]] = {  # trees of six leaves are better than networks here, on validation rows
    "one_message": {"model": {"encoder": "trees"}},
    "vimadmm_j": {"model": {"hidden": 32, "embedding": 16}},
    "lifted": {
        "lifts": LIFTS,
        "guest": "bank",
        "rho": 0.25,
        "damping": 1.0,
        "local_steps": 5,
        "model": {"encoder": "trees", "trees": {"leaves": 6}},
    },
    "split_learning": {"model": {"hidden": 32, "embedding": 16, "head": {"layers": 2}}},
}


def _trained(whole: Federation, name: str, settings: InteractionsSettings, seed: int) -> Run:
    method = "vimadmm_j" if name == "lifted" else name
    usual: Mapping[str, Any] = {"epochs": settings.epochs, "batch": 256}
    longer = {"one_message": {}, "lifted": {"rounds": settings.rounds, "batch": len(whole.split.train)}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fit(whole, method, seed=seed, progress=False, **RECIPES[name], **longer.get(name, usual))


def _products(whole: Federation, run: Run) -> float:
    """What the product of both parties' scores adds to the two of them."""
    rows = whole.split.test
    told = run.model.contributions(whole.select(rows)).values  # (B, parties, outputs)
    scores = torch.as_tensor(np.asarray(told)).reshape(len(rows), -1).double()
    truth, product = whole.labels[rows], scores.prod(dim=1, keepdim=True)
    return gain_of(whole.task, truth, scores, product, balanced_folds(truth, 0)).value
