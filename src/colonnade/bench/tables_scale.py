"""Reading at scale: made-up tables of two parties as files, joined and encoded in a process of its own.

The process imports what it needs first; then time and growth of its anonymous memory are taken, which is what it cannot
give back to the system: pages of mapped files are not in it. Ten times the rows, whose numbers lie on disk, are read
from Parquet and trained on for some rounds; their memory is held against that of reading a tenth.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
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
from colonnade.temporary import temporary_folder

PARTIES = ("bank", "telco")
STATUS = Path("/proc/self/status")
PERIOD = 0.005  # seconds between two looks at the memory
AT_ONCE = 50_000  # rows that are made up at once
SHARE = 0.01  # of many rows that validate and that test


class TablesScaleSettings(Settings):
    """Sizes of the tables, both parties together."""

    rows: int = Field(1_000_000, ge=100, description="rows of each table")
    numbers: int = Field(120, ge=2, description="number columns")
    texts: int = Field(30, ge=2, description="text columns")
    levels: int = Field(8, ge=2, description="different values of a text column")
    many: int = Field(10_000_000, ge=0, description="rows that are larger than memory, for memory_ratio_10m; 0: none")
    rounds: int = Field(3, ge=1, description="rounds of training on these")

    def disk_bytes(self, rows: int) -> int:
        """About what so many rows take at once: the Parquet files, mapped columns and encoded numbers."""
        return rows * (self.numbers * (9 + 8 + 4) + self.texts * (1 + 17 + 4 * self.levels) + 100)


def run_tables_scale(bench: Bench, options: Options, notify: Notify) -> dict[str, float | None]:
    """Seconds and memory from files to a federation, for CSV and Parquet; the worse of both has the plain name."""
    settings = build(TablesScaleSettings, bench.tables.get("tables_scale", {}), "tables_scale")
    _check_room(settings)
    results: dict[str, float | None] = {}
    with tempfile.TemporaryDirectory(prefix="colonnade-bench-", dir=temporary_folder()) as folder:
        size = make_files(Path(folder), settings, notify)
        for ending in ("csv", "parquet"):
            notify(f"reading {settings.rows:,} rows from {ending}")
            found = _measured(Path(folder), ending)
            results[f"read_seconds.{ending}"] = found.seconds
            results[f"cpu_seconds.{ending}"] = found.processor
            results[f"memory_ratio.{ending}"] = None if found.growth is None else found.growth / size
    for key in ("read_seconds", "memory_ratio"):
        both = [results[f"{key}.csv"], results[f"{key}.parquet"]]
        results[key] = None if None in both else max(value for value in both if value is not None)
    results["arrow_gb"] = size / 1e9
    return results | (_many_rows(settings, found, notify) if settings.many else {})


def _many_rows(settings: TablesScaleSettings, few: Found, notify: Notify) -> dict[str, float | None]:
    """Memory of many rows, read from Parquet and trained on for some rounds, against that of few."""
    with tempfile.TemporaryDirectory(prefix="colonnade-bench-", dir=temporary_folder()) as folder:
        make_files(Path(folder), settings.model_copy(update={"rows": settings.many}), notify, ("parquet",))
        notify(f"reading {settings.many:,} rows from parquet, and {settings.rounds} rounds of training")
        many = _measured(Path(folder), "parquet", settings.rounds)
    results: dict[str, float | None] = {"read_seconds_10m": many.seconds, "train_seconds_10m": many.training}
    if few.growth is not None and many.growth is not None:
        results |= {"memory_mb": few.growth / 1e6, "memory_mb_10m": many.growth / 1e6}
    ratio = many.growth / few.growth if many.growth is not None and few.growth else None
    return {**results, "memory_ratio_10m": ratio}


def _check_room(settings: TablesScaleSettings) -> None:
    folder, needed = temporary_folder(), settings.disk_bytes(max(settings.rows, settings.many))
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise DataError(
            f"this benchmark needs about {needed / 1e9:.0f} GB in {folder}, which has {free / 1e9:.0f} GB; set TMPDIR "
            "to a folder on a larger disk"
        )


def make_files(
    folder: Path, settings: TablesScaleSettings, notify: Notify, endings: Sequence[str] = ("csv", "parquet")
) -> int:
    """Write both parties' tables as CSV and Parquet, some rows at a time; the bytes they have in Arrow."""
    pa = need("pyarrow", extra="tables", purpose="this benchmark")
    csv = need("pyarrow.csv", extra="tables", purpose="this benchmark")
    parquet = need("pyarrow.parquet", extra="tables", purpose="this benchmark")
    kinds, size = {"csv": csv.CSVWriter, "parquet": parquet.ParquetWriter}, 0
    for number, party in enumerate(PARTIES):
        notify(f"making up {settings.rows:,} rows of {party}")
        rng = stream(0, "bench tables", party)
        order = np.arange(settings.rows) if number == 0 else rng.permutation(settings.rows)
        writers: list[Any] = []
        for first in range(0, settings.rows, AT_ONCE):
            table = pa.table(_columns(settings, number, order[first : first + AT_ONCE], rng))
            size += table.nbytes
            if not writers:
                writers = [kinds[ending](folder / f"{party}.{ending}", table.schema) for ending in endings]
            for writer in writers:
                writer.write_table(table)
        for writer in writers:
            writer.close()
    return size


