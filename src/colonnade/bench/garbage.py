"""Messages that mean nothing, as fast as a server takes them, from somebody who may send to a subject."""

from __future__ import annotations

from colonnade.engines.connection import NatsConnection
from colonnade.identity.credentials import Credentials
from colonnade.randomness import stream

AT_ONCE = 500  # messages before the server is asked whether it has them
LONGEST = 400  # bytes
PATIENCE = 60  # seconds for that


def send_garbage(credentials: Credentials, subject: str, count: int) -> None:
    """Send so many messages; comes back when the server has read all of them."""
    connection = NatsConnection(credentials, _silent).open()
    try:
        connection.do(_send(connection, subject, count))
    finally:
        connection.close()


async def _send(connection: NatsConnection, subject: str, count: int) -> None:
    draw, client = stream(0, "garbage"), connection.client
    for number in range(count):
        await client.publish(subject, draw.bytes(int(draw.integers(1, LONGEST))))
        if number % AT_ONCE == AT_ONCE - 1:
            await client.flush(PATIENCE)
    await client.flush(PATIENCE)


def _silent(event: str, **facts: object) -> None:
    """Nobody listens."""
