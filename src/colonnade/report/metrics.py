"""Every metric of runs as tables: with its interval and what a constant guess has, and side by side."""

from __future__ import annotations

from collections.abc import Sequence

from colonnade.errors import ConfigError
from colonnade.evaluate.metrics import Metric, choose_metric, find_metric, metrics_of
from colonnade.record import GroupMeasured, Measured
from colonnade.report import words
from colonnade.report.compared import comparison_table, spread
from colonnade.report.record import Group, Record, Terms, metric_of
from colonnade.report.tables import Table
from colonnade.tasks import task_about


def metrics_table(record: Record) -> Table | None:
    """Every metric on the test rows; None for runs that did not measure it."""
    found = record["result"].get("metrics")
    if not found:
        return None
    judged = words.labels_noised(record)
    beside = "by noisy validation labels" if judged else "validation"
    weighed = ", each with its weight" if record["about"].get("row_weights") else ""
    columns = ("metric", "test", "95 % interval", "constant guess", beside)
    rows = tuple(_row(find_metric(name), scores, record) for name, scores in found.items())
    return Table(f"Metrics on the test rows{weighed}", columns, rows)


def groups_table(record: Record) -> Table | None:
    """Every metric by the groups of the label holder's column; None where it named none."""
    found = record["result"].get("by_group")
    if not found:
        return None
    groups = found["groups"]
    names = next(iter(groups.values()))["metrics"] if groups else {}
    metrics = [find_metric(name) for name in names]
    rows = tuple(
        (
            (name or "(empty)") + (" *" if group["small"] else ""),
            f"{group['rows']:,}",
            *(_around(metric, group["metrics"][metric.name]) for metric in metrics),
        )
        for name, group in groups.items()
    )
    small = "; * too few rows, or too few of a class, to compare" if any(g["small"] for g in groups.values()) else ""
    title = f"Test rows by {found['column']} (95 % interval){small}"
    return Table(title, (found["column"], "rows", *(metric.title for metric in metrics)), rows)


def decision_table(record: Record) -> Table | None:
    """Threshold and calibration, and what the calibration did to the test rows; None where none was fitted."""
    found = record["result"].get("decision")
    if not found:
        return None
    chosen = {"f1": "best F1", "cost": "least cost", "share": "share of yes"}.get(found["decide_by"], "not chosen")
    rows = [("a yes above the probability", f"{found['threshold']:.4g} ({chosen})")]
    if found["calibration"]:
        rows.append(("calibration", found["calibration"]))
        for title, (before, after) in (
            ("Brier score before and after it", found["brier"]),
            ("calibration error before and after it", found["calibration_error"]),
        ):
            rows.append((title, f"{before:.4f}, {after:.4f}"))
    title = f"Decisions, fitted on {found['validation_rows']:,} validation rows"
    return Table(title, ("", "on the test rows"), tuple(rows))


def _around(metric: Metric, scores: GroupMeasured) -> str:
    value, around = scores["value"], scores["interval"]
    if value is None or not around:
        return told(metric, value)
    return f"{metric.told(value)} ({' to '.join(metric.told(end) for end in around)})"


def _row(metric: Metric, scores: Measured, record: Record) -> tuple[str, ...]:
    validation = record["result"].get("validation_metrics") or {}
    around = scores.get("interval")
    between = " to ".join(metric.told(end) for end in around) if around else "-"
    chosen = " (chooses the round)" if metric == metric_of(record) else ""
    values = (told(metric, scores["test"]), between, told(metric, scores["baseline"]))
    return (metric.title + chosen, *values, told(metric, validation.get(metric.name)))


def told(metric: Metric, value: float | None, deviation: float | None = None) -> str:
    """A value, with its deviation over seeds; - where there is none."""
    if value is None:
        return "-"
    text = metric.told(value)
    return text if deviation is None else f"{text.removesuffix(' %')} ± {metric.told(deviation)}"


def mean_metrics(group: Group) -> dict[str, dict[str, float | None]]:
    """Mean and standard deviation over seeds of every metric on the test rows; empty where none was recorded."""
    found = [record["result"].get("metrics") or {} for record in group.records]
    names = [name for name in found[0] if all(name in one for one in found)]
    return {name: dict(zip(("mean", "std"), over_seeds(group, name), strict=True)) for name in names}


def over_seeds(group: Group, name: str) -> tuple[float | None, float | None]:
    """Mean and standard deviation of a metric on the test rows; runs of version 0.1 have one only."""
    own = metric_of(group.first).name
    values = []
    for record in group.records:
        measured = (record["result"].get("metrics") or {}).get(name)
        alone = record["result"]["test_score"] if name == own else None
        values.append(alone if measured is None else measured["test"])
    return spread(values)


def compared(groups: Sequence[Group], terms: Terms) -> Table:
    """Methods side by side, with a column for each metric that was asked for.

    Raises:
        ConfigError: a run does not have such a metric.
    """
    for group in groups:
        check_metrics(group.first, terms.metrics)
    asked = [find_metric(name) for name in terms.metrics]
    tests = [(f"test {m.title}", [told(m, *over_seeds(group, m.name)) for group in groups]) for m in asked]
    return comparison_table(groups, tests)


def check_metrics(record: Record, names: Sequence[str]) -> None:
    """Refuse metrics that the task of a run does not have."""
    task = task_about(record["about"])
    for name in names:
        choose_metric(task, name)
    recorded = record["result"].get("metrics") or {}
    lost = [name for name in names if recorded and name not in recorded]
    if lost:
        having = ", ".join(metric.name for metric in metrics_of(task) if metric.name in recorded)
        raise ConfigError(f"metric {lost[0]!r} was not recorded with run {record['id']}; it has {having}")
