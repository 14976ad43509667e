"""What an attack found, and all findings as one table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from colonnade.audit.checks import FALSE_ALARM


@dataclass(frozen=True)
class Finding:
    """One attack: how well it did, and how well a guess would have done that looks at no message."""

    attack: str
    score: float
    chance: float
    rows: int  # how many rows (or games) the score was measured on
    what_it_means: str
    measure: str = "accuracy"  # or "R2", "AUC"
    attacker: str = ""  # who can do this: "any party", "the coordinator", ...
    ceiling: float | None = None  # that no attacker can pass in the long run, if the ledger is right
    p: float | None = None  # at most how likely an attacker at the ceiling is to do so well

    @property
    def advantage(self) -> float:
        """The way from a guess to certainty (1.0) that the attack made; negative where it did worse."""
        return (self.score - self.chance) / max(1 - self.chance, 1e-12)

    @property
    def too_good(self) -> str:
        """What it means, if it did better than the ledger allows anybody; empty: it did not."""
        if self.ceiling is None or self.p is None or self.p >= FALSE_ALARM:
            return ""
        return f"{self.measure} {self.score:.3f} is ABOVE {self.ceiling:.3f}, which the ledger allows at most"

    @property
    def is_game(self) -> bool:
        """Whether it was measured on games, not on rows."""
        return self.attack.startswith("membership of a party")


HEADINGS = ("attack", "who", "measure", "score", "chance", "rows", "what it means")


def table(findings: Sequence[Finding]) -> list[tuple[str, ...]]:
    """The findings as rows of text under `HEADINGS`, in the order given."""
    return [
        (f.attack, f.attacker, f.measure, f"{f.score:.3f}", f"{f.chance:.3f}", str(f.rows), f.what_it_means)
        for f in findings
    ]
