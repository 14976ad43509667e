"""Results beside targets: what passes, what is written, and what is said about the machine."""

import json
import platform
import subprocess
from pathlib import Path

import pytest

from colonnade.bench.catalogue import Limit
from colonnade.bench.outcome import Outcome, check_out, commit, machine, tidy, write
from colonnade.errors import ConfigError

FAST, SMALL = Limit(at_least=5), Limit(at_most=1)


def outcome(results: dict[str, float], **targets: Limit) -> Outcome:
    return Outcome("x", results, targets, {"cpu": "one"}, "unknown")


def test_it_passes_only_if_every_target_is_met() -> None:
    assert outcome({"fast": 6.0, "small": 1.0}, fast=FAST, small=SMALL).passed
    assert not outcome({"fast": 6.0, "small": 1.1}, fast=FAST, small=SMALL).passed
    assert not outcome({"fast": 6.0}, fast=FAST, small=SMALL).passed  # not measured: not met
    assert outcome({"fast": 6.0}).passed  # reported without a target


def test_the_object_has_the_promised_keys() -> None:
    assert outcome({"fast": 4.0, "other": 1.0}, fast=FAST).to_json() == {
        "bench": "x",
        "results": {"fast": 4.0, "other": 1.0},
        "targets": {"fast": {"at_least": 5.0}},
        "passed": False,
        "machine": {"cpu": "one"},
        "commit": "unknown",
    }


def test_lines_begin_with_the_targets_and_hide_nothing() -> None:
    lines = outcome({"other": 1.0, "fast": 6.0}, fast=FAST, small=SMALL).lines()
    assert [(line.key, line.result, line.ok) for line in lines] == [
        ("fast", 6.0, True),
        ("small", None, False),
        ("other", 1.0, None),
    ]


def test_tidy_leaves_out_what_is_no_number() -> None:
    assert tidy({"a": 1 / 3, "b": None, "c": float("nan"), "d": float("inf"), "e": 2}) == {"a": 0.333333, "e": 2.0}


def test_a_place_that_cannot_be_written_is_refused_first(tmp_path: Path) -> None:
    check_out(tmp_path / "new.json")
    for place in (tmp_path, tmp_path / "missing" / "new.json"):
        with pytest.raises(ConfigError, match="--out"):
            check_out(place)


def test_the_file_holds_the_same_object(tmp_path: Path) -> None:
    made = outcome({"fast": 6.0}, fast=FAST)
    write(made, tmp_path / "x.json")
    assert json.loads((tmp_path / "x.json").read_text()) == made.to_json()
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]


def test_the_machine_is_described_without_its_name() -> None:
    about = machine("cpu")
    assert set(about) == {"cpu", "cores", "memory_gb", "gpu", "device", "python", "torch"}
    assert about["gpu"] is None and about["cores"] >= 1
    text = json.dumps(about)
    assert str(Path.home()) not in text
    assert not platform.node() or platform.node() not in text.replace(platform.machine(), "")


def git(folder: Path, *words: str) -> None:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false")
    subprocess.run(["git", "-C", str(folder), *identity, *words], check=True, capture_output=True)


def test_the_commit_says_if_the_sources_differ_from_it(tmp_path: Path) -> None:
    assert commit(tmp_path) == "unknown"
    git(tmp_path, "init")
    assert commit(tmp_path) == "unknown"  # nothing committed yet
    for folder in ("src", "benchmarks/results", "docs"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "file").write_text("1")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "first")
    clean = commit(tmp_path)
    assert len(clean) == 40
    (tmp_path / "docs" / "file").write_text("2")
    (tmp_path / "benchmarks" / "results" / "file").write_text("2")
    (tmp_path / "benchmarks" / "README.md").write_text("made of results")
    assert commit(tmp_path) == clean
    (tmp_path / "src" / "file").write_text("2")
    assert commit(tmp_path) == clean + "-dirty"
    assert commit(tmp_path / "src") == "unknown"  # a folder inside somebody else's checkout
