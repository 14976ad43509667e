"""Numbers and facts of a record as people read them: sizes, times, scores, and sentences about what happened.

The command line and the HTML page use the same words. Label exposure is always said in words, never as a number.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from colonnade.evaluate.metrics import SCORE_NAME
from colonnade.federation import Task
from colonnade.methods import METHODS
from colonnade.privacy.events import COUNTED, NOISED
from colonnade.report.record import Record

EXPOSURE = {
    "FULL": "the parties can read the training labels from what the coordinator sends down (docs/privacy.md)",
    "EPS": "what the coordinator sends down was made from labels behind a label mechanism (docs/privacy.md)",
    "NONE": "nothing the coordinator sends down was computed from a label",
}
EXPOSURE_SHORT = {"FULL": "parties can read the labels", "EPS": "behind a label mechanism", "NONE": "none"}
NOISY_SCORE = "agreement with noisy validation labels"
NOISY_MEANING = (
    "Protected labels judged the validation rows, so that number is not an accuracy: it says how far the noisy labels "
    "bear the model out, it is low for a perfect model too, and it only ranks rounds of one run."
)
COVERS = "Noise covers uploads of training; labels, evaluation and predictions are not covered by it."
UNCHANGED = {"none", "empty"}  # ledger names of what leaves as it is, and of messages without labels


def score_name(record: Record) -> str:
    """What the score of the run's task is called."""
    return SCORE_NAME[Task(record["about"]["task"])]


def is_share(record: Record) -> bool:
    """Whether the score is a share of rows, shown in per cent."""
    return score_name(record) == "accuracy"


def labels_noised(record: Record) -> bool:
    """Whether protected labels judged the validation rows: then their score is no accuracy."""
    labels = record.get("privacy", {}).get("labels", {})
    return bool(labels.get("mechanism", "none") != "none")


def validation_name(record: Record) -> str:
    """What the score on validation rows is called."""
    return NOISY_SCORE if labels_noised(record) else f"validation {score_name(record)}"


def score(record: Record, value: float | None, digits: int = 2) -> str:
    """A score of the run's task: per cent for accuracy, a plain number for R2."""
    if value is None or not math.isfinite(value):
        return "not measured"
    return f"{100 * value:.{digits}f} %" if is_share(record) else f"{value:.4f}"


def size(count: float) -> str:
    """Bytes with a unit that fits (1 MB = 1,000,000 bytes)."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:,.1f} {unit}"
    return f"{count:,.0f} bytes"


def duration(seconds: float) -> str:
    """Seconds as people say them."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def count(number: int, one: str, many: str | None = None) -> str:
    """`1 party`, `8 parties`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def listing(items: Sequence[str]) -> str:
    """`a, b and c`."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


def shape(dimensions: Sequence[int]) -> str:
    """`4 x 28`, or `14 columns`."""
    if len(dimensions) == 1:
        return count(dimensions[0], "column")
    return " x ".join(str(d) for d in dimensions)


def pools(record: Record) -> bool:
    """Whether the method put all columns in one place: a reference, not a federation."""
    method = METHODS.get(record["method"]["name"])
    return bool(getattr(method, "pools", False))


def summary(record: Record) -> list[str]:
    """What was trained, by whom, how good it is, why it stopped, and what it cost."""
    ended = [_why_it_ended(record), *noisy_labels(record)]
    return [_who(record), *_partial(record), _how_good(record), *ended, _what_it_cost(record)]


def _who(record: Record) -> str:
    about, rows = record["about"], record["about"]["rows"]
    owners = "all columns in one place" if pools(record) else count(len(about["parties"]), "party", "parties")
    split = f"{rows['train']:,} training, {rows['validation']:,} validation and {rows['test']:,} test rows"
    return f"{record['method']['name']} trained one model over {owners} of {about['federation']} ({split})."


def _partial(record: Record) -> list[str]:
    """Which training rows lacked something, if any did."""
    found = record["about"].get("partial")
    if not found:
        return []
    held = ", ".join(f"{party} {number:,}" for party, number in found["held"].items())
    return [
        f"Of the training rows {found['complete']:,} are held by all parties and have a label; {found['labelled']:,} "
        f"have a label; parties hold: {held}."
    ]


