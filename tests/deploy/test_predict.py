"""Prediction by rows between separate organisations: the same logits, and honest about who was missing."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from colonnade.bench.organisations import Trial
from colonnade.deploy.coordinator import CoordinatorProcess
from colonnade.deploy.party import PartyProcess
from colonnade.deploy.policy import Policy
from colonnade.deploy.predict import Prediction, Wish, predict_rows
from colonnade.engines.nats import NatsLink
from colonnade.errors import ConfigError, DataError, Refused, RunError
from colonnade.federation import Federation
from colonnade.fit import Trainer
from colonnade.identity.credentials import Credentials
from colonnade.privacy.ledger import Entry
from colonnade.run import Run
from colonnade.store import Store
from colonnade.wire.messages import COORDINATOR, Purpose
from tests.nats_server import NatsServer, needs_nats

pytestmark = needs_nats
DATA = {"set": "digits", "parties": 3}
ROWS = torch.tensor([5, 1700, 3, 900])
PATIENCE = 120.0
BRIEFLY = 4.0  # for a party that is away; the others answer in time on a busy machine, too


@dataclass
class Scene:
    """A finished run whose parties are still there, each in a thread of its own."""

    trial: Trial
    here: dict[str, NatsLink] = field(default_factory=dict)
    told: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)  # party, event and facts

    @property
    def federation(self) -> Federation:
        return self.trial.federation()

    def link(self, name: str) -> NatsLink:
        credentials = Credentials.load(self.trial.connections[name])
        return NatsLink(credentials, self.trial.run, lambda event, **facts: None).open()

    def arrive(self, name: str, policy: Policy | None = None) -> None:
        link = self.link(name)
        setup = self.trial.setup(name)
        setup = setup if policy is None else type(setup)(setup.columns, policy)
        ready = threading.Event()

        def tell(event: str, **facts: Any) -> None:
            self.told.append((name, event, facts))

        def serve() -> None:
            with contextlib.suppress(Exception):  # the link is closed under it when it leaves
                party = PartyProcess(self.trial.place(name), link, link.credentials, setup, tell)
                ready.set()
                party.serve()

        threading.Thread(target=serve, daemon=True).start()
        assert ready.wait(PATIENCE)
        self.here[name] = link

    def leave(self, name: str) -> None:
        self.here.pop(name).close()

    def train(self) -> Run:
        link = self.link(COORDINATOR)
        notify: Any = lambda event, **facts: None  # noqa: E731
        try:
            credentials, place = link.credentials, self.trial.place(COORDINATOR)
            return CoordinatorProcess(place, link, credentials, self.trial.undertaking(), notify).serve()
        finally:
            link.close()

    def predict(self, **wish: Any) -> Prediction:
        link = self.link(COORDINATOR)
        try:
            wanted = Wish(**{"rows": ROWS, "patience": PATIENCE, **wish})
            return predict_rows(self.trial.place(COORDINATOR), link, wanted, lambda event, **facts: None)
        finally:
            link.close()

    def releases(self, party: str) -> list[Entry]:
        store = Store(self.trial.place(party) / "party.db")
        saved = store.snapshot()
        store.close()
        assert saved is not None
        return [release for release in saved.ledger if release.purpose is Purpose.PREDICT]


@contextlib.contextmanager
def finished(
    folder: Path, method: str, privacy: dict[str, Any] | None = None, **model: Any
) -> Iterator[tuple[Scene, Run]]:
    """A finished run, and the same run simulated."""
    names = ("party_1", "party_2", "party_3")
    with NatsServer(folder / "nats", names) as server:
        trial = Trial(
            folder=folder / "run",
            run="digits",
            connections={name: server.connection(name) for name in (COORDINATOR, *names)},
            data=DATA,
            method={"name": method, "local_steps": 2},
            model={"hidden": 10, "embedding": 6, **model},
            training={"rounds": 4, "dtype": "float64", "schedule": {"batch": 200}, "evaluate_every": 2},
            privacy=privacy or {},
        )
        scene, u = Scene(trial), trial.undertaking()
        for name in names:
            scene.arrive(name)
        scene.train()
        simulated = Trainer.open(trial.federation(), u.method, u.training, u.model, None, None).train()
        try:
            yield scene, simulated
        finally:
            for name in list(scene.here):
                scene.leave(name)


def expected(run: Run, federation: Federation, without: tuple[str, ...] = ()) -> Tensor:
    """What the simulated run says about the rows, perhaps without some parties."""
    columns = {p.name: p.columns[ROWS] for p in federation.parties if p.name not in without}
    return run.model.prediction(columns, absent="leave-out" if without else "refuse").logits


@pytest.fixture(scope="module")
def vimadmm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Scene, Run]]:
    with finished(tmp_path_factory.mktemp("vimadmm"), "vimadmm") as both:
        yield both


def test_all_present(vimadmm: tuple[Scene, Run]) -> None:
    scene, simulated = vimadmm
    before = {p: len(scene.releases(p)) for p in scene.federation.names}
    found = scene.predict()
    assert torch.allclose(found.logits, expected(simulated, scene.federation), atol=1e-9)
    assert found.without == ((),) * 4
    for party in scene.federation.names:  # every prediction is a release, with its rows
        new = scene.releases(party)[before[party] :]
        assert [(release.rows, release.owner) for release in new] == [(4, party)]


def test_a_prediction_is_one_line_in_the_log_of_a_party(vimadmm: tuple[Scene, Run]) -> None:
    """With all that its operator needs; that it would answer is no line of its own."""
    scene, _ = vimadmm
    before, sent = len(scene.told), len(scene.releases("party_1"))
    scene.predict()
    deadline = time.monotonic() + PATIENCE  # a party tells after it has sent
    while len(scene.told) < before + 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    (release,) = scene.releases("party_1")[sent:]
    told = {party: (event, facts) for party, event, facts in scene.told[before:]}
    assert len(scene.told) == before + 3 and set(told) == set(scene.federation.names)
    assert told["party_1"] == ("predicted", {"round": release.number, "rows": 4, "bytes": release.size})


@pytest.fixture(scope="module")
def local_only(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Scene, Run]]:
    with finished(tmp_path_factory.mktemp("local_only"), "local_only") as both:
        yield both


def test_an_absent_party_is_waited_for(vimadmm: tuple[Scene, Run]) -> None:
    scene, simulated = vimadmm
    scene.leave("party_2")
    before = {p: scene.releases(p) for p in scene.federation.names}
    with pytest.raises(
        RunError, match=r"party_2 did not answer within 4 s; nothing was predicted; start the party, or"
    ):
        scene.predict(patience=BRIEFLY)
    assert {p: scene.releases(p) for p in before} == before  # those who were there released nothing either
    scene.arrive("party_2")  # it answers what is in its box, and takes part again
    assert torch.allclose(scene.predict().logits, expected(simulated, scene.federation), atol=1e-9)


def test_parties_below_a_joint_top_cannot_be_left_out(tmp_path: Path) -> None:
    """Refused by name before anybody is asked: nothing more is in anybody's ledger, also with everybody there."""
    with finished(tmp_path, "fedbcd") as (scene, _):
        run = scene.trial.place(COORDINATOR)
        before = {p: len(scene.releases(p)) for p in scene.federation.names}, len(Run.load(run).ledger)
        with pytest.raises(ConfigError, match="fedbcd has no answer without one of its parties"):
            scene.predict(absent="leave-out")
        assert ({p: len(scene.releases(p)) for p in scene.federation.names}, len(Run.load(run).ledger)) == before
        scene.leave("party_2")
        with pytest.raises(
            RunError, match=r"party_2 did not answer within 4 s; nothing was predicted; start the party$"
        ):
            scene.predict(patience=BRIEFLY)


