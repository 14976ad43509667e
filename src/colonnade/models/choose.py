"""Which way a stack should run: measured, where only a clock knows.

Nine small CNNs stacked on two CPU cores ran slower than one after the other; on a GPU the
opposite holds. So convolutional stacks are timed on a first step with copies of their weights.
The choice is recorded with the run, because a resumed run must repeat it to the last bit.
"""

from __future__ import annotations

import time

import torch
from torch import Tensor

from colonnade.models.stack import Mode, Stack, Way

TRIES = 2


def choose_way(stack: Stack, x: Tensor) -> Way:
    """The faster of `vmap` and `each` for one training step on x (P, B, ...)."""
    if stack.way != "vmap" or not stack.has_convolutions():
        return stack.way
    ways: tuple[Way, ...] = ("vmap", "each")
    return min(ways, key=lambda way: _seconds(stack, x, way))


def _seconds(stack: Stack, x: Tensor, way: Way) -> float:
    trial = stack.pick(range(stack.size))
    trial.way = way
    learning = [p for p in trial.parameters.values() if p.requires_grad]
    best = float("inf")
    for _ in range(1 + TRIES):  # the first try warms up and is beaten by the others
        start = time.perf_counter()
        output = trial.forward(x, Mode.LEARN)
        if learning:
            torch.autograd.grad(output.square().sum(), learning)
        if x.device.type == "cuda":
            torch.cuda.synchronize(x.device)
        best = min(best, time.perf_counter() - start)
    return best
