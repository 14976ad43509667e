"""Training and prediction between organisations over a link in memory: no server, and any message may be lost."""

from __future__ import annotations

import json
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from colonnade.bench.noise import SeededNoise
from colonnade.config import build
from colonnade.deploy import coordinator as coordinator_module
from colonnade.deploy.agreement import CLOSED
from colonnade.deploy.predict import Asker, Wish, _asking, _check_alignment
from colonnade.deploy.undertaking import Undertaking
from colonnade.engines import nats, remote
from colonnade.engines.link import Link
from colonnade.errors import Refused, RunError
from colonnade.methods import METHODS
from colonnade.model import Model
from colonnade.models.encoders import ModelSettings
from colonnade.part import Part
from colonnade.randomness import stream
from colonnade.row_split import RowSplit
from colonnade.run import Run
from colonnade.saved import TRAINED, fingerprint
from colonnade.store import Store
from colonnade.wire.container import LIMIT
from colonnade.wire.messages import COORDINATOR, Purpose, Query, Request
from tests.contracts.registry import NAMES, TRIED_WITH, make
from tests.contracts.test_models import put_together
from tests.deploy.memory import Carry, MemoryLink, Room, SmallTrial, Way, at_once
from tests.federations import small
from tests.processes import LONG
from tests.trainers import changed, open_trainer, untimed

PARTIES = ("party_0", "party_1", "party_2")
DATA = {"widths": (5, 4, 5), "rows": 90}
MODEL = {"hidden": 6, "embedding": 4}
TRAINING: dict[str, Any] = {
    "rounds": 5, "dtype": "float64", "evaluate_every": 2, "schedule": {"batch": 20}, "stopping": {"drop": 1e9},
}  # fmt: skip
SIGMA = 0.05
SOON = 0.1  # seconds until somebody is asked again


