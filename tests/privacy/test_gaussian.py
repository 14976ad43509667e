"""Clipping and noise: what leaves, in law and number by number, in every engine; and the budget that stops it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from colonnade import fit
from colonnade.errors import BudgetSpent, ConfigError, GateError
from colonnade.privacy.accounting import calibrate, exact_epsilon, mean_shift
from colonnade.privacy.gate import Gate
from colonnade.privacy.gaussian import Gaussian, SeededNoise, SystemNoise
from colonnade.privacy.ledger import Ledger
from colonnade.privacy.mechanism import Budget, Protection, Unchanged
from colonnade.privacy.sealed import Array, Upload
from colonnade.privacy.settings import last_affordable
from colonnade.wire.messages import Purpose
from tests.contracts.registry import NAMES, covering, make
from tests.federations import small

PARTIES = ("bank", "telco")
DP = {"mechanism": "gaussian", "clip": 1.0, "sigma": 2.0}
SPEAKING = [name for name in NAMES if make(name).needs_uploads != "nothing" and not make(name).pools]
SPEAKING = [name for name in SPEAKING if name != "c_vfl"]  # it sends codes, which Gaussian noise refuses (test_gate.py)


def upload(scale: float = 1.0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {
        "h": scale * torch.randn(2, 30, 7, generator=generator),
        "o": scale * torch.randn(2, 30, 2, generator=generator),
    }


def clipped(values: dict[str, Tensor], clip: float) -> dict[str, np.ndarray]:
    """Slow and obvious: one party after the other."""
    out: dict[str, list[np.ndarray]] = {name: [] for name in values}
    for k in range(2):
        norm = np.sqrt(sum((v[k].double().numpy() ** 2).sum() for v in values.values()))
        for name, v in values.items():
            out[name].append(v[k].double().numpy() * min(1.0, clip / norm))
    return {name: np.stack(parts) for name, parts in out.items()}


@pytest.mark.parametrize("scale", [1e-3, 1.0, 50.0])
def test_the_whole_upload_is_clipped_to_one_norm(scale: float) -> None:
    values = upload(scale)
    quiet = Gaussian(0.5, 1e-9, SeededNoise(0))(values, PARTIES, 1, "TRAIN.0")
    for name, wanted in clipped(values, 0.5).items():
        assert np.allclose(quiet[name].numpy(), wanted, atol=1e-6)
    norms = [float(torch.sqrt(sum((v[k].double() ** 2).sum() for v in quiet.values()))) for k in range(2)]  # type: ignore[arg-type]
    assert max(norms) <= 0.5 + 1e-6


def test_the_noise_is_normal_with_the_promised_deviation() -> None:
    values = {"h": torch.zeros(1, 200, 100, dtype=torch.float64)}
    drawn = Gaussian(0.5, 3.0, SystemNoise())(values, ("bank",), 1, "TRAIN.0")["h"].numpy().ravel()
    assert stats.kstest(drawn / 1.5, "norm").pvalue > 1e-4
    assert drawn.std() == pytest.approx(1.5, rel=0.03)


def test_draws_differ_by_party_round_part_and_run() -> None:
    zero = {"h": torch.zeros(2, 20, 5, dtype=torch.float64)}
    draw = lambda source, number, what: Gaussian(1.0, 1.0, source)(zero, PARTIES, number, what)["h"]  # noqa: E731
    seeded = SeededNoise(3)
    first = draw(seeded, 1, "TRAIN.0")
    assert torch.equal(first, draw(seeded, 1, "TRAIN.0"))
    others = [draw(seeded, 2, "TRAIN.0"), draw(seeded, 1, "TRAIN.1"), draw(SeededNoise(4), 1, "TRAIN.0")]
    others += [draw(SystemNoise(), 1, "TRAIN.0"), draw(SystemNoise(), 1, "TRAIN.0")]
    everything = torch.cat([first, *others]).flatten(1)
    assert torch.corrcoef(everything).fill_diagonal_(0).abs().max() < 0.5


def test_the_ledger_says_whether_the_noise_can_be_drawn_again() -> None:
    for source, simulated in ((SeededNoise(0), 1.0), (SystemNoise(), 0.0)):
        protection = Protection(Gaussian(1.0, 2.0, source))
        gate = Gate("run", Ledger(), {"h": Array(7), "o": Array(2)}, protection)
        gate.release(Upload(upload()), PARTIES, 1, Purpose.TRAIN, 30)
        facts = (("clip", 1.0), ("sigma", 2.0), ("simulated", simulated), ("grid", 2.0**-19))
        assert {r.parameters for r in gate.ledger} == {facts}


def test_nothing_leaves_when_the_budget_does_not_pay_for_it() -> None:
    budget = Budget(epsilon=1.0, delta=1e-5)
    sigma = calibrate(1.0, 1e-5, 3)
    gate = Gate(
        "run", Ledger(), {"h": Array(7), "o": Array(2)}, Protection(Gaussian(1.0, sigma, SystemNoise()), budget=budget)
    )
    for number in (1, 2, 3):
        gate.release(Upload(upload()), PARTIES, number, Purpose.TRAIN, 30)
    with pytest.raises(BudgetSpent, match=r"'bank' would pass its budget of epsilon 1 \(delta 1e-05, unit PARTY"):
        gate.release(Upload(upload()), PARTIES, 4, Purpose.TRAIN, 30)
    assert len(gate.ledger) == 6
    resumed = Gate("run", Ledger(gate.ledger), {"h": Array(7), "o": Array(2)}, gate.protection)
    with pytest.raises(BudgetSpent):
        resumed.release(Upload(upload()), PARTIES, 5, Purpose.TRAIN, 30)


def test_an_unprotected_release_is_never_within_a_budget() -> None:
    gate = Gate("run", Ledger(), {"h": Array(7), "o": Array(2)}, Protection(Unchanged(), budget=Budget(100.0, 1e-5)))
    with pytest.raises(BudgetSpent):
        gate.release(Upload(upload()), PARTIES, 1, Purpose.TRAIN, 30)


def test_a_purpose_for_which_nothing_may_leave() -> None:
    gate = Gate("run", Ledger(), {"h": Array(7), "o": Array(2)}, Protection(Gaussian(1.0, 2.0), evaluation=None))
    with pytest.raises(GateError, match="nothing may leave for EVALUATE in this run"):
        gate.release(Upload(upload()), PARTIES, 1, Purpose.EVALUATE, 30)
    assert len(gate.ledger) == 0


# -- whole runs ---------------------------------------------------------------------------------


def train(name: str, privacy: dict[str, Any], **options: Any) -> Any:
    return fit(
        small(),
        make(name, local_steps=1, noise=False),
        privacy=privacy,
        **{"rounds": 6, "evaluate_every": 2, **options},
    )


@pytest.mark.parametrize("name", SPEAKING)
def test_every_upload_of_a_protected_run_is_noised_and_nothing_else_leaves(name: str) -> None:
    run = train(name, DP)
    ups = [r for r in run.ledger if r.owner != "coordinator"]
    assert {(r.purpose, r.mechanism) for r in ups} == {(Purpose.TRAIN, "gaussian")}
    assert run.result["test_score"] is None and run.result["validation_score"] is None
    for party in small().names:
        mine = [r for r in ups if r.owner == party]
        assert exact_epsilon(mean_shift(mine), 1e-5) == pytest.approx(exact_epsilon(6**0.5 / 2, 1e-5))


@pytest.mark.parametrize("name", SPEAKING)
def test_engines_agree_under_noise(name: str) -> None:
    stacked, loop = (train(name, DP, engine=engine, dtype="float64") for engine in ("stacked", "loop"))
    assert stacked.state.keys() == loop.state.keys()
    flat = lambda run: torch.cat([v.flatten() for m in run.models.values() for v in m.values()])  # noqa: E731
    assert torch.allclose(flat(stacked), flat(loop), atol=1e-9)


def test_simulated_evaluation_is_unprotected_and_says_so() -> None:
    run = train("vimadmm_j", {**DP, "evaluation": "simulated"})
    looks = [r for r in run.ledger if r.purpose is Purpose.EVALUATE]
    assert looks and {r.mechanism for r in looks} == {"none"}
    assert run.result["test_score"] is not None


def test_training_stops_before_the_budget_is_passed() -> None:
    run = train("vimadmm_j", {**DP, "sigma": 5.0, "epsilon": 2.0}, rounds=40)
    spent = [r for r in run.ledger if r.owner == small().names[0]]
    done = run.result["rounds"]
    assert 0 < done < 40 and run.result["stop"].startswith(f"budget: round {done + 1} would pass epsilon 2 ")
    assert exact_epsilon(mean_shift(spent), 1e-5) <= 2.0
    assert exact_epsilon((done + 1) ** 0.5 / 5.0, 1e-5) > 2.0


def test_calibrated_noise_spends_the_budget_and_no_more() -> None:
    run = train("vimadmm_j", {"mechanism": "gaussian", "clip": 1.0, "epsilon": 3.0})
    spent = [r for r in run.ledger if r.owner == small().names[0]]
    assert run.result["stop"] == "all rounds done"
    assert exact_epsilon(mean_shift(spent), 1e-5) == pytest.approx(3.0, abs=1e-6)


def test_who_uploads_less_often_spends_less() -> None:
    run = train("vimadmm_j", {**DP, "neighbours": "replaced"}, rounds=12, schedule={"participation": 0.5})
    counts = {p: sum(r.owner == p for r in run.ledger) for p in small().names}
    assert min(counts.values()) < 12
    for party, n in counts.items():
        mine = [r for r in run.ledger if r.owner == party]
        assert mean_shift(mine, "replaced") == pytest.approx(2 * n**0.5 / 2.0)


def test_the_last_affordable_round_is_the_one_before_a_budget_is_spent() -> None:
    turns = [(1, ("a", "b")), (2, ("a",)), (3, ("b",)), (4, ("a", "b"))]
    assert [last_affordable(turns, n) for n in (0, 1, 2, 3)] == [0, 1, 3, 4]


@pytest.mark.parametrize(
    ("privacy", "told"),
    [
        ({"mechanism": "gaussian", "sigma": 1}, "needs clip"),
        ({"mechanism": "gaussian", "clip": 1}, "needs sigma"),
        ({"sigma": 1.0, "clip": 2.0}, "clip, sigma promise a protection that mechanism = 'none' does not give"),
        ({"mechanism": "gaussian", "clip": -1, "sigma": 1}, "clip"),
        ({"delta": 0}, "delta"),
    ],
)
def test_settings_that_promise_what_they_do_not_keep(privacy: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        train("vimadmm_j", privacy)


def test_settings_and_a_mechanism_of_ones_own() -> None:
    with pytest.raises(ConfigError, match="not both"):
        fit(small(), make("vimadmm_j"), privacy=DP, mechanism=Unchanged(), rounds=1)


# -- labels -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "mechanism"),
    [(n, m) for n, m in covering(["alibi", "randomised_response"]) if n in NAMES and not make(n).pools],
)
def test_protected_labels_say_so_in_ledger_and_record_and_judge_by_noisy_labels(name: str, mechanism: str) -> None:
    privacy = {"labels": {"mechanism": mechanism, "epsilon": 2.0}}
    run = train(name, privacy)
    down = [r for r in run.ledger if r.owner == "coordinator" and r.mechanism != "empty"]
    assert down and {r.mechanism for r in down} == {mechanism.replace("_", " ")}
    assert {dict(r.parameters)["epsilon"] for r in down} == {2.0}
    assert run.label_exposure.value == "EPS" and train(name, {}).label_exposure.value == "FULL"
    again = train(name, privacy)
    assert run.fingerprint() == again.fingerprint()
