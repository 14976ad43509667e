"""Figures of a report: the only file that imports matplotlib.

A `Drawing` is painted on demand: inline in the page, as an SVG file, as a PNG file. Figures are drawn through the
object interface, without pyplot and its global state, and are the same bytes for the same numbers. In the page,
the colours become its CSS variables, so one figure is legible on light and dark screens and on paper; texts stay
texts, in the page's font. A file of its own has the page's colours for paper, and a legend.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, cast

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator

from colonnade.numerals import short
from colonnade.report.hints import Hint, Spot, along, with_spots
from colonnade.report.inline import inlined

SIZE = (4.1, 2.65)  # inches; the page scales it, and on a phone the letters are still to be read
DPI = 200  # of PNG files
LAYOUT: Literal["constrained"] | None = "constrained"  # takes half the time of a picture
LONG = 20  # letters of a name beside a bar
SHORT, CLASS = 8, 36  # letters of the name of a class beside a matrix: from where it grows with it, and at most
LETTER = 0.08  # inches of a letter, about
DASHES = ((0, None), (0, (5, 2)), (0, (1, 1.5)), (0, (5, 1.5, 1, 1.5)))  # curves differ without colour too
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")


@dataclass(frozen=True)
class Palette:
    """The colours of a figure."""

    ink: str
    grid: str
    series: tuple[str, ...]

    def of(self, place: int) -> str:
        """The colour of a series of the page."""
        return self.series[place % len(self.series)]

    def style(self, name: str) -> dict[Any, Any]:
        """Matplotlib's settings; `name` makes inner ids the same for the same figure."""
        return {
            "svg.fonttype": "none",
            "svg.hashsalt": name,
            "axes.formatter.limits": (-9, 15),  # no power of ten beside an axis
            "font.size": 9,
            "font.family": "sans-serif",
            "text.color": self.ink,
            "axes.edgecolor": self.grid,
            "axes.labelcolor": self.ink,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "xtick.color": self.grid,
            "ytick.color": self.grid,
            "xtick.labelcolor": self.ink,
            "ytick.labelcolor": self.ink,
            "grid.color": self.grid,
            "grid.linewidth": 0.6,
            "lines.linewidth": 1.6,
        }


PAPER = Palette(  # as report.css; no two alike, because the page has a variable for each
    "#1f2937",
    "#9ca3af",
    ("#1d4ed8", "#c2570c", "#047857", "#8b2fc9", "#be123c", "#0e7490", "#854d0e", "#475569"),
)
Field = Axes  # where painters in other files paint


