"""One self-contained HTML page about one run, or about several side by side.

The page asks the network for nothing, reads on a phone, on paper and in the dark, and is a few hundred
kilobytes at most. All texts are escaped by the template engine; only the figures, made here, are not.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from colonnade.errors import RunError
from colonnade.extras import need
from colonnade.report import repeat, tables, words
from colonnade.report.privacy import notes, privacy_page
from colonnade.report.record import Group, Record, check_record, grouped

PAGE = "report.html"


def write_report(records: list[Record], folder_or_file: str | Path) -> Path:
    """Write the page and return its path; the file appears whole or not at all.

    Args:
        records: run records, as `Run.record()` gives and `run.json` holds them; several make a comparison.
        folder_or_file: a file that ends in .html, or a folder to write report.html into.

    Raises:
        RunError: there is no record, one is damaged, or the file cannot be written.
        DataError: the report extra is not installed.
    """
    target = Path(folder_or_file)
    path = target if target.suffix.lower() in (".html", ".htm") else target / PAGE
    page = render(records)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(path.name + ".part")
        beside.write_text(page, encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        raise RunError(f"the report cannot be written to {path}: {error}; choose another place") from None
    return path


def require_extra() -> Any:
    """The template engine, if all that a report needs is installed; for checks before a long training.

    Raises:
        DataError: it is not; the message has the command that installs it.
    """
    need("matplotlib", extra="report", purpose="a report")
    return need("jinja2", extra="report", purpose="a report")


def render(records: list[Record]) -> str:
    """The page as text."""
    if not records:
        raise RunError("a report needs at least one run; name its folder")
    for record in records:
        check_record(record, f"run {record.get('id', 'without an id')}")
    jinja = require_extra()
    from colonnade.report.curves import pictures  # draws, so it needs the extra

    groups = grouped(records)
    environment = jinja.Environment(
        loader=jinja.PackageLoader("colonnade.report"),
        autoescape=True,
        undefined=jinja.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    template = environment.get_template("report.html.j2")
    facts = _one(records[0]) if len(records) == 1 else _several(groups)
    page: str = template.render(pictures=pictures(groups), legend=[group.label for group in groups], **facts)
    return page


def _one(record: Record) -> dict[str, Any]:
    about, result, traffic = record["about"], record["result"], record["traffic"]
    best = "-" if result["best_round"] is None else f"{result['best_round']:,}"
    tiles = [
        (f"test {words.score_name(record)}", words.score(record, result["test_score"])),
        ("best round", f"{best} of {result['rounds']:,}"),
        ("training traffic", words.size(traffic["up"] + traffic["down"])),
        ("time", words.duration(result["seconds"])),
    ]
    return {
        "title": f"{record['method']['name']} on {about['federation']}",
        "kind": "one run",
        "tiles": tiles,
        "run": _details(record),
        "comparison": None,
        "groups": [],
        "notes": [],
        "diverged": result["stop"] if result["diverged"] else None,
    }


def _several(groups: Sequence[Group]) -> dict[str, Any]:
    federations = sorted({group.first["about"]["federation"] for group in groups})
    number = sum(len(group.records) for group in groups)
    bad = [group.label for group in groups if any(r["result"]["diverged"] for r in group.records)]
    return {
        "title": f"{words.count(len(groups), 'method')} on {words.listing(federations)}",
        "kind": words.count(number, "run"),
        "tiles": [],
        "run": None,
        "comparison": tables.comparison_table(groups),
        "notes": notes(groups),
        "groups": [{"label": g.label, "runs": [_told(r) for r in g.records], **_details(g.first)} for g in groups],
        "diverged": f"{words.listing(bad)}: a run diverged; its best round was kept" if bad else None,
    }


def _told(record: Record) -> dict[str, Any]:
    return {"seed": record["training"]["seed"], "summary": words.summary(record)}


def _details(record: Record) -> dict[str, Any]:
    return {
        "summary": words.summary(record),
        "privacy": privacy_page(record),
        "noise": words.noise(record),
        "settings": tables.settings_table(record),
        "parties": tables.parties_table(record),
        "traffic": tables.traffic_table(record),
        "classes": tables.classes_table(record),
        "confusion": tables.confusion_cells(record),
        "class_names": tables.class_names(record),
        "pairs": tables.confused_pairs(record),
        "machine": tables.machine_table(record),
        "command": repeat.command(record),
        "configuration": repeat.configuration(record),
    }
