"""CUDA graphs: capture one local step, replay it for all the others.

A step of fourteen small networks is some fifty kernels of a few microseconds each; launching
them from Python costs more than running them. A captured step is launched as one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from colonnade.models.cohort import Cohort

WARM_UP = 2  # eager steps on a side stream before a capture, as CUDA graphs require


@dataclass
class Captured:
    """A graph and the tensors it reads; filling those and replaying is one step."""

    graph: torch.cuda.CUDAGraph
    inputs: dict[str, Tensor]


def worth_capturing(cohort: Cohort, steps: int) -> bool:
    """Only on a GPU, only for networks without Python-side decisions, and never for one step."""
    return cohort.device.type == "cuda" and steps > WARM_UP and cohort.encoder.way != "each"


def replay(
    cohort: Cohort, key: object, step: Callable[[Mapping[str, Tensor]], None], inputs: Mapping[str, Tensor], steps: int
) -> None:
    """Take `steps` steps, capturing on first use; the warm-up steps count, so none is lost."""
    captured = cohort.graphs.get(key)
    if not isinstance(captured, Captured):
        captured = cohort.graphs[key] = _capture(step, inputs)
        steps -= WARM_UP
    else:
        for name, value in inputs.items():
            captured.inputs[name].copy_(value)
    for _ in range(steps):
        captured.graph.replay()


def _capture(step: Callable[[Mapping[str, Tensor]], None], inputs: Mapping[str, Tensor]) -> Captured:
    held = {name: value.clone() for name, value in inputs.items()}
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_UP):
            step(held)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step(held)  # recorded, not run
    return Captured(graph, held)
