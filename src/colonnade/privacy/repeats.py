"""What several trainings on the same rows cost together: the seeds of a comparison, the trials of a search.

From what records keep of ledgers. Gaussian releases of all trainings are one Gaussian (exact accountant); with counts
among them their RDP adds up. Trainings at home (unit ROW) compose by PLD, and have a figure of their own. Noisy labels
are pure, so their epsilons add up; trainings of one seed may share a draw, and then cost less than is said here.
A unit has no bound together, if a training among them does not hide it: noise in the others does not help.

The folds of a cross-validation share parties, but no row trains in all of them (by time, the earliest do): units ROW
and LABEL have the figure of the row that is in the most of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from torch import Tensor

from colonnade.privacy.accounting import SENSITIVITY, Neighbours, exact_epsilon
from colonnade.privacy.events import LabelExposure, Unit
from colonnade.privacy.pbm import counted_epsilon
from colonnade.privacy.settings import PrivacySettings
from colonnade.privacy.tally import Tally, TallyRecord
from colonnade.privacy.together import PURE, RELATIONS, Cost, Together, together

LIMITS = "evaluation, validation scores, predictions and the choice among them are not covered"
SEEDED = (
    " This counts noise that every training draws anew, as separate organisations do; simulations of one seed draw the "
    "same, and whoever has what two of them released can take it away."
)


@dataclass(frozen=True)
class Training:
    """One of them: what each party released, and what was promised."""

    tallies: Sequence[Tally]
    privacy: PrivacySettings
    noisy_labels: bool = False  # what went down was made from noisy labels
    plain_labels: bool = False  # what went down was made from the labels as they are


def all_together(trainings: Sequence[Training]) -> list[Together]:
    """What all of them cost: the party that they cost most, and the labels; empty, where nothing was promised."""
    if not any(one.privacy.noised or one.noisy_labels or _counts(one) for one in trainings):
        return []
    strict = any(one.privacy.neighbours == "replaced" for one in trainings)
    neighbours: Neighbours = "replaced" if strict else "absent"
    delta = min(one.privacy.delta for one in trainings)
    names = sorted({t.party for one in trainings for t in one.tallies if t.releases and not t.sampled})
    found = [_of_party(name, trainings, delta, neighbours) for name in names]
    told = [max(found, key=lambda one: (one.epsilon, one.releases))] if found else []
    return [*told, *_of_rows(trainings, delta), *_of_labels(trainings)]


Folds = frozenset[int]  # numbers of folds, from 0


def folds_together(trainings: Sequence[Training], rows: Iterable[Folds], labels: Iterable[Folds]) -> list[Together]:
    """What the folds of a cross-validation cost: a party takes part in all of them, a row not.

    Args:
        trainings: one for each fold.
        rows: sets of folds, so that each row trains in one of the sets or in a part of it.
        labels: the same of those in which its label is told behind noise.
    """
    told = [one for one in all_together(trainings) if one.unit is Unit.PARTY]
    for unit, sets in ((Unit.ROW, rows), (Unit.LABEL, labels)):
        each = [all_together([trainings[number] for number in sorted(one)]) for one in sets]
        mine = [one for found in each for one in found if one.unit is unit]
        told += [max(mine, key=lambda one: (one.epsilon, one.releases))] if mine else []
    return told


def largest_sets(member: Tensor) -> list[Folds]:
    """The sets of folds that rows are in, without those that are part of another; `member` is (N, folds) bool."""
    found = sorted({frozenset(row.nonzero().flatten().tolist()) for row in member.unique(dim=0)}, key=len)
    return [one for place, one in enumerate(found) if not any(one < other for other in found[place + 1 :])]


def in_words(trainings: Sequence[Training]) -> str:
    """The same in a sentence for each unit; empty, where nothing was promised."""
    told = all_together(trainings)
    if not told:
        return ""
    beginning = f"{len(trainings)} trainings on the same rows cost, together: {'; '.join(map(str, told))}"
    return f"{beginning}; {LIMITS}.{seeded(trainings)}"


def seeded(trainings: Sequence[Training]) -> str:
    """What the figure of simulations supposes; empty: every training drew its noise anew."""
    return SEEDED * (len(trainings) > 1 and any(t.simulated for one in trainings for t in one.tallies))


def read_kept(
    kept: Sequence[Sequence[TallyRecord]], privacy: PrivacySettings, exposure: LabelExposure
) -> list[Training]:
    """What a file keeps of trainings with the same settings."""
    noisy, plain = exposure is LabelExposure.EPS, exposure is LabelExposure.FULL
    return [Training([Tally.from_json(t) for t in one], privacy, noisy, plain) for one in kept]


def of_searches(spent: Sequence[Sequence[Training] | None]) -> str:
    """What the trainings of searches on the same rows cost together, in words; None: one does not say what it spent."""
    known = [one for search in spent if search is not None for one in search]
    if any(search is None for search in spent):
        return "some trials are of an earlier version, which did not keep what they cost"
    return in_words(known)


def _of_labels(trainings: Sequence[Training]) -> list[Together]:
    """Unit LABEL: pure, so epsilons add up; a training that told the labels as they are leaves no bound."""
    noisy = [one.privacy.labels.epsilon or math.inf for one in trainings if one.noisy_labels]
    if not noisy:
        return []
    relation, plain = RELATIONS[Unit.LABEL], sum(one.plain_labels for one in trainings)
    if plain:
        why = f"{plain} of {len(trainings)} trainings told the labels as they are"
        return [Together(Unit.LABEL, math.inf, 0.0, relation, "no", len(trainings), why)]
    return [Together(Unit.LABEL, sum(noisy), 0.0, relation, PURE, len(noisy))]


def _of_rows(trainings: Sequence[Training], delta: float) -> list[Together]:
    """Unit ROW: of each training the event of one party, which stands for those of all; the same one again adds up."""
    events = [event for one in trainings for event in {e: None for t in one.tallies for e in t.sampled}]
    others = sum(not any(t.sampled for t in one.tallies) for one in trainings)
    if events and others:
        why = f"{others} of {len(trainings)} trainings did not hide single rows"
        return [Together(Unit.ROW, math.inf, delta, RELATIONS[Unit.ROW], "no", len(events), why)]
    return list(together([Cost(event, 0) for event in events], delta).values())


def _counts(one: Training) -> bool:
    return any(tally.counts for tally in one.tallies)


def _of_party(name: str, trainings: Sequence[Training], delta: float, neighbours: Neighbours) -> Together:
    mine = [(one, t) for one in trainings for t in one.tallies if t.party == name and t.releases and not t.sampled]
    releases, counts = sum(t.releases for _, t in mine), [count for _, t in mine for count in t.counts]
    unknown = sorted({mechanism for _, t in mine for mechanism in t.unknown})
    plain = [t.shift / SENSITIVITY[one.privacy.neighbours] for one, t in mine if not t.counts]
    shift = SENSITIVITY[neighbours] * math.sqrt(sum(mu**2 for mu in plain))
    if math.isinf(shift):
        why = f"no accountant knows {', '.join(map(repr, unknown))}" if unknown else "uploads left without noise"
        return Together(Unit.PARTY, math.inf, delta, neighbours, "no", releases, why)
    if counts:
        return Together(Unit.PARTY, counted_epsilon(counts, delta, shift), delta, neighbours, "RDP", releases)
    return Together(Unit.PARTY, exact_epsilon(shift, delta), delta, neighbours, "exact", releases)
