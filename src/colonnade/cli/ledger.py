"""`colonnade ledger`: what left, in short or entry by entry, and whether the list is as it was written."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from colonnade.cli.options import AsJson
from colonnade.cli.screen import Screen
from colonnade.errors import RunError

if TYPE_CHECKING:
    from colonnade.ledger_files import Group, LedgerFile, Verdict

app = typer.Typer(no_args_is_help=True, help="The ledger: what left, when, and whether the list was changed since.")
Place = Annotated[
    Path, typer.Argument(metavar="RUN", help="Folder of a run, a model or a party; or a ledger.", show_default=False)
]


@app.command()
def show(run: Place, as_json: AsJson = False) -> None:
    """What left, by owner, purpose, mechanism and audience: releases, rows, bytes, first and last time.

    Times are UTC by the clock of the machine that recorded the entry. Entries of earlier versions have none.

    Example: colonnade ledger show runs/first
    """
    from colonnade.ledger_files import groups, open_ledger
    from colonnade.report.tables import Table

    ledger = open_ledger(run)
    found, screen = groups(ledger.lines), Screen(as_json)
    screen.emit({"file": str(ledger.path), "entries": len(ledger.lines), "groups": [vars(group) for group in found]})
    columns = ("owner", "purpose", "mechanism", "audience", "releases", "rows", "bytes", "first", "last")
    screen.table(Table(f"{ledger.path}", columns, tuple(map(_row, found)), frozenset({0, 1, 2, 3})))
    untimed = sum(not line.get("time") for line in ledger.lines)
    older = f"; {untimed:,} of an earlier version, which recorded no time" if untimed else ""
    screen.notify(f"{len(ledger.lines):,} entries{older}. {_chained(ledger)}")


def _row(group: Group) -> tuple[str, ...]:
    size = "" if group.bytes is None else f"{group.bytes:,}"
    first, last = ("" if not time else time[:19].replace("T", " ") for time in (group.first, group.last))
    words = (group.owner, group.purpose, group.mechanism, group.audience)
    return (*words, f"{group.releases:,}", f"{group.rows:,}", size, first, last)


def _chained(ledger: LedgerFile) -> str:
    if ledger.signed is not None:
        return "Its end is signed: check it with colonnade ledger verify."
    return "It is chained and not signed." if any("chain" in line for line in ledger.lines) else "It has no chain."


@app.command()
def export(
    run: Place,
    kind: Annotated[
        Literal["csv", "json"], typer.Option("--format", help="csv: a table; json: entries as they are stored.")
    ] = "csv",
    party: Annotated[
        str, typer.Option(metavar="NAME", help="Only what it sent, and what it could read.", show_default=False)
    ] = "",
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where to; default: stdout.", show_default=False)
    ] = None,
) -> None:
    """Every entry, for an auditor. Nothing is left out and nothing is judged; `verify` says whether they fit together.

    Example: colonnade ledger export party --format csv --out ledger.csv
    """
    from colonnade.ledger_files import FIELDS, decisions_beside, flat, of_party, open_ledger

    ledger = open_ledger(run)
    chosen = of_party(ledger.lines, party)
    if kind == "json":
        entries = [{"entry": number, **line} for number, line in chosen]
        told = {"file": str(ledger.path), "of": len(ledger.lines), "signed": ledger.signed}
        told |= {"decisions": decisions_beside(ledger.path), "entries": entries}
        text = json.dumps(told, indent=1) + "\n"
    else:
        table = io.StringIO()
        writer = csv.DictWriter(table, (*FIELDS, "digest", "chain"), lineterminator="\n")
        writer.writeheader()
        writer.writerows(flat(number, line) for number, line in chosen)
        text = table.getvalue()
    if ledger.damaged:
        print(f"warning: entry {len(ledger.lines) + 1}: {ledger.damaged}; nothing after it is here", file=sys.stderr)
    _write(text, out, len(chosen))


def _write(text: str, out: Path | None, entries: int) -> None:
    if out is None:
        print(text, end="")
        return
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RunError(f"{out} cannot be written: {error.strerror}; choose another --out") from None
    print(f"{entries:,} entries, written to {out}")


@app.command()
def verify(
    run: Place,
    authority: Annotated[
        Path | None,
        typer.Option(
            metavar="ca.crt", help="Who vouches for the signer; a signature is then needed.", show_default=False
        ),
    ] = None,
    head: Annotated[
        str, typer.Option(metavar="HASH", help="A hash noted earlier: it must be in the chain.", show_default=False)
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Follow the chain of hashes from the first entry to the last, and check the signature of its end.

    The first entry that does not fit is named, with exit status 1. A simulation's ledger is not signed: whoever can
    write its folder can write a new chain. Note the hash that is printed; --head holds the ledger against it later.

    Example: colonnade ledger verify party --authority certs/ca.crt
    """
    from colonnade.ledger_files import open_ledger
    from colonnade.ledger_files import verify as verified

    found = verified(open_ledger(run), authority, head.lower())
    screen = Screen(as_json)
    screen.emit(found.to_json())
    for line in _told(found):
        screen.notify(line)
    raise typer.Exit(1 if found.problem else 0)


def _told(found: Verdict) -> list[str]:
    if found.problem:
        where = "" if found.place is None else f"entry {found.place}: "
        return [f"{found.path} does NOT fit: {where}{found.problem}"]
    lines = [f"{found.path}: {found.entries:,} entries fit together", f"last hash: {found.head}"]
    if found.unlinked:
        told = "have no hash of their own: an earlier version wrote them"
        later = (
            "; the entries after them cover them" if found.unlinked < found.entries else "; the signature covers them"
        )
        lines.append(f"the first {found.unlinked:,} {told}{later}")
    signed = found.head_signed
    if signed is not None:
        lines.append(f"signed by {signed.signer} for run {signed.run} at {signed.time}, held against {found.authority}")
    else:
        lines.append(
            "not signed: whoever can write this folder can write a new chain; compare the last hash with one noted"
        )
    return lines
