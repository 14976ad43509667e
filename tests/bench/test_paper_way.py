"""The baseline computes what we compute: the same z-step, and the same heads after several rounds."""

import numpy as np
import torch

from colonnade.admm.step import update_z
from colonnade.bench.made_up import make_federation, make_method, make_model, one_round, open_trainer
from colonnade.bench.paper_way import PaperWay, Problem, open_pool, solve_rows
from colonnade.bench.settings import Shape
from colonnade.methods._steps import get_heads
from colonnade.randomness import stream
from colonnade.tasks.multiclass import Multiclass

SHAPE = Shape(parties=3, columns=(2, 4), classes=4, rows=40, batch=40, local_steps=3, hidden=6, embedding=5)
CPU = torch.device("cpu")


def problems(rows: int, rho: float) -> list[Problem]:
    rng = stream(0, "test problems")
    label = np.eye(5)[rng.integers(0, 5, rows)]
    return [(np.zeros(5), label[i], 0.3 * rng.normal(size=5), 4 * rng.normal(size=5), rho) for i in range(rows)]


def test_the_z_step_is_the_same() -> None:
    for rho in (0.5, 1.0, 2.0):
        rows = problems(30, rho)
        label, dual, total = (torch.from_numpy(np.stack([p[at] for p in rows])) for at in (1, 2, 3))
        ours = update_z(total, dual, label, rho, Multiclass(10))
        torch.testing.assert_close(ours, torch.from_numpy(solve_rows(rows, None)), atol=5e-4, rtol=0)


def test_a_pool_changes_no_number() -> None:
    rows = problems(8, 1.0)
    with open_pool(2) as pool:
        assert pool is not None
        shared = solve_rows(rows, pool)
    with open_pool(1) as alone:
        assert alone is None
        np.testing.assert_array_equal(shared, solve_rows(rows, alone))


def test_whole_rounds_are_the_same() -> None:
    federation = make_federation(SHAPE)
    trainer = open_trainer(SHAPE, federation, CPU)
    way = PaperWay.open(federation, make_method(SHAPE), make_model(SHAPE), SHAPE.batch, CPU, 0)
    step = one_round(trainer)
    for _ in range(4):  # full batches: the row order does not matter
        step()
        way.round(None)
    ours = get_heads(trainer.coordinator.state)[0]["weight.0"]
    theirs = torch.stack([party.head.weight.detach().mT for party in way.parties])
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)
    moved = trainer.coordinator.state["dual"][federation.split.train]
    torch.testing.assert_close(moved, torch.from_numpy(way.dual).to(moved.dtype), atol=1e-4, rtol=0)
    step()  # the reply to round 4 is learnt from with order 5
    encoder = trainer.engine.parties()[0].cohort.encoder.parameters["1.weight"].detach()
    theirs = torch.stack([next(iter(party.encoder.parameters())).detach() for party in way.parties])
    torch.testing.assert_close(encoder, theirs, atol=1e-5, rtol=0)


def test_batches_follow_each_other_and_begin_again() -> None:
    shape = SHAPE.model_copy(update={"batch": 16})
    way = PaperWay.open(make_federation(shape), make_method(shape), make_model(shape), 16, CPU, 0)
    places = []
    for _ in range(4):
        way.round(None)
        places.append((way.place, len(way.problems)))
    assert places == [(16, 16), (32, 16), (0, 8), (16, 16)]
    assert np.abs(way.dual).min(axis=1).min() > 0  # every row was visited
    way.close()
