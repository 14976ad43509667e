"""The configuration of the NATS server between the organisations.

Who may do what is decided here, once, by the server, and not by asking the parties to behave:

    party <p>     publish    run.*.up.<p>                                  its answers
                             $JS.API.CONSUMER.MSG.NEXT.*.<p>_all | _own    asking for its next message
                             $JS.ACK.*.<p>_all.> | _own.>                  saying that it has it
                  subscribe  _INBOX_<p>.>                                  replies to itself
    coordinator   publish    run.*.all, run.*.down.*                       requests; it cannot send as a party
                             $JS.API...                                    its streams, consumers, own messages
                             $JS.ACK.*.coordinator.>
                  subscribe  _INBOX_coordinator.>
                             run.*.up.*                                    answers, as they come

With anything broader ($JS.API.>, _INBOX.>) a party could read another's uploads or delete the stream.

Each party is also in an account of its own, joined to the coordinator's by exactly those subjects. Permissions
alone do not check where a reply goes: with nats-server 2.9 a party in the same account could name another's
subject as its reply address, and the server itself would put an acknowledgement or an error into the stream
there, which the other could neither read nor skip. Between accounts a reply address means nothing.

A connection needs a certificate of the authority whose subject is listed; there are no passwords.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from colonnade.errors import ConfigError
from colonnade.identity.names import COORDINATOR, check_parties
from colonnade.wire.container import LIMIT

MAX_PAYLOAD = LIMIT + 2**20  # a full message, its headers and what encryption adds
MAX_PENDING = 8 * MAX_PAYLOAD  # bytes that may wait for one client before the server gives it up as too slow
MAX_FILE = 16 * 2**30  # bytes of all streams on disk
SLOWEST = 120  # seconds that one full message may take on a client's line: about 2 Mbit/s
LONGEST_PULL = 60  # seconds that a party may wait for a message with one request; then the answer finds no way back

# What the coordinator asks of the JetStream interface: its streams, their consumers, and its own next message.
_COORDINATOR_ASKS = (
    "INFO",
    *(f"STREAM.{verb}.*" for verb in ("CREATE", "UPDATE", "INFO", "PURGE", "DELETE")),
    "STREAM.NAMES",
    "CONSUMER.CREATE.>",
    "CONSUMER.DURABLE.CREATE.*.*",
    *(f"CONSUMER.{verb}.*.*" for verb in ("INFO", "DELETE")),
    "CONSUMER.NAMES.*",
    f"CONSUMER.MSG.NEXT.*.{COORDINATOR}",
)


def find_server() -> Path | None:
    """The nats-server of this machine; /usr/sbin, where Debian puts it, is not on everybody's PATH."""
    found = shutil.which("nats-server") or shutil.which("nats-server", path="/usr/sbin:/usr/local/sbin")
    return Path(found) if found else None


def server_config(
    parties: Iterable[str],
    *,
    port: int,
    host: str,
    store_dir: Path,
    certificates: Path,
    subjects: Mapping[str, str] | None = None,
) -> str:
    """The text of a configuration for nats-server 2.9 or later.

    Args:
        parties: the parties' names, which are the common names of their certificates.
        port: where to listen; -1 lets the system choose.
        host: the address to listen on, e.g. `0.0.0.0`.
        store_dir: where streams are kept.
        certificates: folder of `ca.crt`, `server.crt` and `server.key`.
        subjects: the whole subject of a certificate that says more than a common name, e.g.
            `{"bank_a": "CN=bank_a,O=Bank A"}`; the order of its parts does not matter.

    Raises:
        ConfigError: a name, a subject or the port cannot be used.
    """
    names = check_parties(parties)
    known = (COORDINATOR, *names)
    if not names:
        raise ConfigError("the server needs to know the parties; name at least one")
    if not -1 <= port < 2**16 or port == 0:
        raise ConfigError(f"port {port}: needed 1 to 65535, or -1 for any that is free")
    for name in subjects or {}:
        if name not in known:
            raise ConfigError(f"subject for {name!r}: there is no such party; known: {', '.join(known)}")
    whole = {name: _subject(name, subjects or {}) for name in known}
    accounts = [_coordinator(names, whole[COORDINATOR]), *(_party(name, whole[name]) for name in names)]
    return _TEXT.format(
        listen=_quoted(f"{host}:{port}"),
        ca=_quoted(certificates / "ca.crt"),
        certificate=_quoted(certificates / "server.crt"),
        key=_quoted(certificates / "server.key"),
        store=_quoted(store_dir),
        max_file=MAX_FILE,
        max_payload=MAX_PAYLOAD,
        max_pending=MAX_PENDING,
        slowest=SLOWEST,
        accounts="\n".join(accounts),
    )


