"""Flex-VFL, C-VFL, CELU-VFL and VFL-PBM in plain PyTorch, on the networks of `plain_split`: one party after the other.

Slow and obvious. Given to both sides are the schedule, the first weights, and what the wire makes of a vector.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from colonnade.fit import Trainer
from colonnade.models.encoders import ModelSettings
from colonnade.models.optimise import SGD, AdamW
from colonnade.schedule import RoundPlan
from tests.methods.plain_split import FEDERATION, HIDDEN, WIDTH, Plain
from tests.trainers import open_trainer, party_tensors

ROUNDS = 7
SGDS = {"optimiser": SGD(lr=0.1, momentum=0.9), "server_optimiser": SGD(lr=0.3, momentum=0.0, weight_decay=0.01)}
ADAMS = {"optimiser": AdamW(lr=0.01), "server_optimiser": AdamW(lr=0.03)}
Wire = Callable[[str, Tensor], Tensor]


def opened(method: Any, model: ModelSettings, schedule: dict[str, Any] | None = None, **options: Any) -> Trainer:
    schedule = {"batch": 12, **(schedule or {})}
    return open_trainer(FEDERATION, method, model=model, rounds=ROUNDS, evaluate_every=0, schedule=schedule, **options)


def networks(trainer: Trainer, method: Any) -> Plain:
    """The reference's networks, with the first weights of a trainer."""
    encoders: dict[str, nn.Module] = {}
    for party, held in party_tensors(trainer).items():
        layers = [nn.Flatten(), nn.Linear(5, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, WIDTH), nn.ReLU()]
        encoders[party] = nn.Sequential(*layers).double()
        mine = {k.removeprefix("parameter."): v for k, v in held.items() if k.startswith("parameter.")}
        encoders[party].load_state_dict(mine)
    state, above = trainer.coordinator.state, list[nn.Module]()
    count = sum(name.startswith("server.weight") for name in state)
    for i in range(count):
        weight = state[f"server.weight.{i}"][0]
        layer = nn.Linear(*weight.shape, bias=count > 1).double()
        layer.weight.data.copy_(weight.T)
        if count > 1:
            layer.bias.data.copy_(state[f"server.bias.{i}"][0, 0])
        above += [layer] if i == count - 1 else [layer, nn.ReLU()]
    return Plain(FEDERATION, encoders, nn.Sequential(*above), method.optimiser, method.server_optimiser)


def assert_same(trainer: Trainer, plain: Plain, play: Callable[[RoundPlan], None]) -> None:
    """Seven rounds on both sides, then every weight of every party and of the server."""
    first = copy.deepcopy(plain.server.state_dict())
    for number in range(1, ROUNDS + 1):
        play(trainer.coordinator.schedule.plan(number))
    run = trainer.train()
    for name, encoder in plain.encoders.items():
        for key, value in encoder.state_dict().items():
            torch.testing.assert_close(run.models[name][f"parameter.{key}"], value, rtol=0, atol=1e-10)
    for i, layer in enumerate(layer for layer in plain.server if isinstance(layer, nn.Linear)):
        torch.testing.assert_close(run.state[f"server.weight.{i}"][0], layer.weight.T, rtol=0, atol=1e-10)
    moved = [(plain.server.state_dict()[k] - v).abs().max() for k, v in first.items()]
    assert min(moved) > 1e-3  # something was learnt, so equal is not empty


class Snapshots:
    """Local steps against a frozen snapshot: Flex-VFL, and C-VFL with a wire that loses something."""

    def __init__(self, plain: Plain, q: int, paces: dict[str, int], wire: Wire, wire_server: Wire) -> None:
        self.plain, self.q, self.paces, self.wire, self.wire_server = plain, q, paces, wire, wire_server
        for name, rule in plain.optimisers.items():
            for group in rule.param_groups:
                group["lr"] *= q / paces[name]  # eta_k Q_k = eta Q

    def round(self, plan: RoundPlan) -> None:
        p, rows = self.plain, plan.rows
        y = p.federation.labels[rows]
        for name in plan.senders:
            p.table[name][rows] = self.wire(name, p.encoders[name](p.columns[name][rows]).detach())
        heard = {name: table[rows].clone() for name, table in p.table.items()}
        frozen = copy.deepcopy(p.server)
        for name, value in frozen.named_parameters():
            value.data.copy_(self.wire_server(name, value.data))
        for _ in range(self.q):
            p.server_optimiser.zero_grad()
            F.cross_entropy(p.server(torch.cat(list(heard.values()), dim=1)), y).backward()
            p.server_optimiser.step()
        for name in plan.learners:
            for _ in range(self.paces[name]):
                p.optimisers[name].zero_grad()
                mine = p.encoders[name](p.columns[name][rows])
                beside = [mine if other == name else h for other, h in heard.items()]
                F.cross_entropy(frozen(torch.cat(beside, dim=1)), y).backward()
                p.optimisers[name].step()


