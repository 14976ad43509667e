"""Drift at an organisation: what is counted of columns and scores, and when a process that serves warns."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch

from colonnade.data.drift import Reference
from colonnade.deploy import scores
from colonnade.deploy.drift import Drift, score_drift
from colonnade.deploy.export import DRIFT
from colonnade.deploy.scores import Served, count_tested, read_scores
from colonnade.errors import ConfigError, RunError
from colonnade.evaluate.answers import Answers, Evaluated
from colonnade.model import Model
from colonnade.predict import Prediction
from colonnade.psi import LARGE_SHIFT, STABLE, Shift
from colonnade.randomness import stream
from colonnade.service import drifting
from colonnade.service.drifting import ColumnWatch, ScoreWatch
from colonnade.tasks.binary import Binary

DAY = 86400.0


def outputs(seed: int, rows: int, mean: float = 0.0) -> torch.Tensor:
    return torch.from_numpy(stream(seed, "test").normal(mean, 1, (rows, 1)))


def trained(folder: Path) -> None:
    logits = outputs(0, 1000)
    tested = Evaluated(Binary(1, ("no", "yes")), Answers(logits, logits), torch.zeros(1000, 1))
    count_tested(folder, tested, ("no", "yes"))


def answer(served: Served, logits: torch.Tensor) -> None:
    said = SimpleNamespace(task=Binary(1, ("no", "yes")), answers=lambda given, *_: Answers(given, given))
    served.add(cast("Model", said), Prediction(logits))


def test_scores_are_counted_by_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained(tmp_path)
    assert stat.S_IMODE((tmp_path / "scores.json").stat().st_mode) == 0o600
    clock = [10 * DAY]
    monkeypatch.setattr(scores.time, "time", lambda: clock[0])
    served = Served(tmp_path)
    answer(served, outputs(1, 300))
    answer(served, outputs(2, 300))
    assert score_drift(tmp_path, 30, clock[0]).rows == 0, "not written yet"
    served.write()
    served.write()
    found = score_drift(tmp_path, 30, clock[0])
    assert found.rows == 600 and [(s.name, s.verdict) for s in found.shifts] == [("yes", STABLE)]

    clock[0] += 20 * DAY
    other = Served(tmp_path)
    answer(other, outputs(3, 600, mean=1.5))
    other.write()
    assert score_drift(tmp_path, 30, clock[0]).rows == 1200
    late = score_drift(tmp_path, 7, clock[0])
    assert late.rows == 600 and late.shifts[0].verdict == LARGE_SHIFT
    assert late.summary() == "1 of 1 scores have moved far (PSI from 0.25 on, or not comparable)"
    known = read_scores(tmp_path)
    assert known is not None and len(known.served) == 2


def test_counts_do_not_stand_in_the_way_of_a_prediction(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no counts of scores"):
        score_drift(tmp_path, 30)
    answer(Served(tmp_path), outputs(1, 3))  # a model that was not counted
    (tmp_path / "scores.json").write_text('{"format": 1, "outputs": []}')
    served = Served(tmp_path)
    answer(served, outputs(1, 3))
    served.write()
    with pytest.raises(RunError, match=r"scores\.json cannot be read .*; remove it"):
        read_scores(tmp_path)


def events() -> tuple[list[tuple[str, dict[str, Any]]], Any]:
    told: list[tuple[str, dict[str, Any]]] = []
    return told, lambda event, **facts: told.append((event, facts))


def test_a_retraining_is_announced_once_before_it_is_due(tmp_path: Path) -> None:
    told, notify = events()
    watch = ScoreWatch(tmp_path, notify)
    for day in (1.0, 5.0, 6.0, 6.4, 6.9):
        watch.look(day * DAY, 0.0, 7 * DAY)
    assert told == [("retraining due", {"note": "in 14 hours, as the schedule says"})]
    watch.look(6.9 * DAY, None, 7 * DAY)
    watch.look(6.9 * DAY, 0.0, None)
    watch.look(13.9 * DAY, 7 * DAY, 7 * DAY)
    assert [event for event, _ in told] == ["retraining due"] * 2


def test_scores_that_moved_are_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained(tmp_path)
    monkeypatch.setattr(scores.time, "time", lambda: DAY)
    told, notify = events()
    watch = ScoreWatch(tmp_path, notify)
    watch.look(DAY, None, None)
    assert told == []
    served = Served(tmp_path)
    answer(served, outputs(3, 600, mean=1.5))
    served.write()
    for later in (1.0, 60.0, 120.0):
        watch.look(DAY + later, None, None)
    assert [event for event, _ in told] == ["drift"] and "a retraining may be due" in told[0][1]["note"]


def test_columns_are_looked_at_when_the_table_is_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = SimpleNamespace(party=SimpleNamespace(table=tmp_path / "telco.csv", folder=tmp_path / "party"))
    looks: list[int] = []

    def column_drift(given: object) -> Drift:
        looks.append(1)
        moved = Shift.of("income", np.array([500, 500]), np.array([50, 950]))
        return Drift("churn", tmp_path, 1000, [moved])

    monkeypatch.setattr(drifting, "column_drift", column_drift)
    told, notify = events()
    watch = ColumnWatch(cast("Any", read), notify)
    read.party.table.write_text("id\n")
    watch.look()
    assert looks == [], "there is no finished run"
    (tmp_path / "party/churn").mkdir(parents=True)
    (tmp_path / "party/churn" / DRIFT).write_text("{}")
    watch.look()
    watch.look()
    assert len(looks) == 1 and [event for event, _ in told] == ["drift"]
    assert "income" not in json.dumps(told), "column names are not for logs"
    os.utime(read.party.table, (1, 1))
    watch.look()
    assert len(looks) == 2


def test_a_reference_says_whose_it_is() -> None:
    assert Reference("telco", 0, ()).to_json() == {"format": 1, "party": "telco", "rows": 0, "columns": []}
