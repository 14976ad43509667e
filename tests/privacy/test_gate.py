"""The gate: refuses before it releases, records what it releases, and lets nothing clean slip by."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from colonnade.errors import Diverged, GateError, WireError
from colonnade.methods.base import Method
from colonnade.models.cohort import Cohort
from colonnade.privacy.events import LabelExposure, OtherEvent, Unit
from colonnade.privacy.gate import CoordinatorGate, Gate
from colonnade.privacy.gaussian import Gaussian, SeededNoise
from colonnade.privacy.ledger import Ledger
from colonnade.privacy.mechanism import Mechanism, Protection, Unchanged
from colonnade.privacy.sealed import Array, Release, Upload, seal, unwrap
from colonnade.wire.codec import decode
from colonnade.wire.messages import COORDINATOR, Purpose, Query, Request
from tests.contracts.registry import NAMES, covering, make
from tests.federations import small
from tests.mechanisms import Noise, Rounding
from tests.processes import LONG
from tests.releases import released
from tests.trainers import ENGINES, open_trainer, rounds_of

PARTIES = ("bank", "telco")


def gate(mechanism: Mechanism | None = None) -> Gate:
    return Gate("run", Ledger(), {"h": Array(3)}, Protection.everywhere(mechanism))


def good() -> Tensor:
    return torch.arange(12.0).view(2, 2, 3)


class TestRelease:
    def test_one_message_per_party(self) -> None:
        g = gate()
        passed = g.release(Upload({"h": good()}), PARTIES, 7, Purpose.TRAIN, 2)
        assert passed.parties == PARTIES
        for k, (party, message) in enumerate(zip(PARTIES, passed.releases, strict=True)):
            header, arrays = decode(message.payload)
            assert header == {"version": 1, "run": "run", "number": 7, "kind": "TRAIN", "part": 0, "sender": party}
            assert torch.equal(arrays["h"], good()[k])
            assert message.digest == hashlib.sha256(message.payload).hexdigest()

    def test_the_ledger_says_what_left(self) -> None:
        g = gate(mechanism=Noise(0.5))
        passed = g.release(Upload({"h": good()}), PARTIES, 7, Purpose.EVALUATE, 2)
        assert list(g.ledger) == [
            released(p, "noise for tests", 7, Purpose.EVALUATE, 2, r.digest, sigma=0.5)
            for p, r in zip(PARTIES, passed.releases, strict=True)
        ]

    def test_hashed_beside_other_work_they_are_the_same(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """As from a GPU: the gate returns before they are hashed, and nobody sees one before it is recorded."""
        values, plain, aside = torch.randn(2, 9000, 3), gate(), gate()
        said = [plain.release(Upload({"h": values + n}), PARTIES, n, Purpose.TRAIN, 9000).releases for n in (1, 2)]
        free = threading.Event()

        def slow(*message: Any) -> Release:
            assert free.wait(LONG)
            return seal(*message)

        with monkeypatch.context() as patch:
            patch.setattr("colonnade.privacy.gate.to_host", lambda sent: (dict(sent), lambda: None))
            patch.setattr("colonnade.privacy.gate.seal", slow)
            first = aside.release(Upload({"h": values + 1}), PARTIES, 1, Purpose.TRAIN, 9000)
            threading.Timer(0.2, free.set).start()
            assert not free.is_set(), "the gate waited, so nothing is compared"
            assert len(aside.ledger) == 2
            assert free.is_set()
        second = aside.release(Upload({"h": values + 2}), PARTIES, 2, Purpose.TRAIN, 9000)
        assert [[r.payload for r in p.releases] for p in (first, second)] == [[r.payload for r in p] for p in said]
        assert list(aside.ledger) == list(plain.ledger)

    def test_unchanged_says_so(self) -> None:
        g = gate()
        g.release(Upload({"h": good()}), PARTIES, 1, Purpose.TRAIN, 2)
        assert {r.mechanism for r in g.ledger} == {Unchanged().event.name} == {"none"}

    def test_what_passed_is_what_a_reader_decodes(self) -> None:
        passed = gate(mechanism=Noise()).release(Upload({"h": good()}), PARTIES, 1, Purpose.TRAIN, 2)
        decoded = torch.stack([decode(r.payload)[1]["h"] for r in passed.releases])
        assert torch.equal(passed.values["h"], decoded)
        assert not torch.equal(decoded, good())

    def test_what_calls_itself_unchanged_and_is_not_leaves_as_it_made_it(self) -> None:
        class Negated(Unchanged):
            def __call__(self, upload: Mapping[str, Tensor], *_: Any) -> Mapping[str, Tensor]:
                return {name: -value for name, value in upload.items()}

        passed = gate(mechanism=Negated()).release(Upload({"h": good()}), PARTIES, 1, Purpose.TRAIN, 2)
        assert torch.equal(torch.stack([decode(r.payload)[1]["h"] for r in passed.releases]), -good())

    def test_noise_belongs_to_the_party_not_to_its_company(self) -> None:
        both = gate(mechanism=Noise()).release(Upload({"h": good()}), PARTIES, 1, Purpose.TRAIN, 2).values["h"]
        alone = gate(mechanism=Noise()).release(Upload({"h": good()[1:]}), PARTIES[1:], 1, Purpose.TRAIN, 2).values["h"]
        assert torch.equal(both[1:], alone)


class Overflow:
    """Turns one party's values into infinities."""

    event = OtherEvent("overflow")

    def __call__(
        self, upload: Mapping[str, Tensor], parties: Sequence[str], number: int, what: str
    ) -> Mapping[str, Tensor]:
        out = {name: values.clone() for name, values in upload.items()}
        for values in out.values():
            values[1] = float("inf")
        return out


