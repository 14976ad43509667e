"""The round protocol: one round trip per round, the reply rides with the next request, failures name their party."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from colonnade.engines import queries
from colonnade.engines.party import PartySide, Prepared
from colonnade.errors import ConfigError, WireError
from colonnade.fit import Progress, Trainer, fit
from colonnade.methods import VIMADMM, VIMADMMJ, Centralized, LocalOnly
from colonnade.methods.base import Received
from colonnade.models.heads import HeadSettings
from colonnade.privacy import gate
from colonnade.saved import fingerprint
from colonnade.wire.messages import Purpose, Request
from tests.federations import mixed_encoder, small
from tests.trainers import ENGINES, TINY, TrainedRound, open_trainer, record, rounds_of, untimed


def seen(rounds: int = 5, every: int = 2, **options: object) -> list[TrainedRound]:
    options = {"evaluate_every": every, "schedule": {"batch": 20}, **options}
    return list(rounds_of(open_trainer(small(), VIMADMM(local_steps=1), rounds=rounds, **options)))  # type: ignore[arg-type]


class TestRequests:
    def test_one_round_trip_per_round_and_two_to_end(self) -> None:
        orders = [e.request for e in seen(rounds=5)]
        assert [o.number for o in orders] == [1, 2, 3, 4, 5, 6, 7]
        assert [o.stop for o in orders] == [None] * 6 + ["all rounds done"]

    def test_the_reply_rides_with_the_next_request(self) -> None:
        replies = [set(e.down.common) for e in seen(rounds=3)]
        assert replies == [set(), {"v"}, {"v"}, {"v"}, set()]
        learners = [len(e.request.learners) for e in seen(rounds=3)]
        assert learners == [0, 4, 4, 4, 0]

    def test_evaluation_rides_along_and_comes_once_more_at_the_end(self) -> None:
        purposes = [[a.purpose.value for a in e.request.queries] for e in seen(rounds=5, every=2)]
        assert purposes == [
            ["TRAIN"],
            ["TRAIN"],
            ["TRAIN", "EVALUATE"],
            ["TRAIN"],
            ["TRAIN", "EVALUATE"],
            ["EVALUATE"],
            [],
        ]

    def test_no_evaluation_unless_wanted(self) -> None:
        assert all(a.purpose is Purpose.TRAIN for e in seen(every=0) for a in e.request.queries)

    def test_keep_follows_a_new_best(self) -> None:
        trainer = open_trainer(small(), VIMADMM(local_steps=5), rounds=8, evaluate_every=1, schedule={"batch": 20})
        keeps = [e.request.keep for e in rounds_of(trainer)]
        scores = [h["score"] for h in trainer.coordinator.history if "score" in h]
        best = [n for n, s in enumerate(scores) if s > max([-1.0, *scores[:n]])]
        assert [n for n, keep in enumerate(keeps) if keep] == [
            n + 2 for n in best
        ]  # scored after request n + 2, index n + 1

    def test_the_best_state_is_a_copy(self) -> None:
        trainer = open_trainer(small(), LocalOnly(), rounds=3, evaluate_every=1)
        for _ in rounds_of(trainer):
            pass
        state, best = trainer.coordinator.state, trainer.coordinator.best_state
        assert best.keys() - state.keys() == {"subset.scores", "subset.targets"}  # of the kept round, for its end
        assert all(best[name] is not state[name] for name in state)

    def test_an_opening_reply_reaches_everybody_before_round_one(self) -> None:
        first = next(rounds_of(open_trainer(small(), LocalOnly())))
        assert first.request.learners == tuple(f"party_{k}" for k in range(4))
        assert set(first.down.common) == {"targets"}


@pytest.mark.parametrize("engine", ENGINES)
def test_evaluation_in_pieces_is_the_same_evaluation(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = record(small(), VIMADMMJ(local_steps=1), engine=engine, rounds=4, evaluate_every=1)
    monkeypatch.setattr(queries, "EVALUATION_CHUNK", 7)
    pieces = record(small(), VIMADMMJ(local_steps=1), engine=engine, rounds=4, evaluate_every=1)
    assert untimed(pieces.run.history) == untimed(whole.run.history)
    first, second = (
        {k: v for k, v in run.model.flat().items() if "subset." not in k} for run in (whole.run, pieces.run)
    )
    assert fingerprint(first) == fingerprint(second)
    for name in ("subset.weights", "subset.bias"):  # scores of a piece may differ in their last bit from those of all
        torch.testing.assert_close(pieces.run.state[name], whole.run.state[name], rtol=0, atol=1e-9)
    looks = [sum(r.purpose is Purpose.EVALUATE for r in run.ledger) for run in (whole.run, pieces.run)]
    assert looks == [4 * (4 + 1), 4 * (4 * 3 + 3)]  # 18 validation rows: three pieces; so are the test rows


class Fragile(nn.Module):
    """Breaks on the short batch at the end of an epoch."""

    def __init__(self, breaks: bool) -> None:
        super().__init__()
        self.linear, self.breaks = nn.Linear(5, 4), breaks

    def forward(self, x: Tensor) -> Tensor:
        if self.training and self.breaks and len(x) == 14:
            raise ValueError("a pipe burst")
        return self.linear(x)


class TestFailures:
    def test_the_loop_names_the_party_and_the_round(self) -> None:
        trainer = open_trainer(
            small(), VIMADMM(), encoders=lambda p, s: Fragile(p == "party_2"), engine="loop", schedule={"batch": 20}
        )
        with pytest.raises(RuntimeError, match="party 'party_2' failed in round 3: a pipe burst"):
            trainer.train()

    def test_the_loop_refuses_a_message_under_another_name(self) -> None:
        trainer = open_trainer(small(), VIMADMM(), engine="loop")
        trainer.engine.parties()[0].cohort.names = ("party_1",)
        with pytest.raises(WireError, match="'party_0' says it is from 'party_1'"):
            trainer.train()

    def test_impossible_settings_are_refused_before_training(self) -> None:
        layered = TINY.model_copy(update={"head": HeadSettings(layers=2)})
        with pytest.raises(ConfigError, match="linear heads only"):
            fit(small(), VIMADMM(head_update="joint"), model=layered)
        for method in (VIMADMM(damping=0.2), VIMADMMJ(damping=0.2)):
            with pytest.raises(ConfigError, match="below 1/M"):
                fit(small(), method)
        with pytest.raises(ConfigError, match="not a device"):
            fit(small(), VIMADMM(), device="abacus")
        with pytest.raises(ConfigError, match="a model for 'party_9', who is not a party"):
            fit(small(), VIMADMM(), encoders={"party_9": nn.Linear(5, 4)})
        with pytest.raises(ConfigError, match="not both"):
            fit(small(), VIMADMM(), training=open_trainer(small(), VIMADMM()).training, rounds=3)

    @pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
    def test_a_gpu_that_is_not_there(self) -> None:
        with pytest.raises(ConfigError, match="no GPU"):
            fit(small(), VIMADMM(), device="cuda")


class TestFit:
    def test_a_watcher_sees_every_round(self) -> None:
        told: list[Progress] = []
        run = fit(small(), VIMADMM(local_steps=1), rounds=4, evaluate_every=2, model=TINY, watch=told.append)
        assert [p.round for p in told] == [1, 2, 3, 4, 4]  # and once more after the last evaluation
        assert [p.score is None for p in told] == [True, True, False, False, False]
        assert told[-1].best == run.result["validation_score"]
        assert told[-1].bytes <= run.traffic.up + run.traffic.down
        assert all(a.bytes < b.bytes for a, b in pairwise(told))

    def test_own_modules_by_party_are_not_changed(self) -> None:
        nets = {f"party_{k}": nn.Sequential(nn.Linear(5, 4), nn.Dropout(0.5)) for k in range(4)}
        before = {k: v.clone() for k, v in nets["party_0"].state_dict().items()}
        fit(small(), VIMADMM(local_steps=2), encoders=nets, rounds=2)
        assert all(torch.equal(v, before[k]) for k, v in nets["party_0"].state_dict().items())

    def test_centralized_holds_everything_in_one_place(self) -> None:
        run = fit(small(), Centralized(), rounds=2, model=TINY)
        assert list(run.models) == ["everyone"]
        assert run.about["parties"] == [{"name": "everyone", "shape": [20]}]


def test_all_groups_compute_before_the_first_one_releases(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gate waits for numbers of a GPU, which should have the next group's work by then."""
    order: list[tuple[str, tuple[str, ...]]] = []
    prepare, release = PartySide.prepare, PartySide.release

    def noted_prepare(side: PartySide, *about: Any) -> Any:
        order.append(("prepare", side.cohort.names))
        return prepare(side, *about)

    def noted_release(side: PartySide, prepared: Prepared) -> Any:
        order.append(("release", side.cohort.names))
        return release(side, prepared)

    monkeypatch.setattr(PartySide, "prepare", noted_prepare)
    monkeypatch.setattr(PartySide, "release", noted_release)
    fit(small(), "vimadmm", rounds=1, encoders=mixed_encoder, evaluate_every=0, stopping={"drop": 9.0})
    groups = list(dict.fromkeys(names for _, names in order))
    assert len(groups) == 2
    assert order[:4] == [("prepare", groups[0]), ("prepare", groups[1]), ("release", groups[0]), ("release", groups[1])]


