"""Client-level protection: clip the whole upload of a party to Frobenius norm C, then add Gaussian noise.

    upload' = upload * min(1, C / |upload|_F) + N(0, sigma^2 C^2) in every cell     (paper, section on privacy)

|.|_F runs over all arrays of the upload together. Whether the party's upload is there or is the zero matrix
changes the clipped upload by at most C, so one release is as hard to tell apart as two normal distributions whose
means are 1/sigma standard deviations apart. Clipping and noise are in float64 and rounded to the run's numbers
afterwards; floating-point noise is not perfectly normal in its last bits (docs/privacy.md).

The noise comes from Philox with a 128-bit key: from the operating system, or, in a simulation, from the seed,
so that a run can be repeated. Whoever knows the seed can take the noise away again; the ledger says which it was.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from colonnade.errors import GateError
from colonnade.privacy.events import Unit
from colonnade.randomness import stream, system_stream

WORTH_A_THREAD = 2**13  # cells of one party's upload from which drawing in a thread pays


class NoiseSource(Protocol):
    """Where the noise of one release comes from."""

    @property
    def simulated(self) -> bool:
        """Whether somebody who knows a seed can draw it again."""
        ...

    def generator(self, party: str, number: int, what: str) -> np.random.Generator:
        """A generator for one party, exchange and part; never the same for two of them."""
        ...


@dataclass(frozen=True)
class SystemNoise:
    """Keyed anew by the operating system for every release."""

    simulated: bool = False

    def generator(self, party: str, number: int, what: str) -> np.random.Generator:
        """A generator nobody can repeat."""
        return system_stream()


@dataclass(frozen=True)
class SeededNoise:
    """From a named stream: the same in every engine and after a resume. Simulation only."""

    seed: int
    simulated: bool = True

    def generator(self, party: str, number: int, what: str) -> np.random.Generator:
        """The generator at one address."""
        return stream(self.seed, f"noise {what}", party, number)


@dataclass(frozen=True)
class Gaussian:
    """The mechanism; `sigma` is the noise multiplier, in units of the clipping norm."""

    clip: float
    sigma: float
    source: NoiseSource = field(default_factory=SystemNoise)
    name: str = "gaussian"
    unit: Unit = Unit.PARTY

    @property
    def parameters(self) -> tuple[tuple[str, float], ...]:
        """What an accountant needs: sigma in units of C; and whether the noise can be repeated."""
        return (("clip", self.clip), ("sigma", self.sigma), ("simulated", float(self.source.simulated)))

    def __call__(
        self, upload: Mapping[str, Tensor], parties: Sequence[str], number: int, what: str
    ) -> dict[str, Tensor]:
        """The (P, B, ...) arrays clipped and noised, every party with a draw of its own."""
        if whole := [name for name, value in upload.items() if not value.is_floating_point()]:
            raise GateError(f"Gaussian noise cannot protect the whole numbers of {whole}; nothing was released")
        flat = {name: value.detach().cpu().numpy() for name, value in upload.items()}
        made = {name: np.empty_like(value) for name, value in flat.items()}

        def one(place: int) -> None:
            """All of one party in float64, small enough for a processor's cache; rounded when it is done."""
            generator = self.source.generator(parties[place], number, what)
            mine = clipped({name: value[place].astype(np.float64) for name, value in flat.items()}, self.clip)
            for name, value in mine.items():  # in the order of the names: the draw depends on it
                noise = generator.standard_normal(value.shape)
                noise *= self.sigma * self.clip
                noise += value
                made[name][place] = noise

        cells = sum(value[0].size for value in flat.values())
        in_threads = len(parties) > 1 and cells >= WORTH_A_THREAD
        list((_threads().map if in_threads else map)(one, range(len(parties))))
        return {name: torch.from_numpy(made[name]).to(value.device) for name, value in upload.items()}


def clipped(upload: Mapping[str, np.ndarray], clip: float) -> dict[str, np.ndarray]:
    """One party's arrays, together of Frobenius norm `clip` at most."""
    # Not `vdot`: BLAS would start threads of its own inside each of ours.
    norm = math.sqrt(sum(float(np.square(value).sum()) for value in upload.values()))
    factor = min(1.0, clip / norm) if norm > 0 else 1.0
    return {name: factor * value for name, value in upload.items()}


@cache
def _threads() -> ThreadPoolExecutor:
    """Drawing lets go of the interpreter: parties of one process draw side by side."""
    return ThreadPoolExecutor(max_workers=min(16, os.cpu_count() or 1), thread_name_prefix="noise")
