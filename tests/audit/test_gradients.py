"""Labels read off replies without a formula: all of them where the reply is the label, none where it is noise."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from colonnade.audit.gradients import read_replies
from colonnade.audit.transcript import RecordedRound, RecordedUploads
from colonnade.tasks.multiclass import Multiclass
from colonnade.wire.messages import Purpose

ROWS = torch.arange(20, 320)
LABELS = torch.arange(400) % 4


def transcript(own: dict[str, dict[str, Tensor]], common: dict[str, Tensor] | None = None) -> Any:
    asked = RecordedRound(1, (), {}, {}, (RecordedUploads(Purpose.TRAIN, ROWS, {}),), ())
    reply = RecordedRound(2, ("a",), common or {}, own, (), ())
    federation = SimpleNamespace(labels=LABELS, task=Multiclass(10))
    return SimpleNamespace(recorded_rounds=(asked, reply), federation=federation)


def gradient(noise: float) -> Tensor:
    """softmax - onehot through a random matrix, as the gradient of an embedding is."""
    drawn = torch.Generator().manual_seed(1)
    away = 0.25 - torch.nn.functional.one_hot(LABELS[ROWS], 4).float()
    clean = away @ torch.randn(4, 6, generator=drawn)
    return clean + noise * torch.randn(clean.shape, generator=drawn)


@pytest.mark.parametrize(("noise", "low", "high"), [(0.0, 0.99, 1.0), (100.0, 0.0, 0.4)])
def test_gradients_tell_labels_and_noise_does_not(noise: float, low: float, high: float) -> None:
    found = read_replies(transcript({"a": {"g": gradient(noise)}}), "a")
    assert found is not None
    assert low <= found.score <= high
    assert (found.rows, found.attack) == (260, "labels from the downlink")
    assert found.chance == pytest.approx(0.25, abs=0.03)


def test_another_partys_own_part_is_not_read() -> None:
    assert read_replies(transcript({"b": {"g": gradient(0.0)}}), "a") is None


def test_what_is_not_about_rows_is_not_read() -> None:
    assert read_replies(transcript({}, {"weights": torch.randn(7, 3, generator=torch.Generator())}), "a") is None


def test_a_common_reply_is_everybodys() -> None:
    found = read_replies(transcript({}, {"v": gradient(0.0)}), "a")
    assert found is not None
    assert found.score > 0.99
