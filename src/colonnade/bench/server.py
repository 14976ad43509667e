"""A nats-server on this machine for as long as a benchmark needs one, with certificates of a trial."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from colonnade.deploy.server import find_server, server_config
from colonnade.errors import LinkError
from colonnade.identity.certificates import make_trial
from colonnade.identity.credentials import Connection
from colonnade.wire.messages import COORDINATOR

PATIENCE = 20.0  # seconds for the server to start


@contextlib.contextmanager
def local_server(folder: Path, parties: tuple[str, ...]) -> Iterator[Mapping[str, Connection]]:
    """The connections of the coordinator and of every party, while the server runs."""
    binary = find_server()
    if binary is None:
        raise LinkError("this benchmark needs nats-server, which is not installed; run: apt-get install nats-server")
    certs, port = folder / "certs", _free_port()
    make_trial(certs, parties)
    text = server_config(parties, port=port, host="127.0.0.1", store_dir=folder / "store", certificates=certs)
    (folder / "nats.conf").write_text(text, encoding="utf-8")
    with (folder / "nats.log").open("wb") as log:
        process = subprocess.Popen([str(binary), "-c", str(folder / "nats.conf")], stdout=log, stderr=log)
        try:
            _wait_for(port, process)
            yield {name: _connection(certs, name, port) for name in (COORDINATOR, *parties)}
        finally:
            process.terminate()
            process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + PATIENCE
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise LinkError("nats-server did not start; run `colonnade doctor`, or start it by hand to see why")


def _connection(certs: Path, name: str, port: int) -> Connection:
    files = {"certificate": certs / f"{name}.crt", "key": certs / f"{name}.key"}
    return Connection(server=f"tls://127.0.0.1:{port}", authority=certs / "ca.crt", **files)
