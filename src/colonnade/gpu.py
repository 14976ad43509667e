"""What a GPU and its host do not wait for: work recorded as one CUDA graph, and copies in both directions.

Many small kernels take less time than launching them from Python one by one, and a plain copy makes the host wait
until the device has done everything before it. What is recorded must not ask the device for anything: a host's decision
is taken between two graphs. On a CPU nothing here does anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor


def take_aside(work: Callable[[], None], device: torch.device) -> None:
    """Do something on a stream of its own, as CUDA graphs require before it is recorded."""
    with torch.cuda.device(device):  # streams and graphs belong to the current one, which need not be this
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            work()
        torch.cuda.current_stream().wait_stream(side)


def record(work: Callable[[], None], device: torch.device) -> torch.cuda.CUDAGraph:
    """The work as a graph, recorded and not done. Other threads may use the device meanwhile."""
    with torch.cuda.device(device):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            work()
    return graph


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
