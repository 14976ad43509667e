"""Kill -9 at any moment, resume, and end where an uninterrupted run ends: to the last bit of the model.

The victims are real processes that train on digits. They are forked from a server process that has
already imported everything, so that a kill costs milliseconds of start-up and not seconds.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import pytest

from colonnade.errors import RunError
from colonnade.fit import resume
from colonnade.run import Run
from colonnade.store import Store
from tests.e2e import victim
from tests.federations import digits
from tests.processes import LONG, warm
from tests.trainers import unsigned, untimed

METHODS = ("vimadmm", "vimadmm_j", "local_only")
PATIENCE = LONG  # until a victim that hangs fails the test


@dataclass
class Hospital:
    """Starts victims and counts their lives."""

    folder: Path
    method: str
    kills: int = 0

    @property
    def finished(self) -> bool:
        return (self.folder / "run.json").exists()

    def start(self, death: str = "never") -> ForkServerProcess:
        """A victim that has begun to train, or to resume."""
        how = "resume" if self.begun else "start"
        here, there = CONTEXT.Pipe()
        process = CONTEXT.Process(target=victim.main, args=(str(self.folder), self.method, how, death, there))
        process.start()
        assert here.poll(PATIENCE), "the victim did not start"
        here.close()
        there.close()
        return process

    @property
    def begun(self) -> bool:
        if not (self.folder / "run.db").exists():
            return False
        store = Store(self.folder / "run.db")
        try:
            return store.begun
        finally:
            store.close()

    def end(self, process: ForkServerProcess) -> None:
        """Wait; count a kill, and take nothing but a kill or success."""
        process.join(PATIENCE)
        assert process.exitcode in (0, -signal.SIGKILL), f"the victim ended with {process.exitcode}"
        self.kills += process.exitcode != 0
        process.close()


CONTEXT = warm()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """Uninterrupted runs, one per method."""
    runs = {}
    for name in METHODS:
        folder = tmp_path_factory.mktemp("whole") / name
        victim.train(folder, name, "start", pause=0)
        runs[name] = Run.load(folder)
    return runs


def facts(run: Run) -> dict[str, Any]:
    """Everything that must be equal; digests aside, which depend on the run's id."""
    record = run.record()
    return {
        "fingerprint": run.fingerprint(),
        "history": untimed(run.history),
        "traffic": run.traffic.to_json(),
        "ledger": [unsigned(release) for release in run.ledger],
        "result": untimed([run.result]),
        **{k: record[k] for k in ("method", "training", "model", "releases")},
    }


@pytest.mark.parametrize("name", METHODS)
def test_killed_at_random_moments(name: str, whole: dict[str, Run], tmp_path: Path) -> None:
    moments = random.Random(f"moments of {name}")
    hospital = Hospital(tmp_path / "run", name)
    for life in range(200):
        process = hospital.start()
        process.join(moments.uniform(0, 0.3) * (1 + life / 5))  # longer lives on a busy machine, so that it ends
        if process.exitcode is None:
            process.kill()
        hospital.end(process)
        if hospital.finished:
            break
    assert hospital.finished
    assert hospital.kills >= 2
    assert facts(Run.load(tmp_path / "run")) == facts(whole[name])


def deaths() -> Iterator[str]:
    """Statements of the store in order: making it, describing the run, the first commits; then the last files."""
    yield from (f"sql:{n}" for n in (1, 2, 3, 6, 9, 14, 40))
    yield from (f"file:{n}" for n in (1, 2, 3))


def test_killed_inside_commits_and_while_saving(whole: dict[str, Run], tmp_path: Path) -> None:
    name = "vimadmm"
    hospital = Hospital(tmp_path / "run", name)
    for death in deaths():
        if not hospital.finished:
            hospital.end(hospital.start(death))
    assert hospital.kills >= 8
    if not hospital.finished:
        hospital.end(hospital.start())
    assert facts(Run.load(tmp_path / "run")) == facts(whole[name])
    assert [p.name for p in sorted((tmp_path / "run").iterdir()) if p.suffix == ".part"] == []


def test_a_killed_run_says_how_to_go_on(tmp_path: Path) -> None:
    hospital = Hospital(tmp_path / "run", "local_only")
    hospital.end(hospital.start("sql:30"))
    assert not hospital.finished
    with pytest.raises(RunError, match="colonnade resume"):
        Run.load(tmp_path / "run")
    with pytest.raises(RunError, match="other data"):
        resume(tmp_path / "run", digits(parties=2))
    run = resume(tmp_path / "run", victim.FEDERATION)
    assert run.result["rounds"] == victim.TRAINING["rounds"]


def test_resuming_a_finished_run_changes_nothing(whole: dict[str, Run], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    victim.train(folder, "vimadmm_j", "start", pause=0)
    again = resume(folder, victim.FEDERATION)
    assert facts(again) == facts(whole["vimadmm_j"])
    assert facts(Run.load(folder)) == facts(again)
