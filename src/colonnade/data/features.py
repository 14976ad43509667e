"""What one column becomes: numbers that are scaled, or levels that each have a place.

A feature is fitted once, on the training rows of one column or of one part of a date, and is plain numbers and texts.
What is constant on the training rows carries no information there and becomes zero everywhere, so that a surprising
value in another row cannot explode.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from colonnade.data.bins import Bins
from colonnade.data.column_settings import ColumnSettings
from colonnade.data.kinds import BOOLEAN, Levels
from colonnade.data.rare import least_rows

SAME = 1e-6  # how far statistics of the same rows may be apart on two machines, in deviations
EXTREME = (0.01, 0.99)  # numbers further outside these quantiles than they are apart are extreme
MOST_SORTED = 100_000  # training rows that quantiles are taken of; of more, evenly spaced ones
BLOCK = 1 << 20  # numbers that are squared at once
MOST_ENCODED = 1 << 12  # levels that are encoded at once for their mean
FEW = 32  # places that are written one by one
LEAST_EDGES = 2  # one piece would be the number again
QUANTILES = 1000  # places that a distribution is known at, for scaling = "quantile"

Values = np.ndarray[Any, Any]


@dataclass(frozen=True)
class NumberFeature:
    """A column of numbers, or a number of a date: empty ones filled, extremes drawn in, scaled."""

    column: str
    part: str = ""  # of a date
    center: float = 0.0
    scale: float = 1.0
    low: float | None = None  # numbers below are drawn in to it
    high: float | None = None
    fill: float | None = None  # what stands for an empty value; None: nothing was known in training, or none may be
    holes: bool = False  # training rows had empty values
    indicator: bool = False  # a second column says where values were empty
    refuses: bool = False  # empty values are an error
    constant: bool = False
    quantiles: Values | None = field(default=None, repr=False)  # (Q,) in place of centre and scale
    edges: Values | None = field(default=None, repr=False)  # (P + 1,) of the pieces that further columns tell of
    centers: Values | None = field(default=None, repr=False)  # (P,) of how far numbers lie in each piece
    scales: Values | None = field(default=None, repr=False)
    mean: tuple[float, ...] | None = field(default=None, repr=False)  # (width,) of the encoded training rows

    @classmethod
    def fit(cls, column: str, part: str, values: Values, settings: ColumnSettings) -> NumberFeature:
        """From the training rows (N,) float64, NaN where they are empty."""
        empty = np.isnan(values)
        holes = bool(empty.any())
        known = values[~empty] if holes else values
        refuses, indicator = settings.missing == "refuse", holes and settings.missing == "indicate"
        if not len(known):
            return cls(column, part, holes=True, constant=True, mean=(0.0,))
        some = np.sort(known[:: -(-len(known) // MOST_SORTED)])
        fill = float(np.median(some))
        low, high = _bounds(some, settings.clip)
        if low is not None and high is not None and (known.min() < low or known.max() > high):
            known = np.clip(known, low, high)
        plain = cls(column, part, 0.0, 1.0, low, high, fill, holes, indicator, refuses)
        if known.min() == known.max():
            fitted = replace(plain, center=float(known[0]), constant=True)
        elif settings.scaling == "plain":
            fitted = plain
        elif settings.scaling == "quantile":
            fitted = replace(plain, quantiles=_quantiles(some))
        else:
            center, scale = _moments(known)
            fitted = replace(plain, center=center, scale=scale)
        if settings.pieces and not fitted.constant:
            some = some if low is None else np.clip(some, low, high)
            fitted = fitted._with_pieces(some, settings.pieces)
        return fitted._with_mean(known if fitted._straight else some, len(known) / len(values))

    def _with_pieces(self, some: Values, count: int) -> NumberFeature:
        """With pieces between quantiles of sorted numbers, each scaled as the numbers themselves are.

        The first starts and the last ends where numbers become rare: the few beyond are not told apart by pieces.
        """
        edges = np.unique(np.quantile(some, np.clip(np.linspace(0, 1, count + 1), *EXTREME), method="lower"))
        if len(edges) <= LEAST_EDGES:
            return self
        within = _within(edges, some)
        return replace(self, edges=edges, centers=within.mean(1), scales=within.std(1))

    def _with_mean(self, known: Values, share: float) -> NumberFeature:
        """With the mean of the encoded training rows: of those that are known, `share` of all, and of the empty."""
        values = np.append([known.mean()] if self._straight else known, np.nan)
        out = np.zeros((self.width, len(values)), dtype=np.float32)
        self.encode(values, out)
        encoded = out.astype(float)
        mean = share * encoded[:, :-1].mean(1) + ((1 - share) * encoded[:, -1] if share < 1 else 0.0)
        return replace(self, mean=tuple(mean.tolist()))

    @property
    def _straight(self) -> bool:
        """Whether the mean of what it makes is what it makes of the mean."""
        return self.quantiles is None and self.edges is None

    @property
    def width(self) -> int:
        """How many numbers of a row it becomes."""
        return 1 + self.indicator + (0 if self.edges is None else len(self.edges) - 1)

    @property
    def blank(self) -> bool:
        """Whether all training rows were empty."""
        return self.fill is None and not self.refuses

    @property
    def share_of_empty(self) -> float | None:
        """The share of the training rows that were empty, where there were such; None: nobody kept it."""
        return self.mean[1] if self.indicator and self.mean is not None else None

    def outside(self, values: Values) -> Values:
        """(N,) which numbers are drawn in."""
        low, high = (-np.inf if self.low is None else self.low), (np.inf if self.high is None else self.high)
        found: Values = (values < low) | (values > high)
        return found

    def encode(self, values: Values, out: Values) -> None:
        """Numbers (N,) float64 into zeros (width, N) float32."""
        empty = np.isnan(values) if not self.refuses else np.zeros(0, dtype=bool)
        if self.indicator:
            out[1] = empty
        if self.constant:
            return
        if self.fill is not None and empty.any():
            values = np.where(empty, self.fill, values)
        if self.low is not None or self.high is not None:
            values = np.clip(values, self.low, self.high)
        if self.quantiles is not None:
            out[0] = _transformer(self.quantiles).transform(values[:, None])[:, 0]
        else:
            out[0] = (values - self.center) / self.scale
        if self.edges is not None and self.centers is not None and self.scales is not None:
            out[1 + self.indicator :] = (_within(self.edges, values) - self.centers[:, None]) / self.scales[:, None]

    def agrees(self, other: Feature) -> bool:
        """Whether another feature makes the same numbers, up to the rounding of another machine."""
        if not isinstance(other, NumberFeature) or _exact(self) != _exact(other):
            return False
        rows = ((getattr(self, name), getattr(other, name)) for name in ("quantiles", "edges", "centers", "scales"))
        if not all(_alike(one, two) for one, two in rows if one is not None and two is not None):
            return False
        pairs = [(getattr(self, name), getattr(other, name)) for name in ("center", "low", "high", "fill")]
        apart = [abs(one - two) / self.scale for one, two in pairs if one is not None and two is not None]
        return bool(max([*apart, abs(self.scale / other.scale - 1)]) < SAME)


@dataclass(frozen=True)
class LevelFeature:
    """A column of text, categories or booleans, or a level of a date: one in the place of a row's level.

    An ordinal one is the number of that place instead, -1 for a level that has none. Levels of few training rows share
    one place, with whatever training did not see, and their texts are not kept: they may be names of people.
    """

    column: str
    part: str = ""  # of a date
    kind: str = ""  # what the values of the column are
    known: tuple[str, ...] = field(default=(), repr=False)  # levels with a place of their own
    other: int | None = None  # the place of all others; None: training had none
    least: int = 1  # training rows that a level with a place of its own has at least
    holes: bool = False  # training rows had empty values
    indicator: bool = False  # empty values have the last place
    refuses: bool = False  # empty values are an error
    buckets: int = 0  # places that levels are hashed to, in place of the known ones
    ordinal: bool = False  # the number of a place, in place of a column for each
    mean: tuple[float, ...] | None = field(default=None, repr=False)  # (width,) of the encoded training rows

    @classmethod
    def fit(
        cls, column: str, part: str, kind: str, count: Mapping[str, int], empty: int, settings: ColumnSettings
    ) -> LevelFeature:
        """From how many training rows have each level, and how many none."""
        rows, holes = sum(count.values()), empty > 0
        plain = cls(
            column,
            part,
            kind,
            least=1 if kind == BOOLEAN and settings.rare is None else least_rows(settings.rare, rows + empty),
            holes=holes,
            indicator=holes and settings.missing == "indicate",
            refuses=settings.missing == "refuse",
            ordinal=settings.levels == "ordinal",
        )
        kept = [text for text, n in count.items() if n >= plain.least]
        if settings.levels == "hash" or (settings.levels == "auto" and _too_many(count, kept, settings)):
            return replace(plain, buckets=settings.buckets)._with_mean(count, empty)
        kept = sorted(kept, key=lambda text: (-count[text], text))[: settings.most]
        others = set(count) - set(kept)
        place = None if not others else len(kept)
        if settings.rare is None and len(others) == 1 and kept and len(count) <= settings.most:
            place = sorted(count).index(next(iter(others)))  # where it would be by itself, so that nothing moves
        return replace(plain, known=tuple(sorted(kept)), other=place)._with_mean(count, empty)

    def _with_mean(self, count: Mapping[str, int], empty: int) -> LevelFeature:
        """With the mean of the encoded training rows, of which so many have each text and so many none."""
        texts, counts, mean = tuple(count), np.array([empty, *count.values()], dtype=float), np.zeros(self.width)
        codes = np.flatnonzero(counts) - 1  # -1: empty
        for first in range(0, 0 if self.constant else len(codes), MOST_ENCODED):
            some = codes[first : first + MOST_ENCODED]
            out = np.zeros((self.width, len(some)), dtype=np.float32)
            self.encode(Levels(texts, some), out)
            mean += out @ (counts[some + 1] / counts.sum())
        return replace(self, mean=tuple(mean.tolist()))

    @property
    def slots(self) -> tuple[str | None, ...]:
        """The levels by place, None for all others."""
        if self.other is None:
            return self.known
        return (*self.known[: self.other], None, *self.known[self.other :])

    @property
    def places(self) -> int:
        """Places of levels, without that of empty values."""
        return self.buckets or len(self.slots)

    @property
    def width(self) -> int:
        """How many numbers of a row it becomes."""
        return 1 if self.ordinal else max(1, self.places + self.indicator)

    @property
    def constant(self) -> bool:
        """Whether all training rows had the same place."""
        return self.places + self.indicator <= 1

    @property
    def blank(self) -> bool:
        """Whether all training rows were empty."""
        return self.places == 0

    @property
    def share_of_empty(self) -> float | None:
        """The share of the training rows that were empty, where there were such; None: nobody kept it."""
        kept = self.indicator and self.mean is not None and not self.constant and not self.ordinal
        return self.mean[self.places] if kept and self.mean is not None else None

    @property
    def share_of_others(self) -> float:
        """The share of the training rows that are in the place of all others; 1 where nobody kept it."""
        if self.other is None:
            return 0.0
        return 1.0 if self.mean is None or self.constant or self.ordinal else self.mean[self.other]

    def strange(self, texts: tuple[str, ...]) -> Values:
        """Which texts have no place of their own; where levels are hashed nobody knows."""
        known = {*self.known}
        return np.array([not (self.buckets or text in known) for text in texts], dtype=bool)

    def encode(self, levels: Levels, out: Values) -> None:
        """Levels of N rows into zeros (width, N) float32."""
        if self.buckets:
            places, values = _hashed(levels.texts, self.buckets)
        else:
            place = {text: at for at, text in enumerate(self.slots) if text is not None}
            unknown = -1 if self.other is None else self.other
            places = np.array([place.get(text, unknown) for text in levels.texts], dtype=np.int32)
            values = np.ones(len(places), dtype=np.float32)
        places = np.append(places, self.places if self.indicator else -1).astype(np.int32)  # of code -1, empty
        found = places[levels.codes]
        if self.ordinal:
            out[0] = found
            return
        if self.width <= FEW and not self.buckets:
            for at in range(self.width):
                np.equal(found, at, out=out[at])
            return
        rows = (found >= 0).nonzero()[0]
        out[found[rows], rows] = np.append(values, 1).astype(np.float32)[levels.codes[rows]]

    def agrees(self, other: Feature) -> bool:
        """Whether another feature makes the same numbers.

        Earlier versions kept the text of a level of few rows, at the place that all others have now.
        """
        if not isinstance(other, LevelFeature):
            return False
        both = self.other is not None and other.other is not None
        if len(self.slots) != len(other.slots) or (both and self.other != other.other):
            return False
        alike = all(a == b or None in (a, b) for a, b in zip(self.slots, other.slots, strict=True))
        one, two = (replace(feature, known=(), other=None, least=1) for feature in (self, other))
        return alike and _exact(one) == _exact(two)


def _too_many(count: Mapping[str, int], kept: list[str], settings: ColumnSettings) -> bool:
    """Whether a column for each level would be too many, or most rows were among those that share one."""
    if settings.rare is not None:
        return len(kept) > settings.most
    rows = sum(count.values())
    return len(count) > settings.most or 2 * sum(count[text] for text in kept) < rows


Feature = NumberFeature | LevelFeature | Bins


def to_plain(feature: Feature) -> dict[str, Any]:
    """A feature as plain values, for a file."""
    return {one.name: getattr(feature, one.name) for one in fields(feature)}


def from_plain(facts: Mapping[str, Any]) -> Feature:
    """A feature from plain values; TypeError where they are something else."""
    if "cuts" in facts:
        return Bins(**facts)
    if "known" not in facts:
        return NumberFeature(**facts)
    facts = {**facts}
    if facts.pop("rare", ()):  # earlier versions kept the texts of rare levels, in the place after the known ones
        facts["other"] = len(facts["known"])
    return LevelFeature(**facts)


def _exact(feature: Feature) -> dict[str, Any]:
    """What must be equal on two machines."""
    facts = {name: value for name, value in to_plain(feature).items() if name != "mean"}  # nothing is made of it
    rounded = {"center", "scale", "low", "high", "fill", "quantiles", "edges", "centers", "scales"}
    return {name: (value is None) if name in rounded else value for name, value in facts.items()}


def _within(edges: Values, values: Values) -> Values:
    """(P, N) how far each number lies in each piece: 0 below it, 1 above."""
    found: Values = np.clip((values - edges[:-1, None]) / np.diff(edges)[:, None], 0.0, 1.0)
    return found


def _alike(one: Values, two: Values) -> bool:
    """Whether two rows of numbers are the same, up to the rounding of another machine."""
    return one.shape == two.shape and bool(np.max(np.abs(one - two)) < SAME * (np.ptp(one) or 1.0))


def _bounds(some: Values, clip: str | tuple[float, float]) -> tuple[float | None, float | None]:
    """Between which values sorted numbers stay; None where all do. Never so narrow that nothing is left to tell."""
    if clip == "never":
        return None, None
    share = EXTREME if isinstance(clip, str) else clip
    low, high = np.quantile(some, share[0], method="lower"), np.quantile(some, share[1], method="higher")
    reach = (high - low) if clip == "extremes" else 0.0
    if low == high or not np.isfinite(reach):
        return None, None
    return float(low - reach), float(high + reach)


def _moments(known: Values) -> tuple[float, float]:
    """Mean and deviation, as scikit-learn's StandardScaler has them; 1 where the deviation is only rounding."""
    mean = float(known.mean())
    parts = (known[first : first + BLOCK] for first in range(0, len(known), BLOCK))
    variance = sum(float(np.square(part - mean).sum()) for part in parts) / len(known)
    rounding = len(known) * np.finfo(np.float64).eps
    if variance <= rounding * variance + (rounding * mean) ** 2:
        return mean, 1.0
    return mean, float(np.sqrt(variance))


def _quantiles(some: Values) -> Values:
    from sklearn.preprocessing import QuantileTransformer  # slow to import, and only some tables need it

    fitted = QuantileTransformer(n_quantiles=min(QUANTILES, len(some)), subsample=None).fit(some[:, None])
    found: Values = np.ascontiguousarray(fitted.quantiles_[:, 0])
    return found


def _transformer(quantiles: Values) -> Any:
    """A scikit-learn QuantileTransformer that knows these quantiles."""
    from sklearn.preprocessing import QuantileTransformer

    fitted = QuantileTransformer(n_quantiles=len(quantiles), output_distribution="normal")
    fitted.n_quantiles_, fitted.n_features_in_ = len(quantiles), 1
    fitted.references_ = np.linspace(0, 1, len(quantiles), endpoint=True)
    fitted.quantiles_ = quantiles[:, None]
    return fitted


def _hashed(texts: tuple[str, ...], buckets: int) -> tuple[Values, Values]:
    """The place and the sign of each text, the same in every process."""
    from sklearn.feature_extraction import FeatureHasher

    if not texts:
        return np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.float32)
    found = FeatureHasher(buckets, input_type="string", dtype=np.float32).transform([text] for text in texts)
    return found.indices, found.data
