"""Label inference from the downlink: what any party reads off the replies it gets anyway.

ADMM methods send v = z - yhat - lambda/rho for every row of a round, and lambda = softmax(z) - y after the z-step.
With the heads before their step in yhat, v = (lambda_{t-1} - 2 lambda_t)/rho, so from lambda_0 = 0 a party decodes

    lambda_t = (lambda_{t-1} - rho v)/2        exactly, and y is where lambda is smallest.

A row that the model is certain of has lambda = 0 to the last digit, so the visits are added up: lambda is negative at
the label in every one of them. With the heads after it (`residual = "after"`) yhat has moved by an amount the party
does not know: v is what the new heads could not explain, and its sum over the visits still points at the label.
`local_only` sends the labels openly.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from colonnade.audit.table import Finding
from colonnade.audit.transcript import RecordedRound, Transcript


def infer_labels(transcript: Transcript) -> Finding | None:
    """How many labels of training rows a party reads; None where the downlink carries nothing about them."""
    federation = transcript.federation
    if federation.task.label_noise is None:
        return None
    opened = _sent_openly(transcript)
    read = opened if opened is not None else _decoded(transcript)
    if read is None:
        return None
    guesses, seen = read
    truth = federation.labels[seen].reshape(len(seen), -1).to(torch.int64)
    right = (guesses.reshape(len(seen), -1) == truth).double().mean().item()
    how = "sent openly" if opened is not None else "decoded from v"
    return Finding(
        "labels from the downlink",
        right,
        majority(truth),
        len(seen),
        f"labels of the training rows that every party reads ({how})",
        attacker="any party",
    )


def majority(truth: Tensor) -> float:
    """The share of the most frequent value of each column (N, K): what a guess gets that has seen no message."""
    shares = [torch.bincount(column).max().item() / len(column) for column in truth.T]
    return sum(shares) / len(shares)


def _sent_openly(transcript: Transcript) -> tuple[Tensor, Tensor] | None:
    for recorded in transcript.recorded_rounds:
        if "targets" in recorded.common:
            sent, rows = recorded.common["targets"], transcript.federation.split.train
            noisy = transcript.federation.task.exclusive and sent.dim() == 2  # a weight for every class
            return (sent.argmax(dim=1) if noisy else sent.round().to(torch.int64)), rows
    return None


class Visit(NamedTuple):
    """What a party decodes from one reply: lambda (B, K) as the coordinator holds it, if `exact`."""

    rows: Tensor
    dual: Tensor
    v: Tensor
    exact: bool


def visits(transcript: Transcript) -> Iterator[Visit]:
    """Replay the downlink of an ADMM method; nothing, if it is another one."""
    federation, rho = transcript.federation, transcript.run.method.model_dump().get("rho")
    dual = torch.zeros(federation.rows, federation.outputs, dtype=torch.float64)
    for rows, recorded in transcript.replies():
        if "v" in recorded.common and rho is not None:
            v = recorded.common["v"].double()
            dual[rows] = (dual[rows] - rho * v) / 2
            yield Visit(rows, dual[rows], v, _exact(recorded))


def _decoded(transcript: Transcript) -> tuple[Tensor, Tensor] | None:
    """Guesses and the rows they are about."""
    federation = transcript.federation
    evidence = torch.zeros(federation.rows, federation.outputs, dtype=torch.float64)
    count = torch.zeros(federation.rows, dtype=torch.int64)
    for visit in visits(transcript):
        evidence[visit.rows] += visit.dual if visit.exact else -visit.v
        count[visit.rows] += 1
    seen = count.nonzero().squeeze(1)
    if not len(seen):
        return None
    if federation.task.exclusive:
        return evidence[seen].argmin(dim=1), seen
    return (evidence[seen] < 0).to(torch.int64), seen  # lambda = sigmoid(z) - y is negative for a one


def _exact(recorded: RecordedRound) -> bool:
    """Whether v was made before the heads moved: always, where parties own them; else the old heads come with it."""
    return all(any(name.startswith("before.") for name in part) for part in recorded.own.values())
