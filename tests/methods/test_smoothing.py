"""Label smoothing is a regulariser that every method of the comparison offers, not VIMADMM's alone."""

from __future__ import annotations

import pytest
import torch

from colonnade.data.sets import load_set
from colonnade.federation import Federation
from colonnade.fit import fit
from colonnade.methods import make_method

COMPARED = ("vimadmm", "vimadmm_j", "split_learning", "vafl", "fedbcd", "fdml", "local_only", "centralized")

ROUNDS = {"vimadmm": 6, "vimadmm_j": 6, "local_only": 40, "centralized": 40}  # until labels make a difference


@pytest.fixture(scope="module")
def digits() -> Federation:
    return load_set("digits", parties=2)


def sureness(federation: Federation, method: str, smoothing: float) -> float:
    """The mean largest probability of a prediction on test rows."""
    made = make_method(method, {"smoothing": smoothing})
    rounds = ROUNDS.get(method, 25)
    run = fit(federation, made, rounds=rounds, batch=512, evaluate_every=0, progress=False)
    rows = federation.split.test
    if method == "centralized":  # one pretended party with all columns
        whole = torch.cat([party.columns[rows].flatten(1) for party in federation.parties], dim=1)
        columns = {"everyone": whole if federation.whole is None else federation.whole[rows]}
    else:
        columns = {party.name: party.columns[rows] for party in federation.parties}
    outputs = run.model.logits(columns)
    return float(outputs.softmax(dim=1).amax(dim=1).mean())


@pytest.mark.parametrize("method", COMPARED)
def test_smoothed_labels_make_predictions_less_sure(digits: Federation, method: str) -> None:
    assert sureness(digits, method, 0.4) < sureness(digits, method, 0.0) - 0.05
