"""Head updates of the coordinator: one SGD step (published), or a joint ridge solve (ours).

The printed argmin per head, solved exactly and in parallel, over-corrects M-fold when parties
are alike, and diverges. One gradient step is what the paper takes. The joint solve moves all
heads together and is exact for linear heads; it is a change from the paper, and called one.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from colonnade.models.heads import Head, apply_heads


def sgd_step(heads: Sequence[Head], embeddings: Sequence[Tensor], pull: Tensor, lr: float, beta: float) -> list[Head]:
    """One step on Eq. (update_W); `pull` (B, K) = lambda + rho (yhat - z), its gradient in the logits.

    The regulariser is beta |W|^2, hence the 2.
    """
    batch = len(pull)
    new: list[Head] = []
    for head, h in zip(heads, embeddings, strict=True):
        if set(head) == {"weight.0"}:  # linear: the gradient is h' pull
            w = head["weight.0"]
            gradient = torch.matmul(h.mT, pull) / batch
            new.append({"weight.0": w - lr * (gradient + 2 * beta * w)})
            continue
        leaves = {name: value.detach().requires_grad_() for name, value in head.items()}
        with torch.enable_grad():
            loss = (apply_heads(leaves, h) * pull).sum() / batch
            gradients = torch.autograd.grad(loss, list(leaves.values()))
        stepped = zip(leaves.items(), gradients, strict=True)
        new.append({name: (w - lr * (g + 2 * beta * w)).detach() for (name, w), g in stepped})
    return new


def joint_solve(
    heads: Sequence[Head], embeddings: Sequence[Tensor], target: Tensor, rho: float, beta: float, kappa: float
) -> list[Head]:
    """argmin of beta |W|^2 + kappa/2 |W - W_t|^2 + rho/(2b) |H W - target|^2 over all linear heads at once.

    `target` (B, K) = z - lambda/rho. Solved in float64, in rows (b x b) when the heads are wider
    than the batch.
    """
    stacked = torch.cat([h.transpose(0, 1).flatten(1) for h in embeddings], dim=1).double()  # (B, sum P d)
    before = torch.cat([head["weight.0"].flatten(0, 1) for head in heads]).double()  # (sum P d, K)
    weight, ridge = rho / len(target), 2 * beta + kappa
    if stacked.shape[1] <= len(target):
        normal = weight * stacked.mT @ stacked
        normal.diagonal().add_(ridge)
        right = kappa * before + weight * stacked.mT @ target.double()
        solved = torch.cholesky_solve(right, torch.linalg.cholesky(normal))
    else:  # W = a + H' (H H' + ridge/weight)^-1 (target - H a), a = kappa/ridge W_t
        start = kappa / ridge * before
        gram = stacked @ stacked.mT
        gram.diagonal().add_(ridge / weight)
        solved = start + stacked.mT @ torch.cholesky_solve(
            target.double() - stacked @ start, torch.linalg.cholesky(gram)
        )
    sizes = [head["weight.0"].shape[0] * head["weight.0"].shape[1] for head in heads]
    parts = solved.to(target.dtype).split(sizes)
    return [{"weight.0": part.view_as(head["weight.0"])} for part, head in zip(parts, heads, strict=True)]
