"""What a run promises, in words: whose privacy, against whom, by how much, and what is not covered.

The figures come from a ledger (or from its tally in a run's record), the words from the settings. No figure stands
without its unit, delta, neighbours, accountant and what it leaves out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from colonnade.privacy import row_statement
from colonnade.privacy.accounting import Neighbours, exact_epsilon, of_its_size, rdp_epsilon
from colonnade.privacy.colluders import Colluders
from colonnade.privacy.events import LabelExposure
from colonnade.privacy.ledger import Entry
from colonnade.privacy.mechanism import Budget
from colonnade.privacy.pbm import counted_epsilon
from colonnade.privacy.promise import Circumstances, Figures, Promise
from colonnade.privacy.sampled import SampledGaussianEvent, sampled_epsilon, sampled_rdp
from colonnade.privacy.settings import PrivacySettings
from colonnade.privacy.spent import Spent
from colonnade.privacy.tally import Tally, tally

WORLDS = {
    "absent": "compared with the same run without this party's data (neighbours: absent, sensitivity C)",
    "replaced": "compared with the same run with any other data of this party (neighbours: replaced, sensitivity 2C)",
}
LABELS = {
    LabelExposure.FULL: "Labels: the replies reveal the training labels to every party (exposure FULL).",
    LabelExposure.NONE: "Labels: no label, and nothing made from one, is sent down (exposure NONE).",
}
NO_EPSILON = "no epsilon: uploads left without noise and may reveal them"
ONLY_SUM = "no epsilon: only the sum of the uploads can be read, but that left without noise and may reveal them"
REMEDY = 'What to do about it: documentation, page "What is protected".'
SECURE_SUM = "Secure sum: the coordinator reads the sum of the uploads, not one party's."
OWN_NORM = " Here C is the norm of an upload with every number at its bound."
OFF_GRID = (
    "Not covered: the low bits of the noise. An earlier version added it in floating point, and whoever reads the "
    "uploads may tell from those bits whether a party took part, whatever the epsilon says; train again."
)
AT_HOME = " The true labels stayed with their holder, which weighs the parties' scores with them; predictions use that."
GUEST = " {} belongs to the label holder and got the true labels, which did not leave the organisation by that."
LIMITS = "Evaluation, predictions and the choice of settings are not covered."
POOLED = "All columns and labels lie in one place: this is a reference, and there is nobody to protect from anybody."


@dataclass(frozen=True)
class Statement:
    """The promise of a run, from its ledger and its settings."""

    spent: tuple[Spent, ...]  # empty: nobody sent anything in training, or it is not known here
    settings: PrivacySettings
    about: Circumstances
    simulated: bool  # the noise can be drawn again by whoever knows the seed
    unknown: tuple[str, ...] = ()  # mechanisms that no accountant here knows
    off_grid: bool = False  # noise was added in floating point, by an earlier version

    @classmethod
    def of(cls, ledger: Iterable[Entry], settings: PrivacySettings, about: Circumstances) -> Statement:
        """Account for what the parties released."""
        return cls.from_tally(tally(ledger, settings.neighbours), settings, about)

    @classmethod
    def from_tally(cls, tallies: Sequence[Tally], settings: PrivacySettings, about: Circumstances) -> Statement:
        """The same from what a record keeps of the ledger."""
        everyone = 0 if about.deployed else len(tallies)  # between organisations a ledger is one party's
        at_home = tuple(dict.fromkeys(event for t in tallies for event in t.sampled))
        spent = tuple(_spent(t, settings.delta, everyone, at_home) for t in tallies if t.releases or t.bare)
        unknown = tuple(sorted({name for t in tallies for name in t.unknown}))
        seeded = settings.labels.protects and not about.deployed
        off = any(t.off_grid for t in tallies) and not settings.secure_sum.use  # sums always were on a grid
        return cls(spent, settings, about, seeded or any(t.simulated for t in tallies), unknown, off)

    @property
    def worst(self) -> Spent | None:
        """The party that training cost most: the federation's figure. None: nobody released anything in training."""
        passed = [spent for spent in self.spent if spent.releases]
        return max(passed, key=lambda spent: (spent.epsilon, spent.releases), default=None)

    @property
    def elsewhere(self) -> bool:
        """Whether the parties' releases stand in ledgers that are not here."""
        return self.worst is None and (self.about.uploaded or (self.by_row and self.about.deployed))

    @property
    def by_row(self) -> bool:
        """Whether the promise is to every row, by parties that train at home."""
        return self.settings.by_row

    @property
    def epsilon(self) -> float:
        """The federation's figure, exact where it can be; infinite where there is none."""
        if self.about.pooled or self.elsewhere:
            return math.inf
        return self.worst.epsilon if self.worst else 0.0

    @property
    def noised(self) -> bool:
        """Whether uploads of training, or the training itself, were noised, by the settings or by the method."""
        own = bool(self.about.own) or (self.worst is not None and math.isfinite(self.epsilon))
        return self.settings.noised or own

    @property
    def rules_nothing_out(self) -> bool:
        """Whether there is a figure of a size, or with a delta, that promises nothing; or there is none."""
        return bool(of_its_size(self.epsilon, self.settings.delta if self.noised else 0.0))

    @property
    def neighbours(self) -> Neighbours:
        """What the figure tells the party's presence from."""
        return "replaced" if self.counted else self.settings.neighbours

    @property
    def counted(self) -> bool:
        """Whether the figure is that of released counts, which have no exact one."""
        return self.worst is not None and self.worst.counted

    @property
    def accountant(self) -> str:
        """Whose figure it is."""
        return "PLD" if self.by_row else "RDP" if self.counted else "exact"

    def verdict(self) -> str:
        """The promise in one sentence: columns and labels together, since neither is private without the other."""
        if self.about.pooled:
            return POOLED
        noisy_labels = self.about.exposure is LabelExposure.EPS
        if (self.worst or self.elsewhere) and not (self.noised or self.unknown or noisy_labels):
            return " ".join([self._no_noise(), *self.about.of_columns()])
        limits = row_statement.LIMITS if self.by_row else LIMITS
        sums = [] if self.colluders is None else [self.colluders.tolerates()]
        return " ".join([self._columns(), *self.about.of_columns(), *sums, self._labels(), limits])

    def _no_noise(self) -> str:
        what = "sum of the uploads" if self.settings.secure_sum.use else "uploads"
        exposed = self.about.exposure is LabelExposure.FULL
        labels = (
            ", and the replies reveal the training labels to every party"
            if exposed
            else "; the labels stay with their holder"
        )
        return f"No noise was used. The {what} may reveal the parties' columns{labels}. {REMEDY}"

    def lines(self) -> list[str]:
        """The answer to the four questions."""
        if self.about.pooled:
            return [POOLED]
        sums, rest = self._secure_sum(), self._not_covered()
        return [self._columns(), *self.about.of_columns(), self._against(), *sums, self._labels(), *rest]

    def answers(self) -> list[tuple[str, list[str]]]:
        """The four questions, each with its answers."""
        if self.about.pooled:
            return [("Whose privacy", [f"Nobody's. {POOLED}"])]
        return [
            ("Whose privacy", self._whose()),
            ("Against whom", [_bare(self._against()), *self._secure_sum(), self._noise()]),
            ("How much", [self._columns(), *self.about.of_columns(), *self._budget(), self._labels()]),
            ("What is not covered", [*map(_bare, self._not_covered()), self._evaluation()]),
        ]

    # -- the sentences ------------------------------------------------------------------------

    def _whose(self) -> list[str]:
        labels = {
            LabelExposure.EPS: "The label of each training and validation row, as a whole (unit LABEL).",
            LabelExposure.FULL: "Nobody's labels: whoever they are about is not protected from the parties.",
            LabelExposure.NONE: "Labels stay with their holder.",
        }
        return [self._whose_columns(), labels[self.about.exposure]]

    def _whose_columns(self) -> str:
        if self.by_row and not self.unknown:
            return row_statement.WHOSE
        if self.worst is None and not self.elsewhere:
            return "Each party's columns: nothing computed from them was sent in training."
        if self.unknown or (self.settings.protects and math.isinf(self.epsilon) and not self.elsewhere):
            return "Nobody's columns, as far as anybody here can tell: some uploads of training have no bound."
        if not self.noised:
            return f"Nobody's columns ({self._no_epsilon()})."
        return "Each party as a whole (unit PARTY), with all the rows and columns it holds; not single rows or people."

    def _columns(self) -> str:
        worst = self.worst
        if self.elsewhere or (worst is not None and worst.sampled is not None):
            return self._elsewhere_or_at_home(worst)
        if worst is None:
            facts = "epsilon 0, delta 0, unit PARTY, with any neighbours and any accountant, for training only"
            nobody = f"{self.about.only} sent nothing" if self.about.only else "no party sent anything"
            return f"Columns: {nobody} in training ({facts})."
        if self.unknown:
            names = ", ".join(map(repr, self.unknown))
            return f"Columns: no epsilon: uploads passed the mechanism {names}, which no accountant here knows."
        if self.counted:
            return self._counts(worst)
        if math.isinf(worst.exact):
            bare = dict(worst.bare).get("TRAIN")
            return f"Columns: {self._no_epsilon()}." if bare else "Columns: no epsilon: far too little noise."
        return (
            f"Columns: epsilon {worst.exact:.3f} (exact accountant; {worst.rdp:.3f} by the paper's RDP bound), delta "
            f"{self.settings.delta:g}, unit PARTY, {WORLDS[self.settings.neighbours]}; for training only, "
            f"{self._party_of(worst)}."
        ) + (OWN_NORM * worst.bounded + of_its_size(worst.exact, self.settings.delta))

    def _party_of(self, worst: Spent) -> str:
        several = f"the largest of {len(self.spent)} parties, " if len(self.spent) > 1 else ""
        return f"{several}{worst.party} with {worst.releases} releases"

    def _elsewhere_or_at_home(self, worst: Spent | None) -> str:
        if worst is not None and worst.sampled is not None:
            return row_statement.rows_sentence((worst.exact, worst.rdp), worst.sampled, self.settings)
        return row_statement.agreed_sentence(self.settings) if self.by_row else f"Columns: {self._agreed()}"

    def _counts(self, worst: Spent) -> str:
        if self.settings.secure_sum.use:
            seen = f"only sums are seen, colluders that may tell their counts: {self.settings.secure_sum.colluders}"
        else:
            seen = "every party's counts are seen"
        row = ""
        if math.isfinite(worst.row):
            row = f" A row that changes at all parties (unit ROW): epsilon {_large(worst.row)}, as counted above."
        return (
            f"Columns: epsilon {_large(worst.rdp)} (RDP accountant of the Poisson binomial mechanism, {seen}), delta "
            f"{self.settings.delta:g}, unit PARTY, compared with the same run with any other data of this party "
            f"(neighbours: replaced, which bounds absent too); for training only, {self._party_of(worst)}.{row}"
            + of_its_size(worst.rdp, self.settings.delta)
        )

    def _no_epsilon(self) -> str:
        return ONLY_SUM if self.settings.secure_sum.use else NO_EPSILON

    def _agreed(self) -> str:
        if self.about.own:
            return f"uploads passed the method's own noise ({self.about.own}); each party's own ledger has its figure."
        if not self.settings.protects:
            return f"{self._no_epsilon()}; each party's own ledger lists its uploads."
        budget = self._limit()
        limit = f"a budget of {budget} for training" if budget else "Gaussian noise without a budget"
        return f"each party counts its releases in a ledger of its own, which is not here; the run agreed on {limit}."

    def _budget(self) -> list[str]:
        budget = self._limit()
        return [f"Budget of each party for training: {budget}."] if budget and not self.elsewhere else []

    def _limit(self) -> Budget | None:
        s = self.settings
        return None if s.epsilon is None or self.by_row else Budget(s.epsilon, s.delta, s.neighbours)

    def _against(self) -> str:
        who = "Against whom: the coordinator and the other parties, by what they were sent in training."
        return (row_statement.AGAINST if self.by_row else who) + (
            " This is a simulation: whoever knows its seed can take the noise away." * self.simulated
        )

    @property
    def colluders(self) -> Colluders | None:
        """Who may collude with the label holder; None: uploads are read one by one."""
        s, about = self.settings.secure_sum, self.about
        return Colluders(about.parties, s.colluders, about.of_label_holder, self.noised) if s.use else None

    def _one_more(self, colluders: Colluders) -> float:
        """The figure if one party more than provided for colludes; infinite: there is none, or nobody knows."""
        known = self.worst is not None and self.noised and colluders.parties
        return colluders.one_more(self.worst.shift, self.settings.delta) if self.worst and known else math.inf

    def _secure_sum(self) -> list[str]:
        colluders = self.colluders
        if colluders is None:
            return []
        counted = self.about.own and not self.counted and not self.settings.protects
        if not self.noised:
            noise = " There is no noise in the sum."
        elif counted:
            noise = f" The method's own noise ({self.about.own}) is in every party's part of it."
        else:
            noise = "" if self.counted else " The parties share the noise."
        more = self._one_more(colluders)
        facts = f"exact accountant, delta {self.settings.delta:g}, unit PARTY, neighbours: {self.neighbours}"
        one = f" With one more it would be epsilon {more:.3f} ({facts})." if math.isfinite(more) else ""
        return [f"{SECURE_SUM}{noise}{colluders.used_up()} {colluders.tolerates()}{one}"]

    def _noise(self) -> str:
        if not self.noised and not self.settings.labels.protects and not self.simulated:
            return "Noise: none was drawn."
        if self.simulated:
            return "Noise: drawn from the run's seed, so that the simulation can be repeated."
        return "Noise: keyed by the operating system, and nobody can draw it again."

    def _labels(self) -> str:
        if self.about.exposure is LabelExposure.EPS:
            unit = "unit LABEL (neighbours: one row's whole label replaced"
            facts = f"delta 0, {unit}; noise drawn once, so no accountant is needed)"
            guest = self.about.guest
            whom = f"all parties but {guest}" if guest else "the parties"
            told = f"Labels: epsilon {self.settings.labels.epsilon:g}, {facts}, against {whom} (exposure EPS)."
            told += AT_HOME * self.about.fits_at_home + (GUEST.format(guest) if guest else "")
            return told + row_statement.BOTH * self.by_row
        return LABELS[self.about.exposure]

    def _evaluation(self) -> str:
        if self.by_row:
            return row_statement.OUTSIDE
        if not self.settings.protects:
            return "Evaluation: what parties send about validation and test rows leaves as it is."
        if self.settings.evaluation == "simulated":
            return (
                "Evaluation (policy: simulated): what parties send about validation and test rows is un-noised and "
                "un-counted; that is for benchmarks, and never leaves the process."
            )
        return "Evaluation (policy: none): nothing leaves for evaluation on validation or test rows."

    def _not_covered(self) -> list[str]:
        bare = ", ".join(f"{count} releases for {purpose}" for purpose, count in self._uncovered().items())
        told = [f"Not covered: {bare}, which left without noise."] if bare else []
        if self.by_row:
            return [*told, row_statement.NOT_COVERED]
        rest = "a party's own network, should it be given away; predictions; columns that another party holds too"
        if self.off_grid:
            told.append(OFF_GRID)
        return [*told, f"Not covered: {rest}; choosing settings."]

    def _uncovered(self) -> dict[str, int]:
        """Purposes other than training, with the releases that left without noise."""
        found: dict[str, int] = {}
        for purpose, number in sorted(item for spent in self.spent for item in spent.bare):
            if purpose != "TRAIN":
                found[purpose] = found.get(purpose, 0) + number
        return found

    def to_json(self) -> Promise:
        """Plain values; no epsilon without what belongs to it."""
        worst = self.worst
        rdp = (worst.rdp if worst else 0.0) if math.isfinite(self.epsilon) else math.inf
        return {
            "unit": "ROW" if self.by_row else "PARTY",
            "neighbours": self.neighbours,
            "delta": self.settings.delta,
            "accountant": self.accountant,
            "epsilon": _number(self.epsilon),
            "epsilon_rdp": _number(rdp),
            "epsilon_row": _number(worst.row if worst else math.inf),
            "parties": {s.party: _figures(s) for s in self.spent if s.releases},
            "label_exposure": self.about.exposure.value,
            "label_epsilon": self.settings.labels.epsilon,
            "label_unit": "LABEL",
            "label_delta": 0.0,
            "label_guest": self.about.guest or None,
            "columns_shown": dict([self.about.shown]) if self.about.shown[1] else {},
            "colluders": self.colluders.tolerated if self.colluders else None,
            "colluders_used_up": list(self.colluders.own) if self.colluders else [],
            "epsilon_one_more": _number(self._one_more(self.colluders)) if self.colluders else None,
            "simulated": self.simulated,
            "evaluation": self.settings.evaluation if self.settings.protects else "unprotected",
            "training_at_home": dict(worst.sampled.parameters) if worst and worst.sampled else {},
            "uncovered": self._uncovered(),
            "not_covered": self._not_covered(),
        }


