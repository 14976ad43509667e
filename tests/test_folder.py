"""One process per run folder: others are told how far it is, and do nothing; after a kill the folder is free."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from colonnade import Run, fit, resume
from colonnade.errors import RunError
from colonnade.folder import LOCK, claimed, in_use
from colonnade.methods import make_method
from colonnade.progress import Progress
from tests.cli.conftest import call_main
from tests.federations import small
from tests.processes import end, start

HOLDER = """
import sys, time
from pathlib import Path
from colonnade.folder import claimed
with claimed(Path(sys.argv[1])) as claim:
    claim.note("still training, round 78 of 2000")
    print("held", flush=True)
    time.sleep(3600)
"""

ASKER = """
import sys, time
from pathlib import Path
from colonnade.folder import in_use
print("asking", flush=True)
while True:
    in_use(Path(sys.argv[1]))
    time.sleep(0.002)
"""


def held(folder: Path) -> subprocess.Popen[str]:
    """Another process that holds a folder."""
    process = start([sys.executable, "-c", HOLDER, str(folder)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def interrupted(folder: Path) -> None:
    """A run that stopped after its second round."""

    def stop(now: Progress) -> None:
        if now.round == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(small(), make_method("local_only"), rounds=4, out=folder, watch=stop, checkpoint_every=1)


def everything(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.endswith("-shm")}


def test_a_run_that_is_still_trained_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run"
    interrupted(folder)
    process = held(folder)
    before = everything(folder)
    told = rf"is still training, round 78 of 2000 \(process {process.pid}\)"
    attempts: list[Callable[[], object]] = [
        lambda: resume(folder, small()),
        lambda: Run.load(folder),
    ]
    for attempt in attempts:
        with pytest.raises(RunError, match=told):
            attempt()
    for command, *options in (["resume"], ["report"], ["predict", "--rows", "test"], ["explain"], ["audit"]):
        assert call_main(command, folder, *options) == 2
        assert f"'{folder}' is still training, round 78 of 2000" in capsys.readouterr().err
    assert everything(folder) == before
    end(process)  # kill -9
    assert in_use(folder) is None
    assert resume(folder, small()).result["rounds"] == 4


def test_two_trainings_do_not_share_a_folder(tmp_path: Path) -> None:
    held(tmp_path / "run")
    with pytest.raises(RunError, match="still training, round 78 of 2000"):
        fit(small(), make_method("local_only"), rounds=1, out=tmp_path / "run")
    assert [path.name for path in (tmp_path / "run").iterdir()] == [LOCK]


def test_a_training_says_how_far_it_is_to_whoever_asks(tmp_path: Path) -> None:
    seen: list[str | None] = []
    run = fit(
        small(), make_method("local_only"), rounds=3, out=tmp_path, watch=lambda now: seen.append(in_use(tmp_path))
    )
    here = f"(process {os.getpid()})"
    assert seen[0] == f"another process works in '{tmp_path}' {here}"  # before its first round
    assert seen[1] == f"'{tmp_path}' is still training, round 1 of 3 {here}"
    assert (in_use(tmp_path), run.result["rounds"]) == (None, 3)


def test_what_this_process_interrupted_it_can_resume(tmp_path: Path) -> None:
    interrupted(tmp_path / "run")
    assert resume(tmp_path / "run", small()).result["rounds"] == 4


def test_a_comparison_does_not_go_on_with_a_run_that_is_still_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("c.toml").write_text('[data]\nset = "digits"\n[training]\nrounds = 1\n')
    command = ("compare", "c.toml", "--methods", "local_only", "--out", "here")
    assert call_main(*command) == 0
    Path("here/local_only-0/run.json").unlink()
    held(Path("here/local_only-0"))
    capsys.readouterr()
    assert call_main(*command) == 2
    assert "'here/local_only-0' is still training, round 78 of 2000" in capsys.readouterr().err


def test_somebody_who_only_asks_is_not_in_the_way(tmp_path: Path) -> None:
    """Asking takes the lock for a moment; who wants to work there waits that long."""
    with claimed(tmp_path):
        pass
    asking = start([sys.executable, "-c", ASKER, str(tmp_path)], stdout=subprocess.PIPE)
    assert asking.stdout is not None
    assert asking.stdout.readline() == "asking\n"
    until = time.monotonic() + 0.5
    while time.monotonic() < until:
        with claimed(tmp_path):
            pass


def test_a_free_folder_is_in_nobody_s_use(tmp_path: Path) -> None:
    assert in_use(tmp_path) is None
    assert in_use(tmp_path / "none") is None
    with claimed(tmp_path / "new"):
        assert in_use(tmp_path / "new") == f"another process works in '{tmp_path / 'new'}' (process {os.getpid()})"
    assert in_use(tmp_path / "new") is None
