"""Approval: where the policy asks for a person, a proposal waits for one; what the person decides is signed and kept.

    proposal.json            the last proposal as it came, signed by the coordinator, and what became of it
    decision-<digest>.json   approved or refused, when, by whom and why; signed with the party's key (`decision.py`)

Both lie in the folder of the run. The process reads a decision when the proposal is made again, every few seconds; a
decision about one proposal says nothing about another, and one that this party's key did not sign counts for nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from colonnade.deploy.agreement import Proposal
from colonnade.deploy.decision import Decision, now, read_kept, write_kept
from colonnade.deploy.policy import Policy
from colonnade.errors import Refused
from colonnade.methods._guest import shown_by
from colonnade.privacy.events import LabelExposure, PlainEvent
from colonnade.privacy.registry import kind_of
from colonnade.privacy.together import NOT_COVERED, Together
from colonnade.wire.messages import Purpose

LABELS = {  # what a person who decides needs to know of the training labels
    LabelExposure.FULL.value: "this party can read the training labels",
    LabelExposure.EPS.value: "this party gets noisy ones, which their label epsilon bounds",
    LabelExposure.NONE.value: "nothing of them reaches this party",
}
PENDING = "PENDING"  # what a party answers to a proposal meanwhile
PROPOSAL = "proposal.json"
WAITS, REFUSED, JOINED = "waits for approval", "refused", "joined"
State = Literal["waits for approval", "refused", "joined"]


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


def note(
    folder: Path, proposal: Proposal, me: str, state: State, reason: str = "", decision: Decision | None = None
) -> None:
    """Keep the last proposal of a run and what became of it, for whoever decides and for later; and who decided."""
    write_kept(
        folder / PROPOSAL,
        {
            "run": proposal.body["run"],
            "digest": proposal.digest,
            "time": now(),
            "state": state,
            "reason": reason,
            "facts": dict(in_short(proposal)),
            "leaves": what_leaves(proposal, me),
            "body": dict(proposal.body),
            "signature": dict(proposal.signature),
            **({"decision": decision.kept()} if decision is not None else {}),
        },
    )


def noted(folder: Path) -> Mapping[str, Any] | None:
    """The last proposal of a run that was kept, as `note` wrote it; None: there is none."""
    return read_kept(folder / PROPOSAL)


def check_decision(decision: Decision | None) -> None:
    """Refuse a proposal that a person refused."""
    if decision is not None and not decision.approved:
        raise Refused(f"a person refused the run: {decision.because or 'no reason was given'}")


def what_leaves(proposal: Proposal, party: str) -> list[str]:
    """What would leave a party, in words, one purpose after the other; a refused proposal may hold anything."""
    said, rounds, rows = proposal.body["purposes"], proposal.training().rounds, len(proposal.train)
    purposes = said if isinstance(said, list) else []
    privacy, mechanism = proposal.privacy(), proposal.body["mechanism"]
    plain = isinstance(mechanism, str) and kind_of(mechanism) is PlainEvent.kind
    protected = "without noise" if plain else f"mechanism {mechanism!r}"
    if privacy.protects:
        protected = "with noise"
    if privacy.by_row:
        protected = "by a model that was trained with noise at home"
    told = {
        Purpose.TRAIN: f"training: numbers computed from the columns of up to {rows:,} rows in each of {rounds:,} "
        f"rounds, {protected}",
        Purpose.EVALUATE: "evaluation: the same of validation and test rows, without noise",
        Purpose.PREDICT: "prediction, later: the same of rows that are asked about, without noise",
        Purpose.EXPLAIN: "explanation, later: the same of rows that are asked about, without noise",
    }
    if not proposal.trains(party) and (former := proposal.former):
        scores = (
            f"training and evaluation: nothing; what left in the run {former.run!r} is used, beside what others send"
        )
        asked = "numbers computed from the columns of rows that are asked about, without noise"
        told = {
            Purpose.TRAIN: scores,
            Purpose.PREDICT: f"prediction, later: {asked}",
            Purpose.EXPLAIN: f"explanation, later: {asked}",
        }
    return [text for purpose, text in told.items() if purpose.value in purposes]


def in_short(proposal: Proposal) -> Mapping[str, Any]:
    """What an operator needs to see of a proposal."""
    body = proposal.body
    said = [key for key, there in (("lacking", proposal.lacking), ("takes_over", proposal.former)) if there]
    keys = ("rows", "parties", "label_exposure", "purposes", "mechanism", *said)
    facts = {"method": body["method"]["name"], "rounds": proposal.training().rounds, **{k: body.get(k) for k in keys}}
    if shown := shown_by(proposal.method()):
        facts["shows_columns"] = shown
    words = {
        "labels": LABELS.get(str(body.get("label_exposure")), "nothing is known of what reaches this party"),
        "privacy": proposal.privacy().in_words(len(proposal.parties), proposal.own),
    }
    return {**facts, **words}
