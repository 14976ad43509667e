"""What a run promises, as plain values: what `colonnade privacy explain --json` prints; and what it depends on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

from colonnade.privacy.accounting import Neighbours
from colonnade.privacy.events import LabelExposure
from colonnade.record import Difference

TAKEN_OVER = (
    "Parts of the run {!r} are taken over: what its parties sent in training is not sent again, is used here, and "
    "stands in the ledgers of that run."
)
SHOWN = (
    "{0} is named as the label holder's own party and sends it {1}, without noise: they stay in one organisation if it "
    "is one. No other party's columns are sent."
)
TOLD = (
    "{0} is named as the label holder's own party and sends it {1}, without noise, of every row that trains, is "
    "evaluated or predicted; of the training rows the replies tell them to all parties. No other party's columns are "
    "sent."
)


class Figures(TypedDict):
    """What training cost one party, for machines; no figure is None."""

    releases: int
    epsilon: float | None
    epsilon_rdp: float | None


class Promise(TypedDict):
    """A statement for machines: no epsilon without what belongs to it."""

    unit: str
    neighbours: Neighbours
    delta: float
    accountant: str
    epsilon: float | None
    epsilon_rdp: float | None
    epsilon_row: float | None  # unit ROW, replaced at all parties; RDP
    parties: dict[str, Figures]
    label_exposure: str
    label_epsilon: float | None
    label_unit: str
    label_delta: float
    label_guest: str | None  # the party that the label epsilon does not hold against: the label holder's own
    columns_shown: dict[str, str]  # by party, what of its columns its uploads have: the label holder's own party's
    colluders: int | None  # of a secure sum, that may tell what they know of it besides those used up; None: no sum
    colluders_used_up: list[str]  # parties of the label holder, which knows what they add
    epsilon_one_more: float | None  # if one party more than these colludes
    simulated: bool
    evaluation: str
    training_at_home: dict[str, float]  # unit ROW: rate, clip, sigma, steps of each party, parties; else empty
    uncovered: dict[str, int]
    not_covered: list[str]


class UploadGain(TypedDict):
    """What the uploads of a training added to the score on its test rows: `result.uploads` of a record."""

    metric: str
    rows: int  # test rows
    seeds: list[int]  # scores are means over them
    noise: bool  # whether uploads had any: it was kept; without it zeros were sent
    evaluated: bool  # whether the run measured its test rows itself
    score: float | None  # of the run
    removed: float | None  # of the same training with the signal of its uploads removed
    local_only: float | None
    gain: Difference | None  # the run minus itself without the signal
    over_local: Difference | None  # the run minus local_only
    notes: list[str]  # why something was not trained


@dataclass(frozen=True)
class Circumstances:
    """What of a run matters to its promise, besides the ledger."""

    exposure: LabelExposure
    uploaded: bool = False  # parties uploaded something in training, whether or not this ledger has it
    deployed: bool = False  # separate organisations: each party's ledger is at the party
    pooled: bool = False  # a reference that has all columns in one place
    own: str = ""  # the mechanism that the method brings itself
    fits_at_home: bool = False  # the label holder fits something with its true labels, which stays with it
    guest: str = ""  # the label holder's own party, which gets the true labels; empty: there is none
    shown: tuple[str, str] = ("", "")  # the party that shows the label holder something of its columns, and what
    told: bool = False  # which is passed on to every party
    parties: int = 0  # how many there are; 0: not known
    label_holders: tuple[str, ...] = ()  # parties of the label holder's organisation, where somebody said so
    former: str = ""  # a run of separate organisations whose parts it takes over; empty: there is none
    only: str = ""  # the one party whose ledger it is; empty: that of a whole run

    @property
    def of_label_holder(self) -> tuple[str, ...]:
        """Parties of the label holder's organisation: those, and the guest of the method."""
        return tuple(sorted({*self.label_holders, *([self.guest] if self.guest else ())}))

    def of_columns(self) -> list[str]:
        """What is said of columns that are shown, and of what left in a former run; nothing, where there is neither."""
        shown = [(TOLD if self.told else SHOWN).format(*self.shown)] if self.shown[1] else []
        return shown + ([TAKEN_OVER.format(self.former)] if self.former else [])
