"""`colonnade report`: one self-contained HTML page about one run, or several side by side, and files beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from colonnade.cli.options import AsJson
from colonnade.cli.screen import Screen


def report(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Run folders, or folders of runs.", show_default=False)
    ],
    out: Annotated[
        Path | None, typer.Option(help="An .html file, or a folder for report.html.", show_default=False)
    ] = None,
    page_only: Annotated[
        bool, typer.Option("--page-only", help="Only the page; no .md, .json and pictures beside it.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write a page with words, tables and curves; several runs are compared. It loads nothing from the network.

    Beside report.html: report.md and report.json say the same, and pictures/ has every figure as SVG and PNG. What
    `colonnade explain` found out about the parties is shown, too. Without --out all goes into the folder that was
    named, or, of several, into the current one.

    Example: colonnade report runs/first
    """
    from colonnade.report.html import beside, write_report
    from colonnade.report.record import read_records
    from colonnade.report.worth import read_worth

    screen = Screen(as_json)
    records = read_records(runs)
    for why in (record["unexplained"] for record in records if "unexplained" in record):
        screen.aside(f"{why}; the report does without it")
    target = out if out is not None else (runs[0] if len(runs) == 1 else Path())
    worth = read_worth(runs[0], records) if len(runs) == 1 else None
    path = write_report(records, target, page_only=page_only, worth=worth)
    markdown, data, pictures = (None if page_only else str(place) for place in beside(path))
    files = {"markdown": markdown, "data": data, "pictures": pictures}
    screen.emit({"report": str(path), **files, "runs": len(records), "bytes": path.stat().st_size})
    screen.notify(str(path))
