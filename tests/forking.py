"""A `colonnade` for the shells of tests: forked from a process that has loaded everything, instead of loading it again.

Loading takes three seconds of CPU time a command, and a page of the documentation types twenty. The command that a
shell finds (`forked`) hands its arguments, folder, environment and open files to the server and behaves as the process
that is forked for it: it passes signals on, takes it along when it is killed, and ends as it ends.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import runpy
import signal
import socket
import struct
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from tests.processes import LONG, PRELOADED, end, start

PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
CLIENT = """#!{python} -SE
import json, os, signal, socket, struct, sys
place = socket.socket(socket.AF_UNIX)
place.connect({address!r})
told = json.dumps([sys.argv, os.getcwd(), dict(os.environ)]).encode()
socket.send_fds(place, [struct.pack("!I", len(told))], [0, 1, 2])
place.sendall(told)
for number in {signals!r}:
    if signal.getsignal(number) is not signal.SIG_IGN:
        signal.signal(number, lambda number, frame: place.sendall(bytes([number])))
status = struct.unpack("!i", place.recv(4, socket.MSG_WAITALL))[0]
if status < 0:
    signal.signal(-status, signal.SIG_DFL)
    os.kill(os.getpid(), -status)
sys.exit(status)
"""


@contextlib.contextmanager
def forked(folder: Path) -> Iterator[None]:
    """Inside, `colonnade` and `python` in this folder are forked."""
    address = str(folder / "socket")
    for name in ("colonnade", "python"):
        text = CLIENT.format(python=sys.executable, address=address, signals=[int(number) for number in PASSED_ON])
        (folder / name).write_text(text, encoding="utf-8")
        (folder / name).chmod(0o755)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address)
        listening.listen(64)
        server = start([sys.executable, "-m", __name__, str(listening.fileno())], pass_fds=[listening.fileno()])
        try:
            yield
        finally:
            server.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.wait(LONG)
            end(server)


def serve(listening: socket.socket) -> None:
    """Fork for everyone who asks, until terminated; then wait for all of them, whose CPU time counts as this one's."""
    signal.signal(signal.SIGINT, _ignore)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit())
    for name in PRELOADED:
        importlib.import_module(name)
    torch.set_num_threads(1)  # it is too late for OMP_NUM_THREADS of a command, and threads of several would spin
    try:
        while True:
            asking, _ = listening.accept()
            if not os.fork():
                for number in (signal.SIGINT, signal.SIGTERM):
                    signal.signal(number, signal.SIG_DFL)
                listening.close()
                _attend(asking)
            asking.close()
    finally:
        with contextlib.suppress(ChildProcessError):
            while True:
                os.wait()


def _attend(asking: socket.socket) -> None:
    """Fork what is asked for, pass signals on, and tell how it ended."""
    head, files, _, _ = socket.recv_fds(asking, 4, 3)
    told = json.loads(asking.recv(*struct.unpack("!I", head), socket.MSG_WAITALL))
    child = os.fork()
    if not child:
        asking.close()
        _become(*told, files)
    for file in files:
        os.close(file)
    threading.Thread(target=_pass_on, args=(asking, child), daemon=True).start()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with contextlib.suppress(OSError):  # nobody waits any more
        asking.sendall(struct.pack("!i", status))
    os._exit(0)


def _pass_on(asking: socket.socket, child: int) -> None:
    with contextlib.suppress(OSError):
        while number := asking.recv(1):
            os.kill(child, number[0])
        os.kill(child, signal.SIGKILL)  # who asked is gone


def _become(arguments: list[str], folder: str, environment: dict[str, str], files: list[int]) -> None:
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    name, *rest = arguments
    status: Any = 0
    try:
        if Path(name).name == "python":
            sys.argv = rest
            runpy.run_path(rest[0], run_name="__main__")
        else:
            from colonnade.cli.main import main

            main(rest)
    except SystemExit as ended:
        status = ended.code
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status if isinstance(status, int) else int(status is not None))


def _ignore(number: int, frame: FrameType | None) -> None:
    """A signal for the whole group is for those who asked: they pass it on."""


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
