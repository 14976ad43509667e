"""Values that a figure tells whoever points at them: browsers show the title of what is under the pointer.

No script and no network is needed, and whoever does not see the figure has its description and the tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from colonnade.numerals import short

MOST = 150  # of one line; more could not be told apart with a pointer
RADIUS = 4.0  # points


@dataclass(frozen=True)
class Hint:
    """A value and where it is, in the numbers of the axes."""

    x: float
    y: float
    text: str


@dataclass(frozen=True)
class Spot:
    """The same in shares of the sheet, from its upper left corner."""

    x: float
    y: float
    text: str


def along(label: str, x: Sequence[float], y: Sequence[float], names: tuple[str, str]) -> Iterator[Hint]:
    """The points of a line; of a long one some, evenly, and its last."""
    step = max(1, -(-len(x) // MOST))
    kept = sorted({*range(0, len(x), step), len(x) - 1}) if len(x) else []
    for at in kept:
        told = f"{names[0]} {short(x[at])}, {names[1]} {short(y[at])}"
        yield Hint(x[at], y[at], f"{label}: {told}" if label else told)


def with_spots(svg: str, spots: Sequence[Spot], size: tuple[float, float]) -> str:
    """An SVG file with an unseen circle for each spot, above everything else; `size` in inches."""
    if not spots:
        return svg
    width, height = (72 * inches for inches in size)
    circles = "".join(
        f'<circle class="spot" cx="{spot.x * width:.1f}" cy="{spot.y * height:.1f}" r="{RADIUS:g}" fill-opacity="0">'
        f"<title>{escape(spot.text)}</title></circle>"
        for spot in spots
    )
    body, end, rest = svg.rpartition("</svg>")
    return f"{body}<g>{circles}</g>{end}{rest}"
