"""Numbers and facts of a record as people read them: sizes, times, scores, and sentences about what happened.

The command line and the HTML page use the same words. Label exposure is always said in words, never as a number.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from colonnade.engines.base import DEPLOYED
from colonnade.evaluate.metrics import find_metric
from colonnade.methods import METHODS
from colonnade.numerals import measured
from colonnade.privacy import row_statement
from colonnade.privacy.events import EmptyEvent, Hides, Kind, PlainEvent
from colonnade.privacy.registry import kind_of
from colonnade.privacy.sampled import SampledGaussianEvent
from colonnade.privacy.settings import protected
from colonnade.report import decided
from colonnade.report.interactions import lifted
from colonnade.report.record import Record, metric_of
from colonnade.report.too_good import too_good
from colonnade.tasks import task_about

EXPOSURE = {
    "FULL": 'the replies reveal the training labels to every party (documentation, page "What is protected")',
    "EPS": 'what the coordinator sends was made from labels behind a label mechanism (documentation, page "Labels")',
    "NONE": "nothing the coordinator sends down was computed from a label",
}
EXPOSURE_SHORT = {"FULL": "parties can read the labels", "EPS": "behind a label mechanism", "NONE": "none"}
NOISY_SCORE = "agreement with noisy validation labels"
NOISY_AUC = "AUC by noisy validation labels"
NOISY_MIXED = "scores by noisy validation labels, which are not the true ones"
NOISY_MEANING = (
    "Protected labels judged the validation rows, so that number is not the true {name}: it says how well the model "
    "agrees with the noisy labels, it is low for a perfect model too, and it only ranks rounds of one run."
)
COVERS = "Noise is on uploads of training only; labels, evaluation and predictions are not covered by it."
COVERS_BOTH = "Noise is on uploads of training and on labels; evaluation and predictions are not covered by it."


def score_name(record: Record) -> str:
    """What the score on the test rows is called."""
    return metric_of(record).title


def is_share(record: Record) -> bool:
    """Whether the score is a share of rows, shown in per cent."""
    return metric_of(record).share


def labels_noised(record: Record) -> bool:
    """Whether protected labels judged the validation rows: then their score is not the true one."""
    return protected(record.get("privacy", {}).get("labels", {}))


def validation_name(record: Record) -> str:
    """What the score on validation rows is called."""
    stored = record["result"].get("validation_metric")
    name = find_metric(stored).title if stored else score_name(record)
    if not labels_noised(record):
        return f"validation {name}"
    return NOISY_SCORE if name == "accuracy" else f"{name} by noisy validation labels"


def score(record: Record, value: float | None, digits: int = 2) -> str:
    """A score of the run's task: per cent for accuracy, a plain number for AUC and R2."""
    if value is None or not math.isfinite(value):
        return "not measured"
    return f"{100 * value:.{digits}f} %" if is_share(record) else measured(value, digits + 2)


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
    good = [how_good(record), *decided.sentences(record), *warnings(record), *lifted(record), *_positive(record)]
    ended = [_why_it_ended(record), *noisy_labels(record)]
    gone = [record["withdrawn"]] if "withdrawn" in record else []
    who = [_who(record), *came_and_went(record), *gone, *_partial(record), *_weights(record)]
    return [*who, *good, *ended, _what_it_cost(record)]


def _who(record: Record) -> str:
    about, rows = record["about"], record["about"]["rows"]
    owners = "all columns in one place" if pools(record) else count(len(about["parties"]), "party", "parties")
    split = f"{rows['train']:,} training, {rows['validation']:,} validation and {rows['test']:,} test rows"
    return f"{record['method']['name']} trained one model over {owners} of {about['federation']} ({split})."


def came_and_went(record: Record) -> list[str]:
    """Which parties joined a finished model or left it, one sentence each."""
    joined = [(one, "joined") for one in record["about"].get("joined", [])]
    left = [(one, "left") for one in record["about"].get("left", [])]
    return [
        f"{one['party']} {how} the model of run {one['run']!r} on {one['when'][:10]}: "
        f"{' and '.join(one['present'])} did not train again."
        for one, how in (*joined, *left)
    ]


def _partial(record: Record) -> list[str]:
    """Which training rows lacked something, if any did."""
    found = record["about"].get("partial")
    if not found:
        return []
    held = ", ".join(f"{party} {number:,}" for party, number in found["held"].items())
    return [
        f"Of the training rows {found['complete']:,} are held by all parties and have a label; {found['labelled']:,} "
        f"have a label; parties hold: {held}. The label holder sees which of them a party lacks: its uploads are zero "
        "there, and the ledger counts them (lacking_rows)."
    ]


def _weights(record: Record) -> list[str]:
    """Which rows count more than others, if some do."""
    told, by_class = [], record["training"].get("class_weights")
    if record["about"].get("row_weights"):
        told.append("Rows count by weights of the label holder's, in training and in every metric.")
    if by_class:
        told.append(f"In training classes are weighted: {by_class if isinstance(by_class, str) else value(by_class)}.")
    return told


def how_good(record: Record) -> str:
    """The test score with its interval and what a constant guess has."""
    result = record["result"]
    accuracy = _accuracy_beside(record)
    if result["test_score"] is None:
        return f"Test {accuracy}." if accuracy else "It was not measured on test rows."
    told = f"Test {score_name(record)} {score(record, result['test_score'])}"
    beside = "; ".join([*_interval(record), *_guess(record)])
    told += f" ({beside})" if beside else ""
    return f"{told}; {accuracy}." if accuracy else f"{told}."