@pytest.mark.parametrize("method", ["local_only", "vimadmm"])
def test_parties_of_a_sum_can_be_left_out(method: str, request: pytest.FixtureRequest) -> None:
    scene, simulated = request.getfixturevalue(method)
    assert torch.allclose(scene.predict().logits, expected(simulated, scene.federation), atol=1e-9)
    scene.leave("party_2")
    with pytest.raises(RunError, match="start the party, or predict without it with --absent leave-out"):
        scene.predict(patience=BRIEFLY)
    found = scene.predict(patience=BRIEFLY, absent="leave-out")
    assert found.left_out == ("party_2",)
    assert found.without == (("party_2",),) * 4
    assert torch.allclose(found.logits, expected(simulated, scene.federation, ("party_2",)), atol=1e-9)
    scene.arrive("party_2")
    assert torch.allclose(scene.predict().logits, expected(simulated, scene.federation), atol=1e-9)


def test_nobody_answers(local_only: tuple[Scene, Run]) -> None:
    scene, _ = local_only
    for name in scene.federation.names:
        scene.leave(name)
    with pytest.raises(RunError, match="nobody answered within 4 s; nothing was predicted"):
        scene.predict(patience=BRIEFLY, absent="leave-out")
    for name in scene.federation.names:
        scene.arrive(name)


