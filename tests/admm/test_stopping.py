"""When to stop, and the reason in words."""

from __future__ import annotations

import json

import pytest

from colonnade.admm.stopping import Stopping, Watch
from colonnade.fit import fit
from colonnade.methods import VIMADMMJ
from tests.federations import small
from tests.trainers import TINY


def watched(scores: list[float], **rules: float) -> tuple[Watch, list[tuple[bool, str | None]]]:
    watch = Watch(Stopping(**rules))
    return watch, [watch.see(score, number) for number, score in enumerate(scores, start=1)]


def test_the_best_round_is_the_first_of_its_score() -> None:
    watch, seen = watched([0.5, 0.7, 0.7, 0.6, 0.7])
    assert (watch.best, watch.best_round) == (0.7, 2)
    assert [better for better, _ in seen] == [True, True, False, False, False]


def test_a_fall_below_the_best_stops() -> None:
    _, seen = watched([0.9, 0.885, 0.8801, 0.8799], drop=0.02, grace=0, in_a_row=1)
    reasons = [reason for _, reason in seen]
    assert reasons[:3] == [None, None, None]
    assert reasons[3] == "validation score 0.8799 is worse by more than 0.02 (best 0.9000, round 1)"


def test_early_rounds_may_wander() -> None:
    _, seen = watched([0.9, 0.1, 0.1, 0.1], drop=0.02, grace=3, in_a_row=1)
    assert [reason is None for _, reason in seen] == [True, True, True, False]


def test_a_single_bad_evaluation_stops_nothing() -> None:
    """Networks with large steps fall now and then, and recover: 12 of 22 kept curves of CIFAR would have ended."""
    _, seen = watched([0.7, 0.6, 0.6, 0.71, 0.6, 0.6, 0.69, 0.6, 0.6], grace=0)
    assert all(reason is None for _, reason in seen)


def test_staying_low_stops() -> None:
    _, seen = watched([0.7, 0.6, 0.6, 0.71, 0.6, 0.62, 0.6], grace=0)
    assert [reason is None for _, reason in seen] == [True] * 6 + [False]
    assert seen[-1][1] == "validation score 0.6000 is worse by more than 0.02, 3 times in a row (best 0.7100, round 4)"


def test_a_watch_of_before_it_was_counted_can_be_read() -> None:
    watch, _ = watched([0.5, 0.7])
    old = {name: value for name, value in watch.to_json().items() if name != "low"}
    again = Watch(watch.rules)
    again.load(old)  # type: ignore[arg-type]
    assert again == watch


def test_patience_counts_evaluations_without_a_rise() -> None:
    _, seen = watched([0.5, 0.6, 0.6, 0.6, 0.6], patience=3)
    assert [reason is None for _, reason in seen] == [True, True, True, True, False]
    assert seen[-1][1] == "converged: no better in 3 evaluations (best 0.6000, round 2)"


def test_patience_may_ask_for_more_than_a_hair() -> None:
    creeping = [0.5 + 0.001 * n for n in range(10)]
    assert all(reason is None for _, reason in watched(creeping, patience=3)[1])
    watch, seen = watched(creeping, patience=3, rise=0.01)
    assert seen[3][1] is not None
    assert watch.best == creeping[-1]  # still the best, though not a rise that counts


def test_slow_creeping_counts_as_a_rise_in_the_end() -> None:
    creeping = [0.5 + 0.004 * n for n in range(12)]
    assert all(reason is None for _, reason in watched(creeping, patience=4, rise=0.01)[1])


def test_no_patience_means_never() -> None:
    assert all(reason is None for _, reason in watched([0.5] * 50)[1])


@pytest.mark.parametrize("scores", [[], [0.5, 0.7, 0.6], [0.7, 0.6, 0.6]])
def test_a_watch_survives_json(scores: list[float]) -> None:
    watch, _ = watched(scores, patience=5)
    again = Watch(watch.rules)
    again.load(json.loads(json.dumps(watch.to_json(), allow_nan=False)))
    assert again == watch


class TestInARun:
    def test_it_stops_early_and_keeps_the_best(self) -> None:
        run = fit(small(), VIMADMMJ(), rounds=200, evaluate_every=1, model=TINY, stopping={"patience": 4})
        assert run.result["stop"].startswith("converged")
        assert run.result["rounds"] == run.history[-1]["round"] + 1 < 200
        scores = {h["round"]: h["score"] for h in run.history if "score" in h}
        assert run.result["validation_score"] == max(scores.values()) == scores[run.result["best_round"]]
        assert not run.result["diverged"]

    def test_without_validation_rows_it_runs_to_the_end(self) -> None:
        run = fit(small(), VIMADMMJ(), rounds=3, evaluate_every=0, model=TINY, stopping={"patience": 1})
        assert run.result["stop"] == "all rounds done"
        assert run.result["rounds"] == 3
        assert run.result["best_round"] is None
        assert run.accuracy is not None


def test_the_reason_is_in_the_unit_of_the_metric() -> None:
    """Inside, errors are shares of what a constant guess has, with a sign."""
    stopping = {"patience": 2, "rise": 10.0}  # no rise is large enough
    chosen = {"rounds": 9, "evaluate_every": 1, "stopping": stopping, "metric": "rmse"}
    run = fit(small(task="regression"), VIMADMMJ(local_steps=2), model=TINY, **chosen)
    best = min(entry["score"] for entry in run.history if entry.get("score") is not None)
    assert run.result["stop"] == f"converged: no better in 2 evaluations (best {best:.4f}, round 3)"