class TestRefusal:
    @pytest.mark.parametrize(
        "values",
        [
            {},
            {"x": good()},
            {"h": good(), "x": good()},
            {"h": good().double()[:, :1]},
            {"h": good()[:1]},
            {"h": good()[..., :2]},
            {"h": good().unsqueeze(0)},
            {"h": torch.tensor(1.0)},
        ],
        ids=["nothing", "name", "extra", "rows", "parties", "width", "axes", "scalar"],
    )
    def test_wrong_names_and_shapes(self, values: dict[str, Tensor]) -> None:
        g = gate(mechanism=Untouched())
        with pytest.raises(GateError, match="nothing was released"):
            g.release(Upload(values), PARTIES, 1, Purpose.TRAIN, 2)
        assert len(g.ledger) == 0

    @pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
    def test_non_finite_numbers_name_the_party(self, bad: float) -> None:
        g, values = gate(mechanism=Untouched()), good()
        values[1, 0, 2] = bad
        with pytest.raises(Diverged, match="party 'telco' computed a non-finite upload") as refusal:
            g.release(Upload({"h": values}), PARTIES, 1, Purpose.TRAIN, 2)
        assert refusal.value.party == "telco"
        assert len(g.ledger) == 0

    @pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
    def test_before_noise_they_are_zero_and_nobody_is_told(self, bad: float) -> None:
        """Whether a number is finite would be a release that nobody counts."""
        sent = []
        for value in (bad, 0.0):
            values = good()
            values[1, 0, 2] = value
            g = gate(mechanism=Gaussian(1.0, 2.0, SeededNoise(0)))
            sent.append(g.release(Upload({"h": values}), PARTIES, 1, Purpose.TRAIN, 2).releases)
            assert len(g.ledger) == 2
        assert [a.payload for a in sent[0]] == [b.payload for b in sent[1]]

    def test_a_mechanism_that_overflows_releases_zeros(self) -> None:
        values = gate(mechanism=Overflow()).release(Upload({"h": good()}), PARTIES, 1, Purpose.TRAIN, 2).values["h"]
        assert torch.equal(values[0], good()[0]) and not values[1].any()

    def test_a_dtype_that_may_not_travel(self) -> None:
        g = gate()
        with pytest.raises(WireError, match="bfloat16"):
            g.release(Upload({"h": good().bfloat16()}), PARTIES, 1, Purpose.TRAIN, 2)
        assert len(g.ledger) == 0


class Untouched(Unchanged):
    """Must not be asked about an upload that is going to be refused."""

    def __call__(
        self, upload: Mapping[str, Tensor], parties: Sequence[str], number: int, what: str
    ) -> Mapping[str, Tensor]:
        raise AssertionError("the mechanism saw a refused upload")


class TestCoordinator:
    def make(self) -> CoordinatorGate:
        return CoordinatorGate("run", Ledger(), PARTIES, (PARTIES[:1], PARTIES[1:]))

    def test_own_parts_go_to_their_owner_only(self) -> None:
        request = Request(3, (Query(Purpose.TRAIN, PARTIES, torch.tensor([4, 2])),), PARTIES)
        own = ({"w": torch.ones(1, 2)}, {"w": 2 * torch.ones(1, 2)})
        down = self.make().release(request, {"v": torch.zeros(5, 3)}, own)
        for k, party in enumerate(PARTIES):
            header, arrays = decode(down.own[party].payload)
            assert header["to"] == party
            assert torch.equal(arrays["w"], own[k]["w"][0])
        assert set(decode(down.everyone.payload)[1]) == {"rows.0", "common.v"}

    def test_replies_are_label_events(self) -> None:
        g = self.make()
        g.release(Request(3, (), PARTIES), {"v": torch.zeros(5, 3)}, ({"w": torch.ones(1, 2)}, {}))
        seen = [(r.owner, r.audience, r.unit, r.mechanism, r.rows) for r in g.ledger]
        assert seen == [
            (COORDINATOR, "*", Unit.LABEL, "none", 5),
            (COORDINATOR, "bank", Unit.LABEL, "none", 0),
            (COORDINATOR, "telco", Unit.LABEL, "empty", 0),
        ]

    def test_who_does_not_learn_gets_no_part_of_its_own(self) -> None:
        g = self.make()
        own = ({"w": torch.ones(1, 2)}, {"w": torch.ones(1, 2)})
        assert set(g.release(Request(3, (), PARTIES[1:]), {}, own).own) == set(PARTIES[1:])
        assert [r.audience for r in g.ledger] == ["*", *PARTIES[1:]]

    def test_row_numbers_alone_carry_no_label(self) -> None:
        g = self.make()
        g.release(Request(3, (Query(Purpose.TRAIN, PARTIES, torch.tensor([4, 2])),)), {}, ())
        assert [r.mechanism for r in g.ledger] == ["empty"]

    @pytest.mark.parametrize("consent", [False, True])
    def test_a_question_after_training_says_what_it_is_for_and_about_how_many_rows(self, consent: bool) -> None:
        g = self.make()
        queries = tuple(Query(Purpose.PREDICT, PARTIES[:k], torch.tensor([4, 2])) for k in (1, 2))
        sealed = g.release(Request(30, queries, consent=consent), {}, ()).everyone
        (entry,) = g.ledger
        assert (entry.purpose, entry.rows, entry.mechanism) == (Purpose.PREDICT, 4, "empty")
        assert entry.notes == ((("consent", 1.0),) if consent else ())
        assert entry.size == len(sealed.payload)

    def test_a_broken_reply_is_not_released(self) -> None:
        g = self.make()
        with pytest.raises(GateError, match="NaN"):
            g.release(Request(3), {"v": torch.tensor([float("nan")])}, ())
        assert len(g.ledger) == 0


