"""Everything an audit found, and what it comes to: the verdict first, in words."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict

from colonnade.audit.books import Books
from colonnade.audit.checks import BOUND, Check
from colonnade.audit.table import Finding
from colonnade.privacy.accounting import Neighbours, of_its_size
from colonnade.privacy.events import LabelExposure
from colonnade.privacy.ledger import Entry
from colonnade.privacy.promise import Circumstances
from colonnade.privacy.settings import SAME, PrivacySettings
from colonnade.privacy.statement import Statement


@dataclass(frozen=True)
class Figure:
    """What a ledger says that training cost the party it cost most."""

    party: str | None  # None: nobody uploaded, or the ledger cannot be accounted for
    releases: int
    epsilon: float  # of all of them; infinite without noise
    delta: float
    neighbours: Neighbours
    accountant: str
    label_epsilon: float | None = None  # of one row's label; None: labels are not protected
    unit: str = "PARTY"  # or ROW: of one row at all parties

    @classmethod
    def of(cls, ledger: Sequence[Entry], privacy: PrivacySettings, exposure: LabelExposure, own: str) -> Figure:
        """From releases of the parties; `own` is the noise that the method brings, if any."""
        told = Statement.of(ledger, privacy, Circumstances(exposure, own=own))
        worst = None if told.unknown else told.worst
        labels = privacy.labels.epsilon if exposure is LabelExposure.EPS else None
        return cls(
            worst.party if worst else None,
            worst.releases if worst else 0,
            told.epsilon if worst else math.inf,
            privacy.delta,
            told.neighbours,
            "PLD" if told.by_row else "RDP" if told.counted else "exact",
            labels,
            "ROW" if told.by_row else "PARTY",
        )

    @property
    def claims(self) -> bool:
        """Whether there is an epsilon of columns."""
        return self.party is not None and math.isfinite(self.epsilon)

    def beyond(self, privacy: PrivacySettings) -> Iterator[str]:
        """What training cost above the budget that the run promised: noise for fewer releases than there were."""
        promised = privacy.epsilon
        if self.claims and promised is not None and self.epsilon > promised * SAME:
            yield (
                f"training cost epsilon {self.epsilon:.3f} (unit {self.unit}, {self.accountant} accountant), more than "
                f"the {promised:g} that the run promised: the noise is too small for {self.releases} releases"
            )

    def words(self) -> Iterator[str]:
        """Each epsilon with what belongs to it."""
        if self.claims:
            facts = (
                f"unit {self.unit}, neighbours: {self.neighbours}, delta {self.delta:g}, {self.accountant} accountant"
            )
            count = f"{self.releases} training release{'' if self.releases == 1 else 's'} of {self.party!r}"
            size = ", a size that promises nothing" if of_its_size(self.epsilon, self.delta) else ""
            yield f"epsilon {self.epsilon:.3f} ({facts}; {count}, and nothing else){size}"
        if self.label_epsilon is not None:
            yield f"label epsilon {self.label_epsilon:.3f} (unit LABEL, delta 0, of one row's label)"

    def to_json(self) -> dict[str, object]:
        """Plain values; no epsilon without what belongs to it."""
        return dict(vars(self))


@dataclass(frozen=True)
class Retrained:
    """How much of the run was trained again."""

    rounds: int
    of: int  # rounds of the run
    rows: int  # different training rows that were uploaded about
    uploads: int  # training uploads of the retraining,
    found: int  # and how many of them stand in the run's ledger, bit by bit


class AuditRecord(TypedDict):
    """What an audit found, for machines."""

    verdict: str
    passed: bool
    claim: Mapping[str, object]
    checks: list[Mapping[str, object]]
    not_tried: Mapping[str, str]
    attacks: list[Mapping[str, object]]
    ledger: Mapping[str, object]
    retrained: Mapping[str, int] | None


@dataclass(frozen=True)
class Examination:
    """Everything an audit found."""

    figure: Figure
    checks: Sequence[Check]
    findings: Sequence[Finding]
    books: Books
    retrained: Retrained | None = None  # None: it is a run of separate organisations, of which this is one

    @property
    def passed(self) -> bool:
        """Whether nothing contradicts the ledger."""
        return not any(True for _ in self.wrong())

    def wrong(self) -> Iterator[str]:
        """What contradicts it, a sentence each."""
        yield from (f"{check.name}: {check.means}" for check in self.checks if check.failed)
        yield from (f"{finding.attack}: {finding.too_good}" for finding in self.findings if finding.too_good)
        yield from self.books.problems

    @property
    def not_tried(self) -> dict[str, str]:
        """What was not tried, by name, and why."""
        return {check.name: check.means for check in self.checks if not check.tried}

    @property
    def verdict(self) -> str:
        """The outcome in words."""
        if wrong := "; ".join(self.wrong()):
            return f"FAILED: {wrong}"
        told = " and ".join(self.figure.words())
        played = any(check.tried for check in self.checks)
        if told and played:
            return f"Nothing found that contradicts {told}."
        if told or BOUND in self.not_tried:
            return f"Nothing could be played against {told or 'the noise of this run'}; its ledger is in order."
        return "Nothing found that contradicts the ledger, which claims no epsilon: no noise was used."

    def to_json(self) -> AuditRecord:
        """Plain values."""
        counts = [[owner, purpose.value, count] for (owner, purpose), count in self.books.counts.items()]
        return {
            "verdict": self.verdict,
            "passed": self.passed,
            "claim": self.figure.to_json(),
            "checks": [check.to_json() for check in self.checks],
            "not_tried": self.not_tried,
            "attacks": [{**vars(finding), "advantage": finding.advantage} for finding in self.findings],
            "ledger": {"events": self.books.events, "releases": counts, "problems": list(self.books.problems)},
            "retrained": None if self.retrained is None else vars(self.retrained),
        }
