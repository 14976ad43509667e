"""The reading benchmark on small tables: what it measures, and that it reads what it made up."""

from __future__ import annotations

import mmap
import time
from multiprocessing import Pipe
from pathlib import Path
from shutil import disk_usage

import numpy as np
import pytest

from colonnade import mapped
from colonnade.bench import tables_scale
from colonnade.bench.catalogue import read_bench
from colonnade.bench.settings import Options
from colonnade.bench.tables_scale import (
    Found,
    Memory,
    TablesScaleSettings,
    _read,
    anonymous_bytes,
    make_files,
    run_tables_scale,
)
from colonnade.errors import DataError
from colonnade.federation import Federation
from tests.processes import warm

SIZES = {"rows": 300, "numbers": 6, "texts": 4, "levels": 3, "many": 0}


def test_it_measures_both_kinds_of_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables_scale, "get_context", lambda kind: warm())  # a process for each reading all the same
    bench = read_bench("tables-scale", {"title": "t", "kind": "tables_scale", "tables_scale": SIZES})
    told: list[str] = []
    results = run_tables_scale(bench, Options(), told.append)
    assert results["read_seconds"] == max(results["read_seconds.csv"], results["read_seconds.parquet"]) > 0
    assert results["memory_ratio"] is not None and results["arrow_gb"] > 0
    assert "reading 300 rows from csv" in told


def test_many_rows_are_read_and_trained_on_and_held_against_few(monkeypatch: pytest.MonkeyPatch) -> None:
    def here(folder: Path, ending: str, rounds: int = 0) -> Found:
        ours, theirs = Pipe()  # what the process does, without the seconds that its start takes
        _read(theirs, str(folder), ending, rounds)
        return ours.recv()

    monkeypatch.setattr(tables_scale, "_measured", here)
    monkeypatch.setattr(mapped, "IN_MEMORY", 50_000)
    settings = TablesScaleSettings(**{**SIZES, "rows": 600, "many": 6000, "rounds": 1})
    told: list[str] = []
    results = tables_scale._many_rows(settings, Found(1.0, 1.0, 1e9), told.append)
    assert results["memory_ratio_10m"] == pytest.approx(results["memory_mb_10m"] / 1000)
    assert results["memory_mb"] == 1000 and results["read_seconds_10m"] > 0 and results["train_seconds_10m"] > 0
    assert "reading 6,000 rows from parquet, and 1 rounds of training" in told


def test_too_small_a_disk_is_said_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables_scale.shutil, "disk_usage", lambda folder: disk_usage(folder)._replace(free=10**9))
    bench = read_bench("tables-scale", {"title": "t", "kind": "tables_scale"})
    with pytest.raises(DataError, match=r"needs about 41 GB in .*, which has 1 GB; set TMPDIR"):
        run_tables_scale(bench, Options(), lambda line: None)


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
