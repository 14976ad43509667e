"""Numbers to predict that are far from 0 and differ by little: what is told of them is not rounded to float32."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.metrics import r2_score

import colonnade as cn
from colonnade.cli.predictions import with_terms
from colonnade.errors import DataError, DoubtfulScore, PartiesLeftOut
from colonnade.evaluate.answers import Answers, Evaluated
from colonnade.evaluate.binned import binned
from colonnade.federation import Federation
from colonnade.tasks import TASKS

ROWS, NEW, FAR = 300, 40, 1e8  # neighbours in float32 are 8 apart there
Tables = dict[str, pd.DataFrame]


def tables(far: float = FAR) -> tuple[Tables, Tables, np.ndarray]:
    """Tables to train on, new ones without labels, and the truth about these; labels differ by about 1."""
    rng = np.random.default_rng(0)
    x, ids = rng.normal(size=(ROWS + NEW, 4)), np.arange(ROWS + NEW)
    y = far + x @ [0.8, -0.5, 0.6, 0.3] + 0.2 * rng.normal(size=ROWS + NEW)
    bank = pd.DataFrame({"id": ids, "a": x[:, 0], "b": x[:, 1], "y": y})
    shop = pd.DataFrame({"id": ids, "c": x[:, 2], "d": x[:, 3]})
    new = {"bank": bank[ROWS:].drop(columns="y"), "shop": shop[ROWS:]}
    return {"bank": bank[:ROWS], "shop": shop[:ROWS]}, new, y[ROWS:]


def trained(far: float = FAR) -> cn.Run:
    old, _, _ = tables(far)
    federation = Federation.from_tables(old, id="id", labels="y", task="regression")
    return cn.fit(federation, "one_message", model={"encoder": "ridge"}, seed=0)


def test_predictions_are_told_apart_also_by_a_stored_model(tmp_path: Path) -> None:
    _, new, truth = tables()
    run = trained()
    said = np.asarray(run.predict(new))
    assert r2_score(truth, said) > 0.9
    assert run.score > 0.9
    run.model.save(tmp_path / "model")
    np.testing.assert_array_equal(np.asarray(cn.Model.load(tmp_path / "model").predict(new)), said)


def test_a_party_that_lacks_some_rows_does_not_round_the_others() -> None:
    _, new, truth = tables()
    fewer = {"bank": new["bank"], "shop": new["shop"][: NEW // 2]}
    with pytest.warns(PartiesLeftOut):
        said = np.asarray(trained().predict(fewer, absent="leave-out"))
    assert r2_score(truth[: NEW // 2], said[: NEW // 2]) > 0.9
    assert len(np.unique(said)) == NEW


def test_what_the_parties_add_makes_the_prediction_in_python_and_in_a_file() -> None:
    _, new, _ = tables()
    model = trained().model
    terms = model.contributions(new)
    assert terms.gap < 1e-4
    _, lines = with_terms((["row"], [[row] for row in range(NEW)]), terms)
    np.testing.assert_allclose([sum(line[1:]) for line in lines], terms.total[:, 0], rtol=0, atol=1e-4)


def test_one_number_in_other_units_is_the_same_model() -> None:
    """Only a shift: what is left after rounding is far below what float32 would leave."""
    _, new, _ = tables()
    near, far = np.asarray(trained(0.0).predict(new)), np.asarray(trained().predict(new))
    np.testing.assert_allclose(far - FAR, near, atol=1e-3)


def test_bins_for_pictures_are_told_apart() -> None:
    truth = torch.linspace(-2, 2, 400, dtype=torch.float64)[:, None] + FAR
    found = binned(Evaluated(TASKS["regression"](1), Answers(truth, truth), truth, None))["numbers"][0]["bins"]
    assert len(set(found["predicted"])) == len(set(found["actual"])) == 20


def alone(y: np.ndarray, last: float) -> cn.Run:
    """A run on labels y whose validation and test rows all have the number `last`."""
    x = np.random.default_rng(1).normal(size=(len(y) + 40, 2))
    train, held = torch.arange(len(y)), torch.arange(len(y), len(y) + 40)
    split = cn.RowSplit(train, held[:20], held[20:])
    labels = np.append(y, np.full(40, last))
    federation = Federation.from_arrays({"a": x[:, :1], "b": x[:, 1:]}, labels, task="regression", split=split)
    return cn.fit(federation, "vimadmm_j", rounds=3, seed=0)


def test_r2_of_rows_that_are_all_alike_is_undefined_and_another_metric_chooses() -> None:
    with pytest.warns(DoubtfulScore, match="test rows are all of one value, so R2 is undefined there"):
        run = alone(np.random.default_rng(0).normal(size=80), 0.1)
    assert run.score is None
    assert run.result["validation_metric"] == "rmse"
    assert any("validation rows are all of one value, so R2 is undefined" in text for text in run.result["warnings"])


def test_training_rows_that_all_have_one_number_are_refused() -> None:
    with pytest.raises(DataError, match=r"all training rows have the label 0\.1, so there is nothing to learn"):
        alone(np.full(80, 0.1), 0.3)


@pytest.mark.parametrize("size", [1e-120, 1e120])
def test_numbers_whose_squares_cannot_be_told_are_refused(size: float) -> None:
    with pytest.raises(DataError, match=r"need to differ by 1e-100 to 1e\+100; give them in another unit"):
        alone(np.random.default_rng(0).normal(size=80) * size, size)
