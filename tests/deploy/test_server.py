"""The server's configuration: what nats-server makes of it, the command that writes it, and the tests' own server."""

from __future__ import annotations

import asyncio
import socket
import subprocess
from pathlib import Path
from typing import Any

import nats
import nats.errors
import pytest
from cryptography.x509.oid import NameOID
from nats.aio.client import Client
from nats.js.api import StorageType, StreamConfig

from colonnade.bench import nats_server
from colonnade.deploy import server as module
from colonnade.deploy.server import MAX_PAYLOAD, find_server, server_config
from colonnade.errors import ConfigError, LinkError
from colonnade.identity.certificates import make_trial
from colonnade.wire.container import LIMIT
from tests.architecture.source import ROOT
from tests.cli.conftest import Call, cli
from tests.identity.issuing import issue, loaded
from tests.nats_server import NatsServer, needs_nats
from tests.processes import LONG
from tests.python_files import as_module

__all__ = ["cli"]  # the fixture
PLACES: dict[str, Any] = {"port": 4222, "host": "0.0.0.0", "store_dir": Path("store"), "certificates": Path("certs")}


def test_a_full_message_and_its_headers_pass() -> None:
    assert MAX_PAYLOAD >= LIMIT + 4096
    assert f"max_payload: {MAX_PAYLOAD}" in server_config(["a"], **PLACES)


def test_a_party_is_named_only_in_what_is_its_own() -> None:
    """No wildcard stands where a party's name belongs."""
    text = server_config(["a", "b"], **PLACES)
    mine = text[text.index('  "a": {') : text.index('  "b": {')]
    assert '"run.*.up.a"' in mine
    assert '"_INBOX_a.>"' in mine
    assert "b_" not in mine
    assert "up.b" not in mine
    assert '">"' not in text
    assert "$JS.API.>" not in text


@pytest.mark.parametrize(
    ("change", "needle"),
    [
        ({"parties": []}, "at least one"),
        ({"parties": ["a.b"]}, "party"),
        ({"parties": ["coordinator"]}, "party"),
        ({"parties": ["a", "A"]}, "twice"),
        ({"port": 0}, "port"),
        ({"port": 70_000}, "port"),
        ({"host": 'x"\naccounts {'}, "cannot stand"),
        ({"store_dir": Path('a"b')}, "cannot stand"),
        ({"certificates": Path("a\\b")}, "cannot stand"),
        ({"subjects": {"c": "CN=c"}}, "no such party"),
        ({"subjects": {"a": "CN=b"}}, "common name"),
        ({"subjects": {"a": "O=Bank"}}, "common name"),
        ({"subjects": {"a": "CN=a,CN=b"}}, "common name"),
        ({"subjects": {"a": 'CN=a,O="x'}}, "cannot stand"),
    ],
)
def test_what_cannot_be_configured_is_refused(change: dict[str, Any], needle: str) -> None:
    with pytest.raises(ConfigError, match=needle):
        server_config(**{"parties": ["a", "b"], **PLACES, **change})


# -- the command -------------------------------------------------------------------------------


def test_the_command_writes_what_the_server_accepts(cli: Call) -> None:
    make_trial(Path("certs"), ["bank_a", "telco"])
    done = cli("nats-config", "--party", "bank_a", "--party", "telco", "--listen", "127.0.0.1:4333")
    assert done.code == 0
    assert "-c nats.conf" in done.out
    if (binary := find_server()) is not None:
        checked = subprocess.run([binary, "-t", "-c", "nats.conf"], capture_output=True, text=True, check=False)
        assert checked.returncode == 0, checked.stderr
    assert "127.0.0.1:4333" in Path("nats.conf").read_text()
    before = Path("nats.conf").read_text()
    again = cli("nats-config", "--party", "bank_a")
    assert (again.code, again.err.count("\n")) == (2, 1)
    assert "--force" in again.err
    assert Path("nats.conf").read_text() == before
    forced = cli("nats-config", "--party", "bank_a", "--force", "--json")
    assert forced.json["config"] == "nats.conf"
    assert "telco" not in Path("nats.conf").read_text()
    assert sorted(path.name for path in Path().iterdir()) == ["certs", "nats.conf"]


