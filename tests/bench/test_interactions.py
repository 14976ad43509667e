"""`bench interactions`: the tables say what they should, and a small run has every figure."""

from __future__ import annotations

import numpy as np
import pytest

from colonnade.bench.catalogue import find
from colonnade.bench.interactions import MADE, InteractionsSettings, make_set, one_seed


@pytest.mark.parametrize("name", MADE)
def test_the_second_columns_matter_only_where_they_should(name: str) -> None:
    made = make_set(name, 20000, 0)
    a, b = (table["c1"].to_numpy() for table in made.tables.values())
    same, up = np.sign(a) == np.sign(b), a > 0
    by_sign = made.labels[same].mean() - made.labels[~same].mean()
    alone = made.labels[up].mean() - made.labels[~up].mean()
    assert (by_sign > 0.1) == (name in ("xor", "product"))
    assert (abs(alone) > 0.1) == (name in ("product", "additive"))


def test_a_small_run_has_every_figure_and_sees_the_interaction() -> None:
    found = one_seed("xor", InteractionsSettings(rows=3000, epochs=2, rounds=15), 0)
    named = {key.rpartition(".")[0] for key in find("interactions").limits("cpu")}
    assert named <= set(found)
    assert found["auc.lifted"] > found["auc.one_message"] + 0.1
    assert found["told"] == 1 and abs(found["products"]) < 0.05
