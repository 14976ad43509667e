"""Noise meets an upload: party by party in threads on a CPU; on a GPU without anybody waiting for it.

On a CPU one thread takes a party's numbers through everything, draw to cut to sum, while they are in its cache.

On a GPU norm, cut and sum are computed there. What is random still comes from the host. In a simulation it draws the
noise, whose numbers are then those of every other device and engine, bit by bit. Elsewhere it draws the bits of the
operating system's cipher, and the GPU turns them into normal numbers, most of the work. Both are drawn ahead: once two
releases of the same parties after each other are alike, the next one's are drawn in threads while the GPU computes that
upload. A draw that was not asked for is thrown away. So every release has a draw of its own, nothing of it outlives the
process, and a run that is resumed draws the same again if it is seeded and anew if it is not.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from colonnade.gpu import Aside, Recordings, aside
from colonnade.privacy.box_muller import SPARE, normals_of
from colonnade.privacy.grid import add_on_grid, add_steps, step_of
from colonnade.privacy.side_by_side import PIECE, beside, side_by_side

GROUPS = 8  # whose next draw is kept in mind
WORTH_A_THREAD = 2**13  # cells of one party's upload from which drawing in a thread pays
PLAIN = {torch.float32, torch.float64}  # what NumPy rounds as torch does
Within = Callable[[Tensor], Tensor]  # (P, cells) -> (P, 1) factors that bring them within their bound


class Draws(Protocol):
    """Where normal numbers come from: `NoiseSource`."""

    def normals(self, parties: Sequence[str], number: int, what: str, count: int, deviation: float) -> Tensor:
        """(P, count) normal numbers of that standard deviation in float64, every party with a draw of its own."""
        ...


@runtime_checkable
class DrawsWords(Protocol):
    """A source of random bits that nobody can repeat."""

    def fill(self, words: np.ndarray, count: int) -> None:
        """Put so many random 64-bit words at the beginning; behind the last one there is room for `SPARE` more."""
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


class Coming(NamedTuple):
    """A draw that was begun in threads, and travels to where the upload is as soon as it is drawn."""

    drawn: Callable[[], object]  # waits for the threads
    travel: Aside
    there: Tensor  # where it will be

    def arrived(self) -> Tensor:
        """The noise, in the form in which it travels."""
        self.drawn()
        self.travel.arrived()
        return self.there


class AddedNoise:
    """Adds noise of one deviation from one source to uploads, on the grid of that noise."""

    def __init__(self, source: Draws, deviation: float) -> None:
        self.source = source
        self.step = step_of(deviation)
        self.in_steps = deviation / self.step
        self._lock = threading.Lock()
        # By parties, of whom a run may have several groups: what comes next, and what of it is drawn already.
        self._next: OrderedDict[tuple[str, ...], tuple[Draw, Coming | None]] = OrderedDict()
        self._places: OrderedDict[object, Tensor] = OrderedDict()  # of a device, to which draws travel
        self._recordings = Recordings(keep=2 * GROUPS)

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
        """All parties together, on the device of their upload; on a GPU as one recorded graph."""
        values = torch.cat([value.detach().flatten(1) for value in upload.values()], dim=1)

        def summed(x: Tensor) -> Tensor:
            cells = x.double()
            return add_steps(cells, within(cells), self._steps_of(noise, draw), self.step)

        with self._lock:
            expected, coming = self._next.pop(draw.parties, (None, None))
            if coming is not None and expected != draw:
                coming.drawn()  # and thrown away: it must not travel to where a later one is
                coming = None
            noise = (coming or self._begin(draw, values.device)).arrived()
            sums = self._recordings((noise.data_ptr(), values.shape, values.dtype), summed, values)
            following = self._begin(draw.next, values.device) if expected == draw else None
            self._next[draw.parties] = draw.next, following
            if len(self._next) > GROUPS:
                _, (_, forgotten) = self._next.popitem(last=False)
                if forgotten is not None:
                    forgotten.drawn()  # likewise
        parts = torch.split(sums, [value[0].numel() for value in upload.values()], dim=1)
        return {name: part.reshape(v.shape).to(v) for (name, v), part in zip(upload.items(), parts, strict=True)}

    def _steps_of(self, noise: Tensor, draw: Draw) -> Tensor:
        """(P, cells) whole numbers of what has travelled: these themselves, or random words."""
        if noise.dtype != torch.int64:
            return noise
        return normals_of(noise.view(len(draw.parties), -1))[:, : draw.cells].mul_(self.in_steps).round_()

    def _begin(self, draw: Draw, device: torch.device) -> Coming:
        """Begin to draw."""
        if device.type == "cuda" and isinstance(self.source, DrawsWords):
            return self.begin_words(self.source, draw, device)
        # Fewer than 2^26 steps fit an int32.
        shape, travel = (len(draw.parties), draw.cells), aside(device)
        there = self._place(draw.parties, shape, torch.int32, device, travel)
        room = torch.empty(shape, dtype=torch.int32, pin_memory=device.type == "cuda")
        rows = room.numpy()

        def one(place: int) -> None:
            noise = self._drawn(draw, place)[0].numpy()
            rows[place] = np.rint(noise, out=noise)
            with travel.here():
                there[place].copy_(room[place], non_blocking=True)

        return Coming(beside(one, len(draw.parties)), travel, there)

    def begin_words(self, source: DrawsWords, draw: Draw, device: torch.device) -> Coming:
        """Draw bits in a thread, of which the device makes normal numbers."""
        travel, count = aside(device), len(draw.parties) * (draw.cells + draw.cells % 2)
        there = self._place(draw.parties, (count,), torch.int64, device, travel)
        room = torch.empty(count + SPARE, dtype=torch.int64, pin_memory=device.type == "cuda")
        words = room.numpy()

        def one(_: int) -> None:
            source.fill(words, count)
            with travel.here():
                there.copy_(room[:count], non_blocking=True)

        return Coming(beside(one, 1), travel, there)

    def _place(
        self, parties: tuple[str, ...], shape: tuple[int, ...], dtype: torch.dtype, device: torch.device, travel: Aside
    ) -> Tensor:
        """The same memory for draws of the same parties and size: a recorded graph reads it there."""
        key = parties, shape, dtype, device
        if key not in self._places:
            self._places[key] = torch.empty(shape, dtype=dtype, device=device)
            travel.keep(self._places[key])
            if len(self._places) > 2 * GROUPS:
                self._places.popitem(last=False)
        self._places.move_to_end(key)
        return self._places[key]

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
