"""What the uploads of a private training contributed, in words: so that no epsilon stands alone."""

from __future__ import annotations

from typing import cast

from colonnade.engines.base import DEPLOYED
from colonnade.evaluate.metrics import Metric, find_metric
from colonnade.numerals import fixed, measured
from colonnade.privacy.promise import UploadGain
from colonnade.record import Difference
from colonnade.report import words
from colonnade.report.record import Record, released

UNMEASURED = (
    "What the uploads contributed was not measured: whether the score is due to them or to the labels alone is not "
    "known. {}"
)
HOW = "colonnade privacy compare RUN trains again without their signal, and as local_only."
BEFORE = "A party joined or left after the training; colonnade privacy compare asks about the run before that."
ELSEWHERE = "Between organisations that is a further run, which every party has to agree to."
PROTECTS = "it sends nothing computed from columns in training"
ONE_SEED = (
    "The intervals are about other rows; what another draw of noise would change, one seed cannot tell (--seeds 1,2)."
)
SIMULATED = "Measured in this process, which has all columns: the run itself lets nothing leave for evaluation."


def told_of_uploads(record: Record) -> str:
    """What is known of the uploads of a run that promises privacy, as one line; empty: there is nothing to say."""
    found = record["result"].get("uploads")
    if found is not None:
        return " ".join(sentences(cast(UploadGain, found)))
    if not words.noised(record) or words.pools(record) or not _uploaded(record):
        return ""
    if words.protected_rows(record):  # they train at home: no upload of training has a signal
        return ""
    return UNMEASURED.format(_how(record))


def _how(record: Record) -> str:
    """How it can be measured."""
    about = record["about"]
    if about["engine"] == DEPLOYED:
        return ELSEWHERE
    return BEFORE if about.get("joined") or about.get("left") else HOW


def _uploaded(record: Record) -> bool:
    """Whether a party released anything in training, or is known to have done so elsewhere."""
    parties = [party["name"] for party in record["about"]["parties"]]
    return record["traffic"]["up"] > 0 or any(released(record).get(name, {}).get("TRAIN") for name in parties)


def sentences(found: UploadGain) -> list[str]:
    """What the uploads contributed, what local_only has, and how sure that is."""
    metric = find_metric(found["metric"])
    told = [*_contributed(metric, found), *_local(metric, found), *(f"{note}." for note in found["notes"])]
    if found["gain"] is not None or found["over_local"] is not None:
        told += [ONE_SEED] * (len(found["seeds"]) == 1) + [SIMULATED] * (not found["evaluated"])
    return told


def _contributed(metric: Metric, found: UploadGain) -> list[str]:
    gain, score, removed = found["gain"], found["score"], found["removed"]
    if gain is None or score is None or removed is None:
        return []
    how = "their signal removed and the noise kept" if found["noise"] else "zeros in their place"
    beside = f"test {metric.title} {_score(metric, score)} with them, {_score(metric, removed)} with {how}"
    shown = f"{found['rows']:,} test rows"
    if len(found["seeds"]) > 1:
        beside, shown = f"{beside}, means of {len(found['seeds'])} seeds", f"{shown} and these seeds"
    told = f"The uploads contributed {_points(metric, gain)}: {beside}."
    if sure(metric, gain) > 0:
        return [told]
    return [
        told,
        "They made the model worse." if sure(metric, gain) < 0 else f"That is nothing that {shown} could show.",
    ]


def _local(metric: Metric, found: UploadGain) -> list[str]:
    apart, score = found["over_local"], found["local_only"]
    if apart is None or score is None:
        return []
    theirs = _turned(apart)
    told = f"local_only has {_score(metric, score)}, {_points(metric, theirs)}"
    better = sure(metric, theirs)
    if better > 0:
        return [f"{told}: it gives more and protects more, because {PROTECTS}."]
    if better < 0:
        return [f"{told}: the joint training gives more."]
    return [f"{told}: no difference that these rows could show, and it protects more, because {PROTECTS}."]


def better_at_home(record: Record) -> str:
    """What a reader of the verdict must not miss: the score is clearly better without uploads in training."""
    found = cast("UploadGain | None", record["result"].get("uploads"))
    if found is None or found["over_local"] is None or found["local_only"] is None:
        return ""
    metric = find_metric(found["metric"])
    if sure(metric, _turned(found["over_local"])) <= 0:
        return ""
    return f"But local_only is better, with {_score(metric, found['local_only'])}, and {PROTECTS}."


def _turned(one: Difference) -> Difference:
    """The same difference seen from the other side."""
    ends = one["interval"]
    return {**one, "value": -one["value"], "interval": [-ends[1], -ends[0]] if ends else None}


def sure(metric: Metric, one: Difference) -> int:
    """1: better; -1: worse; 0: the 95 % interval holds no difference, or there is none."""
    if not one["interval"]:
        return 0
    low, high = sorted(metric.sign() * end for end in one["interval"])
    return 1 if low > 0 else -1 if high < 0 else 0


def _points(metric: Metric, one: Difference) -> str:
    """A difference in the metric's own unit, more being better, with its interval."""
    ends = sorted(metric.sign() * end for end in one["interval"] or ())
    around = f" (95 % interval {_signed(metric, ends[0])} to {_signed(metric, ends[1])})" if ends else ""
    unit = "points" if metric.share else f"of {metric.title}"
    return f"{_signed(metric, metric.sign() * one['value'])} {unit}{around}"


def _signed(metric: Metric, value: float) -> str:
    number = 100 * value if metric.share else value
    digits = 2 if metric.share else 4
    return fixed(number, digits, "+")


def _score(metric: Metric, value: float) -> str:
    return f"{100 * value:.2f} %" if metric.share else measured(value, 4)
