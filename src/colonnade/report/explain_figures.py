"""Figures of `colonnade explain`: rows of bars under pictures of the parties' columns, and scattered rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from colonnade.report.figures import LONG, MARKERS, SIZE, Axis, Drawing, Field, Palette, Sheet, add_legend, label_axes

FLAT = 4  # times as wide as high: such a strip is stretched, or nothing is seen of it
SHAPES = (*MARKERS, "<", ">", "p")  # of scattered points; with 8 colours, 88 kinds can be told apart, 11 without colour


@dataclass(frozen=True)
class BarRow:
    """One row of bars over all parties."""

    title: str
    values: Sequence[float]
    line: float | None = None  # across all bars, to compare with
    marked: int | None = None  # the party to tell apart


def party_rows(name: str, parties: Sequence[str], rows: Sequence[BarRow], shown: Sequence[Any] = ()) -> Drawing:
    """Bars of several measures above each other, one column per party; on top what the parties see, if given."""
    heights = [0.6] * bool(shown) + [1.6] * len(rows)
    width = max(SIZE[0], 0.45 * len(parties) + 1)

    def paint(figure: Sheet, palette: Palette) -> None:
        parts: Any = figure.subfigures(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
        grey = [
            value
            for image in shown
            if image is not None
            for line in image
            for value in line
            if isinstance(value, float)
        ]
        if shown:
            for axes, image in zip(parts[0].subplots(1, len(parties), squeeze=False)[0], shown, strict=True):
                axes.set_axis_off()
                if image is not None:
                    flat = len(image[0]) > FLAT * len(image)
                    scale = {"vmin": min(grey, default=None), "vmax": max(grey, default=None)}
                    axes.imshow(image, cmap="gray", aspect="auto" if flat else "equal", interpolation="none", **scale)
        for part, row in zip(parts[bool(shown) :], rows, strict=True):
            _bar_row(part.subplots(), parties, row, palette)

    return Drawing(name, paint, (width, sum(heights) + 0.4))


def _bar_row(axes: Field, parties: Sequence[str], row: BarRow, palette: Palette) -> None:
    places = range(len(parties))
    axes.bar(places, row.values, 0.72, color=[palette.of(4 if place == row.marked else 0) for place in places])
    if row.line is not None:
        axes.axhline(row.line, color=palette.of(1), linewidth=1.2)
        axes.set_ylim(min(0.0, *row.values), 1.05 * max(row.line, *row.values))
    axes.set_xticks(places, parties, rotation=60, ha="right", fontsize=7)
    axes.set_title(row.title, fontsize=9, loc="left")
    label_axes(axes, Axis("", ""))


def scatter(
    name: str, shown: Sequence[tuple[str, Sequence[Sequence[float]], Sequence[int]]], names: Sequence[str]
) -> Drawing:
    """Points in the plane, one panel per (title, points, places among the names); a shape and a colour per name."""
    longest = min(LONG, max(map(len, names), default=0))
    width = SIZE[0] * max(1, len(shown))
    columns = max(1, min(5 * len(shown), int(width / (0.6 + 0.075 * longest))))  # inches: a shape, gaps, letters
    lines = -(-len(names) // columns)

    def paint(figure: Sheet, palette: Palette) -> None:
        for axes, (title, points, labels) in zip(figure.subplots(1, len(shown), squeeze=False)[0], shown, strict=True):
            for kind, named in enumerate(names):
                mine = [point for point, label in zip(points, labels, strict=True) if label == kind]
                x, y = zip(*mine, strict=True) if mine else ((), ())
                axes.scatter(x, y, s=18, color=palette.of(kind), marker=SHAPES[kind % len(SHAPES)], linewidths=0,
                             alpha=0.85, label=named[:LONG])  # fmt: skip
            axes.set_title(title, fontsize=9)
            axes.set_xticks([])
            axes.set_yticks([])
        add_legend(figure, columns, by_rows=True)

    return Drawing(name, paint, (width, 3.4 + 0.2 * lines))
