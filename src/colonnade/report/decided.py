"""Classes that a model never predicts on the test rows: a score that only ranks rows says nothing of them."""

from __future__ import annotations

from collections.abc import Sequence

from colonnade.report.record import Record
from colonnade.tasks import task_about

MOST_NAMED = 5  # classes; the others are counted


def never_predicted(record: Record) -> list[str]:
    """Names of the classes that test rows have and none is predicted to have; none where nothing was evaluated."""
    counts = record["result"].get("confusion")
    if not counts:
        return []
    named = record["about"].get("class_names") or range(len(counts))
    columns = zip(*counts, strict=True)
    return [
        str(name) for name, row, column in zip(named, counts, columns, strict=True) if sum(row) > 0 and sum(column) == 0
    ]


def one_sided(record: Record) -> str:
    """That no test row is predicted to be of a class, without a full stop; empty: every class is predicted."""
    missed = never_predicted(record)
    if not missed:
        return ""
    counts = record["result"]["confusion"]
    total = sum(map(sum, counts))
    if not _yes_no(record):
        return f"no test row is predicted {_listed(missed)}"
    rows = sum(counts[1 if _names(record)[1] == missed[0] else 0])
    at = f"at the threshold {threshold(record)}"
    return f'no test row is predicted "{missed[0]}" {at}, although {rows:,} of {total:,} are'


def remedy(record: Record) -> str:
    """What to set so that every class is predicted, as a sentence; empty: every class is predicted."""
    missed = never_predicted(record)
    if not missed:
        return ""
    if not _yes_no(record):
        if record["training"].get("class_weights"):
            return "Train it longer, or on more rows of such classes."
        return "Give rare classes more weight: train with --set training.class_weights=balanced."
    by_hand = "choose one by hand: colonnade predict RUN --threshold P"
    rule = _rule(record)
    return f"Let validation rows choose the threshold: train with {rule}; or {by_hand}." if rule else f"To {by_hand}."


def sentences(record: Record) -> list[str]:
    """Both, for a reader of several sentences; nothing where every class is predicted."""
    told = one_sided(record)
    return [f"{told[0].upper()}{told[1:]}.", remedy(record)] if told else []


def threshold(record: Record) -> str:
    """The probability above which a yes is said."""
    told = record["result"].get("decision")
    return f"{told['threshold']:.3g}" if told else "0.5"


def _rule(record: Record) -> str:
    """The setting that chooses a threshold on validation rows; empty: it was tried, or there are no such rows."""
    chosen = record["result"].get("decision")
    if not record["about"]["rows"]["validation"] or (chosen and chosen["decide_by"] == "f1"):
        return ""
    if record["label_exposure"] == "EPS":  # protected labels cannot judge a threshold; a share needs none
        return "--set training.decision.decide_by=share --set training.decision.yes_share=0.1 (how many are a yes)"
    return "--set training.decision.decide_by=f1"


def _yes_no(record: Record) -> bool:
    task = task_about(record["about"])
    return task.one_class and not task.exclusive


def _names(record: Record) -> list[str]:
    return [str(name) for name in record["about"].get("class_names") or (0, 1)]


def _listed(names: Sequence[str]) -> str:
    told = ", ".join(f'"{name}"' for name in names[:MOST_NAMED])
    more = len(names) - MOST_NAMED
    return f"{told} or {more} other classes" if more > 0 else told
