"""VIMADMM as the paper's program computes it: the baseline that the speed benchmark divides by.

The same mathematics as `methods/vimadmm.py` with the `paper` preset (a test holds the two against each
other), organised as published: one party after the other, each with its own DataLoader, nn.Module and
torch.optim.SGD; the z-step row by row with SciPy's L-BFGS-B in a pool of processes; NumPy arrays between
the two sides. Where the program wastes time for no reason, this does not: rows are ready-made float
tensors (the program turns each into an image, back, and normalises it, every round), one-hot labels are
made at once, and the graph of the first forward pass is not kept. Some choices are open, and the benchmark
reports the published ones and, beside them, the fastest: a pool per round, as published, or one for all
rounds; loaders with workers, as published, or without; and the linear algebra below SciPy with threads of its
own in every process of the pool, as it comes, or without: as it comes, the threads of all processes fight for
the cores and it is several times slower.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from multiprocessing.pool import Pool
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from colonnade.errors import ConfigError
from colonnade.federation import Federation
from colonnade.methods import VIMADMM
from colonnade.models.encoders import ModelSettings, build_encoder
from colonnade.models.heads import open_heads
from colonnade.models.optimise import SGD

Array = NDArray[np.float64]
Problem = tuple[Array, Array, Array, Array, float]  # start, label, dual, total (all (K,)), rho

TOLERANCE, MAX_ITERATIONS = 1e-8, 50  # of L-BFGS-B, as published


@contextlib.contextmanager
def open_pool(processes: int, *, more_threads: bool = False) -> Iterator[Pool | None]:
    """A pool of forked processes; None for one process, which needs no pool.

    Args:
        processes: how many.
        more_threads: let the linear algebra below SciPy start threads in every process, as it would by itself.
    """
    import_module("scipy.optimize")  # before the fork: else every process of every pool would import it again
    if processes == 1:
        yield None
        return
    if not more_threads:
        _check_limit()
    with _forking():
        pool = multiprocessing.get_context("fork").Pool(processes, None if more_threads else _one_thread)
    with pool:
        yield pool


@contextlib.contextmanager
def _forking() -> Iterator[None]:
    """Newer Pythons warn of a fork beside threads; these children touch no thread, no lock and no GPU."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


def _check_limit() -> None:
    """A baseline that is slow for want of a small library would be unfair: refuse to measure it."""
    if find_spec("threadpoolctl") is None and os.environ.get("OPENBLAS_NUM_THREADS") != "1":
        raise ConfigError("the baseline needs threadpoolctl (scikit-learn brings it); or set OPENBLAS_NUM_THREADS=1")


def _one_thread() -> None:
    """Keep the processes of a pool from fighting for the cores."""
    with contextlib.suppress(ModuleNotFoundError):
        import_module("threadpoolctl").threadpool_limits(1)


def solve_rows(problems: Sequence[Problem], pool: Pool | None) -> Array:
    """The z-step of many rows (B, K), spread over a pool."""
    solved = pool.map(solve_row, problems) if pool is not None else [solve_row(problem) for problem in problems]
    return np.stack(solved)


def solve_row(problem: Problem) -> Array:
    """The z-step of one row: argmin of l(z, y) - dual.z + rho/2 |total - z|^2, by L-BFGS-B."""
    from scipy.optimize import minimize  # only the baseline needs it

    start, label, dual, total, rho = problem

    def value(z: Array) -> float:
        top = z.max()  # the program does not shift, and overflows at large logits
        loss = top + np.log(np.exp(z - top).sum()) - label @ z
        return float(loss - dual @ z + rho / 2 * np.square(total - z).sum())

    def slope(z: Array) -> Array:
        e = np.exp(z - z.max())
        gradient: Array = e / e.sum() - label - dual + rho * (z - total)
        return gradient

    options = {"maxiter": MAX_ITERATIONS}
    found = minimize(value, start, jac=slope, method="L-BFGS-B", tol=TOLERANCE, options=options)
    z: Array = found.x
    return z


