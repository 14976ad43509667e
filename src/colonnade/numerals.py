"""Numbers as people read them: no powers of ten for sizes that people have a feeling for."""

from __future__ import annotations

import math

LARGE = 1e3  # from here on fractions say nothing, and thousands are set apart
HUGE = 1e15  # from here on, and below TINY, a power of ten is easier to read than digits
TINY = 1e-9


def fixed(value: float, digits: int, sign: str = "") -> str:
    """A number with so many digits after the point; a large one as a whole number, with commas.

    Args:
        value: any number, also inf.
        digits: after the point, below LARGE.
        sign: "+" for a difference, which has its sign in any case.
    """
    if not math.isfinite(value) or abs(value) >= HUGE:
        return f"{value:{sign}.4g}"
    if abs(value) >= LARGE:
        return f"{value:{sign},.0f}"
    return f"{round(value, digits) + 0.0:{sign}.{digits}f}"


def measured(value: float, digits: int) -> str:
    """The same for a measure in a unit of its own: one that would read as zero keeps three digits that say something.

    Args:
        value: of a metric without bounds, such as an RMSE.
        digits: after the point, of a value of ordinary size.
    """
    if TINY <= abs(value) < 10.0**-digits:
        return f"{value:.{2 - math.floor(math.log10(abs(value)))}f}"
    return fixed(value, digits)


def short(value: float, digits: int = 4) -> str:
    """About so many digits that say something, wherever the point is."""
    if not math.isfinite(value) or abs(value) >= HUGE or 0 < abs(value) < TINY:
        return f"{value:.{digits}g}"
    if abs(value) >= 10**digits - 0.5:  # which .4g writes with a power of ten
        return f"{value:,.0f}"
    text = f"{value:.{digits}g}"
    if "e" not in text:
        return text
    return f"{value:.{digits - 1 - math.floor(math.log10(abs(value)))}f}".rstrip("0")