@pytest.fixture(autouse=True)
def asked_again_soon(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for module in (remote, coordinator_module):
        monkeypatch.setattr(module, "ASK_AGAIN", SOON)
    yield


def room(folder: Path, carry: Carry | None = None, method: str = "vimadmm", data: Any = DATA, **training: Any) -> Room:
    settings = {**TRIED_WITH.get(method, {}), "local_steps": 2}
    settings["noise"] = False  # of a method's own: it would be another at each organisation
    spec = {"name": method, **{k: v for k, v in settings.items() if k in METHODS[method].model_fields}}
    options: dict[str, Any] = {"data": data, "method": spec, "model": MODEL, "noise": SIGMA, "absence": {"patience": 2}}
    options["training"] = {**TRAINING, **training}
    return Room.of(folder, PARTIES, **({"carry": carry} if carry else {}), **options)


def simulated(method: str = "vimadmm", data: Any = DATA, **training: Any) -> Run:
    return open_trainer(
        small(**data), make(method, local_steps=2, noise=False), model=build(ModelSettings, MODEL, "model"),
        mechanism=SeededNoise(SIGMA), engine="loop", **{**TRAINING, **training},
    ).train()  # fmt: skip


def test_the_label_holder_fits_the_decision_of_the_simulation(tmp_path: Path) -> None:
    asked = {"decision": {"decide_by": "f1", "calibration": "platt"}}
    data = {**DATA, "task": "binary"}
    with room(tmp_path, data=data, **asked) as scene:
        run = scene.train()
    wanted = simulated(data=data, **asked)
    assert wanted.model.decision is not None
    assert run.model.decision == wanted.model.decision
    assert Run.load(scene.trial.place(COORDINATOR)).model.decision == wanted.model.decision


@pytest.fixture(scope="module")
def expected() -> Run:
    return simulated()


def assert_the_same(scene: Room, run: Run, wanted: Run) -> None:
    """Model, history, traffic and everybody's ledger are those of the simulation."""
    models = {}
    for party in PARTIES:
        store = Store(scene.trial.place(party) / "party.db")
        saved = store.snapshot()
        store.close()
        assert saved is not None
        models[party] = {k: saved.tensors[f"cohort.{k}"][0] for k in wanted.models[party]}
        assert [r.digest for r in saved.ledger] == [r.digest for r in wanted.ledger if r.owner == party]
    assert changed(wanted, state=run.state, models=models).fingerprint() == wanted.fingerprint()
    assert untimed(run.history) == untimed(wanted.history)
    assert run.traffic.to_json() == wanted.traffic.to_json()
    ours = ([r.digest for r in ledger if r.owner == COORDINATOR] for ledger in (run.ledger, wanted.ledger))
    assert next(ours) == next(ours)


def formats() -> list[tuple[str, str]]:
    """Every method that can be deployed, in the fewest bytes that it lets others make of its numbers."""
    deployed = [(name, getattr(METHODS[name], "packs", False)) for name in NAMES if not make(name).pools]
    each = [(name, "full" if packs else "int8") for name, packs in deployed]
    return [*each, *((name, numbers) for name in ("vimadmm", "split_learning") for numbers in ("full", "float16"))]


@pytest.mark.parametrize(("method", "numbers"), formats())
def test_a_training_is_that_of_the_simulation(method: str, numbers: str, tmp_path: Path) -> None:
    wire = {"numbers": numbers}
    with room(tmp_path, method=method, wire=wire) as scene:
        run = scene.train()
    assert_the_same(scene, run, simulated(method, wire=wire))


@pytest.mark.parametrize("method", ["vimadmm", "split_learning", "local_only", "c_vfl"])
def test_rows_and_classes_count_as_in_the_simulation(method: str, tmp_path: Path) -> None:
    asked = {"data": {**DATA, "weighted": True}, "class_weights": {"1": 3.0}}
    with room(tmp_path, method=method, **asked) as scene:
        run = scene.train()
    assert_the_same(scene, run, simulated(method, **asked))
    assert run.fingerprint() != simulated(method).fingerprint()


def once(becomes: Sequence[float], *, kind: str, number: int, party: str | None = None) -> Carry:
    """Something happens to the first message of a kind in a round, on its way to or from a party."""
    lock, met = threading.Lock(), set[Way]()

    def carry(way: Way) -> Sequence[float]:
        with lock:
            ours = (way.kind, way.number) == (kind, number) and (party is None or party in (way.sender, way.reader))
            if not ours or way in met:
                return (0.0,)
            met.add(way)
            return becomes

    return carry


def asked_again(scene: Room, one_round: int, *parties: str) -> bool:
    return any(
        entry["round"] == one_round and set(parties) <= set(entry["parties"])
        for entry in scene.said(COORDINATOR, "asking again")
    )


LOST, TWICE, THRICE, LATE = (), (0.0, 0.0), (0.0, 0.0, 0.02), (0.5,)
ACCIDENTS: dict[str, tuple[Carry, Callable[[Room], bool]]] = {
    "a lost answer": (
        once(LOST, kind="TRAIN", number=3, party="party_1"),
        lambda r: bool(r.said("party_1", "repeating")) and asked_again(r, 3, "party_1"),
    ),
    "a lost order": (
        once(LOST, kind="ALL", number=3, party="party_1"),
        lambda r: asked_again(r, 3, "party_1"),
    ),
    "a lost part of its own": (
        once(LOST, kind="OWN", number=3, party="party_1"),
        lambda r: asked_again(r, 3, "party_1"),
    ),
    "everything of a round lost": (
        once(LOST, kind="ALL", number=4),
        lambda r: asked_again(r, 4, *PARTIES),
    ),
    "an answer that comes twice": (
        once(TWICE, kind="TRAIN", number=3, party="party_1"),
        lambda r: {"event": "repetition", "party": "party_1", "round": 3} in r.events[COORDINATOR],
    ),
    "an order that comes three times": (
        once(THRICE, kind="ALL", number=3, party="party_1"),
        lambda r: bool(r.said("party_1", "repeating")),
    ),
    "an answer that comes after it was asked for again": (
        once(LATE, kind="TRAIN", number=3, party="party_1"),
        lambda r: asked_again(r, 3, "party_1"),
    ),
    "a part of its own that comes after the request": (
        once((0.1,), kind="OWN", number=3),
        lambda r: True,
    ),
    "a lost consent": (
        once(LOST, kind="JOIN", number=-1, party="party_2"),
        lambda r: r.office.count("JOIN", -1, "party_2") > 1,
    ),
    "a lost agreement": (
        once(LOST, kind="AGREED", number=0, party="party_0"),
        lambda r: r.office.count("AGREED", 0, "party_0") > 1,
    ),
}


@pytest.mark.parametrize("accident", ACCIDENTS)
def test_an_accident_changes_nothing(accident: str, tmp_path: Path, expected: Run) -> None:
    carry, happened = ACCIDENTS[accident]
    with room(tmp_path, carry) as scene:
        run = scene.train()
    assert happened(scene), scene.events
    assert_the_same(scene, run, expected)


@pytest.mark.parametrize("seed", range(2))
def test_a_bad_line_changes_nothing(seed: int, tmp_path: Path, expected: Run) -> None:
    """One message in eight is lost, one comes twice, one comes late."""
    draws, lock = stream(seed, "bad line"), threading.Lock()
    fates: tuple[Sequence[float], ...] = (LOST, TWICE, (0.05,), *[(0.0,)] * 5)

    def carry(way: Way) -> Sequence[float]:
        with lock:
            return (0.0,) if way.number == CLOSED else fates[draws.integers(len(fates))]

    with room(tmp_path, carry) as scene:
        run = scene.train()
    assert any(copies == 0 for _, copies in scene.office.carried)
    assert any(copies == 2 for _, copies in scene.office.carried)
    assert_the_same(scene, run, expected)


def test_a_party_that_comes_back_finds_its_place(tmp_path: Path, expected: Run) -> None:
    with room(tmp_path) as scene:

        def carry(way: Way) -> Sequence[float]:
            if way.kind == "ALL" and way.number == 3 and way.reader == "party_1" and not left.is_set():
                left.set()
            return (0.0,)

        left = threading.Event()
        scene.office.carry = carry

        def restart() -> None:
            assert left.wait(60)
            scene.leave("party_1")
            scene.arrive("party_1")

        helper = threading.Thread(target=restart)
        helper.start()
        run = scene.train()
        helper.join()
    assert scene.said("party_1", "reopened")
    assert_the_same(scene, run, expected)


@dataclass(frozen=True)
class OtherLabels(SmallTrial):
    """The same files of the label holder, with one thing changed."""

    change: str = ""

    def undertaking(self) -> Undertaking:
        u = super().undertaking()
        weights = torch.ones(len(u.labels)) if u.weights is None else u.weights.clone()
        if self.change == "label":
            labels = u.labels.clone()
            row = int(u.split.train[0])
            labels[row] = (labels[row] + 1) % u.task.outputs
            return replace(u, labels=labels)
        if self.change == "weight":
            weights[int(u.split.train[0])] *= 2
            return replace(u, weights=weights)
        if self.change == "names":
            return replace(u, task=replace(u.task, names=tuple(f"other {k}" for k in range(u.task.outputs))))
        swapped = RowSplit(u.split.train, u.split.test, u.split.validation)
        return replace(u, split=swapped)


@pytest.mark.parametrize("change", ["label", "weight", "names", "split"])
def test_a_coordinator_that_comes_back_with_other_labels_refuses(change: str, tmp_path: Path, expected: Run) -> None:
    def killed(way: Way) -> Sequence[float]:
        if way.kind == "ALL" and way.number == 3:
            raise InterruptedError
        return (0.0,)

    with room(tmp_path, killed) as scene:
        with pytest.raises(InterruptedError):
            scene.train()
        scene.office.carry = at_once
        facts = {f.name: getattr(scene.trial, f.name) for f in fields(scene.trial)}
        other = replace(scene, trial=OtherLabels(**facts, change=change))
        with pytest.raises(
            RunError, match="labels, row weights or split of run 'test' are not those that it began with"
        ):
            other.train()
        run = scene.train()  # with the labels it began with it goes on
    assert_the_same(scene, run, expected)


class TestPrediction:
    rows = torch.tensor([80, 3, 17, 64])

    def wanted(self, run: Run | Model) -> torch.Tensor:
        return run.logits({party.name: party.columns[self.rows] for party in small(**DATA).parties})

    @pytest.mark.parametrize("numbers", ["full", "int8"])
    def test_it_is_that_of_the_simulation(self, numbers: str, tmp_path: Path) -> None:
        wire = {"numbers": numbers}
        with plain_room(tmp_path, wire=wire) as scene:
            scene.train()
            found = scene.predict(Wish(self.rows))
        wanted = plainly_simulated(wire=wire)
        torch.testing.assert_close(found.logits, self.wanted(wanted), rtol=0, atol=1e-9)

    @pytest.mark.parametrize("method", ["vimadmm", "vimadmm_j", "split_learning", "c_vfl"])
    def test_organisations_a_simulation_and_folders_say_the_same(self, method: str, tmp_path: Path) -> None:
        """One function computes uploads: of stacked parties, in a party's process, and from a party's folder."""
        with plain_room(tmp_path, method=method) as scene:
            trained = scene.train()
            asked = scene.predict(Wish(self.rows))
        task = trained.task
        wanted = plainly_simulated(method)
        simulated = task.probabilities(self.wanted(wanted))
        saved = Model.load(wanted.model.save(tmp_path / "model"))
        from_folder = task.probabilities(self.wanted(saved))
        parts = {name: Part.load(scene.trial.place(name)) for name in PARTIES}
        said = {p.name: parts[p.name].predict(p.columns[self.rows]) for p in small(**DATA).parties}
        with pytest.raises(RunError, match="it stays with that organisation"):
            self.wanted(trained.model)
        holder = Model.load(scene.trial.place(COORDINATOR))
        by_part = task.probabilities(put_together(replace(holder, parts=parts), said))
        assert np.array_equal(simulated, from_folder)
        for other in (task.probabilities(asked.logits), by_part):
            np.testing.assert_allclose(other, simulated, rtol=0, atol=1e-9)

    def test_a_party_folder_holds_its_part_and_nothing_of_the_others(self, tmp_path: Path) -> None:
        with plain_room(tmp_path) as scene:
            scene.train()
        part = Part.load(scene.trial.place("party_1"))
        about = json.loads((scene.trial.place("party_1") / "party.json").read_text())
        assert part.party == "party_1" and set(about) >= {"run", "party", "proposal", "stop", "fingerprint", "releases"}
        assert part.fingerprint() == fingerprint(plainly_simulated().models["party_1"])
        del about["part"]  # as an earlier version wrote it
        (scene.trial.place("party_1") / "party.json").write_text(json.dumps(about))
        with pytest.raises(RunError, match="start the party once more"):
            Part.load(scene.trial.place("party_1"))
        with scene:  # the party starts again, and writes its files anew
            for _ in range(100):
                if "part" in json.loads((scene.trial.place("party_1") / "party.json").read_text()):
                    break
                time.sleep(0.1)
        assert Part.load(scene.trial.place("party_1")).fingerprint() == part.fingerprint()

    def test_a_party_explains_its_columns_from_its_own_folder(self, tmp_path: Path) -> None:
        with plain_room(tmp_path, method="vimadmm_j") as scene:
            scene.train()
        columns = small(**DATA).parties[1].columns[self.rows]
        there, here = Part.load(scene.trial.place("party_1")), plainly_simulated("vimadmm_j").model.part("party_1")
        found, wanted = there.contributions(columns), here.contributions(columns)
        torch.testing.assert_close(found.values, wanted.values, rtol=0, atol=1e-9)
        assert found.gap < 1e-9 and found.way.endswith("counted from the mean training row")
        torch.testing.assert_close(there.importance(columns).draws, here.importance(columns).draws, rtol=0, atol=1e-9)
        assert not (scene.trial.place("party_1") / "part_ledger.jsonl").exists(), "nothing left the party"

    def test_a_party_folder_knows_the_rows_that_trained_with_noise(self, tmp_path: Path) -> None:
        with room(tmp_path) as scene:
            scene.train()
        federation = small(**DATA)
        columns, split = federation.parties[1].columns, federation.split
        part = Part.load(scene.trial.place("party_1"))
        assert part.noisy
        with pytest.raises(Refused, match="2 of these rows trained this run"):
            part.predict(columns[torch.cat([split.test[:2], split.train[:2]])])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert len(part.predict(columns[split.test[:2]])["h"]) == 2
        with plain_room(tmp_path / "plain") as scene:
            scene.train()
        assert not (scene.trial.place("party_1") / TRAINED).exists()

    @pytest.mark.parametrize("becomes", [LOST, TWICE], ids=["lost", "twice"])
    @pytest.mark.parametrize("kind", ["PREDICT", "ALL"])
    def test_an_accident_on_the_way_changes_nothing(self, kind: str, becomes: Sequence[float], tmp_path: Path) -> None:
        with plain_room(tmp_path) as scene:
            scene.train()
            met: list[Way] = []

            def carry(way: Way) -> Sequence[float]:
                if way.kind != kind or met or "party_1" not in (way.sender, way.reader):
                    return (0.0,)
                met.append(way)
                return becomes

            scene.office.carry = carry
            found = scene.predict(Wish(self.rows))
            again = scene.predict(Wish(self.rows))
        assert len(met) == 1
        torch.testing.assert_close(found.logits, self.wanted(plainly_simulated()), rtol=0, atol=1e-9)
        assert torch.equal(found.logits, again.logits)
        store = Store(scene.trial.place("party_1") / "party.db")
        saved = store.snapshot()
        store.close()
        assert saved is not None
        assert sum(r.purpose.value == "PREDICT" for r in saved.ledger) == 2  # one release per question, however often


def plain_room(folder: Path, **training: Any) -> Room:
    scene = room(folder, **training)
    return replace(scene, trial=replace(scene.trial, noise=0.0))


def plainly_simulated(method: str = "vimadmm", **training: Any) -> Run:
    model, made = build(ModelSettings, MODEL, "model"), make(method, local_steps=2, noise=False)
    return open_trainer(small(**DATA), made, model=model, **{**TRAINING, **training}).train()


def test_both_links_have_the_face_of_a_link() -> None:
    """The type checker holds them against it; this one says which methods there are."""
    face = {name for name in vars(Link) if not name.startswith("_")} - {"run", "credentials", "encryption", "came_back"}
    assert face == {"lay", "listen", "send", "next", "done", "forget", "refuse", "purge"}
    for kind in (nats.NatsLink, MemoryLink):
        assert all(callable(getattr(kind, name)) for name in face)


def test_our_largest_message_fits_a_record_of_the_server() -> None:
    assert LIMIT + nats.OVERHEAD < nats.RECORD


def test_rows_of_another_alignment_are_other_people() -> None:
    agreement: Any = SimpleNamespace(proposal=SimpleNamespace(body={"run": "churn", "alignment": "1" * 64}))
    for digest in (None, "1" * 64):
        _check_alignment(agreement, Wish(torch.arange(2), alignment=digest))
    with pytest.raises(RunError, match="trained on the rows of alignment 111111111111, and the alignment here is 222"):
        _check_alignment(agreement, Wish(torch.arange(2), alignment="2" * 64))


def test_who_did_not_say_that_it_would_answer_is_not_asked_to() -> None:
    request = Request(8, (Query(Purpose.PREDICT, ("a", "b"), torch.arange(2)),))
    consent, question = _asking(request, True, {"b"}), _asking(request, False, {"b"})
    assert (consent.number, consent.consent, consent.queries) == (7, True, request.queries)
    assert (question.number, question.consent, question.queries[0].senders) == (8, False, ("a",))
    assert _asking(request, False, ()) == request


def test_one_asker_asks_many_times(tmp_path: Path) -> None:
    """Over one open link, with numbers of its own for each question; a party that was away is back for the next one."""
    rows, place = torch.arange(60, 66), tmp_path / COORDINATOR
    with plain_room(tmp_path) as scene:
        scene.train()
        wanted = scene.predict(Wish(rows)).logits
        before = {release.number for release in Run.load(place).ledger}
        asker = Asker(place, scene.link(COORDINATOR), scene._notify(COORDINATOR))
        first, second = asker.ask(Wish(rows)).logits, asker.ask(Wish(rows[:2])).logits
        scene.leave("party_1")
        with pytest.raises(RunError, match="party_1 did not answer"):
            asker.ask(Wish(rows, patience=0.5))
        scene.arrive("party_1")
        again = asker.ask(Wish(rows)).logits
        asker.close()
        after = {release.number for release in Run.load(place).ledger}
        file, deadline = tmp_path / "party_0" / "ledger.jsonl", time.monotonic() + LONG
        while file.read_text().count('"PREDICT"') < 4 and time.monotonic() < deadline:
            time.sleep(0.1)
    assert torch.equal(first, wanted) and torch.equal(again, wanted)
    torch.testing.assert_close(second, wanted[:2], rtol=0, atol=1e-12)  # fewer rows are another product
    assert len(after - before) == 7, "two for each question, one for the question that somebody did not consent to"
    assert file.read_text().count('"PREDICT"') == 4, "an idle party writes its files again"
