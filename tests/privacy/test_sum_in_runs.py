"""The secure sum in whole runs: the same training, only the total is heard, shared noise is accounted for."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from colonnade import fit, resume
from colonnade.engines.base import GroupUploads
from colonnade.errors import ConfigError, WireError
from colonnade.methods import METHODS, make_method
from colonnade.methods.base import Received
from colonnade.privacy.promise import Circumstances
from colonnade.privacy.statement import Statement
from colonnade.run import Run
from colonnade.wire.codec import decode
from colonnade.wire.messages import COORDINATOR, Purpose, Query, Request
from tests.contracts.registry import EVERY
from tests.federations import digits, small
from tests.trainers import open_trainer, rounds_of

SUMMED = {"secure_sum": {"use": True}}
NOISY = {**SUMMED, "mechanism": "gaussian", "clip": 1.0, "sigma": 4.0}
TOTALS = sorted(set(EVERY) & {name for name, method in METHODS.items() if method.needs_uploads == "total"})
WEIGHED = {"assisted_boosting"}  # what each party says is weighed where it can be read: tests/methods


def trained(privacy: dict[str, Any], engine: str = "stacked", name: str = "vimadmm_j", **more: Any) -> Run:
    settings = {"rounds": 6, "dtype": "float64", "batch": 64, "evaluate_every": 2} | more
    schedule = {"batch": settings.pop("batch")}
    return fit(digits(), make_method(name, {}), privacy=privacy, engine=engine, schedule=schedule, **settings)


@pytest.mark.parametrize("name", [name for name in TOTALS if name not in WEIGHED])
def test_without_noise_the_sum_trains_what_plain_uploads_train(name: str) -> None:
    plain, summed = trained({}, name=name), trained(SUMMED, name=name)
    assert [h["score"] for h in summed.history if "score" in h] == [h["score"] for h in plain.history if "score" in h]
    assert summed.result["test_score"] == plain.result["test_score"]
    for party, model in plain.models.items():
        for part, value in model.items():  # off by rounding to the grid, 2^-30 of a unit, amplified by training
            assert torch.allclose(summed.models[party][part].double(), value.double(), atol=1e-5), (party, part)


@pytest.mark.parametrize("privacy", [SUMMED, NOISY], ids=["plain", "noisy"])
def test_engines_agree(privacy: dict[str, Any]) -> None:
    one, other = trained(privacy, "loop"), trained(privacy, "stacked")
    for party, model in one.models.items():
        assert all(torch.allclose(value, other.models[party][n], atol=1e-6) for n, value in model.items())
    ledgers = [sorted((r.number, r.owner, r.mechanism, r.purpose) for r in run.ledger) for run in (one, other)]
    assert ledgers[0] == ledgers[1]


@pytest.mark.parametrize("privacy", [SUMMED, NOISY], ids=["plain", "noisy"])
def test_what_one_party_sends_looks_uniform_and_names_its_roster(privacy: dict[str, Any]) -> None:
    trainer = open_trainer(digits(), make_method("vimadmm_j", {}), privacy=privacy, engine="loop", rounds=3)
    bits, rosters = np.zeros(64), set()
    cells = 0
    for one_round in rounds_of(trainer):
        for releases in one_round.collected.releases:
            for released in releases:
                header, arrays = decode(released.payload)
                assert {array.dtype for array in arrays.values()} == {torch.int64}
                rosters.add(header["roster"])
                values = arrays["o"].numpy().view(np.uint64).reshape(-1)
                bits += [int(((values >> np.uint64(b)) & np.uint64(1)).sum()) for b in range(64)]
                cells += values.size
    assert len(rosters) == 1
    spread = np.abs(bits - cells / 2) / math.sqrt(cells / 4)  # each bit is a fair coin
    assert spread.max() < 5, spread


def test_the_coordinator_hears_one_total_and_no_party() -> None:
    trainer = open_trainer(digits(), make_method("vimadmm_j", {}), privacy=SUMMED, rounds=2)
    heard = []
    coordinate = trainer.coordinator.method.coordinate

    class Spy:
        def __getattr__(self, name: str) -> Any:
            return getattr(method, name)

        def coordinate(self, state: Any, plan: Any, what: Any, labels: Any) -> Any:
            heard.append(what)
            return coordinate(state, plan, what, labels)

    method = trainer.coordinator.method
    trainer.coordinator.method = Spy()  # type: ignore[assignment]
    trainer.train()
    assert len(heard) == 2
    for what in heard:
        assert [tuple(value.shape[::2]) for group in what.groups for value in group.values()] == [(1, 10)]


def test_the_noise_of_the_sum_is_that_of_its_honest_shares() -> None:
    """14 shares of N(0, s^2 C^2/(M - c)) are M/(M - c) of the promised variance: the colluders' part comes on top."""
    parties, sigma, clip, colluders = 4, 3.0, 0.5, 1
    privacy = {**SUMMED, "mechanism": "gaussian", "clip": clip, "sigma": sigma}
    trainer = open_trainer(
        small((5,) * parties, rows=2000),
        make_method("vimadmm_j", {}),
        privacy=privacy,
        rounds=1,
        schedule={"batch": 2000},
    )
    request, down = trainer.coordinator.request()
    answers = trainer.engine.run_round(request, down)
    total = trainer.coordinator.uploads(request, 0, answers.uploaded[0]).total("o")
    said = sum(side.uploaded["o"].sum(dim=0) for side in trainer.engine.parties())
    assert torch.allclose(total, said, atol=1e-4)  # what the parties remember adds up to what was opened
    deviation = float(total.double().std())
    expected = sigma * clip * math.sqrt(parties / (parties - colluders))
    assert 0.9 < deviation / expected < 1.1


