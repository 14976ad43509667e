"""A column plan keeps the mean training row and where each column of the table stands in it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from colonnade.data.column_settings import columns_of
from colonnade.data.columns import ColumnPlan
from colonnade.data.stored import from_bytes, to_bytes
from tests.explain.shoppers import shoppers


def frame() -> pd.DataFrame:
    """Every kind of column, some of them constant or empty."""
    tables, rng = shoppers(), np.random.default_rng(3)
    found = tables["bank"].drop(columns="customer").assign(
        city=tables["telco"]["city"], shop=rng.choice(["a", "b", None], 160), tail=rng.lognormal(0, 3, 160),
        same=1.0, empty=np.nan, word="x", member=rng.random(160) > 0.5,
    )  # fmt: skip
    found.loc[3, "since"] = pd.NaT
    return found


@pytest.mark.parametrize(
    "settings",
    [{}, {"scaling": "quantile"}, {"scaling": "plain", "clip": "never"}, {"missing": "fill"}, {"levels": "hash"},
     {"levels": "ordinal"},
     {"rare": 60}, {"clip": (0.1, 0.9)}],
    ids=str,
)  # fmt: skip
def test_it_is_the_mean_of_the_encoded_training_rows(settings: dict[str, Any]) -> None:
    train = torch.arange(0, 160, 2)
    plan = ColumnPlan.fit("bank", frame(), train, columns_of(settings, ["bank"])["bank"])
    slow = plan.encode(frame())[train].double().mean(dim=0)
    assert plan.mean is not None
    torch.testing.assert_close(plan.mean, slow, rtol=1e-6, atol=1e-6)
    again = from_bytes(to_bytes({"bank": plan}))["bank"]
    assert again.mean is not None and torch.equal(again.mean, plan.mean)


def test_places_are_where_a_column_changes_the_encoding() -> None:
    plan = ColumnPlan.fit("bank", frame(), torch.arange(160))
    before, places = plan.encode(frame()), plan.places
    assert sorted(at for mine in places.values() for at in mine) == list(range(plan.width))
    for column, mine in places.items():
        other = frame().assign(**{column: frame()[column].to_numpy()[::-1]})
        changed = (plan.encode(other) != before).any(dim=0).nonzero().flatten().tolist()
        assert set(changed) <= set(mine), column
        assert changed or column in ("same", "empty", "word")


def test_a_plan_of_an_earlier_version_has_none() -> None:
    assert ColumnPlan("bank", ()).mean is not None
    plan = ColumnPlan.fit("bank", frame(), torch.arange(160))
    facts = [{k: v for k, v in vars(one).items() if k != "mean"} for one in plan.features]
    old = ColumnPlan("bank", tuple(type(one)(**f) for one, f in zip(plan.features, facts, strict=True)))
    assert old.mean is None