class Cache:
    """The W last rounds of one side, visited in a circle; an entry is (slot, round, uses left)."""

    def __init__(self, slots: int, uses: int) -> None:
        self.entries: dict[int, list[Any]] = {}
        self.slots, self.uses, self.at = slots, uses, 0

    def put(self, plan: int, one_round: Any) -> None:
        self.at = plan % self.slots
        self.entries[self.at] = [one_round, self.uses - 1]

    def next(self) -> Any:
        for _ in range(self.slots):
            self.at = (self.at + 1) % self.slots
            if self.at in self.entries and self.entries[self.at][1] > 0:
                self.entries[self.at][1] -= 1
                return self.entries[self.at][0]
        return None


def row_weights(fresh: Tensor, cached: Tensor, angle: float) -> list[float]:
    weights = []
    for one, other in zip(fresh, cached, strict=True):
        norms = float(one.norm() * other.norm())
        cosine = float(one @ other) / norms if norms > 0 else 0.0
        weights.append(cosine if cosine >= math.cos(math.radians(angle)) else 0.0)
    return weights


class Cached:
    """CELU-VFL: an exact step, then steps on cached rounds, row by row weighted; both sides."""

    def __init__(self, plain: Plain, method: Any) -> None:
        self.plain, self.m = plain, method
        self.caches = {name: Cache(method.cache, method.uses) for name in plain.encoders}
        self.server_cache = Cache(method.cache, method.uses)
        self.weights: list[float] = []

    def round(self, plan: RoundPlan) -> None:
        p, rows = self.plain, plan.rows
        y = p.federation.labels[rows]
        for name in plan.senders:
            p.table[name][rows] = p.encoders[name](p.columns[name][rows]).detach()
        heard = torch.cat([table[rows] for table in p.table.values()], dim=1)
        slope = self.server_step(heard, y, None)
        self.server_cache.put(plan.number, (heard, y, slope))
        for _ in range(1, self.m.local_steps):
            if (entry := self.server_cache.next()) is not None:
                self.server_step(*entry)
        parts = dict(zip(p.table, slope.chunk(len(p.table), dim=1), strict=True))
        for name in plan.learners:
            self.party_step(name, rows, None, parts[name])
            self.caches[name].put(plan.number, (rows, p.table[name][rows].clone(), parts[name]))
            for _ in range(1, self.m.local_steps):
                if (entry := self.caches[name].next()) is not None:
                    self.party_step(name, *entry)

    def server_step(self, heard: Tensor, y: Tensor, cached: Tensor | None) -> Tensor:
        at = heard.clone().requires_grad_()
        (slope,) = torch.autograd.grad(F.cross_entropy(self.plain.server(at), y), at)
        weights = [1.0] * len(y) if cached is None else row_weights(slope, cached, self.m.angle)
        self.weights += weights if cached is not None else []
        self.plain.server_optimiser.zero_grad()
        losses = F.cross_entropy(self.plain.server(heard), y, reduction="none")
        (sum(w * loss for w, loss in zip(weights, losses, strict=True)) / len(y)).backward()
        self.plain.server_optimiser.step()
        return slope

    def party_step(self, name: str, rows: Tensor, sent: Tensor | None, slope: Tensor) -> None:
        h = self.plain.encoders[name](self.plain.columns[name][rows])
        weights = [1.0] * len(rows) if sent is None else row_weights(h.detach(), sent, self.m.angle)
        self.weights += weights if sent is not None else []
        self.plain.optimisers[name].zero_grad()
        h.backward(torch.stack([w * g for w, g in zip(weights, slope, strict=True)]))
        self.plain.optimisers[name].step()


class Sums:
    """VFL-PBM: a server model on the sum of clipped embeddings, as counted."""

    def __init__(self, plain: Plain, method: Any, count: Callable[[str, int, Tensor], Tensor]) -> None:
        self.plain, self.m, self.count = plain, method, count
        self.told: dict[tuple[str, int], Tensor] = {}  # the last counts of a party about a row

    def round(self, plan: RoundPlan) -> None:
        p, n, theta = self.plain, self.m.trials, self.m.theta
        for name in plan.senders:
            x = p.encoders[name](p.columns[name][plan.rows]).detach().clamp(-1, 1)
            for row, counts in zip(plan.rows.tolist(), self.count(name, plan.number, 0.5 + theta * x), strict=True):
                self.told[name, row] = counts
        sums = []
        for row in plan.rows.tolist():
            known = [self.told[name, row] for name in p.encoders if (name, row) in self.told]
            sums.append(sum((q - n / 2) / (theta * n) for q in known))
        at = torch.stack(sums).requires_grad_()
        p.server_optimiser.zero_grad()
        F.cross_entropy(p.server(at), p.federation.labels[plan.rows]).backward()
        p.server_optimiser.step()
        for name in plan.learners:
            p.optimisers[name].zero_grad()
            p.encoders[name](p.columns[name][plan.rows]).clamp(-1, 1).backward(at.grad)
            p.optimisers[name].step()
