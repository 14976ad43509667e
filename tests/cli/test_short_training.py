"""Rounds that do not visit every training row are warned about, with the number that would.

That a command says it once, in one line, is checked where runs are trained in several processes: test_compare_and_demo.
"""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from colonnade import fit
from colonnade.errors import ShortTraining
from colonnade.methods import make_method
from colonnade.schedule import Schedule, ScheduleSettings
from tests.federations import small

ROWS = 1_000_000


def shortfall(rounds: int, **settings: Any) -> str:
    schedule = Schedule(ScheduleSettings(**settings), torch.arange(ROWS), ("a", "b", "c"), seed=0)
    return schedule.shortfall(rounds)


def test_the_sentence_has_the_numbers_and_the_remedy() -> None:
    assert shortfall(100) == (
        "100 rounds of 1,024 rows visit 102,400 of the 1,000,000 training rows, and the others never; set rounds = 977 "
        "for one pass over all of them, or a larger schedule.batch"
    )


@pytest.mark.parametrize("order", ["together", "sequential", "asynchronous"])
def test_the_number_of_rounds_it_names_is_enough(order: str) -> None:
    told = re.search(r"rounds = ([\d,]+)", shortfall(1, order=order))
    assert told is not None
    enough = int(told[1].replace(",", ""))
    assert shortfall(enough, order=order) == ""
    assert shortfall(enough - 1, order=order) != ""
    assert enough == {"together": 1, "sequential": 3, "asynchronous": 3}[order] * 977


@pytest.mark.parametrize("order", ["together", "sequential"])
def test_every_row_is_visited_in_that_many_rounds_and_not_before(order: str) -> None:
    settings = ScheduleSettings(batch=40, order=order)  # type: ignore[arg-type]
    schedule = Schedule(settings, torch.arange(130), ("a", "b", "c"), seed=0)
    enough = next(rounds for rounds in range(1, 100) if not schedule.shortfall(rounds))
    for rounds in (enough, enough - 1):
        seen = {name: set[int]() for name in schedule.parties}
        for number in range(1, rounds + 1):
            plan = schedule.plan(number)
            for name in plan.senders:
                seen[name] |= set(plan.rows.tolist())
        assert all(len(rows) == 130 for rows in seen.values()) == (rounds == enough)


def test_fit_warns_where_it_is_called() -> None:
    with pytest.warns(ShortTraining, match="1 rounds of 10 rows visit 10 of the") as found:
        fit(small(), make_method("local_only"), rounds=1, schedule={"batch": 10})
    assert {Path(warning.filename).name for warning in found} == {Path(__file__).name}


def test_enough_rounds_are_not_warned_about() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", ShortTraining)
        fit(small(), make_method("local_only"), rounds=1, schedule={"batch": 10_000})
