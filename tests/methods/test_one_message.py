"""one_message: against scikit-learn's own cross-validation and solvers, with any local model, without any party."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestClassifier
from sklearn.linear_model import LogisticRegression, PoissonRegressor, Ridge
from sklearn.model_selection import PredefinedSplit, cross_val_predict
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import LinearSVC
from torch import Tensor

from colonnade import Federation, Run, fit
from colonnade.deploy.party_setup import PartySetup
from colonnade.deploy.predict import Wish
from colonnade.errors import ConfigError, GateError, ModelError
from colonnade.evaluate.metrics import METRICS
from colonnade.fit import resume
from colonnade.methods import OneMessage
from colonnade.methods.base import Reply, Uploads, fit_at_home
from colonnade.methods.without import outputs_of
from colonnade.models.crossfit import folds_of
from colonnade.models.encoders import ModelSettings
from colonnade.models.ridge import RidgeSettings
from colonnade.part import Part, open_parts
from colonnade.privacy.labels.plain import PlainLabels
from colonnade.privacy.ledger import Ledger
from colonnade.privacy.mechanism import Protection
from colonnade.report.privacy import statement_of_run
from colonnade.tasks import TASKS
from colonnade.wire.codec import decode
from colonnade.wire.messages import COORDINATOR, Purpose
from tests.deploy.memory import Room, SmallTrial
from tests.federations import small
from tests.trainers import ENGINES, open_trainer, rounds_of, untimed

ALL = list(TASKS)
FIVE = OneMessage(folds=5)
RIDGE: dict[str, Any] = {"encoder": "ridge", "scale_columns": "never"}
TREES: dict[str, Any] = {"encoder": "trees", "trees": {"most": 12, "smallest_leaf": 3}}
BETA = RidgeSettings().beta
NOISY: dict[str, Any] = {"labels": {"mechanism": "randomised_response", "epsilon": 1.0}}


def federation(task: str = "binary", **options: Any) -> Federation:
    """250 rows, 150 of which train: five folds of 30."""
    return small(**{"widths": (4, 3, 2), "rows": 250, "task": task, **options})


def columns(whole: Federation, rows: Tensor) -> dict[str, Tensor]:
    return {party.name: party.columns[rows] for party in whole.parties}


def fold_numbers(whole: Federation, seed: int = 0) -> np.ndarray[Any, Any]:
    """Of the training rows in their order."""
    schema = open_trainer(whole, FIVE, model=ModelSettings(**RIDGE), seed=seed, rounds=1).coordinator.schema
    return folds_of(schema, 5)[whole.split.train].numpy()


def alone(model: Any, party: Any, whole: Federation, targets: Any, folds: Any, rows: Tensor) -> tuple[Any, list[Any]]:
    """Out-of-fold predictions of the training rows, and every fold's predictions of others."""
    x = np.concatenate([party.columns.numpy(), np.ones((whole.rows, 1))], axis=1)
    train = whole.split.train.numpy()
    inside = cross_val_predict(model, x[train], targets, cv=PredefinedSplit(folds))
    others = [model.fit(x[train][folds != j], targets[folds != j]).predict(x[rows.numpy()]) for j in range(5)]
    return inside.reshape(len(train), -1), [other.reshape(len(rows), -1) for other in others]


