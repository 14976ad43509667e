"""Which curves a report shows: score by round, by megabytes and by seconds, and the primal residual."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from colonnade.report import words
from colonnade.report.figures import Axis, Line, chart
from colonnade.report.record import Group, Record, residual_curve, score_curve

AXIS = {words.NOISY_SCORE: "noisy-label agreement"}  # what is too long for the side of a figure


@dataclass(frozen=True)
class Picture:
    """A figure with its caption, and its content in words for those who do not see it."""

    svg: str
    caption: str
    description: str


def pictures(groups: Sequence[Group]) -> list[Picture]:
    """All figures that the records have numbers for."""
    first = groups[0].first
    name, mixed = _what_is_drawn(groups)
    y = AXIS.get(name, name) + (" (%)" if words.is_share(first) else "")
    name = name[0].upper() + name[1:]
    kinds = (
        ("rounds", Axis("rounds", y, whole=True), f"{name} by round."),
        ("megabytes", Axis("training traffic, both directions (MB)", y), f"{name} by megabytes moved."),
        ("seconds", Axis("seconds of training", y), f"{name} by time."),
    )
    bands = " Bands: from the lowest to the highest seed." if any(len(g.records) > 1 for g in groups) else ""
    more = mixed + bands
    shown = []
    for what, axis, caption in kinds:
        drawn = (_score_line(group, what, place, mark=len(groups) == 1) for place, group in enumerate(groups))
        lines = [line for line in drawn if line is not None]
        if lines:
            told = "; ".join(_told(line, first) for line in lines)
            svg = chart(f"score-{what}", lines, axis)
            shown.append(Picture(svg, caption + more, f"{caption}{mixed} {told}."))
    return [*shown, *_residuals(groups)]


def _what_is_drawn(groups: Sequence[Group]) -> tuple[str, str]:
    """What the score on validation rows is called; and, where it means two things, a sentence about that."""
    names = {words.validation_name(group.first) for group in groups}
    if len(names) == 1:
        return names.pop(), ""
    noisy = words.listing([group.label for group in groups if words.labels_noised(group.first)])
    return "score on validation rows", f" Of {noisy}: {words.NOISY_SCORE}, which is no accuracy; do not compare."


def _score_line(group: Group, what: str, place: int, mark: bool) -> Line | None:
    """The mean over seeds at the rounds that all of them looked at, with a band from the lowest to the highest."""
    curves = [score_curve(record) for record in group.records]
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
    told = "; ".join(f"{line.label}: from {line.y[0]:.3g} to {line.y[-1]:.3g}" for line in lines)
    svg = chart("residual", lines, Axis("rounds", "primal residual", log=True, whole=True))
    return [Picture(svg, caption, f"{caption} {told}.")]


def _told(line: Line, record: Record) -> str:
    unit = " %" if words.is_share(record) else ""
    digits = 1 if unit else 3
    first, last, most = (f"{y:.{digits}f}{unit}" for y in (line.y[0], line.y[-1], max(line.y)))
    return f"{line.label}: from {first} to {last}, at most {most}"
