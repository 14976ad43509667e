"""Weights of rows and classes in every method: rows repeated, scikit-learn's weighted solvers, and what is refused."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression, PoissonRegressor, Ridge

from colonnade.engines.coordinator import CoordinatorSide
from colonnade.errors import ConfigError, DataError, RunError
from colonnade.evaluate.metrics import METRICS
from colonnade.federation import Federation, RowSplit
from colonnade.fit import fit, resume
from colonnade.methods import VIMADMMJ, FedMVT, LinearADMM, LocalOnly
from colonnade.models.encoders import ModelSettings
from colonnade.models.optimise import SGD
from colonnade.run import Run
from tests.contracts.registry import EVERY, make
from tests.federations import small
from tests.trainers import ENGINES, open_trainer

MODEL = ModelSettings(hidden=6, embedding=4, scale_columns="never")
WHOLE = {"batch": 1000}
SHORT: dict[str, Any] = {"rounds": 4, "evaluate_every": 0, "schedule": WHOLE, "model": MODEL, "dtype": "float64"}
BY_PENALTY = {"linear_admm", "vimadmm", "vimadmm_j"}  # a repeated row has two penalty terms, a heavy one has one
NOT_REPEATED = {  # attention reads a repeated row twice; a dither is drawn for each place of a row; folds are drawn
    "fedmvt", "c_vfl", "one_message",
}  # fmt: skip
TRAIN, ROWS = 30, 40


def data(seed: int = 0, rows: int = ROWS) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
    """Columns of two parties, yes/no labels, and whole numbers as weights."""
    rng = np.random.default_rng(seed)
    columns = {"bank": rng.normal(size=(rows, 3)), "telco": rng.normal(size=(rows, 2))}
    score = columns["bank"][:, 0] + columns["telco"][:, 0] + rng.normal(size=rows)
    return columns, (score > 0.3).astype(int), rng.integers(1, 4, size=rows)


def split(train: int, rows: int) -> RowSplit:
    return RowSplit(torch.arange(train), torch.arange(train, rows), torch.arange(0))


def made(weights: Any = None, labels: Any = None, **settings: Any) -> Federation:
    columns, y, _ = data()
    given = y if labels is None else labels
    return Federation.from_arrays(columns, given, split=split(TRAIN, ROWS), weights=weights, **settings)


def repeated() -> Federation:
    """Every training row as often as its weight says."""
    columns, y, k = data()
    at = np.concatenate([np.repeat(np.arange(TRAIN), k[:TRAIN]), np.arange(TRAIN, ROWS)])
    several = {name: x[at] for name, x in columns.items()}
    return Federation.from_arrays(several, y[at], split=split(int(k[:TRAIN].sum()), len(at)))


def apart(one: Run, two: Run) -> float:
    """The largest difference of any number of the parties' models."""
    return max(float((t - two.models[p][name]).abs().max()) for p, m in one.models.items() for name, t in m.items())


def quiet(name: str) -> Any:
    return make(name, **({"noise": False} if name == "vfl_pbm" else {}))


@cache
def trained(name: str, weighted: bool = False) -> Run:
    """With weights of rows or without; several tests compare with it."""
    return fit(made(data()[2] if weighted else None), quiet(name), **SHORT)


@pytest.mark.parametrize("name", sorted(set(EVERY) - BY_PENALTY - NOT_REPEATED))
def test_a_weight_of_k_trains_as_k_rows_do(name: str) -> None:
    one, two = trained(name, weighted=True), fit(repeated(), quiet(name), **SHORT)
    assert apart(one, two) < 1e-12
    assert apart(one, trained(name)) > 1e-6


def test_compressed_uploads_train_as_k_rows_do_up_to_the_dither() -> None:
    method = make("c_vfl", bits=8)
    one, two, plain = (fit(f, method, **SHORT) for f in (made(data()[2]), repeated(), made()))
    assert apart(one, two) < 0.02 * apart(one, plain)


@pytest.mark.parametrize("name", EVERY)
def test_equal_weights_are_no_weights(name: str) -> None:
    assert apart(fit(made(np.full(ROWS, 7.0)), quiet(name), **SHORT), trained(name)) < 1e-9


