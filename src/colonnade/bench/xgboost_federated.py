"""XGBoost's own federated mode over columns, as a peer to compare with: its server, and a process for every party.

All of it runs on loopback. The server stands with the label holder, which is the first party; the connection of every
other party goes through a relay that counts its bytes, since these are what crosses between organisations. Nothing is
encrypted, and the label holder's side sees histograms of everybody's columns: this is what is compared, not a setting
of ours.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection as Pipe
from typing import Any

import numpy as np

from colonnade.errors import ColonnadeError, DataError

Array = np.ndarray[Any, Any]
SETTINGS = {"objective": "binary:logistic", "tree_method": "hist", "max_depth": 5, "eta": 0.3, "nthread": 1}
PATIENCE = 300.0  # seconds until the label holder must have answered


@dataclass(frozen=True)
class Federated:
    """Of one training: the scores of the test rows, seconds of training and prediction, bytes between organisations."""

    scores: Array = field(repr=False)
    seconds: float
    moved: int


def version() -> str:
    """Of XGBoost.

    Raises:
        DataError: it is not installed, or was built without its federated mode.
    """
    try:
        import xgboost
    except ImportError:
        raise DataError("bench peers needs xgboost, which is not installed; run: pip install xgboost") from None
    if not xgboost.build_info().get("USE_FEDERATED"):
        raise DataError("bench peers needs an xgboost with its federated mode; its wheels for Linux have it")
    return str(xgboost.__version__)


def train_federated(tables: Sequence[Array], labels: Array, train: Array, test: Array, trees: int) -> Federated:
    """So many trees over tables of numbers, one for each party, of which the first has the labels."""
    with Counter() as counter:
        scores, seconds = _all_parties(tables, labels, train, test, trees, counter)
    return Federated(scores, seconds, counter.bytes)


def _all_parties(
    tables: Sequence[Array], labels: Array, train: Array, test: Array, trees: int, counter: Counter
) -> tuple[Array, float]:
    context, port = get_context("spawn"), _free_port()
    server = context.Process(target=_serve, args=(port, len(tables)), daemon=True)
    server.start()
    ours, theirs = context.Pipe()
    workers = []
    try:
        _wait_for(port)
        for rank, table in enumerate(tables):
            to = port if rank == 0 else counter.relay(port)
            told = labels[train] if rank == 0 else None
            pipe = theirs if rank == 0 else None
            job = (rank, len(tables), to, table[train], told, table[test], trees, pipe)
            workers.append(context.Process(target=_work, args=job, daemon=True))
            workers[-1].start()
        theirs.close()
        if not ours.poll(PATIENCE):
            raise ColonnadeError(f"XGBoost's label holder did not answer within {PATIENCE:.0f} seconds")
        seconds, scores = ours.recv()
        ours.close()
        for worker in workers:
            worker.join(timeout=30)
    except EOFError:
        raise ColonnadeError("XGBoost's label holder ended before it had predicted") from None
    finally:
        for process in (*workers, server):
            process.terminate()
            process.join()
    return scores, seconds


@dataclass
class Counter:
    """Relays to a port of loopback, and the bytes that went through them, both ways."""

    bytes: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _listeners: list[socket.socket] = field(default_factory=list, repr=False)

    def __enter__(self) -> Counter:
        return self

    def __exit__(self, *raised: object) -> None:
        for listener in self._listeners:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # wakes whoever waits there
            listener.close()

    def relay(self, to: int) -> int:
        """A port that stands for another."""
        listener = socket.create_server(("127.0.0.1", 0))
        self._listeners.append(listener)
        threading.Thread(target=self._accept, args=(listener, to), daemon=True).start()
        return int(listener.getsockname()[1])

    def _accept(self, listener: socket.socket, to: int) -> None:
        with contextlib.suppress(OSError):  # it is closed at the end
            while True:
                near = listener.accept()[0]
                threading.Thread(target=self._between, args=(near, to), daemon=True).start()

    def _between(self, near: socket.socket, to: int) -> None:
        with near, socket.create_connection(("127.0.0.1", to)) as far:
            back = threading.Thread(target=self._pump, args=(far, near), daemon=True)
            back.start()
            self._pump(near, far)
            back.join()

    def _pump(self, one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):  # either side may end it
            while data := one.recv(1 << 16):
                with self._lock:
                    self.bytes += len(data)
                other.sendall(data)
        with contextlib.suppress(OSError):
            other.shutdown(socket.SHUT_WR)


def _serve(port: int, parties: int) -> None:
    """In a process: the server that parties meet at."""
    from xgboost.federated import run_federated_server

    run_federated_server(parties, port)


def _work(
    rank: int, parties: int, port: int, x: Array, labels: Array | None, new: Array, trees: int, pipe: Pipe | None
) -> None:
    """In a process: one party trains, and predicts new rows together with the others."""
    import xgboost
    from xgboost.collective import CommunicatorContext

    by_column = xgboost.core.DataSplitMode.COL
    start = time.perf_counter()
    with CommunicatorContext(
        dmlc_communicator="federated",
        federated_server_address=f"localhost:{port}",
        federated_world_size=parties,
        federated_rank=rank,
    ):
        table = xgboost.DMatrix(x, label=labels, data_split_mode=by_column)
        model = xgboost.train(SETTINGS, table, num_boost_round=trees)
        scores = model.predict(xgboost.DMatrix(new, data_split_mode=by_column))
    if pipe is not None:
        pipe.send((time.perf_counter() - start, scores))


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def _wait_for(port: int, patience: float = 60.0) -> None:
    end = time.monotonic() + patience
    while time.monotonic() < end:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.05)
    raise ColonnadeError(f"XGBoost's server did not open its port within {patience:.0f} seconds")
