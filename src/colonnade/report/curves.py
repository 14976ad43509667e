"""Which curves a report shows: score by round, by megabytes, by seconds and by simulated seconds; the primal residual.

A comparison also has a figure of its own, a file for papers and slides: the same curves side by side.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from colonnade.numerals import short
from colonnade.report import classes, words
from colonnade.report.figures import Axis, Drawing, Line, chart, matrix, panels
from colonnade.report.record import Group, Record, Terms, residual_curve, score_curve

AXIS = {
    words.NOISY_SCORE: "noisy-label agreement",
    words.NOISY_AUC: "noisy-label AUC",
}  # what is too long for the side of a figure


@dataclass(frozen=True)
class Picture:
    """A figure with its caption, and its content in words for those who do not see it."""

    drawing: Drawing
    caption: str
    description: str


def pictures(groups: Sequence[Group], terms: Terms | None = None) -> list[Picture]:
    """All figures that the records have numbers for; those of different scores stand apart."""
    terms = Terms.of(groups[0].first) if terms is None else terms
    scores = list(dict.fromkeys(words.score_name(group.first) for group in groups))
    shown = []
    for name in scores:
        some = [group for group in groups if words.score_name(group.first) == name]
        shown += _curves(some, terms, "" if len(scores) == 1 else f"{name}-")
    return [*shown, *_residuals(groups)]


def _curves(groups: Sequence[Group], terms: Terms, prefix: str) -> list[Picture]:
    """The curves of one score; simulated time where methods are compared or a clock is set."""
    first = groups[0].first
    name, mixed = _what_is_drawn(groups)
    axes = _axes(name, first)
    name = name[0].upper() + name[1:]
    kinds = [("rounds", f"{name} by round."), ("megabytes", f"{name} by megabytes moved.")]
    kinds += [("seconds", f"{name} by time.")]
    clocked = len(groups) > 1 or "clock" in (first["config"] or {}).get("compare", {})
    kinds += [("simulated", f"{name} by simulated time: {lines_in_words(terms)}.")] if clocked else []
    bands = " Bands: from the lowest to the highest seed." if any(len(g.records) > 1 for g in groups) else ""
    more = mixed + bands
    shown = []
    for what, caption in kinds:
        lines, axis = _score_lines(groups, what, terms), axes[what]
        if lines:
            told = "; ".join(_told(line, first) for line in lines)
            drawing = chart(f"{prefix}score-{what}", lines, axis)
            shown.append(Picture(drawing, caption + more, f"{caption}{mixed} {told}."))
    return shown


def figure(groups: Sequence[Group], terms: Terms) -> str:
    """The comparison as one SVG file: score by round, by megabytes and by simulated second."""
    axes = _axes(_what_is_drawn(groups)[0], groups[0].first)
    shown = [(_score_lines(groups, what, terms), axes[what]) for what in ("rounds", "megabytes", "simulated")]
    return panels("comparison", [(lines, axis) for lines, axis in shown if lines]).svg()


def confusion(record: Record) -> list[Picture]:
    """The confusion matrix as a file; the page has it as a table. Nothing where it is absent or too large to read."""
    counts = record["result"].get("confusion")
    if counts is None or not classes.confusion_cells(record):
        return []
    told = "; ".join(classes.confused_pairs(record)) or "no mistakes"
    caption = "Confusion matrix of the test rows: true class down, decided class across."
    return [Picture(matrix("confusion", counts, classes.class_names(record)), caption, f"{caption} {told}.")]


def lines_in_words(terms: Terms) -> str:
    """The simulated lines and machines, for a caption."""
    c = terms.clock
    lines = f"{c.up:g} Mbit/s up, {c.down:g} down, {c.latency:g} ms latency"
    return f"{lines}, {c.step:g} s per local step, {c.coordinate:g} s per answer"


def _axes(name: str, record: Record) -> dict[str, Axis]:
    y = AXIS.get(name, name) + (" (%)" if words.is_share(record) else "")
    return {
        "rounds": Axis("rounds", y, whole=True),
        "megabytes": Axis("training traffic, both directions (MB)", y),
        "seconds": Axis("seconds of training", y),
        "simulated": Axis("simulated seconds", y),
    }


def _score_lines(groups: Sequence[Group], what: str, terms: Terms) -> list[Line]:
    drawn = (_score_line(group, what, place, len(groups) == 1, terms) for place, group in enumerate(groups))
    return [line for line in drawn if line is not None]


def _what_is_drawn(groups: Sequence[Group]) -> tuple[str, str]:
    """What the score on validation rows is called; and, where it means two things, a sentence about that."""
    names = {words.validation_name(group.first) for group in groups}
    if len(names) == 1:
        return names.pop(), ""
    noisy = words.listing([group.label for group in groups if words.labels_noised(group.first)])
    return "score on validation rows", f" Of {noisy}: {words.NOISY_MIXED}; do not compare."


def _score_line(group: Group, what: str, place: int, mark: bool, terms: Terms) -> Line | None:
    """The mean over seeds at the rounds that all of them looked at, with a band from the lowest to the highest."""
    curves = [score_curve(record, terms.clock if what == "simulated" else None) for record in group.records]
    common = sorted(set.intersection(*(set(c.rounds) for c in curves)))
    if not common or any(not getattr(c, what) for c in curves):
        return None
    scale = 100 if words.is_share(group.first) else 1
    places = [[c.rounds.index(n) for n in common] for c in curves]
    x = [[getattr(c, what)[i] for i in at] for c, at in zip(curves, places, strict=True)]
    y = [[scale * c.scores[i] for i in at] for c, at in zip(curves, places, strict=True)]
    best = group.first["result"]["best_round"]
    several = len(curves) > 1
    return Line(
        group.label,
        [statistics.fmean(column) for column in zip(*x, strict=True)],
        [statistics.fmean(column) for column in zip(*y, strict=True)],
        [min(column) for column in zip(*y, strict=True)] if several else (),
        [max(column) for column in zip(*y, strict=True)] if several else (),
        common.index(best) if mark and not several and best in common else None,
        place,
    )


def _residuals(groups: Sequence[Group]) -> list[Picture]:
    lines = []
    for place, group in enumerate(groups):
        rounds, values = residual_curve(group.first)
        kept = [(n, v) for n, v in zip(rounds, values, strict=True) if v > 0]
        if kept:
            lines.append(Line(group.label, [n for n, _ in kept], [v for _, v in kept], place=place))
    if not lines:
        return []
    caption = "Primal residual: how far the sum of the parties' outputs is from the auxiliary variable z."
    told = "; ".join(f"{line.label}: from {short(line.y[0], 3)} to {short(line.y[-1], 3)}" for line in lines)
    drawing = chart("residual", lines, Axis("rounds", "primal residual", log=True, whole=True))
    return [Picture(drawing, caption, f"{caption} {told}.")]


def _told(line: Line, record: Record) -> str:
    unit = " %" if words.is_share(record) else ""
    digits = 1 if unit else 3
    first, last, most = (f"{y:.{digits}f}{unit}" for y in (line.y[0], line.y[-1], max(line.y)))
    return f"{line.label}: from {first} to {last}, at most {most}"