def test_the_command_says_how_to_install_a_missing_server(cli: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    make_trial(Path("certs"), ["bank_a"])
    monkeypatch.setattr(module, "find_server", lambda: None)
    done = cli("nats-config", "--party", "bank_a")
    assert done.code == 0
    assert "apt-get install nats-server" in done.out


@pytest.mark.parametrize(
    ("arguments", "needle"),
    [
        (["--certificates", "nowhere"], "`colonnade certificates`"),
        (["--listen", "4222"], "HOST:PORT"),
        (["--listen", "h:port"], "HOST:PORT"),
        (["--subject", "bank_a"], "NAME=SUBJECT"),
        (["--subject", "other=CN=other"], "no such party"),
        (["--out", "no/such/folder/nats.conf"], "--out"),
    ],
)
def test_the_command_refuses_in_one_sentence(arguments: list[str], needle: str, cli: Call) -> None:
    make_trial(Path("certs"), ["bank_a"])
    done = cli("nats-config", "--party", "bank_a", *arguments)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert needle in done.err
    assert not Path("nats.conf").exists()


# -- the tests' own server -----------------------------------------------------------------------


async def ask(server: NatsServer, name: str = "coordinator", **options: Any) -> Client:
    return await nats.connect(
        server.url,
        tls=server.credentials(name).tls(),
        inbox_prefix=f"_INBOX_{name}".encode(),
        allow_reconnect=False,
        connect_timeout=60,
        **options,
    )


def store(server: NatsServer, *texts: bytes) -> int:
    """Store some messages; how many there are."""

    async def go() -> int:
        client = await ask(server)
        js = client.jetstream(timeout=60)
        await js.add_stream(StreamConfig(name="RUN_r", subjects=["run.r.>"], storage=StorageType.FILE))
        for text in texts:
            await js.publish("run.r.all", text)
        held = (await js.stream_info("RUN_r")).state.messages
        await client.close()
        return int(held)

    return asyncio.run(asyncio.wait_for(go(), LONG))


@needs_nats
def test_a_server_is_stopped_killed_wiped_and_rolled_back(tmp_path: Path) -> None:
    with NatsServer(tmp_path / "nats") as server:
        port = server.port
        assert store(server, b"one") == 1
        server.stop()
        assert not server.running
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=60)
        server.save()
        server.start()
        assert store(server, b"two") == 2
        server.restart(kill=True)
        assert store(server) == 2
        server.kill()
        server.roll_back()
        server.start()
        assert store(server) == 1
        with pytest.raises(LinkError, match="stop or kill"):
            server.wipe()
        server.kill()
        server.wipe()
        server.start()
        assert store(server) == 0
        assert server.port == port
        assert server.log.read_text().count("Server is ready") == 5
    assert not server.running


@needs_nats
def test_a_full_message_travels_and_a_larger_one_does_not(tmp_path: Path) -> None:
    async def go(server: NatsServer) -> None:
        client = await ask(server, pending_size=4 * LIMIT)
        js = client.jetstream(timeout=60)
        await js.add_stream(StreamConfig(name="RUN_r", subjects=["run.r.>"], storage=StorageType.FILE))
        await js.publish("run.r.all", bytes(LIMIT), headers={"Nats-Msg-Id": "x" * 200})
        assert client.max_payload == MAX_PAYLOAD
        with pytest.raises(nats.errors.MaxPayloadError):
            await js.publish("run.r.all", bytes(MAX_PAYLOAD + 1))
        await client.close()

    with NatsServer(tmp_path / "nats") as server:
        asyncio.run(asyncio.wait_for(go(server), LONG))


@needs_nats
def test_a_whole_subject_is_a_user_in_any_order(tmp_path: Path) -> None:
    """What an organisation's own authority writes: more than a common name."""
    server = NatsServer(tmp_path / "nats", parties=("first",))
    certs, bank = server.certificates, {NameOID.COUNTRY_NAME: "DE", NameOID.ORGANIZATION_NAME: "Bank A"}
    ca = loaded(certs, "ca")
    own = issue("first", by=ca, also=bank)
    (certs / "first.crt").write_bytes(own.pem)
    (certs / "first.key").write_bytes(own.key_pem)
    places = {"store_dir": server.store, "certificates": certs}
    whole = {"first": "CN=first,O=Bank A,C=DE"}
    server.config.write_text(server_config(["first"], port=server.port, host="127.0.0.1", subjects=whole, **places))

    async def go() -> None:
        client = await ask(server, "first")
        assert client.is_connected
        await client.close()

    with server:
        assert server.credentials("first").name == "first"
        asyncio.run(asyncio.wait_for(go(), LONG))


@pytest.mark.parametrize(("ci", "skips"), [("true", False), ("1", False), ("", True), ("false", True)])
def test_without_a_server_ci_fails_and_others_skip(
    ci: str, skips: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for user in (module, nats_server):
        monkeypatch.setattr(user, "find_server", lambda: None)
    monkeypatch.setenv("CI", ci)
    fresh = as_module(ROOT / "tests" / "nats_server.py")
    assert fresh.needs_nats.mark.args == (skips,)
    assert "apt-get install nats-server" in fresh.needs_nats.mark.kwargs["reason"]
    with pytest.raises(LinkError, match="apt-get install nats-server"), fresh.NatsServer(tmp_path / "nats"):
        pass