def verdict(record: Record) -> str:
    """The outcome: how good, whether that is better than a guess, and whether a class is never predicted."""
    told = how_good(record)
    if record["result"]["test_score"] is None or not _interval(record) or not _guess(record):
        return " ".join((told, *decided.sentences(record)))
    better = "Not clearly better than a constant guess" if no_better(record) else "Better than a constant guess"
    if never := decided.one_sided(record):
        better = f"{better} by {score_name(record)}, {'and' if no_better(record) else 'but'} {never}"
    return " ".join(filter(None, (f"{better}: {told[0].lower()}{told[1:]}", decided.remedy(record))))


def warnings(record: Record) -> list[str]:
    """What makes the numbers doubtful: no better than guessing, too good, rows that could not be judged as asked."""
    return [f"Warning: {text}" for text in (*record["result"].get("warnings", ()), *too_good(record))]


def baselines(records: Sequence[Record]) -> list[str]:
    """What a constant guess has, one sentence for each that differs; nothing for runs that did not measure it."""
    told = dict.fromkeys(text for record in records for text in _guess(record))
    return [f"{text[0].upper()}{text[1:]}." for text in told]


def no_better(record: Record) -> bool:
    """Whether a constant guess is within or above the 95 % interval of the test score."""
    around, constant = record["result"].get("test_interval"), record["result"].get("baseline_score")
    if not around or constant is None:
        return False
    metric = metric_of(record)
    worst = around[0] if metric.better == "higher" else around[1]
    return bool(metric.sign() * (worst - constant) <= 0)


def _interval(record: Record) -> list[str]:
    around = record["result"].get("test_interval")
    if not around:
        return []
    low, high = (score(record, end, 1).removesuffix(" %") for end in around)
    return [f"95 % interval {low} to {high}"]


def _guess(record: Record) -> list[str]:
    result = record["result"]
    if result.get("baseline_score") is None:
        return []
    value = score(record, result["baseline_score"], 1 if is_share(record) else 0)
    if not task_about(record["about"]).classes:
        return [f"always guessing the mean: {value}"]
    if metric_of(record).name != "accuracy":
        return [f"guessing: {value}"]
    who = "each label's usual value" if result.get("baseline_class") is None else f'"{class_name(record)}"'
    return [f"always guessing {who}: {value}"]


def _accuracy_beside(record: Record) -> str:
    """The accuracy of a yes/no task, which AUC says nothing about, and that of the more frequent answer."""
    result = record["result"]
    value, constant = result.get("test_accuracy"), result.get("baseline_accuracy")
    if value is None or constant is None or is_share(record) or result.get("baseline_class") is None:
        return ""
    guess = f'always guessing "{class_name(record)}": {100 * constant:.1f} %'
    return f"accuracy {100 * value:.1f} % ({guess})"


def class_name(record: Record) -> str:
    """What the most frequent class of the training rows is called."""
    number, names = record["result"]["baseline_class"], record["about"].get("class_names")
    return str(names[number] if names else number)


def _positive(record: Record) -> list[str]:
    """Which of two classes a yes/no task calls yes, and by which rule."""
    found = record["about"].get("positive")
    return [f'The positive class is "{found["class"]}" ({found["why"]}).'] if found else []


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
    name = validation_name(record)
    return f"{'an' if name[0] in 'aA' else 'a'} {name}"


def noisy_labels(record: Record) -> list[str]:
    """Why validation scores look low, where protected labels judged; else nothing to say."""
    scored = record["result"]["validation_score"] is not None
    return [NOISY_MEANING.format(name=score_name(record))] if scored and labels_noised(record) else []


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
    covers = row_statement.LIMITS if protected_rows(record) else COVERS_BOTH if labels_noised(record) else COVERS
    limits = f" {covers}" if _columns_noised(record) else ""
    return f"{_mechanisms(record)}; the ledger lists {releases}.{limits}"


def noised(record: Record) -> bool:
    """Whether columns or labels had any noise: then a run makes a promise."""
    return protected(record.get("privacy") or {}) or _columns_noised(record) or labels_noised(record)


def protected_rows(record: Record) -> bool:
    """Whether parties trained at home with noise for every row (unit ROW)."""
    return SampledGaussianEvent.kind in _kinds(record)


def _columns_noised(record: Record) -> bool:
    """Whether uploads had noise, also such that a method brings itself."""
    return any(kind.hides is Hides.COLUMNS for kind in _kinds(record))


def _kinds(record: Record) -> list[Kind]:
    return [kind_of(name) for name in record.get("mechanisms", ())]


def noise_of(records: Sequence[Record]) -> str:
    """The same for runs of one kind, without their number."""
    return listing(sorted({_mechanisms(record) for record in records})) + "."


def _mechanisms(record: Record) -> str:
    if "mechanisms" not in record:  # written before records named them
        return "Its ledger.jsonl names the mechanism of every release"
    kinds = _kinds(record)
    passed = [f"{kind.name} ({kind.words})" for kind in kinds if kind not in (PlainEvent.kind, EmptyEvent.kind)]
    if not passed:
        about = record.get("about", {})
        earlier = about.get("engine") == DEPLOYED and bool(came_and_went(record))  # in a ledger of its own
        return f"No noise was used{' in this run' if earlier else ''}"
    plain = ", others left unchanged" if PlainEvent.kind in kinds else ""
    return f"Releases passed the mechanism {listing(sorted(passed))}{plain}"


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
