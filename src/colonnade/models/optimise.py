"""SGD and AdamW over a leading party axis, where a party may sit a step out.

`torch.optim` on stacked parameters is right only while all parties step: momentum, decay
and Adam's step count run on for one that sits out. Contract tests hold these against
`torch.optim`, party by party.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from colonnade.config import Settings

State = dict[str, Tensor]
FEW = 16  # parameters that a GPU steps faster one by one: for all at once it cuts them into a few large pieces
Rate = float | Tensor  # a tensor where a captured step must see it change


class SGD(Settings):
    """Stochastic gradient descent with momentum and L2 weight decay, as `torch.optim.SGD`."""

    kind: Literal["sgd"] = "sgd"
    lr: float = Field(0.1, gt=0, description="step size")
    momentum: float = Field(0.9, ge=0, lt=1, description="momentum")
    weight_decay: float = Field(1e-4, ge=0, description="L2 penalty, 2 beta in the paper's terms")
    halve_every: int = Field(0, ge=0, description="rounds in which the step size halves; 0: constant")

    def open(self, parameters: Sequence[Tensor]) -> State:
        """A velocity per parameter."""
        return {f"velocity.{i}": torch.zeros_like(p) for i, p in enumerate(parameters)}

    def step(
        self, parameters: list[Tensor], gradients: list[Tensor], state: State, active: Tensor | None, rate: Rate = 1.0
    ) -> None:
        """One step in place; `active` (P,) says who takes it, None means everyone; `rate` multiplies the step size."""
        velocity = [state[f"velocity.{i}"] for i in range(len(parameters))]
        if active is not None:
            return self._masked(parameters, gradients, velocity, active, rate)
        if parameters[0].is_cuda and len(parameters) <= FEW:
            return self._one_by_one(parameters, gradients, velocity, rate)
        torch._foreach_mul_(velocity, self.momentum)
        torch._foreach_add_(velocity, gradients)
        if self.weight_decay:
            torch._foreach_add_(velocity, parameters, alpha=self.weight_decay)
        if self.halve_every:
            torch._foreach_add_(parameters, [-self.lr * rate * v for v in velocity])
        else:
            torch._foreach_add_(parameters, velocity, alpha=-self.lr)
        return None

    def _one_by_one(
        self, parameters: list[Tensor], gradients: list[Tensor], velocity: list[Tensor], rate: Rate
    ) -> None:
        for p, g, v in zip(parameters, gradients, velocity, strict=True):
            v.mul_(self.momentum).add_(g)
            if self.weight_decay:
                v.add_(p, alpha=self.weight_decay)
            if self.halve_every:
                p.add_(-self.lr * rate * v)
            else:
                p.add_(v, alpha=-self.lr)

    def _masked(
        self, parameters: list[Tensor], gradients: list[Tensor], velocity: list[Tensor], on: Tensor, rate: Rate
    ) -> None:
        for p, g, v in zip(parameters, gradients, velocity, strict=True):
            mask = _along(on, p)
            new = self.momentum * v + g + self.weight_decay * p
            v.copy_(torch.where(mask, new, v))
            p.copy_(torch.where(mask, p - self.lr * rate * new, p))


class AdamW(Settings):
    """Adam with decoupled weight decay, as `torch.optim.AdamW`, with a step count per party."""

    kind: Literal["adamw"] = "adamw"
    lr: float = Field(1e-3, gt=0, description="step size")
    beta1: float = Field(0.9, ge=0, lt=1, description="decay of the mean gradient")
    beta2: float = Field(0.999, ge=0, lt=1, description="decay of the mean squared gradient")
    eps: float = Field(1e-8, gt=0, description="added to the root")
    weight_decay: float = Field(1e-2, ge=0, description="decoupled decay")
    halve_every: int = Field(0, ge=0, description="rounds in which the step size halves; 0: constant")

    def open(self, parameters: Sequence[Tensor]) -> State:
        """Two moments per parameter and one step count per party."""
        state = {f"mean.{i}": torch.zeros_like(p) for i, p in enumerate(parameters)}
        state |= {f"square.{i}": torch.zeros_like(p) for i, p in enumerate(parameters)}
        first = parameters[0]
        state["steps"] = torch.zeros(len(first), dtype=torch.float64, device=first.device)
        return state

    def step(
        self, parameters: list[Tensor], gradients: list[Tensor], state: State, active: Tensor | None, rate: Rate = 1.0
    ) -> None:
        """One step in place; `active` (P,) says who takes it, None means everyone; `rate` multiplies the step size."""
        steps = state["steps"]
        steps.add_(1.0 if active is None else active.to(steps.dtype))
        count = steps.clamp(min=1)
        decay = 1 - self.lr * self.weight_decay * rate
        dtype = parameters[0].dtype  # one for all of a cohort: once per step, not once per parameter
        size = (self.lr * rate / (1 - self.beta1**count)).to(dtype)
        root = (1 - self.beta2**count).sqrt().to(dtype)
        means, squares = ([state[f"{kind}.{i}"] for i in range(len(parameters))] for kind in ("mean", "square"))
        if active is None:
            torch._foreach_lerp_(means, gradients, 1 - self.beta1)
            torch._foreach_mul_(squares, self.beta2)
            torch._foreach_addcmul_(squares, gradients, gradients, 1 - self.beta2)
            for p in parameters:
                p.mul_(decay)
            below = torch._foreach_sqrt(squares)
            torch._foreach_div_(below, [_along(root, p) for p in parameters])
            torch._foreach_add_(below, self.eps)
            moves = torch._foreach_mul(means, [_along(size, p) for p in parameters])
            torch._foreach_div_(moves, below)
            torch._foreach_sub_(parameters, moves)
            return
        for p, g, m, v in zip(parameters, gradients, means, squares, strict=True):
            mask = _along(active, p)
            new_m, new_v = torch.lerp(m, g, 1 - self.beta1), self.beta2 * v + (1 - self.beta2) * g * g
            move = _along(size, p) * new_m / (new_v.sqrt() / _along(root, p) + self.eps)
            m.copy_(torch.where(mask, new_m, m))
            v.copy_(torch.where(mask, new_v, v))
            p.copy_(torch.where(mask, p * decay - move, p))


Optimiser = Annotated[SGD | AdamW, Field(discriminator="kind")]


def rate_of(optimiser: Optimiser, round_number: int) -> float:
    """The factor on the step size in a round: a function of its number only, so that a resumed run repeats it."""
    return 0.5 ** (round_number / optimiser.halve_every) if optimiser.halve_every else 1.0


def _along(per_party: Tensor, like: Tensor) -> Tensor:
    """(P,) as (P, 1, ...), to broadcast against a stacked parameter."""
    return per_party.view(-1, *([1] * (like.dim() - 1)))