@pytest.mark.parametrize(("name", "engine"), [(n, e) for n, e in covering(ENGINES) if n in NAMES])
class TestWholeRuns:
    def test_every_payload_is_in_the_ledger_and_so_is_the_exposure_of_labels(self, name: str, engine: str) -> None:
        trainer = open_trainer(small(), make(name, local_steps=1), engine=engine, rounds=5, evaluate_every=2)
        travelled = [payload for one_round in rounds_of(trainer) for payload in one_round.payloads]
        digests = [hashlib.sha256(payload).hexdigest() for payload in travelled]
        assert sorted(digests) == sorted(r.digest for r in trainer.ledger)
        assert all(trainer.ledger.holds(digest) for digest in digests)
        told = [r for r in trainer.ledger if r.owner == COORDINATOR and r.mechanism == "none"]
        assert bool(told) == (make(name).exposes is LabelExposure.FULL)
        assert all(r.unit is Unit.LABEL for r in told)

    def test_no_clean_row_travels_under_noise(self, name: str, engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
        if sends_whole_numbers(name, engine):  # which no noise of this kind can protect: refused, not let through
            noise = Gaussian(1.0, 1.0, SeededNoise(0))
            with pytest.raises(GateError, match="cannot protect the whole numbers"):
                open_trainer(small(), make(name), mechanism=noise, engine=engine, rounds=1).train()
            return
        clean = listen(monkeypatch, make(name))
        options = {"engine": engine, "rounds": 4, "evaluate_every": 2}
        trainer = open_trainer(small(), make(name, local_steps=1), mechanism=Noise(1e-3), **options)
        payloads = b"".join(p for one_round in rounds_of(trainer) for p in one_round.payloads)
        rows = {row.numpy().tobytes() for upload in clean for row in upload.flatten(0, 1) if row.any()}
        assert rows
        assert not any(row in payloads for row in rows)

    def test_the_search_for_clean_rows_finds_them(
        self, name: str, engine: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        clean = listen(monkeypatch, make(name))
        trainer = open_trainer(
            small(), make(name, local_steps=1, noise=False), engine=engine, rounds=4, evaluate_every=2
        )
        payloads = b"".join(p for one_round in rounds_of(trainer) for p in one_round.payloads)
        rows = {row.numpy().tobytes() for upload in clean for row in upload.flatten(0, 1) if row.any()}
        assert all(row in payloads for row in rows)

    def test_every_upload_passes_the_mechanism(self, name: str, engine: str) -> None:
        options = {"mechanism": Rounding(), "engine": engine, "rounds": 2, "evaluate_every": 1}
        run = open_trainer(small(), make(name, local_steps=1), **options).train()  # with a look at the test rows
        mechanisms = {r.mechanism for r in run.ledger if r.owner != COORDINATOR}
        assert mechanisms == {"rounding for tests"}


def listen(monkeypatch: pytest.MonkeyPatch, method: Any) -> list[Tensor]:
    """Collect what the method would like to say, before the gate sees it."""
    heard: list[Tensor] = []
    speak = type(method).upload

    def loud(self: Method, cohort: Cohort, x: Tensor, training: bool) -> Upload:
        upload = speak(self, cohort, x, training)
        heard.extend(value.clone() for value in unwrap(upload).values())
        return upload

    monkeypatch.setattr(type(method), "upload", loud)
    return heard


def sends_whole_numbers(name: str, engine: str) -> bool:
    sides = open_trainer(small(), make(name), engine=engine, rounds=1).engine.parties()
    kinds = [array.dtype for side in sides for array in side.gate.agreed.values()]
    return any(kind is not None and not kind.is_floating_point for kind in kinds)
