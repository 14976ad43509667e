"""What `colonnade explain` wrote beside a run stands in the report: sentences, tables, bars, pictures."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from colonnade.errors import RunError
from colonnade.explain.explanation import Explanation, agreements
from colonnade.report.explain_figures import scatter
from colonnade.report.explained import explained, side_by_side
from colonnade.report.html import render, write_report
from colonnade.report.record import EXPLAINED, grouped, with_explanation
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
        "tsne": [
            {
                "party": names[2], "which": "most important", "points": [[0.0, 1.0], [1.0, 0.0]], "labels": [0, 1],
                "names": ["red", "green", "blue"],
            }
        ],
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
        f"By Shapley values, of 4 parties the highest contribution: {names[2]}; the lowest: {names[1]}.",
        "Measured on 18 validation rows; the whole model has an accuracy of 90.00 % there.",
        "Advice: with these 2 of 4: 89.0 %.",
        f"Trained with noise on {names[2]}, these lost weight: {names[2]} (place 1, now 4).",
        "20 messages left the parties for this; the ledger lists them (EXPLAIN).",
        "40.00 ± 1.00",  # lost to noise, percentage points
        "sizes of weights and noisy columns",
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
    assert "Sizes of weights: not available, no heads." in told.sentences
    assert [table.columns for table in told.tables] == [("party", "rank", "lost without it", "Shapley value")]
    assert told.sentences[0].startswith("By Shapley values")


def test_the_measure_that_ranks_is_named(record: dict[str, Any]) -> None:
    told = explained(explained_record(record, rank_by="mask"))
    assert told is not None
    assert told.sentences[0].startswith("By silence")


def test_the_largest_weights_are_no_headline(record: dict[str, Any]) -> None:
    """Also of a file that an earlier version ranked by norms; only those who ask for it get that order."""
    names = [p["name"] for p in record["about"]["parties"]]
    odd = {"norm": [9.0, 1.0, 2.0, 3.0], "shapley": [0.0, 0.3, 0.2, 0.1]}
    told = explained(
        {**record, "explanation": {**explanation(record).to_json(), **odd, "ranked": names, "ranked_by": "norm"}}
    )
    assert told is not None
    assert told.sentences[0].startswith(f"By Shapley values, of 4 parties the highest contribution: {names[1]}; the")
    assert [row[1] for row in told.tables[0].rows] == ["4", "1", "2", "3"]
    asked = explained(explained_record(record, rank_by="norm"))
    assert asked is not None
    assert (
        asked.sentences[0] == f"Largest weights: {names[2]}; smallest: {names[1]}. This does not say who contributes."
    )
    only = explained(explained_record(record, noise=None, noise_spread=None, mask=None, shapley=None, agreement=[]))
    assert only is not None and only.sentences[0].startswith("Nothing measured here says what each party contributes")
    assert {row[1] for row in only.tables[0].rows} == {"-"}


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


def test_the_report_knows_every_key_of_the_file(record: dict[str, Any]) -> None:
    assert set(explanation(record).to_json()) == EXPLAINED


OLD = [
    '{"format": 1, "parties": [], "ranked": []}',  # an earlier version, and what such a file may hold
    '{"format": 99}',
    '{"format": 2, "run": "x"}',
    '"format"',
    "[]",
]


@pytest.mark.parametrize("text", OLD)
def test_a_file_of_another_version_is_told_on_the_page(text: str, record: dict[str, Any], tmp_path: Path) -> None:
    told = _unread(text, record, tmp_path)
    assert told == (
        f"{tmp_path / 'explain.json'} was written by another version of Colonnade; "
        f"run colonnade explain {tmp_path} again"
    )


def test_a_damaged_file_is_told_on_the_page(record: dict[str, Any], tmp_path: Path) -> None:
    told = _unread("{", record, tmp_path)
    assert "explain.json is damaged (" in told and told.endswith(f"; run colonnade explain {tmp_path} again")
    read = with_explanation(record, tmp_path)
    assert told in Reader(render([read, {**read, "id": "b", "training": {**read["training"], "rounds": 5}}])).text
    page = write_report([read], tmp_path / "out")
    assert json.loads(page.with_suffix(".json").read_text())["runs"][0]["unexplained"] == told
    assert "Not shown" in page.with_suffix(".md").read_text()


def _unread(text: str, record: dict[str, Any], folder: Path) -> str:
    """What is said of a file: the same by the report, which goes on, and by whoever reads the file itself."""
    (folder / "explain.json").write_text(text)
    read = with_explanation(record, folder)
    assert "explanation" not in read
    told = str(read["unexplained"])
    with pytest.raises(RunError) as refused:
        Explanation.load(folder)
    assert str(refused.value) == told
    assert f"Not shown: {told}." in Reader(render([read])).text
    return told


def scattered(classes: int) -> str:
    """A file of scattered points, one row of each class."""
    points = [[float(k), float(k % 3)] for k in range(classes)]
    return scatter("s", [("left", points, list(range(classes)))], [f"class {k}" for k in range(classes)]).svg()


def test_scattered_classes_have_a_legend_and_shapes_of_their_own() -> None:
    svg = scattered(11)
    assert all(f">class {k}</text>" in svg for k in range(11))
    outlines = re.findall(r'<path id="(?:C|m)[^"]*" d="([^"]*)"', svg)
    assert len(set(outlines)) >= 11  # told apart without colour


@pytest.mark.parametrize(("classes", "name"), [(10, "{}"), (10, "class {}"), (7, "long name, class {}")])
def test_the_legend_is_read_in_lines_and_fits(classes: int, name: str) -> None:
    names = [name.format(k) for k in range(classes)]
    svg = scatter("s", [("", [[0.0, 0.0], [1.0, 1.0]], [0, 1])], names).svg()
    text = re.compile(r'x="([-\d.]+)" y="([-\d.]+)"[^>]*>([^<]+)</text>')
    found = {label: (float(y), float(x)) for x, y, label in text.findall(svg)}
    at = [found[one] for one in names]
    assert len(found) == classes and at == sorted(at)
    width = float(re.findall(r'viewBox="0 0 ([\d.]+)', svg)[0])
    received = max(min(len(one), 20) for one in names)
    assert min(x for _, x in at) > 10 and max(x for _, x in at) + 4 * received < width  # a shape stands before


def test_the_t_sne_of_the_page_names_its_classes(record: dict[str, Any]) -> None:
    page = render([explained_record(record)])
    assert page.count(">green</text>") == 1
    labels = [str(a["aria-label"]) for a in Reader(page).all("div") if a.get("role") == "img"]
    told = next(label for label in labels if label.startswith("t-SNE"))
    assert "shape and colour are its class" in told and "red, green and blue" in told


def test_methods_side_by_side_say_what_each_party_adds(trained: dict[tuple[str, int], dict[str, Any]]) -> None:
    one, other = (trained[name, 0] for name in ("vimadmm", "vimadmm_j"))
    runs = [explained_record(one), explained_record(other, shapley=[0.1, 0.4, 0.3, 0.1]), trained["local_only", 0]]
    table = side_by_side(grouped(runs))
    assert table is not None and table.columns == ("party", "vimadmm", "vimadmm_j")
    assert [row[1:] for row in table.rows] == [
        ("20.00 (2)", "10.00 (3)"), ("10.00 (4)", "40.00 (1)"), ("30.00 (1)", "30.00 (2)"), ("15.00 (3)", "10.00 (3)"),
    ]  # fmt: skip
    reader = Reader(render(runs))
    assert "Shapley values: what each party adds to the score, in percentage points" in reader.text
    assert "Contributions" in reader.text
    assert side_by_side(grouped(runs[1:])) is None  # one alone is with its method
