"""Every method still computes what it computed when its trajectory was written down."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.contracts.registry import EVERY
from tests.golden.trajectories import FILE, trajectory

WRITTEN: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))


def test_every_method_has_a_trajectory() -> None:
    assert sorted(WRITTEN) == EVERY


@pytest.mark.parametrize("name", EVERY)
def test_a_trajectory_is_the_one_that_was_written_down(name: str) -> None:
    now, then = trajectory(name), WRITTEN[name]
    assert now["bytes"] == then["bytes"]
    assert now["test_score"] == pytest.approx(then["test_score"], rel=1e-9)
    assert len(now["outputs"]) == len(then["outputs"])
    for new, old in zip(now["outputs"], then["outputs"], strict=True):
        assert new == pytest.approx(old, rel=1e-7, abs=1e-9)
    assert [entry["round"] for entry in now["history"]] == [entry["round"] for entry in then["history"]]
    for new, old in zip(now["history"], then["history"], strict=True):
        assert new == pytest.approx(old, rel=1e-7, abs=1e-9)
