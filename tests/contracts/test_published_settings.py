"""What the published settings do, where the documentation says so: each claim on bundled data, as a test."""

from __future__ import annotations

import numpy as np

from colonnade.data.sets import digits
from colonnade.fit import fit
from colonnade.methods import VIMADMM, VIMADMMJ
from colonnade.run import Run


def trained(method: VIMADMM | VIMADMMJ, rounds: int = 10) -> Run:
    return fit(digits(parties=8), method, rounds=rounds, evaluate_every=1, schedule={"batch": 256})


def test_alternating_steps_with_momentum_on_both_diverge_and_the_preset_does_not() -> None:
    preset = VIMADMMJ.paper()
    assert trained(preset.model_copy(update={"head_momentum": None})).result["diverged"]
    kept = trained(preset)
    assert not kept.result["diverged"]
    assert kept.result["validation_score"] > 0.95


def test_the_printed_residual_diverges_with_sgd_heads_and_the_program_s_does_not() -> None:
    preset = VIMADMM.paper()
    assert trained(preset.model_copy(update={"residual": "after"})).result["diverged"]
    kept = trained(preset)
    assert not kept.result["diverged"]
    assert kept.result["validation_score"] > 0.9


def test_probabilities_sum_to_one_and_agree_with_the_decision() -> None:
    run, federation = trained(VIMADMM(local_steps=3), rounds=2), digits(parties=8)
    rows = {party.name: party.columns[:20] for party in federation.parties}
    told = run.predict_proba(rows)
    np.testing.assert_allclose(told.sum(axis=1), 1, atol=1e-5)
    assert (told.argmax(axis=1) == run.predict(rows)).all()
