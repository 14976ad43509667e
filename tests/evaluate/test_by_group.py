"""Every metric by the groups of a column that the label holder names."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import accuracy_score, roc_auc_score

from colonnade import Federation, Model, fit
from colonnade.errors import DataError, DoubtfulData, RowsDisagree


def tables(rows: int = 400) -> dict[str, pd.DataFrame]:
    rng = np.random.default_rng(0)
    income, minutes = rng.normal(size=(2, rows))
    city = rng.choice(["Bonn", "Ulm", "Jena"], rows, p=[0.5, 0.46, 0.04])
    churn = np.where(income - minutes + rng.normal(size=rows) > 0, "yes", "no")
    bank = pd.DataFrame({"customer": np.arange(rows), "income": income, "city": city, "churn": churn})
    return {"bank": bank, "telco": pd.DataFrame({"customer": np.arange(rows), "minutes": minutes})}


def test_a_run_and_a_saved_model_measure_every_metric_by_group(tmp_path: Path) -> None:
    given = tables()
    asked = {"by": "city", "split": {"test": 0.5}, "columns": {"rare": 1}}
    federation = Federation.from_tables(given, labels="churn", id="customer", **asked)  # type: ignore[arg-type]
    assert federation.parties[0].columns.shape[1] == 1 + 3  # the city stays a column of the model
    run = fit(federation, "vimadmm", rounds=3, out=tmp_path / "run")
    found = run.result["by_group"]
    test = federation.split.test.numpy()
    city = given["bank"]["city"].to_numpy()[test]
    truth = given["bank"]["churn"].to_numpy()[test] == "yes"
    sure = run.predict_proba(federation.select(federation.split.test))[:, 1]
    assert found["column"] == "city"
    assert {name: group["rows"] for name, group in found["groups"].items()} == {
        name: int((city == name).sum()) for name in ("Bonn", "Jena", "Ulm")
    }
    for name, group in found["groups"].items():
        mine = city == name
        metrics = group["metrics"]
        assert set(metrics) == set(run.metrics)
        assert metrics["accuracy"]["value"] == pytest.approx(accuracy_score(truth[mine], sure[mine] > 0.5))
        low, high = metrics["accuracy"]["interval"] or (0, 0)
        assert low <= metrics["accuracy"]["value"] <= high
        if not group["small"]:
            assert metrics["auc"]["value"] == pytest.approx(roc_auc_score(truth[mine], sure[mine]))
    assert [name for name, group in found["groups"].items() if group["small"]] == ["Jena"]
    page = run.report(tmp_path / "report").read_text(encoding="utf-8")
    assert "Test rows by city" in page and "Jena *" in page
    part = {party: table.iloc[test] for party, table in given.items()}
    again = Model.load(tmp_path / "run").score_by_group(part, "churn", "city", ["auc"])
    assert again["groups"]["Bonn"]["metrics"]["auc"]["value"] == pytest.approx(
        found["groups"]["Bonn"]["metrics"]["auc"]["value"]
    )
    as_array = run.model.score_by_group(part, "churn", part["bank"]["city"].to_numpy(), ["auc"])
    assert as_array["groups"] == again["groups"]
    with pytest.raises(RowsDisagree, match="give one per row"):
        run.model.score_by_group(part, "churn", ["Bonn"])


def test_a_column_with_a_group_for_nearly_every_row_is_refused() -> None:
    given = tables()
    given["bank"]["street"] = [f"street {row}" for row in range(400)]
    says = "by = 'street': the column has 400 different values"
    with pytest.warns(DoubtfulData, match="'street' is left out"), pytest.raises(DataError, match=says):
        Federation.from_tables(given, labels="churn", id="customer", by="street")


def test_a_column_of_another_party_is_refused() -> None:
    with pytest.raises(DataError, match="has no column 'minutes' of by"):
        Federation.from_tables(tables(), labels="churn", id="customer", by="minutes")
