"""What a run promises to every row (unit ROW), in words: parties that trained at home with noise."""

from __future__ import annotations

from colonnade.privacy.accounting import of_its_size
from colonnade.privacy.sampled import SampledGaussianEvent
from colonnade.privacy.settings import PrivacySettings

WHOSE = (
    "Each training row (unit ROW): all that all parties hold about one person or thing, columns and label. Not rows "
    "that validate, test or are predicted."
)
UNIT = (
    "unit ROW, compared with the same run without that row, its columns at all parties and its label (neighbours: "
    "absent, a row added or removed)"
)
AGAINST = (
    "Against whom: whoever reads what the parties' models say, or gets the models themselves. Against a party, which "
    "has the labels, it is about the columns at the others."
)
OUTSIDE = (
    "Evaluation: what parties send about validation and test rows leaves as it is. Weights per party, thresholds and "
    "the kept round are fitted on validation rows: those are outside the promise."
)
NOT_COVERED = (
    "Not covered: validation and test rows, rows that are predicted, and what is fitted on validation rows (weights "
    "per party, thresholds, the kept round); labels that are sent down; which rows the parties share; how columns "
    "become numbers, where scales, medians or categories are taken from the training rows; other runs on the same "
    "rows; choosing settings."
)
LIMITS = (
    "Labels that are sent down, validation, test and predicted rows, scales of columns and other runs are not covered."
)
BOTH = " A reader of both these labels and the models learns from both: the two guarantees compose."


def rows_sentence(figures: tuple[float, float], event: SampledGaussianEvent, settings: PrivacySettings) -> str:
    """What training cost a row that is at all parties, by PLD and by RDP."""
    pld, rdp = figures
    told = (
        f"Rows: epsilon {pld:.3f} (PLD accountant; {rdp:.3f} by RDP), delta {settings.delta:g}, {UNIT}; for everything "
        f"that is computed from the models. {event.at_parties} parties, {event.steps:,} steps each at most, every step "
        f"draws a row with probability {event.rate:.3g}; noise sigma {event.sigma:.4g}, clip {event.clip:g}."
    )
    return told + of_its_size(pld, settings.delta)


def agreed_sentence(settings: PrivacySettings) -> str:
    """The same where the parties' ledgers are not here."""
    return f"Rows: each party's own ledger has its training; the run agreed on {settings.in_words().partition(';')[0]}."
