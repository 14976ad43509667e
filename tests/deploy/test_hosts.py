"""Three hosts in network namespaces, lines with delay and loss, and one that is cut for a while: the same result.

bank_a   server, coordinator and party_0    10.77.0.1 ─┐
bank_b   party_1                            10.77.0.2 ─┼─ switch: 20 ms each way, one frame in a hundred is lost
telco    party_2                            10.77.0.3 ─┘
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from colonnade.bench.nats_server import NatsServer
from colonnade.wire.messages import COORDINATOR
from tests.deploy.trials import PARTIES, Ending, Stage, two_versions
from tests.nats_server import needs_nats
from tests.processes import end, start

pytestmark = needs_nats
HOSTS = ("bank_a", "bank_b", "telco")
HOME = {COORDINATOR: "bank_a", "party_0": "bank_a", "party_1": "bank_b", "party_2": "telco"}
DELAY, LOSS = 0.02, 0.01
SWITCH = Path(__file__).with_name("switch.py")

# A frame that is handed from process to process needs its checksum and its size on the line from the beginning.
PLAIN_FRAMES = """
import array, fcntl, socket, struct
line = socket.socket()
for command in (0x17, 0x1F, 0x24):  # checksums, TSO, GSO: left to the card, which is none
    value = array.array("B", struct.pack("II", command, 0))
    fcntl.ioctl(line, 0x8946, struct.pack("16sP", b"eth0", value.buffer_info()[0]))
"""


def run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(command[:6])}: {done.stderr.strip()}")


class Network:
    """Hosts on a switch; everything is in namespaces, so nothing of this machine's own network is touched."""

    def __init__(self) -> None:
        mark = f"c{os.getpid() % 100000}"
        self.names = {host: f"{mark}-{host}" for host in (*HOSTS, "switch")}
        self.switch: subprocess.Popen[str] | None = None

    def address(self, host: str) -> str:
        return f"10.77.0.{HOSTS.index(host) + 1}"

    def open(self) -> None:
        for name in self.names.values():
            run("ip", "netns", "add", name)
        for host in HOSTS:
            peer = ("peer", "name", "eth0", "netns", self.names[host])
            self._in("switch", "ip", "link", "add", host, "type", "veth", *peer)
            self._in(host, "ip", "address", "add", f"{self.address(host)}/24", "dev", "eth0")
            self._in(host, sys.executable, "-c", PLAIN_FRAMES)
            self._in(host, "ip", "link", "set", "lo", "up")
            self._in(host, "ip", "link", "set", "eth0", "up")
            self.line(host, up=True)
        command = [*self.within("switch"), sys.executable, str(SWITCH), str(DELAY), str(LOSS), *HOSTS]
        self.switch = start(command)

    def line(self, host: str, up: bool) -> None:
        """Plug a host in, or cut its line."""
        self._in("switch", "ip", "link", "set", host, "up" if up else "down")

    def within(self, host: str) -> tuple[str, ...]:
        return ("ip", "netns", "exec", self.names[host])

    def _in(self, host: str, *command: str) -> None:
        run(*self.within(host), *command)

    def seconds_to(self, server: NatsServer, host: str) -> float:
        """What it takes to reach the server from a host: once there and back."""
        knock = (
            "import socket, sys, time; start = time.monotonic(); "
            "socket.create_connection((sys.argv[1], int(sys.argv[2])), 20).close(); print(time.monotonic() - start)"
        )
        command = [*self.within(host), sys.executable, "-c", knock, server.host, str(server.port)]
        return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    def close(self) -> None:
        if self.switch is not None:
            end(self.switch)
        for name in self.names.values():  # their links go with them
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)


@pytest.fixture
def network() -> Iterator[Network]:
    if sys.platform != "linux" or shutil.which("ip") is None:
        pytest.skip("network namespaces need Linux and `ip`; install it: apt-get install iproute2")
    network = Network()
    try:
        try:
            network.open()
        except OSError as error:
            pytest.skip(f"hosts in network namespaces are not permitted here: {error}")
        yield network
    finally:
        network.close()


def test_three_hosts_on_bad_lines_of_which_one_is_cut(network: Network, calm: Ending, tmp_path: Path) -> None:
    server = NatsServer(tmp_path / "nats", PARTIES, host=network.address("bank_a"), within=network.within("bank_a"))
    outside = {name: network.names[host] for name, host in HOME.items()}
    with Stage(tmp_path, server=server, outside=outside) as stage:
        assert network.seconds_to(server, "telco") >= 2 * DELAY
        stage.organisations.start()
        stage.wait_for("party_2", "answered", round=2)
        network.line("telco", up=False)
        stage.wait_for(
            COORDINATOR, "waiting", parties=["party_2"], seconds=lambda waited: waited is not None and waited >= 3
        )
        network.line("telco", up=True)
        ending = stage.play()
    assert ending.differences(calm) == []
    assert [m for who in (COORDINATOR, *PARTIES) for m in two_versions(stage.sent(who))] == []
