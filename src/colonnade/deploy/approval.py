"""Approval: where the policy asks for a person, a proposal waits for one; what the person decides is signed and kept.

    proposal.json            the last proposal as it came, signed by the coordinator, and what became of it
    decision-<digest>.json   approved or refused, when, and why; signed with the party's key

Both lie in the folder of the run. The process reads a decision when the proposal is made again, every few seconds; a
decision about one proposal says nothing about another, and one that this party's key did not sign counts for nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal

from colonnade.deploy.agreement import Proposal
from colonnade.deploy.policy import Policy
from colonnade.errors import IdentityError, Refused, RunError, Unwritable
from colonnade.identity.credentials import Credentials
from colonnade.methods._guest import shown_by
from colonnade.privacy.together import NOT_COVERED, Together
from colonnade.wire.messages import Purpose
from colonnade.wire.notice import canonical

PENDING = "PENDING"  # what a party answers to a proposal meanwhile
PROPOSAL = "proposal.json"
WAITS, REFUSED, JOINED = "waits for approval", "refused", "joined"
State = Literal["waits for approval", "refused", "joined"]
MOST_WORDS = 300  # letters of a reason


@dataclass(frozen=True)
class Decision:
    """What a person decided about one proposal."""

    run: str
    proposal: str  # its digest
    approved: bool
    because: str = ""
    time: str = ""

    def body(self, party: str) -> dict[str, object]:
        """What is signed."""
        facts = {"run": self.run, "proposal": self.proposal, "approved": self.approved, "because": self.because}
        return {"what": "DECISION", "party": party, **facts, "time": self.time}


def why_a_person(policy: Policy, cost: Together | None) -> str:
    """Why a run waits for a person; empty: it does not.

    Args:
        policy: the operator's.
        cost: what this party has computed that training would cost; None: nothing leaves.
    """
    if policy.approval:
        return "approval: the policy asks for a person's approval of every run"
    limit = policy.approval_above_epsilon
    if limit and cost is not None and not cost.epsilon <= limit:
        return (
            f"approval_above_epsilon: training would cost {cost}; {NOT_COVERED}; the policy asks for a person's "
            f"approval above {limit:g}"
        )
    return ""


def decide(folder: Path, decision: Decision, me: Credentials) -> None:
    """Sign and keep a decision, in place of an earlier one about the same proposal."""
    body = decision.body(me.name)
    _write(folder / _name(decision.proposal), {"body": body, "signature": me.sign(canonical(body))})


def decided(folder: Path, proposal: str, me: Credentials) -> Decision | None:
    """What was decided about a proposal; None: nothing yet.

    Raises:
        IdentityError: there is a decision, and this party's key did not sign it.
    """
    found = _read(folder / _name(proposal))
    if found is None:
        return None
    body, signature = found.get("body"), found.get("signature")
    if not isinstance(body, dict) or not isinstance(signature, dict):
        raise IdentityError(f"{_name(proposal)} is no signed decision; approve or refuse the run again")
    me.verify(canonical(body), signature, me.name)
    if body.get("proposal") != proposal or body.get("what") != "DECISION" or body.get("party") != me.name:
        raise IdentityError(f"{_name(proposal)} is a decision about something else; approve or refuse the run again")
    return Decision(
        str(body["run"]), proposal, body["approved"] is True, str(body.get("because", "")), str(body.get("time", ""))
    )


def note(folder: Path, proposal: Proposal, state: State, reason: str = "") -> None:
    """Keep the last proposal of a run and what became of it, for whoever decides and for later."""
    _write(
        folder / PROPOSAL,
        {
            "run": proposal.body["run"],
            "digest": proposal.digest,
            "time": now(),
            "state": state,
            "reason": reason,
            "facts": dict(in_short(proposal)),
            "leaves": what_leaves(proposal),
            "body": dict(proposal.body),
            "signature": dict(proposal.signature),
        },
    )


def noted(folder: Path) -> Mapping[str, Any] | None:
    """The last proposal of a run that was kept, as `note` wrote it; None: there is none."""
    return _read(folder / PROPOSAL)


def check_decision(decision: Decision | None) -> None:
    """Refuse a proposal that a person refused."""
    if decision is not None and not decision.approved:
        raise Refused(f"a person refused the run: {decision.because or 'no reason was given'}")


def what_leaves(proposal: Proposal) -> list[str]:
    """What would leave this party, in words, one purpose after the other."""
    purposes, rounds, rows = proposal.body["purposes"], proposal.training().rounds, len(proposal.train)
    privacy = proposal.privacy()
    protected = "with noise" if privacy.protects else f"mechanism {proposal.body['mechanism']!r}"
    if privacy.by_row:
        protected = "by a model that was trained with noise at home"
    told = {
        Purpose.TRAIN: f"training: numbers computed from the columns of up to {rows:,} rows in each of {rounds:,} "
        f"rounds, {protected}",
        Purpose.EVALUATE: "evaluation: the same of validation and test rows, without noise",
        Purpose.PREDICT: "prediction, later: the same of rows that are asked about, without noise",
        Purpose.EXPLAIN: "explanation, later: the same of rows that are asked about, without noise",
    }
    return [text for purpose, text in told.items() if purpose.value in purposes]


def now() -> str:
    """The time, as it is written into files."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def _name(proposal: str) -> str:
    return f"decision-{proposal[:16]}.json"


def _read(path: Path) -> Mapping[str, Any] | None:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise RunError(f"{path} cannot be read ({error}); put it back, or remove it") from None
    return found if isinstance(found, dict) else None


def _write(path: Path, content: Mapping[str, Any]) -> None:
    """Beside, then renamed: the old file or the new one, never half of one."""
    beside = path.with_name(path.name + ".part")
    try:
        beside.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        raise Unwritable(f"{path} cannot be written: {error.strerror}; see to the disk") from None


def in_short(proposal: Proposal) -> Mapping[str, Any]:
    """What an operator needs to see of a proposal."""
    body = proposal.body
    keys = ("rows", "parties", "label_exposure", "purposes", "mechanism", *(("lacking",) if proposal.lacking else ()))
    facts = {"method": body["method"]["name"], "rounds": proposal.training().rounds, **{k: body.get(k) for k in keys}}
    if shown := shown_by(proposal.method()):
        facts["shows_columns"] = shown
    return {**facts, "privacy": proposal.privacy().in_words(len(proposal.parties), proposal.own)}
