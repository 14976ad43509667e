"""Is it worth joining? Scores alone, together and in one place, as a verdict in plain words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

DEVIATIONS = 2  # a difference of fewer standard errors may be chance


@dataclass(frozen=True)
class Standing:
    """Shares of the same test rows that are decided right: alone, together, and with all columns in one place."""

    rows: int  # test rows
    alone: Mapping[str, float]  # by party
    best: str  # the party to compare with: chosen by its validation score, never by the test rows
    together: float
    one_place: float

    @property
    def gain(self) -> float:
        """What joining adds to the best party's score."""
        return self.together - self.alone[self.best]

    @property
    def price(self) -> float:
        """What all columns in one place would add to the joint score."""
        return self.one_place - self.together

    def proves(self, one: float, other: float) -> bool:
        """Whether so many rows tell two scores apart.

        Two standard errors of the difference of two independent shares. Both models decide the same rows, which
        makes the true error smaller: this errs on the side of "may be chance".
        """
        error = math.sqrt((one * (1 - one) + other * (1 - other)) / self.rows)
        return abs(one - other) > DEVIATIONS * error


def verdict(found: Standing) -> list[str]:
    """Three sentences: the scores, what joining is worth, what keeping the columns apart costs."""
    alone = found.alone[found.best]
    scores = (
        f"Best party alone {_share(alone)}, all {len(found.alone)} together {_share(found.together)}, "
        f"all columns in one place {_share(found.one_place)} of {found.rows:,} test rows right."
    )
    return [scores, _worth(found, alone), _costs(found)]


def _worth(found: Standing, alone: float) -> str:
    rows = round(abs(found.gain) * found.rows)
    if not found.proves(found.together, alone):
        return f"Joining shows no gain: a difference of {rows:,} of {found.rows:,} test rows may be chance."
    if found.gain < 0:
        return f"Joining is NOT worth it here: together {_points(found.gain)} worse than the best party alone."
    return f"Joining is worth {_points(found.gain)}: {rows:,} more of {found.rows:,} test rows are right."


def _costs(found: Standing) -> str:
    if not found.proves(found.together, found.one_place):
        return f"Keeping the columns apart costs nothing that {found.rows:,} test rows could show."
    if found.price < 0:
        return f"The joint model is even {_points(found.price)} better than one model over all columns in one place."
    return f"Keeping the columns apart costs {_points(found.price)} against all columns in one place."


def _share(value: float) -> str:
    return f"{100 * value:.1f} %"


def _points(value: float) -> str:
    return f"{100 * abs(value):.1f} percentage points"
