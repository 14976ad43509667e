"""Records: refused when damaged, grouped by what was trained, turned into curves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from colonnade.bench.accuracy import bytes_to
from colonnade.errors import RunError
from colonnade.report.record import (
    NEEDED,
    bytes_by_round,
    check_record,
    grouped,
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
