"""Split Learning, VAFL and FedBCD in plain PyTorch: modules, `torch.optim`, one party after the other.

Slow and obvious: nothing of the package's mathematics is used. What is given to both sides is the schedule (which
rows, who speaks, who learns) and the first weights. Gradients come from one autograd graph through whatever the
server heard; what a silent party said last about a row stands in a table.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from colonnade.federation import Federation
from colonnade.fit import Trainer
from colonnade.methods.base import Method
from colonnade.models.encoders import ModelSettings
from colonnade.models.heads import HeadSettings
from colonnade.models.optimise import SGD, AdamW
from colonnade.schedule import RoundPlan
from tests.federations import small
from tests.trainers import open_trainer, party_tensors, rounds_of

FEDERATION = small(rows=60)
HIDDEN, WIDTH = 6, 4
LINEAR = ModelSettings(hidden=HIDDEN, embedding=WIDTH, scale_columns="never")
MLP = LINEAR.model_copy(update={"head": HeadSettings(layers=3, dropout=0.0)})


def torch_optimiser(rule: SGD | AdamW, parameters: Iterable[Tensor]) -> torch.optim.Optimizer:
    if isinstance(rule, SGD):
        return torch.optim.SGD(parameters, rule.lr, rule.momentum, weight_decay=rule.weight_decay)
    return torch.optim.AdamW(parameters, rule.lr, (rule.beta1, rule.beta2), rule.eps, rule.weight_decay)


@dataclass
class Plain:
    """The parties and the server of one training, with settings under their plain names."""

    federation: Federation
    encoders: dict[str, nn.Module]
    server: nn.Module
    local: SGD | AdamW
    above: SGD | AdamW
    after: bool = False
    steps: int = 1  # Q
    proximal: float = 0.0
    weight_lr: float | None = None  # a number: a weighted sum instead of embeddings side by side
    weights: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.columns = {p.name: p.columns.double() for p in self.federation.parties}
        self.table = {name: torch.zeros(self.federation.rows, WIDTH).double() for name in self.columns}
        self.optimisers = {name: torch_optimiser(self.local, e.parameters()) for name, e in self.encoders.items()}
        self.server_optimiser = torch_optimiser(self.above, self.server.parameters())
        self.weights = torch.full((len(self.columns),), 1 / len(self.columns)).double().requires_grad_()

    def outputs(self, embeddings: list[Tensor]) -> Tensor:
        if self.weight_lr is None:
            return self.server(torch.cat(embeddings, dim=1))
        return self.server(sum(a * h for a, h in zip(self.weights, embeddings, strict=True)))

    def round(self, plan: RoundPlan) -> None:
        for name in plan.senders:
            self.table[name][plan.rows] = self.encoders[name](self.columns[name][plan.rows]).detach()
        heard = [table[plan.rows].clone().requires_grad_() for table in self.table.values()]
        y = self.federation.labels[plan.rows]
        self.server_optimiser.zero_grad()
        self.weights.grad = None
        F.cross_entropy(self.outputs(heard), y).backward()
        self.server_optimiser.step()
        if self.weight_lr is not None:
            self.weights.data -= self.weight_lr * self.weights.grad
        if self.after:
            heard = [h.detach().requires_grad_() for h in heard]
            F.cross_entropy(self.outputs(heard), y).backward()
        slopes = dict(zip(self.table, (h.grad for h in heard), strict=True))
        for name in plan.learners:
            self.learn(name, plan.rows, slopes[name])

    def learn(self, name: str, rows: Tensor, slope: Tensor) -> None:
        encoder = self.encoders[name]
        anchor = [p.detach().clone() for p in encoder.parameters()]
        for _ in range(self.steps):
            self.optimisers[name].zero_grad()
            encoder(self.columns[name][rows]).backward(slope)
            for p, start in zip(encoder.parameters(), anchor, strict=True):
                p.grad += 2 * self.proximal * (p.detach() - start)
            self.optimisers[name].step()

    def logits(self, rows: Tensor) -> Tensor:
        with torch.no_grad():
            return self.outputs([e(self.columns[name][rows]) for name, e in self.encoders.items()])


def plain_of(trainer: Trainer, method: Any, **choices: Any) -> Plain:
    """The reference, with the first weights of a trainer."""
    encoders: dict[str, nn.Module] = {}
    for party, held in party_tensors(trainer).items():
        network = nn.Sequential(
            nn.Flatten(), nn.Linear(5, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, WIDTH), nn.ReLU()
        ).double()
        network.load_state_dict({k.removeprefix("parameter."): v for k, v in held.items()})
        encoders[party] = network
    state, layers = trainer.coordinator.state, []
    count = sum(name.startswith("server.weight") for name in state)
    for i in range(count):
        weight = state[f"server.weight.{i}"][0]
        layer = nn.Linear(*weight.shape, bias=count > 1).double()
        layer.weight.data.copy_(weight.T)
        if count > 1:
            layer.bias.data.copy_(state[f"server.bias.{i}"][0, 0])
        layers += [layer] if i == count - 1 else [layer, nn.ReLU()]
    choices = {"after": method.gradient == "after", **choices}
    return Plain(FEDERATION, encoders, nn.Sequential(*layers), method.optimiser, method.server_optimiser, **choices)


def assert_same_training(method: Method, model: ModelSettings, schedule: dict[str, Any], **choices: Any) -> None:
    """Seven rounds on both sides, then every logit."""
    schedule = {"batch": 12, **schedule}
    trainer = open_trainer(FEDERATION, method, model=model, rounds=7, evaluate_every=0, schedule=schedule)
    plain = plain_of(trainer, method, **choices)
    first = plain.logits(FEDERATION.split.test)
    for number in range(1, 8):
        plain.round(trainer.coordinator.schedule.plan(number))
    run = trainer.train()
    rows = FEDERATION.split.test
    ours = run.logits({p.name: p.columns[rows] for p in FEDERATION.parties})
    theirs = plain.logits(rows)
    assert (theirs - first).abs().max() > 0.01  # something was learnt, so equal is not empty
    torch.testing.assert_close(ours.double(), theirs, rtol=0, atol=1e-10)


def read_from_slopes(method: Method) -> float:
    """What share of a batch's labels a party reads off its first gradient if it knows one label of each class."""
    trainer = open_trainer(FEDERATION, method, engine="loop", rounds=1, evaluate_every=0)
    first, second = (e for _, e in zip(range(2), rounds_of(trainer), strict=False))
    labels = FEDERATION.labels[first.request.queries[0].rows]
    slope = second.down.groups[0]["slope"][0]
    known = torch.stack([(labels == c).nonzero()[0, 0] for c in labels.unique()])
    alike = F.cosine_similarity(slope[:, None], slope[known][None], dim=2)
    return float((labels[known][alike.argmax(dim=1)] == labels).double().mean())


def golden(method: Method) -> list[float]:
    """The logits of one row after five rounds."""
    federation = small()
    run = open_trainer(federation, method, rounds=5, evaluate_every=0, seed=3).train()
    return run.logits({p.name: p.columns[:1] for p in federation.parties})[0].tolist()
