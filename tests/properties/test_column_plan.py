"""Column plans: of training rows only, whatever the order of rows, and the same after a file."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from colonnade.data.column_settings import PartyColumns
from colonnade.data.columns import ColumnPlan
from colonnade.data.stored import from_bytes, to_bytes
from colonnade.errors import DataError

ROWS, TRAIN = 24, 16


def made(seed: int) -> pd.DataFrame:
    """Every kind of column, each with its own share of empty values, from none to all."""
    rng = np.random.default_rng(seed)

    def some(values: Any) -> Any:
        return pd.Series(values).mask(rng.random(ROWS) < rng.choice([0, 0.1, 0.5, 1], p=[0.4, 0.3, 0.2, 0.1]))

    days = rng.integers(-40_000, 40_000, ROWS).astype("datetime64[D]").astype("datetime64[s]")
    return pd.DataFrame(
        {
            "number": some(rng.standard_t(1.5, ROWS) * 10.0 ** rng.integers(-3, 6)),
            "count": some(rng.integers(0, rng.integers(1, 5), ROWS).astype(float)),
            "city": some(rng.choice(["Ulm", "Bonn", "Jena", "Rom", ""], ROWS)).astype("str"),
            "member": some(rng.random(ROWS) > 0.5).astype("boolean"),
            "since": some(days),
        }
    )


frames = st.integers(0, 2**32 - 1).map(made)
plans = st.builds(
    PartyColumns,  # more levels than `most` are refused with "auto" in tables as short as these
    missing=st.sampled_from(["indicate", "fill"]),
    scaling=st.sampled_from(["standard", "quantile", "plain"]),
    clip=st.sampled_from(["extremes", "never", (0.1, 0.9)]),
    levels=st.sampled_from(["hash", "one_hot"]),
    rare=st.integers(1, 4),
    most=st.integers(1, 5),
    buckets=st.just(4),
) | st.builds(PartyColumns, missing=st.sampled_from(["indicate", "fill"]))


def fitted(frame: pd.DataFrame, said: PartyColumns, train: Any = range(TRAIN)) -> ColumnPlan:
    return ColumnPlan.fit("bank", frame, torch.tensor(list(train)), said)


@given(frame=frames, others=frames, said=plans)
@settings(max_examples=15, deadline=None)
def test_rows_that_do_not_train_change_nothing(frame: pd.DataFrame, others: pd.DataFrame, said: PartyColumns) -> None:
    mixed = pd.concat([frame.iloc[:TRAIN], others.iloc[TRAIN:]], ignore_index=True)
    one, two = fitted(frame, said), fitted(mixed, said)
    assert one.agrees(two)
    assert torch.equal(one.encode(frame)[:TRAIN], two.encode(mixed)[:TRAIN])


@given(frame=frames, said=plans, seed=st.integers(0, 999))
@settings(max_examples=15, deadline=None)
def test_the_order_of_rows_does_not_matter(frame: pd.DataFrame, said: PartyColumns, seed: int) -> None:
    order = np.random.default_rng(seed).permutation(ROWS).tolist()
    shuffled = frame.iloc[order].reset_index(drop=True)
    one = fitted(frame, said)
    two = fitted(shuffled, said, [place for place, row in enumerate(order) if row < TRAIN])
    assert one.width == two.width
    torch.testing.assert_close(one.encode(frame)[order], two.encode(shuffled), rtol=1e-5, atol=1e-5)


@given(frame=frames, new=frames, said=plans)
@settings(max_examples=15, deadline=None)
def test_new_rows_are_the_same_after_a_file(frame: pd.DataFrame, new: pd.DataFrame, said: PartyColumns) -> None:
    plan = fitted(frame, said)
    back = from_bytes(to_bytes({"bank": plan}))["bank"]
    assert back.agrees(plan)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            expected = plan.transform(new)
        except DataError as error:
            with pytest.raises(DataError) as other:
                back.transform(new)
            assert str(error) == str(other.value)
            return
        assert torch.equal(back.transform(new[new.columns[::-1]]), expected)
    assert expected.shape == (ROWS, plan.width)
    assert torch.isfinite(expected).all()


@given(frame=frames, said=plans, rows=st.lists(st.integers(-1, ROWS - 1), min_size=1, max_size=40))
@settings(max_examples=15, deadline=None)
def test_rows_are_taken_by_number_and_minus_one_is_nothing(
    frame: pd.DataFrame, said: PartyColumns, rows: list[int]
) -> None:
    plan = fitted(frame, said)
    whole = torch.cat([plan.encode(frame), torch.zeros(1, plan.width)])
    assert torch.equal(plan.encode(frame, np.array(rows)), whole[rows])
