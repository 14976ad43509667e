"""The benchmarks of separate organisations, small: real server, real processes, real kills."""

from __future__ import annotations

from dataclasses import replace

import pytest

from colonnade.bench.catalogue import find
from colonnade.bench.deployment import run_deployment
from colonnade.bench.faults import run_faults
from colonnade.bench.settings import Options
from tests.nats_server import needs_nats

pytestmark = needs_nats
SMALL = {"columns": [4], "rows": 64, "batch": 32, "local_steps": 1, "hidden": 4, "embedding": 3}


def test_deployment_measures_what_it_says() -> None:
    sizes = {
        "parties": [2], "rounds": 5, "repeats": 1, "shape": SMALL, "memory_parties": 2, "memory_shape": SMALL,
        "memory_rounds": [5, 15],
    }  # fmt: skip
    bench, told = replace(find("deployment"), tables={"deployment": sizes}), list[str]()
    results = run_deployment(bench, Options(), told.append)
    assert results.keys() >= {"overhead_ms_m2", "round_ms_m2", "loop_ms_m2", "stacked_ms_m2", "memory_growth_mb"}
    assert results["stream_messages"] == 0  # nothing of a finished run stays on the server
    assert results["overhead_ms_m2"] == pytest.approx(results["round_ms_m2"] - results["loop_ms_m2"])
    assert any("nats-server" in line for line in told)


def test_a_disturbed_run_ends_like_one_left_in_peace() -> None:
    sizes = {"runs": 1, "kills": 3, "parties": 2, "rounds": 8, "pause": 0.02, "cases": []}
    results = run_faults(replace(find("faults"), tables={"faults": sizes}), Options(), lambda text: None)
    assert (results["identical_runs"], results["kills"]) == (1, 3)
