"""Is it worth joining? The verdict says no more than the rows prove; tables, pictures and pages have it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from colonnade.errors import RunError
from colonnade.record import Difference, Worth
from colonnade.report.content import content
from colonnade.report.html import render
from colonnade.report.machine import as_json
from colonnade.report.markdown import as_markdown
from colonnade.report.words import verdict as verdict_of_run
from colonnade.report.worth import FILE, read_worth, verdict, worth_page, worth_table
from tests.report.conftest import train

Ends = tuple[float, float] | None


def difference(value: float, around: Ends, paired: bool = True) -> Difference:
    return {"value": value, "interval": around and list(around), "paired": paired}


def found(metric: str, gain: Difference | None, price: Difference | None, runs: tuple[str, ...] = ("j",)) -> Worth:
    lines = [("joint", "all together", 0.80), ("alone", "bank alone", 0.70), ("alone", "telco alone", 0.74)]
    lines += [("central", "all columns in one place", 0.81)] if price else []
    made: Any = [
        {"role": role, "who": who, "runs": list(runs) if role == "joint" else [who], "method": "vimadmm", "columns": 4,
         "score": score, "interval": [score - 0.02, score + 0.02], "validation": score}
        for role, who, score in lines
    ]  # fmt: skip
    best = "telco alone" if gain else None
    return {
        "format": 1, "metric": metric, "rows": 300, "trials": made, "best": best, "gain": gain, "price": price,
        "notes": [],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("metric", "gain", "price", "said"),
    [
        (
            "auc", difference(0.06, (0.04, 0.08)), difference(0.01, (-0.01, 0.03)),
            "Joining is worth it: test AUC 0.800 against 0.740 of the best party alone, telco (difference +0.060, 95 % "
            "interval +0.040 to +0.080); one central model would have 0.810. Keeping the columns apart costs nothing "
            "that 300 test rows could show (difference +0.010, 95 % interval -0.010 to +0.030).",
        ),
        (
            "accuracy", difference(0.06, (-0.01, 0.08)), None,
            "Joining shows no clear gain: test accuracy 80.0 % against 74.0 % of the best party alone, telco "
            "(difference +6.0 points, 95 % interval -1.0 to +8.0).",
        ),
        (
            "poisson_deviance", difference(0.06, (0.04, 0.08)), difference(0.01, (0.001, 0.03)),
            "Joining is not worth it: test Poisson deviance 0.800 against 0.740 of the best party alone "
            "(chosen by validation rows), telco (difference +0.060, 95 % interval +0.040 to +0.080); one central model "
            "would have 0.810. The joint model is even better than one model over all columns in one place (difference "
            "+0.010, 95 % interval +0.001 to +0.030).",
        ),
        (
            "poisson_deviance", difference(-0.06, (-0.08, -0.04)), None,
            "Joining is worth it: test Poisson deviance 0.800 against 0.740 of the best party alone (chosen by "
            "validation rows), telco (difference -0.060, 95 % interval -0.080 to -0.040).",
        ),
        (
            "auc", difference(0.06, None), None,
            "Joining shows no clear gain: test AUC 0.800 against 0.740 of the best party alone, telco (difference "
            "+0.060).",
        ),
    ],
    ids=["worth", "no-clear-gain", "lower-is-better-worse", "lower-is-better", "without-interval"],
)  # fmt: skip
def test_the_verdict_says_no_more_than_the_rows_prove(
    metric: str, gain: Difference, price: Difference | None, said: str
) -> None:
    assert " ".join(verdict(found(metric, gain, price))) == said


def test_a_best_party_that_others_beat_on_test_rows_is_said_to_be_chosen_by_validation_rows() -> None:
    beaten = found("auc", difference(0.06, (0.04, 0.08)), None)
    beaten["best"] = "bank alone"
    assert "0.700 of the best party alone (chosen by validation rows), bank" in verdict(beaten)[0]


def test_intervals_that_are_not_row_by_row_are_named() -> None:
    told = verdict(found("auc", difference(0.06, (0.04, 0.08), paired=False), None))
    assert "wider than they need to be" in told[-1]


def test_without_parties_alone_and_without_a_score() -> None:
    only_central = found("auc", None, difference(0.05, (0.01, 0.09)))
    only_central["trials"] = [one for one in only_central["trials"] if one["role"] != "alone"]
    assert verdict(only_central) == [
        "All parties together have a test AUC 0.800; one central model would have 0.810.",
        "Keeping the columns apart has its price against all columns in one place (difference +0.050, 95 % interval "
        "+0.010 to +0.090).",
    ]
    lost = found("auc", None, None)
    lost["trials"][0]["score"] = None
    assert verdict(lost) == ["Whether joining is worth it cannot be said: the joint model has no test score."]
    assert len(worth_page(lost).pictures[0].description.split(";")) == 3  # both of those that have a score, and words


def test_table_and_picture_have_everybody_in_order() -> None:
    one = found("auc", difference(0.06, (0.04, 0.08)), difference(0.01, (-0.01, 0.03)))
    who = ["bank alone", "telco alone", "all together", "all columns in one place"]
    assert [row[0] for row in worth_table(one).rows] == who
    assert worth_table(one).rows[2][2:4] == ("0.800", "0.780 to 0.820")
    (picture,) = worth_page(one).pictures
    assert all(name in picture.description for name in who)
    assert all(name.split()[0] in picture.drawing.svg() for name in who)


def test_the_verdict_comes_first(trained: dict[tuple[str, int], dict[str, Any]]) -> None:
    joint, other = trained["vimadmm", 0], trained["centralized", 0]
    worth = found("accuracy", difference(0.06, (0.04, 0.08)), None, runs=(joint["id"],))
    told = content([joint, other], worth=worth)
    assert told.facts["title"] == "Is it worth joining? vimadmm on small"
    assert json.loads(as_json(told, "pictures"))["comparison"]["worth"] == worth
    written = as_markdown(told, "pictures")
    assert written.index("Joining is worth it: test accuracy") < written.index("## Alone, together, in one place")
    names = {picture.drawing.name for picture in told.files}
    assert {"worth", "method-1-calibration"} <= names and "method-2-calibration" not in names  # of all together only
    assert "## Comparison" not in written
    page = render([joint])
    assert page.index("constant guess: test accuracy") < page.index("vimadmm trained one model")
    several = render([joint, other])
    assert several.index("Best test accuracy") < several.index("<p>2 methods on")


def test_one_run_has_a_verdict_of_its_own() -> None:
    record = train("vimadmm_j", task="binary")
    result = record["result"]
    result |= {"test_score": 0.9, "test_interval": [0.8, 0.95], "baseline_score": 0.5, "confusion": [[7, 1], [2, 8]]}
    assert verdict_of_run(record).startswith(
        "Better than a constant guess: test AUC 0.9000 (95 % interval 0.800 to 0.950"
    )
    result["test_interval"] = [0.4, 0.95]
    assert verdict_of_run(record).startswith("Not clearly better than a constant guess: test AUC 0.9000")
    result["test_score"] = result["test_accuracy"] = None
    assert verdict_of_run(record) == "It was not measured on test rows."


def test_a_file_about_other_runs_is_not_used_and_a_damaged_one_is_refused(tmp_path: Path) -> None:
    one = found("auc", difference(0.06, (0.04, 0.08)), None)
    (tmp_path / FILE).write_text(json.dumps(one))
    mine: Any = [{"id": run} for run in ("j", "bank alone", "telco alone")]
    assert read_worth(tmp_path, mine) == one
    assert read_worth(tmp_path, mine[:2]) is None
    assert read_worth(tmp_path / "nowhere", mine) is None
    (tmp_path / FILE).write_text("{")
    with pytest.raises(RunError, match=r"worth\.json is damaged"):
        read_worth(tmp_path, mine)
