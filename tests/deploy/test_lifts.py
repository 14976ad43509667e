"""Lifted scores between organisations: as in one process, also after a restart, and only if the guest allows it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from colonnade.deploy.party_setup import PartySetup
from colonnade.deploy.policy import Policy
from colonnade.deploy.predict import Wish
from colonnade.errors import Refused
from colonnade.methods import VIMADMMJ
from colonnade.models.encoders import ModelSettings
from colonnade.store import Store
from colonnade.testing.trainings import untimed
from tests.deploy.memory import Room, SmallTrial, Way
from tests.federations import small
from tests.trainers import open_trainer

DATA: dict[str, Any] = {"widths": (4, 4, 4), "rows": 90}
GUEST = "party_0"
METHOD: dict[str, Any] = {"lifts": 2, "guest": GUEST, "local_steps": 2}
TRAINING: dict[str, Any] = {"rounds": 4, "dtype": "float32", "schedule": {"batch": 20}, "evaluate_every": 2}
MODEL: dict[str, Any] = {"encoder": "ridge", "party_1": {"encoder": "mlp", "hidden": 6, "embedding": 4}}


@dataclass(frozen=True)
class Agreeing(SmallTrial):
    """A trial whose guest has a policy."""

    policy: Policy = field(default_factory=lambda: Policy(tells_sides=True))

    def setup(self, name: str) -> PartySetup:
        given = super().setup(name)
        return replace(given, policy=self.policy) if name == GUEST else given


def room(folder: Path, policy: Policy | None = None, **method: Any) -> Room:
    chosen = {"name": "vimadmm_j", **METHOD, **method}
    scene = Room.of(folder, ("party_0", "party_1", "party_2"), data=DATA, model=MODEL, training=TRAINING, method=chosen)
    scene.trial = Agreeing(**scene.trial.__dict__, **({} if policy is None else {"policy": policy}))
    return scene


def test_organisations_compute_what_one_process_computes_also_after_a_restart_of_the_guest(tmp_path: Path) -> None:
    scene, restarts = room(tmp_path), []

    def restart() -> None:
        scene.leave(GUEST)
        scene.arrive(GUEST)

    def carry(way: Way) -> Sequence[float]:
        if (way.sender, way.kind, way.number) == (GUEST, "TRAIN", 2) and not restarts:
            restarts.append(threading.Thread(target=restart))
            restarts[0].start()
        return (0.0,)

    scene.office.carry = carry
    rows = torch.arange(25)
    with scene:
        run = scene.train()
        restarts[0].join()
        found = scene.predict(Wish(rows))
    settings = ModelSettings(**MODEL)
    loop = open_trainer(small(**DATA), VIMADMMJ(**METHOD), model=settings, engine="loop", **TRAINING).train()
    assert untimed(run.history) == untimed(loop.history) and run.result["lifts"] == loop.result["lifts"]
    wanted = loop.model.prediction(small(**DATA).select(rows))
    assert torch.equal(found.logits, wanted.logits)
    store = Store(scene.trial.place(GUEST) / "party.db")
    saved = store.snapshot()
    store.close()
    noted = [dict(entry.notes).get("column_sides") for entry in saved.ledger] if saved else []
    assert noted and set(noted) == {2.0}


@pytest.mark.parametrize("policy", [Policy(), Policy(shows_columns=True)], ids=["none", "to the label holder only"])
def test_a_guest_whose_policy_does_not_allow_it_refuses(policy: Policy, tmp_path: Path) -> None:
    """To show columns to the own organisation is no leave to tell all others."""
    with room(tmp_path, policy) as scene, pytest.raises(Refused, match="tells_sides: the run names this party"):
        scene.train()


def test_a_guest_with_too_few_columns_refuses_before_anything_is_agreed(tmp_path: Path) -> None:
    with room(tmp_path, lifts=5) as scene, pytest.raises(Refused, match="lifts = 5: 4 columns of party 'party_0'"):
        scene.train()
