"""Columns that lie on disk: the same numbers as in memory, trained on alike, without the memory of the whole."""

from __future__ import annotations

import errno
import multiprocessing
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import colonnade as cn
from colonnade import mapped, temporary
from colonnade.bench.tables_scale import Memory
from colonnade.checkpoint import fingerprint
from colonnade.data import columns, gathered, placed
from colonnade.data.columns import ColumnPlan
from colonnade.data.features import LevelFeature, NumberFeature
from colonnade.errors import DataError
from colonnade.federation import Federation
from colonnade.models.scaling import statistics
from colonnade.privacy.training_rows import TrainingRows

ROWS = 120


def tables(seed: int = 0, rows: int = ROWS) -> dict[str, pd.DataFrame]:
    """Two parties; the second lists its rows in another order."""
    rng = np.random.default_rng(seed)
    people, x = [f"c{k:03d}" for k in range(rows)], rng.normal(size=(rows, 4))
    x[rng.random(x.shape) < 0.1] = np.nan
    city = rng.choice(["Ulm", "Bonn", "Jena"], rows)
    churn = np.where(np.nan_to_num(x[:, 0]) + (city == "Ulm") > 0.3, "yes", "no")
    since = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, rows), unit="D")
    bank = pd.DataFrame({"id": people, "a": x[:, 0], "b": x[:, 1], "city": city, "churn": churn})
    telco = pd.DataFrame({"id": people, "c": x[:, 2], "d": x[:, 3], "since": since})
    return {"bank": bank, "telco": telco.iloc[rng.permutation(rows)]}


def joined(**how: Any) -> Federation:
    return Federation.from_tables(tables(), labels="churn", id="id", **how)


@pytest.fixture
def small_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A machine that keeps no table in memory; the folder for its files, which is empty when all is over."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(mapped, "IN_MEMORY", 0)
    monkeypatch.setattr(mapped, "temporary_folder", lambda: folder)
    monkeypatch.setattr(columns, "ROWS", 17)
    yield folder
    assert not list(folder.iterdir())


def by_column(plan: ColumnPlan, frame: pd.DataFrame, rows: np.ndarray) -> torch.Tensor:
    """The readable way: one column after the other, all rows at once, then the rows that are asked for."""
    parts = []
    for feature in plan.features:
        out = np.zeros((feature.width, len(frame)), dtype=np.float32)
        if isinstance(feature, NumberFeature):
            feature.encode(columns._numbers(frame, feature.column, feature.part), out)
        elif isinstance(feature, LevelFeature) and not feature.constant:
            feature.encode(columns._levels(frame, feature.column, feature.part, feature.kind), out)
        parts.append(out)
    whole = np.concatenate([np.concatenate(parts).T, np.zeros((1, plan.width), dtype=np.float32)])
    return torch.from_numpy(whole[rows])


@pytest.mark.parametrize("block", [1, 7, 1 << 16])
@pytest.mark.parametrize("on_disk", [False, True])
def test_blocks_of_rows_are_encoded_as_whole_columns_are(monkeypatch, block, on_disk):
    monkeypatch.setattr(columns, "ROWS", block)
    monkeypatch.setattr(placed, "TILE", 5)
    monkeypatch.setattr(placed, "REGION", 1000)
    for table in tables().values():
        frame = table.drop(columns=["id", "churn"], errors="ignore").reset_index(drop=True)
        plan = ColumnPlan.fit("p", frame, torch.arange(80))
        order = np.random.default_rng(1).integers(-1, ROWS, 200)
        for rows in (np.arange(ROWS), np.arange(ROWS)[::-1], order, np.array([-1, 3, -1])):
            found = plan.encode(frame, rows, on_disk=on_disk)
            assert torch.equal(found, by_column(plan, frame, rows))
            assert mapped.is_mapped(found) == on_disk