@pytest.mark.parametrize("name", EVERY)
def test_weights_of_classes_are_those_of_their_rows(name: str) -> None:
    y = data()[1]
    by_class = fit(made(), quiet(name), class_weights={"1": 4.0}, **SHORT)
    by_row = fit(made(np.where(y == 1, 4.0, 1.0)), quiet(name), **SHORT)
    if name != "fedmvt":  # whose pseudo-labels have a class, and no row weight
        assert apart(by_class, by_row) < 1e-9
    assert apart(by_class, trained(name)) > 1e-6


def test_rows_with_pseudo_labels_weigh_by_class_only() -> None:
    """With a class weight fedmvt's guessed rows count by their guess; a row weight of theirs is not read."""
    columns, y, k = data()
    labelled = np.ones(ROWS, dtype=bool)
    labelled[:10] = False
    other = np.where(labelled, k, 99)
    first, second = (
        fit(
            Federation.from_arrays(columns, y, split=split(TRAIN, ROWS), labelled=labelled, weights=w, classes=2),
            FedMVT(threshold=0.3, host_threshold=0.3),
            **SHORT,
        )
        for w in (k, other)
    )
    assert apart(first, second) == 0.0


# -- ADMM: the minimum of the weighted problem --------------------------------------------------


def design(columns: dict[str, np.ndarray]) -> np.ndarray:
    """What linear_admm sees: each party's columns and a constant."""
    return np.hstack([np.hstack([x, np.ones((len(x), 1))]) for x in columns.values()])


def linear(task: str, labels: np.ndarray, weights: np.ndarray, beta: float) -> np.ndarray:
    """Outputs of a long full-batch linear_admm on all rows, with the scale of the labels in them."""
    columns, *_ = data()
    federation = Federation.from_arrays(columns, labels, task=task, split=split(TRAIN, ROWS), weights=weights)
    method = LinearADMM(rho=0.3, beta=beta, kappa=0.0)
    run = fit(federation, method, **{**SHORT, "rounds": 300})
    return outputs(run, federation)


def outputs(run: Run, federation: Federation) -> np.ndarray:
    total = sum(
        np.hstack([p.columns.numpy(), np.ones((ROWS, 1))]) @ run.models[p.name]["head.weight.0"].numpy()
        for p in federation.parties
    )
    scale, shift = run.state.get("target.scale"), run.state.get("target.shift")
    return total[:, 0] if scale is None else (total * scale.numpy() + shift.numpy())[:, 0]


def test_linear_admm_reaches_scikit_learns_weighted_logistic_regression() -> None:
    columns, y, k = data()
    beta, w = 1e-2, k[:TRAIN] / k[:TRAIN].mean()
    slow = LogisticRegression(C=1 / (2 * beta * TRAIN), fit_intercept=False, tol=1e-12, max_iter=10000)
    slow.fit(design(columns)[:TRAIN], y[:TRAIN], sample_weight=w)
    np.testing.assert_allclose(linear("binary", y, k, beta), slow.decision_function(design(columns)), atol=1e-5)


def test_linear_admm_reaches_scikit_learns_weighted_poisson_regression() -> None:
    columns, _, k = data()
    rng = np.random.default_rng(1)
    counts = rng.poisson(np.exp(0.5 * columns["bank"][:, 0] - 0.3 * columns["telco"][:, 1]))
    beta, mean = 1e-2, counts[:TRAIN].mean()
    slow = PoissonRegressor(alpha=2 * beta, fit_intercept=False, tol=1e-12, max_iter=10000)
    slow.fit(design(columns)[:TRAIN], counts[:TRAIN] / mean, sample_weight=k[:TRAIN])
    expected = np.log(slow.predict(design(columns)) * mean)
    np.testing.assert_allclose(linear("count", counts, k, beta), expected, atol=1e-4)


def test_linear_admm_reaches_scikit_learns_weighted_ridge() -> None:
    columns, _, k = data()
    y = columns["bank"][:, 0] - 2 * columns["telco"][:, 1] + np.random.default_rng(2).normal(size=ROWS)
    shift, scale, beta = y[:TRAIN].mean(), y[:TRAIN].std(), 1e-2
    slow = Ridge(alpha=2 * beta * TRAIN, fit_intercept=False, tol=1e-12)
    slow.fit(design(columns)[:TRAIN], (y[:TRAIN] - shift) / scale, sample_weight=k[:TRAIN] / k[:TRAIN].mean())
    np.testing.assert_allclose(
        linear("regression", y, k, beta), slow.predict(design(columns)) * scale + shift, atol=1e-5
    )