def test_a_party_that_lacks_a_row(vimadmm: tuple[Scene, Run]) -> None:
    scene, _ = vimadmm
    held = {name: np.ones(2000, dtype=bool) for name in scene.federation.names}
    held["party_3"][900] = False
    with pytest.raises(RunError, match=r"party_3 do not hold all of these rows; predict only rows that all hold, or"):
        scene.predict(presence=held)


def test_a_party_that_lacks_a_row_is_left_out_of_that_row_only(local_only: tuple[Scene, Run]) -> None:
    scene, simulated = local_only
    held = {name: np.ones(2000, dtype=bool) for name in scene.federation.names}
    held["party_3"][900] = False
    found = scene.predict(presence=held, absent="leave-out")
    assert found.without == ((), (), (), ("party_3",))
    assert torch.allclose(found.logits[:3], expected(simulated, scene.federation)[:3], atol=1e-9)
    assert torch.allclose(found.logits[3], expected(simulated, scene.federation, ("party_3",))[3], atol=1e-9)
    for name in scene.federation.names:
        held[name][900] = False
    with pytest.raises(DataError, match="1 of these rows are held by no party"):
        scene.predict(presence=held, absent="leave-out")


def test_the_operators_limit_holds(vimadmm: tuple[Scene, Run]) -> None:
    scene, _ = vimadmm
    scene.leave("party_1")
    scene.arrive("party_1", Policy(most_rows_per_prediction=2))
    before = {p: scene.releases(p) for p in scene.federation.names}
    with pytest.raises(Refused, match=r"'party_1' refuses: .*most_rows_per_prediction"):
        scene.predict()
    assert {p: scene.releases(p) for p in before} == before  # nobody released anything for it
    scene.leave("party_1")
    scene.arrive("party_1")


def test_heads_at_the_parties(tmp_path: Path) -> None:
    with finished(tmp_path, "vimadmm_j", head={"layers": 2}) as (scene, simulated):
        assert torch.allclose(scene.predict().logits, expected(simulated, scene.federation), atol=1e-9)


def test_a_party_that_died_before_it_wrote_its_files_writes_them_when_it_is_back(vimadmm: tuple[Scene, Run]) -> None:
    scene, _ = vimadmm
    written = scene.trial.place("party_3") / "party.json"
    scene.leave("party_3")
    scene.arrive("party_3")  # whatever left since it was written last is in it now
    before = written.read_text()
    scene.leave("party_3")
    written.unlink()
    scene.arrive("party_3")
    assert written.read_text() == before


def test_under_a_secure_sum_only_the_total_is_read(tmp_path: Path) -> None:
    with finished(tmp_path, "vimadmm_j", privacy={"secure_sum": {"use": True}}) as (scene, simulated):
        predicted = scene.predict()
        torch.testing.assert_close(predicted.logits, expected(simulated, scene.federation), rtol=0, atol=1e-6)
        assert predicted.left_out == ()
        for party in scene.here:
            assert [r.mechanism for r in scene.releases(party)] == ["sum"]
        with pytest.raises(ConfigError, match="opens only with all parties"):
            scene.predict(absent="leave-out")
        scene.leave("party_2")
        with pytest.raises(RunError, match="party_2 did not answer within 4 s; nothing was predicted"):
            scene.predict(patience=BRIEFLY)


def test_rows_that_trained_with_noise_are_refused_unless_a_policy_allows_them(tmp_path: Path) -> None:
    noise = {"mechanism": "gaussian", "clip": 1.0, "epsilon": 4.0}
    with finished(tmp_path, "vimadmm_j", privacy=noise) as (scene, _):
        split = scene.federation.split
        with pytest.raises(
            Refused, match=r"predict_training_rows: 2 of the rows trained this run, and predicting them"
        ):
            scene.predict(rows=torch.cat([split.test[:2], split.train[:2]]))
        assert scene.predict(rows=split.test[:3]).logits.shape == (3, 10)
        assert [r.parameters for r in scene.releases("party_1")] == [()]
        for party in scene.federation.names:
            scene.leave(party)
            scene.arrive(party, Policy(predict_training_rows=True))
        scene.predict(rows=torch.cat([split.test[:2], split.train[:2]]))
        for party in scene.federation.names:
            assert scene.releases(party)[-1].parameters == (("training_rows", 2.0),)
