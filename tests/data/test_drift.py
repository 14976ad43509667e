"""How training rows were distributed, and how far a table of today has moved: kinds of columns, and what is odd."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from colonnade.data import drift
from colonnade.data.columns import ColumnPlan
from colonnade.data.drift import Counted, Reference
from colonnade.errors import RunError
from colonnade.psi import LARGE_SHIFT, MISSING, STABLE, TOO_FEW, Shift
from colonnade.randomness import stream

ROWS = 1000


def table(seed: int = 0, rows: int = ROWS) -> pd.DataFrame:
    draw = stream(seed, "test")
    return pd.DataFrame(
        {
            "age": draw.normal(50, 10, rows).round(1),
            "flag": (draw.random(rows) < 0.97).astype(float),
            "constant": np.full(rows, 5.0),
            "since": pd.Timestamp("2020-01-01") + pd.to_timedelta(draw.integers(0, 900, rows), unit="D"),
            "branch": draw.choice(["north", "south", "west"], rows),
            "code": [f"k{n}" for n in draw.integers(0, 400, rows)],
            "gap": np.where(draw.random(rows) < 0.2, np.nan, draw.random(rows)),
        }
    )


def reference(frame: pd.DataFrame) -> tuple[ColumnPlan, Reference]:
    train = torch.arange(len(frame))
    plan = ColumnPlan.fit("telco", frame, train)
    made = Reference.of(plan, frame, train.numpy())
    return plan, Reference.from_json(json.loads(json.dumps(made.to_json())))


def moved(now: pd.DataFrame, then: pd.DataFrame | None = None) -> dict[str, Shift]:
    plan, known = reference(table() if then is None else then)
    return {shift.name: shift for shift in known.shifts(plan, now)}


def test_the_same_table_has_not_moved() -> None:
    found = moved(table())
    assert set(found) == set(table().columns)
    assert all(shift.psi == pytest.approx(0, abs=1e-12) for shift in found.values())


def test_another_sample_is_stable() -> None:
    found = moved(table(7))
    assert {shift.verdict for shift in found.values()} == {STABLE}, found
    assert "fewer than 5 training rows" in found["code"].note  # of 400 codes some are new, which is no shift


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("age", lambda t: t["age"] + 15),
        ("flag", lambda t: np.where(np.arange(len(t)) % 3, 1.0, 0.0)),
        ("constant", lambda t: t["constant"] + 1),
        ("since", lambda t: t["since"] + pd.Timedelta(days=700)),
        ("branch", lambda t: np.where(np.arange(len(t)) % 2, "east", t["branch"])),
        ("gap", lambda t: np.nan),
        ("code", lambda t: "n" + t["code"]),  # other codes for the same
        ("age", lambda t: np.where(np.arange(len(t)) % 2, np.inf, t["age"])),
    ],
)
def test_one_column_that_moved_is_found(column: str, values: object) -> None:
    now = table(7)
    now[column] = values(now)  # type: ignore[operator]
    found = moved(now)
    assert found[column].verdict == LARGE_SHIFT and sum(shift.alarming for shift in found.values()) == 1
    assert next(iter(found)) == column, "the furthest first"


def test_levels_never_seen_are_told() -> None:
    now = table()
    now.loc[:299, "branch"] = "east"
    found = moved(now)["branch"]
    assert found.note.startswith("30.0% of the rows have a level that fewer than 5") and found.alarming


def test_what_cannot_be_compared_is_named() -> None:
    now = table().drop(columns="branch").assign(age="old", since=1.5)
    found = moved(now)
    assert [found[name].verdict for name in ("branch", "age", "since")] == [MISSING] * 3
    assert "not in the table any more" in found["branch"].note and "column of numbers" in found["age"].note


def test_too_few_rows() -> None:
    assert {shift.verdict for shift in moved(table(7, 40)).values()} == {TOO_FEW}
    assert {shift.verdict for shift in moved(table(7, 0)).values()} == {TOO_FEW}


def test_large_tables_are_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drift, "SAMPLE", 300)
    _, known = reference(table())
    assert known.rows == 250 and all(sum(one.counts) == 250 for one in known.columns)


@given(st.lists(st.one_of(st.floats(-1e6, 1e6), st.just(float("nan"))), min_size=1, max_size=80))
def test_numbers_are_counted_as_by_hand(values: list[float]) -> None:
    array = np.array(values)
    found = Counted.numbers("age", "number", array)
    edges = [-np.inf, *found.cuts, np.inf]
    known = [value for value in values if not np.isnan(value)]
    inside = [sum(low < value <= high for value in known) for low, high in pairwise(edges)]
    assert list(found.counts) == [*inside, len(values) - len(known)]
    assert found.of_numbers(array) == found.counts


def test_a_damaged_file_is_refused() -> None:
    with pytest.raises(RunError, match="train again"):
        Reference.from_json({"format": 9})
