"""`colonnade certificates`: a test authority and one certificate per process, for trials."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from colonnade.cli.options import AsJson
from colonnade.cli.screen import Screen
from colonnade.errors import ConfigError

if TYPE_CHECKING:
    from colonnade.identity.certificates import Made


def certificates(
    party: Annotated[
        list[str], typer.Option(metavar="NAME", help="A party's name; once per party.", show_default=False)
    ],
    folder: Annotated[Path, typer.Option(help="Where to; one that has an authority is added to.")] = Path("certs"),
    host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Name or address of the server, once for each; default: localhost.", show_default=False
        ),
    ] = None,
    days: Annotated[int, typer.Option(help="How long the certificates are valid.")] = 30,
    as_json: AsJson = False,
) -> None:
    """Make certificates for a trial: an authority, the server's, the coordinator's and one per party.

    For trials only: whoever has ca.key can be anybody. In production every organisation makes its own key and has it
    certified, with the party's name as common name, by an authority that all of them trust.

    Nothing is overwritten. A party that is added later gets its certificate from the authority that is there.

    Example: colonnade certificates --folder certs --party bank_a --party telco --host nats.example
    """
    try:
        from colonnade.identity.certificates import make_trial
    except ImportError:
        raise ConfigError(
            "certificates need cryptography, which is not installed; run: pip install 'colonnade[deploy]'"
        ) from None

    made = make_trial(folder, party, host or None, days)
    screen = Screen(as_json)
    screen.emit(
        {
            "folder": str(folder),
            "written": list(made.written),
            "kept": list(made.kept),
            "expires": made.expires.isoformat(),
        }
    )
    _tell(screen, made, party)


def _tell(screen: Screen, made: Made, parties: list[str]) -> None:
    if not made.written:
        screen.notify(f"{made.folder} has all of them; nothing was written")
        return
    screen.notify(f"written to {made.folder}: {', '.join(made.written)}")
    screen.notify(
        f"valid until {made.expires:%Y-%m-%d}; for trials: in production every organisation makes its own key"
    )
    screen.notify("give each process only ca.crt and its own .crt and .key; keep ca.key to yourself")
    names = " ".join(f"--party {name}" for name in parties)
    screen.notify(f"next: colonnade nats-config {names} --certificates {made.folder}")
