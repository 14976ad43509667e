"""Pages with figures: the text is written by hand, every figure comes from a result file.

`benchmarks/README.md` has a block per result file, which `fill` writes anew; the rest of it is left alone:

    <!-- figures of speed -->
    ...
    <!-- end of figures -->

The main README shows a few figures in passing, as `[98.10](benchmarks/results/mnist-vimadmm.json "test_accuracy")`;
`refresh` replaces the number by that of the file, with as many decimals; the name is the one on `benchmarks/README.md`,
where a figure may have been renamed since it was measured. A test holds the pages against the files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from colonnade.bench.catalogue import Bench, find, names
from colonnade.bench.controls import controls
from colonnade.bench.ended import ended_early
from colonnade.bench.outcome import Outcome, read
from colonnade.errors import ConfigError

PAGE, RESULTS = "README.md", "results"
UNFINISHED = "unfinished"  # beside the results: tables of which some cases are measured
BLOCK = re.compile(r"<!-- figures of ([\w-]+) -->\n.*?<!-- end of figures -->", re.DOTALL)
SHOWN = re.compile(r'\[([\d.,]+)([^\]]*)\]\((\S*results/([\w-]+)\.json) "([\w.]+)"\)')
SPREADS = ("_std", "_spread")
ONE_SEED = 0.0  # the deviation that older files have of one seed, which has none; newer ones leave it out
MISSING = "Not measured yet."


def fill(text: str, results: Path) -> str:
    """The page with every block written anew from the files in `results`.

    Raises:
        ConfigError: a result file or a benchmark has no block, so that its figures would not be shown.
    """
    blocks = [match[1] for match in BLOCK.finditer(text)]
    wanted = dict.fromkeys([*names(), *(path.stem for path in sorted(results.glob("*.json")))])
    lacking = [name for name in wanted if name not in blocks]
    if lacking:
        raise ConfigError(f"{PAGE} has no block <!-- figures of {lacking[0]} -->; add one where they belong")
    return shown(text, results)


def shown(text: str, results: Path, there: str = RESULTS) -> str:
    """Another page with every block that it has written anew; `there`: where the result files are, seen from it."""
    return BLOCK.sub(lambda match: _block(match[1], results, there), text)


def refresh(text: str, results: Path) -> str:
    """The text with the numbers of the result files in the places that name them, rounded as they were."""

    def number(match: re.Match[str]) -> str:
        shown, unit, link, name, key = match.groups()
        outcome = read(results / f"{name}.json")
        older = {new: old for old, new in find(outcome.bench).renamed.items()}
        value = outcome.results.get(key, outcome.results.get(older.get(key, key)))
        if value is None:
            raise ConfigError(f"results/{name}.json has no {key!r}, which a page shows")
        return f'[{value:,.{len(shown.partition(".")[2])}f}{unit}]({link} "{key}")'

    return SHOWN.sub(number, text)


def _block(name: str, results: Path, there: str) -> str:
    path = file_of(name, results)
    folder = there if path is None or path.parent == results else f"{there.removesuffix(RESULTS)}{UNFINISHED}"
    body = MISSING if path is None else "\n".join(_told(name, read(path), folder))
    return f"<!-- figures of {name} -->\n\n{body}\n\n<!-- end of figures -->"


def file_of(name: str, results: Path) -> Path | None:
    """Where the figures of a benchmark are: among the results, or among those that are not complete; None: nowhere."""
    places = [results / f"{name}.json", results.parent / UNFINISHED / f"{name}.json"]
    return next((path for path in places if path.exists()), None)


def _told(name: str, outcome: Outcome, there: str) -> Iterator[str]:
    """Where the figures come from, and a row for each."""
    bench = find(outcome.bench)
    yield (
        f"`{command(name, bench, outcome)}` · {where(outcome.machine)} · commit `{outcome.commit[:12]}` · "
        f"[{name}.json]({there}/{name}.json)"
    )
    yield ""
    rows = figures(outcome, bench)
    heads = [head for head in ("result", "spread", "target", "met", "paper") if any(getattr(row, head) for row in rows)]
    yield f"| figure | {' | '.join(heads)} |"
    yield "| --- |" + "".join(" --- |" if head == "met" else " ---: |" for head in heads)
    for row in rows:
        yield f"| `{row.key}` | {' | '.join(getattr(row, head) for head in heads)} |"
    for sentence in (controls(outcome), ended_early(bench, outcome)):
        if sentence:
            yield ""
            yield sentence


@dataclass(frozen=True)
class Figure:
    """A row of a table, as text."""

    key: str
    result: str
    spread: str
    target: str
    met: str
    paper: str


def figures(outcome: Outcome, bench: Bench) -> list[Figure]:
    """Every result in its order, each with its spread; then targets without a result.

    Targets are those of the benchmark as it is now: one that came after the measurement may not be met by it.
    """
    results, limits = outcome.results, bench.limits(str(outcome.machine["device"]))
    spreads = {key: spread for key in results if (spread := spread_key(key, results)) is not None}
    keys = [key for key in results if key not in spreads.values()]
    named = {bench.renamed.get(key, key) for key in results}
    keys += [key for key in limits if key not in named]
    rows = []
    for key in keys:
        value, limit = results.get(key), limits.get(bench.renamed.get(key, key))
        paper = bench.paper.get(key, "")
        rows.append(
            Figure(
                bench.renamed.get(key, key),
                "not measured" if value is None else number(value),
                number(results[spreads[key]], 2) if key in spreads and results[spreads[key]] != ONE_SEED else "",
                "" if limit is None else str(limit).replace(">=", "≥").replace("<=", "≤"),
                "" if limit is None else ("yes" if limit.holds(value) else "**no**"),
                paper if isinstance(paper, str) else number(paper),
            )
        )
    return rows


def spread_key(key: str, results: Mapping[str, float]) -> str | None:
    """The result that says how far repetitions of this one differ: its name with `_std` or `_spread` in it."""
    base, point, rest = key.partition(".")
    stem, _, budget = base.partition("_eps")
    for mark in SPREADS:
        places = (f"{key}{mark}", f"{base}{mark}{point}{rest}", f"{stem}{mark}_eps{budget}{point}{rest}")
        for place in places:
            if place in results and place != key:
                return place
    return None


def command(name: str, bench: Bench, outcome: Outcome) -> str:
    """What to type to measure it again."""
    words = ["colonnade bench", bench.name, bench.options]
    words += ["--data-dir DIR"] if bench.tables.get("data", {}).get("set", "digits") != "digits" else []
    words += ["--device cuda"] if str(outcome.machine["device"]).startswith("cuda") else []
    return " ".join([word for word in words if word] + [f"--out benchmarks/{RESULTS}/{name}.json"])


def where(machine: Mapping[str, object]) -> str:
    """The machine in a few words."""
    cores = machine["cores"]
    return str(machine["gpu"] or f"{machine['cpu']}, {cores} core{'' if cores == 1 else 's'}")


def number(value: float, digits: int = 4) -> str:
    """A few significant digits; whole numbers as they are."""
    if value == round(value) and abs(value) < 1e15:
        return f"{value:,.0f}"
    shown = f"{value:#.{digits}g}"
    return shown.rstrip(".") if "e" not in shown else f"{value:.{digits - 1}e}"
