"""Make a scorecard of tables that are in one place: bins and evidence at each party, a linear model over all of them.

Evidence needs labels. The label holder's own columns have them; to the other parties they are released, and so they are
in training, whose replies are made of them. Three ways, and nothing is released that nobody asked for:

    only the label holder has columns    no label leaves
    label_epsilon = 2.0                  randomised response, drawn once: the same noisy labels serve the evidence of
                                         all parties (the label holder's own, too, since its uploads shape the replies)
                                         and the training, so that all of it together costs this epsilon
    release_labels = True                plain labels; no epsilon

Bins are cut without labels, and every party counts its own: no column leaves for a weight of evidence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from colonnade.data.columns import ColumnPlan
from colonnade.data.frames import Frames, as_frame, by_party, read_table
from colonnade.data.ids import Ids, id_columns, places, text_ids
from colonnade.data.kinds import Levels
from colonnade.data.said import as_said
from colonnade.errors import ConfigError
from colonnade.extras import need
from colonnade.federation import Federation, Party
from colonnade.fit import fit
from colonnade.privacy.gate import CoordinatorGate
from colonnade.privacy.labels import Labels
from colonnade.privacy.labels.randomised import RandomisedResponseEvent
from colonnade.privacy.labels.settings import LabelSettings, check_counted, check_split_alone, open_labels
from colonnade.privacy.ledger import Ledger
from colonnade.privacy.settings import PrivacySettings
from colonnade.randomness import key
from colonnade.row_split import RowSplit
from colonnade.run import Run
from colonnade.scorecards.bins import Bins, Kind, numbers_of
from colonnade.scorecards.card import ColumnCard, PartyCard, Scale, Scorecard
from colonnade.scorecards.evidence import Evidence
from colonnade.tasks import Task
from colonnade.wire.messages import Request

ROUNDS = 100  # of the linear model; all training rows in each
SMALLEST = 0.05  # of the training rows: levels with fewer are others
METRICS = ("auc", "ks")  # of the test rows that are told
REFUSED = (
    "weights of evidence tell {others} about the labels, and so does training with them: say label_epsilon "
    "(--label-epsilon) to release noisy labels, or release_labels=True (--release-labels) to release them without "
    "protection"
)

Values = np.ndarray[Any, Any]


def scorecard(  # noqa: PLR0913 - the front door: everything a user may want to say about a scorecard
    tables: Mapping[str, Any],
    *,
    labels: Any,
    id: Ids = None,
    label_epsilon: float | None = None,
    release_labels: bool = False,
    bins: int = 5,
    base_score: float = 600.0,
    odds: float = 50.0,
    pdo: float = 20.0,
    rounds: int = ROUNDS,
    seed: int = 0,
    **meaning: Any,
) -> Scorecard:
    """A scorecard of a yes/no label over the tables of several parties, made where all tables are.

    Args:
        tables: as for `Federation.from_tables`.
        labels: as there; the party whose table has the column is the label holder.
        id: as there.
        label_epsilon: release labels by randomised response with this label epsilon (delta 0).
        release_labels: release them without protection.
        bins: of each column of numbers or dates.
        base_score: points at which the odds are `odds`.
        odds: non-events to one event.
        pdo: points that double the odds.
        rounds: of the training of the linear model, with all training rows in each.
        seed: of the noise and the training.
        meaning: further arguments of `Federation.from_tables`: split, classes, positive, columns, ...

    Raises:
        ConfigError: labels would be released and nobody said how, or these are not yes/no labels.

    >>> import colonnade as cn
    >>> import pandas as pd
    >>> rows = range(400)
    >>> bank = pd.DataFrame({"customer": rows, "income": [i * 37 % 100 for i in rows]})
    >>> shop = pd.DataFrame({"customer": rows, "visits": [i * 53 % 90 for i in rows]})
    >>> shop["default"] = ["yes" if i * 37 % 100 + i * 53 % 90 < 60 else "no" for i in rows]
    >>> card = cn.scorecard({"bank": bank, "shop": shop}, labels="default", id="customer", release_labels=True)
    >>> points, defaulted = card.score({"bank": bank, "shop": shop}, id="customer"), shop["default"].to_numpy() == "yes"
    >>> bool(points[~defaulted].mean() > points[defaulted].mean() + 50)
    True
    """
    scale = Scale(base_score, odds, pdo)
    _check_counts(bins, label_epsilon, release_labels)
    given, keys = by_party("tables", tables), id_columns(id, by_party("tables", tables))
    frames = {p: read_table(t, id=keys.get(p)) if isinstance(t, (str, Path)) else t for p, t in given.items()}
    if label_epsilon is not None and not isinstance(meaning.get("split"), RowSplit):
        meaning["split"] = {"stratify": False, **dict(meaning.get("split") or {})}  # strata count the labels
    federation = Federation.from_tables(frames, labels=labels, id=id, **meaning)
    frames = {p: as_frame(f"party {p!r}", frame, keys.get(p)) for p, frame in frames.items()}
    return _made(_Parts.of(federation, frames, label_epsilon, release_labels, seed), bins, scale, rounds)


@dataclass(frozen=True)
class _Parts:
    """What a scorecard is made from: tables in one order of rows, and labels as they may be used."""

    federation: Federation = field(repr=False)
    frames: Frames = field(repr=False)  # of each party with columns, in the order of the federation's rows
    others: tuple[str, ...]  # parties with columns that do not hold the labels
    settings: LabelSettings
    labels: Labels = field(repr=False)
    seed: int

    @classmethod
    def of(cls, federation: Federation, frames: Frames, epsilon: float | None, release: bool, seed: int) -> _Parts:
        """Check what may be made of these tables, and draw the noise of the labels."""
        _check_task(federation)
        others = tuple(party for party, plan in federation.plans.items() if plan.label is None)
        if others and epsilon is None and not release:
            raise ConfigError(REFUSED.format(others=", ".join(others)))
        settings = LabelSettings()
        if epsilon is not None:
            settings = LabelSettings(mechanism="randomised_response", epsilon=epsilon)
        check_counted(federation.task.positive, settings)
        check_split_alone(federation.split.stratified, settings)
        truth, split, noise = federation.labels, federation.split, key(seed, "label noise")  # as in training
        labels = open_labels(truth, federation.task, split.train, settings, noise, split.validation)
        return cls(federation, _in_order(federation, frames), others, settings, labels, seed)

    @property
    def keep(self) -> float:
        """How likely a label was kept."""
        event = self.labels.event
        return event.keep if isinstance(event, RandomisedResponseEvent) else 1.0

    @property
    def said(self) -> Tensor:
        """(R,) what the labels of the training rows say, a byte each: what is released."""
        return self.labels.compact(self.federation.split.train).flatten()


def _made(parts: _Parts, bins: int, scale: Scale, rounds: int) -> Scorecard:
    federation, train = parts.federation, parts.federation.split.train.numpy()
    said = parts.said.numpy().astype(np.float64)
    cut = {party: _bins(plan, parts.frames[party], train, bins) for party, plan in federation.plans.items()}
    found: dict[str, list[tuple[Bins, Evidence]]] = {}
    columns: dict[str, Tensor] = {}
    for party, all_bins in cut.items():
        codes = [one.codes(party, parts.frames[party][one.column]) for one in all_bins]
        evidence = [
            Evidence.of(mine[train], said, len(one.names), parts.keep)
            for one, mine in zip(all_bins, codes, strict=True)
        ]
        found[party] = list(zip(all_bins, evidence, strict=True))
        woe = np.stack([e.woe[mine] for e, mine in zip(evidence, codes, strict=True)], axis=1)
        columns[party] = torch.from_numpy(woe)
    run = _train(parts, columns, rounds)
    cards = tuple(_card(run, party, pairs, federation.plans[party], scale) for party, pairs in found.items())
    constant = sum(float(run.models[party]["head.weight.0"][-1, 0]) for party in found)
    task = federation.task
    return Scorecard(
        cards,
        round(scale.offset - scale.factor * constant),
        scale,
        str(task.classes[1]),
        _told(parts),
        {name: run.metrics[name]["test"] for name in METRICS if name in run.metrics},
        tuple(_notes(cards, federation)),
        _ledger(parts, run),
    )


def _bins(plan: ColumnPlan, frame: Any, train: Values, count: int) -> list[Bins]:
    """Of every column that has at least two bins with training rows."""
    smallest = max(1, round(SMALLEST * len(train)))
    kinds: list[tuple[str, Kind]] = [*((n, "number") for n in plan.numbers), *((n, "date") for n in plan.dates)]
    found = [Bins.of_numbers(name, kind, numbers_of(kind, frame[name])[train], count) for name, kind in kinds]
    for name, holds in plan.categories.items():
        found.append(Bins.of_levels(name, holds, Levels.of(frame[name], holds), train, smallest))
    useful = [one for one in found if len(np.unique(one.codes(plan.party, frame[one.column])[train])) > 1]
    if not useful:
        raise ConfigError(f"party {plan.party!r} has no column with two bins or more; leave its table out")
    return useful


def _train(parts: _Parts, columns: Mapping[str, Tensor], rounds: int) -> Run:
    """The linear model over everybody's evidence, on the same rows and with the same labels."""
    old = parts.federation
    parties = tuple(Party(name, value) for name, value in columns.items())
    federation = replace(old, parties=parties, plans={}, scaled=True, whole=None)
    privacy = PrivacySettings(labels=parts.settings)
    batch = len(old.split.train)
    return fit(
        federation, "linear_admm", privacy=privacy, rounds=rounds, batch=batch, kappa=0.0, seed=parts.seed,
        evaluate_every=0, dtype="float64", progress=False,
    )  # fmt: skip


