"""Make a scorecard of tables that are in one place: bins and evidence at each party, a linear model over all of them.

Evidence needs labels. The label holder's own columns have them; to the other parties they are released, and so they are
in training, whose replies are made of them. Three ways, and nothing is released that nobody asked for:

    only the label holder has columns    no label leaves
    label_epsilon = 2.0                  randomised response, drawn once: the same noisy labels serve the evidence of
                                         all parties (the label holder's own, too, since its uploads shape the replies)
                                         and the training, so that all of it together costs this epsilon
    release_labels = True                plain labels; no epsilon

Bins are cut without labels, and every party counts its own: no column leaves for a weight of evidence. All of that is
the method `scorecard`, which trains in the same way between organisations; here all cards are in one place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from colonnade.data.ids import Ids
from colonnade.errors import ConfigError, RunError
from colonnade.federation import Federation
from colonnade.fit import fit
from colonnade.methods.scorecard import ScorecardADMM
from colonnade.models.points import Scale
from colonnade.part import Part
from colonnade.privacy.labels.settings import LabelSettings
from colonnade.privacy.settings import PrivacySettings
from colonnade.row_split import RowSplit
from colonnade.run import Run
from colonnade.scorecards.card import PartyCard, Scorecard

ROUNDS = 100  # of the linear model; all training rows in each
METRICS = ("auc", "ks")  # of the test rows that are told
REFUSED = (
    "weights of evidence tell {others} about the labels, and so does training with them: say label_epsilon "
    "(--label-epsilon) to release noisy labels, or release_labels=True (--release-labels) to release them without "
    "protection"
)


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
    monotone: bool = False,
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
        monotone: merge neighbouring bins of numbers and dates until their evidence rises or falls throughout.
        rounds: of the training of the linear model, with all training rows in each.
        seed: of the noise and the training.
        meaning: further arguments of `Federation.from_tables`: split, classes, positive, columns, ...

    Raises:
        ConfigError: labels would be released and nobody said how, or these are not yes/no labels.

    Examples:
        >>> import colonnade as cn
        >>> import pandas as pd
        >>> rows = range(400)
        >>> bank = pd.DataFrame({"customer": rows, "income": [i * 37 % 100 for i in rows]})
        >>> shop = pd.DataFrame({"customer": rows, "visits": [i * 53 % 90 for i in rows]})
        >>> shop["default"] = ["yes" if i * 37 % 100 + i * 53 % 90 < 60 else "no" for i in rows]
        >>> card = cn.scorecard({"bank": bank, "shop": shop}, labels="default", id="customer", release_labels=True)
        >>> points = card.score({"bank": bank, "shop": shop}, id="customer")
        >>> defaulted = shop["default"].to_numpy() == "yes"
        >>> bool(points[~defaulted].mean() > points[defaulted].mean() + 50)
        True
    """
    scale = Scale(base_score, odds, pdo)
    _check_counts(bins, label_epsilon, release_labels)
    if label_epsilon is not None and not isinstance(meaning.get("split"), RowSplit):
        meaning["split"] = {"stratify": False, **dict(meaning.get("split") or {})}  # strata count the labels
    meaning["columns"] = _cut(meaning.get("columns"), bins)
    federation = Federation.from_tables(tables, labels=labels, id=id, **meaning)
    others = tuple(party for party, plan in federation.plans.items() if plan.label is None)
    if others and label_epsilon is None and not release_labels:
        raise ConfigError(REFUSED.format(others=", ".join(others)))
    settings = LabelSettings()
    if label_epsilon is not None:
        settings = LabelSettings(mechanism="randomised_response", epsilon=label_epsilon)
    method = ScorecardADMM(base_score=scale.base_score, odds=scale.odds, pdo=scale.pdo, monotone=monotone)
    run = fit(
        federation, method, privacy=PrivacySettings(labels=settings), rounds=rounds, batch=len(federation.split.train),
        seed=seed, evaluate_every=0, dtype="float64", progress=False,
    )  # fmt: skip
    return card_of(run, _told(others, len(federation.split.train), settings))


def card_of(run: Run, told: str) -> Scorecard:
    """The cards of all parties of a run of the method `scorecard`; `told` is what was released of the labels.

    Parts that stay with their organisations have no card here: what is left is what adds their points up.

    Raises:
        RunError: the run trained another method.
    """
    method = run.method
    if not isinstance(method, ScorecardADMM):
        raise RunError(f"run {run.id} trained {method.name}, and no scorecard; train the method scorecard")
    here = [part for part in run.model.parts.values() if part.tensors]
    cards = tuple(map(PartyCard.of, here))
    return Scorecard(
        cards,
        method.scale.base_points(float(run.state["constant"])),
        method.scale,
        str(run.task.classes[1]),
        told,
        {name: run.metrics[name]["test"] for name in METRICS if name in run.metrics},
        tuple(note for card, part in zip(cards, here, strict=True) for note in notes_of(card, part)),
        run.ledger,
    )


def _cut(columns: Any, bins: int) -> Any:
    """What was said about columns, and that all of them are cut."""
    if columns is not None and not isinstance(columns, Mapping):
        return columns  # refused by name where it is read
    if "bins" in (columns or {}):
        raise ConfigError("say bins once: as an argument of the scorecard, not among the settings of all columns")
    return {"bins": bins, **(columns or {})}


def _told(others: Sequence[str], rows: int, settings: LabelSettings) -> str:
    """What was released of the labels, in a sentence."""
    if not others:
        return "All columns are the label holder's own: no label left it."
    who = ", ".join(others)
    if not settings.protects:
        return (
            f"The labels of {rows:,} training rows were released to {who} without protection, as was asked for (unit "
            "LABEL, no epsilon)."
        )
    return (
        f"Labels of {rows:,} training rows were released to {who} by randomised response: epsilon "
        f"{settings.epsilon:g}, delta 0, unit LABEL (neighbours: one row's whole label replaced), for the "
        "weights of evidence and the training together; the noise was drawn once, so no accountant is needed. It was "
        "drawn from the seed of this simulation, and whoever knows that can take it away. Not covered: the measures on "
        "the test rows, the choice of settings, and the parties' columns, whose uploads have no noise."
    )


def notes_of(card: PartyCard, part: Part) -> list[str]:
    """Columns that were left out, and those that speak against their own evidence."""
    told, kept = [], {one.bins.column for one in card.columns}
    gone = [name for name in part.plans[card.party].columns if name not in kept]
    if gone:
        told.append(f"{card.party}: left out, because all training rows are in one bin: {', '.join(gone)}")
    against = [one.bins.column for one in card.columns if one.weight > 0 and any(one.points)]
    if against:
        told.append(
            f"{card.party}: points go against the weights of evidence, because other columns say the same: "
            f"{', '.join(against)}; think of leaving them out"
        )
    return told


def _check_counts(bins: int, epsilon: float | None, release: bool) -> None:
    if isinstance(bins, bool) or not isinstance(bins, (int, np.integer)) or not 2 <= bins <= 100:
        raise ConfigError(f"bins = {bins!r}: needed a whole number from 2 to 100")
    if epsilon is not None and release:
        raise ConfigError("label_epsilon promises a protection of the labels that release_labels gives up; say one")
