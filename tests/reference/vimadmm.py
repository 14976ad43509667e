"""VIMADMM and VIMADMM-J as the paper prints them, in NumPy: slow, unfolded, one party after the other.

lambda and s_k are sent separately, and a party's step is the gradient of
    lambda.f(x)W + rho/2 |s_k - f(x)W|^2
as printed. Nothing of the package's mathematics is used; what is shared is the schedule (which rows,
who speaks), the first weights, and the test's mechanism, since all of them are given to both.

`wrong` turns the reference into a plausible but mistaken *folded* implementation, so that a test can
show that it would notice:  "clean" takes the own part from the clean embedding instead of the released
one; "mixed" takes it from the other pair of heads than the residual.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch

from colonnade.privacy.mechanism import Mechanism
from tests.reference.zstep import oracle

Array = np.ndarray


@dataclass
class Encoder:
    """h = relu(relu(x A + a) B + b), with its gradient written out."""

    A: Array
    a: Array
    B: Array
    b: Array

    def forward(self, x: Array) -> tuple[Array, tuple[Array, Array, Array]]:
        inner = x @ self.A + self.a
        hidden = np.maximum(inner, 0)
        outer = hidden @ self.B + self.b
        return np.maximum(outer, 0), (inner, hidden, outer)

    def gradients(self, x: Array, kept: tuple[Array, Array, Array], slope: Array) -> list[Array]:
        """Of a loss whose slope in h is given."""
        inner, hidden, outer = kept
        outer_slope = slope * (outer > 0)
        inner_slope = (outer_slope @ self.B.T) * (inner > 0)
        return [x.T @ inner_slope, inner_slope.sum(0), hidden.T @ outer_slope, outer_slope.sum(0)]

    @property
    def weights(self) -> list[Array]:
        return [self.A, self.a, self.B, self.b]


@dataclass
class Momentum:
    """SGD with momentum and weight decay, in place."""

    lr: float
    momentum: float
    decay: float
    velocity: dict[int, Array] = field(default_factory=dict)

    def step(self, weights: Sequence[Array], gradients: Sequence[Array]) -> None:
        for w, g in zip(weights, gradients, strict=True):
            v = self.velocity[id(w)] = self.momentum * self.velocity.get(id(w), 0) + g + self.decay * w
            np.subtract(w, self.lr * v, out=w)


@dataclass
class Settings:
    """The choices both sides of a comparison make alike."""

    rho: float = 1.0
    tau: int = 3
    beta: float = 0.01
    kappa: float = 0.1
    head_lr: float = 0.2
    head_update: Literal["sgd", "joint"] = "sgd"
    residual: Literal["before", "after"] = "before"
    damping: float = 1.0
    alternate: bool = False
    head_momentum: float | None = None
    wrong: Literal["clean", "mixed"] | None = None


@dataclass
class Reference:
    """The whole federation at once; `learn_from` is one round."""

    settings: Settings
    names: tuple[str, ...]
    columns: list[Array]
    targets: Array  # (N, K)
    encoders: list[Encoder]
    heads: list[Array]  # (d, K) each
    optimiser: Callable[[], Momentum]
    mechanism: Mechanism | None = None

    def __post_init__(self) -> None:
        rows, outputs = self.targets.shape
        self.dual = np.zeros((rows, outputs))
        width = self.heads[0].shape[0]
        self.cache = [np.zeros((rows, width)) for _ in self.names]  # what the coordinator last heard; zero before
        self.logits_board = [np.zeros((rows, outputs)) for _ in self.names]
        self.local = [self.optimiser() for _ in self.names]
        self.local_head = [self.optimiser() for _ in self.names]
        for steps in self.local_head if self.settings.head_momentum is not None else ():
            steps.momentum = self.settings.head_momentum

    def release(self, value: Array, k: int, number: int, what: str) -> Array:
        if self.mechanism is None:
            return value
        upload = {what: torch.from_numpy(value)[None]}
        return self.mechanism(upload, [self.names[k]], number, "TRAIN.0")[what][0].numpy()

    # -- Algorithm 1 --------------------------------------------------------------------------

    def split_round(self, number: int, rows: Array, senders: Sequence[str]) -> None:
        s, parties = self.settings, range(len(self.names))
        clean = [self.encoders[k].forward(self.columns[k][rows])[0] for k in parties]
        for k in parties:
            if self.names[k] in senders:
                self.cache[k][rows] = self.release(clean[k], k, number, "h")
        h = [self.cache[k][rows] for k in parties]
        total = sum(h[k] @ self.heads[k] for k in parties)
        z = oracle(total, self.dual[rows], self.targets[rows], s.rho)
        self.dual[rows] += s.rho * (total - z)
        dual = self.dual[rows]  # (B, K), as it travels
        old = [w.copy() for w in self.heads]
        self.heads = self._heads(h, z, dual, total)
        used = old if s.residual == "before" else self.heads
        other = self.heads if s.residual == "before" else old
        for k in parties:
            rest = sum(h[i] @ used[i] for i in parties if i != k)
            residual = z - rest  # s_k
            own = h[k] @ used[k]
            if s.wrong is not None:  # what a mistaken folding would aim at: v + another own part
                v = residual - own - dual / s.rho
                mistaken = clean[k] @ used[k] if s.wrong == "clean" else h[k] @ other[k]
                residual = v + mistaken + dual / s.rho
                own = mistaken
            self._teach(k, rows, dual, residual, own)

    def _heads(self, h: list[Array], z: Array, dual: Array, total: Array) -> list[Array]:
        s, batch = self.settings, len(z)
        if s.head_update == "sgd":
            slope = dual + s.rho * (total - z)
            return [w - s.head_lr * (e.T @ slope / batch + 2 * s.beta * w) for w, e in zip(self.heads, h, strict=True)]
        H, before = np.concatenate(h, axis=1), np.concatenate(self.heads)
        left = s.rho / batch * H.T @ H + (2 * s.beta + s.kappa) * np.eye(H.shape[1])
        solved = np.linalg.solve(left, s.rho / batch * H.T @ (z - dual / s.rho) + s.kappa * before)
        return np.split(solved, len(h))

    def _teach(self, k: int, rows: Array, dual: Array, residual: Array, own: Array) -> None:
        s, x, net = self.settings, self.columns[k][rows], self.encoders[k]
        for _ in range(s.tau):
            h, kept = net.forward(x)
            slope = self._slope(h @ self.heads[k], dual, residual, own) / len(rows)
            self.local[k].step(net.weights, net.gradients(x, kept, slope @ self.heads[k].T))

    def _slope(self, logits: Array, dual: Array, residual: Array, own: Array) -> Array:
        """Of lambda.o + rho/2 |s_k - o|^2 in o; damping d moves the target to own + d (target - own), weight 1/d."""
        s = self.settings
        if s.damping == 1:
            return dual + s.rho * (logits - residual)
        target = residual - dual / s.rho
        return s.rho / s.damping * (logits - own - s.damping * (target - own))

    # -- Algorithm 2 --------------------------------------------------------------------------

    def whole_round(self, number: int, rows: Array, senders: Sequence[str]) -> None:
        """Every party owns its head and sends logits."""
        s, parties = self.settings, range(len(self.names))
        clean = [self.encoders[k].forward(self.columns[k][rows])[0] @ self.heads[k] for k in parties]
        for k in parties:
            if self.names[k] in senders:
                self.logits_board[k][rows] = self.release(clean[k], k, number, "o")
        o = [self.logits_board[k][rows] for k in parties]
        total = sum(o)
        z = oracle(total, self.dual[rows], self.targets[rows], s.rho)
        self.dual[rows] += s.rho * (total - z)
        dual = self.dual[rows]
        for k in parties:
            residual, own = z - sum(o[i] for i in parties if i != k), o[k]
            if s.wrong == "clean":
                residual, own = residual - o[k] + clean[k], clean[k]
            self._teach_both(k, rows, dual, residual, own)

    def _teach_both(self, k: int, rows: Array, dual: Array, residual: Array, own: Array) -> None:
        s, x, net, w = self.settings, self.columns[k][rows], self.encoders[k], self.heads[k]
        for _ in range(s.tau):
            h, kept = net.forward(x)
            slope = self._slope(h @ w, dual, residual, own) / len(rows)
            if not s.alternate:  # one backward pass for both
                head, encoder = h.T @ slope, net.gradients(x, kept, slope @ w.T)
                self.local[k].step([w, *net.weights], [head, *encoder])
                continue
            self.local_head[k].step([w], [h.T @ slope])
            slope = self._slope(h @ w, dual, residual, own) / len(rows)
            self.local[k].step(net.weights, net.gradients(x, kept, slope @ w.T))
