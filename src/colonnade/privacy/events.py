"""What was released, as frozen facts. An accountant bounds it; these records do not."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from colonnade.wire.messages import Purpose

GAUSSIAN, SUM, SUM_WITH_NOISE = "gaussian", "sum", "gaussian sum"  # mechanisms, as the ledger names them
BOUNDED = "bounded gaussian"  # every number bounded, then noise: no norm is clipped
COUNTS, SUM_OF_COUNTS = "poisson binomial", "poisson binomial sum"
NOISED = frozenset({GAUSSIAN, SUM_WITH_NOISE, BOUNDED})  # Gaussian: accounted for by `precision`
COUNTED = frozenset({COUNTS, SUM_OF_COUNTS})  # accounted for in pbm.py
BARE = frozenset({"none", SUM})  # nothing bounds what the reader learns


def off_grid(mechanism: str, parameters: tuple[tuple[str, float], ...]) -> bool:
    """Whether noise was added in floating point, as before grids: its low bits may tell more than its epsilon."""
    return mechanism in (GAUSSIAN, BOUNDED) and "grid" not in dict(parameters)


class Unit(str, Enum):
    """The thing whose presence a mechanism would hide."""

    PARTY = "PARTY"  # all that one party holds
    ROW = "ROW"
    LABEL = "LABEL"


class LabelExposure(str, Enum):
    """Who can read labels off the downlink of a method."""

    NONE = "NONE"
    EPS = "EPS"  # bounded by a label mechanism
    FULL = "FULL"


@dataclass(frozen=True, slots=True)
class Release:
    """One message that left its owner."""

    owner: str  # whose information it carries
    audience: str  # who receives it
    unit: Unit
    mechanism: str  # "none": released unchanged
    purpose: Purpose
    number: int  # the exchange it belongs to
    rows: int  # how many rows it speaks about
    digest: str  # SHA-256 of the payload
    parameters: tuple[tuple[str, float], ...] = ()  # of the mechanism

    @property
    def precision(self) -> float:
        """1/sigma^2 of a Gaussian release; sigma is the noise in units of the largest norm that the upload may have."""
        facts = dict(self.parameters)
        if self.mechanism == BOUNDED:  # the norm of an upload whose numbers are all at the bound
            return self.rows * facts["width"] * (facts["bound"] / facts["deviation"]) ** 2
        return facts["sigma"] ** -2

    def to_json(self) -> dict[str, Any]:
        """Plain values, for a JSON line."""
        values = {name: getattr(self, name) for name in self.__slots__}  # `asdict` takes ten times as long
        return {**values, "unit": self.unit.value, "purpose": self.purpose.value}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Release:
        """The inverse of `to_json`."""
        return cls(
            **{
                **values,
                "unit": Unit(values["unit"]),
                "purpose": Purpose(values["purpose"]),
                "parameters": tuple((str(k), float(v)) for k, v in values["parameters"]),
            }
        )
