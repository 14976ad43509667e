"""`compare` and `demo`: every method with every seed, one table, one page."""

from __future__ import annotations

from pathlib import Path

import pytest

from colonnade.cli.demo import MARKER
from colonnade.run import read_record
from tests.cli.conftest import Call
from tests.cli.test_train import interrupt_at

METHODS = ["vimadmm", "vimadmm_j", "local_only", "centralized"]


def test_every_method_with_every_seed(cli: Call, config: Path) -> None:
    done = cli("compare", config, "--methods", "vimadmm,local_only", "--seeds", "3,4", "--out", "here", "--json")
    assert done.code == 0, done.err
    runs = done.json["runs"]
    assert [(run["method"], run["seed"]) for run in runs] == [
        ("vimadmm", 3), ("vimadmm", 4), ("local_only", 3), ("local_only", 4),
    ]  # fmt: skip
    for run in runs:
        assert read_record(Path(run["run"]))["training"]["seed"] == run["seed"]
    assert {path.name for path in Path("here").iterdir()} == {
        "vimadmm-3", "vimadmm-4", "local_only-3", "local_only-4", "report.html",
    }  # fmt: skip
    mean = sum(run["test_score"] for run in runs[:2]) / 2
    assert done.json["summary"][0] == {
        "method": "vimadmm",
        "seeds": 2,
        "test_score": pytest.approx(mean),
        "std": pytest.approx(abs(runs[0]["test_score"] - runs[1]["test_score"]) / 2**0.5),
    }


def test_a_single_run_of_a_comparison_is_the_run_that_train_makes(cli: Call, config: Path, finished: Path) -> None:
    assert cli("compare", config, "--methods", "vimadmm", "--out", "here").code == 0
    assert read_record(Path("here/vimadmm-0"))["fingerprint"] == read_record(finished)["fingerprint"]


def test_the_section_chooses_and_sets(cli: Call, config: Path) -> None:
    with config.open("a") as file:
        file.write('[compare]\nmethods = ["vimadmm_j"]\nseeds = [5]\n[compare.vimadmm_j]\nrho = 2.5\nlocal_steps = 1\n')
    done = cli("compare", config, "--out", "here")
    assert done.code == 0, done.err
    assert "vimadmm_j" in done.out
    assert "parties can read the labels" in done.out
    record = read_record(Path("here/vimadmm_j-5"))
    assert record["method"]["settings"]["rho"] == 2.5


def test_a_diverged_run_is_marked_and_the_rest_is_kept(cli: Call, config: Path) -> None:
    wild = ["--set", "compare.vimadmm_j.optimiser={kind='sgd',lr=1e30}"]
    done = cli("compare", config, "--methods", "vimadmm_j,local_only", "--out", "here", *wild)
    assert done.code == 1
    assert "vimadmm_j (diverged)" in done.out
    assert "here/vimadmm_j-0: diverged: " in done.err
    assert Path("here/report.html").exists()


def test_an_interrupted_comparison_keeps_what_is_finished(
    cli: Call, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt_at(3, monkeypatch)
    done = cli("compare", config, "--out", "here")
    assert done.code == 130
    assert "colonnade resume here/vimadmm-0" in done.err
    assert "colonnade report here" in done.err


def test_the_demo_shows_four_methods_and_replaces_itself(cli: Call) -> None:
    first = cli("demo", "--rounds", "1", "--json")
    assert first.code == 0, first.err
    assert [run["method"] for run in first.json["runs"]] == METHODS
    assert {path.name for path in Path("demo-run").iterdir()} == {*METHODS, "report.html", MARKER}
    Path("demo-run/mine.txt").write_text("keep me")
    second = cli("demo", "--rounds", "1")
    assert second.code == 0, second.err
    assert Path("demo-run/mine.txt").exists()
    for word in (*METHODS, "test", "validation", "seconds", "label exposure", "digits-8"):
        assert word in second.out
    again = [read_record(Path("demo-run") / method)["fingerprint"] for method in METHODS]
    assert again == [run["fingerprint"] for run in first.json["runs"]]