def _how_good(record: Record) -> str:
    result = record["result"]
    name, value = score_name(record), score(record, result["test_score"])
    if result["test_score"] is None:
        return "It was not measured on test rows."
    if is_share(record):
        return f"It decides {value} of the test rows right; they were looked at once, after training."
    return f"Its {name} on the test rows is {value}; they were looked at once, after training."


def _why_it_ended(record: Record) -> str:
    result = record["result"]
    done = f"It ran {result['rounds']:,} of at most {count(record['training']['rounds'], 'round')}"
    stop = result["stop"].rstrip(".")
    best = "."
    if result["best_round"] is not None:
        value = score(record, result["validation_score"])
        best = f"; the model of round {result['best_round']} was kept, with {_article(record)} of {value}."
    return f"{done} ({stop}){best}"


def _article(record: Record) -> str:
    return f"an {NOISY_SCORE}" if labels_noised(record) else f"a {validation_name(record)}"


def noisy_labels(record: Record) -> list[str]:
    """Why validation scores look low, where protected labels judged; else nothing to say."""
    scored = record["result"]["validation_score"] is not None
    return [NOISY_MEANING] if scored and labels_noised(record) else []


def _what_it_cost(record: Record) -> str:
    traffic, about = record["traffic"], record["about"]
    moved = f"{size(traffic['up'])} up and {size(traffic['down'])} down"
    took = f"{duration(record['result']['seconds'])} on {about['machine']['device']}"
    return f"Training moved {moved}, counted on encoded messages, and took {took}."


def exposure(record: Record) -> str:
    """Who can read labels, in words."""
    if pools(record):
        return "Labels: there is nobody to hide them from; all columns and labels lie in one place (a reference)."
    level = str(record["label_exposure"])
    return f"Labels: {EXPOSURE.get(level, f'exposure {level}')}."


def exposure_short(record: Record) -> str:
    """The same, for a cell of a table."""
    level = str(record["label_exposure"])
    return "no parties: one place" if pools(record) else EXPOSURE_SHORT.get(level, level)


def noise(record: Record) -> str:
    """What happened to releases before they left, and how many there were."""
    releases = count(sum(number for _, _, number in record["releases"]), "release")
    limits = f" {COVERS}" if (NOISED | COUNTED) & set(record.get("mechanisms", ())) else ""
    return f"{_mechanisms(record)}; the ledger lists {releases}.{limits}"


def noised(record: Record) -> bool:
    """Whether columns or labels had any noise: then a run makes a promise."""
    privacy = record.get("privacy") or {}
    own = bool((NOISED | COUNTED) & set(record.get("mechanisms", ())))  # what a method brings itself
    return privacy.get("mechanism", "none") != "none" or own or labels_noised(record)


def noise_of(records: Sequence[Record]) -> str:
    """The same for runs of one kind, without their number."""
    return listing(sorted({_mechanisms(record) for record in records})) + "."


def _mechanisms(record: Record) -> str:
    mechanisms = record.get("mechanisms")
    if mechanisms is None:  # written before records named them
        return "Its ledger.jsonl names the mechanism of every release"
    noised = sorted(set(mechanisms) - UNCHANGED)
    if not noised:
        return "Nothing was noised: every release left unchanged"
    plain = ", others left unchanged" if "none" in mechanisms else ""
    return f"Releases passed the mechanism {listing(noised)}{plain}"


def value(setting: Any) -> str:
    """A setting as it would stand in a configuration file."""
    if isinstance(setting, bool):
        return "true" if setting else "false"
    if isinstance(setting, float):
        return f"{setting:g}"
    if isinstance(setting, (list, tuple)):
        return "[" + ", ".join(value(item) for item in setting) + "]"
    if isinstance(setting, Mapping):
        return "{ " + ", ".join(f"{k} = {value(v)}" for k, v in setting.items()) + " }"
    return "none" if setting is None else str(setting)
