"""docs/paper.md: every table and figure of the paper beside ours, written from the result files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from colonnade.bench.catalogue import find
from colonnade.bench.ended import ended_early
from colonnade.bench.outcome import Curve, Outcome, read
from colonnade.bench.page import ONE_SEED, RESULTS, command, file_of, number, spread_key, where
from colonnade.bench.paper_tables import NAMES, NOT_MEASURED, TABLES, Line, Table

OURS = ("vimadmm", "vimadmm_j")  # the paper's methods, which it finds above all others
CONTROLS = ("local_only", "vimadmm_no_signal")
LESS_IS_BETTER = ("mb_", "class_accuracy_std")
ELSEWHERE = ("nus-wide-", "modelnet40-")  # benchmarks of data that are not at hand
LABEL = re.compile(r" \((?:fig|tab|tb):[\w-]+\)")  # what the paper's source calls a figure; readers know its number
POINTS = 8  # columns of a table of curves
HEAD = """# The paper, table by table

The main methods here, VIMADMM and VIMADMM-J, are those of Xie et al., "Improving Privacy-Preserving Vertical Federated
Learning by Efficient Communication with ADMM" (IEEE SaTML 2024, [arXiv 2207.10226](https://arxiv.org/abs/2207.10226)).
This page has every table and figure with results of that paper, and ours beside it. It is written by
`colonnade bench --write-pages` from the files in `benchmarks/results`, and in `benchmarks/unfinished` where a
table is being filled; nothing on it is written by hand.

`colonnade bench paper --list` names the tables; `colonnade bench paper KEY --data-dir DIR --device cuda --out
benchmarks/results` measures one. Accuracies are of test rows, in per cent; settings are chosen on validation rows and
stand in `benchmarks/BENCH.toml`. The files of NUS-WIDE and ModelNet40 are not at hand: the same commands run on files
of the original layout."""


@dataclass(frozen=True)
class Shown:
    """A line with what was measured of it."""

    line: Line
    value: float | None
    tried: bool  # trained, even if there is no value: an accuracy that was never reached has no bytes until then
    spread: float | str | None
    epsilon: float | None
    formula: float | None  # the same by the paper's formula


def page(results: Path) -> str:
    """The whole of docs/paper.md, from the result files."""
    files = _files(results)
    outcomes = {name: read(path) for name, path in files.items()}
    lines = [HEAD]
    for table in TABLES:
        lines += ["", *_section(table, outcomes), "", *(_source(name, outcomes, files) for name in table.benches)]
    lines += ["", "## Not measurements", "", *(f"- {LABEL.sub('', place)}: {words}." for place, words in NOT_MEASURED)]
    return "\n".join([*lines, ""])


def _files(results: Path) -> dict[str, Path]:
    names = dict.fromkeys(name for table in TABLES for name in table.benches)
    found = {name: file_of(name, results) for name in names}
    return {name: path for name, path in found.items() if path is not None}


def _section(table: Table, outcomes: Mapping[str, Outcome]) -> Iterator[str]:
    yield f"## {table.title}"
    yield ""
    yield f"{LABEL.sub('', table.place)}. `colonnade bench paper {table.key}`. {table.differs}".rstrip()
    yield ""
    shown = [_shown(line, outcomes) for line in table.lines]
    private = table.protects == "columns" and any(one.epsilon is not None for one in shown)
    promised = " epsilon of a party, exact | by the paper's formula |" if private else ""
    yield f"| | paper | ours | spread |{promised} figure |"
    yield "| --- | ---: | ---: | ---: |" + (" ---: | ---: |" if private else "") + " --- |"
    yield from (_row(one, private) for one in shown)
    early = {name: ended_early(find(name), outcomes[name]) for name in table.benches if name in outcomes}
    for sentence in (*rankings(shown), *(f"`{name}`: {told}" for name, told in early.items() if told)):
        yield ""
        yield sentence
    for name in table.curves:
        if name in outcomes and outcomes[name].curves:
            yield ""
            yield from _curves(name, outcomes[name].curves)


def _shown(line: Line, outcomes: Mapping[str, Outcome]) -> Shown:
    outcome = outcomes.get(line.bench)
    results = {} if outcome is None else outcome.results
    spread = spread_key(line.key, results)
    stem, point, case = line.key.partition(".")
    budget = stem.partition("_eps")
    ending = f"{'_eps' if budget[1] else ''}{budget[2]}{point}{case}"
    return Shown(
        line,
        results.get(line.key),
        f"rounds{point}{case}" in results,
        _spread(results.get(f"seeds{ending}"), ONE_SEED if spread is None else results[spread]),
        results.get(f"epsilon_spent{ending}"),
        results.get(f"epsilon_rdp{ending}"),
    )


def _spread(seeds: float | None, deviation: float) -> float | str | None:
    if deviation != ONE_SEED:
        return deviation
    return "one seed" if seeds == 1 else None


def _row(one: Shown, private: bool) -> str:
    line = one.line
    ours = number(one.value) if one.value is not None else "not reached" if one.tried else _nothing(line.bench)
    cells = [line.what, _figure(line.paper), ours, _figure(one.spread, 2)]
    cells += [_figure(one.epsilon), _figure(one.formula)] if private else []
    return f"| {' | '.join(cells)} | `{line.key}` of `{line.bench}` |"


def _figure(value: float | str | None, digits: int = 4) -> str:
    return "" if value is None else value if isinstance(value, str) else number(value, digits)


def rankings(shown: Sequence[Shown]) -> Iterator[str]:
    """A sentence for every group in which a method stands above the paper's although the paper has it below.

    Bytes, and the spread between classes, are better the lower they are. Of methods that the paper does not have, only
    the controls are compared: parties that never upload, and uploads without a signal.
    """
    known = [one for one in shown if one.value is not None and one.line.group]
    for _, same in groupby(sorted(known, key=lambda one: one.line.group), key=lambda one: one.line.group):
        group = list(same)
        lower = -1.0 if group[0].line.key.startswith(LESS_IS_BETTER) else 1.0
        ours = {one.line.method: one for one in group if one.line.method in OURS}
        for mine in ours.values():
            above = [one for one in group if one.line.method not in OURS and _overtakes(one, mine, lower)]
            if above:
                yield f"**The paper's ranking does not come out.** {_told(mine, above)}"


def _told(mine: Shown, above: Sequence[Shown]) -> str:
    """Who stands where the paper has others: sentences about one of the paper's methods."""
    name, place = f"{NAMES[mine.line.method]} ({number(mine.value or 0.0)})", mine.line.what.rpartition(":")[0]
    named = [f"{NAMES[one.line.method]} ({number(one.value or 0.0)})" for one in above if one.line.paper is not None]
    controls = [f"{one.line.method} ({number(one.value or 0.0)})" for one in above if one.line.paper is None]
    sentences = []
    if named:
        verb, they = ("is", "it is") if len(named) == 1 else ("are", "they are")
        sentences.append(f"{' and '.join(named)} {verb} not behind {name}; in the paper {they}.")
    if controls:
        verb = "is" if len(controls) == 1 else "are"
        sentences.append(f"{' and '.join(controls)} {verb} not behind {name}: here uploading gains nothing.")
    return (f"{place}: " if place else "") + " ".join(sentences)


