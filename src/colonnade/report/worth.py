"""Is it worth joining? Scores alone, together and in one place: the verdict in words, a table and a picture.

What is told comes from `worth.json`, which a comparison with parties alone or all columns in one place, and the demo,
leave beside their runs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from colonnade.errors import RunError
from colonnade.evaluate.metrics import Metric, find_metric
from colonnade.numerals import fixed
from colonnade.record import Difference, TrialRecord, Worth
from colonnade.report.record import Group, Record
from colonnade.report.tables import Table

if TYPE_CHECKING:
    from colonnade.report.curves import Picture

FILE, FORMAT = "worth.json", 1
JOINT, ONE_PLACE = "all together", "all columns in one place"


@dataclass(frozen=True)
class WorthPage:
    """The question of a comparison, and its answer."""

    found: Worth
    verdict: str
    sentences: tuple[str, ...]
    table: Table
    pictures: tuple[Picture, ...]


def read_worth(folder: Path, records: Iterable[Record]) -> Worth | None:
    """What lies in a folder of runs, if it is about these runs.

    Raises:
        RunError: the file is damaged.
    """
    path = folder / FILE
    if not path.is_file():
        return None
    try:
        found = cast(Worth, json.loads(path.read_text(encoding="utf-8")))
        told = {run for trial in found["trials"] for run in trial["runs"]}
        ours = found["format"] == FORMAT and told == {record["id"] for record in records}
    except (ValueError, KeyError, TypeError) as error:
        raise RunError(f"{path} is damaged ({error}); restore it from a copy, or remove it") from None
    return found if ours else None


def joint_groups(groups: Iterable[Group], found: Worth) -> list[Group]:
    """The runs of all together: only there something leaves a party."""
    runs = _of(found, "joint")["runs"]
    return [group for group in groups if group.first["id"] in runs]


def worth_page(found: Worth) -> WorthPage:
    """All that a report says about it."""
    first, *more = verdict(found)
    return WorthPage(found, first, (*more, *found["notes"]), worth_table(found), tuple(_pictures(found)))


def verdict(found: Worth) -> list[str]:
    """What joining is worth, in one sentence; then what keeping the columns apart costs, and how sure this is."""
    metric, joint = find_metric(found["metric"]), _of(found, "joint")
    if joint["score"] is None:
        return ["Whether joining is worth it cannot be said: the joint model has no test score."]
    central = _of(found, "central") if any(one["role"] == "central" for one in found["trials"]) else None
    told = [_joining(found, metric, joint, central)]
    if found["price"] is not None:
        told.append(_apart(found, metric, found["price"]))
    known = [one for one in (found["gain"], found["price"]) if one is not None]
    if any(not one["paired"] for one in known):
        told.append(
            "Some of these models were trained earlier or in other processes: answers to the test rows are not kept, "
            "so the intervals of the differences are wider than they need to be."
        )
    return told


def _of(found: Worth, role: str) -> TrialRecord:
    return next(one for one in found["trials"] if one["role"] == role)


def _joining(found: Worth, metric: Metric, joint: TrialRecord, central: TrialRecord | None) -> str:
    score = f"test {metric.title} {metric.told(joint['score'] or 0.0)}"
    would = "" if central is None or central["score"] is None else metric.told(central["score"])
    end = f"; one central model would have {would}." if would else "."
    if found["gain"] is None:
        lost = "; no party alone has a test score" if any(one["role"] == "alone" for one in found["trials"]) else ""
        return f"All parties together have a {score}{lost}{end}"
    best = next(one for one in found["trials"] if one["who"] == found["best"])
    against = f"{metric.told(best['score'] or 0.0)} of {_best_alone(found, metric, best)}"
    answer = {1: "is worth it", 0: "shows no clear gain", -1: "is not worth it"}[sure(metric, found["gain"])]
    return f"Joining {answer}: {score} against {against} ({_told(metric, found['gain'])}){end}"


def _best_alone(found: Worth, metric: Metric, best: TrialRecord) -> str:
    """The party that validation rows chose; said where another one has the better test score, as any reader can see."""
    others = [one["score"] for one in found["trials"] if one["role"] == "alone" and one["score"] is not None]
    beaten = any(metric.sign() * score > metric.sign() * (best["score"] or 0.0) for score in others)
    chosen = " (chosen by validation rows)" if beaten else ""
    return f"the best party alone{chosen}, {best['who'].removesuffix(' alone')}"


def _apart(found: Worth, metric: Metric, price: Difference) -> str:
    known, told = sure(metric, price), _told(metric, price)
    if known == 0:
        return f"Keeping the columns apart costs nothing that {found['rows']:,} test rows could show ({told})."
    if known < 0:
        return f"The joint model is even better than one model over all columns in one place ({told})."
    return f"Keeping the columns apart has its price against all columns in one place ({told})."


def sure(metric: Metric, one: Difference) -> int:
    """1: better; -1: worse; 0: the 95 % interval holds no difference, or there is none."""
    if not one["interval"]:
        return 0
    low, high = sorted(metric.sign() * end for end in one["interval"])
    return 1 if low > 0 else -1 if high < 0 else 0


def _told(metric: Metric, one: Difference) -> str:
    around = ""
    if one["interval"]:
        low, high = (_signed(metric, end) for end in one["interval"])
        around = f", 95 % interval {low} to {high}"
    points = " points" if metric.share else ""
    return f"difference {_signed(metric, one['value'])}{points}{around}"


def _signed(metric: Metric, value: float) -> str:
    """A difference; of shares in percentage points."""
    return f"{100 * value:+.1f}" if metric.share else fixed(value, 3, "+")


def worth_table(found: Worth) -> Table:
    """Who trains, on how much, and how good it is; alone first."""
    metric = find_metric(found["metric"])
    columns = ("who trains", "columns", f"test {metric.title}", "95 % interval", "validation", "leaves home")
    rows = tuple(_row(metric, one) for one in _in_order(found))
    return Table("On the same test rows; only the columns differ", columns, rows, frozenset({0, 5}))


def _in_order(found: Worth) -> list[TrialRecord]:
    return sorted(found["trials"], key=lambda one: ("alone", "joint", "central").index(one["role"]))


def _row(metric: Metric, one: TrialRecord) -> tuple[str, ...]:
    leaves = {"alone": "nothing", "joint": "uploads", "central": "every column"}[one["role"]]
    around = " to ".join(metric.told(end) for end in one["interval"]) if one["interval"] else "-"
    score, validation = ("-" if one[key] is None else metric.told(one[key] or 0.0) for key in ("score", "validation"))
    return (one["who"], str(one["columns"]), score, around, validation, leaves)


def _pictures(found: Worth) -> list[Picture]:
    from colonnade.report.curves import Picture  # draws, so it needs the extra
    from colonnade.report.plots import intervals

    metric, known = find_metric(found["metric"]), [one for one in _in_order(found) if one["score"] is not None]
    scale = 100 if metric.share else 1
    values = [scale * (one["score"] or 0.0) for one in known]
    ends = [_ends(one, scale) for one in known]
    marked = next((place for place, one in enumerate(known) if one["role"] == "joint"), None)
    meaning = f"test {metric.title}" + (" (%)" if metric.share else "")
    drawing = intervals("worth", [one["who"] for one in known], values, ends, meaning, marked)
    caption = f"Test {metric.title} and 95 % interval of each; the diamond and the dashed line: all together."
    return [Picture(drawing, caption, f"{caption} {_listed(metric, known)}.")]


def _ends(one: TrialRecord, scale: float) -> tuple[float, float]:
    low, high = one["interval"] or (one["score"] or 0.0,) * 2
    return scale * low, scale * high


def _listed(metric: Metric, known: Sequence[TrialRecord]) -> str:
    return "; ".join(f"{one['who']}: {metric.told(one['score'] or 0.0)}" for one in known)
