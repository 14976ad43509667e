"""Passive model completion (Fu et al., 2022): a party turns its own encoder into a classifier with a few labels.

Training shapes the encoder so that labels are easy to read off its embeddings. A party that knows the labels of a few
rows fits a small head on them and has a label for every row, also of rows that were never trained on. No message is
needed beyond those of the training, so nothing on the wire can show it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from colonnade.audit.labels import majority
from colonnade.audit.table import Finding
from colonnade.audit.transcript import Transcript
from colonnade.models.stack import Mode
from colonnade.randomness import permutation

LABELLED = 40  # rows whose labels the party is given: four per class of ten


def complete_model(transcript: Transcript, party: str, labelled: int = LABELLED, seed: int = 0) -> Finding | None:
    """The accuracy of a head fitted to a party's embeddings of a few labelled rows, on all other rows.

    The same labels on the party's bare columns show how much of it the training gave away.
    """
    federation = transcript.federation
    if federation.task.label_noise is None or federation.rows <= 2 * labelled:
        return None
    order = permutation(torch.arange(federation.rows), seed, "audit labelled rows")
    known, others = order[:labelled], order[labelled:]
    columns = next(p.columns for p in federation.parties if p.name == party).flatten(1)
    truth = federation.labels.reshape(federation.rows, -1).to(torch.int64)
    accuracy, bare = (fitted(x.double(), truth, known, others) for x in (embeddings(transcript, party), columns))
    return Finding(
        "model completion",
        accuracy,
        majority(truth[others]),
        len(others),
        f"labels that {party!r} infers from its own encoder and {labelled} labelled rows; "
        f"from its bare columns it infers {bare:.3f}",
        attacker=f"party {party!r}",
    )


def embeddings(transcript: Transcript, party: str) -> Tensor:
    """A party's own clean embeddings of all rows (N, d), by the encoder that training left it with."""
    side = next(side for side in transcript.sides if party in side.cohort.names)
    cohort = side.cohort.pick([side.cohort.names.index(party)])
    with torch.no_grad():
        return cohort.encode(cohort.whole, Mode.PREDICT)[0].cpu()


def fitted(x: Tensor, truth: Tensor, known: Tensor, others: Tensor) -> float:
    """Mean accuracy over the label columns of a logistic regression on standardised features."""
    from sklearn.linear_model import LogisticRegression  # slow to import

    scaled = (x - x.mean(dim=0)) / x.std(dim=0).clamp(min=1e-9)
    right: list[float] = []
    for column in truth.T:
        if len(column[known].unique()) == 1:  # nothing to tell apart: say what was seen
            guesses = column[known][:1].expand(len(others))
        else:
            model = LogisticRegression(C=1.0, max_iter=2000).fit(scaled[known].numpy(), column[known].numpy())
            guesses = torch.from_numpy(model.predict(scaled[others].numpy()))
        right.append((guesses == column[others]).double().mean().item())
    return sum(right) / len(right)