def test_what_comes_from_a_gpu_is_sealed_when_parties_have_their_next_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if tensors came from a GPU; bytes, traffic and ledger are those of messages that are sealed at once."""
    order: list[tuple[str, int]] = []
    prepare, seal = PartySide.prepare, gate.seal

    def noted_prepare(side: PartySide, request: Request, reply: Received) -> Any:
        order.append(("prepare", request.number))
        return prepare(side, request, reply)

    def noted_seal(sender: str, kind: str, number: int, payload: bytes) -> Any:
        order.append((kind, number))
        return seal(sender, kind, number, payload)

    def trained() -> Trainer:
        trainer = open_trainer(small(), VIMADMM(local_steps=1), rounds=4, evaluate_every=2, schedule={"batch": 20})
        trainer.train()
        return trainer

    near = trained()
    monkeypatch.setattr(gate, "to_host", lambda sent: ({k: v.clone() for k, v in sent.items()}, lambda: None))
    monkeypatch.setattr(gate, "WORTH_A_THREAD", 0)
    monkeypatch.setattr(PartySide, "prepare", noted_prepare)
    monkeypatch.setattr(gate, "seal", noted_seal)
    far = trained()
    for number in (1, 2, 3):
        sealed = [place for place, event in enumerate(order) if event == ("TRAIN", number)]
        assert len(sealed) == 4
        assert order.index(("prepare", number + 1)) < min(sealed)
        assert max(sealed) < order.index(("prepare", number + 2))
    assert list(far.ledger) == list(near.ledger)
    assert far.coordinator.traffic.to_json() == near.coordinator.traffic.to_json()
