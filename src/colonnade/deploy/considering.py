"""What a party answers to a proposal: it joins, it refuses, or it waits for a person to approve."""

from __future__ import annotations

from pathlib import Path

from colonnade.deploy.agreement import PROPOSED, Proposal
from colonnade.deploy.approval import PENDING, check_decision, in_short, note, why_a_person
from colonnade.deploy.decision import decided
from colonnade.deploy.membership import Membership
from colonnade.engines.message import Notify
from colonnade.errors import ColonnadeError
from colonnade.wire.notice import Notice


class Considering:
    """The proposals of one run. The coordinator makes one again and again until it is answered."""

    def __init__(self, folder: Path, member: Membership, notify: Notify) -> None:
        self._folder, self._member, self._notify = folder, member, notify
        self._waits = ""  # digest of the proposal that waits for a person

    def answer(self, notice: Notice) -> Notice:
        """The consent, or that a person has to decide.

        Raises:
            ColonnadeError: why this party does not join.
        """
        member, proposal, decision = self._member, self._member.read(notice), None
        try:
            decision = decided(self._folder, proposal.digest, member.credentials)
            if self._waits == proposal.digest and decision is None:
                return self._pending()
            self._notify("proposal", digest=proposal.digest[:12], **in_short(proposal))
            consent = member.consider(proposal)
            check_decision(decision)
        except ColonnadeError as error:
            if member.agreement is None:
                note(self._folder, proposal, member.me, "refused", str(error), decision)
            raise
        if member.agreement is None and decision is None and (why := why_a_person(member.setup.policy, member.cost)):
            return self._ask_a_person(proposal, why)
        self._waits = ""
        note(self._folder, proposal, member.me, "joined", decision=decision)
        self._notify("joined", digest=proposal.digest[:12])
        return consent

    def _ask_a_person(self, proposal: Proposal, why: str) -> Notice:
        """Keep the proposal for whoever decides; the coordinator is told to wait."""
        run, self._waits = self._member.run, proposal.digest
        note(self._folder, proposal, self._member.me, "waits for approval", why)
        told = f"see colonnade runs, then colonnade approve {run}, or colonnade refuse {run}"
        self._notify("approval needed", digest=proposal.digest[:12], reason=why, note=told)
        return self._pending()

    def _pending(self) -> Notice:
        return Notice(self._member.run, PROPOSED, PENDING, self._member.me, {})
