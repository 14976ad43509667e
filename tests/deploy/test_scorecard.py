"""A scorecard between organisations is that of the simulation; each party keeps its card, others see points only."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import colonnade as cn
from colonnade.align.files import Alignment
from colonnade.align.match import Agreed, MatchReport, PartyMatch
from colonnade.bench.organisations import Trial
from colonnade.data.column_settings import PartyColumns
from colonnade.deploy import coordinator as coordinator_module
from colonnade.deploy.party_setup import PartySetup
from colonnade.deploy.policy import Policy
from colonnade.deploy.predict import Wish
from colonnade.deploy.tables import PartyTable
from colonnade.deploy.undertaking import Undertaking
from colonnade.engines import remote
from colonnade.errors import ConfigError, Refused
from colonnade.federation import Federation
from colonnade.identity.certificates import make_trial
from colonnade.methods.scorecard import ScorecardADMM
from colonnade.part import Part
from colonnade.privacy.labels.randomised import RandomisedResponseEvent
from colonnade.randomness import key
from colonnade.run import Run
from colonnade.saved import read_ledger
from colonnade.scorecards.card import PartyCard, Scorecard
from colonnade.scorecards.make import card_of
from colonnade.wire.messages import COORDINATOR, Purpose
from tests.deploy.memory import Office, Room, Way, connection
from tests.explain.shoppers import shoppers

ROWS, ROUNDS, PARTIES = 300, 12, ("bank", "telco")
EPSILON = 2.0
SAID: dict[str, Any] = {"bank": {"by_name": {"since": {"kind": "date"}}}, "telco": {}}


@dataclass(frozen=True)
class TableTrial(Trial):
    """Each party has a file of its own and says at home how it is cut; the label holder has labels."""

    def federation(self) -> Federation:
        return federation(self.folder)

    def undertaking(self) -> Undertaking:
        return replace(super().undertaking(), alignment="aligned")

    def setup(self, name: str) -> PartySetup:
        ids = tuple(str(at) for at in range(ROWS))
        agreed = Agreed("test", "0" * 32, PARTIES, "all", ROWS, 0)
        report = MatchReport(ROWS, (PartyMatch(name, ROWS, ROWS),), ROWS, 0, 10)
        alignment = Alignment(name, agreed, np.arange(ROWS), ids, None, report)
        columns = PartyColumns(**{"bins": self.data["bins"], **SAID[name]})
        table = PartyTable(name, self.folder / f"{name}.csv", "customer", alignment, (), columns)
        return PartySetup(table.columns, Policy(**self.data.get("policy", {})))


def write(folder: Path) -> dict[str, Path]:
    tables = shoppers(ROWS)
    tables["bank"].to_csv(folder / "bank.csv", index=False)
    tables["telco"].drop(columns="churn").to_csv(folder / "telco.csv", index=False)
    return {name: folder / f"{name}.csv" for name in PARTIES}


def meaning() -> dict[str, Any]:
    labels = shoppers(ROWS)["telco"][["customer", "churn"]]
    return {"labels": labels, "id": "customer", "classes": ["no", "yes"]}


def federation(folder: Path) -> Federation:
    files = {name: folder / f"{name}.csv" for name in PARTIES}
    return Federation.from_tables(files, columns=SAID, split={"stratify": False}, **meaning())


def simulated(folder: Path) -> Scorecard:
    files = {name: folder / f"{name}.csv" for name in PARTIES}
    return cn.scorecard(files, columns=SAID, label_epsilon=EPSILON, rounds=ROUNDS, monotone=True, **meaning())


def room(folder: Path, bins: int = 5, labels: dict[str, Any] | None = None, policy: Any = None, **method: Any) -> Room:
    write(folder)
    make_trial(folder / "certs", PARTIES)
    connections = {name: connection(folder / "certs", name) for name in (COORDINATOR, *PARTIES)}
    training = {"rounds": ROUNDS, "evaluate_every": 0, "dtype": "float64", "schedule": {"batch": ROWS}}
    noisy = {"mechanism": "randomised_response", "epsilon": EPSILON}
    trial = TableTrial(
        folder, "test", connections, {"bins": bins, "policy": policy or {}}, {"name": "scorecard", **method},
        training=training, absence={"patience": 2}, privacy={"labels": noisy if labels is None else labels},
    )  # fmt: skip
    return Room(trial, Office(parties=PARTIES))


@pytest.fixture(autouse=True)
def asked_again_soon(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for module in (remote, coordinator_module):
        monkeypatch.setattr(module, "ASK_AGAIN", 0.1)
    yield


@contextmanager
def restarted(scene: Room, party: str) -> Iterator[None]:
    """It ends where it is in round 3, after it has counted the labels, and begins again."""
    left = threading.Event()

    def carry(way: Way) -> Sequence[float]:
        if way.kind == "ALL" and way.number == 3 and way.reader == party:
            left.set()
        return (0.0,)

    def restart() -> None:
        assert left.wait(60)
        scene.leave(party)
        scene.arrive(party)

    scene.office.carry = carry
    helper = threading.Thread(target=restart)
    helper.start()
    yield
    helper.join()


def test_it_is_that_of_the_simulation_and_adds_up_row_by_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same noise of the labels is drawn on purpose; organisations draw theirs where nobody can repeat it."""
    monkeypatch.setattr(coordinator_module, "secrets", SimpleNamespace(randbits=lambda bits: key(0, "label noise")))
    rows = torch.tensor([5, 250, 3, 90])
    with room(tmp_path, monotone=True) as scene, restarted(scene, "bank"):
        run = scene.train()
        predicted = scene.predict(Wish(rows))
    assert scene.said("bank", "reopened"), "its card went on from its store"
    wanted = simulated(tmp_path)
    for name in PARTIES:
        _assert_same_card(PartyCard.of(Part.load(scene.trial.place(name))), wanted.party(name))
    method = run.method
    assert isinstance(method, ScorecardADMM)
    points = wanted.score({**shoppers(ROWS), "telco": shoppers(ROWS)["telco"].drop(columns="churn")}, id="customer")
    assert method.points(predicted.logits).tolist() == points.iloc[rows.tolist()].tolist()
    adds_up = card_of(Run.load(scene.trial.place(COORDINATOR)), "")
    assert (adds_up.parties, adds_up.base_points, adds_up.scale) == ((), wanted.base_points, wanted.scale)
    assert {m: run.metrics[m]["test"] for m in wanted.metrics} == pytest.approx(dict(wanted.metrics), abs=1e-9)
    _assert_nothing_else_left(scene, run)