def test_vimadmm_j_with_linear_networks_reaches_the_weighted_minimum() -> None:
    columns, y, _ = data()
    slow = LogisticRegression(C=np.inf, fit_intercept=False, class_weight={0: 1.0, 1: 6.0}, tol=1e-10)
    slow.fit(np.hstack([x[:TRAIN] for x in columns.values()]), y[:TRAIN])

    def line(party: str, shape: tuple[int, ...]) -> torch.nn.Module:
        return torch.nn.Linear(shape[0], shape[0], bias=False)

    method = VIMADMMJ(rho=0.3, local_steps=20, optimiser=SGD(lr=1.0, momentum=0.5), damping=1.0)
    settings = {**SHORT, "rounds": 200, "class_weights": {"1": 6.0}, "encoders": line}
    federation = made()
    run = fit(federation, method, **settings)
    found = run.predict_proba(federation.select(torch.arange(ROWS)))[:, 1]
    expected = slow.predict_proba(np.hstack(list(columns.values())))[:, 1]
    np.testing.assert_allclose(found, expected, atol=2e-3)


# -- what weights of rows do besides ------------------------------------------------------------


@pytest.mark.parametrize("name", EVERY)
def test_the_engines_agree(name: str) -> None:
    usual = trained(name, weighted=True)
    (other,) = set(ENGINES) - {usual.training.engine}
    assert apart(usual, fit(made(data()[2]), quiet(name), engine=other, **SHORT)) < 1e-9


def test_metrics_of_validation_and_test_rows_are_weighted() -> None:
    federation = small(rows=200, task="binary")
    heavy = np.random.default_rng(0).uniform(0.1, 5.0, size=200)
    arrays = {p.name: p.columns for p in federation.parties}
    weighted = Federation.from_arrays(arrays, federation.labels[:, 0].long(), split=federation.split, weights=heavy)
    run = fit(weighted, VIMADMMJ(), rounds=6, evaluate_every=2, model=MODEL)
    rows = federation.split.test
    p = run.predict_proba(weighted.select(rows))[:, 1]
    logits = torch.from_numpy(np.log(p / (1 - p)))[:, None]
    for name, found in run.result["metrics"].items():
        expected = METRICS[name](weighted.task, logits, weighted.labels[rows], torch.from_numpy(heavy)[rows])
        assert found["test"] == pytest.approx(expected, abs=1e-5), name
        low, high = found["interval"]
        assert low <= found["test"] <= high
    share = np.average(federation.labels[federation.split.train, 0], weights=heavy[federation.split.train])
    entropy = -(
        np.log(share) * federation.labels[rows, 0].numpy()
        + np.log(1 - share) * (1 - federation.labels[rows, 0].numpy())
    )
    constant = np.average(entropy, weights=heavy[rows])
    assert run.result["metrics"]["log_loss"]["baseline"] == pytest.approx(constant)


def test_the_blend_of_local_only_weighs_validation_rows() -> None:
    settings = {**SHORT, "evaluate_every": 1}
    one, two = (fit(made(w), LocalOnly(), **settings) for w in (data()[2], None))
    assert not torch.equal(one.state["weights"], two.state["weights"])


@pytest.mark.parametrize("name", ["local_only", "fdml", "cafe", "flex_vfl", "adavfl"])
def test_weights_travel_with_the_labels_and_the_ledger_says_so(name: str) -> None:
    for weights, noted in ((data()[2], (("weights", 1.0),)), (None, ())):
        trainer = open_trainer(made(weights), make(name), rounds=2)
        side: CoordinatorSide = trainer.coordinator
        _, down = side.request()
        assert ("weights" in down.common) == bool(noted)
        first = next(iter(trainer.ledger))
        assert first.notes == noted and first.to_json()["parameters"] == noted


def test_a_run_is_not_resumed_with_other_weights(tmp_path: Any) -> None:
    k = data()[2]
    run = fit(made(k), LocalOnly(), out=tmp_path / "run", **SHORT)
    assert run.about["row_weights"] is True
    with pytest.raises(RunError, match="other data"):
        resume(tmp_path / "run", made(k + 1))


