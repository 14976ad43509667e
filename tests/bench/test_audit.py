"""The benchmark of the audit, small: what it counts, that a bug it cannot see is not counted, and its own file."""

from __future__ import annotations

from typing import Any

import pytest

from colonnade.audit.bugs import MISTAKES
from colonnade.audit.checks import Check
from colonnade.audit.target import Target
from colonnade.bench import audit as bench_audit
from colonnade.bench.audit import BUGS, BY_GAMES, AuditBenchSettings, ledger_seen, run_audit
from colonnade.bench.catalogue import CHECKOUT, Limit, find, read_bench
from colonnade.bench.settings import Options
from colonnade.config import build


def small(**changes: Any) -> Any:
    tables = {
        "seeds": 1,
        "rounds": 2,
        "workers": 1,
        "width": 4,
        "games": 60,
        "fewer_games": 40,
        "row_games": 500,
        **changes,
    }
    return read_bench("x", {"title": "t", "kind": "audit", "audit": tables})


def test_every_bug_is_counted_and_correct_code_is_not_accused() -> None:
    told: list[str] = []
    results = run_audit(small(), Options(), told.append)
    assert {key for key in results if key.startswith("caught.")} == {f"caught.{bug}" for bug in BUGS}
    assert results["bugs_caught"] == results["bugs"] == len(BUGS)
    assert (results["correct_below"], results["ledger_clean"], results["seeds"]) == (1, 1, 1)
    assert results["smallest_margin"] is not None and results["smallest_margin"] > 0
    assert results["smallest_p"] is not None and results["smallest_p"] > 1e-4
    assert results["games.weak_noise"] == 0  # so few games do not show it; the full shape does
    assert told[0].startswith("seed 0: smallest margin") and told[0].endswith("missed: none")


def test_every_planted_bug_is_played() -> None:
    assert set(MISTAKES) - {"none"} < set(BUGS)
    assert len(BUGS) >= 10 and set(BY_GAMES) < set(BUGS)


def test_what_is_missed_and_correct_code_that_is_accused_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = Check("x", "it is wrong", p=1e-9, failed=True, facts={"epsilon": 2.0, "claimed": 1.0})
    monkeypatch.setattr(bench_audit, "ledger_seen", lambda seed, rounds, forget: ())
    monkeypatch.setattr(bench_audit, "_correct", lambda settings, seed: iter([wrong]))
    monkeypatch.setattr(bench_audit, "first_failure", lambda target, seed: None)
    monkeypatch.setattr(Target, "in_games", lambda self, seed, games=None: iter(()))
    told: list[str] = []
    results = run_audit(small(), Options(), told.append)
    assert (results["correct_below"], results["smallest_margin"], results["smallest_p"]) == (0, -1.0, 1e-9)
    assert results["caught.weak_noise"] == results["games.weak_noise"] == results["caught.unlogged_release"] == 0
    assert "correct code accused: x" in told[0] and "missed: half_noise, weak_noise" in told[0]


@pytest.mark.parametrize("forgotten", range(0, 6, 2))
def test_each_upload_that_is_forgotten_is_named(forgotten: int) -> None:
    (problem,) = ledger_seen(0, 2, forgotten)
    assert f"TRAIN of 'party_{forgotten % 3 + 1}' (first: round {forgotten // 3 + 1})" in problem


def test_the_shipped_file_asks_for_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(CHECKOUT)
    bench = find("audit")
    settings = build(AuditBenchSettings, bench.tables["audit"], "audit")
    limits = bench.limits("cpu")
    everything = Limit(at_least=settings.seeds)
    assert limits["correct_below"] == limits["ledger_clean"] == everything
    assert limits["bugs_caught"] == Limit(at_least=len(BUGS))
    assert all(limits[f"caught.{bug}"] == everything for bug in BUGS)
    assert all(limits[f"games.{bug}"] == everything for bug in BY_GAMES)
    assert (settings.seeds, settings.games, settings.rows) == (20, None, 1024)  # games: the audit's own choice
