"""`python -m colonnade.bench NAME`: benchmarks on a machine without the `cli` extra (no typer, no rich)."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from colonnade.bench.catalogue import find, names
from colonnade.bench.outcome import Outcome
from colonnade.bench.pages import write_pages
from colonnade.bench.paper import PAPER, listing, run_table
from colonnade.bench.perform import measure
from colonnade.bench.settings import Options
from colonnade.errors import ColonnadeError


def main(arguments: Sequence[str] | None = None) -> int:
    """0: every target is met; 1: one is not; 2: it could not be run, and standard error says why."""
    parser = _parser()
    given = parser.parse_args(arguments)
    try:
        if given.list or given.write_pages:
            sys.stdout.writelines(_listed(given.name) if given.list else _written())
            return 0
        _check_named(parser, given)
        outcomes = _measured(given)
    except ColonnadeError as error:
        _to_stderr(str(error))
        return 2
    if given.json:
        told = outcomes[0].to_json() if given.table is None else {one.bench: one.to_json() for one in outcomes}
        sys.stdout.write(json.dumps(told) + "\n")
    else:
        sys.stdout.writelines(_plain_table(outcome) for outcome in outcomes)
    return 0 if all(outcome.passed for outcome in outcomes) else 1


def _listed(name: str | None) -> Iterator[str]:
    """The benchmarks, or the tables of the paper."""
    if name != PAPER:
        return (f"{name:20} {find(name).title}\n" for name in names())
    return (f"{key:16} {title}; {place}\n{'':16} {told}\n" for key, place, title, told in listing())


def _written() -> Iterator[str]:
    return (f"changed: {path}\n" for path in write_pages())


def _check_named(parser: argparse.ArgumentParser, given: argparse.Namespace) -> None:
    """End the process, with a sentence, where it is not said what to measure."""
    if given.name is None:
        parser.error("which benchmark? --list names them")
    if given.name == PAPER and given.table is None:
        parser.error(f"which table? {PAPER} --list names them")
    if given.name != PAPER and given.table is not None:
        parser.error(f"{given.table}: a table follows {PAPER} only")


def _measured(given: argparse.Namespace) -> list[Outcome]:
    which = {"only": tuple(given.only or ()), "finished": given.finished, "beyond": given.beyond}
    options = Options(given.data_dir, given.device, given.seeds, runs=given.runs, **which)
    if given.table is None:
        return [measure(given.name, options, given.out, _to_stderr)]
    return run_table(given.table, options, given.out, _to_stderr)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m colonnade.bench", description="measure a published figure")
    parser.add_argument("name", nargs="?", help="which one; --list names them")
    parser.add_argument("table", nargs="?", help="after paper: which table or figure")
    parser.add_argument("--list", action="store_true", help="name the benchmarks and stop")
    parser.add_argument("--write-pages", action="store_true", help="write the kept results into the pages and stop")
    parser.add_argument("--data-dir", type=Path, help="folder of the data files")
    parser.add_argument("--device", help="cpu, cuda or cuda:N")
    parser.add_argument("--seeds", type=_positive, default=3, help="how many seeds (accuracy)")
    parser.add_argument("--only", action="append", metavar="CASE", help="only this case; may be said several times")
    parser.add_argument("--runs", type=Path, help="keep trainings of cases in this folder, and go on with them")
    parser.add_argument("--finished", action="store_true", help="with --runs: only complete cases, training nothing")
    parser.add_argument("--beyond", type=Path, metavar="FILE", help="leave out cases that this file of results has")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    parser.add_argument("--out", type=Path, help="also write the JSON object to this file")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"needed at least 1; got {text}")
    return number


def _plain_table(outcome: Outcome) -> str:
    rows = [("key", "result", "target", "ok"), *(line.words() for line in outcome.lines())]
    return "".join(f"{key:28} {result:>12} {target:>10}  {ok}\n" for key, result, target, ok in rows)


def _to_stderr(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
