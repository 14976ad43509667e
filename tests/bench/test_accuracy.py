"""Rounds and bytes until an accuracy, counted on a run made by hand; means over seeds."""

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from colonnade.bench.accuracy import bytes_to, rounds_to, run_accuracy, summarise
from colonnade.bench.catalogue import read_bench
from colonnade.bench.settings import Options
from colonnade.run import Run
from colonnade.wire.traffic import RoundTraffic, Traffic


def run_round(number: int, up: int, down: int, multicast: int) -> RoundTraffic:
    return RoundTraffic(number, np.array([up, up]), np.array([down, down]), multicast, 1000, 1000)


# Round 1 carries rows only; 2 and 3 carry replies; 4 the last reply, and asks for evaluation only.
TRAFFIC = Traffic(
    ("a", "b"), [run_round(1, 10, 1, 1), run_round(2, 10, 5, 7), run_round(3, 10, 5, 7), run_round(4, 0, 4, 6)]
)


def made_run(scores: dict[int, float], test: float | None = 0.9) -> Run:
    history: list[dict[str, Any]] = [{"round": n, "primal": 1.0, "score": s} for n, s in scores.items()]
    best = max(scores.values()) if scores else None
    result = {"test_score": test, "validation_score": best, "rounds": 3, "seconds": 2.0}
    return cast(Run, SimpleNamespace(history=[{"round": 0, "primal": 1.0}, *history], traffic=TRAFFIC, result=result))


def test_the_first_round_that_reaches_counts() -> None:
    run = made_run({1: 0.5, 2: 0.96, 3: 0.9})
    assert rounds_to(run, 96.0) == 2
    assert rounds_to(run, 50.0) == 1
    assert rounds_to(run, 97.0) is None


@pytest.mark.parametrize(
    ("rounds", "each", "multicast"),
    [
        (1, 2 * (1 + 10 + 5), (1 + 20 + 7)),  # rows, uploads, and the reply that comes with the second order
        (2, 2 * (1 + 10 + 5 + 10 + 5), (1 + 20 + 7 + 20 + 7)),
        (3, 2 * (1 + 10 + 5 + 10 + 5 + 10 + 4), (1 + 20 + 7 + 20 + 7 + 20 + 6)),
    ],
)
def test_bytes_include_the_reply_but_not_the_next_upload(rounds: int, each: int, multicast: int) -> None:
    assert bytes_to(TRAFFIC, rounds) == each
    assert bytes_to(TRAFFIC, rounds, multicast=True) == multicast
    below, above = TRAFFIC.until(rounds), TRAFFIC.until(rounds + 1)
    assert below < bytes_to(TRAFFIC, rounds) <= above


def test_a_summary_is_the_mean_of_the_seeds() -> None:
    first, second = made_run({1: 0.5, 2: 0.96}, 0.97), made_run({1: 0.96}, 0.99)
    results = summarise([first, second], 96.0)
    assert results["test_accuracy"] == pytest.approx(98.0)
    assert results["test_accuracy_std"] == pytest.approx(2**0.5)  # of a sample
    assert results["validation_accuracy"] == pytest.approx(96.0)
    assert (results["rounds_to_96"], results["rounds_to_96_worst"]) == (1.5, 2)
    assert results["mb_to_96"] == pytest.approx((62 + 32) / 2 / 1e6)
    assert results["mb_to_96_multicast"] == pytest.approx((55 + 28) / 2 / 1e6)
    assert (results["rounds"], results["seconds"]) == (3, 2.0)


def test_one_seed_that_never_gets_there_spoils_the_mean() -> None:
    results = summarise([made_run({1: 0.5}), made_run({1: 0.96})], 96.0)
    assert results["rounds_to_96"] is None and results["rounds_to_96_worst"] is None and results["mb_to_96"] is None
    assert summarise([made_run({}, None)], None)["test_accuracy"] is None


def test_a_small_job_is_run_with_every_seed() -> None:
    said: list[str] = []
    bench = read_bench(
        "small",
        {
            "title": "t",
            "kind": "accuracy",
            "reach": 5.0,
            "data": {"set": "digits", "parties": 2},
            "training": {"rounds": 2, "evaluate_every": 1, "schedule": {"batch": 64}},
        },
    )
    results = run_accuracy(bench, Options(seeds=2), said.append)
    assert results["rounds"] == 2
    assert results["rounds_to_5"] is not None and results["mb_to_5"] is not None
    assert results["mb_to_5_multicast"] is not None and results["mb_to_5_multicast"] < results["mb_to_5"]
    assert {line.split(":")[0] for line in said} == {"seed 0", "seed 1"}