class PaperParty:
    """One party: loader, network, head (which the program keeps here, too) and their optimisers."""

    def __init__(
        self, columns: Tensor, labels: Tensor, encoder: nn.Module, head: Tensor, method: VIMADMM, loader: dict[str, Any]
    ) -> None:
        local = method.optimiser
        assert isinstance(local, SGD)  # the only one the paper has
        self.loader: DataLoader[tuple[Tensor, ...]] = DataLoader(TensorDataset(columns, labels), **loader)
        self.encoder = encoder.to(head.device)
        self.head = nn.Linear(len(head), head.shape[1], bias=False, device=head.device)
        with torch.no_grad():
            self.head.weight.copy_(head.mT)
        self.optimiser = torch.optim.SGD(
            self.encoder.parameters(), local.lr, local.momentum, weight_decay=local.weight_decay
        )
        self.head_optimiser = torch.optim.SGD(self.head.parameters(), method.head_lr, weight_decay=2 * method.beta)
        self.rho, self.steps = method.rho, method.local_steps

    def open_epoch(self) -> None:
        """Begin again with the first rows."""
        with _forking():
            self.batches: Iterator[Any] = iter(self.loader)

    def upload(self) -> tuple[Array, Tensor]:
        """Logits (b, K) of the next rows, and their labels."""
        x, labels = next(self.batches)
        self.x = x.to(self.head.weight.device)
        with torch.no_grad():
            self.embedding = self.encoder(self.x)
            logits = self.head(self.embedding)
        return logits.cpu().numpy().astype(np.float64), labels

    def learn(self, z: Tensor, dual: Tensor, others: Tensor) -> None:
        """One step of the head, then tau steps of the network."""
        self._step(self.head_optimiser, self.head(self.embedding), z, dual, others)
        for _ in range(self.steps):
            self._step(self.optimiser, self.head(self.encoder(self.x)), z, dual, others)

    def _step(self, optimiser: torch.optim.SGD, logits: Tensor, z: Tensor, dual: Tensor, others: Tensor) -> None:
        objective = ((logits * dual).sum() + self.rho / 2 * (others + logits - z).square().sum()) / len(z)
        optimiser.zero_grad()
        objective.backward()
        optimiser.step()


@dataclass
class PaperWay:
    """All parties and the coordinator's variables, by position in the loaders."""

    parties: list[PaperParty]
    rho: float
    batch: int
    classes: int
    z: Array = field(repr=False)  # (N, K)
    dual: Array = field(repr=False)  # (N, K)
    place: int = 0  # first row of the next batch
    problems: list[Problem] = field(default_factory=list, repr=False)  # of the last z-step

    @classmethod
    def open(
        cls,
        federation: Federation,
        method: VIMADMM,
        model: ModelSettings,
        batch: int,
        device: torch.device,
        workers: int,
    ) -> PaperWay:
        """Parties with the same first weights as Colonnade's own run with seed 0."""
        rows, labels = federation.split.train, federation.labels[federation.split.train]
        heads = open_heads(model.head, federation.names, model.embedding, federation.outputs, 0)["weight.0"]
        loader = {"batch_size": batch, "shuffle": False, "num_workers": workers}
        parties = []
        for party, head in zip(federation.parties, heads, strict=True):
            encoder = build_encoder(model, tuple(party.columns.shape[1:]), 0, party.name)
            parties.append(
                PaperParty(party.columns[rows], labels, encoder, head.to(device, torch.float32), method, loader)
            )
        shape = (len(rows), federation.outputs)
        return cls(parties, method.rho, batch, federation.outputs, np.zeros(shape), np.zeros(shape))

    def round(self, pool: Pool | None) -> None:
        """One round on the next batch."""
        if self.place == 0:
            for party in self.parties:
                party.open_epoch()
        said = [party.upload() for party in self.parties]
        logits, labels = [part for part, _ in said], said[0][1].numpy()
        total: Array = np.sum(logits, axis=0)
        rows = slice(self.place, self.place + len(total))
        self._update_z(rows, total, np.eye(self.classes)[labels], pool)
        self.dual[rows] += self.rho * (total - self.z[rows])
        device = self.parties[0].head.weight.device
        z, dual = (torch.from_numpy(v[rows]).to(device, torch.float32) for v in (self.z, self.dual))
        for party, own in zip(self.parties, logits, strict=True):
            party.learn(z, dual, torch.from_numpy(total - own).to(device, torch.float32))
        self.place = rows.stop if rows.stop < len(self.z) else 0

    def close(self) -> None:
        """End the loaders' workers."""
        for party in self.parties:
            party.batches = iter(())

    def _update_z(self, rows: slice, total: Array, targets: Array, pool: Pool | None) -> None:
        start, dual = self.z[rows].copy(), self.dual[rows].copy()
        self.problems = [(*problem, self.rho) for problem in zip(start, targets, dual, total, strict=True)]
        self.z[rows] = solve_rows(self.problems, pool)
