"""A test score that is hardly ever honest: mostly a column tells the label, and new rows will not have it."""

from __future__ import annotations

from colonnade.report.record import Record, metric_of
from colonnade.tasks import task_about

FEWEST = 30  # test rows: fewer may well be all right by chance
LEFT_OF_CLASSES = 0.002  # of what a constant guess gets wrong
LEFT_OF_NUMBERS = 0.02  # networks fit even a column that is the label only so well

SENTENCE = (
    "The test score is nearly perfect, which hardly anything is: see that no party has a column that tells the label, "
    "such as the label itself or what is known only after it."
)


def too_good(record: Record) -> list[str]:
    """A sentence where the test score is nearly perfect; nothing otherwise, and where nobody knows."""
    result = record["result"]
    value, guess = result.get("test_score"), result.get("baseline_score")
    if value is None or guess is None or record["about"]["rows"]["test"] < FEWEST:
        return []
    perfect = 1.0 if metric_of(record).better == "higher" else 0.0
    most = LEFT_OF_CLASSES if task_about(record["about"]).classes else LEFT_OF_NUMBERS
    return [SENTENCE] if abs(perfect - value) <= most * abs(perfect - guess) else []
