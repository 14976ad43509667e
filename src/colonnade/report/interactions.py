"""Interactions of columns of two parties, in words: what lifted scores added; or that nothing was tested."""

from __future__ import annotations

from colonnade.evaluate.metrics import Metric, find_metric
from colonnade.methods import METHODS
from colonnade.numerals import fixed
from colonnade.report.record import Record

NOT_TESTED = (
    "Its score is a sum over the parties, which misses what shows only when columns of two parties are seen together. "
    "Whether there is such a thing was not tested: colonnade worth --interactions asks "
    '(documentation, page "Interactions").'
)


def lifted(record: Record) -> list[str]:
    """What the sides of the guest's columns added on the test rows; nothing where scores were not lifted."""
    found = record["result"].get("lifts")
    if found is None:
        return []
    settings, metric = record["method"]["settings"], find_metric(found["metric"])
    whose = f"the sides of {settings.get('lifts')} columns of {settings.get('guest')}"
    around, sure = "", 0.0
    if found["interval"]:
        ends = [metric.sign() * end for end in found["interval"]]
        sure = min(ends)
        around = f", 95 % interval {_signed(metric, found['interval'][0])} to {_signed(metric, found['interval'][1])}"
    scores = f"{metric.told(found['lifted'])} against {metric.told(found['plain'])} of the plain parts"
    told = f"{metric.title} {scores}, difference {_signed(metric, found['difference'])}{around}"
    if sure > 0:
        return [f"Lifted scores: {whose} and other parties' columns say something together ({told})."]
    return [
        f"Lifted scores: {whose} add nothing that {found['rows']:,} test rows could show ({told}): a plain sum "
        "(lifts = 0) sends less and tells nobody of them."
    ]


def not_tested(record: Record) -> list[str]:
    """That nothing is known of interactions, where scores are a plain sum over several parties."""
    method, parties = METHODS.get(record["method"]["name"]), record["about"]["parties"]
    settings = record["method"]["settings"]
    plain = not settings.get("lifts") and settings.get("stack", "linear") == "linear"
    return [NOT_TESTED] if plain and hasattr(method, "scores") and len(parties) > 1 else []


def _signed(metric: Metric, value: float) -> str:
    """A difference; of shares in percentage points."""
    return f"{100 * value:+.1f}" if metric.share else fixed(value, 4, "+")
