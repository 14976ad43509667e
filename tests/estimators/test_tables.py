"""What may be given to an estimator, what it makes of it, and what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import PoissonRegressor, Ridge

from colonnade import Model, VerticalClassifier, VerticalCountRegressor, VerticalRegressor
from colonnade.errors import ColonnadeError, DoubtfulData, EstimatorInput, RowsDisagree, RowsLeftOut
from colonnade.estimators.kinds import KINDS, Circumstances, Try, tries_of
from colonnade.estimators.tried import Tried, best_of
from tests.estimators.customers import OWNERS, customers

QUICK: dict[str, Any] = {"model": "ridge", "epochs": 8, "random_state": 0}


def tables(rows: int = 160) -> tuple[dict[str, pd.DataFrame], pd.Series]:
    """The same customers as two tables, the second in another order of rows; labels indexed by id."""
    X, y = customers(rows)
    X, y = X.rename_axis("customer"), y.rename_axis("customer")
    bank, telco = X[["income", "age"]].reset_index(), X[["minutes", "city"]].reset_index()
    return {"bank": bank, "telco": telco.sample(frac=1, random_state=1)}, y


class TestOneTable:
    @pytest.mark.parametrize(
        ("owners", "expected"),
        [
            (OWNERS, {"bank": ["income", "age"], "telco": ["minutes", "city"]}),
            ({"bank": ["age"], "telco": ["city", "minutes", "income"]}, None),
            (2, {"party_1": ["income", "age"], "party_2": ["minutes", "city"]}),
            (3, {"party_1": ["income", "age"], "party_2": ["minutes"], "party_3": ["city"]}),
            (9, {"party_1": ["income"], "party_2": ["age"], "party_3": ["minutes"], "party_4": ["city"]}),
        ],
        ids=["by column", "by party", "two blocks", "three blocks", "more parties than columns"],
    )
    def test_who_owns_what(self, owners: Any, expected: dict[str, list[str]] | None) -> None:
        X, y = customers()
        fitted = VerticalClassifier(parties=owners, **QUICK).fit(X, y)
        assert fitted.parties_ == (expected or {"bank": ["age"], "telco": ["income", "minutes", "city"]})
        assert list(fitted.model_.parts) == list(fitted.parties_)
        assert (fitted.n_features_in_, fitted.feature_names_in_.tolist()) == (4, list(X.columns))
        assert fitted.score(X, y) > 0.8

    def test_columns_without_names_are_named_by_number(self) -> None:
        X = np.random.default_rng(0).normal(size=(100, 3))
        fitted = VerticalRegressor(parties={0: "bank", 2: "bank", 1: "telco"}, **QUICK).fit(X, X @ [1.0, 2.0, 3.0])
        assert fitted.parties_ == {"bank": [0, 2], "telco": [1]}
        np.testing.assert_allclose(fitted.predict(X), X @ [1.0, 2.0, 3.0], atol=0.2)

    def test_classes_are_as_the_labels_were_and_sorted(self) -> None:
        X, y = customers()
        fitted = VerticalClassifier(parties=OWNERS, **QUICK).fit(X, y)
        assert fitted.classes_.tolist() == ["leaves", "stays"]
        proba = fitted.predict_proba(X)
        np.testing.assert_array_equal(fitted.predict(X), fitted.classes_[proba.argmax(axis=1)])
        assert fitted.model_.classes == ("leaves", "stays")

    def test_validation_rows_have_the_shares_of_the_classes(self) -> None:
        X, y = customers(200)
        rare = np.where(np.arange(200) < 20, "rare", y.to_numpy())
        fitted = VerticalClassifier(parties=OWNERS, validation_fraction=0.2, **QUICK).fit(X, rare)
        assert fitted.run_.about["rows"] == {"train": 160, "validation": 40, "test": 0}

    def test_the_model_lives_on_without_the_estimator(self, tmp_path: Any) -> None:
        X, y = customers()
        fitted = VerticalClassifier(parties=OWNERS, **QUICK).fit(X, y)
        fitted.model_.save(tmp_path)
        again = Model.load(tmp_path).predict({p: X[columns] for p, columns in fitted.parties_.items()})
        np.testing.assert_array_equal(again.to_numpy(), fitted.predict(X))


class TestDictOfTables:
    def test_rows_are_matched_by_id(self) -> None:
        given, y = tables()
        X, labels = customers()
        together = VerticalClassifier(parties=OWNERS, **QUICK).fit(X, labels)
        apart = VerticalClassifier(id="customer", **QUICK).fit(given, labels.to_numpy())
        np.testing.assert_allclose(apart.predict_proba(given), together.predict_proba(X), atol=1e-9)
        by_id = VerticalClassifier(id="customer", **QUICK).fit(given, y.sample(frac=1, random_state=2))
        assert by_id.run_.fingerprint() == apart.run_.fingerprint()
        assert apart.feature_names_in_.tolist() == ["bank.income", "bank.age", "telco.minutes", "telco.city"]
        assert apart.n_features_in_ == 4

    def test_answers_are_in_the_order_of_the_first_table(self) -> None:
        given, y = tables()
        fitted = VerticalClassifier(id="customer", **QUICK).fit(given, y)
        first = fitted.predict_proba(given)
        turned = {"bank": given["bank"][::-1], "telco": given["telco"]}
        np.testing.assert_allclose(fitted.predict_proba(turned), first[::-1], atol=1e-12)

    def test_the_score_is_that_of_labels_matched_by_id(self) -> None:
        given, y = tables()
        fitted = VerticalClassifier(id="customer", **QUICK).fit(given, y)
        expected = fitted.score(given, y.to_numpy())
        turned = y.sample(frac=1, random_state=2)
        assert expected > 0.8
        assert fitted.score(given, turned) == expected
        weights = pd.Series(np.linspace(0.5, 2.0, len(y)), index=y.index)
        weighted = fitted.score(given, y.to_numpy(), weights.to_numpy())
        assert fitted.score(given, turned, weights) == fitted.score(given, turned, weights[turned.index]) == weighted
        counts = (y == "stays").astype(int)
        for kind in (VerticalRegressor, VerticalCountRegressor):
            regressor = kind(id="customer", **QUICK).fit(given, counts)
            assert regressor.score(given, counts.loc[turned.index]) == regressor.score(given, counts.to_numpy())

    def test_another_order_by_the_index_is_refused(self) -> None:
        X, y = customers()
        turned = y.sample(frac=1, random_state=2)
        fitted = VerticalClassifier(parties=OWNERS, **QUICK).fit(X, y)
        with pytest.raises(RowsDisagree, match="y: the index has the same rows as that of X, in another order"):
            VerticalClassifier(parties=OWNERS, **QUICK).fit(X, turned)
        with pytest.raises(RowsDisagree, match="y: the index"):
            fitted.score(X, turned)
        apart = {"bank": X[["income", "age"]], "telco": X[["minutes", "city"]]}
        with pytest.raises(RowsDisagree, match=r"y: the index has the same rows as that of X, party 'bank'"):
            VerticalClassifier(**QUICK).fit(apart, turned)
        fitted = VerticalClassifier(**QUICK).fit(apart, y)
        with pytest.raises(RowsDisagree, match="X, party 'telco': the index"):
            fitted.predict({**apart, "telco": apart["telco"][::-1]})
        given, by_id = tables()
        with pytest.raises(RowsDisagree, match="sample_weight: the index"):
            VerticalClassifier(id="customer", **QUICK).fit(given, by_id, sample_weight=pd.Series(1.0, turned.index))
        with pytest.raises(RowsDisagree, match="y: the index has the ids of the rows in another order"):
            VerticalClassifier(id="customer", **QUICK).fit(given, turned)

    def test_rows_that_one_table_lacks_are_left_out_with_a_warning(self) -> None:
        given, y = tables()
        some = {"bank": given["bank"], "telco": given["telco"].iloc[10:]}
        with pytest.warns(RowsLeftOut, match=r"party 'bank': 10 of 160, party 'telco': 0 of 150"):
            fitted = VerticalClassifier(id="customer", **QUICK).fit(some, y)
        assert fitted.run_.about["rows"] == {"train": 127, "validation": 23, "test": 0}

    def test_without_an_id_rows_are_matched_by_position(self) -> None:
        X, y = customers()
        given = {"bank": X[["income", "age"]], "telco": X[["minutes", "city"]]}
        together = VerticalClassifier(parties=OWNERS, **QUICK).fit(X, y)
        assert VerticalClassifier(**QUICK).fit(given, y).run_.fingerprint() == together.run_.fingerprint()


class TestWeights:
    def test_rows_of_weight_zero_are_as_if_not_there(self) -> None:
        X, y = customers()
        weights = np.ones(len(X))
        weights[::4] = 0
        weighted = VerticalClassifier(parties=OWNERS, **QUICK).fit(X, y, sample_weight=weights)
        without = VerticalClassifier(parties=OWNERS, **QUICK).fit(X[weights > 0], y[weights > 0])
        np.testing.assert_allclose(weighted.predict_proba(X), without.predict_proba(X), atol=1e-9)

    def test_weights_of_a_dict_of_tables_follow_their_rows(self) -> None:
        given, y = tables()
        weights = np.linspace(0.5, 2.0, len(y))
        X, labels = customers()
        together = VerticalClassifier(parties=OWNERS, **QUICK).fit(X, labels, sample_weight=weights)
        order = np.random.default_rng(0).permutation(len(y))
        by_id = pd.Series(weights, y.index)
        for heavy in (weights[order], by_id.iloc[order], by_id):  # in the order of the labels, or by id themselves
            apart = VerticalClassifier(id="customer", **QUICK).fit(given, y.iloc[order], sample_weight=heavy)
            np.testing.assert_allclose(apart.predict_proba(given), together.predict_proba(X), atol=1e-9)

    def test_class_weights_move_decisions_to_the_class(self) -> None:
        X, y = customers()
        shares = [
            (VerticalClassifier(parties=OWNERS, class_weight=weight, **QUICK).fit(X, y).predict(X) == "leaves").mean()
            for weight in ({"stays": 5.0}, None, {"leaves": 5.0})
        ]
        assert shares == sorted(shares)
        assert shares[0] < shares[2]


class TestChoice:
    def test_a_linear_problem_is_left_to_ridge(self) -> None:
        rng = np.random.default_rng(0)
        X = rng.normal(size=(150, 20))
        y = X @ rng.normal(size=20) + rng.normal(size=150)
        fitted = VerticalRegressor(epochs=20, random_state=0).fit(X, y)
        assert fitted.chosen_ == "ridge"
        assert set(fitted.tried_) == {"network", "ridge", "shrunk"}
        assert fitted.tried_["ridge"] > fitted.tried_["network"]
        assert fitted.chosen_because_.startswith("ridge: R2 on 22 validation rows, mean of 5 splits: networks 0.")

    def test_few_rows_choose_together_and_train_again_with_all(self) -> None:
        X, y = customers(120)
        fitted = VerticalClassifier(parties=OWNERS, epochs=6, random_state=0).fit(X, y)
        assert fitted.run_.about["rows"] == {"train": 120, "validation": 0, "test": 0}
        assert set(fitted.tried_) == {"network", "ridge", "shrunk"}
        assert "18 validation rows, mean of 5 splits" in fitted.chosen_because_
        assert fitted.n_iter_ == fitted.run_.result["rounds"]

    @pytest.mark.parametrize("most", [110, 10_000])
    def test_it_trains_again_with_the_kind_that_was_chosen(self, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
        """Also where all rows are enough for other kinds than those that trained."""
        monkeypatch.setattr("colonnade.estimators.kinds.MANY", most)
        X, y = customers(120)
        fitted = VerticalClassifier(parties=OWNERS, model=["shrunk", "ridge"], epochs=4, random_state=0).fit(X, y)
        assert fitted.run_.training.schedule.batch == 120
        assert fitted.run_.training.rounds <= 4
        auto = VerticalClassifier(parties=OWNERS, epochs=2, random_state=0).fit(X, y)
        assert set(auto.tried_) == {"network", "ridge", "shrunk"}

    def test_a_kind_without_a_score_loses(self) -> None:
        good = Tried(Try("network", {}, 1), None, 1, (0.7, 0.6, 0.65), -1.0, 0.0)  # type: ignore[arg-type]
        broken = Tried(Try("ridge", {}, 1), None, None, (), 1.0, 0.0)  # type: ignore[arg-type]
        assert best_of([broken, good]) is good
        assert broken.score is None

    def test_one_kind_keeps_its_validation_rows(self) -> None:
        X, y = customers(120)
        fitted = VerticalClassifier(parties=OWNERS, **QUICK).fit(X, y)
        assert fitted.run_.about["rows"] == {"train": 102, "validation": 18, "test": 0}

    def test_of_kinds_about_as_good_the_simplest_is_kept(self) -> None:
        def tried(kind: str, *scores: float) -> Tried:
            return Tried(Try(kind, {}, 1), None, 1, scores, 1.0, 0.0)  # type: ignore[arg-type] # no run is needed

        network, ridge, shrunk = (
            tried("network", 0.9, 0.5, 0.7),
            tried("ridge", 0.8, 0.6, 0.6),
            tried("shrunk", 0.4, 0.3, 0.3),
        )
        assert best_of([network, ridge, shrunk]) is ridge
        assert best_of([tried("network", 0.9, 0.7, 0.8), ridge, shrunk]).kind == "network"
        assert best_of([tried("network", 0.7), tried("ridge", 0.69)]).kind == "network"

    def test_large_tables_are_cut_into_pieces(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("colonnade.estimators.kinds.MANY", 200)
        rng = np.random.default_rng(0)
        X = pd.DataFrame(rng.uniform(-1, 1, size=(400, 3)), columns=["income", "age", "minutes"])
        y = np.abs(X["income"]) + np.abs(X["minutes"]) + 0.1 * rng.normal(size=400)
        owners = {"income": "bank", "age": "bank", "minutes": "telco"}
        fitted = VerticalRegressor(parties=owners, model=["ridge", "pieces"], epochs=20, random_state=0).fit(X, y)
        assert fitted.chosen_ == "pieces"
        assert fitted.tried_["pieces"] > 0.8
        assert fitted.tried_["ridge"] < 0.3
        kinds = [one.kind for one in tries_of("auto", Circumstances("vimadmm_j", 400, 2, False, 1200))]
        assert [kind for kind in kinds if kind != "trees"] == ["network", "pieces"]  # those where LightGBM is installed

    def test_arrays_are_not_cut(self) -> None:
        X = np.random.default_rng(0).normal(size=(60, 4))
        for more, told in (
            ({"model": "pieces"}, "cuts columns of data frames"),
            ({"columns": {"pieces": 4}}, "X is an array"),
        ):
            with pytest.raises(EstimatorInput, match=told):
                VerticalRegressor(**more).fit(X, X[:, 0])

    def test_columns_say_how_they_become_numbers(self) -> None:
        X, y = customers(100)
        fitted = VerticalClassifier(parties=OWNERS, columns={"pieces": 3}, **QUICK).fit(X, y)
        plain = VerticalClassifier(parties=OWNERS, **QUICK).fit(X, y)
        assert fitted.run_.plans["bank"].width > plain.run_.plans["bank"].width

    def test_noise_that_many_columns_fit_by_chance_is_left_to_a_larger_penalty(self) -> None:
        rng = np.random.default_rng(1)
        X = rng.normal(size=(140, 60))
        y = X[:, 0] + 3 * rng.normal(size=140)
        fitted = VerticalRegressor(model=["ridge", "shrunk"], epochs=10, random_state=0).fit(X, y)
        assert fitted.chosen_ == "shrunk"

    def test_under_privacy_one_kind_is_trained(self) -> None:
        """Else epsilon would be spent with every kind, and told once."""
        X, y = customers(100)
        privacy = {"mechanism": "gaussian", "clip": 1.0, "epsilon": 4.0}
        fitted = VerticalClassifier(parties=OWNERS, epochs=1, privacy=privacy, random_state=0).fit(X, y)
        assert list(fitted.tried_) == ["network"]
        assert "trying others would spend epsilon again" in fitted.chosen_because_
        with pytest.raises(EstimatorInput, match="each kind that is tried would spend epsilon again"):
            VerticalClassifier(model=["network", "ridge"], parties=OWNERS, privacy=privacy).fit(X, y)
        noisy = VerticalClassifier("vfl_pbm", parties=OWNERS, epochs=1, random_state=0).fit(
            X, y
        )  # brings its own noise
        assert list(noisy.tried_) == ["network"]

    def test_a_curved_problem_is_left_to_networks(self) -> None:
        X = np.random.default_rng(0).normal(size=(300, 4))
        y = np.abs(X[:, 0]) + X[:, 3] ** 2
        fitted = VerticalRegressor(epochs=8, random_state=0).fit(X, y)
        assert fitted.chosen_ == "network"

    @pytest.mark.parametrize(("method", "kinds"), [("fdml", {"network", "linear"}), ("linear_admm", {"own"})])
    def test_only_what_the_method_can_train_is_tried(self, method: str, kinds: set[str]) -> None:
        X, y = customers(100)
        fitted = VerticalClassifier(method, parties=OWNERS, epochs=1, random_state=0).fit(X, y)
        assert set(fitted.tried_) == kinds

    def test_too_few_rows_to_choose_train_one_kind_on_all(self) -> None:
        X, y = customers(40)
        fitted = VerticalClassifier(parties=OWNERS, epochs=3, random_state=0).fit(X, y)
        assert (list(fitted.tried_), fitted.chosen_) == (["network"], "network")
        assert "fewer than 10 rows" in fitted.chosen_because_
        assert fitted.run_.about["rows"] == {"train": 40, "validation": 0, "test": 0}

    def test_every_kind_has_words_and_a_method(self) -> None:
        assert all(kind.words for kind in KINDS.values())


class TestAgainstCentralModels:
    """Rounds of solves lead to what scikit-learn finds with all columns in one place."""

    def test_ridge_regression(self) -> None:
        rng = np.random.default_rng(0)
        X = rng.normal(size=(200, 6))
        y = X @ rng.normal(size=6) + rng.normal(size=200)
        fitted = VerticalRegressor(model="ridge", validation_fraction=0, epochs=200, random_state=0).fit(X, y)
        np.testing.assert_allclose(fitted.predict(X), Ridge(alpha=0.2).fit(X, y).predict(X), atol=0.02)

    def test_poisson_regression(self) -> None:
        rng = np.random.default_rng(0)
        X = rng.normal(size=(400, 4))
        y = rng.poisson(np.exp(0.5 * X[:, 0] - 0.5 * X[:, 3]))
        fitted = VerticalCountRegressor(model="ridge", validation_fraction=0, epochs=30, random_state=0).fit(X, y)
        central = PoissonRegressor(alpha=1e-3).fit(X, y)
        assert fitted.score(X, y) == pytest.approx(central.score(X, y), abs=1e-3)

    def test_counts_with_fractions_are_taken_for_rates_with_a_warning(self) -> None:
        X = np.random.default_rng(0).normal(size=(60, 2))
        with pytest.warns(DoubtfulData, match=r"fractions \(e.g. 0.5\) and are taken for rates"):
            VerticalCountRegressor(**QUICK).fit(X, np.tile([0.5, 1.5], 30))

    @pytest.mark.parametrize("kind", [VerticalRegressor, VerticalCountRegressor])
    def test_numbers_that_are_all_the_same_are_refused_as_scikit_learn_refuses(self, kind: Any) -> None:
        X = np.random.default_rng(0).normal(size=(60, 2))
        with pytest.raises(ValueError, match="needed numbers that differ, to learn how; y is the same in all 60 rows"):
            kind(**QUICK).fit(X, np.full(60, 3.0))


REFUSED: dict[str, tuple[dict[str, Any], Any, Any, str]] = {
    "nobody's column": ({"parties": {"income": "bank", "age": "bank"}}, "X", "y", "column 'minutes' belongs to nobody"),
    "no such column": ({"parties": {**OWNERS, "salary": "bank"}}, "X", "y", "there is no column 'salary'"),
    "two owners": (
        {"parties": {"bank": ["income", "age"], "telco": ["age", "minutes", "city"]}}, "X", "y",
        "column 'age' is given to 'bank' and to 'telco'",
    ),
    "no owners": ({"parties": 0}, "X", "y", "parties = 0: needed a number from 1"),
    "mixed owners": ({"parties": {"bank": ["income"], "age": "telco"}}, "X", "y", "all of one form"),
    "id of one table": ({"id": "customer"}, "X", "y", "id = 'customer' matches the tables of a dict"),
    "name of a label": ({"id": "customer"}, "tables", "churn", r"take the column out of its table: y = table.pop"),
    "too few labels": ({"id": "customer"}, "tables", ["leaves"] * 9, "y has 9 values, and the first table, 'bank',"),
    "an array in the dict": ({}, {"bank": np.zeros((160, 2))}, "y", "party 'bank': needed a data frame; got ndarray"),
    "no tables": ({}, {}, "y", "X has no table"),
    "no labels": ({}, "X", None, "requires y to be passed"),
    "one class": ({}, "X", ["a"] * 160, "needed at least two classes to tell apart; y has one class, 'a'"),
    "unknown kind": ({"model": "rigde"}, "X", "y", "no kind 'rigde'; did you mean 'ridge'"),
    "unsuited kind": ({"model": "ridge", "method": "fdml"}, "X", "y", "FDML is not used with kind 'ridge' here"),
    "no kind": ({"model": 3}, "X", "y", "model = 3: needed 'auto'"),
    "unknown method": ({"method": "vimadm"}, "X", "y", "did you mean 'vimadmm'"),
    "unknown setting": ({"settings": {"roh": 1.0}}, "X", "y", "'roh' is no setting"),
    "no epochs": ({"epochs": 0}, "X", "y", "epochs = 0: needed a whole number from 1"),
    "whole validation": ({"validation_fraction": 1.0}, "X", "y", "validation_fraction = 1.0"),
    "unknown class": ({"class_weight": {"left": 2.0}}, "X", "y", "class_weights names 'left'"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_wrong_input_is_refused_in_one_sentence(case: str) -> None:
    keywords, given, labels, words = REFUSED[case]
    X, y = customers()
    X = X if isinstance(given, str) and given == "X" else tables()[0] if isinstance(given, str) else given
    y = y if isinstance(labels, str) and labels == "y" else labels
    owners = {} if case == "nobody's column" else {"parties": OWNERS}
    with pytest.raises(ColonnadeError, match=words) as refused:
        VerticalClassifier(**{**QUICK, **owners, **keywords}).fit(X, y)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "settings", [{"lr": 0.01}, {"optimiser": {"kind": "sgd", "lr": 0.05}}, {"schedule": {"batch": 64}}]
)
def test_settings_win_over_those_of_the_kind(settings: dict[str, Any]) -> None:
    X, y = customers(100)
    fitted = VerticalClassifier(parties=OWNERS, model="network", epochs=1, settings=settings).fit(X, y)
    method, training = fitted.run_.method.model_dump(), fitted.run_.training
    expected = {"lr": 0.01, "optimiser": 0.05, "schedule": 3e-3}
    assert method["optimiser"]["lr"] == expected[next(iter(settings))]
    assert training.schedule.batch == (64 if "schedule" in settings else 85)


def test_prediction_needs_what_training_had() -> None:
    X, y = customers()
    given, labels = tables()
    together = VerticalClassifier(parties=OWNERS, **QUICK).fit(X, y)
    apart = VerticalClassifier(id="customer", **QUICK).fit(given, labels)
    with pytest.raises(ColonnadeError, match="X is a dict of tables, and the training had one table"):
        together.predict(given)
    with pytest.raises(ColonnadeError, match=r"needed a dict of tables by party, as in training \(bank, telco\)"):
        apart.predict(X)
    with pytest.raises(ValueError, match="same order as they were in fit"):
        together.predict(X[["city", "income", "age", "minutes"]])
