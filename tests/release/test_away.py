"""Measuring on another machine: parts to carry, and trainings that workers share and take up again."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from colonnade.bench.outcome import Outcome, read, write
from colonnade.errors import ConfigError
from tests.architecture.source import ROOT
from tests.python_files import as_module

TINY = """
title = "Digits in two halves"
kind = "zoo"
reach = 50.0
[targets]
"test_accuracy.vimadmm_j" = { at_least = 10.0 }
[data]
set = "digits"
parties = 2
[model]
hidden = 4
embedding = 2
[training]
rounds = 2
evaluate_every = 1
[[cases]]
method = { name = "vimadmm_j", local_steps = 1 }
tries = [{ method = { rho = 1.0 } }, { method = { rho = 2.0 } }]
[[cases]]
seeds = 1
method = { name = "local_only" }
"""
COMMIT = "0123456789ab"


@pytest.fixture
def away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = as_module(ROOT / "tools/away.py")
    monkeypatch.setattr(module, "ROOT", ROOT)
    return module


def wheels(folder: Path, python: str, packages: object) -> None:
    """In place of a download."""
    for name, size in (("small", 10), ("large", 3000)):
        with zipfile.ZipFile(folder / f"{name}-1-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"{name}.py", "x" * size)


def test_parts_are_few_and_each_small_enough(away: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(away, "download", wheels)
    monkeypatch.setattr(away, "sources", no_sources)
    data = tmp_path / "data"
    data.mkdir()
    for number in range(4):
        (data / f"{number}.bin").write_bytes(bytes(4000))
    parts = away.pack(tmp_path / "carry", data, "3.12", 12e-3, COMMIT)
    assert [part.name for part in parts] == ["part-1", "part-2"]
    for part in parts:
        assert sum(path.stat().st_size for path in part.rglob("*") if path.is_file()) <= 12_000
    away.keep(parts, tmp_path / "place")
    assert sorted(path.name for path in (tmp_path / "place/data").iterdir()) == [f"{n}.bin" for n in range(4)]
    assert sorted(path.name for path in (tmp_path / "place/packages").iterdir()) == ["large.py", "small.py"]


def no_sources(folder: Path, commit: str) -> None:
    """In place of those of a commit."""


def outcome_of(commit: str, *cases: str) -> Outcome:
    """Figures of some cases, as an earlier machine gave them."""
    place = {"cpu": "a processor", "gpu": "a GPU", "torch": "2.11.0", "device": "cuda"}
    return Outcome("cifar-heads", {f"test_accuracy.{case}": 70.0 for case in cases}, {}, place, commit)


def test_sources_of_a_commit_are_carried_with_the_tables_that_it_has_begun(
    away: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "root"
    (root / "src").mkdir(parents=True)
    (root / "benchmarks" / "unfinished").mkdir(parents=True)
    (root / "benchmarks" / "some.toml").write_text("")

    def git(*words: str) -> None:
        subprocess.run(["git", "-C", str(root), "-c", "user.name=a", "-c", "user.email=a@b", *words], check=True)

    git("init", "--quiet")
    for text in ("first", "second"):
        (root / "src" / "program.py").write_text(text)
        git("add", "-A")
        git("commit", "--quiet", "-m", text)
    monkeypatch.setattr(away, "ROOT", root)
    monkeypatch.setattr(away, "download", wheels)
    commit = away.whole("HEAD~1")
    for name, of in (("cifar-heads", commit), ("cifar-zoo", away.whole("HEAD"))):
        write(outcome_of(of, "vafl"), root / "benchmarks" / "unfinished" / f"{name}.json")
    parts = away.pack(tmp_path / "carry", None, "3.12", 1.0, commit)
    away.keep(parts, tmp_path / "place")
    assert (tmp_path / "place/commits" / commit / "src/program.py").read_text() == "first"
    assert [path.name for path in (tmp_path / "place/begun").iterdir()] == ["cifar-heads.json"]


def test_what_comes_back_is_added_until_a_table_is_complete(
    away: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(away, "ROOT", tmp_path)
    (tmp_path / "benchmarks/results").mkdir(parents=True)
    out = tmp_path / "out"
    out.mkdir()
    write(outcome_of(COMMIT, "vimadmm", "vafl"), out / "cifar-heads.json")
    assert away.join(out) == ["benchmarks/unfinished/cifar-heads.json: still without split_learning, fedbcd"]
    write(outcome_of("another", "fedbcd"), out / "cifar-heads.json")
    with pytest.raises(ConfigError, match="of commit 0123456789ab, a GPU"):
        away.join(out)
    with pytest.raises(SystemExit, match=r"error: .* holds cifar-heads of commit 0123456789ab"):
        away.main(["join", str(out)])
    write(outcome_of(COMMIT, "fedbcd", "split_learning"), out / "cifar-heads.json")
    assert away.join(out) == ["benchmarks/results/cifar-heads.json: complete"]
    table = read(tmp_path / "benchmarks/results/cifar-heads.json")
    assert {key.partition(".")[2] for key in table.results} == {"vimadmm", "vafl", "split_learning", "fedbcd"}
    assert not list((tmp_path / "benchmarks/unfinished").iterdir())
    # What was measured on this kind of machine stays beside what was measured on another.
    (out / "cifar-heads.json").unlink()
    here = replace(outcome_of("before"), bench="speed", machine={"cpu": "x", "gpu": None, "torch": "2.13.0"})
    write(here, tmp_path / "benchmarks/results/speed.json")
    write(replace(outcome_of(COMMIT), bench="speed"), out / "speed.json")
    assert away.join(out) == ["benchmarks/results/speed-cuda.json: complete"]
    assert read(tmp_path / "benchmarks/results/speed.json").commit == "before"


@pytest.fixture
def checkout(tmp_path: Path) -> Iterator[Path]:
    """A copy of the sources without history, with one small benchmark; whatever it starts is ended."""
    root = tmp_path / "checkout"
    (root / "tools").mkdir(parents=True)
    (root / "benchmarks").mkdir()
    shutil.copy(ROOT / "tools/away.py", root / "tools/away.py")
    shutil.copytree(ROOT / "src", root / "src", ignore=shutil.ignore_patterns("__pycache__"))
    (root / "benchmarks/tiny.toml").write_text(TINY)
    yield root
    for path in (tmp_path / "place").rglob("pid-*"):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(int(path.read_text()), signal.SIGKILL)


def measured(checkout: Path, minutes: float, *more: str) -> subprocess.CompletedProcess[str]:
    place, out = checkout.parent / "place", checkout.parent / "out"
    (checkout / "benchmarks/alone.toml").write_text(TINY.replace('kind = "zoo"', 'kind = "zoo"\noptions = "--seeds 1"'))
    words = [
        sys.executable,
        "tools/away.py",
        "measure",
        "tiny",
        "alone",
        "--commit",
        COMMIT,
        "--device",
        "cpu",
        "--seeds",
        "2",
    ]
    words += ["--place", str(place), "--out", str(out), "--minutes", str(minutes), *more]
    return subprocess.run(words, check=False, cwd=checkout, capture_output=True, text=True, timeout=240)


def test_workers_share_trainings_and_a_killed_one_loses_only_its_own(checkout: Path) -> None:
    first = measured(checkout, 0.02)
    assert first.returncode == 3, first.stderr
    assert "not done yet" in first.stdout
    folder = checkout.parent / "place/commits" / COMMIT
    for path in folder.glob("pid-*"):
        os.killpg(int(path.read_text()), signal.SIGKILL)
    kept = {path: path.stat().st_mtime_ns for path in folder.glob("runs/tiny/*/bench.json")}
    second = measured(checkout, 3.0)
    assert second.returncode == 0, (second.stderr, [log.read_text()[-600:] for log in folder.glob("logs/*.log")])
    # Two tries, two seeds of the chosen one, and one of the other case; a benchmark that says so has one seed.
    assert "done; trainings: tiny 5, alone 4" in second.stdout
    assert all(path.stat().st_mtime_ns == made for path, made in kept.items())
    found = json.loads((checkout.parent / "out/tiny.json").read_text())
    assert found["commit"] == COMMIT
    assert found["results"]["test_accuracy.vimadmm_j"] > 0
    assert found["results"]["seeds.local_only"] == 1
    begun = time.monotonic()
    assert measured(checkout, 3.0).returncode == 0  # nothing is left to do
    assert time.monotonic() - begun < 120
    # A later machine, with nothing but the table as it was: the case that is in it is not measured again.
    shutil.rmtree(folder / "runs" / "tiny")
    results = {key: value for key, value in found["results"].items() if key.endswith(".vimadmm_j")}
    (checkout.parent / "place/begun").mkdir()
    (checkout.parent / "place/begun/tiny.json").write_text(json.dumps({**found, "results": results}))
    third = measured(checkout, 3.0)
    assert "done; trainings: tiny 1, alone 4" in third.stdout, third.stderr
