"""The figures of `bench worth`: from questions whose truth is known, and from one small set."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from colonnade.bench.catalogue import find
from colonnade.bench.settings import Options
from colonnade.bench.table_sets import TableSet
from colonnade.bench.worth import NOISE, Asked, WorthSettings, one_seed, run_worth, summary
from colonnade.errors import ConfigError
from colonnade.evaluate.metrics import METRICS
from colonnade.joining.gain import Gain
from colonnade.joining.prospect import Prospect


def asked(name: str, candidate: str, told: float, true: float, width: float = 0.01) -> Asked:
    around = (told - width, max(told + width, 0.0))
    gain = Gain(METRICS["auc"], 0.7, 0.7 + told, told, around, 4000)
    return Asked(name, Prospect(candidate, gain, 300, 200), true)


def test_the_correction_of_a_set_is_fitted_on_the_others_only() -> None:
    found = summary(
        [
            asked("a", "x", 0.1, 0.2),
            asked("a", "y", 0.05, 0.1),
            asked("b", "x", 0.1, 0.3),
            asked("b", "y", 0.02, 0.06),
            asked("a", NOISE, 0.002, 0.0),
            asked("b", NOISE, 0.02, 0.0, width=0.001),
        ]
    )
    assert found["factor.a"] == pytest.approx(3.0) and found["factor.b"] == pytest.approx(2.0)
    assert found["mean_error"] == pytest.approx((0.1 + 0.05 + 0.1 + 0.02) / 4)
    assert found["raw_error"] == pytest.approx((0.1 + 0.05 + 0.2 + 0.04) / 4)
    assert (found["ratio_least"], found["ratio_largest"]) == (pytest.approx(2.0), pytest.approx(3.0))
    assert found["noise_covers_zero"] == 0.5 and found["noise_largest"] == 0.02
    assert (found["pairs"], found["bytes_down"], found["bytes_up"]) == (4.0, 300.0, 200.0)


def test_a_set_gives_every_ordered_pair_and_a_candidate_of_noise_for_each_holder() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(3000, 2))
    labels = (values.sum(axis=1) + 0.5 * rng.normal(size=3000) > 0).astype(np.int64)
    tables = {name: pd.DataFrame({"x": values[:, place]}) for place, name in enumerate(("left", "right"))}
    news = one_seed("made", TableSet("auc", tables, labels), 0, WorthSettings(rows=600))
    assert [(one.prospect.candidate, one.true > 0.1) for one in news] == [
        ("right", True), (NOISE, False), ("left", True), (NOISE, False),
    ]  # fmt: skip
    assert [one.prospect.gain.value > 0.05 for one in news] == [True, False, True, False]


def test_what_is_missing_is_said() -> None:
    with pytest.raises(ConfigError, match="--data-dir"):
        run_worth(find("worth"), Options(), print)
    assert set(find("worth").limits("cpu")) == {"correlation", "mean_error", "noise_covers_zero"}
