"""What a notebook shows of a run, a federation or a model: a small table of words. No row, and nothing from outside.

Everything is escaped: names of parties, classes and methods are whatever their owners chose.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import TYPE_CHECKING

from colonnade.report import decided, words
from colonnade.report.privacy import privacy_page
from colonnade.report.tables import Table
from colonnade.tasks import Task

if TYPE_CHECKING:
    from colonnade.federation import Federation
    from colonnade.run import Run

CELL = "text-align:left;vertical-align:top"
MOST_NAMED = 12  # parties; the others are counted


def card(title: str, facts: Iterable[tuple[str, str]]) -> str:
    """A title, and facts in two columns; texts of any origin."""
    lines = [
        f'<tr><th style="{CELL}">{escape(name)}</th><td style="{CELL}">{escape(told)}</td></tr>'
        for name, told in facts
        if told
    ]
    return f"<div><b>{escape(title)}</b><table>{''.join(lines)}</table></div>"


def of_run(run: Run) -> str:
    """What was trained, how good it is with its interval and a constant guess, and what is promised."""
    record = run.record()
    result = record["result"]
    parties = [party["name"] for party in record["about"]["parties"]]
    done = f"{result['rounds']} of {record['training']['rounds']} rounds; {result['stop']}"
    return card(
        f"Run {run.id}: {run.method.name} on {run.about['federation']}",
        [
            ("parties", _named(parties)),
            ("task", task_line(run.task)),
            ("how good", " ".join([words.how_good(record), *decided.sentences(record), *words.warnings(record)])),
            ("training", done),
            ("privacy", privacy_page(record).verdict),
            ("saved in", "" if run.path is None else str(run.path)),
        ],
    )


def of_federation(federation: Federation) -> str:
    """Who holds what, how many rows there are, and what the labels mean; no row."""
    split = federation.split
    shapes = [f"{party.name} ({words.shape(party.columns.shape[1:])})" for party in federation.parties]
    parts = f"{len(split.train):,} training, {len(split.validation):,} validation and {len(split.test):,} test rows"
    incomplete = federation.rows - int(federation.complete.sum())
    return card(
        f"Federation {federation.name}",
        [
            ("parties", _named(shapes)),
            ("rows", parts),
            ("partial rows", f"{incomplete:,} that not all parties hold, or without a label" if incomplete else ""),
            ("task", task_line(federation.task)),
        ],
    )


def of_model(title: str, task: Task, parties: Iterable[str], privacy: str = "") -> str:
    """A model without the record of its training; `privacy` is what is known of its promise."""
    return card(title, [("parties", _named(list(parties))), ("task", task_line(task)), ("privacy", privacy)])


def of_comparison(table: Table) -> str:
    """Methods side by side."""
    head = "".join(f'<th style="{CELL}">{escape(column)}</th>' for column in table.columns)
    rows = "".join(
        f"<tr>{''.join(f'<td style={chr(34)}{CELL}{chr(34)}>{escape(str(cell))}</td>' for cell in row)}</tr>"
        for row in table.rows
    )
    return f"<div><b>{escape(table.caption)}</b><table><tr>{head}</tr>{rows}</table></div>"


def task_line(task: Task) -> str:
    """What the labels are, and which classes there are."""
    names = [str(name) for name in task.classes]
    return f"{task.words}" + (f": {_named(names)}" if names else "")


def _named(names: list[str]) -> str:
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
