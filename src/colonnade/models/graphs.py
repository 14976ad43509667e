"""CUDA graphs: capture one local step, replay it for all the others.

A step of fourteen small networks is some fifty kernels of a few microseconds each; launching
them from Python costs more than running them. A captured step is launched as one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from colonnade.gpu import record, take_aside
from colonnade.models.cohort import Cohort

WARM_UP = 2  # eager steps on a side stream before a capture, as CUDA graphs require


Step = Callable[[Mapping[str, Tensor]], None]


@dataclass
class WarmingUp:
    """A step that was taken eagerly so far, and how often."""

    taken: int = 0


@dataclass
class Captured:
    """A graph and the tensors it reads; filling those and replaying is one step."""

    graph: torch.cuda.CUDAGraph
    inputs: dict[str, Tensor]

    def fill(self, inputs: Mapping[str, Tensor]) -> None:
        """Put other numbers where the graph reads."""
        for name, value in inputs.items():
            self.inputs[name].copy_(value)

    def replay(self, steps: int) -> None:
        """Take so many steps."""
        for _ in range(steps):
            self.graph.replay()


def worth_capturing(cohort: Cohort) -> bool:
    """Only on a GPU, and only for networks without Python-side decisions."""
    return cohort.device.type == "cuda" and cohort.encoder.way != "each"


def replay(cohort: Cohort, key: object, step: Step, inputs: Mapping[str, Tensor], steps: int) -> None:
    """Take `steps` steps: the first under a key eagerly, as a warm-up, all others from a graph captured after it.

    The warm-up may span calls: a method that takes one step per round is captured in its third round.
    """
    known = cohort.graphs.get(key)
    if isinstance(known, Captured):
        known.fill(inputs)
        known.replay(steps)
        return
    warm = known if isinstance(known, WarmingUp) else WarmingUp()
    eager = min(steps, WARM_UP - warm.taken)
    held = {name: value.clone() for name, value in inputs.items()}
    take_aside(lambda: _take(step, held, eager), cohort.device)
    cohort.graphs[key] = WarmingUp(warm.taken + eager)
    if steps > eager:
        captured = cohort.graphs[key] = Captured(record(lambda: step(held), cohort.device), held)
        captured.replay(steps - eager)


def _take(step: Step, inputs: Mapping[str, Tensor], steps: int) -> None:
    for _ in range(steps):
        step(inputs)