class TestAgainstScikitLearn:
    """Ridge models at the parties: nothing but `cross_val_predict` and a solver."""

    def scores(self, whole: Federation, targets: Any, score: Any = np.asarray) -> tuple[Any, Any]:
        """Of the training rows, and of the test rows: features of the stack."""
        folds, rows = fold_numbers(whole), whole.split.test
        model = Ridge(alpha=2 * BETA * 120, fit_intercept=False, solver="cholesky")
        both = [alone(model, party, whole, targets, folds, rows) for party in whole.parties]
        means = [np.mean([score(other) for other in others], axis=0) for _, others in both]
        return np.concatenate([score(inside) for inside, _ in both], axis=1), np.concatenate(means, axis=1)

    @pytest.mark.parametrize("engine", ENGINES)
    def test_yes_or_no(self, engine: str) -> None:
        whole = federation("binary")
        y = whole.labels[whole.split.train].numpy()
        inside, others = self.scores(whole, y)
        stack = LogisticRegression(C=1.0, tol=1e-12, max_iter=10_000).fit(inside, y[:, 0])
        run = fit(whole, FIVE, model=RIDGE, dtype="float64", engine=engine)
        found = run.logits(columns(whole, whole.split.test))[:, 0].numpy()
        np.testing.assert_allclose(found, stack.decision_function(others), rtol=0, atol=1e-6)

    def test_classes(self) -> None:
        whole = federation("multiclass")
        y = whole.labels[whole.split.train].numpy()
        inside, others = self.scores(whole, np.eye(3)[y])
        stack = LogisticRegression(C=1.0, tol=1e-12, max_iter=100_000).fit(inside, y)
        run = fit(whole, FIVE, model=RIDGE, dtype="float64")
        found = run.logits(columns(whole, whole.split.test)).softmax(dim=1).numpy()
        np.testing.assert_allclose(found, stack.predict_proba(others), rtol=0, atol=1e-6)

    def test_numbers(self) -> None:
        whole = federation("regression", classes=1)
        y = whole.labels[whole.split.train].numpy()
        shift, scale = y.mean(), y.std()
        inside, others = self.scores(whole, (y - shift) / scale)
        stack = Ridge(alpha=1.0).fit(inside, (y - shift) / scale)
        run = fit(whole, FIVE, model=RIDGE, dtype="float64")
        found = run.logits(columns(whole, whole.split.test)).numpy()
        np.testing.assert_allclose(
            found[:, 0], stack.predict(others).ravel() * scale + shift, rtol=0, atol=1e-6 * scale
        )

    def test_counts(self) -> None:
        """Expected counts of least squares become scores as logarithms."""
        whole = federation("count")
        y = whole.labels[whole.split.train].numpy()
        inside, others = self.scores(whole, y / y.mean(), lambda told: np.log(told.clip(0.05)))
        stack = PoissonRegressor(alpha=1 / len(y), tol=1e-12, max_iter=100_000).fit(inside, y[:, 0] / y.mean())
        run = fit(whole, FIVE, model=RIDGE, dtype="float64")
        found = run.logits(columns(whole, whole.split.test))[:, 0].exp().numpy()
        np.testing.assert_allclose(found, stack.predict(others) * y.mean(), rtol=1e-5)

    def test_rows_that_count_differently(self) -> None:
        whole = federation("binary", weighted=True)
        train = whole.split.train
        y, weights = whole.labels[train].numpy(), whole.weights[train].numpy()  # type: ignore[index]
        weights = weights / weights.mean()
        folds, inside, others = fold_numbers(whole), [], []
        for party in whole.parties:
            x = np.concatenate([party.columns.numpy(), np.ones((whole.rows, 1))], axis=1)
            model, told, mean = Ridge(alpha=2 * BETA * 120, fit_intercept=False), np.zeros(len(y)), []
            for j in range(5):
                model.fit(x[train][folds != j], y[folds != j, 0], sample_weight=weights[folds != j])
                told[folds == j] = model.predict(x[train][folds == j])
                mean.append(model.predict(x[whole.split.test]))
            inside.append(told)
            others.append(np.mean(mean, axis=0))
        stack = LogisticRegression(C=1.0, tol=1e-12, max_iter=10_000).fit(np.stack(inside, 1), y[:, 0], weights)
        run = fit(whole, FIVE, model=RIDGE, dtype="float64")
        found = run.logits(columns(whole, whole.split.test))[:, 0].numpy()
        np.testing.assert_allclose(found, stack.decision_function(np.stack(others, 1)), rtol=0, atol=1e-6)


