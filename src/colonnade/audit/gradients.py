"""Labels from a downlink that nobody has a formula for: gradients, coefficients, whatever comes back row by row.

A party knows the labels of a few rows of one round. It fits a logistic regression from what it was sent about those
rows to their labels, and reads the other rows' labels with it. Gradients of a softmax point away from the label, so
the reply to the first round is the clearest: the model knows nothing yet, and all of it is label.
"""

from __future__ import annotations

import torch
from torch import Tensor

from colonnade.audit.completion import LABELLED, fitted
from colonnade.audit.labels import majority
from colonnade.audit.table import Finding
from colonnade.audit.transcript import RecordedRound, Transcript
from colonnade.randomness import permutation
from colonnade.wire.messages import Purpose


def read_replies(transcript: Transcript, party: str, labelled: int = LABELLED, seed: int = 0) -> Finding | None:
    """The accuracy on the other rows of the first reply that is about rows; None if none does."""
    federation = transcript.federation
    found = _first_reply(transcript, party)
    if found is None or federation.task.label_noise is None or len(found[0]) <= 2 * labelled:
        return None
    rows, sent = found
    truth = federation.labels[rows].reshape(len(rows), -1).to(torch.int64)
    order = permutation(torch.arange(len(rows)), seed, "audit labelled replies")
    known, others = order[:labelled], order[labelled:]
    return Finding(
        "labels from the downlink",
        fitted(sent, truth, known, others),
        majority(truth[others]),
        len(others),
        f"labels of one round's rows that {party!r} reads off its first reply, knowing those of {labelled} others",
        attacker=f"party {party!r}",
    )


def _first_reply(transcript: Transcript, party: str) -> tuple[Tensor, Tensor] | None:
    """Row numbers (B,) and what the party was sent about them (B, D)."""
    rows: Tensor | None = None
    for recorded in transcript.recorded_rounds:
        if rows is not None and (parts := _row_by_row(recorded, party, len(rows))):
            return rows, torch.cat(parts, dim=1)
        trained = [uploads.rows for uploads in recorded.uploads if uploads.purpose is Purpose.TRAIN]
        rows = trained[0] if trained else None
    return None


def _row_by_row(recorded: RecordedRound, party: str, rows: int) -> list[Tensor]:
    sent = [*recorded.common.values(), *recorded.own.get(party, {}).values()]
    return [v.double().reshape(rows, -1) for v in sent if v.dim() > 0 and len(v) == rows and v.is_floating_point()]
