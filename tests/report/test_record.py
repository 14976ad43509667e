"""Records: refused when damaged, grouped by what was trained, turned into curves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from colonnade.bench.accuracy import bytes_to
from colonnade.errors import RunError
from colonnade.report.compared import comparison_table, costs_table, in_words
from colonnade.report.content import content
from colonnade.report.curves import pictures
from colonnade.report.record import (
    NEEDED,
    Terms,
    bytes_by_round,
    check_record,
    data_names,
    grouped,
    metric_of,
    read_records,
    residual_curve,
    score_curve,
)
from colonnade.wire.traffic import Traffic
from tests.report.conftest import train

Trained = dict[tuple[str, int], dict[str, Any]]


@pytest.mark.parametrize("key", [*NEEDED, "history", "releases", "fingerprint", "config"])
def test_a_record_that_lacks_something_is_refused_by_name(key: str, record: dict[str, Any]) -> None:
    del record[key]
    with pytest.raises(RunError, match=f"lacks {key}"):
        check_record(record, "x")


def test_an_inner_key_is_named_too(record: dict[str, Any]) -> None:
    del record["result"]["stop"]
    with pytest.raises(RunError, match=r"lacks result\.stop"):
        check_record(record, "x")


def test_bytes_are_counted_as_the_benchmarks_count_them(record: dict[str, Any]) -> None:
    parties = tuple(p["name"] for p in record["about"]["parties"])
    traffic = Traffic.from_json(parties, record["traffic"]["rounds"])
    used = bytes_by_round(record)
    assert [used[n] for n in range(5)] == [bytes_to(traffic, n) for n in range(5)]
    assert used[-1] == record["traffic"]["up"] + record["traffic"]["down"]


def test_curves_hold_the_evaluations(record: dict[str, Any]) -> None:
    curve = score_curve(record)
    assert curve.rounds == (2, 4)
    assert curve.scores == tuple(h["score"] for h in record["history"] if "score" in h)
    assert curve.megabytes == tuple(bytes_by_round(record)[n] / 1e6 for n in (2, 4))
    assert list(curve.seconds) == sorted(curve.seconds)
    assert residual_curve(record)[0] == (0, 1, 2, 3)


def test_what_is_not_a_number_is_left_out(record: dict[str, Any]) -> None:
    record["history"][0]["primal"] = float("nan")
    record["history"][-1]["score"] = float("inf")
    assert residual_curve(record)[0] == (1, 2, 3)
    assert score_curve(record).rounds == (2,)


def test_a_record_without_times_has_no_time_curve(record: dict[str, Any]) -> None:
    for entry in record["history"]:
        entry.pop("seconds", None)
    assert score_curve(record).seconds == ()


def test_seeds_are_grouped_and_settings_are_not(trained: Trained) -> None:
    groups = grouped([*trained.values(), train("vimadmm", rho=2.0)])
    found = [(group.label, len(group.records)) for group in groups]
    assert found == [
        ("vimadmm (rho 1.0)", 2), ("vimadmm_j", 2), ("local_only", 2), ("centralized", 2), ("vimadmm (rho 2.0)", 1),
    ]  # fmt: skip


def test_other_data_are_named(trained: Trained, record: dict[str, Any]) -> None:
    record["about"]["federation"] = "elsewhere"
    labels = [group.label for group in grouped([trained["vimadmm", 0], record])]
    assert labels == ["vimadmm on small", "vimadmm on elsewhere"]


def test_labels_are_never_equal(record: dict[str, Any]) -> None:
    other = json.loads(json.dumps(record))
    other["about"]["rows"]["train"] += 1
    labels = [group.label for group in grouped([record, other])]
    assert len(set(labels)) == 2


def test_a_folder_of_runs_stands_for_them(tmp_path: Path, trained: Trained) -> None:
    for name in ("b", "a"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").write_text(json.dumps(trained["vimadmm", 0]))
    (tmp_path / "other").mkdir()
    assert len(read_records([tmp_path])) == 2
    assert len(read_records([tmp_path / "a", tmp_path / "b"])) == 2
    with pytest.raises(RunError, match="is not a run folder"):
        read_records([tmp_path / "other"])


def other_data(record: dict[str, Any], **about: Any) -> dict[str, Any]:
    """The same settings with another seed, on other data of the same name."""
    other: dict[str, Any] = json.loads(json.dumps(record))
    other["id"], other["training"]["seed"] = "other", record["training"]["seed"] + 1
    other["about"] |= about
    return other


DIFFERENT = {
    "fingerprint": {"data": "0" * 64},
    "task": {"task": "multilabel"},
    "outputs": {"outputs": 4},
    "class names": {"class_names": ["a", "b", "c"]},
    "rows": {"rows": {"train": 1, "validation": 2, "test": 3}},
    "shapes": {"parties": [{"name": f"party_{k}", "shape": [6]} for k in range(4)]},
    "names": {"parties": [{"name": f"bank_{k}", "shape": [5]} for k in range(4)]},
}


@pytest.mark.parametrize("what", DIFFERENT)
def test_runs_of_other_data_are_no_seeds_of_one_experiment(what: str, record: dict[str, Any]) -> None:
    groups = grouped([record, other_data(record, **DIFFERENT[what])])
    assert [len(group.records) for group in groups] == [1, 1]
    assert len({group.label for group in groups}) == 2


def test_records_without_a_fingerprint_are_compared_by_the_rest(record: dict[str, Any]) -> None:
    """As those of earlier versions are, and the page says so."""
    del record["about"]["data"]
    (group,) = grouped([record, other_data(record)])
    assert len(group.records) == 2
    assert "before runs kept a fingerprint" in " ".join(in_words([group]))
    assert len(grouped([record, other_data(record, data="0" * 64)])) == 2
    assert "fingerprint" not in " ".join(in_words(grouped([train("vimadmm", 0), train("vimadmm", 1)])))


def test_one_name_for_different_data_is_told_apart(record: dict[str, Any]) -> None:
    rows = {"train": 100, "validation": 10, "test": 10}
    runs = [record, other_data(record, data="0" * 64), other_data(record, rows=rows, data="1" * 64)]
    mine = record["about"]["data"][:6]
    assert data_names(runs) == [
        f"small (90 rows, data {mine})", "small (90 rows, data 000000)", "small (120 rows)",
    ]  # fmt: skip
    assert [group.label for group in grouped(runs)] == [f"vimadmm on {name}" for name in data_names(runs)]


def test_a_reference_in_one_place_is_of_the_same_data(trained: Trained) -> None:
    """Its columns lie otherwise, so its fingerprint differs; the rows are the same."""
    both = [trained["vimadmm", 0], trained["centralized", 0]]
    assert both[0]["about"]["data"] != both[1]["about"]["data"]
    assert data_names(both) == ["small", "small"]


def test_a_run_that_is_named_twice_counts_once(record: dict[str, Any]) -> None:
    (group,) = grouped([record, json.loads(json.dumps(record))])
    assert len(group.records) == 1
    again = {**record, "id": "again"}
    assert comparison_table(grouped([record, again])).rows[0][1] == "1 (2 runs)"


def test_different_scores_are_never_averaged_or_drawn_together() -> None:
    """R2 with accuracy gave "41.37 ± 63.95 %", because both were called `federation`."""
    runs = [train("vimadmm", 0), train("vimadmm", 1, task="regression")]
    groups = grouped(runs)
    assert [len(group.records) for group in groups] == [1, 1]
    table = comparison_table(groups)
    assert table.columns[1:3] == ("test score", "validation score")
    names = [metric_of(r).title for r in runs]
    assert names[0] != names[1]
    assert [row[1].split()[0] for row in table.rows] == [row[2].split()[0] for row in table.rows] == names
    told = " ".join(in_words(groups))
    assert "different data" in told and "Highest" not in told
    drawn = [picture for picture in pictures(groups) if "score-rounds" in picture.drawing.name]
    assert [picture.drawing.name for picture in drawn] == [f"{name}-score-rounds" for name in names]
    assert costs_table(groups, Terms(target=96.0)).columns[-1] == "simulated s"
    assert content(runs).facts["title"] == "1 method on small (multiclass) and small (regression)"
