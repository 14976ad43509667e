"""Which row numbers a party may be asked about: those that its run began with, and those of extensions of them.

A request that names no alignment is about the rows that the run began with. One that names an extension of them may
ask for predictions only. The party knows an extension from its own alignment folder, and from nowhere else.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from colonnade.deploy.party_setup import Columns, PartySetup
from colonnade.errors import Refused
from colonnade.wire.messages import Purpose, Request


@dataclass
class OpenRows:
    """The rows of one run at one party."""

    began: str = ""  # digest of the alignment that the run began with
    own: int = 0  # rows that the party has columns of since then
    further: dict[str, int] = field(default_factory=dict)  # rows of alignments that were read since, by digest
    doubts: int = 0  # warnings about those rows

    def extend(self, request: Request, setup: PartySetup, columns: Columns) -> tuple[PartySetup, Columns] | None:
        """Read the alignment and the table again, if a request names an alignment that is not known yet.

        Raises:
            Refused: it is none that this party's alignment extends, or it extends none that the run began with.
        """
        named = request.alignment
        if not named or named == self.began or named in self.further:
            return None
        if setup.further is None:
            raise Refused(f"the request is about rows of the alignment {named[:12]}, which this party does not know")
        found = setup.further(self.began, named, replace(columns, values=columns.values[: self.own]))
        self.further |= found.alignments
        self.doubts = found.doubts
        return replace(setup, ids=found.ids), found.columns

    def count(self, request: Request) -> int:
        """Row numbers below this may be asked about."""
        named = request.alignment
        if not named or named == self.began:
            return self.own
        if any(query.purpose not in (Purpose.PREDICT, Purpose.EXPLAIN) for query in request.queries):
            raise Refused("rows of an extended alignment can be predicted; the run agreed on nothing else about them")
        return self.further[named]
