"""What several trainings on the same rows cost together: the seeds of a comparison, the trials of a search.

From what records keep of ledgers. Gaussian releases of all trainings are one Gaussian (exact accountant); with counts
among them their RDP adds up. Trainings at home (unit ROW) compose by PLD, and have a figure of their own. Noisy labels
are pure, so their epsilons add up; trainings of one seed may share a draw, and then cost less than is said here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from colonnade.privacy.accounting import SENSITIVITY, Neighbours, exact_epsilon
from colonnade.privacy.events import Unit
from colonnade.privacy.pbm import counted_epsilon
from colonnade.privacy.settings import PrivacySettings
from colonnade.privacy.tally import Tally, TallyRecord
from colonnade.privacy.together import PURE, RELATIONS, Cost, Together, together


@dataclass(frozen=True)
class Training:
    """One of them: what each party released, and what was promised."""

    tallies: Sequence[Tally]
    privacy: PrivacySettings
    noisy_labels: bool = False  # what went down was made from noisy labels


def all_together(trainings: Sequence[Training]) -> list[Together]:
    """What all of them cost: the party that they cost most, and the labels; empty, where nothing was promised."""
    if not any(one.privacy.noised or one.noisy_labels or _counts(one) for one in trainings):
        return []
    strict = any(one.privacy.neighbours == "replaced" for one in trainings)
    neighbours: Neighbours = "replaced" if strict else "absent"
    delta = min(one.privacy.delta for one in trainings)
    names = sorted({t.party for one in trainings for t in one.tallies if t.releases and not t.sampled})
    found = [_of_party(name, trainings, delta, neighbours) for name in names]
    labels = [one.privacy.labels.epsilon or math.inf for one in trainings if one.noisy_labels]
    told = [max(found, key=lambda one: (one.epsilon, one.releases))] if found else []
    told += _of_rows(trainings, delta)
    if labels:
        told.append(Together(Unit.LABEL, sum(labels), 0.0, RELATIONS[Unit.LABEL], PURE, len(labels)))
    return told


def in_words(trainings: Sequence[Training]) -> str:
    """The same in a sentence for each unit; empty, where nothing was promised."""
    told = all_together(trainings)
    if not told:
        return ""
    limits = "evaluation, validation scores, predictions and the choice among them are not covered"
    return f"{len(trainings)} trainings on the same rows cost, together: {'; '.join(map(str, told))}; {limits}."


def kept_in_words(kept: Sequence[Sequence[TallyRecord]], privacy: PrivacySettings, noisy_labels: bool) -> str:
    """The same from what a file keeps of trainings with the same settings."""
    return in_words([Training([Tally.from_json(t) for t in one], privacy, noisy_labels) for one in kept])


def _of_rows(trainings: Sequence[Training], delta: float) -> list[Together]:
    """Unit ROW: of each training the event of one party, which stands for those of all; the same one again adds up."""
    events = [event for one in trainings for event in {e: None for t in one.tallies for e in t.sampled}]
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