def test_large_tables_lie_on_disk_with_the_numbers_they_have_in_memory(small_memory, monkeypatch):
    there = joined()
    monkeypatch.setattr(mapped, "IN_MEMORY", 1 << 31)
    here = joined()
    assert all(mapped.is_mapped(party.columns) for party in there.parties)
    assert not any(mapped.is_mapped(party.columns) for party in here.parties)
    assert fingerprint(there) == fingerprint(here)
    for one, other in ((there.pooled(), here.pooled()), (there.take([5, 3, 9]), here.take([5, 3, 9]))):
        assert fingerprint(one) == fingerprint(other) and one.ids == other.ids
    chosen = torch.tensor([4, 4, 1])
    assert all(torch.equal(there.select(chosen).columns[p], here.select(chosen).columns[p]) for p in here.names)


def test_many_rows_of_a_large_table_are_taken_into_a_file_of_their_own(small_memory):
    there, rows = joined(), torch.randperm(ROWS)
    taken = there.take(rows)
    for before, after in zip(there.parties, taken.parties, strict=True):
        assert mapped.is_mapped(after.columns) and torch.equal(after.columns, before.columns.clone()[rows])
    assert mapped.is_mapped(there.pooled().parties[0].columns)


CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "two parties of one architecture": ("vimadmm", {}),
    "one party at a time": ("vimadmm", {"order": "sequential"}),
    "the reference engine": ("vimadmm_j", {"engine": "loop"}),
    "float64": ("vimadmm", {"dtype": "float64"}),
    "a cache of earlier rounds": ("celu_vfl", {}),
    "noise of all training rows": (cn.methods.LinearADMM(noise=0.1), {}),
    "labels at the parties": ("local_only", {}),
    "all columns in one place": ("centralized", {}),
}


def alike() -> Federation:
    """Parties with equally many columns, whose networks are stacked."""
    both = tables()
    both["telco"] = both["telco"].drop(columns="since").assign(city=both["bank"]["city"])
    return Federation.from_tables(both, labels="churn", id="id")


@pytest.mark.parametrize("case", CASES)
def test_training_from_disk_is_training_from_memory_to_the_last_bit(small_memory, monkeypatch, case):
    method, how = CASES[case]
    there = cn.fit(alike(), method, rounds=4, batch=16, **how)
    monkeypatch.setattr(mapped, "IN_MEMORY", 1 << 31)
    here = cn.fit(alike(), method, rounds=4, batch=16, **how)
    assert there.fingerprint() == here.fingerprint() and there.result["test_score"] == here.result["test_score"]


def test_columns_on_disk_are_scaled_again_where_that_is_asked_for(small_memory, monkeypatch):
    there = cn.fit(alike(), "vimadmm", rounds=2, batch=16, model={"scale_columns": "always"})
    monkeypatch.setattr(mapped, "IN_MEMORY", 1 << 31)
    here = cn.fit(alike(), "vimadmm", rounds=2, batch=16, model={"scale_columns": "always"})
    rows = alike().select(torch.arange(ROWS))
    torch.testing.assert_close(there.logits(rows), here.logits(rows), rtol=1e-4, atol=1e-4)


def test_rows_that_only_some_hold_train_from_disk(small_memory, monkeypatch):
    some = tables()
    some["telco"] = some["telco"].iloc[:90]

    def run() -> cn.Run:
        partial = Federation.from_tables(some, labels="churn", id="id", keep="partial")
        return cn.fit(partial, "fedmvt", rounds=3, batch=16)

    there = run()
    monkeypatch.setattr(mapped, "IN_MEMORY", 1 << 31)
    assert there.fingerprint() == run().fingerprint()


def test_new_rows_are_scored_from_disk(small_memory):
    run = cn.fit(joined(), "vimadmm", rounds=2, batch=16)
    new = {party: frame.drop(columns="churn", errors="ignore") for party, frame in tables(seed=1).items()}
    there = run.predict_proba(new)
    assert there.index.tolist() == new["bank"]["id"].tolist()
    assert np.isfinite(there.to_numpy()).all()


