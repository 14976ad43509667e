"""What tests rely on when they start processes; each of these is a fault that left a training running for ever."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.processes import LONG, all_ended, end, start

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals and sessions")
CHILD = "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
BACKGROUND = f"""
import signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
from tests.processes import as_in_a_terminal, start
as_in_a_terminal()
signal.raise_signal(signal.SIGINT)  # still does nothing here
sys.exit(start([sys.executable, "-c", {CHILD!r}]).wait())
"""
FAMILY = "import subprocess, sys; c = subprocess.Popen(['sleep', '600']); print(c.pid, flush=True); c.wait()"


def test_children_can_be_interrupted_where_the_tests_themselves_ignore_it() -> None:
    root = Path(__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", BACKGROUND], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"


def test_a_process_is_ended_with_its_children_when_a_test_fails() -> None:
    with pytest.raises(AssertionError, match="of the test"), all_ended():
        process = start([sys.executable, "-c", FAMILY], stdout=subprocess.PIPE)
        assert process.stdout is not None
        child = int(process.stdout.readline())
        raise AssertionError("of the test")
    assert process.returncode == -signal.SIGKILL
    deadline = time.monotonic() + LONG
    while not gone(child):
        assert time.monotonic() < deadline, "the child of the child lives on"
        time.sleep(0.01)


def test_what_was_started_before_is_left_alone() -> None:
    outer = start(["sleep", "600"])
    with all_ended():
        inner = start(["sleep", "600"])
    assert outer.poll() is None
    assert inner.returncode == -signal.SIGKILL
    end(outer)
    assert outer.returncode == -signal.SIGKILL


def gone(process: int) -> bool:
    """Whether a process is no more, or waits only for somebody to ask how it ended."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        pass
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    return False
