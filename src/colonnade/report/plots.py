"""Drawings of what the test rows say: curves beside a guide, points with whiskers, a histogram, intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from colonnade.numerals import short
from colonnade.report.figures import SIZE, Axis, Drawing, Field, Palette, Sheet, tell
from colonnade.report.hints import Hint, along

NAME = 26  # letters of a name beside an interval


@dataclass(frozen=True)
class Series:
    """Points (x, y); joined by a line or each with its marker, between a low and a high value if there are such."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    joined: bool = True
    band: bool = False  # low and high are a band; else whiskers
    place: int = 0  # among the series of the page: decides the colour


@dataclass(frozen=True)
class Guide:
    """What points are compared with: a thin dashed line."""

    x: Sequence[float]
    y: Sequence[float]


def plot(
    name: str, series: Sequence[Series], axis: Axis, guide: Guide | None = None, mark: tuple[float, float] | None = None
) -> Drawing:
    """Series in one field; `mark` is a point that stands out."""

    def paint(figure: Sheet, palette: Palette) -> None:
        axes = figure.subplots()
        if guide is not None:
            axes.plot(guide.x, guide.y, color=palette.ink, linewidth=0.8, linestyle=(0, (4, 3)), alpha=0.7)
        for one in series:
            _series(axes, one, palette)
            tell(axes, *along(one.label if len(series) > 1 else "", one.x, one.y, (axis.x, axis.y)))
        if mark is not None:
            axes.plot([mark[0]], [mark[1]], marker="D", markersize=7, color=palette.of(1), zorder=5)
        _frame(axes, axis)
        if len(series) > 1:
            figure.legend(loc="outside upper center", ncols=len(series), frameon=False)

    return Drawing(name, paint)


def _series(axes: Field, one: Series, palette: Palette) -> None:
    colour = palette.of(one.place)
    marker = None if one.joined and len(one.x) > 25 else ("o", "s")[one.place % 2]
    axes.plot(one.x, one.y, color=colour, linestyle="-" if one.joined else "none", marker=marker, markersize=4,
              label=one.label)  # fmt: skip
    if one.low and one.band:
        axes.fill_between(one.x, one.low, one.high, color=colour, alpha=0.18, linewidth=0)
    elif one.low:
        axes.errorbar(
            one.x, one.y, yerr=_reach(one.y, one.low, one.high), fmt="none", ecolor=colour, elinewidth=1, capsize=2
        )


def _reach(values: Sequence[float], low: Sequence[float], high: Sequence[float]) -> list[list[float]]:
    """How far whiskers reach below and above."""
    below = [max(0.0, value - end) for value, end in zip(values, low, strict=True)]
    above = [max(0.0, end - value) for value, end in zip(values, high, strict=True)]
    return [below, above]


def _frame(axes: Field, axis: Axis) -> None:
    axes.set_xlabel(axis.x)
    axes.set_ylabel(axis.y)
    axes.grid(visible=True, alpha=0.5)
    axes.set_axisbelow(True)
    axes.tick_params(length=0)
    axes.margins(0.03)


def histogram(name: str, ends: Sequence[float], heights: Sequence[float], axis: Axis, line: float | None) -> Drawing:
    """Bars of different widths between ends (one more than bars); the outer two are pale: they have no end."""

    def paint(figure: Sheet, palette: Palette) -> None:
        axes = figure.subplots()
        for place, height in enumerate(heights):
            outer = len(heights) > 1 and place in (0, len(heights) - 1)
            axes.bar(ends[place], height, ends[place + 1] - ends[place], align="edge", color=palette.of(0),
                     alpha=0.45 if outer else 0.9, edgecolor=palette.grid, linewidth=0.4)  # fmt: skip
            middle = (ends[place] + ends[place + 1]) / 2
            tell(axes, Hint(middle, height / 2, f"{short(ends[place])} to {short(ends[place + 1])}: {short(height)}"))
        if line is not None:
            axes.axvline(line, color=palette.ink, linewidth=0.8, linestyle=(0, (4, 3)))
        _frame(axes, axis)
        axes.set_ylim(bottom=0)

    return Drawing(name, paint)


def intervals(
    name: str,
    labels: Sequence[str],
    values: Sequence[float],
    ends: Sequence[tuple[float, float]],
    meaning: str,
    marked: int | None = None,
) -> Drawing:
    """One point with its interval for each label, below each other; one may be marked, and a line goes through it."""

    def paint(figure: Sheet, palette: Palette) -> None:
        axes = figure.subplots()
        for place, (value, (low, high)) in enumerate(zip(values, ends, strict=True)):
            colour = palette.of(int(place == marked))
            reach = _reach([value], [low], [high])
            axes.errorbar([value], [place], xerr=reach, ecolor=colour, fmt="none", elinewidth=1.6, capsize=3)
            axes.plot([value], [place], marker="D" if place == marked else "o", markersize=6, color=colour)
            tell(axes, Hint(value, place, f"{labels[place]}: {short(value)} ({short(low)} to {short(high)})"))
        if marked is not None:
            axes.axvline(values[marked], color=palette.of(1), linewidth=0.8, linestyle=(0, (4, 3)))
        axes.set_yticks(range(len(labels)), [one if len(one) <= NAME else f"{one[: NAME - 1]}…" for one in labels])
        axes.set_ylim(len(labels) - 0.5, -0.5)
        axes.set_xlabel(meaning)
        axes.grid(visible=True, axis="x", alpha=0.5)
        axes.set_axisbelow(True)
        axes.tick_params(length=0)

    return Drawing(name, paint, (1.2 * SIZE[0], max(1.6, 0.7 + 0.26 * len(labels))))