def test_a_run_on_disk_that_was_interrupted_goes_on_to_the_same_end(small_memory, tmp_path):
    def interrupt(seen: Any) -> None:
        if seen.round == 3:
            raise KeyboardInterrupt

    whole = cn.fit(joined(), "vimadmm", rounds=5, batch=16)
    with pytest.raises(KeyboardInterrupt):
        cn.fit(joined(), "vimadmm", rounds=5, batch=16, out=tmp_path / "run", watch=interrupt)
    assert cn.resume(tmp_path / "run", joined()).fingerprint() == whole.fingerprint()


def test_statistics_of_columns_on_disk_are_those_of_memory():
    values = torch.randn(5000, 3, dtype=torch.float64).float() * 100
    there = mapped.zeros(values.shape, on_disk=True)
    there[:] = values
    train = torch.randperm(5000)[:4000]
    for one, other in zip(statistics(there, train), statistics(values, train), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)


def test_training_rows_are_recognised_on_disk(small_memory):
    federation = joined()
    trained = TrainingRows.of(federation)
    found = trained.among(federation.select(torch.arange(ROWS)).columns)[""]
    assert found.nonzero().squeeze(1).tolist() == sorted(federation.split.train.tolist())


def test_what_needs_all_columns_at_once_is_refused_by_name(small_memory):
    run = cn.fit(joined(), "vimadmm", rounds=2, batch=16)
    with pytest.raises(DataError, match=r"needs all columns of bank.* in memory at once, and they lie on disk"):
        run.explain(joined())


# -- files -------------------------------------------------------------------------------------


def test_a_full_disk_is_said_before_anything_is_written(small_memory, monkeypatch):
    def full(handle: int, start: int, size: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(DataError, match=r"no room for 0.0 GB of encoded columns in .*; set TMPDIR"):
        joined()


@pytest.mark.parametrize(
    ("kind", "named", "expected"), [("tmpfs", False, True), ("tmpfs", True, False), ("ext4", False, False)]
)
def test_a_folder_in_memory_is_not_taken_for_a_disk(monkeypatch, tmp_path, kind, named, expected):
    usual, disk = tmp_path / "usual", tmp_path / "disk"
    for folder in (usual, disk):
        folder.mkdir()
    (tmp_path / "mounts").write_text(f"root / ext4 rw 0 0\ntmp {usual} {kind} rw 0 0\n")
    monkeypatch.setattr(temporary, "MOUNTS", tmp_path / "mounts")
    monkeypatch.setattr(temporary, "ON_DISK", disk)
    monkeypatch.setattr(temporary.tempfile, "gettempdir", lambda: str(usual))
    for name in temporary.NAMED:
        monkeypatch.delenv(name, raising=False)
    if named:
        monkeypatch.setenv("TMPDIR", str(usual))
    assert temporary.temporary_folder() == (disk if expected else usual)


def test_a_matrix_on_disk_takes_no_memory_of_the_process(tmp_path):
    """In a process of its own: here memory that earlier tests have given back would be taken first."""
    context = multiprocessing.get_context("forkserver")
    with context.Pool(1) as pool:
        growth, size = pool.apply(_grown, (tmp_path,))
    assert growth[False] >= 0.9 * size > 2.5 * growth[True]


def _grown(tmp_path):
    gathered.IN_MEMORY, columns.NUMBERS = 0, 1 << 18
    rows, width = 150_000, 60
    values = np.memmap(tmp_path / "values", dtype=np.float64, mode="w+", shape=(width, rows))
    values[:] = np.random.default_rng(0).random(rows)
    frame = pd.DataFrame({f"x{k}": np.asarray(values[k]) for k in range(width)}, copy=False)
    order = np.random.default_rng(1).permutation(rows)
    plan, size, growth = ColumnPlan.fit("p", frame, torch.arange(1000)), 4 * rows * width, {}
    for on_disk in (True, False):
        with Memory() as memory:
            found = plan.encode(frame, order, on_disk=on_disk)
            deadline = time.monotonic() + (0.1 if on_disk else 30)
            while (memory.growth or 0) < 0.9 * size and time.monotonic() < deadline:
                time.sleep(0.01)  # the watching thread may wait for a busy machine
        growth[on_disk] = memory.growth
        assert torch.equal(found[0], plan.encode(frame.iloc[order[:1]])[0])
        del found
    return growth, size
