"""`compare` and `demo`: every method with every seed, one table, one page."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shutil
import warnings
from html import unescape
from pathlib import Path

import pytest

from colonnade.cli.compare import read_numbers
from colonnade.cli.demo import CONFIG, FORMER, MARKER
from colonnade.compare import MARKER as MARK
from colonnade.run import read_record
from tests.architecture.source import ROOT
from tests.cli.conftest import SMALL, Call, Result, call_main
from tests.cli.test_train import interrupt_at

MADE = ["--methods", "vimadmm,local_only", "--seeds", "3,4", "--out", "here"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    """Two methods with two seeds in the folder `here`, and what was said."""
    folder, out, err = tmp_path_factory.mktemp("made"), io.StringIO(), io.StringIO()
    (folder / "small.toml").write_text(SMALL)
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        patch.chdir(folder)
        code = call_main("compare", "small.toml", *MADE, "--json")
    return folder / "here", Result(code, out.getvalue(), err.getvalue())


@pytest.fixture
def compared(cli: Call, made: tuple[Path, Result]) -> Path:
    """A copy of it in the folder in which commands are called."""
    return Path(shutil.copytree(made[0], "here"))


def test_every_method_with_every_seed(made: tuple[Path, Result], compared: Path) -> None:
    done = made[1]
    assert done.code == 0, done.err
    runs = done.json["runs"]
    assert [(run["method"], run["seed"]) for run in runs] == [
        ("vimadmm", 3), ("vimadmm", 4), ("local_only", 3), ("local_only", 4),
    ]  # fmt: skip
    for run in runs:
        assert read_record(Path(run["run"]))["training"]["seed"] == run["seed"]
    assert {path.name for path in compared.iterdir()} >= {
        "vimadmm-3", "vimadmm-4", "local_only-3", "local_only-4", "report.html", "comparison.svg", MARK,
    }  # fmt: skip
    mean = sum(run["test_score"] for run in runs[:2]) / 2
    summary = done.json["summary"][0]
    assert {key: summary[key] for key in ("method", "seeds", "test_score", "std", "megabytes")} == {
        "method": "vimadmm",
        "seeds": 2,
        "test_score": pytest.approx(mean),
        "std": pytest.approx(abs(runs[0]["test_score"] - runs[1]["test_score"]) / 2**0.5),
        "megabytes": pytest.approx(sum(r["bytes"]["up"] + r["bytes"]["down"] for r in runs[:2]) / 2e6),
    }
    assert summary["simulated_seconds"] > done.json["clock"]["latency"] / 1000 * 12  # there and back, six times


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


def fingerprints(folder: str, *names: str) -> list[str]:
    return [read_record(Path(folder) / name)["fingerprint"] for name in names]


def test_an_interrupted_comparison_goes_on_where_it_was(cli: Call, config: Path) -> None:
    """In turns, because then the schedule has a place to go on from, too."""
    what = ["compare", config, "--method", "vimadmm", "--method", "local_only"]
    what += ["--set", "training.schedule={batch=512, order='asynchronous'}"]
    assert cli(*what, "--out", "whole").code == 0
    with pytest.MonkeyPatch.context() as patch:
        interrupt_at(5, patch)
        done = cli(*what, "--out", "here")
    assert (done.code, not Path("here/vimadmm-0/run.json").exists()) == (130, True)
    assert "--out here" in done.err
    assert cli(*what, "--out", "here").code == 0
    names = ("vimadmm-0", "local_only-0")
    assert fingerprints("here", *names) == fingerprints("whole", *names)


def test_finished_runs_are_not_repeated_and_more_may_be_added(
    cli: Call, config: Path, compared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = (compared / "vimadmm-3" / "run.json").stat().st_mtime_ns
    shutil.rmtree(compared / "local_only-4")
    done = cli("compare", config, *MADE, "--json")
    assert (done.code, "3 of 4 runs are finished already" in done.err) == (0, True)
    assert [run["method"] for run in done.json["runs"]] == ["vimadmm", "vimadmm", "local_only", "local_only"]
    interrupt_at(1, monkeypatch)  # nothing is trained now
    assert cli("compare", config, *MADE).code == 0
    assert (compared / "vimadmm-3" / "run.json").stat().st_mtime_ns == before


def test_a_comparison_of_other_settings_is_not_gone_on_with(cli: Call, config: Path, compared: Path) -> None:
    done = cli("compare", config, *MADE, "--set", "training.rounds=7")
    assert done.code == 2
    assert "here/vimadmm-3 holds a run of other settings (training.rounds = 6, now 7)" in done.err


def test_runs_in_several_processes_are_the_same_runs(cli: Call, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("colonnade.many._free_memory", lambda: 1e12)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    what = ["compare", config, "--methods", "vimadmm,local_only", "--set", "training.dtype=float64", "--json"]
    what += ["--set", "training.rounds=2", "--set", "training.schedule.batch=10"]  # too few to visit every row
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        done = [cli(*what, "--out", "one"), cli(*what, "--out", "two", "--jobs", "2")]
    for each in done:
        assert each.code == 0, each.err
        (line,) = each.err.splitlines()  # said once, whoever trains
        assert line.startswith("warning: 2 rounds of 10 rows visit 20 of the ")
    one, two = ([read_record(Path(f"{out}/{m}-0")) for m in ("vimadmm", "local_only")] for out in ("one", "two"))
    assert [r["result"]["validation_score"] for r in one] == [r["result"]["validation_score"] for r in two]
    assert [r["traffic"]["up"] for r in one] == [r["traffic"]["up"] for r in two]


def test_a_process_that_fails_says_why(cli: Call, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("colonnade.many._free_memory", lambda: 1e12)
    monkeypatch.setattr("colonnade.cli.compare.check", lambda job, federation: None)  # else it is refused before
    bad = ["--set", "compare.vimadmm_j.damping=0.1"]
    done = cli("compare", config, "--methods", "vimadmm_j,vimadmm", "--out", "here", "--jobs", "2", *bad)
    assert done.code == 2
    assert "vimadmm_j-0: damping = 0.1 is below 1/M" in done.err


def test_the_target_is_looked_up_and_columns_are_chosen(cli: Call, compared: Path) -> None:
    """In the validation scores; the object has every metric, the table those that are asked for."""
    done = cli("compare", "here", "--target", "30", "--metric", "log_loss,f1", "--json")
    assert done.code == 0, done.err
    vimadmm = next(row for row in done.json["summary"] if row["method"] == "vimadmm")
    looks = [read_record(compared / f"vimadmm-{seed}")["history"] for seed in (3, 4)]
    first = [next((h["round"] for h in look if h.get("score", 0) >= 0.3), None) for look in looks]
    known = [n for n in first if n is not None]
    assert vimadmm["reached"] == len(known)
    assert vimadmm["to_target"]["rounds"]["mean"] == (pytest.approx(sum(known) / len(known)) if known else None)
    runs = [run for run in done.json["runs"] if run["method"] == "vimadmm"]
    for run in runs:
        assert set(run["metrics"]) == set(run["validation_metrics"]) == set(vimadmm["metrics"])
    assert set(vimadmm["metrics"]) >= {"accuracy", "log_loss"}
    losses = [run["metrics"]["log_loss"]["test"] for run in runs]
    assert vimadmm["metrics"]["log_loss"]["mean"] == pytest.approx(sum(losses) / 2)
    never = cli("compare", "here", "--target", "100", "--metric", "brier").out
    for word in ("rounds", "to 100 %", "simulated", "s/round", "never", "Brier"):
        assert word in never
    assert "test accuracy" not in " ".join(never.split())


def test_a_metric_of_another_task_is_refused_before_anything_is_trained(cli: Call, config: Path) -> None:
    done = cli("compare", config, "--metric", "r2", "--out", "here")
    assert done.code == 2 and "'r2' is not for a classes task" in done.err
    assert not Path("here").exists()


def test_the_clock_is_a_setting(cli: Call, config: Path, made: tuple[Path, Result], compared: Path) -> None:
    what = ["compare", config, *MADE, "--json"]
    latency = made[1].json["clock"]["latency"]
    slow = cli(*what, "--set", f"compare.clock.latency={latency + 1000}").json["summary"][0]
    quick = made[1].json["summary"][0]
    # The opening, and a question and an answer in each of six rounds, wait one second each way more.
    assert slow["simulated_seconds"] - quick["simulated_seconds"] == pytest.approx(13.0)
    done = cli(*what, "--set", "compare.clock.latencyy=0")
    assert (done.code, "did you mean 'latency'?" in done.err) == (2, True)


@pytest.mark.parametrize("target", ["0.96", "101"])
def test_a_target_that_cannot_be_meant_is_refused(cli: Call, config: Path, target: str) -> None:
    done = cli("compare", config, "--target", target, "--out", "here")
    assert (done.code, "per cent" in done.err, Path("here").exists()) == (2, True, False)


def test_seeds_may_be_a_range() -> None:
    assert read_numbers("0-2,7") == [0, 1, 2, 7]


def test_methods_may_take_turns(cli: Call, config: Path) -> None:
    schedule = "training.schedule={{batch=512, order='{}', speeds={{party_1=3.0}}, staleness=2}}".format
    what = ["compare", config, "--methods", "vimadmm,centralized", "--set", schedule("asynchronous")]
    done = cli(*what, "--out", "one", "--json")
    assert done.code == 0, done.err
    assert [run["method"] for run in done.json["runs"]] == ["vimadmm", "centralized"]
    assert cli("train", config, "--set", schedule("sequential"), "--out", "other").code == 0
    for run in ("one/vimadmm-0", "other"):
        passed = [sum(n > 0 for n in x["up"]) for x in read_record(Path(run))["traffic"]["rounds"]]
        assert passed[:6] == [1] * 6


FOLDERS = ["alone-party_1", "alone-party_2", "alone-party_3", "alone-party_4", "together", "one_place"]


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    """A demo of one round, and what it said."""
    folder, out, err = tmp_path_factory.mktemp("shown") / "demo-run", io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = call_main("demo", "--rounds", "1", "--out", folder)
    return folder, Result(code, out.getvalue(), err.getvalue())


def test_the_demo_trains_alone_together_and_in_one_place(shown: tuple[Path, Result]) -> None:
    folder, done = shown
    assert done.code == 0, done.err
    reports = {"report.html", "report.md", "report.json", "pictures"}
    assert {path.name for path in folder.iterdir()} == {*FOLDERS, *reports, "worth.json", CONFIG, MARKER}
    found = json.loads((folder / "together" / "explain.json").read_text())
    assert found["shapley_error"] is None and len(found["shapley"]) == 4  # exact
    page = (folder / "report.html").read_text()
    assert "What each party contributed" in page and len(page) < 3e6
    answer = next(line for line in done.out.splitlines() if line.startswith("Joining"))
    assert answer in page and answer.replace("_", r"\_") in (folder / "report.md").read_text()
    for word in ("party_1 alone", "all columns in one place"):
        assert word in page and word in done.out
    for word in ("all together", "contributed most", f"report: {folder / 'report.html'}"):
        assert word in done.out
    assert done.err.startswith("loading")  # before the imports, which take seconds


def test_trainings_of_the_demo_differ_in_nothing_but_the_columns(shown: tuple[Path, Result]) -> None:
    records = [read_record(shown[0] / folder) for folder in FOLDERS]
    for key in ("method", "model", "training"):
        assert all(record[key] == records[0][key] for record in records)
    assert all(record["about"]["rows"] == records[0]["about"]["rows"] for record in records)
    assert [len(record["about"]["parties"]) for record in records] == [1, 1, 1, 1, 4, 1]


def test_the_demo_ends_with_a_command_that_works(cli: Call, shown: tuple[Path, Result]) -> None:
    last = shown[1].out.splitlines()[-1]
    assert last.startswith("next: colonnade train ")
    words = last.removeprefix("next: colonnade ").partition("    ")[0].split()
    trained = cli(*words, "--json")
    assert trained.code == 0, trained.err
    assert trained.json["fingerprint"] == read_record(shown[0] / "together")["fingerprint"]


def test_a_demo_replaces_an_older_one_and_nothing_else(cli: Call, shown: tuple[Path, Result]) -> None:
    shutil.copytree(shown[0], "demo-run")
    Path("demo-run/mine.txt").write_text("keep me")
    (Path("demo-run") / FORMER[0]).mkdir()  # of an older version: it must not get into a report of this folder
    done = cli("demo", "--rounds", "1", "--json")
    assert done.code == 0, done.err
    assert Path("demo-run/mine.txt").exists() and not (Path("demo-run") / FORMER[0]).exists()
    assert [Path(run["run"]).name for run in done.json["runs"]] == FOLDERS
    assert [run["fingerprint"] for run in done.json["runs"]] == [
        read_record(shown[0] / folder)["fingerprint"] for folder in FOLDERS
    ]


def test_an_interrupted_demo_says_how_to_start_again(cli: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt_at(1, monkeypatch)
    done = cli("demo", "--rounds", "2")
    assert (done.code, "start again with: colonnade demo --out demo-run" in done.err) == (130, True)


@pytest.mark.slow
def test_the_parties_of_the_demo_need_each_other(cli: Call) -> None:
    done = cli("demo", "--json")
    assert done.code == 0, done.err
    scores = done.json["scores"]
    assert max(scores["alone"].values()) < 0.9 < scores["together"] - 0.05
    assert abs(scores["together"] - scores["one_place"]) < 0.02
    assert "Joining is worth" in done.json["verdict"]
    verdict = done.json["verdict"].partition(" To the joint score")[0]
    assert verdict in " ".join((ROOT / "README.md").read_text(encoding="utf-8").split()), "README.md shows another demo"
    assert verdict in last_frame(ROOT / "docs/demo.svg"), "record it again: tools/record_demo.sh"


def last_frame(recording: Path) -> str:
    """What the terminal of a recording shows at its end."""
    svg = recording.read_text(encoding="utf-8")
    lines = dict(re.findall(r'<g id="(g\d+)">(.*?)</g>', svg))
    frames = re.findall(r"<g>((?:<use[^>]*/>|<rect[^>]*/>)+)</g>", svg)
    shown = [re.sub(r"<[^>]*>", "", lines[line]) for line in re.findall(r'href="#(g\d+)"', frames[-1])]
    return " ".join(unescape(" ".join(shown)).split())
