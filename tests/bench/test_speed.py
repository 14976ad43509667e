"""The speed benchmark runs on tiny sizes and reports every promised key. How fast is not asked here."""

import math

import pytest
import torch

from colonnade.bench.catalogue import CHECKOUT, find, read_bench
from colonnade.bench.clock import available_cores, medians, resident_mb, seconds, torch_threads
from colonnade.bench.convolutions import compare_cnn_steps
from colonnade.bench.settings import Options, Shape, SpeedSettings
from colonnade.bench.speed import run_speed
from colonnade.models.computing import Computing

TINY = {"columns": [2, 4], "rows": 48, "batch": 16, "local_steps": 2, "hidden": 8, "embedding": 4}
SPEED = {
    "mnist": {**TINY, "parties": 3},
    "rounds": 1,
    "published_rounds": 1,
    "loader_workers": 1,
    "zsteps": 1,
    "steps": 2,
    "growth": [2, 4],
    "growth_shape": TINY,
    "growth_rounds": 1,
    "memory_shape": {**TINY, "parties": 2},
    "memory_rounds": [2, 4],
}
CPU = torch.device("cpu")


def test_every_target_has_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(CHECKOUT)
    said: list[str] = []
    results = run_speed(read_bench("x", {"title": "t", "kind": "speed", "speed": SPEED}), Options(), said.append)
    assert set(find("speed").limits("cpu")) <= set(results)
    assert set(find("speed").limits("cuda")) - {"cnn_step_ratio"} <= set(results)
    assert {"ms_per_round", "baseline_ms_per_round", "gate_share", "us_per_party_row_4"} <= set(results)
    for key, value in results.items():
        assert value is not None and math.isfinite(value), key
    for kind in ("", "noised_", "simulated_noise_"):
        assert 0 < results[f"{kind}gate_share"] < 1 and results[f"{kind}gate_ms"] > 0  # type: ignore[operator]
    assert results["zstep_gap"] < 1e-3  # type: ignore[operator]
    assert said


def test_convolutional_steps_are_compared() -> None:
    """On a GPU also compiled; here, where compiling takes longer than the test, only rounded."""
    shape = Shape(parties=2, columns=(3, 6, 6), rows=32, batch=16, local_steps=1, embedding=4, lr=0.01, encoder="cnn")
    results = compare_cnn_steps(SpeedSettings(cnn=shape, steps=1), CPU, lambda _: None, Computing("bfloat16"))
    assert set(results) == {"cnn_step_ratio", "cnn_step_ms", "eager_cnn_step_ms", "cnn_step_gap"}
    assert results["cnn_step_ratio"] == pytest.approx(results["eager_cnn_step_ms"] / results["cnn_step_ms"])  # type: ignore[operator]
    assert 0 < results["cnn_step_gap"] < 0.5  # type: ignore[operator]


@pytest.mark.gpu
def test_convolutional_steps_are_at_least_three_times_faster_than_eager_float32() -> None:
    results = compare_cnn_steps(SpeedSettings(), torch.device("cuda"), lambda _: None)
    assert results["cnn_step_ratio"] >= 3, results  # type: ignore[operator]


def test_the_clock_takes_turns_and_leaves_out_the_warm_up() -> None:
    calls: list[str] = []
    taken = medians({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, 2, CPU, warm_up=1)
    assert "".join(calls) == "ababab"
    assert set(taken) == {"a", "b"} and all(value >= 0 for value in taken.values())
    assert seconds(lambda: None, CPU) >= 0


def test_threads_are_given_back() -> None:
    before = torch.get_num_threads()
    with torch_threads(before + 1):
        assert torch.get_num_threads() == before + 1
    assert torch.get_num_threads() == before
    assert available_cores() >= 1


def test_resident_memory_sees_what_is_held() -> None:
    before = resident_mb()
    if before is None:
        pytest.skip("no /proc on this system")
    held = torch.ones(100_000_000)  # 400 MB: some of it may be memory that an earlier test gave back
    assert 200 < (resident_mb() or 0) - before < 450
    del held
