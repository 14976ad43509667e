"""What is said around a question to candidates: who asks, about what, and that both agree; signed or encrypted.

    HELLO      candidate -> coordinator   I was started (again)
    PROPOSE    coordinator -> *           alignment, kind of labels, numbers of rows, epsilon, public key   signed
    JOIN       candidate -> coordinator   digest of the proposal, public key                                signed
    REFUSE     candidate -> coordinator   the reason
    QUESTION   coordinator -> candidate   a release of the label holder: noisy labels, rows to score        encrypted
    ANSWER     candidate -> coordinator   a release of the candidate: one byte per row and output           encrypted
    STOP       coordinator -> *           all have answered, or the question is given up                    signed

Signing and encrypting are those of an alignment (`align/messages.py`), on a stream of its own. A question or an answer
may be sent again: both sides then send the same bytes, and release nothing new.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Literal

from pydantic import Field

from colonnade.align.messages import Facts, Hex32, Nonce
from colonnade.align.settings import MOST_IDS, Name, PartyName
from colonnade.errors import ConfigError, WireError
from colonnade.tasks import Task, task_about

Rows = Annotated[int, Field(ge=1, le=MOST_IDS)]
MOST_OUTPUTS = 1_000


class Proposal(Facts):
    """What the label holder asks every candidate to agree to."""

    format: Literal[1] = 1
    name: Name
    attempt: Nonce
    alignment: Hex32
    parties: Annotated[tuple[PartyName, ...], Field(strict=False, min_length=1)]
    task: Annotated[str, Field(pattern=r"^[a-z_]{1,40}$")]  # of what is told, by the name of its kind
    outputs: Annotated[int, Field(ge=1, le=MOST_OUTPUTS)]
    told: Rows
    judged: Rows
    epsilon: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    key: Hex32

    @property
    def digest(self) -> str:
        """What a candidate that agrees repeats."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()

    def labels(self) -> Task:
        """The kind of labels, or `WireError` where it has none that can be told."""
        try:
            task = task_about({"task": self.task, "outputs": self.outputs})
        except ConfigError:
            raise WireError("the label holder proposes a kind of labels that is not known here") from None
        if task.exclusive and task.outputs < 2:
            raise WireError("the label holder proposes classes, and only one of them")
        if task.label_noise is None:
            raise WireError("the label holder proposes labels that no noise of this kind can hide")
        return task


class Join(Facts):
    """A candidate agrees to one proposal."""

    attempt: Nonce
    proposal: Hex32
    key: Hex32