def _card(run: Run, party: str, pairs: Sequence[tuple[Bins, Evidence]], plan: ColumnPlan, scale: Scale) -> PartyCard:
    weights = run.models[party]["head.weight.0"][:, 0].tolist()[: len(pairs)]  # the constant stands last
    made = []
    for (bins, evidence), weight in zip(pairs, weights, strict=True):
        points = tuple(round(-scale.factor * weight * woe) for woe in evidence.woe.tolist())
        made.append(ColumnCard(bins, evidence, weight, points))
    return PartyCard(party, tuple(made), plan.said)


def _ledger(parts: _Parts, run: Run) -> Ledger:
    """What left in training, and before it the labels that the other parties counted with."""
    ledger = Ledger()
    if parts.others:
        gate = CoordinatorGate(run.id, ledger, parts.others, (parts.others,), parts.labels)
        gate.release(Request(0), {"targets": parts.said}, ())
    for entry in run.ledger:
        ledger.record(entry)
    return ledger


def _told(parts: _Parts) -> str:
    """What was released of the labels, in a sentence."""
    if not parts.others:
        return "All columns are the label holder's own: no label left it."
    rows, who = len(parts.federation.split.train), ", ".join(parts.others)
    if not parts.settings.protects:
        return (
            f"The labels of {rows:,} training rows were released to {who} without protection, as was asked for (unit "
            "LABEL, no epsilon)."
        )
    return (
        f"Labels of {rows:,} training rows were released to {who} by randomised response: epsilon "
        f"{parts.settings.epsilon:g}, delta 0, unit LABEL (neighbours: one row's whole label replaced), for the "
        "weights of evidence and the training together; the noise was drawn once, so no accountant is needed. It was "
        "drawn from the seed of this simulation, and whoever knows that can take it away. Not covered: the measures on "
        "the test rows, the choice of settings, and the parties' columns, whose uploads have no noise."
    )


