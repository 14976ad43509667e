"""`colonnade nats-config`: the configuration of the server between the organisations."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from colonnade.cli.options import AsJson
from colonnade.cli.screen import Screen
from colonnade.errors import ConfigError

INSTALL = "install it: apt-get install nats-server (Debian, Ubuntu), brew install nats-server (macOS), or see nats.io"


def nats_config(  # one parameter per option of the command line
    party: Annotated[
        list[str], typer.Option(metavar="NAME", help="A party's name; once per party.", show_default=False)
    ],
    certificates: Annotated[Path, typer.Option(help="Folder of ca.crt, server.crt and server.key.")] = Path("certs"),
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where to listen; 0.0.0.0 is every address of the machine.")
    ] = "0.0.0.0:4222",
    store: Annotated[Path, typer.Option(help="Where messages are kept until they are read.")] = Path("nats-store"),
    subject: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=SUBJECT",
            help="Whole subject of a certificate that says more than CN=NAME, e.g. bank_a=CN=bank_a,O=Bank.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="The file to write.")] = Path("nats.conf"),
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it is there.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write the configuration of nats-server: mutual TLS, and each party confined to its own messages.

    Run it again with --force when a party is added, and restart the server. Whoever runs the server can read what it
    keeps in its store unless payloads are encrypted.

    Example: colonnade nats-config --party bank_a --party telco --certificates certs --out nats.conf
    """
    from colonnade.deploy.server import find_server, server_config

    host, port = _address(listen)
    text = server_config(
        party,
        port=port,
        host=host,
        store_dir=store.absolute(),
        certificates=_folder(certificates),
        subjects=_subjects(subject or []),
    )
    _write(out, text, force)
    server = find_server()
    command = f"{server or 'nats-server'} -c {out}"
    screen = Screen(as_json)
    screen.emit({"config": str(out), "command": command, "installed": server is not None})
    screen.notify(f"written: {out}")
    screen.notify(f"start the server: {command}")
    if server is None:
        screen.notify(f"nats-server is not installed here; {INSTALL}")


def _address(listen: str) -> tuple[str, int]:
    host, _, port = listen.rpartition(":")
    if not host or not port.isdecimal():
        raise ConfigError(f"--listen {listen!r}: needed HOST:PORT, e.g. --listen 0.0.0.0:4222")
    return host, int(port)


def _folder(certificates: Path) -> Path:
    for name in ("ca.crt", "server.crt", "server.key"):
        if not (certificates / name).is_file():
            raise ConfigError(
                f"{str(certificates)!r} has no {name}; name the folder with --certificates, or make one for a trial "
                "with `colonnade certificates`"
            )
    return certificates.absolute()  # the server may be started from anywhere


def _subjects(given: list[str]) -> dict[str, str]:
    found = {}
    for item in given:
        name, equals, subject = item.partition("=")
        if not equals or "=" not in subject:
            raise ConfigError(f"--subject {item!r}: needed NAME=SUBJECT, e.g. --subject bank_a=CN=bank_a,O=Bank")
        found[name] = subject
    return found


def _write(path: Path, text: str, force: bool) -> None:
    """Beside, then renamed: the old file or the new one, never half of one."""
    if path.exists() and not force:
        raise ConfigError(f"{str(path)!r} is there already; --force replaces it, --out writes another")
    beside = path.with_name(path.name + ".part")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise ConfigError(f"{str(path)!r} cannot be written: {error.strerror}; choose another --out") from None
