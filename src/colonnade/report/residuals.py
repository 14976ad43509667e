"""Predicted and actual numbers or counts of the test rows, and how far they are apart: pictures and tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from colonnade.numerals import short
from colonnade.record import Binned, Histogram, NumberBinned, NumberBins
from colonnade.report.curves import Picture
from colonnade.report.figures import Axis
from colonnade.report.plots import Guide, Series, histogram, plot
from colonnade.report.record import Record
from colonnade.report.tables import Table

Z = 1.959964  # of a 95 % interval


def shown(record: Record, found: Binned, prefix: str) -> tuple[tuple[Picture, ...], tuple[Table, ...]]:
    """The pictures and tables of every number that was kept."""
    pictures: list[Picture] = []
    tables: list[Table] = []
    several, named = len(found["numbers"]) > 1, record["about"].get("class_names") or ()
    for place, number in enumerate(found["numbers"]):
        title = (named[place] if place < len(named) else f"number {place + 1}") if several else ""
        of, name = f" of {title}" if title else "", f"{prefix}number-{place + 1}-" if several else prefix
        deviance = found.get("deviance", False)
        weighed = bool(record["about"].get("row_weights"))
        first = _expected(number["bins"], name, of, weighed) if deviance else _against(number["bins"], name, of)
        kind = "deviance residual" if deviance else "residual"
        pictures += [first, _residuals(number["bins"], name, of, kind)]
        pictures.append(_distribution(number["residuals"], name, of, kind, weighed))
        tables += [_expected_table(number["bins"], of, weighed)] if deviance else []
        tables += _quantiles(number, of, kind, weighed)
    return tuple(pictures), tuple(tables)


def _against(bins: NumberBins, name: str, of: str) -> Picture:
    x, y = bins["predicted"], bins["actual"]
    low, high = _around(y, bins["spread"])
    least, most = min(*x, *y), max(*x, *y)
    dots = Series("model", x, y, low, high, joined=False)
    drawing = plot(f"{name}predicted-actual", [dots], Axis("predicted", "actual"), Guide((least, most), (least, most)))
    caption = (
        f"Predicted and actual values{of}: means of rows with similar predictions. Dashed: they agree; whiskers: one "
        "standard deviation of the residuals."
    )
    told = f"From {_short(x[0])} predicted, {_short(y[0])} actual, to {_short(x[-1])} predicted, {_short(y[-1])} actual"
    return Picture(drawing, caption, f"{caption} {told}.")


def _residuals(bins: NumberBins, name: str, of: str, kind: str) -> Picture:
    x, y = bins["predicted"], bins["residual"]
    low, high = _around(y, bins["spread"])
    drawing = plot(
        f"{name}residuals", [Series("mean", x, y, low, high, band=True)], Axis("predicted", kind),
        Guide((min(x), max(x)), (0, 0)),
    )  # fmt: skip
    caption = f"Mean {kind}{of} by prediction; band: one standard deviation. Dashed: none."
    far = max(y, key=abs)
    told = f"The mean farthest from 0 is {_short(far)}, where {_short(x[y.index(far)])} is predicted"
    return Picture(drawing, caption, f"{caption} {told}.")


def _expected(bins: NumberBins, name: str, of: str, weighed: bool) -> Picture:
    """Without a band where rows have weights: how far a weighted mean strays is not in the bins."""
    place, low, high = list(range(1, len(bins["rows"]) + 1)), list[float](), list[float]()
    if not weighed:
        reach = [Z * math.sqrt(mean / rows) for mean, rows in zip(bins["predicted"], bins["rows"], strict=True)]
        low, high = _around(bins["predicted"], reach)
    expected = Series("expected", place, bins["predicted"], [max(0.0, end) for end in low], high, band=not weighed)
    observed = Series("observed", place, bins["actual"], joined=False, place=1)
    axis = Axis("tenth of the rows, by prediction", "mean count", whole=True)
    drawing = plot(f"{name}observed-expected", [expected, observed], axis)
    band = "" if weighed else "; band: 95 % of such means of Poisson counts"
    caption = f"Observed and expected counts{of} by tenths of the rows{band}."
    pairs = zip(bins["predicted"], bins["actual"], strict=True)
    told = "; ".join(f"{_short(mean)} expected, {_short(count)} observed" for mean, count in pairs)
    return Picture(drawing, caption, f"{caption} {told}.")


def _expected_table(bins: NumberBins, of: str, weighed: bool) -> Table:
    """Totals; where rows have weights, means: so many rows times a weighted mean would be a total of nothing."""
    rows = tuple(
        (str(place), f"{count:,}", *_pair(count, mean, actual, weighed), _over(actual, mean))
        for place, (count, mean, actual) in enumerate(
            zip(bins["rows"], bins["predicted"], bins["actual"], strict=True), start=1
        )
    )
    names = ("weighted mean expected", "weighted mean observed") if weighed else ("expected", "observed")
    columns = ("tenth of the rows, by prediction", "test rows", *names, "observed / expected")
    return Table(f"Observed and expected counts{of}", columns, rows)


def _pair(count: int, mean: float, actual: float, weighed: bool) -> tuple[str, str]:
    return (_short(mean), _short(actual)) if weighed else (f"{count * mean:,.1f}", f"{count * actual:,.1f}")


def _over(actual: float, mean: float) -> str:
    return f"{actual / mean:.2f}" if mean > 0 else "-"


def _distribution(found: Histogram, name: str, of: str, kind: str, weighed: bool) -> Picture:
    """A histogram whose outer bars, which have no end, are as wide as their neighbours."""
    edges, rows = found["edges"], found["rows"]
    ends = _ends(edges)
    total, widths = sum(rows), [right - left for left, right in pairwise(ends)]
    heights = [100 * count / total for count in rows]
    narrow = min(widths)
    dense = [height * narrow / width for height, width in zip(heights, widths, strict=True)]
    per = f"% of rows per {_short(narrow)}"
    drawing = histogram(f"{name}residual-distribution", ends, dense, Axis(kind, per), 0.0)
    caption = f"Distribution of the {kind}s{of}{_once(weighed)}. The pale outer bars hold all rows beyond."
    told = _in_words(edges, heights)
    return Picture(drawing, caption, f"{caption} {told}")


def _ends(edges: Sequence[float]) -> list[float]:
    if not edges:
        return [-0.5, 0.5]
    if len(edges) == 1:
        return [edges[0] - 0.5, edges[0], edges[0] + 0.5]
    return [2 * edges[0] - edges[1], *edges, 2 * edges[-1] - edges[-2]]


def _in_words(edges: Sequence[float], shares: Sequence[float]) -> str:
    if not edges:
        return "All rows are in one bar."
    below, above = f"{shares[0]:.1f} % below {_short(edges[0])}", f"{shares[-1]:.1f} % above {_short(edges[-1])}"
    return f"{below}, {above}, the rest between."


def _once(weighed: bool) -> str:
    return ", every row counted once whatever its weight" if weighed else ""


def _quantiles(number: NumberBinned, of: str, kind: str, weighed: bool) -> list[Table]:
    if not number["quantiles"]:
        return []
    columns = tuple(f"{100 * share:g} %" for share, _ in number["quantiles"])
    values = tuple(_short(value) for _, value in number["quantiles"])
    title = f"Quantiles of the {kind}s{of}{_once(weighed)}: so many rows are below"
    return [Table(title, ("share of rows", *columns), ((kind, *values),))]


def _around(values: Sequence[float], reach: Sequence[float]) -> tuple[list[float], list[float]]:
    pairs = list(zip(values, reach, strict=True))
    return [value - far for value, far in pairs], [value + far for value, far in pairs]


def _short(value: float) -> str:
    return short(value, 3)
