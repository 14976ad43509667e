"""Thresholds and calibration of yes/no models: fitted on validation rows, stored, and used by predictions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.calibration import _SigmoidCalibration
from sklearn.isotonic import IsotonicRegression
from sklearn.metrics import brier_score_loss, f1_score

from colonnade import Federation, Model, RowSplit, Run, fit, resume
from colonnade.errors import ConfigError, DataError, RunError
from colonnade.evaluate.decision import (
    Decision,
    DecisionSettings,
    calibration_error,
    check_decision,
    choose_threshold,
    fit_decision,
)
from colonnade.tasks.binary import Binary
from colonnade.tasks.multiclass import Multiclass

TASK = Binary(1)
flags = st.lists(st.tuples(st.integers(0, 20), st.booleans(), st.integers(1, 3)), min_size=2, max_size=40)


def drawn(rows: int = 300, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Outputs that are three times too sure, and labels."""
    rng = np.random.default_rng(seed)
    odds = rng.normal(-1.0, 1.0, rows)
    yes = rng.random(rows) < 1 / (1 + np.exp(-odds))
    return torch.from_numpy(3 * odds)[:, None], torch.from_numpy(yes.astype(float))[:, None]


@settings(max_examples=30, deadline=None)
@given(flags)
def test_the_threshold_has_the_best_f1_and_the_least_cost_of_all(rows: list[tuple[int, bool, int]]) -> None:
    sure = np.array([(one + 1) / 22 for one, _, _ in rows])
    yes = np.array([float(one) for _, one, _ in rows])
    weights = np.array([float(one) for _, _, one in rows])
    every = [*(np.unique(sure) + 1e-6), 1e-6]

    def f1(threshold: float) -> float:
        return float(f1_score(yes, sure > threshold, sample_weight=weights, zero_division=0.0))

    found = choose_threshold(DecisionSettings(decide_by="f1"), sure, yes, weights)
    assert f1(found) == pytest.approx(max(map(f1, every)), abs=1e-9)
    costs = DecisionSettings(decide_by="cost", false_positive=1.0, false_negative=4.0)

    def cost(threshold: float) -> float:
        said = sure > threshold
        return float((weights * (said * (1 - yes) + 4.0 * ~said * yes)).sum())

    assert cost(choose_threshold(costs, sure, yes, weights)) == pytest.approx(min(map(cost, every)), abs=1e-9)


def test_a_share_says_yes_to_the_highest() -> None:
    sure, asked = np.arange(1, 101) / 102, DecisionSettings(decide_by="share", yes_share=0.2)
    threshold = choose_threshold(asked, sure, np.zeros(100), np.ones(100))
    assert (sure > threshold).sum() == 20


def test_isotonic_calibration_is_that_of_scikit_learn() -> None:
    (outputs, truth), (new, _) = drawn(), drawn(seed=5)
    fitted = fit_decision(DecisionSettings(calibration="isotonic"), TASK, outputs, truth)
    theirs = IsotonicRegression(out_of_bounds="clip").fit(outputs[:, 0].numpy(), truth[:, 0].numpy())
    expected = theirs.predict(new[:, 0].numpy())
    np.testing.assert_allclose(TASK.mean(fitted.calibrated(new))[:, 0], np.clip(expected, 1e-6, 1 - 1e-6), atol=1e-12)


@pytest.mark.parametrize("weighted", [False, True])
def test_platt_calibration_is_that_of_scikit_learn(weighted: bool) -> None:
    outputs, truth = drawn()
    weights = torch.from_numpy(np.random.default_rng(1).uniform(0.5, 2.0, 300)) if weighted else None
    fitted = fit_decision(DecisionSettings(calibration="platt"), TASK, outputs, truth, weights)
    theirs = _SigmoidCalibration().fit(
        outputs[:, 0].numpy(), truth[:, 0].numpy(), None if weights is None else weights.numpy()
    )
    expected = theirs.predict(outputs[:, 0].numpy())
    np.testing.assert_allclose(TASK.mean(fitted.calibrated(outputs))[:, 0], expected, atol=1e-4)


@pytest.mark.parametrize("kind", ["isotonic", "platt"])
def test_calibration_improves_probabilities_that_are_too_sure_and_survives_json(kind: Any) -> None:
    (outputs, truth), (new, true) = drawn(), drawn(2000, seed=9)
    fitted = fit_decision(DecisionSettings(calibration=kind, decide_by="f1"), TASK, outputs, truth)
    again = Decision.from_json(json.loads(json.dumps(fitted.to_json())))
    assert again == fitted
    before, after = TASK.mean(new), TASK.mean(again.calibrated(new))
    assert brier_score_loss(true[:, 0], after[:, 0]) < brier_score_loss(true[:, 0], before[:, 0])
    assert calibration_error(after, true) < calibration_error(before, true) / 2
    decided = TASK.codes(again.decided(TASK, new)).flatten()
    assert torch.equal(decided.bool(), (after > again.threshold).flatten())


def test_the_calibration_error_is_the_mean_distance_in_ten_ranges() -> None:
    sure = torch.tensor([0.05, 0.05, 0.15, 0.95])
    truth = torch.tensor([0.0, 1.0, 0.0, 1.0])
    assert calibration_error(sure, truth) == pytest.approx((abs(0.1 - 1) + 0.15 + 0.05) / 4)


# -- refused before training ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"decide_by": "share"}, "belong together"),
        ({"yes_share": 0.1}, "belong together"),
        ({"decide_by": "f1", "false_negative": 3.0}, "need decide_by = 'cost'"),
        ({"decide_by": "f2"}, "f1"),
    ],
)
def test_settings_that_say_too_little_or_too_much_are_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        DecisionSettings(**given)


