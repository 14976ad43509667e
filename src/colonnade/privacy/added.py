"""Noise meets an upload: party by party in threads on a CPU; on a GPU without anybody waiting for it.

On a CPU one thread takes a party's numbers through everything, draw to cut to sum, while they are in its cache.

On a GPU norm, cut and sum are computed there. The noise is still drawn by the host: the numbers of an address are
those of every other device and engine, bit by bit, and the operating system's cipher is the host's. It is
drawn ahead: once two releases after each other are alike, the next one's noise is drawn in threads while the GPU
computes that upload. A draw that was not asked for is thrown away. So every release has a draw of its own, nothing
of it outlives the process, and a run that is resumed draws the same again if it is seeded and anew if it is not.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from colonnade.privacy.grid import add_on_grid, add_steps, step_of
from colonnade.privacy.side_by_side import PIECE, beside, side_by_side

WORTH_A_THREAD = 2**13  # cells of one party's upload from which drawing in a thread pays
PLAIN = {torch.float32, torch.float64}  # what NumPy rounds as torch does
Within = Callable[[Tensor], Tensor]  # (P, cells) -> (P, 1) factors that bring them within their bound


class Draws(Protocol):
    """Where normal numbers come from: `NoiseSource`."""

    def normals(self, parties: Sequence[str], number: int, what: str, count: int, deviation: float) -> Tensor:
        """(P, count) normal numbers of that standard deviation in float64, every party with a draw of its own."""
        ...


class Draw(NamedTuple):
    """The noise of one release, by its address."""

    parties: tuple[str, ...]
    number: int
    what: str
    cells: int  # of each party

    @property
    def next(self) -> Draw:
        """That of the round after it, if nothing else changes."""
        return self._replace(number=self.number + 1)


class AddedNoise:
    """Adds noise of one deviation from one source to uploads, on the grid of that noise."""

    def __init__(self, source: Draws, deviation: float) -> None:
        self.source = source
        self.step = step_of(deviation)
        self.in_steps = deviation / self.step
        self._lock = threading.Lock()
        self._expected: Draw | None = None  # what is drawn ahead or, after one release only, would be
        self._ahead: Callable[[], Tensor] | None = None

    def add(
        self, upload: Mapping[str, Tensor], parties: Sequence[str], number: int, what: str, within: Within
    ) -> dict[str, Tensor]:
        """The (P, B, ...) arrays brought within their bound, with noise on every number, where they were."""
        draw = Draw(tuple(parties), number, what, sum(value[0].numel() for value in upload.values()))
        if any(value.is_cuda for value in upload.values()):
            return self.add_at_once(upload, draw, within)
        return self.add_by_party(upload, draw, within)

    def add_by_party(self, upload: Mapping[str, Tensor], draw: Draw, within: Within) -> dict[str, Tensor]:
        """In this machine's memory."""
        near = [value.detach().cpu() for value in upload.values()]
        out = {name: torch.empty(value.shape, dtype=value.dtype) for name, value in upload.items()}
        widths = [value[0].numel() for value in upload.values()]

        def one(place: int) -> None:
            cells = torch.empty(1, draw.cells, dtype=torch.float64)
            for mine, value in zip(cells[0].split(widths), near, strict=True):
                _copy(value[place].reshape(-1), mine)
            sums = add_on_grid(cells, within(cells), self._drawn(draw, place), self.step)
            for mine, value in zip(sums[0].split(widths), out.values(), strict=True):
                _copy(mine, value[place].view(-1))

        if len(draw.parties) > 1 and draw.cells >= WORTH_A_THREAD:
            side_by_side(one, len(draw.parties))
        else:
            for place in range(len(draw.parties)):
                one(place)
        return {name: value.to(upload[name].device) for name, value in out.items()}

    def add_at_once(self, upload: Mapping[str, Tensor], draw: Draw, within: Within) -> dict[str, Tensor]:
        """All parties together, on the device of their upload."""
        device = next(iter(upload.values())).device
        cells = torch.cat([value.detach().flatten(1).double() for value in upload.values()], dim=1)
        factors = within(cells)
        sums = add_steps(cells, factors, self._steps(draw, device).to(device, non_blocking=True), self.step)
        parts = torch.split(sums, [value[0].numel() for value in upload.values()], dim=1)
        return {name: part.reshape(v.shape).to(v) for (name, v), part in zip(upload.items(), parts, strict=True)}

    def _steps(self, draw: Draw, device: torch.device) -> Tensor:
        """(P, cells) whole numbers: this release's noise, and it alone."""
        with self._lock:
            alike, ahead = draw == self._expected, self._ahead
            self._expected, self._ahead = draw.next, None
            steps = ahead() if alike and ahead is not None else self._begin(draw, device)()
            if alike:
                self._ahead = self._begin(draw.next, device)
        return steps

    def _begin(self, draw: Draw, device: torch.device) -> Callable[[], Tensor]:
        """Draw in threads; what is returned waits for it. Fewer than 2^26 steps fit an int32."""
        room = torch.empty(len(draw.parties), draw.cells, dtype=torch.int32, pin_memory=device.type == "cuda")
        rows = room.numpy()

        def one(place: int) -> None:
            noise = self._drawn(draw, place)[0].numpy()
            rows[place] = np.rint(noise, out=noise)

        drawn = beside(one, len(draw.parties))

        def wait() -> Tensor:
            drawn()
            return room

        return wait

    def _drawn(self, draw: Draw, place: int) -> Tensor:
        """(1, cells): one party's noise, in steps."""
        party = draw.parties[place : place + 1]
        return self.source.normals(party, draw.number, draw.what, draw.cells, self.in_steps)


def _copy(source: Tensor, target: Tensor) -> None:
    """From one vector to another of any number type, without threads of torch's own."""
    if {source.dtype, target.dtype} <= PLAIN:
        np.copyto(target.numpy(), source.numpy(), casting="same_kind")
        return
    for some, there in zip(source.split(PIECE), target.split(PIECE), strict=True):
        there.copy_(some)