def _subject(name: str, subjects: Mapping[str, str]) -> str:
    subject = subjects.get(name, f"CN={name}")
    common = [part.strip() for part in subject.split(",") if part.strip().upper().startswith("CN=")]
    if common != [f"CN={name}"]:
        raise ConfigError(f"subject {subject!r} of {name!r}: its one common name must be CN={name}")
    return subject


def _pulls(party: str) -> list[str]:
    return [f"$JS.API.CONSUMER.MSG.NEXT.*.{party}_{which}" for which in ("all", "own")]


def _says(party: str) -> list[str]:
    return [f"run.*.up.{party}", *(f"$JS.ACK.*.{party}_{which}.>" for which in ("all", "own"))]


def _coordinator(parties: Iterable[str], subject: str) -> str:
    publish = ["run.*.all", "run.*.down.*", *(f"$JS.API.{ask}" for ask in _COORDINATOR_ASKS)]
    exports = [_export(party, pattern) for party in parties for pattern in (*_says(party), *_pulls(party))]
    user = _user(COORDINATOR, subject, [*publish, f"$JS.ACK.*.{COORDINATOR}.>"], subscribed=["run.*.up.*"])
    return f'  "{COORDINATOR}": {{\n    jetstream: enabled\n{user}\n{_listed("exports", exports)}\n  }}'


def _party(name: str, subject: str) -> str:
    publish = [*_says(name), *_pulls(name)]
    imports = [f"{{ service: {{ account: {COORDINATOR}, subject: {_quoted(pattern)} }} }}" for pattern in publish]
    return f'  "{name}": {{\n{_user(name, subject, publish)}\n{_listed("imports", imports)}\n  }}'


def _export(party: str, pattern: str) -> str:
    """A service for one party's account; a pull may have several answers (news that it expired among them)."""
    many = f', response_type: "stream", response_threshold: "{LONGEST_PULL}s"' if pattern in _pulls(party) else ""
    return f'{{ service: {_quoted(pattern)}, accounts: ["{party}"]{many} }}'


def _user(name: str, subject: str, publish: list[str], subscribed: Iterable[str] = ()) -> str:
    readable = ", ".join(_quoted(pattern) for pattern in (f"_INBOX_{name}.>", *subscribed))
    allowed = _listed("allow", [_quoted(pattern) for pattern in publish], "          ")
    return (
        f"    users: [ {{\n      user: {_quoted(subject)}\n      permissions: {{\n        publish: {{\n{allowed}\n"
        f"        }}\n        subscribe: {{ allow: [{readable}] }}\n      }}\n    }} ]"
    )


def _listed(key: str, items: Iterable[str], indent: str = "    ") -> str:
    return "\n".join([f"{indent}{key}: [", *(f"{indent}  {item}" for item in items), f"{indent}]"])


def _quoted(value: object) -> str:
    """A string of the configuration; what would end or change it is refused."""
    text = str(value)
    if not text.isprintable() or '"' in text or "\\" in text:
        raise ConfigError(f"{text!r} cannot stand in the server's configuration; leave out quotes and backslashes")
    return json.dumps(text, ensure_ascii=False)


_TEXT = """\
# nats-server between the organisations; written by `colonnade nats-config`.
listen: {listen}

tls {{
  cert_file: {certificate}
  key_file: {key}
  ca_file: {ca}
  verify_and_map: true    # no connection without a certificate; its subject is the user
  timeout: 10             # seconds for the handshake, over a slow line
}}
authorization {{
  timeout: 15             # longer than the handshake
}}

# A client whose line needs longer than {slowest} s for one full message is given up.
max_payload: {max_payload}
max_pending: {max_pending}
write_deadline: "{slowest}s"
ping_interval: "30s"      # four unanswered ones take as long
ping_max: 4
max_connections: 1024
max_subscriptions: 1024   # of one connection

jetstream {{
  store_dir: {store}
  max_mem: 67108864       # streams are files
  max_file: {max_file}
}}

# An account per process: what is not exported by one and imported by the other does not pass.
accounts {{
{accounts}
}}
"""
