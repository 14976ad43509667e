"""Every method in every order: it learns, alone means alone, and both engines say the same.

"together" has its tests in the other contracts; here the parties have their turns one by one, with uploads that are
remembered. No method refuses an order; those without an uplink know no turns, and train as ever.
"""

from __future__ import annotations

import pytest
import torch

from colonnade.errors import ConfigError
from colonnade.fit import fit
from colonnade.methods.base import Method
from colonnade.models.optimise import AdamW
from colonnade.testing.methods import solved
from colonnade.wire.messages import COORDINATOR
from tests.contracts.registry import AT_THE_OPENING, EVERY, covering, fitting, make
from tests.federations import small, trivial
from tests.trainers import ENGINES, TrainedRound, assert_same_tensors, open_trainer, party_tensors, rounds_of

ORDERS = ["sequential", "asynchronous"]
SUM = {"secure_sum": {"use": True}}


@pytest.mark.parametrize(
    ("name", "order"), [(name, ORDERS[place % 2]) for place, name in enumerate(EVERY)] + [("vimadmm", "asynchronous")]
)
def test_the_trivial_federation_is_solved_in_turns(name: str, order: str) -> None:
    """Settings as they are, in as many turns as everybody needs to have had the rounds that it takes together."""
    schedule = {"order": order, "speeds": {"second": 0.7}, "staleness": 3}
    run = fit(trivial(), make(name), rounds=40, evaluate_every=5, schedule=schedule, watch=solved)
    assert run.accuracy == 1.0
    assert not run.result["diverged"]


@pytest.mark.parametrize(("name", "order"), covering(ORDERS))
def test_one_uploads_and_learns_and_the_engines_agree(name: str, order: str) -> None:
    method = make(name, local_steps=2, optimiser=AdamW(lr=0.01))
    seen = {engine: played(name, method, engine, order) for engine in ENGINES}
    for one, other in zip(*seen.values(), strict=True):
        for party in one:
            common = one[party].keys() & other[party].keys()  # a stack opens optimiser state for all its parties
            assert_same_tensors({k: one[party][k] for k in common}, {k: other[party][k] for k in common}, atol=1e-9)


def played(name: str, method: Method, engine: str, order: str) -> list[dict[str, dict[str, torch.Tensor]]]:
    """What every party held after each of seven turns; on the way: only the one that spoke has moved."""
    federation, schedule = fitting(name, small()), {"batch": 20, "order": order, "speeds": {"party_1": 2.5}}
    trainer = open_trainer(federation, method, engine=engine, rounds=7, evaluate_every=0, schedule=schedule)
    held, spoke = [party_tensors(trainer)], ()
    for one_round in rounds_of(trainer):
        held.append(party_tensors(trainer))
        if method.needs_uploads != "nothing" and name not in AT_THE_OPENING:
            assert one_round.request.learners == spoke or one_round.request.number == 1
            if one_round.request.number > 1:
                assert moved(held[-2], held[-1]) == list(spoke)
            spoke = senders(one_round)
    assert trainer.coordinator.stop is None  # nobody diverged
    return held


def senders(one_round: TrainedRound) -> tuple[str, ...]:
    """Who spoke in a round; who was asked is who answered."""
    answered = tuple(released.sender for ask in one_round.collected.releases for released in ask)
    assert answered == tuple(party for ask in one_round.request.queries for party in ask.senders)
    assert len(answered) <= 1
    return answered


def moved(before: dict[str, dict[str, torch.Tensor]], after: dict[str, dict[str, torch.Tensor]]) -> list[str]:
    """The parties of which anything that both moments know has changed."""
    return [p for p, held in before.items() if any(not torch.equal(v, after[p][k]) for k, v in held.items())]


@pytest.mark.parametrize(("name", "order"), covering(ORDERS))
def test_what_is_counted_and_recorded_is_what_is_sent(name: str, order: str) -> None:
    """The common message reaches everybody, also who does not learn from it; own parts reach learners only."""
    federation, schedule = fitting(name, small()), {"batch": 20, "order": order}
    method = make(name, local_steps=2)
    trainer = open_trainer(federation, method, engine="loop", rounds=3, evaluate_every=0, schedule=schedule)
    for one_round in rounds_of(trainer):
        common, own, number = one_round.down.everyone, one_round.down.own, one_round.request.number
        assert own.keys() <= set(one_round.request.learners)
        sizes = [
            len(common.payload) + (len(own[p].payload) if p in own else 0) for p in trainer.coordinator.schema.parties
        ]
        counted = trainer.coordinator.traffic.rounds[-1]
        assert (counted.number, counted.down.tolist()) == (number, sizes)
        assert counted.multicast_down == sum(len(sent.payload) for sent in (common, *own.values()))
        audience = {r.digest: r.audience for r in trainer.ledger if r.owner == COORDINATOR and r.number == number}
        assert audience == {common.digest: "*"} | {sent.digest: party for party, sent in own.items()}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", [n for n in EVERY if make(n).needs_uploads == "total"])
def test_a_secure_sum_opens_only_in_rounds_of_all(name: str, order: str) -> None:
    with pytest.raises(ConfigError, match="opens only with all parties"):
        open_trainer(fitting(name, small()), make(name), privacy=SUM, rounds=2, schedule={"order": order})
