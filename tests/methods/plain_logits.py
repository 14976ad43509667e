"""FDML, Fu et al. and AdaVFL in plain PyTorch: modules, `torch.optim`, one party after the other.

Slow and obvious: nothing of the package's mathematics is used. What is given to both sides is the schedule (which
rows, who speaks, who learns) and the first weights. What a party said last about a row stands in a table.
"""

from __future__ import annotations

from dataclasses import dataclass
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
from tests.trainers import open_trainer, party_tensors

FEDERATION = small(rows=60)
HIDDEN, WIDTH = 6, 4
LINEAR = ModelSettings(hidden=HIDDEN, embedding=WIDTH, scale_columns="never")
MLP = LINEAR.model_copy(update={"head": HeadSettings(layers=3, dropout=0.0)})
RULES = {"sgd": SGD(lr=0.2, momentum=0.9, weight_decay=1e-3), "adamw": AdamW(lr=0.02)}
GENTLE = SGD(lr=0.02, momentum=0.9)  # several steps along one old gradient go far


def torch_optimiser(rule: SGD | AdamW, parameters: Any) -> torch.optim.Optimizer:
    if isinstance(rule, SGD):
        return torch.optim.SGD(parameters, rule.lr, rule.momentum, weight_decay=rule.weight_decay)
    return torch.optim.AdamW(parameters, rule.lr, (rule.beta1, rule.beta2), rule.eps, rule.weight_decay)


@dataclass
class Plain:
    """The parties of one training; `a` stands before the sum."""

    federation: Federation
    networks: dict[str, nn.Module]
    rule: SGD | AdamW
    a: float = 1.0
    fresh: bool = False  # the loss anew at every step, or the gradient of the sum as it was heard
    steps: dict[str, int] | int = 1

    def __post_init__(self) -> None:
        self.columns = {p.name: p.columns.double() for p in self.federation.parties}
        self.table = {name: torch.zeros(self.federation.rows, 3).double() for name in self.columns}
        self.optimisers = {name: torch_optimiser(self.rule, n.parameters()) for name, n in self.networks.items()}

    def round(self, plan: RoundPlan) -> None:
        for name in plan.senders:
            self.table[name][plan.rows] = self.networks[name](self.columns[name][plan.rows]).detach()
        total = sum(table[plan.rows] for table in self.table.values()).requires_grad_()
        y = self.federation.labels[plan.rows]
        F.cross_entropy(self.a * total, y).backward()
        for name in plan.learners:
            others = total.detach() - self.table[name][plan.rows]
            for _ in range(self.steps if isinstance(self.steps, int) else self.steps[name]):
                self.optimisers[name].zero_grad()
                logits = self.networks[name](self.columns[name][plan.rows])
                if self.fresh:
                    F.cross_entropy(self.a * (others + logits), y).backward()
                else:
                    logits.backward(total.grad)
                self.optimisers[name].step()

    def logits(self, rows: Tensor) -> Tensor:
        with torch.no_grad():
            return self.a * sum(n(self.columns[name][rows]) for name, n in self.networks.items())


def plain_of(trainer: Trainer, method: Any, **choices: Any) -> Plain:
    """The reference, with the first weights of a trainer."""
    networks: dict[str, nn.Module] = {}
    for party, held in party_tensors(trainer).items():
        layers = [nn.Flatten(), nn.Linear(5, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, WIDTH), nn.ReLU()]
        count = sum(name.startswith("head.weight") for name in held)
        for i in range(count):
            layers += [nn.Linear(*held[f"head.weight.{i}"].shape, bias=count > 1), nn.ReLU()]
        network = nn.Sequential(*layers[:-1]).double()
        values = {k.removeprefix("parameter."): v for k, v in held.items() if k.startswith("parameter.")}
        for i in range(count):
            values[f"{5 + 2 * i}.weight"] = held[f"head.weight.{i}"].T
            if count > 1:
                values[f"{5 + 2 * i}.bias"] = held[f"head.bias.{i}"][0]
        network.load_state_dict(values)
        networks[party] = network
    return Plain(FEDERATION, networks, method.optimiser, **choices)


def assert_same_training(method: Method, model: ModelSettings, schedule: dict[str, Any], **choices: Any) -> None:
    """Seven rounds on both sides, then every logit of the test rows."""
    schedule = {"batch": 12, **schedule}
    trainer = open_trainer(FEDERATION, method, model=model, rounds=7, evaluate_every=0, schedule=schedule)
    plain = plain_of(trainer, method, **choices)
    rows = FEDERATION.split.test
    first = plain.logits(rows)
    for number in range(1, 8):
        plain.round(trainer.coordinator.schedule.plan(number))
    ours = trainer.train().logits({p.name: p.columns[rows] for p in FEDERATION.parties})
    theirs = plain.logits(rows)
    assert (theirs - first).abs().max() > 0.01  # something was learnt, so equal is not empty
    torch.testing.assert_close(ours.double(), theirs, rtol=0, atol=1e-10)
