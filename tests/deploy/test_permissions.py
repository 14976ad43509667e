"""A party with a valid certificate, and strangers without one, try what they must not be able to do.

Every attack is made with a raw client against a real server. It must be refused, and the coordinator must find
everything as it was. To the caller a refusal looks like silence; the reason arrives at its error callback, so
that is what is waited for, and no time-out has to pass.
"""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import nats
import nats.errors
import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID
from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, RetentionPolicy, StorageType, StreamConfig

from colonnade.identity.certificates import make_trial
from tests.identity.issuing import issue, loaded
from tests.nats_server import NatsServer, needs_nats
from tests.processes import LONG

# nats-py leaves the socket of a refused connection to the garbage collector; the fixture below calls it at once,
# so that the warning comes here and not in whatever test is next.
SOON = 60  # seconds: an answer that takes longer on the busiest machine does not come
pytestmark = [
    needs_nats,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module", autouse=True)
def older_objects_are_left_alone() -> Iterator[None]:
    """So that the collections below are of this module's objects, and take no time."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True)
def sockets_are_collected() -> Iterator[None]:
    yield
    gc.collect()


STREAM, PARTIES = "RUN_r", ("first", "second")
SECRET = b"what second uploaded"


@pytest.fixture(scope="module")
def server() -> Iterator[NatsServer]:
    with NatsServer(parties=PARTIES) as running:
        yield running


class Caller:
    """A raw client of the attacker's or the coordinator's; remembers what the server refused."""

    def __init__(self, client: Client, errors: list[str]) -> None:
        self.client, self.errors = client, errors

    @property
    def js(self) -> JetStreamContext:
        return self.client.jetstream(timeout=SOON)

    async def refused(self, wanted: int = 1) -> list[str]:
        """What the server has complained about, as soon as that is as often as wanted."""
        await self.client.flush(SOON)
        deadline = time.monotonic() + SOON
        while True:  # a busy client may answer the flush first
            found = [error for error in self.errors if "permissions violation" in error.lower()]
            if len(found) >= wanted or time.monotonic() > deadline:
                break
            await asyncio.sleep(0.01)
        return found


@asynccontextmanager
async def caller(server: NatsServer, name: str, **options: Any) -> AsyncIterator[Caller]:
    errors: list[str] = []

    async def note(error: Exception) -> None:
        errors.append(str(error))

    told = {"tls": server.credentials(name).tls(), "inbox_prefix": f"_INBOX_{name}".encode(), **options}
    client = await nats.connect(server.url, allow_reconnect=False, connect_timeout=SOON, error_cb=note, **told)
    try:
        yield Caller(client, errors)
    finally:
        await client.close()


async def lay(js: JetStreamContext) -> None:
    """A run in the middle: an order to all, one part for each, and an upload of second's that nobody has read."""
    await js.add_stream(
        StreamConfig(
            name=STREAM,
            subjects=["run.r.>"],
            retention=RetentionPolicy.INTEREST,
            storage=StorageType.FILE,
            duplicate_window=120,
        )
    )
    boxes = {f"{p}_all": "run.r.all" for p in PARTIES} | {f"{p}_own": f"run.r.down.{p}" for p in PARTIES}
    for name, subject in (boxes | {"coordinator": "run.r.up.*"}).items():
        config = ConsumerConfig(
            durable_name=name, filter_subject=subject, ack_policy=AckPolicy.EXPLICIT, ack_wait=60, max_ack_pending=1
        )
        await js.add_consumer(STREAM, config)
    await js.publish("run.r.all", b"to all")
    for party in PARTIES:
        await js.publish(f"run.r.down.{party}", f"for {party}".encode())


async def picture(js: JetStreamContext) -> dict[str, Any]:
    """Everything the coordinator can know about the stream and its consumers."""
    info = await js.stream_info(STREAM)
    seen: dict[str, Any] = {"config": info.config.as_dict(), "state": vars(info.state)}
    for consumer in await _consumers(js):
        told = await js.consumer_info(STREAM, consumer)
        counts = (told.num_ack_pending, told.num_redelivered, told.num_waiting, told.num_pending)
        seen[consumer] = (counts, vars(told.delivered or ()), vars(told.ack_floor or ()))
    return seen


async def _consumers(js: JetStreamContext) -> list[str]:
    answer = await js._api_request(f"$JS.API.CONSUMER.NAMES.{STREAM}", b"{}", timeout=SOON)
    return sorted(answer["consumers"])


Attack = Callable[[Caller], Awaitable[object]]


def attacked(server: NatsServer, attack: Attack) -> tuple[list[str], list[str]]:
    """Make an attack as first; the stream must be the same afterwards. Returns refusals and what first received."""

    async def go() -> tuple[list[str], list[str]]:
        async with caller(server, "coordinator") as us, caller(server, "second") as victim:
            await lay(us.js)
            await victim.js.publish("run.r.up.second", SECRET)
            try:
                before = await picture(us.js)
                async with caller(server, "first") as attacker:
                    received = await attack(attacker)
                    refused = await attacker.refused()
                assert await picture(us.js) == before
                (upload,) = await (await us.js.pull_subscribe_bind("coordinator", STREAM)).fetch(1, timeout=SOON)
                assert (upload.subject, upload.data) == ("run.r.up.second", SECRET)
                (order,) = await (await victim.js.pull_subscribe_bind("second_all", STREAM)).fetch(1, timeout=SOON)
                assert order.data == b"to all"
            finally:
                await us.js.delete_stream(STREAM)
            return refused, received if isinstance(received, list) else []

    return asyncio.run(asyncio.wait_for(go(), LONG))


# -- the JetStream interface -----------------------------------------------------------------

INTERFACE = {
    "ask about the account": ("INFO", {}),
    "list streams": ("STREAM.NAMES", {}),
    "look at the stream": (f"STREAM.INFO.{STREAM}", {}),
    "delete the stream": (f"STREAM.DELETE.{STREAM}", {}),
    "purge the stream": (f"STREAM.PURGE.{STREAM}", {}),
    "change the stream": (f"STREAM.UPDATE.{STREAM}", {"name": STREAM, "subjects": ["run.r.>"], "max_msgs": 1}),
    "make a stream": ("STREAM.CREATE.MINE", {"name": "MINE", "subjects": ["run.s.>"]}),
    "read a message by number": (f"STREAM.MSG.GET.{STREAM}", {"last_by_subj": "run.r.up.second"}),
    "read a message directly": (f"DIRECT.GET.{STREAM}", {"last_by_subj": "run.r.up.second"}),
    "delete a message": (f"STREAM.MSG.DELETE.{STREAM}", {"seq": 1}),
    "take a snapshot": (f"STREAM.SNAPSHOT.{STREAM}", {"deliver_subject": "_INBOX_first.x"}),
    "make a durable consumer": (
        f"CONSUMER.DURABLE.CREATE.{STREAM}.first_spy",
        {"stream_name": STREAM, "config": {"durable_name": "first_spy", "ack_policy": "explicit"}},
    ),
    "make a passing consumer": (
        f"CONSUMER.CREATE.{STREAM}",
        {"stream_name": STREAM, "config": {"deliver_subject": "_INBOX_first.x", "ack_policy": "none"}},
    ),
    "change the own consumer": (
        f"CONSUMER.DURABLE.CREATE.{STREAM}.first_own",
        {"stream_name": STREAM, "config": {"durable_name": "first_own", "filter_subject": "run.r.>"}},
    ),
    "delete another's consumer": (f"CONSUMER.DELETE.{STREAM}.second_own", {}),
    "look at another's consumer": (f"CONSUMER.INFO.{STREAM}.second_own", {}),
    "list consumers": (f"CONSUMER.NAMES.{STREAM}", {}),
    "read another's own messages": (f"CONSUMER.MSG.NEXT.{STREAM}.second_own", {"batch": 1, "no_wait": True}),
    "read another's common messages": (f"CONSUMER.MSG.NEXT.{STREAM}.second_all", {"batch": 1, "no_wait": True}),
    "read the uploads": (f"CONSUMER.MSG.NEXT.{STREAM}.coordinator", {"batch": 1, "no_wait": True}),
}


@pytest.mark.parametrize("what", INTERFACE)
def test_the_jetstream_interface_is_closed_to_a_party(what: str, server: NatsServer) -> None:
    ask, body = INTERFACE[what]

    async def attack(attacker: Caller) -> list[str]:
        inbox = attacker.client.new_inbox()
        answers = await attacker.client.subscribe(inbox)
        await attacker.client.publish(f"$JS.API.{ask}", json.dumps(body).encode(), reply=inbox)
        return await everything(attacker, answers)

    refused, received = attacked(server, attack)
    assert any(f"$JS.API.{ask}".lower() in error.lower() for error in refused), refused
    assert received == []


async def everything(attacker: Caller, *inboxes: Any) -> list[str]:
    """What has arrived; a moment is left for a server that would answer late."""
    await attacker.client.flush(SOON)
    await asyncio.sleep(0.05)
    return [message.subject for inbox in inboxes for message in _drained(inbox)]


def _drained(inbox: Any) -> Iterator[Any]:
    while not inbox._pending_queue.empty():
        yield inbox._pending_queue.get_nowait()


# -- other people's subjects -------------------------------------------------------------------


@pytest.mark.parametrize(
    "subject",
    [
        "run.r.up.second",
        "run.r.up.coordinator",
        "run.r.all",
        "run.r.down.first",
        "run.r.down.second",
        "run.r",
        "run.r.up.first.more",
        "_INBOX_coordinator.guess",
        "_INBOX_second.guess",
        f"$JS.ACK.{STREAM}.second_own.1.3.1.1.0",
        f"$JS.ACK.{STREAM}.coordinator.1.4.1.1.0",
        "$SYS.REQ.SERVER.PING",
        "anything.else",
    ],
)
def test_a_party_publishes_only_its_own_answers(subject: str, server: NatsServer) -> None:
    async def attack(attacker: Caller) -> None:
        await attacker.client.publish(subject, b"not mine to say")

    refused, _ = attacked(server, attack)
    assert any(f'publish to "{subject}"'.lower() in error.lower() for error in refused), refused


def test_a_party_cannot_acknowledge_what_another_was_given(server: NatsServer) -> None:
    """With the true address of a delivered message, which the attacker would have to guess."""

    async def go() -> None:
        async with caller(server, "coordinator") as us, caller(server, "second") as victim:
            await lay(us.js)
            try:
                (message,) = await (await victim.js.pull_subscribe_bind("second_own", STREAM)).fetch(1, timeout=SOON)
                before = await picture(us.js)
                assert before["second_own"][0][0] == 1  # given, not acknowledged
                async with caller(server, "first") as attacker:
                    for word in (b"+ACK", b"+TERM", b"-NAK"):
                        await attacker.client.publish(message.reply, word)
                    assert len(await attacker.refused(3)) == 3
                assert await picture(us.js) == before
                await message.ack_sync(timeout=SOON)  # and it is still second's to acknowledge
            finally:
                await us.js.delete_stream(STREAM)

    asyncio.run(asyncio.wait_for(go(), LONG))


@pytest.mark.parametrize(
    "pattern",
    [
        "run.>",
        "run.r.>",
        "run.r.up.*",
        "run.r.up.second",
        "run.r.all",
        "run.r.down.first",  # its own too: what it may read it asks for
        "_INBOX_second.>",
        "_INBOX_coordinator.>",
        "_INBOX.>",
        "*.>",
        ">",
        "$JS.>",
        "$JS.API.>",
        "$JS.EVENT.>",
        "$SYS.>",
        "_R_.>",
    ],
)
@pytest.mark.parametrize("queue", ["", "workers"])
def test_a_party_listens_only_to_its_own_inbox(pattern: str, queue: str, server: NatsServer) -> None:
    async def go() -> None:
        async with caller(server, "coordinator") as us, caller(server, "second") as victim:
            await lay(us.js)
            try:
                async with caller(server, "first") as attacker:
                    ear = await attacker.client.subscribe(pattern, queue=queue)
                    refused = await attacker.refused()
                    # Traffic of every kind: orders, uploads, questions to the interface and their answers.
                    await us.js.publish("run.r.all", b"news")
                    await us.js.publish("run.r.down.first", b"news")
                    await victim.js.publish("run.r.up.second", SECRET)
                    (message,) = await (await victim.js.pull_subscribe_bind("second_all", STREAM)).fetch(
                        1, timeout=SOON
                    )
                    await message.ack_sync(timeout=SOON)
                    assert await everything(attacker, ear) == []
                assert any("subscription" in error.lower() for error in refused), refused
            finally:
                await us.js.delete_stream(STREAM)

    asyncio.run(asyncio.wait_for(go(), LONG))


# -- through the server itself -----------------------------------------------------------------


@pytest.mark.parametrize("target", ["run.r.up.second", "run.r.all", "run.r.down.second", "_INBOX_coordinator.x"])
@pytest.mark.parametrize(
    ("ask", "body"),
    [
        ("run.r.up.first", b"my answer"),  # the server acknowledges it to the reply address
        (f"$JS.API.CONSUMER.MSG.NEXT.{STREAM}.first_own", b'{"batch": 1, "no_wait": true}'),  # it delivers there
        (f"$JS.API.CONSUMER.MSG.NEXT.{STREAM}.first_all", b"{ damaged"),  # it complains there
    ],
)
def test_a_reply_address_does_not_make_the_server_send_for_another(
    ask: str, body: bytes, target: str, server: NatsServer
) -> None:
    async def go() -> None:
        async with caller(server, "coordinator") as us, caller(server, "first") as attacker:
            await lay(us.js)
            try:
                ear = await us.client.subscribe("_INBOX_coordinator.x")
                await us.client.flush(SOON)
                stored = (await us.js.stream_info(STREAM)).state.last_seq
                await attacker.client.publish(ask, body, reply=target)
                await attacker.client.flush(SOON)
                await asyncio.sleep(0.05)
                own = 1 if ask.startswith("run.") else 0  # the answer that it may send
                assert (await us.js.stream_info(STREAM)).state.last_seq == stored + own
                assert await everything(us, ear) == []
            finally:
                await us.js.delete_stream(STREAM)

    asyncio.run(asyncio.wait_for(go(), LONG))


def test_the_coordinator_cannot_send_as_a_party(server: NatsServer) -> None:
    async def go() -> None:
        async with caller(server, "coordinator") as us:
            await lay(us.js)
            try:
                before = await picture(us.js)
                await us.client.publish("run.r.up.second", b"forged")
                await us.client.subscribe("_INBOX_second.>")
                assert len(await us.refused(2)) == 2
                assert await picture(us.js) == before
            finally:
                await us.js.delete_stream(STREAM)

    asyncio.run(asyncio.wait_for(go(), LONG))


def test_what_a_party_may_do_works(server: NatsServer) -> None:
    """Otherwise a server that refuses everything would pass all of the above."""

    async def go() -> None:
        async with caller(server, "coordinator") as us, caller(server, "first") as party:
            await lay(us.js)
            try:
                for box, text in (("first_all", b"to all"), ("first_own", b"for first")):
                    (message,) = await (await party.js.pull_subscribe_bind(box, STREAM)).fetch(1, timeout=SOON)
                    assert message.data == text
                    await message.in_progress()
                    await message.ack_sync(timeout=SOON)
                await party.js.publish("run.r.up.first", b"answer", headers={"Nats-Msg-Id": "1.first"})
                (answer,) = await (await us.js.pull_subscribe_bind("coordinator", STREAM)).fetch(1, timeout=SOON)
                assert answer.data == b"answer"
                await answer.ack_sync(timeout=SOON)
                await asyncio.sleep(0.1)
                assert await party.refused(0) == []
                assert await us.refused(0) == []
            finally:
                await us.js.delete_stream(STREAM)

    asyncio.run(asyncio.wait_for(go(), LONG))


# -- strangers -----------------------------------------------------------------------------------


def knock(server: NatsServer, context: ssl.SSLContext, **options: Any) -> str:
    """Why the server does not let somebody in."""

    async def go() -> str:
        errors: list[str] = []

        async def note(error: Exception) -> None:
            errors.append(str(error))

        try:
            client = await nats.connect(
                server.url, tls=context, allow_reconnect=False, connect_timeout=SOON, error_cb=note, **options
            )
        except (nats.errors.Error, OSError, asyncio.TimeoutError) as error:
            return f"{error!r} {errors}"
        await client.close()
        raise AssertionError("the server let a stranger in")

    return asyncio.run(asyncio.wait_for(go(), LONG))


def says(server: NatsServer, since: int, reason: str) -> bool:
    """Whether the server's log gives a reason, now or in a moment."""
    deadline = time.monotonic() + SOON
    while reason not in server.log.read_text()[since:]:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def pair(folder: Path, certs: Path, *names: str, **more: Any) -> ssl.SSLContext:
    """A client with a certificate of the server's own authority, of any name and age."""
    own = issue(*names, by=loaded(certs, "ca"), **more)
    (folder / "x.crt").write_bytes(own.pem)
    (folder / "x.key").write_bytes(own.key_pem)
    return trusting(certs, folder / "x.crt", folder / "x.key")


def trusting(certs: Path, certificate: Path | None = None, key: Path | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(certs / "ca.crt"))
    if certificate is not None:
        context.load_cert_chain(certificate, key)
    return context


def test_no_certificate(server: NatsServer) -> None:
    since = len(server.log.read_text())
    knock(server, trusting(server.certificates))
    assert says(server, since, "provide a certificate")


def test_no_certificate_but_a_name(server: NatsServer) -> None:
    knock(server, trusting(server.certificates), user="CN=first", password="")


def test_a_certificate_of_a_foreign_authority(server: NatsServer, tmp_path: Path) -> None:
    make_trial(tmp_path / "foreign", ["first"])
    since = len(server.log.read_text())
    folder = tmp_path / "foreign"
    knock(server, trusting(server.certificates, folder / "first.crt", folder / "first.key"))
    assert says(server, since, "unknown authority")


def test_an_expired_certificate(server: NatsServer, tmp_path: Path) -> None:
    since = len(server.log.read_text())
    knock(server, pair(tmp_path, server.certificates, "first", days=(-2, -1)))
    assert says(server, since, "expired")


def test_the_servers_own_certificate_is_no_client(server: NatsServer) -> None:
    certs = server.certificates
    knock(server, trusting(certs, certs / "server.crt", certs / "server.key"))


ORGANISATION = NameOID.ORGANIZATION_NAME


@pytest.mark.parametrize(
    ("names", "also"),
    [
        (("stranger",), {}),
        (("First",), {}),
        (("first,O=Bank",), {}),
        (("first",), {ORGANISATION: "Bank"}),
        ((), {ORGANISATION: "first"}),
    ],
    ids=["unknown", "capital", "a comma", "more than the name", "another attribute"],
)
def test_a_certificate_of_the_authority_with_an_unknown_subject(
    names: tuple[str, ...], also: dict[Any, str], server: NatsServer, tmp_path: Path
) -> None:
    why = knock(server, pair(tmp_path, server.certificates, *names, also=also))
    assert "Authorization Violation" in why


def test_an_alternative_name_does_not_make_a_user(server: NatsServer, tmp_path: Path) -> None:
    alternative = x509.SubjectAlternativeName([x509.DNSName("first"), x509.RFC822Name("first@x")])
    why = knock(server, pair(tmp_path, server.certificates, "stranger", extensions=(alternative,)))
    assert "Authorization Violation" in why


def test_a_certificate_made_by_the_same_hand_is_let_in(server: NatsServer, tmp_path: Path) -> None:
    """Otherwise the refusals above might come from how these tests make certificates."""
    with pytest.raises(AssertionError, match="let a stranger in"):
        knock(server, pair(tmp_path, server.certificates, "first"))


def test_naming_another_user_does_not_make_one_that_user(server: NatsServer) -> None:
    async def go() -> None:
        try:
            async with caller(server, "first", user="CN=second", password="") as attacker:
                await attacker.client.publish("run.r.up.second", b"forged")
                assert await attacker.refused()
        except nats.errors.Error as error:
            assert "Authorization Violation" in str(error)

    asyncio.run(asyncio.wait_for(go(), LONG))


def test_a_plain_text_connection_gets_nothing(server: NatsServer) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=SOON) as line:
        greeting = json.loads(line.recv(65536).split(b"INFO ", 1)[1])
        assert greeting["tls_required"]
        assert greeting["tls_verify"]
        line.sendall(b'CONNECT {"verbose": true, "user": "CN=first"}\r\nSUB > 1\r\nPING\r\n')
        line.settimeout(5)
        answer = b""
        while chunk := _chunk(line):
            answer += chunk
    assert b"PONG" not in answer
    assert b"+OK" not in answer


def _chunk(line: socket.socket) -> bytes:
    try:
        return line.recv(65536)
    except ConnectionResetError:
        return b""
