"""Reading at scale: made-up tables of two parties as files, joined and encoded in a process of its own.

The process imports what it needs first; then time and growth of its anonymous memory are taken, which is what it cannot
give back to the system: pages of mapped files are not in it.
"""

from __future__ import annotations

import tempfile
import threading
import time
from multiprocessing import get_context
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from colonnade.bench.catalogue import Bench
from colonnade.bench.settings import Notify, Options
from colonnade.config import Settings, build
from colonnade.errors import DataError
from colonnade.extras import need
from colonnade.randomness import stream

PARTIES = ("bank", "telco")
STATUS = Path("/proc/self/status")
PERIOD = 0.005  # seconds between two looks at the memory
AT_ONCE = 50_000  # rows that are made up at once


class TablesScaleSettings(Settings):
    """Sizes of the tables, both parties together."""

    rows: int = Field(1_000_000, ge=100, description="rows of each table")
    numbers: int = Field(120, ge=2, description="number columns")
    texts: int = Field(30, ge=2, description="text columns")
    levels: int = Field(8, ge=2, description="different values of a text column")


def run_tables_scale(bench: Bench, options: Options, notify: Notify) -> dict[str, float | None]:
    """Seconds and memory from files to a federation, for CSV and Parquet; the worse of both has the plain name."""
    settings = build(TablesScaleSettings, bench.tables.get("tables_scale", {}), "tables_scale")
    results: dict[str, float | None] = {}
    with tempfile.TemporaryDirectory(prefix="colonnade-bench-") as folder:
        size = make_files(Path(folder), settings, notify)
        for ending in ("csv", "parquet"):
            notify(f"reading {settings.rows:,} rows from {ending}")
            seconds, processor, growth = _measured(Path(folder), ending)
            results[f"read_seconds.{ending}"] = seconds
            results[f"cpu_seconds.{ending}"] = processor
            results[f"memory_ratio.{ending}"] = None if growth is None else growth / size
    for key in ("read_seconds", "memory_ratio"):
        both = [results[f"{key}.csv"], results[f"{key}.parquet"]]
        results[key] = None if None in both else max(value for value in both if value is not None)
    return {**results, "arrow_gb": size / 1e9}


def make_files(folder: Path, settings: TablesScaleSettings, notify: Notify) -> int:
    """Write both parties' tables as CSV and Parquet, some rows at a time; the bytes they have in Arrow."""
    pa = need("pyarrow", extra="tables", purpose="this benchmark")
    csv = need("pyarrow.csv", extra="tables", purpose="this benchmark")
    parquet = need("pyarrow.parquet", extra="tables", purpose="this benchmark")
    size = 0
    for number, party in enumerate(PARTIES):
        notify(f"making up {settings.rows:,} rows of {party}")
        rng = stream(0, "bench tables", party)
        order = np.arange(settings.rows) if number == 0 else rng.permutation(settings.rows)
        writers: list[Any] = []
        for first in range(0, settings.rows, AT_ONCE):
            table = pa.table(_columns(settings, number, order[first : first + AT_ONCE], rng))
            size += table.nbytes
            if not writers:
                to_csv = csv.CSVWriter(folder / f"{party}.csv", table.schema)
                writers = [to_csv, parquet.ParquetWriter(folder / f"{party}.parquet", table.schema)]
            for writer in writers:
                writer.write_table(table)
        for writer in writers:
            writer.close()
    return size


def _columns(settings: TablesScaleSettings, number: int, ids: Any, rng: np.random.Generator) -> dict[str, Any]:
    """Some rows of a party: an id, half of the columns, and for the first party the label."""
    names = np.array([f"level_{k:02d}" for k in range(settings.levels)], dtype=object)
    shares = {kind: total // 2 + (number < total % 2) for kind, total in _kinds(settings).items()}
    columns: dict[str, Any] = {"customer": [f"c{k:08d}" for k in ids]}
    for k in range(shares["number"]):
        columns[f"number_{k}"] = np.round(rng.normal(0, 100, len(ids)), 4)
    for k in range(shares["text"]):
        columns[f"text_{k}"] = names[rng.integers(0, settings.levels, len(ids))]
    if number == 0:
        columns["churn"] = np.array(["no", "yes"], dtype=object)[rng.integers(0, 2, len(ids))]
    return columns


def _kinds(settings: TablesScaleSettings) -> dict[str, int]:
    return {"number": settings.numbers, "text": settings.texts}


def _measured(folder: Path, ending: str) -> tuple[float, float, float | None]:
    """Seconds, seconds of all cores, which a busy machine changes less, and bytes of anonymous memory."""
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_read, args=(theirs, str(folder), ending), daemon=True)
    process.start()
    theirs.close()
    try:
        found: tuple[float, float, float | None] = ours.recv()
    except EOFError:
        raise DataError(f"the process that reads the {ending} files ended before it had read them") from None
    finally:
        process.join()
    return found


def _read(pipe: Pipe, folder: str, ending: str) -> None:
    """In the process: load what is needed, then read, join and encode."""
    from colonnade.federation import Federation

    files = {party: Path(folder) / f"{party}.{ending}" for party in PARTIES}
    for module in ("pandas", "pyarrow.csv", "pyarrow.parquet", "pyarrow.compute", "sklearn.compose", "skops.io"):
        need(module, extra="tables", purpose="this benchmark")
    need("colonnade.data.table", extra="tables", purpose="this benchmark")
    with Memory() as memory:
        start, processor = time.perf_counter(), time.process_time()
        federation = Federation.from_tables(files, labels="churn", id="customer")
        seconds, processor = time.perf_counter() - start, time.process_time() - processor
    assert federation.rows
    pipe.send((seconds, processor, memory.growth))


class Memory:
    """The growth of this process's anonymous memory at its highest, in bytes; None where the system does not tell."""

    def __init__(self) -> None:
        self.growth: float | None = None
        self._over = threading.Event()
        self._watch = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Memory:
        self._before = anonymous_bytes()
        if self._before is not None:
            self.growth = 0.0
            self._watch.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        if self._before is not None:
            self._watch.join()

    def _look(self) -> None:
        while not self._over.wait(PERIOD):
            now = anonymous_bytes()
            assert now is not None and self._before is not None and self.growth is not None
            self.growth = max(self.growth, now - self._before)


def anonymous_bytes() -> int | None:
    """Memory of this process that no file stands behind."""
    if not STATUS.exists():
        return None
    line = next((line for line in STATUS.read_text().splitlines() if line.startswith("RssAnon")), None)
    return None if line is None else int(line.split()[1]) * 1024
