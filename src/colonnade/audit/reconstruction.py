"""Feature reconstruction: the coordinator learns to read columns off the embeddings it is sent.

It needs a few auxiliary rows of which it knows the columns (customers of its own, public records). A ridge decoder
from upload to columns is fitted on them and measured on the other rows, against predicting the auxiliary mean.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from colonnade.audit.table import Finding
from colonnade.audit.transcript import Transcript
from colonnade.randomness import permutation

PENALTIES = np.logspace(-2, 5, 15)  # chosen by leave-one-out on the auxiliary rows


def reconstruct(transcript: Transcript, party: str, auxiliary: float = 0.5, seed: int = 0) -> Finding | None:
    """R2 of a party's columns as read off its last training upload; None if it never uploaded."""
    uploads = transcript.last_words()
    if uploads is None or party not in uploads.uploaded or len(uploads.rows) < 10:
        return None
    released = torch.cat([value.double().flatten(1) for value in uploads.uploaded[party].values()], dim=1)
    columns = next(p.columns for p in transcript.federation.parties if p.name == party)
    truth = columns[uploads.rows].double().flatten(1)
    order = permutation(torch.arange(len(released)), seed, "audit auxiliary rows")
    cut = max(5, round(auxiliary * len(order)))
    known, others = order[:cut], order[cut:]
    return Finding(
        "feature reconstruction",
        decode_columns(released, truth, known, others),
        0.0,
        len(others),
        f"variance of the columns of {party!r} that its uploads give away; "
        f"the coordinator knew the columns of {len(known)} other rows",
        measure="R2",
        attacker="the coordinator",
    )


def decode_columns(released: Tensor, truth: Tensor, known: Tensor, others: Tensor) -> float:
    """R2 over all columns together of a ridge decoder fitted on the known rows."""
    from sklearn.linear_model import RidgeCV  # slow to import

    scaled = (released - released[known].mean(dim=0)) / released[known].std(dim=0).clamp(min=1e-9)
    mean = truth[known].mean(dim=0)
    model = RidgeCV(alphas=PENALTIES, fit_intercept=False).fit(scaled[known].numpy(), (truth[known] - mean).numpy())
    guesses = torch.from_numpy(np.asarray(model.predict(scaled[others].numpy()))).reshape(len(others), -1)
    missed = (truth[others] - mean - guesses).square().sum()
    spread = (truth[others] - mean).square().sum()
    return float(1 - missed / spread.clamp(min=1e-300))