class Sheet(Figure):
    """What a drawing is painted on, and the values that it tells whoever points at them."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.hints: list[tuple[Axes, Hint]] = []

    def spots(self) -> list[Spot]:
        """Where the hints are, in shares of the sheet from its upper left corner; after it was laid out."""
        back, found = self.transFigure.inverted(), []
        for axes, hint in self.hints:
            x, y = back.transform(axes.transData.transform((hint.x, hint.y)))
            found.append(Spot(float(x), 1 - float(y), hint.text))
        return found


def tell(axes: Axes, *hints: Hint) -> None:
    """Values that are shown when somebody points at them."""
    cast(Sheet, axes.get_figure(root=True)).hints.extend((axes, hint) for hint in hints)


Painter = Callable[[Sheet, Palette], None]


@dataclass(frozen=True)
class Drawing:
    """A figure that knows how to paint itself; `name` is that of its files, and of its ids on the page."""

    name: str
    paint: Painter
    size: tuple[float, float] = SIZE
    legend: int = 0  # columns of a legend where it stands alone; on the page one stands above all figures

    def inline(self) -> str:
        """An `<svg>` element of the page."""
        variables = {PAPER.ink: "var(--ink-soft)", PAPER.grid: "var(--line-strong)", "#ffffff": "none"}
        variables |= {colour: f"var(--series-{place})" for place, colour in enumerate(PAPER.series)}
        return inlined(self._drawn[1], self.name, self.size, variables)

    def svg(self) -> str:
        """An SVG file that stands alone."""
        return self._alone()[1]

    def png(self) -> bytes:
        """A PNG file."""
        return self.files()["png"]

    def files(self) -> dict[str, bytes]:
        """The SVG and the PNG file, of one painting."""
        figure, svg = self._alone()
        FigureCanvasAgg(figure)  # laid out as it was just now
        out = io.BytesIO()
        with mpl.rc_context(PAPER.style(self.name)):
            figure.savefig(out, format="png", dpi=DPI, metadata={"Software": None})
        return {"svg": svg.encode(), "png": out.getvalue()}

    def _alone(self) -> tuple[Figure, str]:
        return self._draw(self.legend) if self.legend else self._drawn

    @cached_property  # page and files are of one painting
    def _drawn(self) -> tuple[Figure, str]:
        return self._draw(0)

    def _draw(self, legend: int) -> tuple[Figure, str]:
        """The figure, painted and laid out, and as SVG."""
        with mpl.rc_context(PAPER.style(self.name)):
            figure = Sheet(figsize=self.size, layout=LAYOUT)
            self.paint(figure, PAPER)
            if legend:
                add_legend(figure, legend)
            FigureCanvasSVG(figure)
            layout = figure.get_layout_engine()
            if layout is not None:
                layout.execute(figure)
                figure.set_layout_engine(None)  # else saving draws everything twice, once only to lay it out
            out = io.StringIO()
            spots = figure.spots()
            figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
        return figure, with_spots(out.getvalue(), spots, self.size)


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


def chart(name: str, lines: Sequence[Line], axis: Axis) -> Drawing:
    """A line chart; on the page its legend stands above all figures."""

    def paint(figure: Sheet, palette: Palette) -> None:
        axes = figure.subplots()
        for line in lines:
            _draw(axes, line, palette)
            tell(axes, *along(line.label if len(lines) > 1 else "", line.x, line.y, (axis.x, axis.y)))
        _finish(axes, axis)

    return Drawing(name, paint, legend=3 if len(lines) > 1 else 0)


def panels(name: str, shown: Sequence[tuple[Sequence[Line], Axis]]) -> Drawing:
    """Charts side by side with one legend."""
    columns = max(1, len(shown))

    def paint(figure: Sheet, palette: Palette) -> None:
        for axes, (lines, axis) in zip(figure.subplots(1, columns, squeeze=False)[0], shown, strict=False):
            for line in lines:
                _draw(axes, line, palette)
            _finish(axes, axis)
        add_legend(figure, 5)

    return Drawing(name, paint, (SIZE[0] * columns, SIZE[1] + 0.5))


def bars(
    name: str,
    labels: Sequence[str],
    values: Sequence[float],
    meaning: str,
    errors: Sequence[float] = (),
    marked: int | None = None,
) -> Drawing:
    """One lying bar for each label, so that long names can be read; whiskers for errors; one bar may be marked."""

    def paint(figure: Sheet, palette: Palette) -> None:
        axes = figure.subplots()
        places = list(range(len(labels)))
        axes.barh(places, values, 0.7, color=[palette.of(int(place == marked)) for place in places])
        if errors:
            axes.errorbar(values, places, xerr=errors, fmt="none", ecolor=palette.ink, elinewidth=1, capsize=2)
        if any(value < 0 for value in values):
            axes.axvline(0, color=palette.ink, linewidth=0.8)
        axes.set_yticks(places, [label if len(label) < LONG else f"{label[: LONG - 2]}…" for label in labels])
        axes.invert_yaxis()
        for place, (label, value) in enumerate(zip(labels, values, strict=True)):
            spread = f" ± {short(errors[place], 3)}" if errors else ""
            tell(axes, Hint(value, place, f"{label}: {short(value)}{spread}"))
        axes.set_xlabel(meaning)
        axes.grid(visible=True, axis="x", alpha=0.5)
        axes.set_axisbelow(True)
        axes.tick_params(length=0)

    return Drawing(name, paint, (SIZE[0], max(SIZE[1], 0.75 + 0.21 * len(labels))))


def views(name: str, labels: Sequence[str], images: Sequence[Any]) -> Drawing:
    """Small pictures under their names; wide strips two abreast, others five."""
    height, width = images[0].shape[:2]
    columns = min(len(images), 2 if width > 2 * height else 5)
    lines = -(-len(images) // columns)
    tall = 0.24 + min(1.0, height / width) * SIZE[0] / columns

    def paint(figure: Sheet, palette: Palette) -> None:
        for place, axes in enumerate(figure.subplots(lines, columns, squeeze=False).flat):
            axes.set_axis_off()
            if place < len(images):
                axes.imshow(images[place], cmap="gray", aspect="equal")
                axes.set_title(labels[place][:LONG], fontsize=8, color=palette.ink)

    return Drawing(name, paint, (SIZE[0], 0.1 + lines * tall))


def matrix(name: str, counts: Sequence[Sequence[int]], names: Sequence[str]) -> Drawing:
    """A confusion matrix: true classes down, decided ones across, each row shaded by its own shares."""
    names = [name if len(name) <= CLASS else f"{name[: CLASS - 1]}…" for name in names]
    side = max(3.0, 0.36 * len(names) + 0.9 + LETTER * max(0, *(len(name) - SHORT for name in names)))

    def paint(figure: Sheet, palette: Palette) -> None:
        axes = figure.subplots()
        for true, row in enumerate(counts):
            for decided, count in enumerate(row):
                _cell(axes, (decided, true), count, count / max(1, sum(row)), palette)
        axes.set_xlim(-0.5, len(names) - 0.5)
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.set_xticks(range(len(names)), names, rotation=0 if max(map(len, names)) < 3 else 90)
        axes.set_yticks(range(len(names)), names)
        axes.set_xlabel("decided")
        axes.set_ylabel("true")
        axes.set_aspect("equal")
        axes.tick_params(length=0)

    return Drawing(name, paint, (side, side))


def _cell(axes: Axes, at: tuple[int, int], count: int, share: float, palette: Palette) -> None:
    right = at[0] == at[1]
    if count:
        depth = 0.7 * share + (0 if right else 0.14)
        axes.add_patch(
            Rectangle(
                (at[0] - 0.48, at[1] - 0.48), 0.96, 0.96, color=palette.of(int(not right)), alpha=depth, linewidth=0
            )
        )
        axes.text(*at, f"{count:,}", ha="center", va="center", fontsize=8)


def _draw(axes: Axes, line: Line, palette: Palette) -> None:
    place = line.place
    colour = palette.of(place)
    many = len(line.x) > 40
    axes.plot(
        line.x, line.y, color=colour, linestyle=DASHES[place % len(DASHES)],
        marker=None if many else MARKERS[place % len(MARKERS)], markersize=3.2, label=line.label,
    )  # fmt: skip
    if line.low and line.high:
        axes.fill_between(line.x, line.low, line.high, color=colour, alpha=0.18, linewidth=0)
    if line.best is not None:
        axes.plot([line.x[line.best]], [line.y[line.best]], marker="o", markersize=9, markerfacecolor="none",
                  markeredgecolor=colour, markeredgewidth=1.4)  # fmt: skip


def add_legend(figure: Figure, columns: int, *, by_rows: bool = False) -> None:
    """One legend above all axes."""
    handles, labels = figure.axes[0].get_legend_handles_labels()
    columns = max(1, min(columns, len(labels)))
    order = list(range(len(labels)))
    if by_rows:  # matplotlib fills columns; many names are read in lines
        order = [place for column in range(columns) for place in order[column::columns]]
    if labels:
        figure.legend(
            [handles[place] for place in order], [labels[place] for place in order], loc="outside upper center",
            ncols=columns, frameon=False, markerscale=1.4 if by_rows else 1.0, handletextpad=0.3 if by_rows else 0.8,
        )  # fmt: skip


def label_axes(axes: Axes, axis: Axis) -> None:
    """Names, and lines to read values by."""
    axes.set_xlabel(axis.x)
    axes.set_ylabel(axis.y)
    axes.grid(visible=True, axis="y", alpha=0.5)
    axes.set_axisbelow(True)
    axes.tick_params(length=0)


def _finish(axes: Axes, axis: Axis) -> None:
    label_axes(axes, axis)
    axes.margins(x=0.02)
    if axis.whole:
        axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True, steps=[1, 2, 5, 10]))
    if axis.log:
        axes.set_yscale("log")
        axes.minorticks_off()
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=8))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value, 6)))  # no powers in tiny print
