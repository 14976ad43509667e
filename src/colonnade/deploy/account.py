"""What of one party's run stands in its organisation's table ledger, and what may leave by that."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

from colonnade.deploy.agreement import Proposal
from colonnade.deploy.table_ledger import OLD_LEDGER, Sent, TableLedger, old_store
from colonnade.errors import RunError
from colonnade.privacy.registry import kind_of
from colonnade.privacy.sealed import Release
from colonnade.privacy.together import Cost


class Account:
    """The messages of one run, as its organisation's file knows them.

    Under noise or masks every message is entered: a second one under its number would cost what nobody counts, or tell
    the difference to the first. Elsewhere the first is, which shows that the run cost something, and predictions are.
    """

    def __init__(self, ledger: TableLedger, proposal: Proposal, noted: Callable[[], None]) -> None:
        self._noted = noted
        self._ledger, self._proposal = ledger, proposal.digest
        self._last = ledger.sent(self._proposal)
        self._every = proposal.privacy().secure_sum.use or not kind_of(proposal.body["mechanism"]).bare

    @property
    def last(self) -> int:
        """The number of the last message that was entered; 0: none was."""
        return 0 if self._last is None else self._last.number

    def check(self, number: int, known: int, asked: int) -> None:
        """Refuse to answer with a store or a ledger that is an old copy.

        Args:
            number: the last request that the party's store knows.
            known: the last message that it knows to be entered here.
            asked: the request that is to be answered.

        Raises:
            RunError: with what is old, and what to do.
        """
        if self.last > max(number, 0):
            raise RunError(old_store(self._ledger.path, self.last, asked))
        if self.last < known:
            raise RunError(f"{self._ledger.path} does not know the last messages of this run; {OLD_LEDGER}")

    def leave(self, number: int, releases: Sequence[Release], table: str, predicted: Sequence[str]) -> None:
        """Enter a message that is about to leave; the same one again changes nothing.

        Raises:
            RunError: another one has left under its number or a later one.
        """
        if not releases or not (self._every or predicted or self._last is None):
            return
        digest = hashlib.sha256("".join(release.digest for release in releases).encode()).hexdigest()
        if self._last == Sent(number, digest):
            return
        self._ledger.send(self._proposal, Sent(number, digest), table, predicted)
        self._last = Sent(number, digest)

    def end(self, costs: Sequence[Cost]) -> None:
        """Training is over, and this is what it cost."""
        self._ledger.end(self._proposal, costs)
        self._noted()
