"""Kept trainings: a benchmark goes on with what is missing, processes share it, and other runs are refused."""

from __future__ import annotations

import json
import multiprocessing
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from colonnade.bench.catalogue import read_bench
from colonnade.bench.kept_runs import ABOUT
from colonnade.bench.perform import lacking, measure
from colonnade.bench.settings import Options
from colonnade.bench.zoo import run_zoo
from colonnade.errors import ConfigError, RunError
from colonnade.folder import claimed
from colonnade.job import Job
from tests.bench.test_cases import FROZEN, LEARNS, TABLES, quiet

CASES: list[dict[str, Any]] = [
    {"method": {"name": "fdml"}, "tries": [{"method": FROZEN}, {"method": LEARNS}]},
    {"method": {"name": "vimadmm", "local_steps": 1}},
]
NAMES = {"fdml-try-0", "fdml-try-1", "fdml-seed-0", "fdml-seed-1", "vimadmm-seed-0", "vimadmm-seed-1"}


def results_of(options: Options) -> dict[str, Any]:
    found = run_zoo(read_bench("small", {**TABLES, "reach": 5.0, "cases": CASES}), options, quiet).results
    return {key: value for key, value in found.items() if not key.startswith("seconds")}


def shared(folder: Path, answer: Any) -> None:
    answer.put(results_of(Options(seeds=2, runs=folder)))


def test_kept_trainings_give_the_same_results_and_are_not_trained_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Options(seeds=2, runs=tmp_path)
    fresh = results_of(replace(kept, runs=None))
    assert results_of(kept) == fresh
    assert {path.name for path in tmp_path.iterdir()} == NAMES
    monkeypatch.setattr(Job, "fit", None)  # whoever trains now fails
    assert results_of(kept) == fresh


def test_processes_share_the_work(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    others = [context.Process(target=shared, args=(tmp_path, answers)) for _ in range(2)]
    for one in others:
        one.start()
    found = [answers.get(timeout=300) for _ in others]
    for one in others:
        one.join(timeout=60)
    assert found[0] == found[1]
    assert {path.name for path in tmp_path.iterdir()} == NAMES


def test_what_another_process_trains_is_left_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class StillMissing(Exception):
        pass

    def wait(_: float) -> None:
        raise StillMissing

    monkeypatch.setattr("colonnade.bench.kept_runs.time.sleep", wait)
    with claimed(tmp_path / "vimadmm-seed-1"), pytest.raises(StillMissing):
        results_of(Options(seeds=2, runs=tmp_path))
    there = {path.name for path in tmp_path.iterdir() if (path / ABOUT).exists()}
    assert there == NAMES - {"vimadmm-seed-1"}


def test_finished_cases_are_told_of_and_nothing_is_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Options(seeds=2, runs=tmp_path)
    whole = results_of(kept)
    shutil.rmtree(tmp_path / "vimadmm-seed-1")
    monkeypatch.setattr(Job, "fit", None)
    found = results_of(replace(kept, finished=True))
    assert found == {key: value for key, value in whole.items() if not key.endswith(".vimadmm")} != {}
    with pytest.raises(ConfigError, match="--finished needs the folder of kept trainings"):
        measure("mnist-zoo", Options(finished=True), None, quiet)


def test_cases_that_a_file_has_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = read_bench("small", {**TABLES, "reach": 5.0, "cases": CASES})
    monkeypatch.setattr("colonnade.bench.perform.find", lambda _: bench)
    first, rest = tmp_path / "first.json", tmp_path / "rest.json"
    one = measure("small", Options(seeds=1, only=("fdml",)), first, quiet)
    other = measure("small", Options(seeds=1, beyond=first), rest, quiet)
    assert {key.partition(".")[2] for key in one.results} == {"fdml"}
    assert {key.partition(".")[2] for key in other.results} == {"vimadmm"}
    assert (lacking(one), lacking(other)) == (["vimadmm"], ["fdml"])
    whole = measure("small", Options(seeds=1, beyond=first), first, quiet)
    assert lacking(whole) == []
    monkeypatch.setattr(Job, "fit", None)
    assert measure("small", Options(seeds=1, beyond=first), None, quiet).results == {}
    first.write_text(first.read_text().replace(one.commit, "another"))
    with pytest.raises(ConfigError, match="of commit another"):
        measure("small", Options(seeds=1, beyond=first), None, quiet)
    with pytest.raises(ConfigError, match="--beyond: benchmark worth has no cases"):
        monkeypatch.undo()
        measure("worth", Options(beyond=first), None, quiet)


def test_a_training_that_fails_is_told_and_not_begun_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise RunError("the disk is full")

    monkeypatch.setattr(Job, "fit", fail)
    with pytest.raises(RunError, match="the disk is full"):
        results_of(Options(seeds=1, runs=tmp_path))
    (tmp_path / "a file").write_text("")
    with pytest.raises(RunError, match="cannot be used"):
        results_of(Options(seeds=1, runs=tmp_path / "a file"))


@pytest.mark.parametrize("key", ["commit", "machine", "training", "sources", "signal"])
def test_runs_of_something_else_are_refused(tmp_path: Path, key: str) -> None:
    results_of(Options(seeds=1, runs=tmp_path))
    path = tmp_path / "vimadmm-seed-0" / ABOUT
    path.write_text(json.dumps({**json.loads(path.read_text()), key: "another"}))
    with pytest.raises(ConfigError, match=f"of another {key}; name another folder"):
        results_of(Options(seeds=1, runs=tmp_path))


def test_only_benchmarks_with_cases_keep_trainings(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--runs: benchmark worth has no trainings to keep"):
        measure("worth", Options(runs=tmp_path), None, quiet)