class TestMessages:
    def test_labels_go_down_once_and_scores_come_up_once(self) -> None:
        whole = federation()
        run = fit(whole, FIVE, model=RIDGE)
        assert run.training.rounds == 1
        sent = [(e.owner, e.rows) for e in run.ledger if e.purpose is Purpose.TRAIN and e.owner != COORDINATOR]
        assert sent == [(party, 150) for party in whole.names]
        told = [e for e in run.ledger if e.owner == COORDINATOR and e.rows]
        assert [(e.number, e.rows, e.event.name) for e in told] == [(1, 150, "none")]
        assert run.score is not None

    def test_large_tables_come_in_pieces(self) -> None:
        """The same stack in the end: a pass of several rounds is one message that did not fit."""
        whole = federation()
        one, pieces = (
            fit(whole, FIVE, model=RIDGE, dtype="float64", schedule=schedule, evaluate_every=0)
            for schedule in ({}, {"batch": 40})
        )
        assert pieces.training.rounds == 4
        rows = columns(whole, whole.split.test)
        again = fit(whole, FIVE, model=RIDGE, schedule={"batch": 40}, evaluate_every=0, epochs=60)
        assert again.training.rounds == 4, "a second pass would say the same again"
        torch.testing.assert_close(pieces.logits(rows), one.logits(rows), rtol=0, atol=1e-9)

    @pytest.mark.parametrize("model", [RIDGE, TREES, {"hidden": 6, "embedding": 4}], ids=["ridge", "trees", "networks"])
    def test_no_score_knows_the_label_of_its_row(self, model: dict[str, Any]) -> None:
        """Other labels in one fold: the scores of its rows stay, those of other rows change."""
        whole = federation()
        folds, train = fold_numbers(whole), whole.split.train
        other = whole.labels.clone()
        other[train[folds == 2]] = 1 - other[train[folds == 2]]
        told = []
        for labels in (whole.labels, other):
            trainer = open_trainer(
                replace(whole, labels=labels),
                OneMessage(folds=5, local_steps=4),
                model=ModelSettings(**model),
                rounds=1,
                schedule={"batch": 1000},
            )
            for _ in rounds_of(trainer):
                pass
            told.append(trainer.coordinator.state["cache.scores"][:, train])
        assert torch.equal(told[0][:, folds == 2], told[1][:, folds == 2])
        assert all((told[0][:, folds == j] != told[1][:, folds == j]).any() for j in (0, 1, 3, 4))

    def test_a_score_takes_a_byte_and_a_prediction_depends_on_nobody_else(self) -> None:
        """128 rows that train share a scale; rows to predict have their own."""
        whole, wire = federation(), {"numbers": "int8"}
        full, run = (fit(whole, FIVE, model=RIDGE, dtype="float64", wire=one) for one in ({}, wire))
        saved = full.traffic.rounds[0].up - run.traffic.rounds[0].up
        assert all(150 * 7 - 100 < one < 150 * 7 for one in saved.tolist())  # 8 bytes became 1; headers say more
        rows = columns(whole, whole.split.test)
        alone = torch.cat([run.logits({party: x[k : k + 1] for party, x in rows.items()}) for k in range(10)])
        assert torch.equal(run.logits(rows)[:10], alone)

    def test_a_secure_sum_is_refused(self) -> None:
        with pytest.raises(ConfigError, match="this method needs every party's upload by itself"):
            fit(federation(), FIVE, model=RIDGE, privacy={"secure_sum": {"use": True}})

    def test_nobody_goes_on_without_a_party(self, tmp_path: Path) -> None:
        options: dict[str, Any] = {"data": {"widths": (2, 2)}, "method": {"name": "one_message"}, "model": RIDGE}
        scene = Room.of(tmp_path, ("party_0", "party_1"), absence={"then": "continue"}, training={}, **options)
        with pytest.raises(ConfigError, match="one_message asks every party once"), scene:
            scene.train()

    def test_too_few_rows_for_the_folds(self) -> None:
        with pytest.raises(ConfigError, match="40 folds need at least 80 training rows; there are 54"):
            fit(small(), OneMessage(folds=40), model=RIDGE)


