"""What every test stands on: one thread per process, the same examples everywhere, and no process left behind."""

import gc
import os
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import settings

from tests.measure import name_of, read_slow
from tests.processes import all_ended, as_in_a_terminal, cpu_seconds, share_the_fork_server

os.environ.setdefault("COLONNADE_DEBUG", "1")  # layouts are checked; before anything imports colonnade
torch.set_num_threads(1)  # xdist runs one process per core already
os.environ["OMP_NUM_THREADS"] = "1"  # of children, too: a process that is forked beside others' threads waits for ever
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # else torch.compile starts processes that load torch again
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")  # else it first compiles programs to try the processor with
as_in_a_terminal()
share_the_fork_server()
gc.disable()  # until all tests are collected, which takes a third less CPU time so
os.environ.setdefault("COLONNADE_PROGRESS", "0")  # what a test sees on stderr does not depend on the time it takes

settings.register_profile("ci", deadline=None, derandomize=True, database=None)
settings.load_profile("ci")
collect_ignore = ["plugin"]  # a package of its own: tests/test_plugins.py runs its tests
WORKERS = pytest.StashKey[float]()  # CPU seconds of the workers of xdist that have ended


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):  # a worker of xdist: told to the process that started it
        session.config.workeroutput["cpu"] = cpu_seconds()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    stash = node.config.stash
    stash[WORKERS] = stash.get(WORKERS, 0.0) + getattr(node, "workeroutput", {}).get("cpu", 0.0)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    used = config.stash.get(WORKERS, 0.0) or cpu_seconds()
    terminalreporter.write_line(f"CPU time of the tests and of all processes they started: {used / 60:.1f} minutes")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    slow = read_slow()
    for item in items:
        if name_of(item.nodeid) in slow:
            item.add_marker("slow")
    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="no CUDA device on this machine"))


def pytest_collection_finish() -> None:
    """Garbage is looked for from here on, and not in what was loaded and collected, which stays to the end."""
    gc.enable()
    gc.freeze()


@pytest.fixture(autouse=True)
def no_process_is_left() -> Iterator[None]:
    """End what a test started, also where it failed; what a fixture of a module started is its own to end."""
    with all_ended():
        yield
