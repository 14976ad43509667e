"""A report as one JSON object, for programs. `schema` names its layout; docs/report.md describes it.

The version rises when a key goes or changes its meaning; a new key alone does not raise it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from colonnade.errors import ConfigError, DataError
from colonnade.report import classes, compared, decided, repeat, tables, words
from colonnade.report.content import Content
from colonnade.report.metrics import mean_metrics
from colonnade.report.privacy import privacy_page, statement_of
from colonnade.report.record import Group, Record, Terms, released, residual_curve, score_curve

SCHEMA, VERSION = "colonnade-report", 1


def as_json(content: Content, pictures: str) -> str:
    """The object as text; `pictures` is the folder of pictures beside it."""
    return json.dumps(_plain(data(content, pictures)), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def data(content: Content, pictures: str) -> dict[str, object]:
    """The object."""
    facts = content.facts
    return {
        "schema": SCHEMA,
        "version": VERSION,
        "kind": "run" if content.alone else "comparison",
        "title": facts["title"],
        "verdict": facts["verdict"],
        "summary": facts["summary"],
        "diverged": facts["diverged"],
        "comparison": None if content.alone else _comparison(content),
        "runs": [_run(record, group, content.terms) for group in content.groups for record in group.records],
        "pictures": [
            {
                "caption": picture.caption,
                "description": picture.description,
                "files": [f"{pictures}/{picture.drawing.name}.{kind}" for kind in ("svg", "png")],
            }
            for picture in content.files
        ],
    }


def _comparison(content: Content) -> dict[str, object]:
    facts, terms = content.facts, content.terms
    worth = facts["worth"]
    shown = (worth.table if worth is not None else None, facts["comparison"], facts["costs"], facts["contributions"])
    return {
        "tables": [_table(table) for table in shown if table is not None],
        "worth": None if worth is None else worth.found,
        "methods": [_method(group, terms) for group in content.groups],
        "privacy": [{"methods": labels, "verdict": text} for labels, text in facts["notes"]],
        "clock": terms.clock.model_dump(),
        "target": terms.target,
    }


def _method(group: Group, terms: Terms) -> dict[str, object]:
    scores = {key: [r["result"][key] for r in group.records] for key in ("test_score", "validation_score")}
    spreads = {key: dict(zip(("mean", "std"), compared.spread(values), strict=True)) for key, values in scores.items()}
    moved = [r["traffic"]["up"] + r["traffic"]["down"] for r in group.records]
    return {
        "label": group.label,
        "runs": [r["id"] for r in group.records],
        **spreads,
        "metrics": mean_metrics(group),
        "bytes": compared.spread(moved)[0],
        "seconds": compared.spread([r["result"]["seconds"] for r in group.records])[0],
        "simulated_seconds": compared.spread(compared.simulated_seconds(group, terms))[0],
    }


def _run(record: Record, group: Group, terms: Terms) -> dict[str, object]:
    about, result, traffic = record["about"], record["result"], record["traffic"]
    curve = score_curve(record, terms.clock)
    rounds, residuals = residual_curve(record)
    return {
        "id": record["id"],
        "label": group.label,
        "method": record["method"]["name"],
        "federation": about["federation"],
        "task": about["task"],
        "seed": record["training"]["seed"],
        "rows": about["rows"],
        "summary": words.summary(record),
        "never_predicted": decided.never_predicted(record),
        "score": words.score_name(record),
        "validation_score_is": words.validation_name(record),
        "result": {k: v for k, v in result.items() if k not in ("confusion", "class_accuracy", "class_accuracy_std")},
        "curve": {**vars(curve), "clock": terms.clock.model_dump()},
        "residual": {"rounds": rounds, "primal": residuals},
        "classes": _classes(record),
        "parties": _parties(record),
        "explanation": record.get("explanation"),
        "unexplained": record.get("unexplained"),
        "traffic": {key: traffic[key] for key in ("up", "down", "multicast", "evaluation")},
        "privacy": _privacy(record),
        "settings": {k: record.get(k, {}) for k in ("method", "model", "training", "privacy")},
        "changed_settings": tables.changed_settings(record),
        "machine": {**about["machine"], "engine": about["engine"]},
        "fingerprint": record["fingerprint"],
        "repeat": {"file": repeat.FILE, "command": repeat.command(record), "toml": repeat.configuration(record)},
    }


def _classes(record: Record) -> dict[str, object] | None:
    confusion = record["result"].get("confusion")
    if not confusion:
        return None
    right = [row[place] / sum(row) if sum(row) else None for place, row in enumerate(confusion)]
    return {"names": classes.class_names(record), "accuracy": right, "confusion": confusion}


def _parties(record: Record) -> list[dict[str, object]]:
    counts = released(record)
    per_party = record["traffic"]["per_party"]
    return [
        {**party, **per_party[party["name"]], "releases": counts.get(party["name"], {})}
        for party in record["about"]["parties"]
    ]


def _privacy(record: Record) -> dict[str, object]:
    """The statement for machines, where the record says enough; the words of the page in any case."""
    page = privacy_page(record)
    try:
        statement = statement_of(record)
    except (DataError, ConfigError):  # the page says why
        statement = None
    answers = [{"question": question, "answers": given} for question, given in page.answers]
    told = {"verdict": page.verdict, "answers": answers, "exposure": page.exposure, "releases": words.noise(record)}
    told["uploads"] = page.uploads
    return {**told, "label_exposure": record["label_exposure"], "statement": statement and statement.to_json()}


def _table(table: tables.Table) -> dict[str, object]:
    return {"caption": table.caption, "columns": table.columns, "rows": table.rows}


def _plain(value: Any) -> Any:
    """What is not a number is null, as JSON has it."""
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
