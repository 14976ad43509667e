"""An explanation of a run: what each party contributed, by three measures, and how large its weights are. Plain values.

Whether the measures agree is part of it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from itertools import combinations
from pathlib import Path
from typing import Any, TypedDict

from colonnade.errors import ConfigError, RunError
from colonnade.explain.ranks import kendall, places, spearman

RANKING = ("shapley", "mask", "noise")  # measures of contribution; a norm is none, whatever it correlates with
FILE, FORMAT = "explain.json", 2
DERIVED = {"format", "ranked", "ranked_by"}  # in the file beside what an explanation holds
MEASURES = {
    "norm": "size of its weights",
    "noise": "score lost to noise on its columns",
    "mask": "score lost without it",
    "shapley": "Shapley value",
}
NAMES = {"norm": "sizes of weights", "noise": "noise", "mask": "masking", "shapley": "Shapley values"}  # in sentences


@dataclass(frozen=True)
class Agreement:
    """Whether two measures put the parties in the same order; None where one of them is constant."""

    one: str
    other: str
    spearman: float | None
    kendall: float | None


class Points(TypedDict):
    """What one party says of rows, as points in the plane; `labels` are places in `names`."""

    party: str
    which: str  # "most" or "least" important
    points: list[list[float]]
    labels: list[int]
    names: list[str]


class Fallen(TypedDict):
    """A party that lost weight (`denoise.Fall`)."""

    party: str
    place_before: int
    place_after: int
    ratio: float


class Denoised(TypedDict):
    """Trainings with one noisy party: scores by method and length, and whose weights fell."""

    party: str
    std: float
    rows: str
    lengths: list[int]
    scores: dict[str, list[float | None]]
    norm_before: list[float] | None
    norm_after: list[float] | None
    fallen: list[Fallen]


class Subset(TypedDict):
    """A training with a part of the parties."""

    share: float
    which: str  # "most" or "least" important
    parties: list[str]
    score: float | None
    validation: float | None


class Summary(TypedDict):
    """Trainings with parts of the parties, beside that with all."""

    rows: str
    all: float | None
    validation: float | None
    ranked: list[str]
    sets: list[Subset]
    advice: str


@dataclass
class Explanation:
    """What `explain.json` holds. Lists are in the order of `parties`; drops and values are in units of the score."""

    run: str
    method: str
    federation: str
    rows: str  # "validation" or "test"
    count: int
    score_name: str
    score: float | None
    parties: list[str]
    rank_by: str = "auto"  # the measure that ranks parties; auto: the first measure of contribution that is there
    norm_of: str | None = None  # what the norm is the norm of
    norm: list[float] | None = None
    noise_std: float | None = None  # None: as wide as each party's own columns
    noise_draws: int = 0
    noise: list[float] | None = None  # mean drop over the draws
    noise_spread: list[float] | None = None  # standard deviation over the draws
    mask: list[float] | None = None
    shapley: list[float] | None = None
    shapley_error: list[float] | None = None  # None: exact
    shapley_orders: int | None = None
    silence: str | None = None  # what a masked party counts as
    additive: bool | None = None  # whether predictions are sums of terms
    class_names: list[str] = field(default_factory=list)
    class_drop: list[list[float]] | None = None  # party x class, score lost without the party
    class_evidence: list[list[float]] | None = None  # party x class, lift of the right logit
    agreement: list[Agreement] = field(default_factory=list)
    unavailable: dict[str, str] = field(default_factory=dict)  # measure -> why
    releases: int = 0  # messages that left parties for this
    notes: list[str] = field(default_factory=list)
    pictures: dict[str, list[object]] | None = None  # party -> rows of raw columns
    tsne: list[Points] | None = None  # of what the most and the least important party say
    denoise: Denoised | None = None
    summary: Summary | None = None
    fallen: list[Fallen] | None = None  # parties that lost weight against an earlier run

    def measures(self) -> dict[str, list[float]]:
        """Those that are there, by name."""
        found = {name: getattr(self, name) for name in MEASURES}
        return {name: values for name, values in found.items() if values is not None}

    def ranked_by(self) -> str | None:
        """The measure that was asked for; unless one was, Shapley values, else masking, else noise; None: no measure.

        Raises:
            ConfigError: the one that was asked for is not available.
        """
        if self.rank_by == "auto":
            return next((name for name in RANKING if getattr(self, name) is not None), None)
        if getattr(self, self.rank_by) is None:
            raise ConfigError(f"parties cannot be ranked by {self.rank_by}: not available in this explanation")
        return self.rank_by

    def ranked(self) -> list[str]:
        """Party names, the highest contribution first; empty where nothing says what parties contribute."""
        by = self.ranked_by()
        return [] if by is None else self.order(by)

    def order(self, measure: str) -> list[str]:
        """Party names, the largest first."""
        place = dict(zip(self.parties, places(self.measures()[measure]), strict=True))
        return sorted(self.parties, key=lambda party: place[party])

    def agree(self, one: str, other: str) -> Agreement:
        """How far two measures agree."""
        return next(a for a in self.agreement if {a.one, a.other} == {one, other})

    def to_json(self) -> dict[str, object]:
        """Plain values."""
        return {"format": FORMAT, **asdict(self), "ranked": self.ranked(), "ranked_by": self.ranked_by()}

    def save(self, folder: str | Path) -> Path:
        """Write `explain.json` into a folder, whole or not at all."""
        path = Path(folder) / FILE
        beside = path.with_name(path.name + ".part")
        beside.write_text(json.dumps(self.to_json(), indent=1) + "\n", encoding="utf-8")
        beside.replace(path)
        return path

    @classmethod
    def load(cls, folder: str | Path) -> Explanation:
        """Read the explanation of a run folder.

        Raises:
            RunError: there is none, it is damaged, or another version of Colonnade wrote it.
        """
        path = Path(folder) / FILE
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise RunError(f"{folder} has no {FILE}; run: colonnade explain {folder}") from None
        except (OSError, ValueError) as error:
            raise RunError(f"{path} is damaged ({error}); run colonnade explain {folder} again") from None
        if not _is_ours(values):
            raise RunError(f"{path} was written by another version of Colonnade; run colonnade explain {folder} again")
        told = {key: value for key, value in values.items() if key not in DERIVED}
        return cls(**{**told, "agreement": [Agreement(**one) for one in values["agreement"]]})


def _is_ours(values: Any) -> bool:
    """Whether a file holds exactly what this version writes; older files lack something, newer ones have more."""
    known = {one.name for one in fields(Explanation)} | DERIVED
    return isinstance(values, dict) and values.get("format") == FORMAT and set(values) == known


def agreements(measures: dict[str, list[float]]) -> list[Agreement]:
    """Every pair of measures."""
    return [Agreement(a, b, spearman(measures[a], measures[b]), kendall(measures[a], measures[b]))
            for a, b in combinations(measures, 2)]  # fmt: skip


def mean_and_spread(draws: Sequence[Sequence[float]]) -> tuple[list[float], list[float]]:
    """Column means and standard deviations (n - 1; zero for one draw) over the first axis."""
    n = len(draws)
    means = [sum(column) / n for column in zip(*draws, strict=True)]
    if n == 1:
        return means, [0.0] * len(means)
    around = [
        (sum((x - m) ** 2 for x in column) / (n - 1)) ** 0.5
        for column, m in zip(zip(*draws, strict=True), means, strict=True)
    ]
    return means, around
