"""The benchmarks there are: one TOML per figure in a folder called `benchmarks`.

title = "what is measured, in one line"
kind = "accuracy"                        # or "speed", "align"
reach = 96.0                             # accuracy: also report rounds and bytes until this many per cent
[targets]                                # or [targets.cpu] and [targets.cuda], where they differ
test_accuracy = { at_least = 97.8 }
[paper]                                  # what the paper has, by result: a number, or text with another unit
options = "--seeds 10"                   # what else to type for the results that were kept
[data] [method] [model] [training]       # accuracy: the job, as any configuration file has it
[[cases]]                                # zoo, sweep, private, unmatched: method (promise, rows) of each case
[sweep]                                  # sweep: one setting, and its values
[unmatched]                              # unmatched: shares of the rows that are matched, and seeds
[poisson] [search]                       # poisson: the regression, how rows are split, settings to choose from
[explain]                                # explain: questions, and what to train again
[speed]                                  # speed: sizes and repetitions
[align]                                  # align: sizes
[faults] [restart]                       # faults, restart: rounds, kills
[audit]                                  # audit: seeds and games
[tables] [tables_scale]                  # tables: which sets; tables_scale: rows and columns
[trees] [peers]                          # trees: which sets, and draws of private labels; peers: how many trees
[worth]                                  # worth: which sets, how many rows are asked about, epsilon
[interactions]                           # interactions: rows, epochs and rounds
[any_subset]                             # any_subset: which sets and methods
[tables_row_dp]                          # tables_row_dp: which sets, which promise, settings to choose from
[serve]                                  # serve: calls per second, seconds of each phase
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from colonnade.config import Settings, build, read_toml
from colonnade.errors import ConfigError

CHECKOUT = Path(__file__).parents[3]  # where the sources lie, if this is not an installed package
DEVICES = ("cpu", "cuda")
Kind = Literal[
    "accuracy", "zoo", "sweep", "private", "unmatched", "poisson", "explain", "speed", "align", "deployment", "faults",
    "restart", "audit", "tables", "tables_scale", "trees", "peers", "worth", "interactions", "any_subset",
    "row_dp", "tables_row_dp", "serve",
]  # fmt: skip


class Limit(Settings):
    """What a result must be: at least, or at most, a number."""

    at_least: float | None = None
    at_most: float | None = None

    @model_validator(mode="after")
    def _one_of_them(self) -> Limit:
        if (self.at_least is None) == (self.at_most is None):
            raise ValueError("needed either at_least or at_most")
        return self

    def holds(self, value: float | None) -> bool:
        """Whether the result is good enough; one that could not be measured is not."""
        if value is None:
            return False
        return value >= self.at_least if self.at_least is not None else value <= (self.at_most or 0.0)

    def to_json(self) -> dict[str, float]:
        """{"at_least": number} or {"at_most": number}."""
        return {key: value for key, value in self.model_dump().items() if value is not None}

    def __str__(self) -> str:
        return f">= {self.at_least:g}" if self.at_least is not None else f"<= {self.at_most:g}"


class _Head(Settings):
    """The part of the file that is about the benchmark; the rest says what to run."""

    title: str
    kind: Kind
    reach: float | None = Field(None, gt=0, le=100, description="accuracy in %: rounds and bytes to get there")
    targets: dict[str, Any] = Field(default_factory=dict, description="by result, or by device and result")
    paper: dict[str, float | str] = Field(default_factory=dict, description="the paper's figures, by result")
    renamed: dict[str, str] = Field(default_factory=dict, description="results of older files: new name by old name")
    options: str = Field("", description="what else to type for the results that were kept")


@dataclass(frozen=True)
class Bench:
    """One figure: what to run, and what it must show."""

    name: str
    title: str
    kind: Kind
    reach: float | None
    targets: Mapping[str, Mapping[str, Limit]]  # by device type, then by result
    tables: Mapping[str, Any] = field(repr=False)  # what is left of the file: what to run
    paper: Mapping[str, float | str] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)
    options: str = ""

    def limits(self, device: str) -> dict[str, Limit]:
        """The targets that hold on a device such as "cuda:0"."""
        return dict(self.targets.get(device.partition(":")[0], {}))


def folder() -> Path:
    """The folder of the benchmarks: `benchmarks` here, else that of the source checkout."""
    places = (Path("benchmarks"), CHECKOUT / "benchmarks")
    for place in places:
        if any(place.glob("*.toml")):
            return place
    raise ConfigError("no folder `benchmarks` with TOML files here; run this in a checkout of the sources")


def names() -> list[str]:
    """Every benchmark, by name."""
    return sorted(path.stem for path in folder().glob("*.toml"))


def find(name: str) -> Bench:
    """The benchmark of this name."""
    known = names()
    if name not in known:
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"
        raise ConfigError(f"no benchmark called {name!r}; {hint}")
    return read_bench(name, read_toml(folder() / f"{name}.toml"))


def read_bench(name: str, tables: Mapping[str, Any]) -> Bench:
    """A benchmark from the tables of its file."""
    about = {key: value for key, value in tables.items() if key in _Head.model_fields}
    head = build(_Head, about, f"benchmark {name}")
    by_device = head.targets.keys() & set(DEVICES)
    targets = head.targets if by_device else dict.fromkeys(DEVICES, head.targets)
    limits = {device: _limits(name, targets.get(device, {})) for device in DEVICES}
    rest = {key: value for key, value in tables.items() if key not in about}
    return Bench(name, head.title, head.kind, head.reach, limits, rest, head.paper, head.renamed, head.options)


def _limits(name: str, targets: Mapping[str, Any]) -> dict[str, Limit]:
    wrong = next((key for key, value in targets.items() if not isinstance(value, Mapping)), None)
    if wrong is not None:
        raise ConfigError(f"benchmark {name}: target {wrong!r} needs {{ at_least = X }} or {{ at_most = X }}")
    return {key: build(Limit, value, f"benchmark {name}: target {key}") for key, value in targets.items()}
