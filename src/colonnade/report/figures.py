"""Curves as SVG text: the only file that imports matplotlib.

Figures are drawn through the object interface, without pyplot and its global state, and are the same bytes for
the same numbers. Colours are placeholders that become CSS variables of the page, so one figure is legible on
light and dark screens and on paper; texts stay texts, in the page's font.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator

SIZE = (4.6, 2.9)  # inches; the page scales it
INK, GRID = "#c0ffe1", "#c0ffe2"  # placeholders; no real colour of a figure
SERIES = tuple(f"#c0ff{n:02x}" for n in range(8))
DASHES = ((0, None), (0, (5, 2)), (0, (1, 1.5)), (0, (5, 1.5, 1, 1.5)))  # curves differ without colour too
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "font.size": 9,
    "font.family": "sans-serif",
    "text.color": INK,
    "axes.edgecolor": GRID,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": GRID,
    "ytick.color": GRID,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.6,
}


@dataclass(frozen=True)
class Line:
    """One curve; `low` and `high` are its band over seeds."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    best: int | None = None  # the point to mark
    place: int = 0  # among the series of the page: decides colour, dashes and marker


@dataclass(frozen=True)
class Axis:
    """What the axes show."""

    x: str
    y: str
    log: bool = False
    whole: bool = False  # x counts something


def chart(name: str, lines: Sequence[Line], axis: Axis) -> str:
    """A line chart as an `<svg>` element; `name` makes its inner ids unique on the page."""
    with mpl.rc_context({**STYLE, "svg.hashsalt": name}):
        figure = Figure(figsize=SIZE, layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.subplots()
        for line in lines:
            _draw(axes, line)
        _finish(axes, axis)
        out = io.StringIO()
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return _inline(out.getvalue(), name)


def _draw(axes: Axes, line: Line) -> None:
    place = line.place
    colour = SERIES[place % len(SERIES)]
    many = len(line.x) > 40
    axes.plot(
        line.x, line.y, color=colour, linestyle=DASHES[place % len(DASHES)],
        marker=None if many else MARKERS[place % len(MARKERS)], markersize=3.2,
    )  # fmt: skip
    if line.low and line.high:
        axes.fill_between(line.x, line.low, line.high, color=colour, alpha=0.18, linewidth=0)
    if line.best is not None:
        axes.plot([line.x[line.best]], [line.y[line.best]], marker="o", markersize=9, markerfacecolor="none",
                  markeredgecolor=colour, markeredgewidth=1.4)  # fmt: skip


def _finish(axes: Axes, axis: Axis) -> None:
    axes.set_xlabel(axis.x)
    axes.set_ylabel(axis.y)
    axes.grid(visible=True, axis="y", alpha=0.5)
    axes.tick_params(length=0)
    axes.margins(x=0.02)
    if axis.whole:
        axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True, steps=[1, 2, 5, 10]))
    if axis.log:
        axes.set_yscale("log")
        axes.minorticks_off()
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=8))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))  # no powers in tiny print


def _inline(svg: str, name: str) -> str:
    """A figure that can stand in a page: no prolog or style of its own, unique ids, CSS for colour and font."""
    body = svg[svg.index(">", svg.index("<svg")) + 1 :]
    body = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", body, flags=re.DOTALL)
    body = re.sub(r'<g id="[^"]+"', "<g", body)  # nothing refers to these
    body = re.sub(r'\bid="', f'id="{name}-', body)
    body = re.sub(r'(xlink:href="|url\()#', rf"\1#{name}-", body)
    body = re.sub(r" ?font-family: [^;\"]*;?", "", body)
    for place, colour in enumerate(SERIES):
        body = body.replace(colour, f"var(--series-{place})")
    body = body.replace(INK, "var(--ink-soft)").replace(GRID, "var(--line-strong)")
    body = re.sub(r"\s+", " ", body).strip()
    width, height = (72 * inches for inches in SIZE)
    spaces = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    return f'<svg viewBox="0 0 {width:g} {height:g}" {spaces} aria-hidden="true" focusable="false">{body}'
