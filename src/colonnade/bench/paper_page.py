"""docs/paper.md: every table and figure of the paper beside ours, written from the result files."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

from colonnade.bench.catalogue import find
from colonnade.bench.ended import ended_early
from colonnade.bench.outcome import Curve, Outcome, read
from colonnade.bench.page import ONE_SEED, RESULTS, command, file_of, number, spread_key, where
from colonnade.bench.paper_tables import NAMES, NOT_MEASURED, SETS, TABLES, Line, Table

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
    lines = [HEAD, "", *_overview(outcomes)]
    for table in TABLES:
        lines += ["", *_section(table, outcomes, files)]
    lines += ["", "## Not measurements", "", *(f"- {LABEL.sub('', place)}: {words}." for place, words in NOT_MEASURED)]
    return "\n".join([*lines, ""])


def _files(results: Path) -> dict[str, Path]:
    names = dict.fromkeys(name for table in TABLES for name in table.benches)
    found = {name: file_of(name, results) for name in names}
    return {name: path for name, path in found.items() if path is not None}


def _overview(outcomes: Mapping[str, Outcome]) -> Iterator[str]:
    """How much of every table there is, by data set."""
    yield "| | " + " | ".join(SETS.values()) + " |"
    yield "| --- |" + " --- |" * len(SETS)
    for table in TABLES:
        cells = [_state([line for line in table.lines if line.bench.startswith(prefix)], outcomes) for prefix in SETS]
        anchor = re.sub(r"[^\w\- ]", "", table.title.lower()).replace(" ", "-")
        yield f"| [{table.title}](#{anchor}) | {' | '.join(cells)} |"


def _state(lines: Sequence[Line], outcomes: Mapping[str, Outcome]) -> str:
    if not lines:
        return ""
    shown = [_shown(line, outcomes) for line in lines]
    there = sum(one.value is not None or one.tried for one in shown)
    if there == 0:
        return _nothing(lines[0].bench)
    return "measured" if there == len(lines) else f"{there} of {len(lines)} figures"


def _section(table: Table, outcomes: Mapping[str, Outcome], files: Mapping[str, Path]) -> Iterator[str]:
    yield f"## {table.title}"
    yield ""
    yield f"{LABEL.sub('', table.place)}. `colonnade bench paper {table.key}`. {table.differs}".rstrip()
    for name in table.benches:
        yield ""
        lines = [line for line in table.lines if line.bench == name]
        if name in outcomes:
            yield from _measured(table, lines, name, outcomes, files)
        else:
            yield _lacking(lines, name)


def _measured(
    table: Table, lines: Sequence[Line], name: str, outcomes: Mapping[str, Outcome], files: Mapping[str, Path]
) -> Iterator[str]:
    """The figures of one benchmark, and what is to be said of them."""
    yield _source(name, outcomes[name], files[name])
    shown = [_shown(line, outcomes) for line in lines]
    if shown:
        yield ""
        yield from _figures(shown, table.protects == "columns")
    for sentence in (*rankings(shown), *_early(name, lines, outcomes[name])):
        yield ""
        yield sentence
    if name in table.curves and outcomes[name].curves:
        yield ""
        yield from _curves(outcomes[name].curves)


def _early(name: str, lines: Sequence[Line], outcome: Outcome) -> Iterator[str]:
    """Which of the trainings behind these lines ended early."""
    cases = {line.key.partition(".")[2] for line in lines}
    results = {key: value for key, value in outcome.results.items() if key.partition(".")[2] in cases}
    if told := ended_early(find(name), replace(outcome, results=results)):
        yield told


def _lacking(lines: Sequence[Line], name: str) -> str:
    """A benchmark without a result: why, and what the paper has."""
    figures = [f"{_of(line)} {_figure(line.paper)}" for line in lines if line.paper is not None]
    paper = f" The paper has: {', '.join(figures)}." if figures else ""
    return f"**{_set_of(name)}**, [`{name}`](../benchmarks/{name}.toml): {_nothing(name)}.{paper}"


def _figures(shown: Sequence[Shown], private: bool) -> Iterator[str]:
    """A row for each figure; columns that would be empty are left out."""
    known = [one for one in shown if one.epsilon is not None]
    # Of the few methods that bring noise of their own the row says it.
    columns = private and 2 * len(known) >= sum(one.value is not None for one in shown)
    heads: dict[str, Callable[[Shown], str]] = {}
    if any(one.line.paper is not None for one in shown):
        heads["paper"] = lambda one: _figure(one.line.paper)
    heads["ours"] = _ours
    if any(one.spread is not None for one in shown):
        heads["spread"] = lambda one: _figure(one.spread, 2)
    if columns:
        heads["epsilon of a party, exact"] = lambda one: _figure(one.epsilon)
        heads["by the paper's formula"] = lambda one: _figure(one.formula)
    yield f"| | {' | '.join(heads)} | figure |"
    yield "| --- |" + " ---: |" * len(heads) + " --- |"
    for one in shown:
        alone = private and not columns and one.epsilon is not None
        told = f" (epsilon of a party {_figure(one.epsilon)}, exact)" if alone else ""
        cells = " | ".join(make(one) for make in heads.values())
        yield f"| {_of(one.line)}{told} | {cells} | `{one.line.key}` |"


def _ours(one: Shown) -> str:
    return number(one.value) if one.value is not None else "not reached" if one.tried else _nothing(one.line.bench)


def _set_of(name: str) -> str:
    """The data set of a benchmark."""
    return next(title for prefix, title in SETS.items() if name.startswith(prefix))


def _of(line: Line) -> str:
    """What a figure is of, where the data set is said already."""
    name = _set_of(line.bench)
    return line.what.replace(f", {name}: ", ": ").replace(f"{name}: ", "").replace(f"{name}, ", "")


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


def _curves(curves: Mapping[str, Curve]) -> Iterator[str]:
    """Validation accuracies at a few rounds that all curves of a file have, or come near to."""
    last = max(curve[-1][0] for curve in curves.values() if curve)
    marks = sorted({max(1, round(last * (n / POINTS) ** 2)) for n in range(1, POINTS + 1)})
    yield "Validation accuracy after so many rounds:"
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


def _source(name: str, outcome: Outcome, path: Path) -> str:
    """Where figures come from."""
    folder = path.parent.name
    told = "" if folder == RESULTS else " · not complete yet"
    return (
        f"**{_set_of(name)}**, [`{name}`](../benchmarks/{name}.toml): `{command(name, find(name), outcome)}` · "
        f"{where(outcome.machine)} · commit `{outcome.commit[:12]}` · "
        f"[{name}.json](../benchmarks/{folder}/{name}.json){told}"
    )


def _nothing(name: str) -> str:
    """Why there is no figure."""
    return "data not at hand" if name.startswith(ELSEWHERE) else "not measured yet"