def _notes(cards: Sequence[PartyCard], federation: Federation) -> list[str]:
    """Columns that were left out, and those that speak against their own evidence."""
    told = []
    for card in cards:
        kept = {one.bins.column for one in card.columns}
        gone = [name for name in federation.plans[card.party].columns if name not in kept]
        if gone:
            told.append(f"{card.party}: left out, because all training rows are in one bin: {', '.join(gone)}")
        against = [one.bins.column for one in card.columns if one.weight > 0 and any(one.points)]
        if against:
            told.append(
                f"{card.party}: points go against the weights of evidence, because other columns say the same: "
                f"{', '.join(against)}; think of leaving them out"
            )
    return told


def _in_order(federation: Federation, frames: Frames) -> Frames:
    """Each party's columns in the order of the federation's rows, as their owner says they are."""
    pandas: Any = need("pandas", extra="tables", purpose="a table")
    found = {}
    for party, plan in federation.plans.items():
        frame = frames[party]
        if plan.id is not None:
            at = places(pandas.Index(federation.ids, dtype="str"), text_ids(f"party {party!r}", frame, plan.id))
            frame = frame.iloc[at]
        found[party] = as_said(party, frame[list(plan.columns)], plan.said)
    return found


def _check_task(federation: Federation) -> None:
    task: Task = federation.task
    if not (task.one_class and task.outputs == 1):
        raise ConfigError(
            f"a scorecard needs yes/no labels; this is a {task.words} task: cut its labels into two classes"
        )
    if federation.weights is not None:
        raise ConfigError("a scorecard counts rows, and these have weights; leave weights out")
    if federation.partial:
        raise ConfigError("a scorecard needs rows that every party holds; leave keep = 'partial' out")


def _check_counts(bins: int, epsilon: float | None, release: bool) -> None:
    if isinstance(bins, bool) or not isinstance(bins, (int, np.integer)) or not 2 <= bins <= 100:
        raise ConfigError(f"bins = {bins!r}: needed a whole number from 2 to 100")
    if epsilon is not None and release:
        raise ConfigError("label_epsilon promises a protection of the labels that release_labels gives up; say one")