class TestProtectedLabels:
    def test_the_true_labels_weigh_the_scores_and_never_leave(self) -> None:
        """Other true labels behind the same noisy ones: another stack, and not one other byte to a party."""
        seen = []
        for flip in (False, True):
            trainer = open_trainer(federation(), FIVE, model=ModelSettings(**RIDGE), privacy=NOISY, rounds=3)
            side = trainer.coordinator
            if flip:
                truth = side.truth.clone()
                truth[:100] = 1 - truth[:100]
                side.home = PlainLabels.of(truth, side.schema.task, side.schema.train)
            sent = [one.down.everyone.payload for one in rounds_of(trainer)]
            seen.append((sent, side.state["stack.weight"].clone()))
        assert seen[0][0] == seen[1][0]
        assert not torch.allclose(seen[0][1], seen[1][1], atol=1e-2)

    def test_they_are_evaluated_once(self) -> None:
        run = fit(federation(), FIVE, model=RIDGE, privacy=NOISY, rounds=4, schedule={"batch": 40})
        assert [entry["round"] for entry in run.history if "score" in entry] == [4]

    def test_what_goes_down_is_noisy(self) -> None:
        whole = federation()
        run = fit(whole, FIVE, model=RIDGE, privacy=NOISY)
        told = [e.event.name for e in run.ledger if e.owner == COORDINATOR and e.rows]
        assert told == ["randomised response"]
        assert run.score is not None
        assert run.score > 0.6  # AUC, of labels that were kept with probability 0.73
        told = " ".join(statement_of_run(run).lines())
        assert "(exposure EPS). The true labels stayed with their holder" in told
        plain = statement_of_run(fit(whole, FIVE, model=RIDGE))
        assert "The true labels stayed" not in " ".join(plain.lines())

    @pytest.mark.parametrize("model", [RIDGE, TREES, {"hidden": 6, "embedding": 4}], ids=["ridge", "trees", "networks"])
    def test_the_guest_fits_the_true_labels_and_nobody_else_gets_them(self, model: dict[str, Any]) -> None:
        """The guest's scores are those of plain labels, the others' those of noisy ones; in both engines."""
        whole = small(widths=(4, 4, 4), rows=250, task="binary")  # one group, where local models can be in one
        told = {}
        for name, engine, guest, privacy in (
            ("plain", "loop", "", {}),
            ("noisy", "loop", "", NOISY),
            ("guest", "loop", "party_1", NOISY),
            ("stacked", "stacked", "party_1", NOISY),
        ):
            method = OneMessage(folds=5, local_steps=4, guest=guest)
            options: dict[str, Any] = {"engine": engine, "dtype": "float64", "rounds": 1, "schedule": {"batch": 1000}}
            trainer = open_trainer(whole, method, model=ModelSettings(**model), privacy=privacy, **options)
            sent = [one.down for one in rounds_of(trainer)]
            told[name] = trainer.coordinator.state["cache.scores"][:, whole.split.train]
            if guest:
                labels = [e for e in trainer.ledger if e.owner == COORDINATOR and e.rows]
                entries = {e.audience: (e.event.name, e.rows) for e in labels}
                noisy = ("randomised response", 150)
                assert entries == {"party_0": noisy, "party_1": ("none", 150), "party_2": noisy}
                told[f"{name} messages"] = {party: one.payload for party, one in sent[0].own.items()}
        assert torch.equal(told["guest"][1], told["plain"][1])
        assert torch.equal(told["guest"][[0, 2]], told["noisy"][[0, 2]])
        assert not torch.allclose(told["plain"], told["noisy"], atol=1e-2)
        torch.testing.assert_close(told["stacked"], told["guest"], rtol=0, atol=1e-9)
        bits = {party: decode(payload)[1]["flags.targets"] for party, payload in told["guest messages"].items()}
        assert torch.equal(bits["party_0"], bits["party_2"])
        assert not torch.equal(bits["party_0"], bits["party_1"])

    def test_the_party_whose_table_has_the_labels_is_the_guest(self) -> None:
        pd = pytest.importorskip("pandas")
        drawn = np.random.default_rng(0).normal(size=(120, 4))
        bank = pd.DataFrame({"income": drawn[:, 0], "age": drawn[:, 1], "churn": (drawn[:, 0] > 0).astype(int)})
        telco = pd.DataFrame({"minutes": drawn[:, 2], "calls": drawn[:, 3]})
        split: dict[str, Any] = {"stratify": False}
        whole = Federation.from_tables({"telco": telco, "bank": bank}, labels="churn", task="binary", split=split)
        options: dict[str, Any] = {"model": RIDGE, "privacy": NOISY}
        run = fit(whole, "one_message", folds=5, **options)
        assert run.method.guest == "bank"  # type: ignore[attr-defined]
        said = " ".join(statement_of_run(run).lines())
        assert "against all parties but bank (exposure EPS)" in said
        assert "bank belongs to the label holder and got the true labels" in said
        assert statement_of_run(run).to_json()["label_guest"] == "bank"
        assert fit(whole, "one_message", folds=5, guest="", **options).method.guest == ""  # type: ignore[attr-defined]
        assert whole.only(["telco"]).guest is None

    def test_a_guest_that_is_no_party(self) -> None:
        with pytest.raises(ConfigError, match=r"guest = 'bank' is no party of this run \(party_0, party_1, party_2\)"):
            fit(federation(), "one_message", folds=5, model=RIDGE, guest="bank")

    @pytest.mark.parametrize("mechanism", ["alibi", "randomised_response"])
    @pytest.mark.parametrize("task", ["binary", "multiclass", "multilabel"])
    def test_a_guest_where_noisy_labels_have_another_form(self, task: str, mechanism: str) -> None:
        """Shares of classes, for instance; and labels of so little noise are the true ones to everybody."""
        whole, told = federation(task), []
        for guest in ("", "party_2"):
            privacy = {"labels": {"mechanism": mechanism, "epsilon": 200.0}}
            trainer = open_trainer(
                whole,
                OneMessage(folds=5, guest=guest),
                model=ModelSettings(**RIDGE),
                dtype="float64",
                privacy=privacy,
                rounds=1,
            )
            list(rounds_of(trainer))
            told.append(trainer.coordinator.state["cache.scores"])
        torch.testing.assert_close(told[1], told[0], rtol=0, atol=0.05)

    def test_a_method_that_replies_may_not_see_them(self) -> None:
        with pytest.raises(GateError, match="one_message fits with true labels and replies"):
            fit_at_home(FIVE, {}, Reply({"v": torch.zeros(1)}), PlainLabels(torch.zeros(1), TASKS["binary"](1)))


