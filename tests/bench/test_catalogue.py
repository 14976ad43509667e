"""Benchmarks are found by name, read with their targets, and refused with a sentence."""

from pathlib import Path

import pytest

from colonnade.bench import catalogue
from colonnade.bench.align import AlignBenchSettings
from colonnade.bench.any_subset import AnySubsetSettings
from colonnade.bench.cases import Case
from colonnade.bench.catalogue import CHECKOUT, Limit, find, names, read_bench
from colonnade.bench.private import PrivateCase
from colonnade.bench.row_dp import TablesRowSettings
from colonnade.bench.settings import SpeedSettings
from colonnade.bench.table_sets import SETS
from colonnade.bench.tables import TablesSettings
from colonnade.bench.tables_scale import TablesScaleSettings
from colonnade.config import build
from colonnade.errors import ConfigError
from colonnade.job import read_job

HEAD = {"title": "a title", "kind": "accuracy"}


def test_a_limit_holds_on_its_side_and_never_without_a_result() -> None:
    assert Limit(at_least=5).holds(5) and not Limit(at_least=5).holds(4.9)
    assert Limit(at_most=0).holds(0) and not Limit(at_most=0).holds(0.1)
    assert not Limit(at_least=5).holds(None)
    assert (str(Limit(at_least=97.8)), str(Limit(at_most=40))) == (">= 97.8", "<= 40")
    assert Limit(at_most=40).to_json() == {"at_most": 40}


@pytest.mark.parametrize("target", [{}, {"at_least": 1, "at_most": 2}, {"at_leest": 1}, 3])
def test_a_target_that_says_no_limit_is_refused(target: object) -> None:
    with pytest.raises(ConfigError, match="speedy"):
        read_bench("x", {**HEAD, "targets": {"speedy": target}})


def test_targets_hold_on_every_device_unless_the_file_tells_them_apart() -> None:
    same = read_bench("x", {**HEAD, "targets": {"a": {"at_least": 1}}})
    assert same.limits("cpu") == same.limits("cuda:1") == {"a": Limit(at_least=1)}
    apart = read_bench("x", {**HEAD, "targets": {"cpu": {"a": {"at_least": 1}}, "cuda": {"b": {"at_most": 2}}}})
    assert apart.limits("cpu") == {"a": Limit(at_least=1)}
    assert apart.limits("cuda:0") == {"b": Limit(at_most=2)}


def test_what_is_not_about_the_benchmark_is_what_to_run() -> None:
    bench = read_bench("x", {**HEAD, "reach": 50.0, "data": {"set": "digits"}, "training": {"rounds": 3}})
    assert bench.reach == 50.0
    assert bench.tables == {"data": {"set": "digits"}, "training": {"rounds": 3}}


def test_the_folder_here_comes_before_that_of_the_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "mine.toml").write_text('title = "t"\nkind = "speed"\n')
    assert names() == ["mine"]
    assert find("mine").title == "t"
    with pytest.raises(ConfigError, match=r"no benchmark called 'min'; did you mean 'mine'\?"):
        find("min")


def test_without_a_folder_the_sentence_says_where_to_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(catalogue, "CHECKOUT", tmp_path)
    with pytest.raises(ConfigError, match="run this in a checkout"):
        names()


def shipped() -> list[str]:
    return sorted(path.stem for path in (CHECKOUT / "benchmarks").glob("*.toml"))


def test_the_promised_benchmarks_are_there() -> None:
    assert {"mnist-vimadmm", "mnist-vimadmm-j", "speed", "align"} <= set(shipped())


@pytest.mark.parametrize("name", shipped())
def test_every_shipped_benchmark_can_be_read(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(CHECKOUT)
    bench = find(name)
    assert "\n" not in bench.title
    assert bench.limits("cpu") and bench.limits("cuda")
    if bench.kind == "accuracy":
        assert read_job(bench.tables).training.evaluate_every == 1 or bench.reach is None
    elif bench.kind == "private":
        cases = [build(PrivateCase, case, "cases") for case in bench.tables["cases"]]
        told = {f"accuracy{key}" for case in cases for key in case.keys}
        assert told >= {key for key in bench.limits("cpu") if key.startswith("accuracy")}  # baselines have none
    elif bench.kind == "speed":
        build(SpeedSettings, bench.tables["speed"], "speed")
    elif bench.kind == "align":
        build(AlignBenchSettings, bench.tables["align"], "align")
    elif bench.kind == "tables":
        assert set(build(TablesSettings, bench.tables["tables"], "tables").sets) == set(SETS)
    elif bench.kind == "any_subset":
        settings = build(AnySubsetSettings, bench.tables["any_subset"], "any_subset")
        assert {key.partition(".")[2] for key in bench.limits("cpu")} - {""} == set(settings.methods)
    elif bench.kind == "row_dp":
        cases = [build(Case, case, "cases") for case in bench.tables["cases"]]
        assert {f"accuracy_{case.name}" for case in cases} == {*bench.limits("cpu"), "accuracy_none"}
    elif bench.kind == "tables_row_dp":
        settings = build(TablesRowSettings, bench.tables["tables_row_dp"], "tables_row_dp")
        assert {f"auc_gap.{name}" for name in settings.sets} == set(bench.limits("cpu"))
    elif bench.kind == "tables_scale":
        build(TablesScaleSettings, bench.tables["tables_scale"], "tables_scale")
