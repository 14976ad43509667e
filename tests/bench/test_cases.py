"""Cases: what differs is laid over what all share, tries are chosen on validation rows, and parts make a whole."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from colonnade.bench.cases import Case, each_case, read_cases, selected
from colonnade.bench.catalogue import read_bench
from colonnade.bench.outcome import Outcome, check_part, commit, joined, machine, read, write
from colonnade.bench.perform import measure
from colonnade.bench.private import PrivateCase, run_private
from colonnade.bench.settings import Options
from colonnade.bench.zoo import SweepSettings, curve, run_sweep, run_zoo, swept
from colonnade.data.sets import load_set
from colonnade.errors import ConfigError
from colonnade.run import Run

TABLES: dict[str, Any] = {
    "title": "small",
    "kind": "zoo",
    "data": {"set": "digits", "parties": 2},
    "model": {"hidden": 8, "embedding": 6},
    "training": {"rounds": 4, "evaluate_every": 2, "schedule": {"batch": 128, "shuffle": "once"}},
}
FROZEN = {"optimiser": {"kind": "sgd", "lr": 1e-12, "momentum": 0.0, "weight_decay": 0.0}}
LEARNS = {"optimiser": {"kind": "adamw", "lr": 2e-2}}


def quiet(_: str) -> None:
    pass


def bench(*cases: dict[str, Any], **more: Any) -> Any:
    return read_bench("small", {**TABLES, "cases": list(cases), **more})


def test_a_case_says_only_what_differs() -> None:
    case = {"method": {"name": "fdml"}, "data": {"parties": 4}, "model": {"hidden": 5}, "training": {"rounds": 2}}
    given = bench(case)
    [(_, [run], chosen)] = each_case(given, read_cases(given, Case), Options(seeds=1), quiet)
    assert len(run.models) == 4
    assert (run.training.rounds, run.training.schedule.shuffle, chosen) == (2, "once", None)
    assert run.config is not None and run.config["model"] == {"hidden": 5, "embedding": 6}


def test_the_try_with_the_best_validation_score_is_trained_and_named() -> None:
    case = {"method": {"name": "fdml"}, "tries": [{"method": FROZEN}, {"method": LEARNS, "training": {"rounds": 20}}]}
    told: list[str] = []
    found = run_zoo(bench(case), Options(seeds=2), told.append)
    assert found.results["chosen.fdml"] == 1 and found.results["rounds.fdml"] == 20
    assert any("validation scores" in line for line in told)
    worse = run_zoo(bench({**case, "tries": [{"method": FROZEN}]}), Options(seeds=1), quiet)
    assert (worse.results["test_accuracy.fdml"] or 0) < (found.results["test_accuracy.fdml"] or 0)
    assert "chosen.fdml" not in worse.results  # there was no choice


def test_under_label_privacy_true_labels_may_choose(tmp_path: Path) -> None:
    """Scores of noisy labels of few rows are hardly better than a draw."""
    noisy = {"labels": {"mechanism": "alibi", "epsilon": 3.0}}
    tries = [{"method": FROZEN}, {"method": LEARNS, "training": {"rounds": 30}}]
    case = {"method": {"name": "local_only"}, "privacy": noisy, "tries": tries, "judged_by": "true labels", "seeds": 1}
    told: list[str] = []
    given = bench({**case, "budgets": ["eps"]}, kind="private")
    results = run_private(given, Options(seeds=1, runs=tmp_path / "runs"), told.append)
    said = next(line for line in told if "true labels" in line)
    first, second = (float(word) for word in said.replace("%", "").replace(",", "").split()[-2:])
    assert second > first + 20 and results["chosen_eps.local_only"] == 1
    recorded = Run.load(tmp_path / "runs" / "eps.local_only-try-1").result["validation_score"]
    assert abs(100 * (recorded or 0) - second) > 1  # noisy labels say something else
    again = run_private(given, Options(seeds=1, runs=tmp_path / "runs"), quiet)
    assert again == results


def test_tries_see_no_test_row(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    from colonnade.job import Job

    real = Job.fit
    monkeypatch.setattr(
        Job, "fit", lambda job, data, *a, **k: (seen.append(len(data.split.test)), real(job, data, *a, **k))[1]
    )
    run_zoo(bench({"method": {"name": "fdml"}, "tries": [{}, {"method": LEARNS}]}), Options(seeds=2), quiet)
    assert seen[:2] == [0, 0] and seen[2] > 0 and len(seen) == 3  # the chosen try is the run of the first seed


NOISE = {"mechanism": "gaussian", "clip": 0.5, "epsilon": 50.0, "evaluation": "simulated"}


def runs_of(case: dict[str, Any], seeds: int = 1) -> list[Run]:
    given = bench(case)
    ((_, runs, _),) = each_case(given, read_cases(given, Case), Options(seeds=seeds), quiet)
    return runs


@pytest.mark.parametrize("method", [{"name": "vimadmm", "local_steps": 2}, {"name": "centralized"}], ids=str)
def test_the_chosen_try_is_measured_as_a_training_with_test_rows_in_sight(method: dict[str, Any]) -> None:
    training = {"rounds": 6, "dtype": "float64", "schedule": {"batch": 2000}}  # all rows: no order to differ in
    (tried,) = runs_of({"method": method, "training": training, "tries": [{}, {}]})
    (trained,) = runs_of({"method": method, "training": training})
    assert tried.result.keys() == trained.result.keys() - {"binned"}  # of reports
    for key in ("test_score", "test_interval", "test_accuracy", "baseline_score", "best_round", "class_accuracy_std"):
        assert tried.result[key] == pytest.approx(trained.result[key], abs=1e-6), key  # type: ignore[literal-required]
    assert tried.result["confusion"] == trained.result["confusion"]
    assert tried.result["metrics"].keys() == trained.result["metrics"].keys()


def test_under_noise_the_chosen_try_is_measured_without_it_as_evaluations_are() -> None:
    noise = {"mechanism": "gaussian", "clip": 0.5, "epsilon": 50.0, "evaluation": "simulated"}
    case = {"method": {"name": "vimadmm", "local_steps": 1, "head_update": "sgd"}, "privacy": noise, "tries": [{}, {}]}
    (run,) = runs_of(case)
    federation = load_set("digits", parties=2)
    rows = federation.split.test
    right = (run.predict(federation.select(rows)) == federation.labels[rows].numpy()).mean()
    assert run.result["test_score"] == pytest.approx(right)


def test_a_try_without_the_signal_is_trained_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    clips: list[float | None] = []
    from colonnade.job import Job

    real = Job.fit
    monkeypatch.setattr(Job, "fit", lambda job, *a, **k: (clips.append(job.privacy.clip), real(job, *a, **k))[1])
    runs_of({"method": {"name": "vimadmm", "local_steps": 1}, "tries": [{}, {"method": {"rho": 2.0}}], "signal": False})
    assert len(clips) == 2 and all(clip is not None and clip < 1e-9 for clip in clips)


def test_a_try_with_a_strange_section_is_refused() -> None:
    given = bench({"method": {"name": "fdml"}, "tries": [{"metod": {}}]})
    with pytest.raises(ConfigError, match="has a section 'metod'"):
        run_zoo(given, Options(seeds=1), quiet)


def test_without_the_signal_the_noise_is_the_same_and_the_uploads_are_gone() -> None:
    noise = {"mechanism": "gaussian", "clip": 0.5, "epsilon": 4.0, "evaluation": "simulated"}
    case = {"method": {"name": "vimadmm", "local_steps": 1}, "privacy": noise}
    given = bench(case, {**case, "key": "no_signal", "signal": False})
    (_, [loud], _), (_, [silent], _) = each_case(given, read_cases(given, Case), Options(seeds=1), quiet)
    sizes = [
        {round(r.event.clipped.clip * r.event.clipped.sigma, 9) for r in run.ledger if r.event.clipped is not None}
        for run in (loud, silent)
    ]
    assert sizes[0] == sizes[1] and len(sizes[0]) == 1
    results = run_private(
        bench({**case, "key": "gone", "signal": False, "budgets": ["eps4"]}, {**case, "budgets": ["eps4"]}),
        Options(seeds=1),
        quiet,
    )
    assert results["epsilon_spent_eps4.gone"] == 0 and results["epsilon_spent_eps4.vimadmm"] == pytest.approx(
        4, abs=1e-6
    )
    assert (results["epsilon_rdp_eps4.vimadmm"] or 0) > 4.1  # the paper's formula gives more for the same noise


def test_a_sweep_gives_every_case_every_value_and_keeps_curves() -> None:
    cases = ({"method": {"name": "vimadmm", "local_steps": 1}}, {"method": {"name": "fdml"}})
    values = {"setting": "training.schedule.participation", "values": [0.5, 1.0]}
    found = run_sweep(bench(*cases, kind="sweep", sweep=values), Options(seeds=2), quiet)
    assert [key for key in found.results if key.startswith("test_accuracy.")] == [
        "test_accuracy.vimadmm_0.5", "test_accuracy.vimadmm_1", "test_accuracy.fdml_0.5", "test_accuracy.fdml_1",
    ]  # fmt: skip
    assert list(found.curves) == ["vimadmm_0.5", "vimadmm_1", "fdml_0.5", "fdml_1"]
    assert all([number for number, _ in curve] == [2, 4] for curve in found.curves.values())
    assert found.results["class_accuracy_std.fdml_1"] is not None


def test_a_value_reaches_into_a_table_and_leaves_the_rest_of_it() -> None:
    settings = SweepSettings(setting="training.schedule.batch", values=(32, 64))
    cases = swept([Case(method={"name": "fdml"})], settings, TABLES)
    assert [case.name for case in cases] == ["fdml_32", "fdml_64"]
    assert cases[1].training["schedule"] == {"batch": 64, "shuffle": "once"}


@pytest.mark.parametrize("sweep", [{}, {"setting": "rho", "values": [1]}, {"setting": "method.rho", "values": []}])
def test_a_sweep_of_nothing_is_refused(sweep: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="sweep"):
        run_sweep(bench({"method": {"name": "vimadmm"}}, kind="sweep", sweep=sweep), Options(seeds=1), quiet)


def test_cases_are_chosen_by_name_or_by_what_their_results_end_in() -> None:
    cases = [PrivateCase(method={"name": "fdml"}, budgets=(b,)) for b in ("eps8", "eps1")]
    assert selected(cases, Options()) == selected(cases, Options(only=("fdml",))) == cases
    assert selected(cases, Options(only=("eps1.fdml",))) == cases[1:]
    with pytest.raises(ConfigError, match="--only fdlm: there is no such case"):
        selected(cases, Options(only=("fdlm",)))


def test_parts_of_one_commit_are_joined_and_others_refused(tmp_path: Path) -> None:
    path, here = tmp_path / "r.json", machine("cpu")
    first = Outcome("b", {"score.a": 1.0}, {}, here, commit(), {"a": ((1, 2.0),)})
    second = Outcome("b", {"score.b": 2.0}, {}, here, commit(), {"b": ((1, 3.0),)})
    write(first, path)
    check_part(path, "b", "cpu")
    write(joined(second, path), path)
    assert read(path).results == {"score.a": 1.0, "score.b": 2.0} and set(read(path).curves) == {"a", "b"}
    path.write_text(json.dumps({**json.loads(path.read_text()), "commit": "0" * 40}))
    with pytest.raises(ConfigError, match="do not belong to it"):
        check_part(path, "b", "cpu")


def test_only_needs_cases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "fast.toml").write_text('title = "t"\nkind = "speed"\n')
    with pytest.raises(ConfigError, match="has no cases to choose from"):
        measure("fast", Options(only=("a",)), None, quiet)


def test_a_curve_leaves_out_what_is_no_number() -> None:
    scores = ({2: 0.5, 4: float("nan")}, {2: 0.7, 4: 0.9})
    runs = [SimpleNamespace(history=[{"round": n, "score": s} for n, s in one.items()]) for one in scores]
    assert curve(cast(list[Run], runs)) == ((2, 60.0),)
