"""Colluders of a secure sum: how many parties may tell what they added, and who is known to.

The label holder knows what its own parties add, whatever they say: each of them is one of the colluders that the noise
was made for. So with `colluders = 1` and one party of its own, nobody else may collude.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from colonnade.privacy.accounting import exact_epsilon


@dataclass(frozen=True)
class Colluders:
    """Who may collude with the label holder."""

    parties: int  # M; 0: not known
    provided: int  # c, for which the parties' shares of the noise were made
    own: tuple[str, ...] = ()  # parties of the label holder's organisation
    noised: bool = True

    @property
    def tolerated(self) -> int | None:
        """How many others may collude; None: it is not known how many there are.

        With noise: as many as it was made for. Without: as long as the sum of what two others add hides each of them.
        """
        most = self.provided if self.noised else self.parties - 2
        return max(most - len(self.own), 0) if self.noised or self.parties else None

    def one_more(self, shift: float, delta: float) -> float:
        """The exact epsilon if one party more than `provided` colludes; infinite: there is none left.

        `shift` is mu with the noise of M - c shares; then it is that of one share less.
        """
        left = self.parties - self.provided
        if left < 2 or not math.isfinite(shift):
            return math.inf
        return exact_epsilon(shift * math.sqrt(left / (left - 1)), delta)

    def used_up(self) -> str:
        """What is said of the label holder's own parties; empty: it has none."""
        if not self.own:
            return ""
        one = len(self.own) == 1
        belong = "belongs to the label holder, which knows what it adds"
        if not one:
            belong = "belong to the label holder, which knows what they add"
        told = f" {' and '.join(self.own)} {belong}"
        if self.noised:
            return f"{told}: {len(self.own)} of {self.provided} colluders {'is' if one else 'are'} used up by that."
        return f"{told}."

    def tolerates(self) -> str:
        """How many more may collude, in words."""
        if self.tolerated is None:
            return "It hides single uploads from the label holder while at least two parties do not collude with it."
        more = "more " if self.own else ""
        count = f"{self.tolerated or 'no'} {more}colluder{'s' * (self.tolerated != 1)}"
        what = "The figure" if self.noised else "What hides single uploads"
        return f"{what} tolerates {count}: parties that tell the label holder what they know of the sum."


def in_short(colluders: Colluders) -> str:
    """For a line among others."""
    beside = f" besides {' and '.join(colluders.own)} of the label holder" if colluders.own else ""
    known = colluders.tolerated
    return "secure sum" if known is None else f"secure sum, tolerates {known} colluders{beside}"
