"""Processes that tests start: in a session of their own, with the signals of a terminal, ended whatever happens."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

LONG = 300.0  # seconds until a wait for an event gives up; on a busy machine a process needs minutes to start
HEAVY = ("torch", "pandas", "sklearn", "scipy", "matplotlib", "jinja2", "optuna")  # take from 0.2 to 2 s to load
_STARTED: list[subprocess.Popen[Any] | Forked] = []
PRELOADED = (
    "colonnade.cli.main", "colonnade.deploy.start", "colonnade.report", "sklearn.compose", "sklearn.datasets", "pandas",
    "skops.io", "matplotlib.figure", "jinja2",
)  # fmt: skip
TARGETS = (__name__, "colonnade.bench.restart", "tests.deploy.trials", "tests.e2e.victim")  # what its processes run
READY = "tests.ready"  # and what each of them would do first
_TELLING = f"""import atexit, sys
from colonnade.__main__ import main
loaded = lambda: [name for name in {HEAVY!r} if name in sys.modules]
atexit.register(lambda: print("loaded:", *loaded(), file=sys.stderr))
main()"""
TELLING = (sys.executable, "-c", _TELLING)  # `colonnade`, whose last line on stderr says what it loaded of `HEAVY`


def as_in_a_terminal() -> None:
    """Let children be interrupted, even where this process was started with the signals ignored.

    A shell starts background jobs with SIGINT ignored, and children inherit that; a signal that is handled goes back
    to its default in a child. This process itself still does nothing about it.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda number, frame: None)


def start(command: Sequence[str], **options: Any) -> subprocess.Popen[str]:
    """Start a process that does not outlive its test; `options` are those of Popen."""
    options = {"stdin": subprocess.DEVNULL, "text": True, **options}
    process: subprocess.Popen[str] = subprocess.Popen(command, start_new_session=True, **options)
    _STARTED.append(process)
    return process


def share_the_fork_server() -> None:
    """Let the one fork server of this process load what any test needs, whichever test starts it.

    Else the first one chooses, and every process of all later tests loads the rest again: half a second each.
    """
    forkserver.set_forkserver_preload([*PRELOADED, *TARGETS, READY])
    forkserver.set_forkserver_preload = lambda modules_names: None  # of the package and of single tests


def warm() -> Any:
    """Where processes come from a fork server that has loaded what commands need, which takes three seconds."""
    return multiprocessing.get_context("forkserver")


class Forked:
    """`colonnade ARGUMENTS` in a folder, with the part of Popen that tests use; it comes from the fork server."""

    def __init__(self, folder: Path, arguments: Sequence[str]) -> None:
        context = warm()
        (out, to_out), (err, to_err) = context.Pipe(duplex=False), context.Pipe(duplex=False)
        self.process = context.Process(target=_perform, args=(folder, arguments, to_out, to_err), daemon=True)
        self.process.start()
        for given in (to_out, to_err):
            given.close()
        self.stdout, self.stderr = (os.fdopen(os.dup(pipe.fileno()), encoding="utf-8") for pipe in (out, err))
        assert self.process.pid is not None
        self.pid = self.process.pid
        _STARTED.append(self)

    def poll(self) -> int | None:
        return self.process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self.process.join(timeout)
        if self.process.exitcode is None:
            raise subprocess.TimeoutExpired("colonnade", timeout or 0.0)
        return self.process.exitcode

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Wait until it ends; what it said, which must be little."""
        self.wait(timeout)
        return self.stdout.read(), self.stderr.read()


def _perform(folder: Path, arguments: Sequence[str], out: Connection, err: Connection) -> None:
    os.setsid()
    os.chdir(folder)
    for number, pipe in ((1, out), (2, err)):
        os.dup2(pipe.fileno(), number)
        pipe.close()
    from colonnade.cli.main import main

    main(list(arguments))


def end(process: subprocess.Popen[Any] | Forked) -> None:
    """Kill a process with all that it started, wait until it is gone, and close its pipes."""
    with contextlib.suppress(ProcessLookupError, PermissionError):  # macOS says the latter of a group of zombies
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
    if process in _STARTED:
        _STARTED.remove(process)


@contextlib.contextmanager
def all_ended() -> Iterator[None]:
    """End every process that is started inside and still runs at the end."""
    before = list(_STARTED)
    try:
        yield
    finally:
        for process in [process for process in _STARTED if process not in before]:
            end(process)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """SIGINT raises KeyboardInterrupt inside, also where the tests themselves ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def cpu_seconds() -> float:
    """CPU time of this process, of its children that have ended, and of the fork server with all that it started."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    total = sum(usage.ru_utime + usage.ru_stime for usage in used)
    server = getattr(forkserver._forkserver, "_forkserver_pid", None)  # type: ignore[attr-defined]
    with contextlib.suppress(OSError):  # no such process, or a system without /proc
        ticks = Path(f"/proc/{server}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[11:15]
        total += sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
    return total
