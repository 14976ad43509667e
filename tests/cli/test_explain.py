"""`colonnade explain`: a table, a file for the report, pictures; what it trains again and what it refuses."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from colonnade.cli.explain import _bars
from colonnade.explain.explanation import Explanation
from colonnade.run import LEDGER
from tests.cli.conftest import SMALL, Call


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A copy: explaining adds to the ledger."""
    return Path(shutil.copytree(finished, tmp_path / "run"))


def test_a_run_is_explained_on_validation_rows(cli: Call, run: Path) -> None:
    before = (run / LEDGER).read_text().splitlines()
    done = cli("explain", run, "--set", "tsne=40")
    text = " ".join(done.out.split())
    assert done.code == 0, done.err
    assert "on 180 validation rows" in text and "party_1" in text
    assert re.search(r"\(Spearman; 1: the same, 0: unrelated, -1: reversed\): .*masking and Shapley values -?\d", text)
    told = json.loads((run / "explain.json").read_text())
    assert told["ranked_by"] == "shapley"
    assert f"by Shapley values, {told['ranked'][0]} contributes most and {told['ranked'][-1]} least" in text
    after = [json.loads(line) for line in (run / LEDGER).read_text().splitlines()]
    assert len(after) == len(before) + told["releases"]
    assert {line["purpose"] for line in after[len(before) :]} == {"EXPLAIN"}
    assert {path.name for path in (run / "explain").iterdir()} == {
        "parties.svg", "parties.png", "tsne.svg", "tsne.png",
    }  # fmt: skip
    assert (run / "explain" / "parties.png").read_bytes().startswith(b"\x89PNG")
    drawn = (run / "explain" / "tsne.svg").read_text()
    assert drawn.lstrip().startswith("<?xml")
    assert all(drawn.count(f">{digit}</text>") == 1 for digit in range(10))  # a legend


def test_training_again_and_an_earlier_run(cli: Call, run: Path, tmp_path: Path) -> None:
    earlier = Path(shutil.copytree(run, tmp_path / "earlier"))
    assert cli("explain", earlier, "--set", "tsne=0").code == 0
    done = cli(
        "explain", run, "--json", "--rows", "test", "--summarise", "50", "--denoise", "party_2=3", "--pictures",
        "--before", earlier, "--set", "draws=1", "--set", "tsne=0",
    )  # fmt: skip
    assert done.code == 0, done.err
    told = done.json
    assert told["rows"] == told["summary"]["rows"] == told["denoise"]["rows"] == "test"
    assert [one["which"] for one in told["summary"]["sets"]] == ["most", "least"]
    assert told["denoise"]["lengths"] == [2, 3, 6] and list(told["denoise"]["scores"]) == [
        "vimadmm",
        "split_learning",
        "vafl",
    ]
    assert told["fallen"] == []  # the same run: nobody lost weight
    assert set(told["pictures"]) == {"party_1", "party_2"} and told["noise_draws"] == 1
    assert [Path(file).name for file in told["files"]] == ["parties.svg", "parties.png"]
    words = cli("explain", run, "--set", "tsne=0", "--summarise", "50", "--denoise", "party_1").out
    assert "lost weight under noise" in words and "most important 50 % (1)" in words


def test_the_report_shows_it(cli: Call, run: Path) -> None:
    assert cli("explain", run, "--set", "tsne=0").code == 0
    assert cli("report", run).code == 0
    assert "Shapley value" in (run / "report.html").read_text()


def test_a_file_of_an_earlier_version_is_not_in_the_way(cli: Call, run: Path) -> None:
    (run / "explain.json").write_text('{"format": 1}')
    done = cli("report", run)
    assert done.code == 0 and "written by another version of Colonnade; run colonnade explain" in done.err
    assert "Not shown" in (run / "report.html").read_text()
    before = cli("explain", run, "--before", run)
    assert before.code == 2 and before.err.count("\n") == 1 and f"run colonnade explain {run} again" in before.err
    assert cli("explain", run, "--set", "tsne=0").code == 0
    assert "another version" not in cli("report", run).err


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--denoise", "nobody"), "no such party"),
        (("--denoise", "party_1=loud"), "needed PARTY or PARTY=STD"),
        (("--summarise", "120"), "between 0 and 100"),
        (("--summarise", "half"), "between 0 and 100"),
        (("--set", "drews=3"), "did you mean 'draws'"),
        (("--before", "nowhere"), "has no explain.json"),
    ],
)
def test_what_is_refused_changes_nothing(cli: Call, run: Path, options: tuple[str, ...], told: str) -> None:
    before = (run / LEDGER).read_bytes()
    done = cli("explain", run, *options)
    assert done.code == 2 and told in done.err
    assert (run / LEDGER).read_bytes() == before and not (run / "explain.json").exists()


def test_a_run_with_a_promise(cli: Call, tmp_path: Path) -> None:
    (tmp_path / "noised.toml").write_text(SMALL + '[privacy]\nmechanism = "gaussian"\nclip = 1.0\nsigma = 2.0\n')
    assert cli("train", tmp_path / "noised.toml", "--out", tmp_path / "noised").code == 0
    quiet = cli("explain", tmp_path / "noised", "--json")
    assert quiet.code == 0 and quiet.json["releases"] == 0 and quiet.json["mask"] is None, quiet.err
    again = cli("explain", tmp_path / "noised", "--summarise", "50")
    assert again.code == 2 and "--uncovered" in again.err
    loud = cli("explain", tmp_path / "noised", "--uncovered", "--json", "--set", "tsne=0")
    assert loud.code == 0 and loud.json["releases"] > 0 and "does not cover" in " ".join(loud.json["notes"])


@pytest.mark.parametrize(("name", "left"), [("accuracy", 0.4), ("log loss", 0.6)])
def test_noise_makes_a_score_worse_on_its_own_side(name: str, left: float) -> None:
    found = Explanation("r", "vimadmm", "f", "validation", 9, name, 0.5, ["bank"], noise=[0.1])
    (bar,) = _bars(found)
    assert list(bar.values) == [pytest.approx(left)]
