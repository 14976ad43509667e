"""VIMADMM-J on lifted outputs as it is derived, in NumPy: every block (k, g) is a party of Algorithm 2, unfolded.

The term of a block is phi_g o_kg. Its step is the gradient of
    lambda.t + rho/2 |s - t|^2,   t = phi_g o_kg,   s = z - the sum of all other terms
in o_kg, with the damping that `tests/reference/vimadmm.py` writes out. Sides are found by sorting.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tests.reference.vimadmm import Array, Reference
from tests.reference.zstep import oracle


def sides(columns: Array, train: Array, lifts: int) -> Array:
    """(N, 1 + G) a one, and +1 or -1 for each of the first columns, which all have two sides here."""
    lower_medians = [np.sort(column)[(len(train) - 1) // 2] for column in columns[train].T[:lifts]]
    found = [np.where(columns[:, g] > cut, 1.0, -1.0) for g, cut in enumerate(lower_medians)]
    return np.stack([np.ones(len(columns)), *found], axis=1)


@dataclass
class Lifted(Reference):
    """Heads are (d, (1 + G) K); `settings.damping` is that of a block."""

    phi: Array = field(default_factory=lambda: np.ones((0, 1)))  # (N, 1 + G)

    def terms(self, k: int, rows: Array) -> Array:
        """(B, 1 + G, K) phi_g o_kg."""
        h, _ = self.encoders[k].forward(self.columns[k][rows])
        return self.phi[rows][:, :, None] * (h @ self.heads[k]).reshape(len(rows), self.phi.shape[1], -1)

    def whole_round(self, number: int, rows: Array, senders: Sequence[str]) -> None:
        s, parties = self.settings, range(len(self.names))
        sent = [self.terms(k, rows) for k in parties]
        total = sum(one.sum(axis=1) for one in sent)
        z = oracle(total, self.dual[rows], self.targets[rows], s.rho)
        self.dual[rows] += s.rho * (total - z)
        for k in parties:
            self._teach_blocks(k, rows, z[:, None] - (total[:, None] - sent[k]), sent[k])

    def _teach_blocks(self, k: int, rows: Array, residual: Array, own: Array) -> None:
        s, x, net, w = self.settings, self.columns[k][rows], self.encoders[k], self.heads[k]
        dual, phi = self.dual[rows][:, None], self.phi[rows][:, :, None]
        for _ in range(s.tau):
            h, kept = net.forward(x)
            slope = phi * self._slope(self.terms(k, rows), dual, residual, own) / len(rows)
            flat = slope.reshape(len(rows), -1)
            self.local[k].step([w, *net.weights], [h.T @ flat, *net.gradients(x, kept, flat @ w.T)])