class TestAnySubset:
    @pytest.mark.parametrize("task", ALL)
    def test_a_subset_predicts_what_a_federation_of_it_would(self, task: str) -> None:
        """Parties do not know of each other, so the stack without one is that of a training without it."""
        whole = federation(task)
        run = fit(whole, FIVE, model=RIDGE, dtype="float64")
        for some in [*combinations(whole.names, 1), *combinations(whole.names, 2)]:
            fewer = fit(whole.only(some), FIVE, model=RIDGE, dtype="float64")
            wanted = fewer.logits({p: x for p, x in columns(whole, whole.split.test).items() if p in some})
            torch.testing.assert_close(without(run, whole, some), wanted, rtol=0, atol=1e-7)

    def test_everybody_is_a_subset_too(self) -> None:
        whole = federation()
        run = fit(whole, FIVE, model=RIDGE)
        everybody = run.logits(columns(whole, whole.split.test))
        torch.testing.assert_close(without(run, whole, whole.names), everybody, rtol=0, atol=1e-5)

    def test_many_parties_have_one_stack_and_are_combined_by_validation_rows(self) -> None:
        whole = small(widths=(2,) * 9, rows=600, task="binary")
        run = fit(whole, FIVE, model=RIDGE)
        assert len(run.state["stack.bias"]) == 1
        everybody = run.logits(columns(whole, whole.split.test))
        torch.testing.assert_close(without(run, whole, whole.names), everybody, rtol=0, atol=1e-5)
        fewer = fit(whole.only(whole.names[:8]), "one_message", model=RIDGE)
        some, truth = without(run, whole, whole.names[:8]), whole.labels[whole.split.test]
        log_loss = METRICS["log_loss"]
        rest = {p: x for p, x in columns(whole, whole.split.test).items() if p in whole.names[:8]}
        assert log_loss(whole.task, some, truth) < log_loss(whole.task, fewer.logits(rest), truth) + 0.03


def without(run: Run, whole: Federation, some: Any) -> Tensor:
    """The prediction of the test rows from some of the parties; the others' places hold no numbers."""
    rows = columns(whole, whole.split.test)
    parts = {p: run.model.part(p).predict(rows[p])["o"] for p in whole.names}
    schema = open_parts(run.model.design, list(run.model.parts.values()), Ledger(), Protection()).schema
    groups, present = [], []
    for group in schema.groups:
        told = [parts[p] if p in some else torch.full_like(parts[p], torch.nan) for p in group.parties]
        groups.append({"o": torch.stack(told)})
        present.append(torch.tensor([p in some for p in group.parties]))
    return outputs_of(run.method, run.task, run.state, Uploads(tuple(groups)), present)


def measured(run: Run, whole: Federation, metric: str) -> float:
    """A metric of the test rows."""
    rows = whole.split.test
    return METRICS[metric](whole.task, run.logits(columns(whole, rows)), whole.labels[rows])


