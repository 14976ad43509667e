"""Measuring time and memory: warm up, interleave what is compared, take medians."""

from __future__ import annotations

import contextlib
import gc
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import torch

WARM_UP = 3


def available_cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextlib.contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Let torch use `count` threads for a while."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def seconds(work: Callable[[], object], device: torch.device) -> float:
    """How long one call takes, until the device has really finished."""
    _finish(device)
    start = time.perf_counter()
    work()
    _finish(device)
    return time.perf_counter() - start


def medians(
    works: Mapping[str, Callable[[], object]], repeats: int, device: torch.device, warm_up: int = WARM_UP
) -> dict[str, float]:
    """Median seconds of each, measured in turn, so that a busy minute of the machine falls on all of them."""
    taken: dict[str, list[float]] = {name: [] for name in works}
    for number in range(warm_up + repeats):
        for name, work in works.items():
            value = seconds(work, device)
            if number >= warm_up:
                taken[name].append(value)
    return {name: statistics.median(values) for name, values in taken.items()}


def _finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def resident_mb() -> float | None:
    """Memory this process holds now, in 10^6 bytes, after a garbage collection; None where unknown."""
    gc.collect()
    status = Path("/proc/self/status")
    if not status.exists():
        return None
    line = next(line for line in status.read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024 / 1e6