def test_what_could_not_be_fitted_is_refused_before_training() -> None:
    truth, asked = torch.tensor([[0.0], [1.0]]), DecisionSettings(decide_by="f1")
    with pytest.raises(ConfigError, match="is for a yes/no task"):
        check_decision(asked, Multiclass(3), torch.tensor([0, 1]), False, True)
    with pytest.raises(ConfigError, match="evaluated validation rows, and there are none"):
        check_decision(asked, TASK, truth, False, False)
    with pytest.raises(ConfigError, match="needs plain labels, and these are protected"):
        check_decision(asked, TASK, truth, True, True)
    with pytest.raises(DataError, match="all 2 validation rows have one label"):
        check_decision(asked, TASK, torch.ones(2, 1), False, True)
    check_decision(DecisionSettings(decide_by="share", yes_share=0.5), TASK, torch.ones(2, 1), True, True)


# -- in a run ---------------------------------------------------------------------------------


def churn(rows: int = 240) -> Federation:
    rng = np.random.default_rng(3)
    bank, telco = rng.normal(size=(2, rows, 3)).astype(np.float32)
    labels = np.where(bank[:, 0] + telco[:, 1] + rng.normal(size=rows) > 1.2, "leaves", "stays")
    at = torch.arange(rows)
    split = RowSplit(at[:120], at[120:180], at[180:])
    return Federation.from_arrays({"bank": bank, "telco": telco}, labels, split=split, positive="leaves")


SETTINGS: dict[str, Any] = {"rounds": 4, "decide_by": "f1", "calibration": "isotonic", "model": {"hidden": 8}}


def test_a_run_stores_its_decision_and_every_prediction_uses_it(tmp_path: Path) -> None:
    data = churn()
    run = fit(data, "vimadmm", out=tmp_path / "run", checkpoint_every=1, **SETTINGS)
    decision = run.model.decision
    assert decision is not None and (decision.by, decision.calibration, decision.rows) == ("f1", "isotonic", 60)
    validation, test = data.select(data.split.validation), data.select(data.split.test)
    again = fit_decision(run.training.decision, run.task, run.logits(validation), data.labels[data.split.validation])
    assert again.threshold == pytest.approx(decision.threshold, rel=1e-5)  # it was fitted on the kept round
    run.model.save(tmp_path / "model")
    for model in (run.model, Run.load(tmp_path / "run").model, Model.load(tmp_path / "model")):
        assert model.decision == decision
        sure = model.predict_proba(test)[:, 1]
        assert ((model.predict(test) == "leaves") == (sure > decision.threshold)).all()
        assert ((model.predict(test, threshold=0.05) == "leaves") == (sure > 0.05)).all()
        raw = torch.sigmoid(model.logits(test)[:, 0]).numpy()
        np.testing.assert_allclose(model.predict_proba(test, calibrated=False)[:, 1], raw, atol=1e-6)
        scores = model.score(test, np.array(run.classes)[data.labels[data.split.test][:, 0].long()])
        assert scores["f1"] == pytest.approx(run.metrics["f1"]["test"])
        assert scores["brier"] == pytest.approx(run.metrics["brier"]["test"])
    told = run.result["decision"]
    assert told["brier"][1] == pytest.approx(run.metrics["brier"]["test"])
    truth = data.labels[data.split.test][:, 0].numpy()
    assert told["brier"][0] == pytest.approx(brier_score_loss(truth, raw), abs=1e-6)
    said = run.predict(test) == "leaves"
    assert run.metrics["f1"]["test"] == pytest.approx(f1_score(truth, said, zero_division=0.0))
    assert sum(map(sum, run.result["confusion"])) == 60 and run.result["confusion"][1][1] == int((said * truth).sum())


def test_a_damaged_decision_is_refused(tmp_path: Path) -> None:
    run = fit(churn(), "vimadmm", **SETTINGS)
    run.model.save(tmp_path / "model")
    file = tmp_path / "model" / "model.json"
    about = json.loads(file.read_text())
    about["decision"]["threshold"] = 7
    file.write_text(json.dumps(about))
    with pytest.raises(RunError, match="damaged"):
        Model.load(tmp_path / "model")


def test_models_without_a_decision_predict_as_before() -> None:
    run = fit(churn(), "vimadmm", rounds=2, model={"hidden": 8})
    test = churn().select(churn().split.test)
    assert run.model.decision is None and "decision" not in run.record() and "decision" not in run.result
    sure = torch.sigmoid(run.logits(test)[:, 0]).numpy()
    np.testing.assert_array_equal(run.predict(test) == "leaves", sure > 0.5)


def test_a_resumed_run_has_the_decision_of_one_that_was_never_interrupted(tmp_path: Path) -> None:
    def interrupt(now: Any) -> None:
        if now.round == 3:
            raise KeyboardInterrupt

    whole = fit(churn(), "vimadmm", **SETTINGS)
    with pytest.raises(KeyboardInterrupt):
        fit(churn(), "vimadmm", out=tmp_path / "run", checkpoint_every=1, watch=interrupt, **SETTINGS)
    again = resume(tmp_path / "run", churn())
    assert again.model.decision is not None and whole.model.decision is not None
    np.testing.assert_allclose(again.model.decision.points, whole.model.decision.points, atol=1e-5)
    assert again.model.decision.threshold == pytest.approx(whole.model.decision.threshold, abs=1e-5)
    assert again.result["decision"]["brier"] == pytest.approx(whole.result["decision"]["brier"], abs=1e-5)
