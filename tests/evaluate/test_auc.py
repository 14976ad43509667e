"""AUC: against scikit-learn, with ties and weights; and that it chooses the kept round of yes/no tasks."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from colonnade.errors import RunError
from colonnade.evaluate.judge import INSTEAD, Judge, believed_auc
from colonnade.evaluate.metrics import METRICS, area
from colonnade.federation import Federation, RowSplit
from colonnade.fit import Trainer, fit
from colonnade.methods import SplitLearning
from colonnade.models.encoders import ModelSettings
from colonnade.privacy.labels.alibi import Alibi
from colonnade.privacy.labels.randomised import RandomisedResponse
from colonnade.run import Training
from colonnade.tasks.binary import Binary
from tests.trainers import TINY

RNG = np.random.default_rng(0)
YES_NO = Binary(1)
AUC = METRICS["auc"]


def auc(scores: torch.Tensor, yes: torch.Tensor) -> float:
    return float(area(scores, yes, torch.ones(1, len(scores), dtype=torch.float64)))


def rare(rows: int = 3000, seed: int = 0) -> Federation:
    """Two parties, about 2 % yes; columns of both are needed."""
    rng = np.random.default_rng(seed)
    columns = {name: rng.normal(size=(rows, 5)) for name in ("bank", "shop")}
    lift = sum(x @ rng.normal(size=5) for x in columns.values())
    labels = (lift + 0.3 * rng.logistic(size=rows) > np.quantile(lift, 0.985)).astype(int)
    split = RowSplit.random(rows, validation=0.3, test=0.3)
    return Federation.from_arrays(columns, labels, task="binary", split=split, name="rare")


@given(st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=2, max_size=60))
def test_auc_is_sklearns_with_ties(rows: list[tuple[int, bool]]) -> None:
    scores, yes = zip(*rows, strict=True)
    if len(set(yes)) < 2:
        return
    found = auc(torch.tensor(scores, dtype=torch.float32), torch.tensor(yes).double())
    assert found == pytest.approx(roc_auc_score(yes, scores), abs=1e-12)


def test_auc_of_continuous_scores_is_sklearns() -> None:
    scores, yes = RNG.normal(size=500).astype(np.float32), RNG.integers(2, size=500)
    assert AUC(YES_NO, torch.from_numpy(scores)[:, None], torch.from_numpy(yes)[:, None]) == pytest.approx(
        roc_auc_score(yes, scores), abs=1e-12
    )


def test_auc_with_weights_is_sklearns_over_doubled_rows() -> None:
    scores, belief = RNG.integers(6, size=80).astype(float), RNG.random(80)
    twice, yes = np.concatenate([scores, scores]), np.repeat([1, 0], 80)
    expected = roc_auc_score(yes, twice, sample_weight=np.concatenate([belief, 1 - belief]))
    assert auc(torch.from_numpy(scores), torch.from_numpy(belief)) == pytest.approx(expected, abs=1e-12)


def test_auc_of_constant_scores_is_half_and_of_nan_is_nan() -> None:
    yes = torch.tensor([0.0, 1.0, 1.0])
    assert auc(torch.zeros(3), yes) == 0.5
    assert math.isnan(AUC(YES_NO, torch.tensor([[0.0], [math.nan], [1.0]]), yes[:, None]))


def test_auc_of_one_class_is_undefined() -> None:
    assert math.isnan(AUC(YES_NO, torch.randn(4, 1), torch.ones(4, 1)))


@pytest.mark.parametrize("kind", [Alibi, RandomisedResponse])
def test_noisy_auc_ranks_models_as_true_auc_does(kind: type[Alibi] | type[RandomisedResponse]) -> None:
    """Over many draws of the noise, the AUC by beliefs is linear in the true AUC."""
    rng = np.random.default_rng(1)
    truth = torch.from_numpy((rng.random(400) < 0.3).astype(float))[:, None]
    models = [truth * s + torch.from_numpy(rng.normal(size=(400, 1))) for s in (0.0, 0.5, 1.0, 2.0)]
    rows = torch.arange(400)
    noisy = np.zeros(len(models))
    for key in range(1, 201):
        beliefs = kind.of(truth, YES_NO, rows, 1.0, 5, key).held_out(rows)
        noisy += [believed_auc(logits, beliefs) / 200 for logits in models]
    true = [AUC(YES_NO, logits, truth) for logits in models]
    slope, offset = np.polyfit(true, noisy, 1)
    assert 0.05 < slope < 0.95
    np.testing.assert_allclose(noisy, slope * np.array(true) + offset, atol=0.004)


def test_rare_positives_keep_the_round_with_the_best_auc() -> None:
    federation = rare()
    run = fit(federation, SplitLearning(), rounds=60, model=TINY, schedule={"batch": 256})
    assert run.result["best_round"] > 5  # by accuracy all rounds are alike, and the first one was kept
    validation, test = (_auc_on(run, federation, rows) for rows in (federation.split.validation, federation.split.test))
    assert run.result["validation_score"] == pytest.approx(validation, abs=1e-6)
    assert run.result["validation_score"] == max(h["score"] for h in run.history if "score" in h)
    assert run.score == pytest.approx(test, abs=1e-6) and run.score > 0.7
    assert run.metric == run.result["validation_metric"] == "auc" and run.score_name == "AUC"
    assert run.accuracy is not None and run.accuracy > 0.95


def _auc_on(run: object, federation: Federation, rows: torch.Tensor) -> float:
    logits = run.logits({p.name: p.columns[rows] for p in federation.parties})  # type: ignore[attr-defined]
    return float(roc_auc_score(federation.labels[rows], logits))


def test_one_class_among_the_validation_rows_is_judged_by_log_loss_and_said() -> None:
    federation = rare(600)
    no = (federation.labels[:, 0] == 0).nonzero().squeeze(1)
    yes = (federation.labels[:, 0] == 1).nonzero().squeeze(1)
    train, test = torch.cat([no[:300], yes[::2]]), torch.cat([no[400:], yes[1::2]])
    split = RowSplit(train, no[300:400], test)
    federation = Federation.from_arrays(
        {p.name: p.columns for p in federation.parties}, federation.labels, task="binary", split=split
    )
    run = fit(federation, SplitLearning(), rounds=20, model=TINY)
    assert run.result["validation_metric"] == INSTEAD.name == "log_loss" and run.score_name == "AUC"
    assert run.result["validation_score"] == min(h["score"] for h in run.history if "score" in h)  # lower is better
    assert any("validation rows are all of one class" in text for text in run.result["warnings"])


def test_one_class_among_the_test_rows_gives_no_score_and_an_accuracy() -> None:
    federation = rare(600)
    no = (federation.labels[:, 0] == 0).nonzero().squeeze(1)
    rest = torch.cat([no[100:], (federation.labels[:, 0] == 1).nonzero().squeeze(1)])
    split = RowSplit(rest[::2], rest[1::2], no[:100])
    federation = Federation.from_arrays(
        {p.name: p.columns for p in federation.parties}, federation.labels, task="binary", split=split
    )
    run = fit(federation, SplitLearning(), rounds=10, model=TINY)
    assert run.score is None and run.accuracy is not None
    assert any("test rows are all of one class" in text for text in run.result["warnings"])


def test_a_run_begun_by_accuracy_is_not_gone_on_with_by_auc() -> None:
    trainer = Trainer.open(rare(300), SplitLearning(), Training(), ModelSettings(), None, None)
    facts = trainer.coordinator.facts()
    facts["watch"]["seen"] = 1
    trainer.coordinator.restore({}, facts)
    del facts["metric"]  # as version 0.1 wrote it
    with pytest.raises(RunError, match="judged rounds by accuracy; this one judges by AUC"):
        trainer.coordinator.restore({}, facts)


def test_beliefs_that_say_nothing_are_judged_by_log_loss() -> None:
    judge = Judge.of(YES_NO, torch.full((5, 1), 0.3), noisy=True)
    assert judge.metric == INSTEAD
    good, bad = judge(torch.full((5, 1), -0.8)), judge(torch.full((5, 1), 3.0))
    assert good < bad and judge.gain(good) > judge.gain(bad)
