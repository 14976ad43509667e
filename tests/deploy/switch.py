"""A network switch as a process: every frame arrives late, and some never. What `tc netem` does, on any kernel.

    python switch.py DELAY LOSS PORT...      seconds, share, and the interfaces to connect

It runs in a namespace that holds one end of each host's cable. Loss is drawn from a seed.
"""

from __future__ import annotations

import heapq
import itertools
import random
import select
import socket
import sys
import time

ALL_FRAMES = 0x0003
BROADCAST = b"\xff" * 6


class Switch:
    """Learns who is where, and forwards after a delay."""

    def __init__(self, ports: list[str], delay: float, loss: float) -> None:
        self.delay, self.loss, self.draw = delay, loss, random.Random(0)
        self.sockets = {port: self._plug(port) for port in ports}
        self.home: dict[bytes, str] = {}  # address -> port
        self.late: list[tuple[float, int, str, bytes]] = []
        self.order = itertools.count()

    @staticmethod
    def _plug(port: str) -> socket.socket:
        plug = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL_FRAMES))
        plug.bind((port, 0))
        plug.setblocking(False)
        return plug

    def serve(self) -> None:
        ports = {plug.fileno(): (port, plug) for port, plug in self.sockets.items()}
        while True:
            wait = max(0.0, self.late[0][0] - time.monotonic()) if self.late else None
            for ready in select.select(list(ports), [], [], wait)[0]:
                self._take(*ports[ready])
            while self.late and self.late[0][0] <= time.monotonic():
                _, _, port, frame = heapq.heappop(self.late)
                self._deliver(port, frame)

    def _take(self, port: str, plug: socket.socket) -> None:
        try:
            frame, about = plug.recvfrom(65536)
        except OSError:  # the line is down
            return
        if about[2] == socket.PACKET_OUTGOING:
            return
        self.home[frame[6:12]] = port
        if self.draw.random() >= self.loss:
            heapq.heappush(self.late, (time.monotonic() + self.delay, next(self.order), port, frame))

    def _deliver(self, source: str, frame: bytes) -> None:
        known = self.home.get(frame[:6])
        for port in [known] if known else [port for port in self.sockets if port != source]:
            try:
                self.sockets[port].send(frame)
            except OSError:  # its line is down
                continue


if __name__ == "__main__":
    Switch(sys.argv[3:], float(sys.argv[1]), float(sys.argv[2])).serve()
