"""What a GPU and its host do not wait for: work recorded as one CUDA graph, work side by side, and copies both ways.

Many small kernels take less time than launching them from Python one by one, and a plain copy makes the host wait
until the device has done everything before it. What is recorded must not ask the device for anything: a host's decision
is taken between two graphs. On a CPU nothing here does anything.

Kernels of one small network leave parts of a GPU idle, so groups of parties run in *lanes*: a stream each, and a few
beside it for parties of the group. Work is recorded in the lane in which it will be replayed.

cuBLAS keeps a workspace for each stream, whose address a graph remembers. So while a graph is recorded it gets
workspaces of its own, in memory that is the graph's. Newer versions of torch free those of a stream with the first one
to go of the graphs that were recorded in it (pytorch/pytorch#193402): the others would write where something else is.
"""

from __future__ import annotations

import contextlib
import functools
import gc
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

LANES = 4  # with those beside them and one for copies 29 streams: torch gives out 32, and then the same again
BESIDE = 6  # more than this gained nothing
BEFORE = 2  # calls that are not recorded: kernels are compiled and chosen in the first
KEPT = 4  # recordings of one work: batches, and a shorter one at the end of an epoch

Place = Callable[[int], contextlib.AbstractContextManager[object]]


class Lane(NamedTuple):
    """A stream, and those for what runs side by side within it."""

    stream: torch.cuda.Stream
    beside: tuple[torch.cuda.Stream, ...]


def lanes(device: torch.device) -> tuple[Lane, ...]:
    """The same ones in every round: memory that a stream has freed is its own to use again."""
    return _lanes(torch.cuda.current_device() if device.index is None else device.index)


@functools.cache
def _lanes(index: int) -> tuple[Lane, ...]:
    device = torch.device("cuda", index)
    made = [torch.cuda.Stream(device) for _ in range(LANES * (1 + BESIDE))]
    return tuple(Lane(first, tuple(made[LANES + k :: LANES])) for k, first in enumerate(made[:LANES]))


def own_lane(device: torch.device) -> Lane:
    """The lane that the caller runs in; the first one for all who run in none."""
    here = torch.cuda.current_stream(device)
    return next((lane for lane in lanes(device) if lane.stream == here), lanes(device)[0])


@contextlib.contextmanager
def side_by_side(device: torch.device, streams: Sequence[torch.cuda.Stream]) -> Iterator[Place]:
    """Gives the place of work k: one of the streams, after all that was begun here; what follows here waits for it."""
    here = torch.cuda.current_stream(device)
    for stream in streams:
        stream.wait_stream(here)
    try:
        yield lambda k: torch.cuda.stream(streams[k % len(streams)])
    finally:
        for stream in streams:
            here.wait_stream(stream)


def parties_apart(device: torch.device, count: int) -> contextlib.AbstractContextManager[Place]:
    """Gives the place where party k of a group runs: on a GPU beside the others, its backward pass there, too."""
    if device.type != "cuda" or count == 1:
        return contextlib.nullcontext(_here)
    return side_by_side(device, own_lane(device).beside[:count])


def groups_apart(device: torch.device, count: int) -> contextlib.AbstractContextManager[Place]:
    """Gives the place where group k of a run's parties runs: on a GPU in a lane of its own."""
    if device.type != "cuda" or count == 1:
        return contextlib.nullcontext(_here)
    return side_by_side(device, [lane.stream for lane in lanes(device)[:count]])


def _here(_: int) -> contextlib.AbstractContextManager[object]:
    return contextlib.nullcontext()


def take_aside(work: Callable[[], None], device: torch.device) -> None:
    """Do something in the lane in which it is recorded next, as CUDA graphs require."""
    # Streams and graphs belong to the current device, which need not be this one.
    with torch.cuda.device(device), side_by_side(device, [own_lane(device).stream]) as place, place(0):
        work()


def record(work: Callable[[], None], device: torch.device) -> torch.cuda.CUDAGraph:
    """The work as a graph, recorded and not done. Other threads may use the device meanwhile."""
    with torch.cuda.device(device), _by_itself():
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=own_lane(device).stream, capture_error_mode="thread_local"):
            work()
    return graph


