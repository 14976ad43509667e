"""What a caller may choose, and the sizes of the speed benchmark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from colonnade.config import Settings
from colonnade.models.encoders import Kind

Notify = Callable[[str], None]  # where progress goes


@dataclass(frozen=True)
class Options:
    """How to run a benchmark; None keeps what its file says."""

    data_dir: Path | None = None
    device: str | None = None
    seeds: int = 3
    threads: int = 0  # of torch, and processes of the baseline's pool; 0: all cores
    only: tuple[str, ...] = ()  # names of the cases to run; empty: all
    runs: Path | None = None  # keep every training of a case there, and go on with those that are there
    finished: bool = False  # train nothing: only cases of which all trainings are there
    beyond: Path | None = None  # leave out cases that this file of results has


class Shape(Settings):
    """A federation that is made up for timing, and one round of training on it."""

    parties: int = Field(14, ge=1, description="parties")
    columns: tuple[int, ...] = Field((2, 28), description="shape of one row of one party")
    classes: int = Field(10, ge=2, description="classes")
    rows: int = Field(20480, ge=1, description="training rows")
    batch: int = Field(1024, ge=1, description="rows per round")
    local_steps: int = Field(20, ge=1, description="gradient steps per round (tau)")
    hidden: int = Field(120, ge=1, description="hidden width of the local network")
    embedding: int = Field(60, ge=1, description="width of an embedding")
    encoder: Kind = Field("mlp", description="local network")
    lr: float = Field(0.1, gt=0, description="step size")


class SpeedSettings(Settings):
    """Sizes and repetitions of the speed benchmark. Medians are taken over the repetitions."""

    mnist: Shape = Field(Shape(), description="the round that is timed")
    rounds: int = Field(10, ge=1, description="timed rounds of ours, and of each kind of baseline")
    published_rounds: int = Field(3, ge=1, description="timed rounds of the slowest kind of baseline")
    loader_workers: int = Field(1, ge=1, description="workers per DataLoader in the baseline's second kind")
    zsteps: int = Field(5, ge=1, description="timed z-steps")
    steps: int = Field(10, ge=1, description="timed rounds of local steps, for bmm_fraction and gate_share")
    cnn: Shape = Field(
        Shape(parties=9, columns=(3, 10, 10), rows=2048, local_steps=10, lr=0.008, encoder="cnn"),
        description="the local steps of convolutional parties",
    )
    growth: tuple[int, ...] = Field((10, 100, 1000), min_length=2, description="numbers of parties to compare")
    growth_shape: Shape = Field(
        Shape(columns=(8,), rows=256, batch=128, local_steps=5, hidden=16, embedding=8, lr=1e-4),
        description="the round whose cost per party and row must not grow with the parties",
    )
    growth_rounds: int = Field(7, ge=1, description="timed rounds per number of parties")
    memory_shape: Shape = Field(
        Shape(rows=1024, batch=64, local_steps=2), description="the round that is repeated to see memory"
    )
    memory_rounds: tuple[int, int] = Field((50, 350), description="rounds between which memory is compared")