def test_the_ledger_knows_sigma_and_colluders_and_both_accountants_agree() -> None:
    run = trained({**NOISY, "sigma": 30.0}, rounds=5)
    train = [r for r in run.ledger if r.purpose is Purpose.TRAIN and r.owner != COORDINATOR]
    assert {r.mechanism for r in train} == {"gaussian sum"}
    facts = dict(train[0].parameters)
    assert 30.0 / facts.pop("grid") > 2**20  # far below the noise
    assert facts == {"clip": 1.0, "sigma": 30.0, "simulated": 1.0, "parties": 4.0, "colluders": 1.0}
    alone = trained({"mechanism": "gaussian", "clip": 1.0, "sigma": 30.0}, rounds=5)
    epsilon = [Statement.of(r.ledger, r.privacy, Circumstances(r.label_exposure)).worst for r in (run, alone)]
    assert epsilon[0] is not None and epsilon[1] is not None
    assert epsilon[0].exact == epsilon[1].exact > 0


def test_evaluation_and_prediction_open_only_together_too() -> None:
    run = trained(SUMMED)
    looked = [r for r in run.ledger if r.owner != COORDINATOR]
    assert {r.mechanism for r in looked} == {"sum"} and Purpose.EVALUATE in {r.purpose for r in looked}
    federation = digits()
    rows = federation.split.test[:7]
    columns = {p.name: p.columns[rows] for p in federation.parties}
    before = len(run.ledger)
    logits = run.logits(columns)
    assert {r.mechanism for r in run.ledger.since(before)} == {"sum"}
    assert torch.allclose(logits, trained({}).logits(columns), atol=1e-4)


def test_a_coordinator_that_asks_about_different_rows_opens_nothing() -> None:
    """Else the difference of two sums would be what one party says about one row and not about another."""
    trainer = open_trainer(digits(), make_method("vimadmm_j", {}), privacy=SUMMED, engine="loop", rounds=2)
    request, _ = trainer.coordinator.request()
    other = Request(
        request.number, (Query(Purpose.TRAIN, request.queries[0].senders, request.queries[0].rows.flip(0)),)
    )
    sides = list(trainer.engine.parties())
    said = [
        GroupUploads((0,), side.answer(request if side is sides[0] else other, Received({}, {}))[0].sent)
        for side in sides
    ]
    place = {side.cohort.names[0]: part for side, part in zip(sides, said, strict=True)}
    parts = [
        GroupUploads(tuple(range(len(g.parties))), {"o": torch.cat([place[p].values["o"] for p in g.parties])})
        for g in trainer.coordinator.schema.groups
    ]
    with pytest.raises(WireError, match="do not cancel"):
        trainer.coordinator.uploads(request, 0, parts)


def test_a_killed_run_goes_on_to_the_same_model(tmp_path: Path) -> None:
    whole = trained(NOISY, seed=3)

    class Killed(Exception):
        pass

    def kill(progress: Any) -> None:
        if progress.round == 3:
            raise Killed

    with pytest.raises(Killed):
        trained(NOISY, seed=3, out=tmp_path / "run", watch=kill)
    assert resume(tmp_path / "run", digits()).fingerprint() == whole.fingerprint()


def test_numbers_beyond_the_grid_end_the_run_as_diverged() -> None:
    run = trained({"secure_sum": {"use": True, "largest": 1e-3}})
    assert run.result["diverged"]


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "a method that hears each": (lambda: trained(SUMMED, name="vimadmm"), "e.g. vimadmm_j"),
    "silent parties": (
        lambda: fit(digits(), make_method("vimadmm_j", {}), privacy=SUMMED, schedule={"participation": 0.5}),
        "use order = 'together', participation = 1",
    ),
    "too few honest parties": (
        lambda: fit(small((5, 5)), make_method("vimadmm_j", {}), privacy=SUMMED, rounds=1),
        "it takes colluders \\+ 2 parties",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_refused_in_one_sentence(case: str) -> None:
    act, words = REFUSED[case]
    with pytest.raises(ConfigError, match=words):
        act()