def test_taking_rows_takes_their_weights() -> None:
    k = data()[2]
    rows = torch.tensor([3, 1, 35])
    assert made(k).take(rows).weights.tolist() == k[rows].tolist()


# -- labels behind a mechanism ------------------------------------------------------------------

NOISY = {"labels": {"mechanism": "randomised_response", "epsilon": 1.0}}


def test_row_weights_beside_a_label_mechanism_are_refused() -> None:
    with pytest.raises(ConfigError, match="does not cover weights of rows"):
        fit(made(data()[2]), "vimadmm_j", privacy=NOISY, **SHORT)


def test_balanced_beside_a_label_mechanism_is_refused() -> None:
    with pytest.raises(ConfigError, match="counts the plain labels"):
        fit(made(), "vimadmm_j", privacy=NOISY, class_weights="balanced", **SHORT)


@pytest.mark.parametrize("mechanism", ["randomised_response", "alibi"])
@pytest.mark.parametrize("classes", [2, 3])
def test_class_weights_beside_a_label_mechanism_are_beliefs(mechanism: str, classes: int) -> None:
    labels = np.arange(ROWS) % classes
    federation = made(labels=labels, classes=classes, task="binary" if classes == 2 else "multiclass")
    privacy = {"labels": {"mechanism": mechanism, "epsilon": 1.0}}
    trainer = open_trainer(federation, make("fdml"), privacy=privacy, class_weights={"1": 3.0})
    seen, train = trainer.coordinator.labels, federation.split.train
    beliefs = seen.held_out(train)
    yes = beliefs[:, 0] if classes == 2 else beliefs[:, 1]
    raw = 1 + 2 * yes
    torch.testing.assert_close(seen.weights(train, beliefs), raw / raw.mean())
    assert not torch.equal(beliefs.round(), beliefs)


# -- tables -------------------------------------------------------------------------------------


class TestTables:
    def tables(self) -> dict[str, Any]:
        pandas = pytest.importorskip("pandas")
        columns, y, k = data()
        bank = pandas.DataFrame(columns["bank"], columns=["a", "b", "c"]).assign(id=range(ROWS), churn=y, count=k)
        telco = pandas.DataFrame(columns["telco"], columns=["d", "e"]).assign(id=range(ROWS)).sample(frac=1.0)
        return {"bank": bank, "telco": telco}

    def test_a_column_beside_the_labels_is_weights_and_no_column_of_the_model(self) -> None:
        tables = self.tables()
        made = Federation.from_tables(tables, labels="churn", id="id", weights="count")
        assert made.weights.tolist() == data()[2].tolist()
        assert made.plans["bank"].numbers == ("a", "b", "c")
        run = fit(made, "vimadmm_j", rounds=1, model=MODEL)
        assert len(run.predict(tables)) == len(
            run.predict({p: t.drop(columns=["count"], errors="ignore") for p, t in tables.items()})
        )

    def test_an_array_is_in_the_order_of_the_labels(self) -> None:
        tables = self.tables()
        bank = tables["bank"].iloc[::-1]
        made = Federation.from_tables(
            {**tables, "bank": bank.drop(columns="count")}, labels="churn", id="id", weights=bank["count"].to_numpy()
        )
        assert made.weights.tolist() == data()[2][::-1].tolist()

    def test_weights_with_ids_of_their_own_are_refused(self) -> None:
        tables = self.tables()
        heavy = tables["bank"].set_index("id")["count"].sample(frac=1.0, random_state=0)
        with pytest.raises(DataError, match="put them beside the labels as a column"):
            Federation.from_tables(tables, labels="churn", id="id", weights=heavy)

    def test_weights_in_another_table_are_refused(self) -> None:
        with pytest.raises(DataError, match="'bank', which has the labels, has no column 'd' of weights"):
            Federation.from_tables(self.tables(), labels="churn", id="id", weights="d")

    def test_rows_without_a_label_need_no_weight(self) -> None:
        tables = self.tables()
        bank = tables["bank"].astype({"churn": float, "count": float})
        bank.loc[:4, ["churn", "count"]] = float("nan")
        made = Federation.from_tables(
            {**tables, "bank": bank}, labels="churn", id="id", keep="partial", task="binary", weights="count"
        )
        assert made.weights[:5].tolist() == [1.0] * 5
        assert made.weights[5:].tolist() == data()[2][5:].tolist()