@contextlib.contextmanager
def _by_itself() -> Iterator[None]:
    """What is recorded inside shares no workspace with other work, and no other graph goes meanwhile: CUDA forbids it.

    Graphs of a training that is over may wait for Python's collector of cycles, which begins whenever it likes.
    """
    collecting = gc.isenabled()
    gc.disable()
    torch._C._cuda_clearCublasWorkspaces()
    try:
        yield
    finally:
        torch._C._cuda_clearCublasWorkspaces()  # what was made inside: for nobody else
        if collecting:
            gc.enable()


class Recordings:
    """One work on a tensor, recorded for each key under which it keeps coming; elsewhere than on a GPU never."""

    def __init__(self, keep: int = KEPT) -> None:
        self.keep = keep
        self._known: OrderedDict[object, int | _Recording] = OrderedDict()

    def __call__(self, key: object, work: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """`work(x)`; whatever else the work reads must be the same tensors under the same key."""
        if not x.is_cuda:
            return work(x)
        known = self._known.pop(key, 0)
        if isinstance(known, int):
            known = known + 1 if known < BEFORE else _Recording.of(work, x)
        self._known[key] = known
        if len(self._known) > self.keep:  # also of those that came once and never again
            self._known.popitem(last=False)
        return known(x) if isinstance(known, _Recording) else work(x)


class _Recording(NamedTuple):
    graph: torch.cuda.CUDAGraph
    read: Tensor
    written: Tensor

    @classmethod
    def of(cls, work: Callable[[Tensor], Tensor], x: Tensor) -> _Recording:
        read, written = x.clone(), []
        take_aside(lambda: _drop(work(read)), x.device)
        graph = record(lambda: written.append(work(read)), x.device)
        return cls(graph, read, written[0])

    def __call__(self, x: Tensor) -> Tensor:
        self.read.copy_(x)
        self.graph.replay()
        return self.written.clone()


def _drop(_: Tensor) -> None:
    """Nobody needs it."""


class Aside(NamedTuple):
    """A stream for copies that nothing waits for yet; on a CPU nothing."""

    stream: torch.cuda.Stream | None

    def here(self) -> contextlib.AbstractContextManager[object]:
        """Copies inside it are made beside other work, after all that had been begun when this was made."""
        return contextlib.nullcontext() if self.stream is None else torch.cuda.stream(self.stream)

    def keep(self, there: Tensor) -> None:
        """The memory of a tensor that is copied to is nobody else's before the copy has been made."""
        if self.stream is not None:
            there.record_stream(self.stream)

    def arrived(self) -> None:
        """What is begun from now on comes after the copies."""
        if self.stream is not None:
            torch.cuda.current_stream(self.stream.device).wait_stream(self.stream)


def aside(device: torch.device) -> Aside:
    """Where copies are made beside what the device is at."""
    if device.type != "cuda":
        return Aside(None)
    stream = _copies(torch.cuda.current_device() if device.index is None else device.index)
    stream.wait_stream(torch.cuda.current_stream(device))
    return Aside(stream)


@functools.cache
def _copies(index: int) -> torch.cuda.Stream:
    return torch.cuda.Stream(torch.device("cuda", index))


def to_device(value: Tensor, device: torch.device) -> Tensor:
    """The tensor on a device, after all that the device has to do already."""
    if device.type != "cuda" or value.is_cuda:
        return value.to(device)
    return value.pin_memory().to(device, non_blocking=True)


def to_host(values: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], Callable[[], None] | None]:
    """Tensors in this machine's memory, and what waits until they have arrived there; None: they are there."""
    far = [value for value in values.values() if value.is_cuda]
    host = {name: _pinned(value) if value.is_cuda else value.detach().cpu() for name, value in values.items()}
    if not far:
        return host, None
    arrival = torch.cuda.Event()
    arrival.record(torch.cuda.current_stream(far[0].device))
    return host, arrival.synchronize


def _pinned(value: Tensor) -> Tensor:
    """A copy that is on its way."""
    return torch.empty(value.shape, dtype=value.dtype, pin_memory=True).copy_(value.detach(), non_blocking=True)
