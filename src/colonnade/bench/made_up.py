"""Federations and trainings that exist only to be timed: random columns around class means, published settings."""

from __future__ import annotations

from collections.abc import Callable

import torch

from colonnade.bench.settings import Shape
from colonnade.federation import Federation, RowSplit
from colonnade.fit import Trainer
from colonnade.methods import VIMADMM
from colonnade.models.approach import SquaredGap
from colonnade.models.computing import Computing
from colonnade.models.descend import descend
from colonnade.models.encoders import ModelSettings
from colonnade.models.heads import dropout_keys, open_heads
from colonnade.models.optimise import SGD
from colonnade.privacy.mechanism import Mechanism
from colonnade.randomness import stream
from colonnade.run import Training
from colonnade.schedule import ScheduleSettings

FOREVER = 10**9  # rounds: the clock decides when to stop


def make_federation(shape: Shape) -> Federation:
    """Columns in [0, 1) that tell something about the labels, so that training does what it does on real data."""
    labels = stream(0, "bench labels").integers(0, shape.classes, shape.rows)
    labels[: shape.classes] = range(shape.classes)  # every class occurs
    columns = {}
    for number in range(shape.parties):
        name = f"party{number:04d}"
        rng = stream(0, "bench columns", name)
        means = rng.random((shape.classes, *shape.columns))
        columns[name] = ((means[labels] + rng.random((shape.rows, *shape.columns))) / 2).astype("float32")
    nothing = torch.empty(0, dtype=torch.int64)
    split = RowSplit(torch.arange(shape.rows), nothing, nothing)
    return Federation.from_arrays(
        columns, labels, task="multiclass", classes=shape.classes, split=split, name="made-up"
    )


def make_method(shape: Shape) -> VIMADMM:
    """VIMADMM with the published settings and this shape's steps."""
    sgd = SGD(lr=shape.lr, momentum=0.9, weight_decay=1e-3)
    return VIMADMM.paper().model_copy(update={"local_steps": shape.local_steps, "optimiser": sgd, "head_lr": shape.lr})


def make_model(shape: Shape) -> ModelSettings:
    """The paper's local network in this shape."""
    return ModelSettings(encoder=shape.encoder, hidden=shape.hidden, embedding=shape.embedding, scale_columns="never")


def open_trainer(
    shape: Shape,
    federation: Federation,
    device: torch.device,
    mechanism: Mechanism | None = None,
    computing: Computing | None = None,
) -> Trainer:
    """Colonnade's own training of it: stacked engine, messages encoded, counted and recorded, no evaluation."""
    schedule, c = ScheduleSettings(batch=shape.batch), computing or Computing()
    training = Training(
        rounds=FOREVER, evaluate_every=0, device=str(device), schedule=schedule,
        precision=c.precision, compile=c.compile,
    )  # fmt: skip
    return Trainer.open(federation, make_method(shape), training, make_model(shape), None, mechanism)


def one_round(trainer: Trainer) -> Callable[[], None]:
    """What `Trainer.train` does once per round: request, uploads, reply."""

    def step() -> None:
        request, down = trainer.coordinator.request()
        trainer.coordinator.receive(request, trainer.engine.run_round(request, down))

    return step


def local_work(shape: Shape, trainer: Trainer) -> Callable[[int], None]:
    """The local steps of all parties towards zero, without the rest of a round."""
    method, cohort = make_method(shape), trainer.engine.parties()[0].cohort
    head = open_heads(cohort.schema.head, cohort.names, shape.embedding, shape.classes, 0)
    inputs = {
        "x": cohort.x(torch.arange(shape.batch)),
        "target": cohort.schema.zeros(shape.parties, shape.batch, shape.classes),
        "key": dropout_keys([0] * shape.parties, cohort.device),
        **{f"head.{name}": value.to(cohort.device, cohort.schema.dtype) for name, value in head.items()},
    }

    def steps(count: int) -> None:
        descend(cohort, SquaredGap(method.weight(cohort.schema)), inputs, steps=count, optimiser=method.optimiser)

    return steps