def _bare(sentence: str) -> str:
    """A sentence without the question it begins with, for places that have the question above it."""
    _, _, rest = sentence.partition(": ")
    return rest[0].upper() + rest[1:]


def _number(epsilon: float) -> float | None:
    """JSON has no infinity: none at all."""
    return epsilon if math.isfinite(epsilon) else None


def _figures(spent: Spent) -> Figures:
    return {"releases": spent.releases, "epsilon": _number(spent.epsilon), "epsilon_rdp": _number(spent.rdp)}


def _large(epsilon: float) -> str:
    return f"{epsilon:.3f}" if epsilon < 1e4 else f"{epsilon:.2e}"


def _spent(t: Tally, delta: float, parties: int, at_home: tuple[SampledGaussianEvent, ...]) -> Spent:
    if t.sampled:
        figures = sampled_epsilon(at_home, delta), sampled_rdp(at_home, delta)
        return Spent(t.party, t.releases, *figures, t.bare, sampled=t.sampled[0])
    if t.counts:
        row = counted_epsilon([c.everywhere(parties) for c in t.counts], delta) if parties else math.inf
        return Spent(t.party, t.releases, math.inf, counted_epsilon(t.counts, delta), t.bare, True, row)
    exact, rdp = exact_epsilon(t.shift, delta), rdp_epsilon(t.shift, delta)
    return Spent(t.party, t.releases, exact, rdp, t.bare, bounded=t.bounded, shift=t.shift)
