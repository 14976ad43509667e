"""What `colonnade explain` wrote beside a run stands in the report: sentences, tables, bars, pictures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from colonnade.errors import RunError
from colonnade.explain.explanation import Explanation, agreements
from colonnade.report.explained import explained
from colonnade.report.html import render
from colonnade.report.record import with_explanation
from tests.report.test_page import Reader

NORM, NOISE = [3.0, 1.0, 4.0, 2.0], [0.2, 0.0, 0.4, 0.1]


def explanation(record: dict[str, Any], **changes: Any) -> Explanation:
    """Made up, of four parties: the third is the most important, the second the least."""
    names = [party["name"] for party in record["about"]["parties"]]
    facts: dict[str, Any] = {
        "norm": NORM, "norm_of": "head at the coordinator", "noise": NOISE, "noise_spread": [0.01] * 4,
        "noise_draws": 3, "mask": [0.1, -0.05, 0.3, 0.1], "shapley": [0.2, 0.1, 0.3, 0.15],
        "class_drop": [[0.1, 0.2, 0.3]] * 4, "class_names": ["red", "green", "blue"],
        "agreement": agreements({"norm": NORM, "noise": NOISE}), "releases": 20,
        "pictures": {name: [[[[0.0, 1.0, 0.5, 0.2]]]] for name in names},
        "tsne": [{"party": names[2], "which": "most important", "points": [[0.0, 1.0], [1.0, 0.0]], "labels": [0, 1]}],
        "summary": {
            "rows": "validation", "all": 0.9, "validation": 0.9, "ranked": names, "advice": "with these 2 of 4: 89.0 %",
            "sets": [{"share": 0.5, "which": "most", "parties": names[:2], "score": 0.89, "validation": 0.89}],
        },
        "denoise": {
            "party": names[2], "std": 1.0, "rows": "validation", "lengths": [1, 4], "scores": {"vimadmm": [0.5, 0.8]},
            "norm_before": NORM, "norm_after": [3.0, 1.0, 0.5, 2.0],
            "fallen": [{"party": names[2], "place_before": 1, "place_after": 4, "ratio": 0.1}],
        },
    }  # fmt: skip
    about = {"run": record["id"], "method": "vimadmm", "federation": "small", "parties": names}
    return Explanation(**about, rows="validation", count=18, score_name="accuracy", score=0.9, **{**facts, **changes})


def explained_record(record: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {**record, "explanation": json.loads(json.dumps(explanation(record, **changes).to_json()))}


def test_the_page_says_who_contributed_what(record: dict[str, Any]) -> None:
    names = [party["name"] for party in record["about"]["parties"]]
    reader = Reader(render([explained_record(record)]))
    for part in (
        f"By weights, the most important of 4 parties: {names[2]}; the least: {names[1]}.",
        "Measured on 18 validation rows; the whole model has an accuracy of 90.00 % there.",
        "Advice: with these 2 of 4: 89.0 %.",
        f"Trained with noise on {names[2]}, these lost weight: {names[2]} (place 1, now 4).",
        "20 messages left the parties for this; the ledger lists them (EXPLAIN).",
        "40.00 ± 1.00",  # lost to noise, percentage points
        "weights and noisy columns",
        "most important 50 % (2)",
        "What is lost of each class without a party",
        "green",
    ):
        assert part in reader.text, part
    assert "Contributions" in reader.text
    labels = [str(a["aria-label"]) for a in reader.all("div") if a.get("role") == "img"]
    assert any(label.startswith("Shapley value") and f"{names[2]} 30" in label for label in labels)


def test_a_run_that_nobody_explained_has_no_such_section(record: dict[str, Any]) -> None:
    assert "contributed" not in Reader(render([record])).text


def test_measures_that_are_missing_are_left_out_with_the_reason(record: dict[str, Any]) -> None:
    few = explained_record(
        record, norm=None, noise=None, noise_spread=None, class_drop=None, pictures=None, tsne=None, summary=None,
        denoise=None, agreement=[], unavailable={"norm": "no heads"},
    )  # fmt: skip
    told = explained(few)
    assert told is not None
    assert [picture.drawing.name for picture in told.pictures] == ["explain-mask", "explain-shapley"]
    assert "Weights: not available, no heads." in told.sentences
    assert [table.columns for table in told.tables] == [("party", "rank", "lost without it", "Shapley value")]
    assert told.sentences[0].startswith("By Shapley values")


def test_the_measure_that_ranks_is_named(record: dict[str, Any]) -> None:
    told = explained(explained_record(record, rank_by="mask"))
    assert told is not None
    assert told.sentences[0].startswith("By silence")


def test_several_explained_runs_have_pictures_of_their_own(trained: dict[tuple[str, int], dict[str, Any]]) -> None:
    runs = [explained_record(trained[name, 0]) for name in ("vimadmm", "vimadmm_j")]
    page = render(runs)
    ids = [str(attributes["id"]) for _, attributes in Reader(page).tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert page.count("What each party contributed</h4>") == 2


def test_the_file_is_read_if_it_is_of_this_run(record: dict[str, Any], tmp_path: Path) -> None:
    assert with_explanation(record, tmp_path) == record
    found = explanation(record)
    found.save(tmp_path)
    read = with_explanation(record, tmp_path)["explanation"]
    assert (read["norm"], read["ranked"][0]) == (NORM, found.parties[2])
    assert "explanation" not in with_explanation({**record, "id": "another"}, tmp_path)


@pytest.mark.parametrize("text", ["{", "[]", '{"format": 99}', '{"format": 1, "ranked": ["a"], "parties": ["b"]}'])
def test_a_damaged_file_is_refused(text: str, record: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "explain.json").write_text(text)
    with pytest.raises(RunError, match=r"explain\.json is damaged .* run `colonnade explain"):
        with_explanation(record, tmp_path)
