"""Rounds without some of the parties: who is left out uploads nothing, adds nothing and learns nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor

from colonnade import Federation, Run, fit
from colonnade.deploy.predict import Wish
from colonnade.errors import ConfigError
from colonnade.methods import VIMADMM, VIMADMMJ
from colonnade.methods.base import Reply, State, Uploads
from colonnade.methods.without import check_party_dropout
from colonnade.models.encoders import ModelSettings
from colonnade.privacy.labels import Labels
from colonnade.schedule import RoundPlan, Schedule, ScheduleSettings
from colonnade.testing.methods import assert_engines_end_alike, assert_resumes
from colonnade.testing.trainings import untimed
from colonnade.wire.messages import COORDINATOR, Purpose
from tests.deploy.memory import Room
from tests.federations import small
from tests.trainers import open_trainer

DROPPING: dict[str, Any] = {"batch": 20, "party_dropout": 0.4}
TINY = ModelSettings(hidden=6, embedding=4)


def test_each_party_is_left_out_as_often_as_asked_and_somebody_is_always_there() -> None:
    parties = ("a", "b", "c")
    schedule = Schedule(ScheduleSettings(batch=5, party_dropout=0.4), torch.arange(20), parties, seed=1)
    plans = [schedule.plan(number) for number in range(1, 2001)]
    assert all(plan.senders and plan.learners == plan.senders for plan in plans)
    for party in parties:
        gone = sum(party not in plan.senders for plan in plans) / len(plans)
        assert abs(gone - 0.4 * (1 - 0.4**2 / 3)) < 0.03  # where all would go, one of the three stays
    assert schedule.leaves_out and not schedule.someone_may_be_silent


def test_the_sum_is_of_those_who_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the last upload of a party was, in a round without it there are zeros, and its model stands still."""
    seen: list[tuple[tuple[str, ...], Tensor]] = []
    real = VIMADMMJ.coordinate

    def coordinate(self: VIMADMMJ, state: State, plan: RoundPlan, uploads: Uploads, labels: Labels) -> Reply:
        seen.append((plan.senders, torch.cat([group["o"] for group in uploads.groups])))
        return real(self, state, plan, uploads, labels)

    monkeypatch.setattr(VIMADMMJ, "coordinate", coordinate)
    federation = small((4, 4, 4))
    run = fit(federation, "vimadmm_j", rounds=12, schedule=DROPPING, model=TINY)
    assert len({senders for senders, _ in seen}) > 2
    for senders, told in seen:
        for place, party in enumerate(federation.names):
            assert bool(told[place].any()) == (party in senders)
    sent = [e.owner for e in run.ledger if e.purpose is Purpose.TRAIN and e.owner != COORDINATOR]
    assert sorted(sent) == sorted(party for senders, _ in seen for party in senders)


@pytest.mark.parametrize("method", [VIMADMMJ(local_steps=2), VIMADMM(local_steps=2)], ids=["vimadmm_j", "vimadmm"])
def test_engines_agree_and_runs_resume(method: Any, tmp_path: Path) -> None:
    federation = small((4, 3, 4))
    assert_engines_end_alike(federation, method, schedule=DROPPING, model=TINY, rounds=5)
    options = {"rounds": 7, "evaluate_every": 2, "model": TINY, "checkpoint_every": 3, "schedule": DROPPING}
    assert_resumes(federation, method, tmp_path, **options)


def overlapping(rows: int = 1500) -> Federation:
    """The second party knows what the first knows, less exactly: trained together, it has little to say by itself."""
    generator = torch.Generator().manual_seed(0)
    news, own = torch.randn(rows, 1, generator=generator), torch.randn(2, rows, 2, generator=generator)
    first = torch.cat([news + 0.3 * own[0, :, :1], own[0, :, 1:]], dim=1)
    second = torch.cat([-news + 0.3 * own[1, :, :1], own[0, :, 1:] + 0.5 * own[1, :, 1:]], dim=1)
    label = news[:, 0] + own[0, :, 1] + 0.7 * torch.randn(rows, generator=generator) > 0.3
    return Federation.from_arrays({"first": first, "second": second}, label.long(), task="binary")


def test_what_it_is_for() -> None:
    """A party trained with it says more by itself."""
    federation = overlapping()
    rows, truth = federation.split.test, federation.labels[federation.split.test].flatten()

    def aucs(run: Run) -> list[float]:
        every = {party.name: party.columns[rows] for party in federation.parties}
        alone = [run.model.prediction({name: x}, absent="leave-out").logits for name, x in every.items()]
        return [float(roc_auc_score(truth, logits)) for logits in (run.logits(every), *alone)]

    options: dict[str, Any] = {"rounds": 60, "local_steps": 5, "lr": 0.01}
    plain = aucs(fit(federation, "vimadmm_j", schedule={"batch": 500}, **options))
    dropped = aucs(fit(federation, "vimadmm_j", schedule={"batch": 500, "party_dropout": 0.3}, **options))
    assert dropped[0] > plain[0] - 0.02
    assert dropped[2] > plain[2] + 0.005


class TestRefusals:
    @pytest.mark.parametrize(
        "name", ["split_learning", "local_only", "one_message", "linear_admm", "assisted_boosting"]
    )
    def test_methods_without_such_rounds(self, name: str) -> None:
        with pytest.raises(ConfigError, match=f"party_dropout: {name} has no round"):
            fit(small((4, 4)), name, rounds=2, schedule=DROPPING)

    def test_a_secure_sum(self) -> None:
        with pytest.raises(ConfigError, match="secure_sum opens only with all parties"):
            fit(small((4, 4, 4)), "vimadmm_j", rounds=2, schedule=DROPPING, privacy={"secure_sum": {"use": True}})

    @pytest.mark.parametrize("other", [{"participation": 0.5}, {"order": "sequential"}])
    def test_two_ways_to_be_silent(self, other: dict[str, Any]) -> None:
        with pytest.raises(ConfigError, match="party_dropout leaves parties out of rounds that all of them have"):
            ScheduleSettings(party_dropout=0.2, **other)


def test_organisations_compute_what_one_process_computes(tmp_path: Path) -> None:
    data: dict[str, Any] = {"widths": (4, 3, 4), "rows": 90}
    training: dict[str, Any] = {"rounds": 6, "dtype": "float64", "evaluate_every": 2, "schedule": DROPPING}
    whole, method = small(**data), {"name": "vimadmm_j", "local_steps": 2}
    sizes = {"hidden": 6, "embedding": 4}
    scene = Room.of(tmp_path, whole.names, data=data, method=method, model=sizes, training=training)
    with scene:
        run = scene.train()
        scene.leave("party_1")
        scene.arrive("party_1")
        found = scene.predict(Wish(whole.split.test))
    loop = open_trainer(whole, VIMADMMJ(local_steps=2), model=TINY, engine="loop", **training).train()
    assert untimed(run.history) == untimed(loop.history)
    columns = {party.name: party.columns[whole.split.test] for party in whole.parties}
    torch.testing.assert_close(found.logits, loop.logits(columns), rtol=0, atol=1e-9)
    with pytest.raises(ConfigError, match=r"party_dropout counts nothing of who is left out"):
        check_party_dropout(VIMADMMJ(), 0.3, goes_on=True, layers=1)


def test_heads_with_biases_are_refused() -> None:
    """Of a party that is left out they would still add a number."""
    with pytest.raises(ConfigError, match="heads of 2 layers at the coordinator have biases"):
        fit(small(), "vimadmm", schedule={"party_dropout": 0.3}, model={"head": {"layers": 2}}, rounds=2)
