"""Client-level protection: clip the whole upload of a party to Frobenius norm C, then add Gaussian noise.

    upload' = upload * min(1, C / |upload|_F) + N(0, sigma^2 C^2) in every cell     (paper, section on privacy)

|.|_F runs over all arrays of the upload together. Whether the party's upload is there or is the zero matrix
changes the clipped upload by at most C, so one release is as hard to tell apart as two normal distributions whose
means are 1/sigma standard deviations apart. Clipped numbers are cut and noise is rounded to a grid far below the noise
before they are added, so this also holds for the bits that leave: `grid.py` has the proof. Both are in float64; what
leaves is rounded to the run's numbers afterwards.

The noise comes from AES-256 with a key of the operating system (normal.py); in a simulation from Philox and the seed,
so that a run can be repeated. Whoever knows the seed can take the noise away again; the ledger says which it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor

from colonnade.errors import GateError
from colonnade.privacy.added import WORTH_A_THREAD, AddedNoise
from colonnade.privacy.events import Clipped, Event, Hides, Kind, positive
from colonnade.privacy.grid import check_noise, check_scale, clip_factors, step_of
from colonnade.privacy.side_by_side import side_by_side
from colonnade.randomness import stream, system_stream


class NoiseSource(Protocol):
    """Where the noise of one release comes from."""

    @property
    def simulated(self) -> bool:
        """Whether somebody who knows a seed can draw it again."""
        ...

    def generator(self, party: str, number: int, what: str) -> np.random.Generator:
        """A generator for one party, round and part; never the same for two of them."""
        ...

    def normals(self, parties: Sequence[str], number: int, what: str, count: int, deviation: float) -> Tensor:
        """(P, count) normal numbers of that standard deviation in float64, every party with a draw of its own."""
        ...


@dataclass(frozen=True)
class SystemNoise:
    """Keyed anew by the operating system for every release."""

    simulated: bool = False

    def generator(self, party: str, number: int, what: str) -> np.random.Generator:
        """A generator nobody can repeat."""
        return system_stream()

    def normals(self, parties: Sequence[str], number: int, what: str, count: int, deviation: float) -> Tensor:
        """From a cipher, where the library is installed; from Philox, where it is not."""
        try:
            from colonnade.privacy.normal import cipher_normals
        except ImportError:
            return _drawn(self, parties, number, what, count, deviation)
        return cipher_normals(len(parties), count, deviation)

    def fill(self, words: np.ndarray, count: int) -> None:
        """Random words from the same, of which a GPU makes normal numbers by itself."""
        try:
            from colonnade.privacy.normal import fill
        except ImportError:
            words[:count] = system_stream().integers(-(2**63), 2**63 - 1, count, np.int64, endpoint=True)
            return
        fill(words, count)


@dataclass(frozen=True)
class SeededNoise:
    """From a named stream: the same in every engine and after a resume. Simulation only."""

    seed: int
    simulated: bool = True

    def generator(self, party: str, number: int, what: str) -> np.random.Generator:
        """The generator at one address."""
        return stream(self.seed, f"noise {what}", party, number)

    def normals(self, parties: Sequence[str], number: int, what: str, count: int, deviation: float) -> Tensor:
        """From those generators: NumPy's numbers are the same on every machine."""
        return _drawn(self, parties, number, what, count, deviation)


@dataclass(frozen=True)
class GaussianEvent(Event):
    """An upload clipped to a norm, and Gaussian noise on every number of it."""

    kind: ClassVar[Kind] = Kind("gaussian", "clipped to a norm, then Gaussian noise on every number", Hides.COLUMNS)
    summable: ClassVar[bool] = True  # the parties share the noise: sigma is that of the sum

    clip: float
    sigma: float  # in units of the clipping norm
    simulated: bool = False  # the noise can be drawn again
    grid: float | None = None  # step of what leaves; None: an earlier version, which added in floating point

    def __post_init__(self) -> None:
        positive(clip=self.clip, sigma=self.sigma)

    def precision(self, rows: int) -> float:
        """1/sigma^2."""
        return self.sigma**-2

    @property
    def clipped(self) -> Clipped:
        """Norm and noise."""
        return Clipped(self.clip, self.sigma)

    @property
    def off_grid(self) -> bool:
        """Whether an earlier version added the noise."""
        return self.grid is None

    @property
    def before_grids(self) -> GaussianEvent:
        """The same without a grid."""
        return replace(self, grid=None)


@dataclass(frozen=True)
class Gaussian:
    """The mechanism; `sigma` is the noise multiplier, in units of the clipping norm."""

    clip: float
    sigma: float
    source: NoiseSource = field(default_factory=SystemNoise)

    def __post_init__(self) -> None:
        check_scale("clip", self.clip)
        check_scale("sigma x clip", self.deviation)
        check_noise(self.deviation, self.clip)

    @property
    def deviation(self) -> float:
        """Of the noise in a cell."""
        return self.sigma * self.clip

    @cached_property
    def event(self) -> GaussianEvent:
        """What the ledger says of its releases."""
        return GaussianEvent(self.clip, self.sigma, self.source.simulated, step_of(self.deviation))

    def __call__(
        self, upload: Mapping[str, Tensor], parties: Sequence[str], number: int, what: str
    ) -> dict[str, Tensor]:
        """The (P, B, ...) arrays clipped and noised, every party with a draw of its own."""
        if whole := [name for name, value in upload.items() if not value.is_floating_point()]:
            raise GateError(f"Gaussian noise cannot protect the whole numbers of {whole}; nothing was released")

        def clipped(cells: Tensor) -> Tensor:
            return clip_factors(cells, self.clip)

        return self._noise.add(upload, parties, number, what, clipped)

    @cached_property
    def _noise(self) -> AddedNoise:
        return AddedNoise(self.source, self.deviation)


def _drawn(source: NoiseSource, parties: Sequence[str], number: int, what: str, count: int, deviation: float) -> Tensor:
    """Draws of each party's own generator; side by side, since drawing lets go of the interpreter."""
    made = np.empty((len(parties), count))

    def one(place: int) -> None:
        source.generator(parties[place], number, what).standard_normal(out=made[place])

    if len(parties) > 1 and count >= WORTH_A_THREAD:
        side_by_side(one, len(parties))
    else:
        for place in range(len(parties)):
            one(place)
    return torch.from_numpy(np.multiply(made, deviation, out=made))


def check_width(upload: Mapping[str, Tensor], width: int) -> None:
    """Refuse more numbers per row than the ledger will say: they would go uncounted."""
    found = sum(value[0, 0].numel() for value in upload.values())
    if found != width:
        raise GateError(f"an upload has {found} numbers per row; it was declared with {width}; nothing was released")
