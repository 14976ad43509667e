"""Rooms of memory with a finished run, and with one that takes over its parts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from colonnade import Federation, fit
from colonnade.deploy.party_setup import PartySetup
from colonnade.deploy.predict import Wish
from colonnade.deploy.undertaking import Undertaking
from colonnade.row_split import RowSplit
from colonnade.run import Run
from tests.deploy.memory import Room, SmallTrial
from tests.deploy.trials import taking_over
from tests.federations import small

TREES: dict[str, Any] = {"encoder": "trees", "trees": {"most": 12, "smallest_leaf": 3}}
TINY: dict[str, Any] = {"hidden": 6, "embedding": 4}
NOISY: dict[str, Any] = {"labels": {"mechanism": "randomised_response", "epsilon": 1.0}}
NOISE: dict[str, Any] = {"mechanism": "gaussian", "epsilon": 8.0, "delta": 1e-3, "clip": 1.0}
ONE: dict[str, Any] = {"name": "one_message", "local_steps": 6}
EVERYBODY = ("party_0", "party_1", "party_2")
OLD, NEW = EVERYBODY[:2], EVERYBODY[2]


def everybody(task: str = "binary") -> Federation:
    return small(widths=(4, 3, 2), rows=250, task=task)


def renumbered(whole: Federation, order: Tensor) -> Federation:
    """The same rows with other numbers, and a split that nobody is to use."""
    parties = tuple(replace(party, columns=party.columns[order]) for party in whole.parties)
    rows = torch.arange(len(order))
    return replace(
        whole, parties=parties, labels=whole.labels[order], split=RowSplit(rows[:200], rows[200:220], rows[220:])
    )


@dataclass(frozen=True)
class First(SmallTrial):
    """The run that is taken over."""

    who: tuple[str, ...] = OLD

    def federation(self) -> Federation:
        return everybody(self.data["task"]).only(self.who)

    def undertaking(self) -> Undertaking:
        u = super().undertaking()
        return replace(u, training=u.training.in_rounds(u.method, u.split.train, u.parties))


@dataclass(frozen=True)
class Second(First):
    """The run that takes it over: its rows have the numbers of `order`."""

    former: First | None = None
    order: Tensor | None = None

    def federation(self) -> Federation:
        whole = everybody(self.data["task"])
        return (whole if self.order is None else renumbered(whole, self.order)).only(self.who)

    def undertaking(self) -> Undertaking:
        assert self.former is not None
        return taking_over(self.former, super().undertaking(), self.order)

    def setup(self, name: str) -> PartySetup:
        former = self.former
        assert former is not None
        return replace(super().setup(name), finished=lambda run: [former.place(name)])


def rooms(
    folder: Path,
    first: tuple[str, ...] = OLD,
    second: tuple[str, ...] = EVERYBODY,
    order: Tensor | None = None,
    **options: Any,
) -> tuple[Room, Room]:
    """The room of a first run, and that of one that takes it over."""
    options = {"method": ONE, "model": TREES, "data": {"task": "binary"}, **options}
    before = Room.of(folder, EVERYBODY, **options)
    plain = {name: getattr(before.trial, name) for name in before.trial.__dataclass_fields__}
    before.trial = First(**{**plain, "folder": folder / "first", "who": first})
    trial = Second(
        **{**plain, "folder": folder / "second", "run": "second", "who": second, "former": before.trial, "order": order}
    )
    return before, Room(trial)


def wanted_of(trial: First, **options: Any) -> Run:
    """A simulation with everybody from the beginning."""
    return fit(
        everybody(trial.data["task"]).only(trial.who),
        "one_message",
        local_steps=6,
        model=dict(trial.model),
        engine="loop",
        **options,
    )


def train_both(before: Room, after: Room, asked: int) -> tuple[Run, Tensor]:
    """One after the other: the run that took over, and what its model says of the first `asked` rows."""
    with before:
        before.train()
    with after:
        run = after.train()
        return run, after.predict(Wish(torch.arange(asked))).logits
