"""The paper's tables: each has a key, benchmarks that exist and results that these can give; the page shows them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from colonnade.bench.__main__ import main
from colonnade.bench.cases import Case, read_cases
from colonnade.bench.catalogue import CHECKOUT, find, names, read_bench
from colonnade.bench.ended import ended_early
from colonnade.bench.outcome import Outcome, read
from colonnade.bench.paper import find_table, listing, run_table
from colonnade.bench.paper_page import Shown, page, rankings
from colonnade.bench.paper_tables import TABLES, Line, Table
from colonnade.bench.private import PrivateCase
from colonnade.bench.settings import Options
from colonnade.bench.zoo import SweepSettings, run_sweep, swept
from colonnade.config import build
from colonnade.errors import ConfigError, MissingData
from colonnade.federation import Federation
from colonnade.job import Job, read_job
from tests.data.files import write_modelnet, write_nus_wide

LABELS = {  # every table and figure of the paper with results
    "fig:vanilla_vfl", "fig:vanilla_vfl_nonlinear", "fig:histogram", "fig:tsne_more", "fig:rho", "tab:linearadmm",
    "tab:communication", "tab:longtail", "tab:dp-utility", "tab:labeldp-utility", "tab:tau_userdp", "tab:tau_labeldp",
    "tab:clisumm", "tab:100cli", "tab:mask_userdp", "tab:denoise", "tab:reference_acc",
}  # fmt: skip
MACHINE = {"cpu": "A CPU", "cores": 2, "gpu": None, "device": "cpu", "torch": "2"}


def keys_of(name: str) -> set[str] | None:
    """The endings of the results that a benchmark of cases gives; None: it has none."""
    bench = find(name)
    if bench.kind == "private":
        return {key for case in read_cases(bench, PrivateCase) for key in case.keys}
    if bench.kind not in ("zoo", "sweep"):
        return None
    cases = read_cases(bench, Case)
    if bench.kind == "sweep":
        cases = swept(cases, build(SweepSettings, bench.tables["sweep"], "sweep"), bench.tables)
    return {key for case in cases for key in case.keys}


def test_every_table_and_figure_of_the_paper_is_there() -> None:
    places = " ".join(table.place for table in TABLES)
    assert {label for label in LABELS if label not in places} == set()
    written = page(CHECKOUT / "benchmarks" / "results")
    assert not {label for label in LABELS if label in written}, "readers know numbers only"
    assert len({table.key for table in TABLES}) == len(TABLES)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.key)
def test_the_benchmarks_of_a_table_give_the_results_it_shows(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(CHECKOUT)
    assert set(table.benches) <= set(names())
    for line in table.lines:
        endings = keys_of(line.bench)
        if endings is not None:
            assert any(line.key.endswith(ending) for ending in endings), f"{line.bench} never gives {line.key}"


@pytest.mark.parametrize("name", sorted(p.stem for p in (CHECKOUT / "benchmarks").glob("*.toml")))
def test_every_case_of_a_shipped_benchmark_can_be_read(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(CHECKOUT)
    bench = find(name)
    if bench.kind not in ("zoo", "sweep", "private"):
        return
    cases: list[Any] = list(read_cases(bench, PrivateCase if bench.kind == "private" else Case))
    if bench.kind == "sweep":
        cases = swept(cases, build(SweepSettings, bench.tables["sweep"], "sweep"), bench.tables)
    endings = {key for case in cases for key in case.keys}
    for case in cases:
        for number in range(len(case.tries)):
            shared = {k: v for k, v in bench.tables.items() if k in ("data", "model", "training")}
            sections = case.sections(number)
            merged = {k: {**shared.get(k, {}), **sections.get(k, {})} for k in ("data", "model", "training")}
            read_job({**sections, **merged})
    for key in {*bench.limits("cpu"), *bench.paper}:
        assert any(key.endswith(ending) for ending in endings), f"no case of {name} gives {key}"


def test_the_list_names_benchmarks_and_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(CHECKOUT)
    rows = {key: told for key, _, _, told in listing()}
    assert len(rows) == len(TABLES) and "nus-wide-zoo (no result)" in rows["accuracy"]
    with pytest.raises(ConfigError, match=r"called 'client-dpp' here; did you mean 'client-dp'\?"):
        find_table("client-dpp")


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two small benchmarks that stand for those of one table: one whose data are not at hand."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "benchmarks").mkdir()
    job = '[data]\nset = "digits"\nparties = 2\n[training]\nrounds = 1\nschedule = { batch = 64 }\n'
    case = '[[cases]]\nmethod = { name = "fdml" }\n'
    (tmp_path / "benchmarks" / "here.toml").write_text('title = "t"\nkind = "zoo"\n' + job + case)
    gone = job.replace('"digits"', '"mnist"\ndownload = false').replace("parties = 2", "parties = 14")
    (tmp_path / "benchmarks" / "gone.toml").write_text('title = "t"\nkind = "zoo"\n' + gone + case)
    table = Table("two", "Table 0", "two", (Line("a", "here", "test_accuracy.fdml"), Line("b", "gone", "x.fdml")), "")
    monkeypatch.setattr("colonnade.bench.paper.TABLES", (table,))
    return tmp_path


def test_a_table_is_measured_as_far_as_data_are_at_hand(checkout: Path) -> None:
    told: list[str] = []
    empty = checkout / "data"
    empty.mkdir()
    found = run_table("two", Options(seeds=1, data_dir=None), checkout, told.append)
    assert [one.bench for one in found] == ["here"]
    assert read(checkout / "here.json").results["test_accuracy.fdml"] > 0 and not (checkout / "gone.json").exists()
    assert any(line.startswith("gone: not measured, its data are not at hand") for line in told)
    (checkout / "benchmarks" / "here.toml").write_text((checkout / "benchmarks" / "gone.toml").read_text())
    with pytest.raises(MissingData):
        run_table("two", Options(seeds=1), None, told.append)


def test_the_command_runs_a_table_and_refuses_half_a_question(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["paper", "two", "--seeds", "1", "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)) == ["here"]
    assert main(["paper", "--list"]) == 0
    assert "gone (no result)" in capsys.readouterr().out
    assert main(["paper", "two", "--out", "nowhere"]) == 2
    for words in (["paper"], ["here", "two"]):
        with pytest.raises(SystemExit):
            main(words)


def test_the_page_shows_paper_and_ours_curves_epsilons_and_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(CHECKOUT)
    results = {"accuracy_eps8.vimadmm": 93.3, "accuracy_std_eps8.vimadmm": 0.21, "epsilon_spent_eps8.vimadmm": 8.0}
    results |= {"epsilon_rdp_eps8.vimadmm": 8.6, "accuracy_eps8.fdml": 95.1}
    write(tmp_path, "mnist-client-dp", results, {})
    curve = ((2, 10.0), (100, 90.0), (265, 97.0))
    write(tmp_path, "mnist-tau", {"test_accuracy.vimadmm_20": 97.5}, {"vimadmm_20": curve})
    # Of a method that protects nothing of columns there is an epsilon of its own, which is not the table's.
    labels = {"accuracy_eps1.41.local_only": 90.5, "epsilon_spent_eps1.41.local_only": 0.0}
    write(tmp_path, "mnist-label-dp", labels, {})
    text = page(tmp_path)
    for part in (
        "| | paper | ours | spread | epsilon of a party, exact | by the paper's formula | figure |",
        "| epsilon 1.41: local_only (ours): nobody uploads in training |  | 90.50 | `accuracy_eps1.41.local_only` |",
        "| epsilon 8: VIMADMM | 92.35 | 93.30 | 0.21 | 8 | 8.600 | `accuracy_eps8.vimadmm` |",
        "| epsilon 8: VAFL | 22.29 | not measured yet |  |  |  | `accuracy_eps8.vafl` |",
        "(../benchmarks/nus-wide-zoo.toml): data not at hand. The paper has: VIMADMM 88.51, Linear-ADMM 84.63.",
        "(#client-level-differential-privacy) | 2 of 18 figures | not measured yet |",
        "epsilon 8, MNIST: FDML (95.10) is not behind VIMADMM (93.30); in the paper it is.",
        "| | 4 | 17 | 37 | 66 | 104 | 149 | 203 | 265 |\n",
        "| vimadmm_20 | 10 | 10 | 10 | 10 | 90 | 90 | 90 | 97 |\n",
        "**MNIST**, [`mnist-zoo`](../benchmarks/mnist-zoo.toml): not measured yet. The paper has: VAFL 96.86, Split ",
    ):
        assert part in text, part


def test_the_pages_say_which_trainings_ended_early_and_what_was_not_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(CHECKOUT)
    write(tmp_path, "mnist-tau", {"rounds.vimadmm_20": 265.0, "rounds.fedbcd_5": 14.0}, {})
    write(tmp_path, "mnist-zoo", {"rounds.celu_vfl": 530.0, "rounds.vafl": 1060.0, "mb_to_96.vafl": 1.0}, {})
    write(tmp_path, "mnist-vimadmm", {"rounds": 399.5}, {})
    told = "Ended early, by the stopping rule or since they diverged, in rounds, mean over seeds: "
    told += "`fedbcd_5` after 14 of 265."
    text = page(tmp_path)
    assert f"\n{told}\n" in text and text.count("Ended early") == 1
    assert "| CELU-VFL, until 96 % |  | not reached | `mb_to_96.celu_vfl` |" in text
    assert "| FDML, until 96 % | 405.1 | not measured yet | `mb_to_96.fdml` |" in text
    outcome = read(tmp_path / "mnist-vimadmm.json")
    assert ended_early(find("mnist-vimadmm"), outcome).endswith(": after 399.5 of 400.")
    assert (
        ended_early(find("mnist-heads"), replace(outcome, results={"rounds.vimadmm": 530.0, "chosen.vimadmm": 2.0}))
        == ""
    )


def write(folder: Path, name: str, results: dict[str, float], curves: dict[str, Any]) -> None:
    outcome = Outcome(name, results, {}, MACHINE, "0" * 40, curves)
    (folder / f"{name}.json").write_text(json.dumps(outcome.to_json()))


def shown(method: str, paper: float | None, value: float, key: str = "test_accuracy") -> Shown:
    return Shown(Line(f"MNIST: {method}", "b", f"{key}.{method}", paper, "g", method), value, True, None, None, None)


def test_only_a_reversed_order_is_told() -> None:
    assert list(rankings([shown("vimadmm", 97.0, 98.0), shown("vafl", 96.0, 97.0)])) == []
    assert list(rankings([shown("vimadmm", 95.0, 97.0), shown("vafl", 96.0, 98.0)])) == []  # as in the paper
    [told] = rankings([shown("vimadmm", 97.0, 97.0), shown("vafl", 96.0, 98.0), shown("local_only", None, 98.5)])
    assert "VAFL (98) is not behind VIMADMM (97); in the paper it is" in told
    assert "local_only" in told and "98.50" in told
    fewer = [shown("vimadmm", 233.0, 100.0, "mb_to_96"), shown("vafl", 4520.0, 200.0, "mb_to_96")]
    assert list(rankings(fewer)) == []  # of bytes fewer are better
    assert len(list(rankings([fewer[0], shown("vafl", 4520.0, 90.0, "mb_to_96")]))) == 1
    spread = "class_accuracy_std"  # between classes, likewise
    even = [shown("vimadmm", 0.76, 0.75, spread), shown("centralized", 0.45, 0.91, spread)]
    assert list(rankings(even)) == []
    assert len(list(rankings([even[0], shown("centralized", 0.9, 0.5, spread)]))) == 1


def test_nus_wide_is_measured_on_files_of_the_original_layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(CHECKOUT)
    write_nus_wide(tmp_path / "nus_wide", rows=120)
    bench = find("nus-wide-rho")
    short = {"rounds": 2, "evaluate_every": 1, "schedule": {"batch": 64}}
    small = replace(bench, tables={**bench.tables, "training": short})
    found = run_sweep(small, Options(data_dir=tmp_path, seeds=1), lambda _: None)
    assert found.results["test_accuracy.vimadmm_0.5"] is not None and len(found.curves) == 5


def test_modelnet40_has_as_many_parties_as_views_were_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(CHECKOUT)
    write_modelnet(tmp_path / "modelnet40", train=10, test=1)
    bench = find("modelnet40-views")
    small = {**bench.tables, "training": {"rounds": 1, "schedule": {"batch": 8}}, "model": {"encoder": "linear"}}
    small["data"] = {**bench.tables["data"], "size": 8}
    sizes: list[int] = []
    real = Job.fit

    def fit(job: Job, data: Federation, *rest: Any, **more: Any) -> Any:
        sizes.append(len(data.names))
        return real(job, data, *rest, **more)

    monkeypatch.setattr(Job, "fit", fit)
    found = run_sweep(replace(bench, tables=small), Options(data_dir=tmp_path, seeds=1), lambda _: None)
    assert sizes == [4, 8, 12] and found.results["test_accuracy.vimadmm_12"] is not None


def test_a_benchmark_without_the_table_of_its_kind_still_reads() -> None:
    assert read_bench("x", {"title": "t", "kind": "sweep"}).kind == "sweep"