def _columns(settings: TablesScaleSettings, number: int, ids: Any, rng: np.random.Generator) -> dict[str, Any]:
    """Some rows of a party: an id, half of the columns, and for the first party the label."""
    pa = need("pyarrow", extra="tables", purpose="this benchmark")
    names = pa.array([f"level_{k:02d}" for k in range(settings.levels)])
    shares = {kind: total // 2 + (number < total % 2) for kind, total in _kinds(settings).items()}
    columns: dict[str, Any] = {"customer": [f"c{k:08d}" for k in ids]}
    for k in range(shares["number"]):
        columns[f"number_{k}"] = np.round(rng.normal(0, 100, len(ids)), 4)
    for k in range(shares["text"]):
        columns[f"text_{k}"] = names.take(pa.array(rng.integers(0, settings.levels, len(ids))))
    if number == 0:
        columns["churn"] = pa.array(["no", "yes"]).take(pa.array(rng.integers(0, 2, len(ids))))
    return columns


def _kinds(settings: TablesScaleSettings) -> dict[str, int]:
    return {"number": settings.numbers, "text": settings.texts}


@dataclass(frozen=True)
class Found:
    """Of one reading: seconds, seconds of all cores, which a busy machine changes less, and anonymous memory."""

    seconds: float
    processor: float
    growth: float | None  # bytes at the highest, training included
    training: float = 0.0  # seconds of that


def _measured(folder: Path, ending: str, rounds: int = 0) -> Found:
    """Read, and train for so many rounds, in a process of its own."""
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_read, args=(theirs, str(folder), ending, rounds), daemon=True)
    process.start()
    theirs.close()
    try:
        found: Found = ours.recv()
    except EOFError:
        raise DataError(f"the process that reads the {ending} files ended before it had read them") from None
    finally:
        process.join()
    return found


def _read(pipe: Pipe, folder: str, ending: str, rounds: int) -> None:
    """In the process: load what is needed, then read, join and encode; and train, if that is asked for."""
    from colonnade.federation import Federation
    from colonnade.fit import fit

    files = {party: Path(folder) / f"{party}.{ending}" for party in PARTIES}
    for module in ("pandas", "pyarrow.csv", "pyarrow.parquet", "pyarrow.compute", "sklearn.compose", "skops.io"):
        need(module, extra="tables", purpose="this benchmark")
    need("colonnade.data.table", extra="tables", purpose="this benchmark")
    with Memory() as memory:
        start, processor = time.perf_counter(), time.process_time()
        split = {"validation": SHARE, "test": SHARE} if rounds else None
        federation = Federation.from_tables(files, labels="churn", id="customer", split=split)
        seconds, processor = time.perf_counter() - start, time.process_time() - processor
        start = time.perf_counter()
        if rounds:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # so few rounds do not visit every row, and are not meant to
                fit(federation, "vimadmm", rounds=rounds, evaluate_every=rounds, progress=False)
        training = time.perf_counter() - start
    assert federation.rows
    pipe.send(Found(seconds, processor, memory.growth, training))


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
