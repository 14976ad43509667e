"""The benchmark of the audit, small: what it counts, that a bug it cannot see is not counted, and its own file."""

from __future__ import annotations

from typing import Any

import pytest

from colonnade.audit.bugs import BUGS
from colonnade.audit.trial import Trial
from colonnade.bench import audit as bench_audit
from colonnade.bench.audit import AuditBenchSettings, ledger_seen, margin, run_audit
from colonnade.bench.catalogue import CHECKOUT, Limit, find, read_bench
from colonnade.bench.settings import Options
from colonnade.config import build
from colonnade.privacy.gaussian import Gaussian, SeededNoise

CASE = {"sigma": 1.0, "releases": 2, "runs": 250}


def small(**changes: Any) -> Any:
    tables = {"seeds": 1, "rounds": 2, "workers": 1, "games": [CASE], **changes}
    return read_bench("x", {"title": "t", "kind": "audit", "audit": tables})


def test_every_bug_is_counted_and_correct_code_is_below() -> None:
    told: list[str] = []
    results = run_audit(small(), Options(), told.append)
    assert {key for key in results if key.startswith("caught.")} == {f"caught.{bug}" for bug in BUGS}
    assert results["bugs_caught"] == results["bugs"] == len(BUGS)
    assert (results["correct_below"], results["ledger_clean"], results["seeds"]) == (1, 1, 1)
    assert results["smallest_margin"] is not None
    assert results["smallest_margin"] > 0
    assert told == [f"seed 0: smallest margin {results['smallest_margin']:.3f}, missed: none"]


def test_a_game_that_is_too_short_catches_nothing_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """The count falls where the statistics do not carry it."""
    monkeypatch.setattr(bench_audit, "ledger_seen", lambda seed, rounds, forget: ())
    results = run_audit(small(games=[{**CASE, "runs": 8}]), Options(), lambda _: None)
    assert results["caught.half_noise"] == results["caught.unlogged_release"] == 0
    assert results["bugs_caught"] == 0
    assert results["correct_below"] == 1


def test_correct_code_that_is_above_its_ledger_would_be_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_audit, "margin", lambda trial, seed, bug=None: -0.1)
    results = run_audit(small(), Options(), lambda _: None)
    assert results["correct_below"] == 0
    assert results["smallest_margin"] == -0.1


def test_the_figure_is_that_of_the_gates_own_ledger() -> None:
    trial = Trial(Gaussian(0.5, 2.0, SeededNoise(1)), 0.5, 2.0, releases=4, runs=100)
    assert margin(trial, 1) + trial.bound(1).epsilon == pytest.approx(trial.claimed)


@pytest.mark.parametrize("forgotten", range(0, 6, 2))
def test_each_upload_that_is_forgotten_is_named(forgotten: int) -> None:
    (problem,) = ledger_seen(0, 2, forgotten)
    assert f"TRAIN of 'party_{forgotten % 3 + 1}' (first: round {forgotten // 3 + 1})" in problem


def test_reused_noise_needs_a_case_that_can_show_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, str | None]] = []

    def note(trial: Trial, seed: int, bug: str | None = None) -> float:
        asked.append((trial.releases, bug))
        return 1.0

    monkeypatch.setattr(bench_audit, "margin", note)
    run_audit(small(games=[{**CASE, "releases": 1}, CASE]), Options(), lambda _: None)
    assert (2, "reused_noise") in asked
    assert (1, "reused_noise") not in asked
    assert (1, "shared_noise") in asked


def test_the_shipped_file_asks_for_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(CHECKOUT)
    bench = find("audit")
    settings = build(AuditBenchSettings, bench.tables["audit"], "audit")
    limits = bench.limits("cpu")
    assert limits["correct_below"] == limits["ledger_clean"] == Limit(at_least=settings.seeds)
    assert limits["bugs_caught"] == Limit(at_least=len(BUGS))
    assert all(limits[f"caught.{bug}"] == Limit(at_least=settings.seeds) for bug in BUGS)
    first = settings.games[0]
    assert (settings.seeds, first.sigma, first.releases, first.runs) == (20, 1.0, 1, 1000)
    assert any(game.releases > 1 for game in settings.games)
