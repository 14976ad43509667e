"""Unit ROW: bugs of training at home are seen, correct code is left alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from colonnade.audit import at_home
from colonnade.audit.at_home import DRAWS, GRADIENTS, NOISE, check_at_home, check_gradients
from colonnade.audit.checks import BOUND, Check
from colonnade.audit.examine import Watching, Wishes, play_at_home
from colonnade.audit.transcript import Transcript, record
from colonnade.methods import LocalOnly
from colonnade.models import row_gradients, row_steps
from colonnade.models.encoders import ModelSettings
from colonnade.privacy.by_row import LocalSteps, RowNoise
from colonnade.privacy.gaussian import NoiseSource, SeededNoise, SystemNoise
from tests.audit.trainings import digits
from tests.trainers import open_trainer

PLAN = LocalSteps(rows=900, batch=300, steps=24, parties=3)
PARTIES = ("bank", "shop", "telco")


@dataclass(frozen=True)
class Wrong(RowNoise):
    """A training at home with a bug."""

    bug: str = ""

    def draw(self, parties: Sequence[str], number: int, step: int) -> Tensor:
        drawn = super().draw(parties, number, step)
        if self.bug == "one row is always drawn":
            drawn[:, 7] = True
        if self.bug == "all parties draw the same":
            drawn = drawn[:1].expand(len(parties), -1)
        if self.bug == "the plan's rows, of one number":
            order = torch.randperm(drawn.shape[1], generator=torch.Generator().manual_seed(number))
            drawn = torch.zeros_like(drawn)
            drawn[:, order[:300]] = True
        if self.bug == "more rows than said":
            drawn = drawn | super().draw(parties, number + 1000, step) & super().draw(parties, number + 2000, step)
        return drawn

    def protect(self, sums: Tensor, parties: Sequence[str], number: int, step: int) -> Tensor:
        if self.bug == "half the noise":
            return replace(self, sigma=self.sigma / 2, bug="").protect(sums, parties, number, step)
        if self.bug == "the first step has no noise" and (number, step) == (1, 0):
            return sums
        if self.bug == "a draw for all parties":
            return super().protect(sums[:1], ("all",), number, step).expand(len(parties), -1)
        if self.bug == "rounds share noise":
            return super().protect(sums, parties, number % 3, step)
        if self.bug == "no grid":
            return super().protect(sums, parties, number, step) * 1.0000001
        return super().protect(sums, parties, number, step)


OF_NOISE = ["half the noise", "the first step has no noise", "a draw for all parties", "rounds share noise", "no grid"]
OF_DRAWS = [
    "one row is always drawn",
    "all parties draw the same",
    "the plan's rows, of one number",
    "more rows than said",
]


def failed(how: RowNoise) -> list[str]:
    return [check.name for check in check_at_home(how, PARTIES, 2) if check.failed]


@pytest.mark.parametrize("bug", OF_NOISE + OF_DRAWS)
def test_every_bug_is_seen_by_its_check(bug: str) -> None:
    assert failed(Wrong(1.0, 2.0, PLAN, SeededNoise(3), bug)) == [NOISE if bug in OF_NOISE else DRAWS]


@pytest.mark.parametrize("source", [SeededNoise(3), SeededNoise(4), SystemNoise()])
@pytest.mark.parametrize("plan", [PLAN, replace(PLAN, batch=900), LocalSteps(50_000, 500, 200, 3)])
def test_correct_code_is_left_alone(source: NoiseSource, plan: LocalSteps) -> None:
    assert failed(RowNoise(0.5, 3.0, plan, source)) == []


def trained(**model: Any) -> Transcript:
    options: dict[str, Any] = {"rounds": 2, "privacy": {"unit": "row", "sigma": 2.0}, "schedule": {"batch": 200}}
    network = ModelSettings(**{"encoder": "tanh", "embedding": 8, **model})
    return record(open_trainer(digits(), LocalOnly(), model=network, **options))


def played(transcript: Transcript) -> list[Check]:
    return list(play_at_home(transcript, 1e-5, Wishes(games=300), Watching()))


def test_a_training_is_played_whole() -> None:
    names = [BOUND, NOISE, DRAWS, GRADIENTS]
    assert [(check.name, check.failed) for check in played(trained())] == [(name, False) for name in names]


def test_the_game_sees_gradients_that_are_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    transcript, right = trained(), row_steps.clipped_sums
    monkeypatch.setattr(row_steps, "clipped_sums", lambda cohort, batch, norm: right(cohort, batch, 1e30))
    found = {check.name: check for check in played(transcript)}
    assert found[BOUND].failed and "ABOVE the ledger's figure" in found[BOUND].means


@pytest.mark.parametrize("bug", ["twice the norm", "the whole batch", "none"])
def test_gradients_that_are_not_cut_row_by_row_are_seen(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    transcript = trained(encoder="linear")
    right = row_gradients.clipped_sums

    def wrong(cohort: Any, batch: Any, norm: float) -> list[Tensor]:
        if bug == "twice the norm":
            return right(cohort, batch, 2 * norm)
        sums = right(cohort, batch, 1e30)
        if bug == "none":
            return sums
        whole = torch.cat([value.flatten(1) for value in sums], dim=1).norm(dim=1)
        return [value * (norm / whole).clamp(max=1.0).view(-1, *[1] * (value.dim() - 1)) for value in sums]

    how = transcript.sides[0].gate.protection.local
    assert how is not None
    cohorts = [side.cohort for side in transcript.sides]
    assert not check_gradients(cohorts, how).failed
    monkeypatch.setattr(at_home, "clipped_sums", wrong)
    assert check_gradients(cohorts, how).failed
