"""`colonnade bench paper`: name the paper's tables and figures, and measure one of them."""

from __future__ import annotations

import difflib
from pathlib import Path

from colonnade.bench.catalogue import folder
from colonnade.bench.outcome import Outcome
from colonnade.bench.page import RESULTS
from colonnade.bench.paper_tables import TABLES, Table
from colonnade.bench.perform import measure
from colonnade.bench.settings import Notify, Options
from colonnade.errors import ConfigError, MissingData

PAPER = "paper"  # the word after `colonnade bench`


def find_table(key: str) -> Table:
    """The table or figure of this key."""
    known = {table.key: table for table in TABLES}
    if key not in known:
        close = difflib.get_close_matches(key, known, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"
        raise ConfigError(f"the paper has no table or figure that is called {key!r} here; {hint}")
    return known[key]


def missing(table: Table, results: Path) -> list[str]:
    """The benchmarks of a table that have no result file."""
    return [name for name in table.benches if not (results / f"{name}.json").exists()]


def listing() -> list[tuple[str, str, str, str]]:
    """Key, place in the paper, title, and the benchmarks with what is missing, of every table and figure."""
    results, rows = folder() / RESULTS, []
    for table in TABLES:
        lacking = missing(table, results)
        told = [f"{name} (no result)" if name in lacking else name for name in table.benches]
        rows.append((table.key, table.place, table.title, ", ".join(told)))
    return rows


def run_table(key: str, options: Options, out: Path | None, notify: Notify) -> list[Outcome]:
    """Measure all benchmarks of a table; with `out`, a folder, each is written to BENCH.json in it.

    A benchmark whose data are not at hand is named and left out.

    Raises:
        MissingData: none of them could be run.
    """
    table = find_table(key)
    if out is not None and not out.is_dir():
        raise ConfigError(f"--out {str(out)!r}: a table has several benchmarks, so it needs a folder that exists")
    if options.only:
        raise ConfigError("--only chooses cases of one benchmark: colonnade bench NAME --only CASE")
    outcomes: list[Outcome] = []
    absent: MissingData | None = None
    for name in table.benches:
        try:
            outcomes.append(measure(name, options, None if out is None else out / f"{name}.json", notify))
        except MissingData as error:
            absent = error
            notify(f"{name}: not measured, its data are not at hand: {error}")
    if not outcomes and absent is not None:
        raise absent
    return outcomes