class TestLocalModels:
    @pytest.mark.parametrize("task", ALL)
    @pytest.mark.parametrize("model", [RIDGE, TREES, {"hidden": 16, "embedding": 8}], ids=["ridge", "trees", "network"])
    def test_every_task(self, task: str, model: dict[str, Any]) -> None:
        """Better than a constant guess, which has AUC 1/2, R2 0 and the worst deviance."""
        whole = federation(task, rows=400)
        run = fit(whole, OneMessage(folds=3, local_steps=40), model=model)
        metric = {"binary": "auc", "regression": "r2", "count": "r2"}.get(task, "accuracy")
        least = {"binary": 0.75, "multiclass": 0.5, "multilabel": 0.65, "regression": 0.4, "count": 0.1}[task]
        assert measured(run, whole, metric) > least

    def test_all_kinds_together_and_again_after_an_interruption(self, tmp_path: Path) -> None:
        whole = small(widths=(4, 3, 2, 3), rows=250, task="binary")
        settings: dict[str, Any] = {"model": {"hidden": 6, "embedding": 4, "party_0": TREES}, "encoders": mixed()}
        method = OneMessage(folds=5, local_steps=10)
        wanted = fit(whole, method, out=tmp_path / "whole", schedule={"batch": 40}, rounds=4, **settings)

        def interrupt(now: Any) -> None:
            if now.round == 2:
                raise KeyboardInterrupt

        options = {**settings, "schedule": {"batch": 40}, "rounds": 4, "checkpoint_every": 1}
        with pytest.raises(KeyboardInterrupt):
            fit(whole, method, out=tmp_path / "run", watch=interrupt, **options)
        again = resume(tmp_path / "run", whole, encoders=mixed())
        assert again.fingerprint() == wanted.fingerprint()
        assert untimed(again.history) == untimed(wanted.history)
        assert set(again.about["machine"]["libraries"]) == {"lightgbm", "sklearn"}
        loaded, rows = Run.load(tmp_path / "run", encoders=mixed()), columns(whole, whole.split.test)
        assert torch.equal(loaded.logits(rows), wanted.logits(rows))

    @pytest.mark.parametrize("task", ["binary", "multiclass", "multilabel"])
    @pytest.mark.parametrize(
        "estimator",
        [LogisticRegression(), RandomForestClassifier(5), LinearSVC()],
        ids=["logistic", "forest", "no probabilities"],
    )
    def test_classifiers(self, task: str, estimator: Any) -> None:
        whole = federation(task)
        run = fit(whole, OneMessage(folds=2), encoders=dict.fromkeys(whole.names, estimator))
        assert measured(run, whole, "accuracy") > {"binary": 0.65, "multiclass": 0.5, "multilabel": 0.65}[task]

    def test_the_score_of_a_classifier_is_its_log_odds(self) -> None:
        whole = federation()
        run = fit(whole, FIVE, encoders=dict.fromkeys(whole.names, LogisticRegression()), dtype="float64")
        party, folds, train = whole.parties[0], fold_numbers(whole), whole.split.train
        scaled = (party.columns - party.columns[train].mean(dim=0)) / party.columns[train].std(dim=0, correction=0)
        y = whole.labels[:, 0].numpy()
        wanted = [
            LogisticRegression().fit(scaled[train][folds != j], y[train][folds != j]).decision_function(scaled[:20])
            for j in range(5)
        ]
        found = run.model.part(party.name).predict(party.columns[:20])["o"][:, 0].numpy()
        np.testing.assert_allclose(found, np.mean(wanted, axis=0), rtol=0, atol=1e-6)

    @pytest.mark.parametrize("task", ["binary", "multiclass", "count"])
    def test_trees_explain_the_columns_of_their_scores(self, task: str) -> None:
        """By LightGBM's own SHAP values, the mean of the folds': they add up to the upload."""
        whole = federation(task)
        run = fit(whole, FIVE, model=TREES, dtype="float64")
        part, x = run.model.part("party_0"), whole.parties[0].columns[:9]
        told = part.contributions(x)
        torch.testing.assert_close(told.base + told.values.sum(dim=1), part.predict(x)["o"], rtol=0, atol=1e-6)
        assert told.way.startswith("as the local model says itself")

    def test_a_classifier_cannot_guess_numbers(self) -> None:
        with pytest.raises(ModelError, match=r"LogisticRegression is a classifier, and the labels of a .* are numbers"):
            fit(federation("regression"), FIVE, encoders={"party_0": LogisticRegression()})

    def test_rows_cannot_count_differently_for_one_that_takes_no_weights(self) -> None:
        with pytest.raises(ModelError, match="fit of KNeighborsClassifier takes no sample_weight"):
            fit(federation(weighted=True), FIVE, encoders={"party_0": KNeighborsClassifier()})


