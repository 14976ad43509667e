"""Predictions without some parties: answers of one model for every set of parties, beside models trained for that set.

Tables, split and seeds are those of `bench tables`: train 63.75, validation 11.25, test 25 %, stratified. A method is
trained once on all parties, and predicts the test rows for every set of them but the whole; then it is trained again on
the columns of that set alone, with the settings that suit so many parties. Methods with rounds train the model of all
parties with `party_dropout`. Then one party after the other loses 30 % of its training rows, drawn by seed, and a model
of all rows is held against one of the rows that are left when these are dropped; both predict the same test rows, which
all parties hold.

Results, for a method METHOD:

    auc_gap.METHOD         how much better the model trained for the set is, mean over tables, sets of parties and seeds
    worst_auc_gap.METHOD   the largest of these differences
    log_loss_gap.METHOD    the same of the mean log loss, ours less theirs

and for a table SET, of the methods that train on rows that parties lack, named in `[any_subset] masked`:

    missing_gain.SET       AUC of all rows less AUC of complete rows, mean over parties that lack rows and seeds
    missing_gain_se.SET    its standard error over these
    missing_sets           of how many tables the gain is more than two standard errors
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from colonnade.bench.catalogue import Bench
from colonnade.bench.settings import Notify, Options
from colonnade.bench.table_sets import EVERY_LEVEL, TableSet, folder_of, read_set
from colonnade.bench.tables import split_rows
from colonnade.config import Settings, build
from colonnade.errors import ConfigError
from colonnade.extras import need
from colonnade.federation import Federation, RowSplit
from colonnade.fit import fit
from colonnade.methods import make_method
from colonnade.randomness import permutation
from colonnade.run import Run

OWN = (
    "one_message",
    "assisted_boosting",
)  # methods whose defaults suit trees; they have no rounds to leave parties out of
KINDS = {"vimadmm_j": "trees"}  # local models that rounds train; all other methods: networks
EPOCHS, ROUNDS = 20, 200  # of networks, at most


class AnySubsetSettings(Settings):
    """Which tables and which methods."""

    sets: tuple[str, ...] = Field(("credit", "bank", "adult"), min_length=1, description="yes/no tables, by name")
    methods: tuple[str, ...] = Field(("one_message", "vimadmm_j"), min_length=1, description="by name")
    masked: tuple[str, ...] = Field((), description="methods that also train on rows that parties lack")
    missing: float = Field(0.3, gt=0, lt=1, description="share of the rows that one party lacks")
    missing_seeds: int = Field(
        1, ge=1, description="splits with such rows, if more than --seeds: what they gain is small beside chance"
    )
    party_dropout: float = Field(0.3, ge=0, lt=1, description="of trainings of all parties, where a method has rounds")


@dataclass(frozen=True)
class Gap:
    """What a model trained for a set of parties has that ours lacks: below 0, ours is better."""

    auc: float
    log_loss: float


@dataclass
class Gaps:
    """Of one method, over tables, sets of parties and seeds."""

    found: list[Gap] = field(default_factory=list)

    def results(self, method: str) -> dict[str, float | None]:
        """By key."""
        return {
            f"auc_gap.{method}": statistics.fmean(gap.auc for gap in self.found),
            f"worst_auc_gap.{method}": max(gap.auc for gap in self.found),
            f"log_loss_gap.{method}": statistics.fmean(gap.log_loss for gap in self.found),
        }


def run_any_subset(bench: Bench, options: Options, notify: Notify) -> dict[str, float | None]:
    """Every table with every seed and every method."""
    need("lightgbm", extra="trees", purpose="bench any-subset")
    settings = build(AnySubsetSettings, bench.tables.get("any_subset", {}), "any_subset")
    gaps = {method: Gaps() for method in settings.methods}
    gains: dict[str, list[float]] = {}
    for name, table in _tables(options, settings):
        for seed, method in itertools.product(range(options.seeds), settings.methods):
            for parties, gap in _subsets(federation_of(table, seed), method, seed, settings.party_dropout):
                gaps[method].found.append(gap)
                told = f"AUC gap {gap.auc:+.4f}, log loss gap {gap.log_loss:+.4f}"
                notify(f"{name}, seed {seed}, {method}, {'+'.join(parties)}: {told}")
        many = range(max(options.seeds, settings.missing_seeds))
        for seed, method in itertools.product(many, settings.masked):
            for party, gain in _missing(federation_of(table, seed), method, seed, settings.missing):
                gains.setdefault(name, []).append(gain)
                notify(f"{name}, seed {seed}, {method}, {party} lacks rows: AUC gain {gain:+.4f}")
    results: dict[str, float | None] = {}
    for method, found in gaps.items():
        results |= found.results(method)
    for name, values in gains.items():
        results[f"missing_gain.{name}"] = statistics.fmean(values)
        results[f"missing_gain_se.{name}"] = _error(values)
    if gains:
        results["missing_sets"] = sum(statistics.fmean(values) > 2 * (_error(values) or 0) for values in gains.values())
    return results


def _tables(options: Options, settings: AnySubsetSettings) -> Iterator[tuple[str, TableSet]]:
    names = options.only or settings.sets
    folder = folder_of(names, options.data_dir, "bench any-subset")
    for name in names:
        table = read_set(name, folder)
        if table.goal != "auc":
            raise ConfigError(f"bench any-subset is about yes/no tables; {name} is none")
        yield name, table


def _error(values: list[float]) -> float | None:
    return statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else None


def federation_of(table: TableSet, seed: int) -> Federation:
    """The parties of a table, split as `bench tables` does."""
    rows = split_rows(table, seed)
    train, validation, test = (torch.from_numpy(np.sort(part)) for part in (rows.train, rows.validation, rows.test))
    split = RowSplit(train, validation, test)
    return Federation.from_tables(dict(table.tables), labels=table.labels, split=split, columns=EVERY_LEVEL)


def train(federation: Federation, method: str, seed: int, party_dropout: float = 0.0) -> Run:
    """A method with the settings that suit it, on yes/no labels."""
    from colonnade.estimators.kinds import Circumstances, tries_of  # needs scikit-learn, which other benchmarks do not

    kind = KINDS.get(method, "network")
    if method in OWN:
        return fit(federation, method, model={"encoder": "trees"}, seed=seed, progress=False)
    rows = len(federation.split.train)
    chosen = tries_of(kind, Circumstances(method, rows, len(federation.parties), True))[0]
    epochs = chosen.epochs or EPOCHS
    rounds = min(ROUNDS, max(1, epochs * rows // chosen.batch))
    leaves_out = {"party_dropout": party_dropout} if make_method(method).needs_uploads != "nothing" else {}
    settings = {**chosen.settings, "rounds": rounds, "schedule": {"batch": chosen.batch, **leaves_out}}
    return fit(federation, method, model=chosen.model, seed=seed, progress=False, **settings)


def _subsets(federation: Federation, method: str, seed: int, party_dropout: float) -> list[tuple[tuple[str, ...], Gap]]:
    """The gap of every set of parties but the whole."""
    run, test = train(federation, method, seed, party_dropout), federation.split.test
    rows, truth = federation.select(test), federation.labels[test]
    found = []
    for size in range(1, len(federation.parties)):
        for parties in itertools.combinations(federation.names, size):
            alone = federation.only(parties)
            theirs = train(alone, method, seed).logits(alone.select(test))
            some = rows.of(parties, torch.arange(len(rows)))
            ours = run.model.prediction(some, absent="leave-out").logits
            found.append((parties, _gap(truth, ours, theirs)))
    return found


def _missing(federation: Federation, method: str, seed: int, share: float) -> list[tuple[str, float]]:
    """What all rows gain over complete ones, where one party lacks some of them."""
    test, found = federation.split.test, []
    rows, truth = federation.select(test), federation.labels[test]
    for place, party in enumerate(federation.names):
        partial = lacking(federation, place, share, seed)
        every, dropped = (train(data, method, seed).logits(rows) for data in (partial, partial.matched()))
        found.append((party, -_gap(truth, every, dropped).auc))
    return found


def lacking(federation: Federation, place: int, share: float, seed: int) -> Federation:
    """The same rows, of which one party lacks a share of those that train."""
    order = permutation(federation.split.train, seed, "lacking rows", place)
    mine = torch.ones(federation.rows, dtype=torch.bool)
    mine[order[: round(share * len(order))]] = False
    party = federation.parties[place]
    columns = party.columns.clone()
    columns[~mine] = 0
    parties = list(federation.parties)
    parties[place] = replace(party, columns=columns, held=mine)
    return replace(federation, parties=tuple(parties))


def _gap(truth: Tensor, ours: Tensor, theirs: Tensor) -> Gap:
    from sklearn.metrics import log_loss, roc_auc_score

    yes, first, second = truth.flatten().numpy(), ours.flatten().double(), theirs.flatten().double()
    auc = roc_auc_score(yes, second.numpy()) - roc_auc_score(yes, first.numpy())
    worse = log_loss(yes, first.sigmoid().numpy()) - log_loss(yes, second.sigmoid().numpy())
    return Gap(float(auc), float(worse))
