"""What `exposes = FULL` means: a party reads every label off the messages it gets. Shown, not argued."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from colonnade.methods import VIMADMM, VIMADMMJ, LocalOnly
from colonnade.privacy.events import LabelExposure
from colonnade.wire.codec import decode
from tests.federations import small
from tests.trainers import open_trainer, rounds_of

METHODS = [
    VIMADMM(residual="before", head_update="sgd", rho=0.5),
    VIMADMM(residual="before", head_update="joint", rho=2.0),
    VIMADMMJ(),
]


@pytest.mark.parametrize("method", METHODS, ids=["sgd heads", "joint heads", "vimadmm_j"])
def test_a_party_decodes_every_label(method: Any) -> None:
    """v = z - yhat - lambda/rho and lambda_t = lambda_{t-1} + rho (yhat - z), so lambda_t = (lambda_{t-1} - rho v)/2.

    lambda = softmax(z) - y is negative at the label only. The party knows rho, which it needs for its own steps.
    """
    federation = small(classes=4)
    dual = torch.zeros(federation.rows, 4, dtype=torch.float64)
    read = torch.full((federation.rows,), -1)
    rows = None
    trainer = open_trainer(federation, method, engine="loop", rounds=12, evaluate_every=0, schedule={"batch": 16})
    for one_round in rounds_of(trainer):
        _, arrays = decode(one_round.down.everyone.payload)  # nothing but what crossed the wire
        if "common.v" in arrays and rows is not None:
            dual[rows] = (dual[rows] - method.rho * arrays["common.v"]) / 2
            read[rows] = dual[rows].argmin(dim=1)
        rows = arrays["rows.0"].long() if "rows.0" in arrays else None
    train = federation.split.train
    assert torch.equal(read[train], federation.labels[train])
    assert method.exposes is LabelExposure.FULL


def test_local_only_sends_them_openly() -> None:
    federation = small()
    trainer = open_trainer(federation, LocalOnly(), engine="loop", rounds=1)
    _, arrays = decode(next(rounds_of(trainer)).down.everyone.payload)
    assert torch.equal(arrays["common.targets"].long(), federation.labels[federation.split.train])


def test_the_first_reply_alone_gives_most_of_them_away_in_the_other_form() -> None:
    """residual = "after" has no exact recursion, but v still points at the label."""
    federation = small(classes=4)
    trainer = open_trainer(federation, VIMADMM(residual="after"), engine="loop", rounds=1, evaluate_every=0)
    first, second = (decode(e.down.everyone.payload)[1] for _, e in zip(range(2), rounds_of(trainer), strict=False))
    rows = first["rows.0"].long()
    right = second["common.v"].argmax(dim=1) == federation.labels[rows]
    assert right.double().mean() > 0.9
