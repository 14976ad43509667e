"""The same loop on a GPU: its pieces are captured as CUDA graphs, and the host only decides which comes next.

Step by step these are a hundred and fifty kernels of a microsecond, with a question to the device after each few;
captured, a launch and a question per Newton step. Kernels and order are those of `newton.py`, so the bits are, too.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from colonnade.gpu import record, take_aside
from colonnade.tasks.newton import MAX_HALVINGS, MAX_NEWTON, Problem, Rho, choose, halve, look, pose, solve, take

KEPT = 8  # shapes whose graphs are kept: batches, a shorter one at the end of an epoch, other runs of this process
_own = threading.local()  # a thread fills and reads the tensors of its own graphs only


def solve_captured(total: Tensor, dual: Tensor, targets: Tensor, rho: Rho) -> Tensor:
    """What `solve` gives, in float64. A shape that comes for the first time is solved step by step."""
    inputs = [total, dual, targets, *([rho] if isinstance(rho, Tensor) else [])]
    key = (total.device, None if isinstance(rho, Tensor) else rho, tuple((t.shape, t.dtype) for t in inputs))
    known: OrderedDict[object, CapturedNewton | None] = _own.__dict__.setdefault("known", OrderedDict())
    first = key not in known
    if not first and known[key] is None:
        known[key] = CapturedNewton(inputs, rho)
    captured = known.setdefault(key, None)
    known.move_to_end(key)
    if len(known) > KEPT:
        known.popitem(last=False)
    return solve(pose(total, dual, targets, rho), rho) if captured is None else captured.solve(inputs)


class CapturedNewton:
    """Three graphs over the same tensors: begin and take a step; accept it and take the next; halve it."""

    def __init__(self, inputs: Sequence[Tensor], rho: Rho) -> None:
        self.inputs = [value.clone() for value in inputs]
        self.rho = self.inputs[3] if isinstance(rho, Tensor) else rho
        self.problem = self._pose()
        self.at = look(self.problem.q.clone(), self.problem, self.rho)
        self.step = choose(self.at, self.problem, self.rho)
        self.new, self.bad = take(self.step, self.at, self.problem, self.rho)
        self.go_on = torch.stack([self.bad.any(), self.new.open.any()])  # halve it; take another one
        device = inputs[0].device
        take_aside(self._each_once, device)
        pieces = (self._begin, self._advance, self._halve)
        self.begin, self.advance, self.halve = (record(piece, device) for piece in pieces)

    def solve(self, inputs: Sequence[Tensor]) -> Tensor:
        """The minimum, in a tensor of its own."""
        _put(self.inputs, inputs)
        self.begin.replay()
        for more in reversed(range(MAX_NEWTON)):
            bad, still_open = self.go_on.tolist()
            for _ in range(MAX_HALVINGS - 1):
                if not bad:
                    break
                self.halve.replay()
                bad, still_open = self.go_on.tolist()
            if not (still_open and more):
                break
            self.advance.replay()
        return self.new.z.clone()

    def _pose(self) -> Problem:
        total, dual, targets = self.inputs[:3]
        return pose(total, dual, targets, self.rho)

    def _each_once(self) -> None:
        self._begin()
        self._advance()
        self._halve()

    def _begin(self) -> None:
        _put(self.problem, self._pose())
        _put(self.at, look(self.problem.q, self.problem, self.rho))
        self._go()

    def _advance(self) -> None:
        _put(self.at, self.new)
        self._go()

    def _go(self) -> None:
        _put(self.step, choose(self.at, self.problem, self.rho))
        self._take()

    def _halve(self) -> None:
        self.step.size.copy_(halve(self.step, self.bad).size)
        self._take()

    def _take(self) -> None:
        new, bad = take(self.step, self.at, self.problem, self.rho)
        _put((*self.new, self.bad), (*new, bad))
        self.go_on.copy_(torch.stack([self.bad.any(), self.new.open.any()]))


def _put(places: Iterable[Tensor], values: Iterable[Tensor]) -> None:
    for place, value in zip(places, values, strict=True):
        place.copy_(value)
