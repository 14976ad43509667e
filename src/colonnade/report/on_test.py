"""What the test rows say, by the kind of task: curves of scores, tables of classes and labels, residuals.

All of it is made of the bins that the run keeps (`evaluate.binned`): counts and means of many rows, never a row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from colonnade.evaluate.chance import share_interval
from colonnade.privacy.settings import protected
from colonnade.record import Binned, KindScores, ScoreBins
from colonnade.report import residuals
from colonnade.report.curves import Picture
from colonnade.report.decided import threshold
from colonnade.report.figures import Axis
from colonnade.report.plots import Guide, Series, plot
from colonnade.report.record import Record
from colonnade.report.tables import Table
from colonnade.tasks import task_about

TENTHS = 10
DIAGONAL = Guide((0, 1), (0, 1))
MISSING = {  # what a task shows, for runs that did not keep it
    "scores": "the ROC curve, precision and recall, calibration and gain",
    "classes": "calibration, and precision, recall and AUC of each class",
    "labels": "precision, recall and AUC of each label",
    "numbers": "predicted against actual numbers, and residuals",
    "counts": "observed and expected counts, and residuals",
}
UNPROTECTED = (
    "The test rows were evaluated without noise (privacy.evaluation = simulated): no epsilon covers what is shown here."
)


@dataclass(frozen=True)
class OnTest:
    """Sentences, pictures and tables about the test rows."""

    sentences: tuple[str, ...] = ()
    pictures: tuple[Picture, ...] = ()
    tables: tuple[Table, ...] = ()

    def without_pictures(self) -> OnTest:
        """For a page about many runs."""
        if not self.pictures:
            return self
        return OnTest((*self.sentences, "Its pictures are in a report about this run alone."), (), self.tables)


def on_test(record: Record, prefix: str = "") -> OnTest | None:
    """What the run keeps of the test rows, or a sentence about why it keeps nothing; None where none were evaluated.

    `prefix` makes the pictures' names those of one run among several.
    """
    result, kind = record["result"], task_about(record["about"]).pictures
    if result["test_score"] is None and "metrics" not in result:
        return None
    found = result.get("binned")
    if found is None:
        missing = MISSING.get(kind)
        return None if missing is None else OnTest((_earlier(missing),))
    if "left_out" in found or kind not in KINDS:
        why = found.get("left_out", f"this version of Colonnade does not know how to show {kind or 'them'}")
        return OnTest((f"Curves of the test rows are left out: {why}.",))
    shown = KINDS[kind](record, found, prefix)
    return OnTest((*shown.sentences, *_about_bins(record, found)), shown.pictures, shown.tables)


def _earlier(missing: str) -> str:
    return (
        f"The run was made by an earlier version of Colonnade, which did not keep {missing}; train it again to have "
        "them here."
    )


def _about_bins(record: Record, found: Binned) -> list[str]:
    told = [f"Every point, bar and line of a table stands for at least {found['fewest']} test rows."]
    privacy = record.get("privacy") or {}
    return told + ([UNPROTECTED] if protected(privacy) and privacy.get("evaluation") == "simulated" else [])


# -- yes or no ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scores:
    """Bins of a yes/no task from the highest probability down, and their running sums."""

    rows: tuple[int, ...]
    yes: tuple[float, ...]
    no: tuple[float, ...]
    mean: tuple[float, ...]

    @classmethod
    def of(cls, bins: ScoreBins) -> Scores:
        """Of stored bins."""
        columns = (bins["rows"], bins["yes"], bins["no"], bins["mean"])
        return cls(*(tuple(reversed(column)) for column in columns))  # type: ignore[arg-type]

    def tenths(self) -> Scores:
        """The same in about ten bins of about equal size, each of whole bins."""
        begins, total = accumulate(self.rows, initial=0), sum(self.rows)
        members: dict[int, list[int]] = {}
        for place, begin in zip(range(len(self.rows)), begins, strict=False):
            members.setdefault(TENTHS * begin // total, []).append(place)
        parts = list(members.values())
        weights = [[self.yes[n] + self.no[n] for n in part] for part in parts]
        means = [
            sum(w * self.mean[n] for w, n in zip(heavy, part, strict=True)) / max(sum(heavy), 1e-300)
            for heavy, part in zip(weights, parts, strict=True)
        ]
        rows = tuple(sum(self.rows[n] for n in part) for part in parts)
        yes, no = (tuple(sum(column[n] for n in part) for part in parts) for column in (self.yes, self.no))
        return Scores(rows, yes, no, tuple(means))

    def hits(self) -> list[float]:
        """The share of the yes at or above each bin, beginning with nothing."""
        return _shares(self.yes)

    def alarms(self) -> list[float]:
        """The share of the no at or above each bin."""
        return _shares(self.no)

    def taken(self) -> list[float]:
        """The share of all rows at or above each bin."""
        return _shares([a + b for a, b in zip(self.yes, self.no, strict=True)])

    def precision(self) -> list[float]:
        """The share of the yes among the rows at or above each bin; without the beginning."""
        yes, no = accumulate(self.yes), accumulate(self.no)
        return [a / max(a + b, 1e-300) for a, b in zip(yes, no, strict=True)]

    @property
    def share(self) -> float:
        """Of the yes among all rows."""
        return sum(self.yes) / max(sum(self.yes) + sum(self.no), 1e-300)


def _shares(values: Sequence[float]) -> list[float]:
    total = max(sum(values), 1e-300)
    return [part / total for part in accumulate(values, initial=0.0)]


def _yes_no(record: Record, found: Binned, prefix: str) -> OnTest:
    scores = Scores.of(found["scores"])
    if min(sum(scores.yes), sum(scores.no)) <= 0:
        return OnTest(("The test rows are all of one class: there are no curves of them.",))
    pictures = (_roc(record, scores, prefix), _precision(record, scores, prefix))
    more = (_calibration(record, found["scores"], prefix, "a yes"), _gain(scores, prefix))
    return OnTest((), (*pictures, *more), (_gain_table(scores.tenths()),))


def _decided(record: Record) -> tuple[float, float, float] | None:
    """False positive rate, recall and precision of the decisions; None where rows have weights, or nothing is a yes."""
    counts = record["result"].get("confusion")
    if not counts or record["about"].get("row_weights"):
        return None
    (right_no, alarm), (lost, hit) = counts
    if not (right_no + alarm and lost + hit and alarm + hit):
        return None
    return alarm / (right_no + alarm), hit / (lost + hit), hit / (alarm + hit)


def _roc(record: Record, scores: Scores, prefix: str) -> Picture:
    x, y, chosen = scores.alarms(), scores.hits(), _decided(record)
    drawing = plot(
        f"{prefix}roc", [Series("model", x, y)], Axis("false positive rate", "true positive rate"), DIAGONAL,
        None if chosen is None else chosen[:2],
    )  # fmt: skip
    mark = f" Diamond: decisions at {threshold(record)}." if chosen else ""
    caption = f"ROC curve. Dashed: guessing.{mark}"
    points = "; ".join(
        f"at a false positive rate of {_pc(at)} it finds {_pc(_at(x, y, at))}" for at in (0.05, 0.1, 0.2)
    )
    return Picture(drawing, caption, f"{caption} Of the yes rows {points}.")


def _precision(record: Record, scores: Scores, prefix: str) -> Picture:
    x, y, chosen = scores.hits()[1:], scores.precision(), _decided(record)
    drawing = plot(
        f"{prefix}precision-recall", [Series("model", x, y)], Axis("recall", "precision"),
        Guide((0, 1), (scores.share, scores.share)), None if chosen is None else chosen[1:],
    )  # fmt: skip
    mark = f" Diamond: decisions at {threshold(record)}." if chosen else ""
    caption = f"Precision and recall. Dashed: the share of yes, {_pc(scores.share)}.{mark}"
    points = "; ".join(f"{_pc(_at(x, y, at))} at a recall of {_pc(at)}" for at in (0.25, 0.5, 0.75))
    return Picture(drawing, caption, f"{caption} Precision: {points}.")


def _gain(scores: Scores, prefix: str) -> Picture:
    x, y = scores.taken(), scores.hits()
    drawing = plot(
        f"{prefix}gain", [Series("model", x, y)], Axis("share of rows, likeliest first", "share of yes found"), DIAGONAL
    )
    share = max(0.1, x[1])  # the first bin is the least that is known
    caught = _at(x, y, share)
    caption = (
        f"Gain. The {_pc(share)} of rows with the highest probability hold {_pc(caught)} of the yes: "
        f"{caught / share:.1f} times what a random choice holds (lift)."
    )
    points = "; ".join(f"{_pc(at)} of rows hold {_pc(_at(x, y, at))}" for at in (0.2, 0.5) if at > share)
    return Picture(drawing, caption, f"{caption} {points}." if points else caption)


def _gain_table(tenths: Scores) -> Table:
    taken, hits = tenths.taken()[1:], tenths.hits()[1:]
    rows = tuple(
        (
            f"to {_pc(share)}".replace(" ", "\u00a0"),
            f"{count:,}",
            f"{mean:.3f}",
            f"{100 * yes / max(yes + no, 1e-300):.1f} %",
            f"{100 * found:.1f} %",
            f"{found / share:.2f}" if share else "-",
        )
        for share, count, mean, yes, no, found in zip(
            taken, tenths.rows, tenths.mean, tenths.yes, tenths.no, hits, strict=True
        )
    )
    columns = (
        "rows, likeliest first",
        "test rows",
        "mean probability",
        "share of yes",
        "yes found so far",
        "lift so far",
    )
    return Table("Gain and lift by tenths of the test rows", columns, rows)


def _calibration(record: Record, bins: ScoreBins, prefix: str, what: str) -> Picture:
    """Of probabilities of `what`: how often it is so."""
    tenths = Scores.of(bins).tenths()
    x, share = tenths.mean, [a / max(a + b, 1e-300) for a, b in zip(tenths.yes, tenths.no, strict=True)]
    ends: list[tuple[float, float]] = []
    if not record["about"].get("row_weights"):
        ends = [share_interval(round(a), n) for a, n in zip(tenths.yes, tenths.rows, strict=True)]
    low, high = ([end[side] for end in ends] for side in (0, 1))
    dots = Series("model", x, share, low, high, joined=False)
    drawing = plot(f"{prefix}calibration", [dots], Axis(f"mean probability of {what}", f"share of {what}"), DIAGONAL)
    whiskers = "; whiskers: 95 % intervals" if ends else ""
    caption = f"Calibration by tenths of the rows. Dashed: probabilities that come true{whiskers}."
    told = "; ".join(f"{a:.2f} said, {b:.2f} true" for a, b in zip(reversed(x), reversed(share), strict=True))
    return Picture(drawing, caption, f"{caption} {told}.")


def _at(x: Sequence[float], y: Sequence[float], at: float) -> float:
    """The value of a curve, straight between its points, at a place; x ascends."""
    for place, right in enumerate(x):
        if right >= at:
            left = x[place - 1] if place else right
            share = (at - left) / (right - left) if right > left else 1.0
            return y[place] if not place else y[place - 1] + share * (y[place] - y[place - 1])
    return y[-1]


def _pc(share: float) -> str:
    return f"{100 * share:.1f} %".replace(".0 %", " %")


# -- classes and labels -------------------------------------------------------------------------


def _classes(record: Record, found: Binned, prefix: str) -> OnTest:
    picture = _calibration(record, found["top"], prefix, "being right")
    caption = "Calibration of the class decided for, by tenths of the rows"
    told = Picture(
        picture.drawing,
        picture.caption.replace("Calibration by tenths of the rows", caption),
        picture.description.replace("Calibration by tenths of the rows", caption),
    )
    return OnTest((), (told,), (_each_table("Each class against the rest", "class", record, found),))


def _labels(record: Record, found: Binned, prefix: str) -> OnTest:
    return OnTest((), (), (_each_table("Each label", "label", record, found),))


def _each_table(caption: str, what: str, record: Record, found: Binned) -> Table:
    each = found["each"]
    names = [str(name) for name in record["about"].get("class_names") or range(len(each))]
    few = any(one["rows"] is None for one in each)
    caption += f" (-: undefined, or fewer than {found['fewest']} test rows on one side)" if few else ""
    rows = tuple((name, *_kind(one)) for name, one in zip(names, each, strict=True))
    return Table(caption, (what, "test rows", "precision", "recall", "F1", "AUC"), rows)


def _kind(one: KindScores) -> tuple[str, ...]:
    shares = tuple("-" if value is None else f"{100 * value:.1f} %" for value in (one["precision"], one["recall"]))
    plain = tuple("-" if value is None else f"{value:.3f}" for value in (one["f1"], one["auc"]))
    return ("-" if one["rows"] is None else f"{one['rows']:,}", *shares, *plain)


def _numbers(record: Record, found: Binned, prefix: str) -> OnTest:
    pictures, tables = residuals.shown(record, found, prefix)
    return OnTest(_first_only(record, found), pictures, tables)


def _first_only(record: Record, found: Binned) -> tuple[str, ...]:
    shown, outputs = len(found["numbers"]), record["about"].get("outputs", 1)
    return (f"Of the {outputs} numbers the first {shown} are shown.",) if shown < outputs else ()


KINDS: Mapping[str, Callable[[Record, Binned, str], OnTest]] = {
    "scores": _yes_no,
    "classes": _classes,
    "labels": _labels,
    "numbers": _numbers,
    "counts": _numbers,
}
