"""The reading benchmark on small tables: what it measures, and that it reads what it made up."""

from __future__ import annotations

import mmap
import time
from pathlib import Path

import numpy as np
import pytest

from colonnade.bench.catalogue import read_bench
from colonnade.bench.settings import Options
from colonnade.bench.tables_scale import Memory, TablesScaleSettings, anonymous_bytes, make_files, run_tables_scale
from colonnade.federation import Federation

SIZES = {"rows": 300, "numbers": 6, "texts": 4, "levels": 3, "many": 600, "rounds": 1}


def test_it_measures_both_kinds_of_files() -> None:
    bench = read_bench("tables-scale", {"title": "t", "kind": "tables_scale", "tables_scale": SIZES})
    told: list[str] = []
    results = run_tables_scale(bench, Options(), told.append)
    assert results["read_seconds"] == max(results["read_seconds.csv"], results["read_seconds.parquet"]) > 0
    assert results["memory_ratio"] is not None and results["arrow_gb"] > 0
    assert "reading 300 rows from csv" in told
    assert results["memory_ratio_10m"] == pytest.approx(results["memory_mb_10m"] / results["memory_mb"])
    assert results["train_seconds_10m"] > 0 and "reading 600 rows from parquet, and 1 rounds of training" in told


def test_both_kinds_of_files_hold_the_same_tables(tmp_path: Path) -> None:
    make_files(tmp_path, TablesScaleSettings(**SIZES), lambda line: None)
    made = [
        Federation.from_tables({p: tmp_path / f"{p}.{e}" for p in ("bank", "telco")}, labels="churn", id="customer")
        for e in ("csv", "parquet")
    ]
    assert [tuple(party.columns.shape) for party in made[0].parties] == [(300, 3 + 2 * 3)] * 2
    for one, other in zip(made[0].parties, made[1].parties, strict=True):
        assert one.columns.equal(other.columns)


def test_memory_is_that_of_the_process_at_its_highest() -> None:
    assert anonymous_bytes() is not None
    with Memory() as memory:
        # Straight from the system: an allocator may have free memory of earlier tests at hand.
        block = mmap.mmap(-1, 40_000_000, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        np.frombuffer(block, dtype=np.uint8)[:] = 1
        deadline = time.monotonic() + 30
        while not (memory.growth and memory.growth > 35e6) and time.monotonic() < deadline:
            time.sleep(0.01)  # the watching thread may wait for a busy machine
    assert memory.growth is not None and memory.growth > 35e6
