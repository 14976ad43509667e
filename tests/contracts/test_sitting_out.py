"""A party that sits out stays untouched: weights, buffers, optimiser state, dropout counters, memory."""

from __future__ import annotations

import pytest
import torch

from colonnade.methods import METHODS
from colonnade.methods.base import Method
from colonnade.models.optimise import SGD, AdamW
from colonnade.schedule import RoundPlan, Schedule
from tests.contracts.registry import AT_THE_OPENING, EVERY, NAMES, WITHOUT_NETWORKS, fitting, make
from tests.federations import normed_encoder, small
from tests.trainers import ENGINES, assert_same_tensors, open_trainer, party_tensors, rounds_of

NEWEST = "pending.model."  # before the names of a model that was fitted last and does not count yet
SILENT = {"batch": 20, "participation": 0.5, "silent_learn": False}
OPTIMISERS = {"sgd": SGD(lr=0.05), "adamw": AdamW(lr=0.01)}


SPEAKING = [n for n in EVERY if make(n).needs_uploads != "nothing" and n not in AT_THE_OPENING]
OTHERS = [(n, "stacked", "adamw") for n in SPEAKING if n not in ("vimadmm", "vimadmm_j")]


@pytest.mark.parametrize(
    ("name", "engine", "optimiser"),
    [(n, e, o) for n in ("vimadmm", "vimadmm_j") for e in ENGINES for o in OPTIMISERS] + OTHERS,
)
def test_who_does_not_learn_is_untouched(name: str, engine: str, optimiser: str) -> None:
    method = make(name, local_steps=2, optimiser=OPTIMISERS[optimiser])
    federation = fitting(name, small())
    trainer = open_trainer(federation, method, engine=engine, encoders=normed_encoder, schedule=SILENT, rounds=8)
    before, sat_out, learnt = party_tensors(trainer), 0, 0
    for one_round in rounds_of(trainer):
        after = party_tensors(trainer)
        if one_round.request.number == 1:  # an opening reply, if there is one: it may be kept, but teaches nothing
            for party, held in before.items():
                assert_same_tensors(held, {k: after[party][k] for k in held}, atol=0)
            before = after
            continue
        for party, held in before.items():
            if party in one_round.request.learners:
                learnt += 1
                assert after[party].keys() >= held.keys()
                for kind in ("head.",) if name in WITHOUT_NETWORKS else ("buffer.", "parameter."):
                    mine = [k for k in held if k.removeprefix(NEWEST).startswith(kind)]
                    assert any(not torch.equal(held[k], after[party][k]) for k in mine)
            else:
                sat_out += 1
                new = set(after[party]) - set(held)  # optimiser state, where a stack opens it for all its parties
                assert all(not after[party][k].any() for k in new)
                assert_same_tensors(held, {k: after[party][k] for k in held}, atol=0)
        before = after
    parties = len(federation.parties)
    assert learnt == 8 * parties // 2
    assert sat_out == 8 * parties // 2 + parties  # and everybody in the last round


class StepsPerParty(Schedule):
    """Party 1 takes one local step, party 2 none, the others what the method says."""

    def plan(self, number: int) -> RoundPlan:
        t = super().plan(number)
        return RoundPlan(t.number, t.rows, t.senders, t.learners, (("party_1", 1), ("party_2", 0)))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", [n for n in NAMES if not make(n).pools and n not in WITHOUT_NETWORKS | AT_THE_OPENING])
def test_steps_differ_by_party(name: str, engine: str) -> None:
    trained = dict(steps_of(make(name, local_steps=3), engine))
    own = 3 if "local_steps" in METHODS[name].model_fields else 1  # some methods take one step by definition
    assert trained == {"party_0": own, "party_1": 1, "party_2": 0, "party_3": own}


@pytest.mark.parametrize("name", [n for n in EVERY if not make(n).pools])
def test_steps_per_party_are_the_same_in_every_engine(name: str) -> None:
    held = []
    for engine in ENGINES:
        federation = fitting(name, small())
        trainer = open_trainer(federation, make(name, local_steps=3), engine=engine, encoders=normed_encoder, rounds=4)
        trainer.coordinator.schedule = slowed(trainer.coordinator.schedule)
        for _ in rounds_of(trainer):
            pass
        held.append(party_tensors(trainer))
    for party, tensors in held[0].items():
        common = held[1][party].keys() & tensors.keys()
        assert_same_tensors({k: tensors[k] for k in common}, {k: held[1][party][k] for k in common}, atol=1e-9)


def slowed(schedule: Schedule) -> StepsPerParty:
    s = schedule
    return StepsPerParty(s.settings, s.train, s.parties, s.seed, s.has_uplink, s.whole)


def steps_of(method: Method, engine: str) -> list[tuple[str, int]]:
    """Local steps each party took in its first round, read off BatchNorm's counter."""
    trainer = open_trainer(small(), method, engine=engine, encoders=normed_encoder, rounds=1)
    trainer.coordinator.schedule = slowed(trainer.coordinator.schedule)
    for _ in rounds_of(trainer):
        pass
    counter = "buffer.1.num_batches_tracked"
    kept = {p: [t[k] for k in (counter, NEWEST + counter) if k in t] for p, t in party_tensors(trainer).items()}
    return [(p, int(found[0]) if found else 0) for p, found in kept.items()]  # without a step there is no increment
