"""The finished run of separate organisations whose parts a new one takes over, as a proposal and a record name it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from colonnade.deploy.decision import now
from colonnade.deploy.invitation import RUN
from colonnade.engines.taken_over import TakenOver
from colonnade.errors import WireError
from colonnade.record import About, Joined, Regrouped


@dataclass(frozen=True)
class Former:
    """What a proposal says of the run whose parts it takes over."""

    run: str
    proposal: str  # digest of what everybody agreed on then
    parties: tuple[str, ...]

    def to_json(self) -> dict[str, object]:
        """Plain values."""
        return {"run": self.run, "proposal": self.proposal, "parties": list(self.parties)}

    @classmethod
    def from_json(cls, told: object) -> Former:
        """The inverse of `to_json`; what it is not is refused."""
        if not isinstance(told, Mapping):
            raise WireError("the proposal does not say as it must whose parts it takes over")
        run, proposal, parties = told.get("run"), told.get("proposal"), told.get("parties")
        named = isinstance(parties, list) and bool(parties) and all(isinstance(name, str) for name in parties)
        if not (isinstance(run, str) and RUN.fullmatch(run) and isinstance(proposal, str) and named):
            raise WireError("the proposal does not say as it must whose parts it takes over")
        return cls(run, proposal, tuple(parties or ()))


@dataclass(frozen=True)
class TakenRun:
    """A former run, and what the label holder kept of it."""

    former: Former
    over: TakenOver
    about: About  # the facts of the former run

    def noted(self, parties: Sequence[str], labels: str, rows: int) -> Mapping[str, Any]:
        """Who joined and who left, by their keys in the record; after those of the former run."""
        was, when = self.former.parties, now()
        stayed = [name for name in parties if name in was]
        gone = [Regrouped(party=p, when=when, run=self.former.run, present=stayed) for p in was if p not in parties]
        new = [
            Joined(party=p, when=when, run=self.former.run, present=stayed, labels=labels, rows=rows)
            for p in parties
            if p not in was
        ]
        told = {"joined": [*self.about.get("joined", []), *new], "left": [*self.about.get("left", []), *gone]}
        return {key: found for key, found in told.items() if found}