def mixed() -> Any:
    """party_0 has trees and party_1 a network, by settings."""
    return {"party_2": RandomForestClassifier(3, random_state=0), "party_3": HistGradientBoostingRegressor(max_iter=3)}


@dataclass(frozen=True)
class MixedTrial(SmallTrial):
    """Two organisations bring estimators of their own."""

    def setup(self, name: str) -> PartySetup:
        return replace(super().setup(name), encoders=mixed() if name in mixed() else None)


def test_organisations_compute_what_one_process_computes(tmp_path: Path) -> None:
    """The whole training, predictions by a party that has been started again since, and those without one."""
    data: dict[str, Any] = {"widths": (4, 3, 2, 3), "rows": 120, "task": "binary"}
    whole = small(**data)
    model = {"hidden": 6, "embedding": 4, "party_0": TREES}
    training: dict[str, Any] = {"rounds": 1, "dtype": "float64", "schedule": {"batch": 1000}}
    scene = Room.of(
        tmp_path, whole.names, data=data, method={"name": "one_message", "folds": 5, "local_steps": 4}, model=model,
        training=training, absence={"patience": 2},
    )  # fmt: skip
    scene.trial = MixedTrial(**{name: getattr(scene.trial, name) for name in scene.trial.__dataclass_fields__})
    with scene:
        run = scene.train()
        scene.leave("party_0")
        scene.arrive("party_0")
        found = scene.predict(Wish(whole.split.test))
        scene.leave("party_2")
        fewer = scene.predict(Wish(whole.split.test, absent="leave-out", patience=0.5))
    options: dict[str, Any] = {"model": ModelSettings(**model), "engine": "loop", **training}
    loop = open_trainer(whole, OneMessage(folds=5, local_steps=4), encoders=mixed(), **options).train()
    assert untimed(run.history) == untimed(loop.history)
    assert torch.equal(found.logits, loop.logits(columns(whole, whole.split.test)))
    rest = whole.only([name for name in whole.names if name != "party_2"])
    encoders = {name: made for name, made in mixed().items() if name != "party_2"}
    alone = open_trainer(rest, OneMessage(folds=5, local_steps=4), encoders=encoders, **options).train()
    assert fewer.left_out == ("party_2",)
    torch.testing.assert_close(fewer.logits, alone.logits(columns(rest, rest.split.test)), rtol=0, atol=1e-6)


def test_true_labels_go_to_the_label_holders_own_organisation_only(tmp_path: Path) -> None:
    """The noise between organisations is nobody's to repeat, so parts are held against those of plain labels."""
    data: dict[str, Any] = {"widths": (3, 3), "rows": 120, "task": "binary"}
    training: dict[str, Any] = {"rounds": 1, "dtype": "float64", "schedule": {"batch": 1000}}
    method = {"name": "one_message", "folds": 5, "guest": "party_0"}
    options: dict[str, Any] = {"data": data, "method": method, "model": RIDGE, "training": training, "privacy": NOISY}
    with Room.of(tmp_path, ("party_0", "party_1"), **options) as scene:
        run = scene.train()
    plain = fit(small(**data), FIVE, model=RIDGE, **training)
    told = {e.audience: e.event.name for e in run.ledger if e.owner == COORDINATOR and e.rows}
    assert told == {"party_0": "none", "party_1": "randomised response"}
    parts = {name: Part.load(scene.trial.place(name)) for name in ("party_0", "party_1")}
    rows = {party.name: party.columns[:20] for party in small(**data).parties}
    scores = {name: part.predict(rows[name])["o"] for name, part in parts.items()}
    wanted = {name: plain.model.part(name).predict(rows[name])["o"] for name in parts}
    assert torch.equal(scores["party_0"], wanted["party_0"])
    assert not torch.allclose(scores["party_1"], wanted["party_1"], atol=1e-3)
    assert "against all parties but party_0" in " ".join(statement_of_run(run).lines())
    wrong = {**options, "method": {"name": "one_message", "folds": 5, "guest": "bank"}}
    with (
        pytest.raises(ConfigError, match="guest = 'bank' is no party"),
        Room.of(tmp_path / "wrong", ("party_0", "party_1"), **wrong) as scene,
    ):
        scene.train()


def test_rounds_of_some_parties_are_refused() -> None:
    """No row would have the scores of all, and the model would be a constant."""
    with pytest.raises(ConfigError, match="one_message asks every party once about every row"):
        fit(small(), "one_message", schedule={"participation": 0.5})