def _overtakes(one: Shown, mine: Shown, lower: float) -> bool:
    if one.value is None or mine.value is None or lower * one.value < lower * mine.value:
        return False
    theirs, paper = one.line.paper, mine.line.paper
    if theirs is None:  # a control, which shows what the paper's methods gain by their uploads
        return one.line.method in CONTROLS
    return isinstance(theirs, float) and isinstance(paper, float) and lower * theirs < lower * paper


def _curves(name: str, curves: Mapping[str, Curve]) -> Iterator[str]:
    """Validation accuracies at a few rounds that all curves of a file have, or come near to."""
    last = max(curve[-1][0] for curve in curves.values() if curve)
    marks = sorted({max(1, round(last * (n / POINTS) ** 2)) for n in range(1, POINTS + 1)})
    yield f"Validation accuracy of `{name}` after so many rounds:"
    yield ""
    yield "| |" + "".join(f" {mark} |" for mark in marks)
    yield "| --- |" + " ---: |" * len(marks)
    for key, curve in curves.items():
        cells = [_reached(curve, mark) for mark in marks]
        yield f"| {key} | " + " | ".join("" if cell is None else number(cell) for cell in cells) + " |"


def _reached(curve: Curve, mark: int) -> float | None:
    """The value of the last evaluation up to a round; None before the first one, and after the end of the run."""
    before = [value for rounds, value in curve if rounds <= mark]
    return before[-1] if before and mark <= curve[-1][0] else None


def _source(name: str, outcomes: Mapping[str, Outcome], files: Mapping[str, Path]) -> str:
    bench, outcome = find(name), outcomes.get(name)
    if outcome is None:
        return f"- [`{name}`](../benchmarks/{name}.toml): {_nothing(name)}."
    folder = files[name].parent.name
    told = "" if folder == RESULTS else " · not complete yet"
    return (
        f"- [`{name}`](../benchmarks/{name}.toml): `{command(name, bench, outcome)}` · {where(outcome.machine)} · "
        f"commit `{outcome.commit[:12]}` · [{name}.json](../benchmarks/{folder}/{name}.json){told}"
    )


def _nothing(name: str) -> str:
    """Why there is no figure."""
    return "data not at hand" if name.startswith(ELSEWHERE) else "not measured yet"
