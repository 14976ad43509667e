"""What one check of an audit found, and how rarely it accuses code that is correct.

Every check that leaves something to chance says so by a p-value: at most how likely correct code is to look as bad as
this. It fails below `FALSE_ALARM`. Where a check is made of several tests, their smallest p-value is multiplied by
their number (Bonferroni), which holds however they depend on each other.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from colonnade.extras import need

FALSE_ALARM = 1e-4  # chance that one check accuses correct code, at most
BOUND = "lower bound on epsilon"  # the check that a claim of epsilon is about


@dataclass(frozen=True)
class Check:
    """One check: what was looked at, what came out, what it means."""

    name: str
    means: str  # a sentence
    found: str = "-"
    against: str = ""
    p: float | None = None  # at most how likely correct code is to show this much; None: chance has no part in it
    failed: bool = False
    tried: bool = True  # false: `means` says why not
    facts: Mapping[str, object] = field(default_factory=dict)  # figures, for machines

    def to_json(self) -> dict[str, object]:
        """Plain values."""
        return {**vars(self), "facts": dict(self.facts)}


def not_tried(name: str, why: str) -> Check:
    """A check that could not be made, by name and with the reason."""
    return Check(name, why, tried=False)


def together(tests: Iterable[float]) -> float:
    """One p-value for several tests."""
    found = [1.0 if math.isnan(p) else p for p in tests]
    return min(1.0, len(found) * min(found)) if found else 1.0


def judged(name: str, tests: Iterable[float], wrong: str, right: str, **facts: object) -> Check:
    """A check by p-values: `wrong` is what it means if it fails, `right` if it does not."""
    p = together(tests)
    failed = p < FALSE_ALARM
    return Check(name, wrong if failed else right, _words(p), f"fails below {FALSE_ALARM:g}", p, failed, facts=facts)


def _words(p: float) -> str:
    return "p < 1e-12" if p < 1e-12 else f"p {p:.2g}"


def scipy(part: str) -> Any:
    """A part of SciPy, which the extra brings."""
    return need(f"scipy.{part}", extra="privacy", purpose="The audit")


def two_sided(successes: int, trials: int, chance: float = 0.5) -> float:
    """The p-value of a binomial count that is too small or too large."""
    binomial = scipy("stats").binom
    low, high = binomial.cdf(successes, trials, chance), binomial.sf(successes - 1, trials, chance)
    return min(1.0, 2 * float(min(low, high)))
