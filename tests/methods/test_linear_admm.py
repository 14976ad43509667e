"""Linear-ADMM: against loops over parties with a generic solver, and against the minimum it should reach."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression

from colonnade.errors import ConfigError
from colonnade.federation import Federation, RowSplit
from colonnade.fit import fit
from colonnade.methods import LinearADMM
from colonnade.models.encoders import ModelSettings
from colonnade.privacy.events import LabelExposure, Unit
from colonnade.privacy.promise import Circumstances
from colonnade.privacy.statement import Statement
from colonnade.wire.messages import Purpose
from tests.contracts.test_sitting_out import slowed
from tests.federations import small
from tests.trainers import ENGINES, open_trainer, rounds_of

FEDERATION = small(rows=60)
RAW = ModelSettings(hidden=6, embedding=4, scale_columns="never")
WHOLE = {"batch": 1000}


def z_step(total: np.ndarray, dual: np.ndarray, y: int, rho: float) -> np.ndarray:
    """One row, by a generic optimiser on the printed objective."""

    def value(z: np.ndarray) -> float:
        loss = np.log(np.exp(z - z.max()).sum()) + z.max() - z[y]
        return float(loss - dual @ z + rho / 2 * ((total - z) ** 2).sum())

    def slope(z: np.ndarray) -> np.ndarray:
        p = np.exp(z - z.max())
        return p / p.sum() - np.eye(len(z))[y] - dual + rho * (z - total)

    return minimize(value, total, jac=slope, method="BFGS", options={"gtol": 1e-12}).x


def slowly(method: LinearADMM, trainer: Any, rounds: int) -> np.ndarray:
    """All logits after so many rounds, the weights of each party found by least squares over stacked rows."""
    d = 0.25 if method.damping is None else method.damping
    columns = [p.columns.double().numpy() for p in FEDERATION.parties]
    if method.intercept:
        columns = [np.hstack([x, np.ones((len(x), 1))]) for x in columns]
    weights = [np.zeros((x.shape[1], 3)) for x in columns]
    dual, y = np.zeros((FEDERATION.rows, 3)), FEDERATION.labels.numpy()
    for number in range(1, rounds + 1):
        rows = trainer.coordinator.schedule.plan(number).rows.numpy()
        uploaded = [x[rows] @ w for x, w in zip(columns, weights, strict=True)]
        total = sum(uploaded)
        z = np.stack([z_step(t, lam, c, method.rho) for t, lam, c in zip(total, dual[rows], y[rows], strict=True)])
        dual[rows] += method.rho * (total - z)
        v = z - total - dual[rows] / method.rho
        for k, x in enumerate(columns):
            eye, b = np.eye(x.shape[1]), len(rows)
            left = [np.sqrt(method.rho / d / b) * x[rows], np.sqrt(2 * method.beta) * eye, np.sqrt(method.kappa) * eye]
            right = [
                np.sqrt(method.rho / d / b) * (uploaded[k] + d * v),
                0 * weights[k],
                np.sqrt(method.kappa) * weights[k],
            ]
            weights[k] = np.linalg.lstsq(np.vstack(left), np.vstack(right), rcond=None)[0]
    return sum(x @ w for x, w in zip(columns, weights, strict=True))


@pytest.mark.parametrize(
    ("method", "batch"),
    [
        (LinearADMM(rho=0.5, kappa=0.0), 1000),
        (LinearADMM(rho=2.0, damping=1.0, beta=0.01), 1000),
        (LinearADMM(kappa=0.3, intercept=False), 12),
    ],
    ids=["damped", "undamped", "small batches"],
)
def test_it_takes_the_printed_steps(method: LinearADMM, batch: int) -> None:
    trainer = open_trainer(FEDERATION, method, model=RAW, rounds=5, evaluate_every=0, schedule={"batch": batch})
    slow = slowly(method, trainer, 5)
    ours = trainer.train().logits({p.name: p.columns for p in FEDERATION.parties})
    assert np.abs(slow).max() > 0.1
    np.testing.assert_allclose(ours.numpy(), slow, rtol=0, atol=1e-6)  # what BFGS reaches


@pytest.mark.parametrize("alike", [False, True])
def test_it_reaches_the_minimum_also_with_alike_parties(alike: bool) -> None:
    """scikit-learn minimises the same: the sum of the losses + |W|^2/(2C), so C = 1/(2 N beta)."""
    rng, beta, count = np.random.default_rng(0), 0.02, 6
    base = rng.normal(size=(240, 4))
    tables = [base if alike else 0.7 * base + 0.7 * rng.normal(size=base.shape) for _ in range(count)]
    y = (sum(tables) @ rng.normal(size=(4, 3)) / count + 0.5 * rng.gumbel(size=(240, 3))).argmax(axis=1)
    rows = torch.arange(240)
    federation = Federation.from_arrays(
        {f"p{k}": x for k, x in enumerate(tables)}, y, task="multiclass", split=RowSplit(rows, rows[:0], rows[:0])
    )
    method = LinearADMM(beta=beta, kappa=0.0, intercept=False)
    run = fit(federation, method, rounds=150, evaluate_every=0, dtype="float64", model=RAW, schedule=WHOLE)
    ours = run.logits({p.name: p.columns for p in federation.parties})
    whole = np.hstack(tables)
    model = LogisticRegression(C=1 / (2 * 240 * beta), fit_intercept=False, tol=1e-10, max_iter=5000).fit(whole, y)
    np.testing.assert_allclose(ours.numpy(), whole @ model.coef_.T, rtol=0, atol=1e-4)


def test_undamped_alike_parties_swing_for_ever_unless_rho_is_large() -> None:
    """14 copies of one party: what the default damping is for."""
    rng = np.random.default_rng(1)
    base = rng.normal(size=(120, 4))
    y = (base @ rng.normal(size=(4, 3))).argmax(axis=1)
    rows = torch.arange(120)
    federation = Federation.from_arrays(
        {f"p{k}": base for k in range(14)}, y, task="multiclass", split=RowSplit(rows, rows[:0], rows[:0])
    )

    def gap(**settings: Any) -> float:
        options = {"model": RAW, "rounds": 60, "evaluate_every": 0, "schedule": WHOLE}
        run = open_trainer(federation, LinearADMM(beta=0.01, kappa=0.0, **settings), **options).train()
        return float("inf") if run.result["diverged"] else run.history[-1]["primal"]

    assert gap(rho=0.5, damping=1.0) > 1
    assert gap(rho=10.0, damping=1.0) < 0.01
    assert gap(rho=0.5) < 0.01


def test_a_round_may_leave_a_party_out() -> None:
    """No step for a party: its weights stay; any number above 0 is one exact solve."""
    trainer = open_trainer(FEDERATION, LinearADMM(), model=RAW, engine="stacked", rounds=1, evaluate_every=0)
    trainer.coordinator.schedule = slowed(trainer.coordinator.schedule)  # party_1: one step, party_2: none
    for _ in rounds_of(trainer):
        pass
    weights = trainer.engine.parties()[0].cohort.head["weight.0"]
    assert weights.abs().amax(dim=(1, 2)).gt(0).tolist() == [True, True, False, True]


def test_the_networks_are_left_as_they_are_and_images_are_flattened() -> None:
    rng = np.random.default_rng(0)
    columns = {f"camera_{k}": rng.normal(size=(30, 3, 5, 5)) for k in range(2)}
    y = (columns["camera_0"][:, 0, 0, 0] > 0).astype(int) + (columns["camera_1"][:, 0, 0, 0] > 0)
    federation = Federation.from_arrays(columns, y, task="multiclass")
    trainer = open_trainer(federation, LinearADMM(), rounds=3, evaluate_every=0)
    before = {k: v.clone() for k, v in trainer.engine.parties()[0].cohort.encoder.parameters.items()}
    run = trainer.train()
    cohort = trainer.engine.parties()[0].cohort
    assert all(torch.equal(before[k], v) for k, v in cohort.encoder.parameters.items())
    assert cohort.head["weight.0"].shape[1:] == (76, 3)
    assert not run.result["diverged"]


def test_parties_can_decode_every_label() -> None:
    """v = z - yhat - lambda/rho with lambda = softmax(z) - y; in round 1 yhat = 0, and v is largest at the label."""
    trainer = open_trainer(FEDERATION, LinearADMM(), model=RAW, rounds=1, evaluate_every=0)
    first, second = (e for _, e in zip(range(2), rounds_of(trainer), strict=False))
    decoded = second.down.common["v"].argmax(dim=1)
    assert torch.equal(decoded, FEDERATION.labels[first.request.queries[0].rows])
    assert LinearADMM.exposes is LabelExposure.FULL


def test_its_own_noise_is_the_published_one_and_stands_in_the_ledger() -> None:
    """W + N(0, sigma^2 (D'D)^-1): a model without anything to learn from shows the noise alone."""
    rng, rows = np.random.default_rng(1), torch.arange(90)
    design = rng.normal(size=(90, 3)) @ np.array([[1.0, 0.5, 0.0], [0.0, 2.0, 0.3], [0.0, 0.0, 0.2]])
    columns = np.hstack([design, np.zeros((90, 1))])  # a column that no row shows gets no noise
    federation = Federation.from_arrays(
        {f"p{k}": columns for k in range(300)}, rng.normal(size=(90, 8)), split=RowSplit(rows, rows[:0], rows[:0])
    )
    method = LinearADMM(noise=0.7, intercept=False, beta=1e9)  # nothing is learnt
    trainer = open_trainer(federation, method, model=RAW, rounds=2, evaluate_every=0, schedule=WHOLE)
    trainer.train()
    drawn = torch.cat([side.cohort.head["weight.0"] for side in trainer.engine.parties()])  # (300, 4, 8)
    assert float(drawn[:, 3].abs().max()) == 0
    seen = drawn[:, :3].permute(0, 2, 1).reshape(-1, 3).numpy()
    np.testing.assert_allclose(np.cov(seen.T), 0.49 * np.linalg.inv(design.T @ design), rtol=0.15, atol=3e-4)
    train = [r for r in trainer.ledger if r.owner != "coordinator" and r.purpose is Purpose.TRAIN]
    assert {(r.mechanism, r.unit, r.parameters) for r in train} == {
        ("model noise", Unit.ROW, (("sigma", 0.7), ("simulated", 1.0)))
    }


def test_a_column_in_small_units_gets_its_noise_too() -> None:
    rng, rows = np.random.default_rng(2), torch.arange(50)
    columns = rng.normal(size=(50, 3)) * np.array([1e5, 1e5, 1.0])
    federation = Federation.from_arrays(
        {f"p{k}": columns for k in range(200)}, rng.normal(size=(50, 2)), split=RowSplit(rows, rows[:0], rows[:0])
    )
    method = LinearADMM(noise=1.0, intercept=False, beta=1e12)
    trainer = open_trainer(federation, method, model=RAW, rounds=2, evaluate_every=0, schedule=WHOLE)
    trainer.train()
    drawn = torch.cat([side.cohort.head["weight.0"] for side in trainer.engine.parties()])[:, 2]
    wanted = np.linalg.inv(columns.T @ columns)[2, 2] ** 0.5
    assert float(drawn.std()) == pytest.approx(wanted, rel=0.2)


def test_no_epsilon_is_printed_for_it() -> None:
    run = fit(small((5,) * 3), LinearADMM(noise=0.1), rounds=2)
    told = Statement.of(run.ledger, run.privacy, Circumstances(run.label_exposure, uploaded=True))
    assert math.isinf(told.epsilon)
    assert "no epsilon: uploads passed the mechanism 'model noise'" in told.verdict()


def test_all_engines_draw_the_same_noise() -> None:
    one, other = (fit(small((5,) * 3), LinearADMM(noise=0.1), rounds=3, engine=engine) for engine in ENGINES)
    plain = fit(small((5,) * 3), LinearADMM(), rounds=3)
    assert one.fingerprint() == other.fingerprint() != plain.fingerprint()


def test_damping_below_one_over_m_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"damping = 0.1 is below 1/M"):
        open_trainer(FEDERATION, LinearADMM(damping=0.1))
