"""A real nats-server that can be stopped, killed, restarted on its port, and lose or roll back its store.

    with NatsServer(folder, parties) as server:
        link = NatsLink(server.credentials("party_1"), run, say).open()

It uses the configuration and the certificates that `colonnade nats-config` and `colonnade certificates` write.
What the server says goes to `log` and to the logger `nats-server`, so pytest shows it beside a test that fails.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from colonnade.deploy.server import find_server, server_config
from colonnade.errors import LinkError
from colonnade.identity.certificates import make_trial
from colonnade.identity.credentials import Connection, Credentials
from colonnade.wire.messages import COORDINATOR

LOOPBACK = "127.0.0.1"
MISSING = "nats-server is not installed; install it: apt-get install nats-server (or run: make server)"
PATIENCE = 60.0  # seconds for a start or a stop, on a machine that is busy with other work

logger = logging.getLogger("nats-server")
logger.setLevel(logging.INFO)


class NatsServer:
    """A server with its own folder, port, certificates and store; use it as a context manager.

    Args:
        folder: where it keeps all that; by default one that is made now and removed in `close`.
        parties: who may connect, besides the coordinator.
        host: the address it listens on and is reached by.
        within: a command that the server is started with, e.g. `("ip", "netns", "exec", NAME)`.
    """

    def __init__(
        self, folder: Path | None, parties: Sequence[str], host: str = LOOPBACK, within: Sequence[str] = ()
    ) -> None:
        self.folder = folder or Path(tempfile.mkdtemp(prefix="nats-"))
        self._made = folder is None
        self.folder.mkdir(exist_ok=True)
        self.parties, self.host, self.within = tuple(parties), host, tuple(within)
        self.certificates, self.store = self.folder / "certs", self.folder / "store"
        self.config, self.log = self.folder / "nats.conf", self.folder / "nats.log"
        make_trial(self.certificates, self.parties, ("localhost", host))
        self._port = _Port()
        text = server_config(
            self.parties, port=self.port, host=host, store_dir=self.store, certificates=self.certificates
        )
        self.config.write_text(text, encoding="utf-8")
        self.log.touch()
        self._process: subprocess.Popen[bytes] | None = None
        self._listener: threading.Thread | None = None

    @property
    def port(self) -> int:
        """Where it listens, also after a restart."""
        return self._port.number

    @property
    def url(self) -> str:
        """What clients connect to."""
        return f"tls://{self.host}:{self.port}"

    @property
    def running(self) -> bool:
        """Whether the process is there."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The process's number, while there is one."""
        if self._process is None:
            raise LinkError("the server is not running")
        return self._process.pid

    def connection(self, name: str) -> Connection:
        """The [connection] of a party, or of "coordinator"."""
        return Connection(
            server=self.url,
            authority=self.certificates / "ca.crt",
            certificate=self.certificates / f"{name}.crt",
            key=self.certificates / f"{name}.key",
        )

    def connections(self) -> dict[str, Connection]:
        """Everybody's [connection]."""
        return {name: self.connection(name) for name in (COORDINATOR, *self.parties)}

    def credentials(self, name: str) -> Credentials:
        """The identity of a party, or of "coordinator"."""
        return Credentials.load(self.connection(name))

    # -- its life -----------------------------------------------------------------------------

    def start(self) -> NatsServer:
        """Start, also again after `stop` or `kill`, on the same port and store; comes back when it is ready."""
        if self.running:
            raise LinkError("the server is running already")
        binary = find_server()
        if binary is None:
            raise LinkError(MISSING)
        self._port.make_way()
        command = [*self.within, str(binary), "-c", str(self.config)]
        environment = {"GOGC": "400", **os.environ}  # as in examples/systemd
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment)
        ready = threading.Event()
        self._listener = threading.Thread(target=self._listen, args=(self._process, ready), daemon=True)
        self._listener.start()
        if not ready.wait(PATIENCE) or self._process.poll() is not None:
            self.kill()
            raise LinkError(f"nats-server did not start:\n{self.log.read_text(errors='replace')[-3000:]}")
        return self

    def _listen(self, process: subprocess.Popen[bytes], ready: threading.Event) -> None:
        if process.stderr is None:
            return
        with process.stderr as lines, self.log.open("ab", buffering=0) as log:
            for line in lines:
                log.write(line)
                logger.info(line.decode(errors="replace").rstrip())
                if b"Server is ready" in line:
                    ready.set()
        process.wait()
        ready.set()  # it is gone: no reason to wait any longer

    def stop(self) -> None:
        """Ask it to end, as an operator would."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it without a chance to tidy up."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        if self.running:
            self._process.send_signal(how)
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise
        finally:
            if self._listener is not None:
                self._listener.join(PATIENCE)
            self._process = None

    def restart(self, *, kill: bool = False) -> NatsServer:
        """End and start again."""
        self._end(signal.SIGKILL if kill else signal.SIGTERM)
        return self.start()

    # -- its store ----------------------------------------------------------------------------

    def wipe(self) -> None:
        """Lose everything that was stored."""
        self._at_rest()
        shutil.rmtree(self.store, ignore_errors=True)

    def save(self) -> None:
        """Remember the store as it is now; the next `save` replaces it."""
        self._at_rest()
        shutil.rmtree(self.folder / "saved", ignore_errors=True)
        shutil.copytree(self.store, self.folder / "saved")

    def roll_back(self) -> None:
        """Put back the store as it was at the last `save`: what a power cut without a synced disk leaves."""
        self.wipe()
        shutil.copytree(self.folder / "saved", self.store)

    def _at_rest(self) -> None:
        if self.running:
            raise LinkError("stop or kill the server before its store is copied or changed")

    # -- the end ------------------------------------------------------------------------------

    def close(self) -> None:
        """End it, give its port back and remove a folder that it made itself."""
        self.kill()
        self._port.close()
        if self._made:
            shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> NatsServer:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class _Port:
    """A free port of this machine that nobody else is given, also while the server is down.

    On Linux a bound socket that does not listen keeps the kernel from handing out the port, and yet lets the server
    bind it, since both say SO_REUSEADDR. Elsewhere it has to be let go before the server starts.
    """

    def __init__(self) -> None:
        self._holder = socket.socket()
        self._holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._holder.bind((LOOPBACK, 0))
        self.number = int(self._holder.getsockname()[1])

    def make_way(self) -> None:
        if sys.platform != "linux":
            self._holder.close()

    def close(self) -> None:
        self._holder.close()
