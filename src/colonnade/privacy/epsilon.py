"""An epsilon with everything that belongs to it: it is never a bare number."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from colonnade.privacy.events import LabelExposure
from colonnade.privacy.statement import Statement


@dataclass(frozen=True)
class Epsilon:
    """What was spent of whose privacy. `float()` gives the value alone, `str()` says all of it."""

    value: float  # infinite: there is no bound, and `told` says why
    delta: float
    unit: str  # whose data it is about: PARTY, with all rows and columns; ROW, at all parties; or LABEL, of one row
    neighbours: str  # what the attacker cannot tell it from
    accountant: str
    covers: str
    not_covered: tuple[str, ...] = field(repr=False)
    told: str = field(repr=False)

    def __float__(self) -> float:
        return self.value

    def __str__(self) -> str:
        return self.told

    @property
    def bounded(self) -> bool:
        """Whether there is a bound at all."""
        return math.isfinite(self.value)


def of_columns(statement: Statement) -> Epsilon | None:
    """What training cost the party that it cost most; None: no upload was noised."""
    if statement.about.pooled or not (statement.noised or statement.unknown):
        return None
    lines, facts = statement.lines(), statement.to_json()
    covers = "everything computed from the parties' models" if statement.by_row else "what the parties sent in training"
    return Epsilon(
        math.inf if statement.unknown else statement.epsilon,
        facts["delta"],
        facts["unit"],
        facts["neighbours"],
        facts["accountant"],
        covers,
        (_labels(statement), *facts["not_covered"]),
        " ".join(lines),
    )


def of_labels(statement: Statement) -> Epsilon | None:
    """What the replies tell the parties about one row's label; None: labels were not noised, or none went down."""
    value = statement.settings.labels.epsilon
    if statement.about.exposure is not LabelExposure.EPS or value is None:
        return None
    return Epsilon(
        value,
        0.0,
        "LABEL",
        "replaced",
        "none needed: the noise is drawn once",
        "the labels of training and validation rows, against the parties",
        ("the parties' columns", "predictions", "the choice of settings"),
        _labels(statement),
    )


def _labels(statement: Statement) -> str:
    return next(line for line in statement.lines() if line.startswith("Labels: "))