def _assert_same_card(mine: PartyCard, wanted: PartyCard) -> None:
    assert [one.bins for one in mine.columns] == [one.bins for one in wanted.columns]
    assert [one.points for one in mine.columns] == [one.points for one in wanted.columns]
    for one, other in zip(mine.columns, wanted.columns, strict=True):
        assert one.weight == pytest.approx(other.weight, abs=1e-9)
        np.testing.assert_allclose(one.evidence.woe, other.evidence.woe, atol=1e-9)
        np.testing.assert_allclose(one.evidence.events, other.evidence.events, atol=1e-9)


def _assert_nothing_else_left(scene: Room, run: Run) -> None:
    """Labels went down once with their epsilon; of the columns the label holder knows how many there are."""
    first = next(entry for entry in run.ledger if entry.rows)
    assert isinstance(first.event, RandomisedResponseEvent) and first.event.epsilon == EPSILON
    assert first.rows == len(scene.trial.federation().split.train)
    place = scene.trial.place(COORDINATOR)
    kept = b"".join(path.read_bytes() for path in place.rglob("*") if path.is_file())
    assert b"telco" in kept
    for word in (b"income", b"minutes", b"since", b"city", b"Ulm"):
        assert word not in kept, word
    assert run.model.part("bank").shape == (3,) and not run.model.part("bank").tensors
    for name in PARTIES:
        left = read_ledger(scene.trial.place(name))
        assert {entry.purpose for entry in left} == {Purpose.TRAIN, Purpose.EVALUATE, Purpose.PREDICT}


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"bins": 0}, "reads columns that are cut into bins, and those of party '[a-z]+' are not; say bins = 5"),
        ({"labels": {}, "policy": {"label_exposure": ["EPS"]}}, "label_exposure: the label exposure 'FULL' was asked"),
        ({"labels": {"mechanism": "alibi", "epsilon": 2.0}}, "no yes or no any more"),
    ],
    ids=["not cut", "plain labels against a policy", "labels that cannot be counted"],
)
def test_what_cannot_be_a_scorecard_is_refused_before_a_label_leaves(
    tmp_path: Path, asked: dict[str, Any], told: str
) -> None:
    with room(tmp_path, **asked) as scene, pytest.raises((Refused, ConfigError), match=told):
        scene.train()
    assert not scene.said(PARTIES[0], "agreed"), "a run of this name can be proposed again, with other settings"
