"""Several runs side by side, as tables and in words; seeds of the same settings are one group."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace

from colonnade.report import decided, words
from colonnade.report.record import (
    MB,
    Group,
    Reached,
    Terms,
    data_names,
    metric_of,
    reach,
    simulated_ends,
    unknown_data,
)
from colonnade.report.tables import Table

Column = tuple[str, Sequence[str]]  # its heading, and a cell for each group


def comparison_table(groups: Sequence[Group], tests: Sequence[Column] = ()) -> Table:
    """One row per method (and settings), mean and standard deviation over seeds.

    `tests` are the columns about the test rows; none: the score that the runs are judged by.
    """
    several = any(len(group.records) > 1 for group in groups)
    seeds = ("seeds",) if several else ()
    costs = ("best round", "MB up / down", "seconds", "label exposure")
    measured = tuple(name for name, _ in tests) or (f"test {one_score(groups) or 'score'}",)
    columns = ("method", *seeds, *measured, _validation_column(groups), *costs)
    how = " (mean ± standard deviation over seeds)" if several else ""
    mixed = len({words.labels_noised(group.first) for group in groups}) > 1
    named = one_score(groups) is None
    cells = [[of[n] for _, of in tests] for n in range(len(groups))]
    rows = tuple(_compared(group, several, mixed, named, one) for group, one in zip(groups, cells, strict=True))
    return Table(f"Methods side by side{how}", columns, rows, frozenset({0, len(columns) - 1}))


def one_score(groups: Sequence[Group]) -> str | None:
    """What the test score of all groups is called; None where they have different ones, which cannot be compared."""
    names = {words.score_name(group.first) for group in groups}
    return names.pop() if len(names) == 1 else None


def costs_table(groups: Sequence[Group], terms: Terms) -> Table:
    """What a round and the whole training cost on the simulated lines, and what it took to reach the target."""
    if one_score(groups) is None:  # no number is a target for different scores
        terms = replace(terms, target=None)
    wanted = () if terms.target is None else tuple(f"{what} {_to(groups, terms)}" for what in ("rounds", "MB", "s"))
    columns = ("method", "MB up/round", "MB down/round", "simulated s/round", "simulated s", *wanted)
    rows = tuple(_costs(group, terms) for group in groups)
    return Table("Bytes and simulated time", columns, rows)


def _to(groups: Sequence[Group], terms: Terms) -> str:
    return f"to {terms.target:g}{' %' if words.is_share(groups[0].first) else ''}"


def _costs(group: Group, terms: Terms) -> tuple[str, ...]:
    done = [max(1, r["result"]["rounds"]) for r in group.records]
    up, down = (
        _mean([r["traffic"][way] / MB / n for r, n in zip(group.records, done, strict=True)], "{:,.4f}")
        for way in ("up", "down")
    )
    seconds = simulated_seconds(group, terms)
    each = _mean([s / n for s, n in zip(seconds, done, strict=True)], "{:,.3f}")
    return (group.label, up, down, each, _with_deviation(seconds, "{:,.1f}"), *_target_cells(group, terms))


def simulated_seconds(group: Group, terms: Terms) -> list[float]:
    """The simulated length of each run's training."""
    ends = [(r, simulated_ends(r, terms.clock)) for r in group.records]
    return [found[min(r["result"]["rounds"], len(found) - 1)] if found else 0.0 for r, found in ends]


def reached(group: Group, terms: Terms) -> list[Reached]:
    """What it took to reach the target, for the seeds that did; nothing where noisy labels judged."""
    if terms.target is None or words.labels_noised(group.first):
        return []
    score = terms.target / 100 if words.is_share(group.first) else terms.target
    found = (reach(record, score, terms.clock) for record in group.records)
    return [one for one in found if one is not None]


def _target_cells(group: Group, terms: Terms) -> tuple[str, ...]:
    if terms.target is None:
        return ()
    found, runs = reached(group, terms), len(group.records)
    if not found:
        return ("-", "-", "-") if words.labels_noised(group.first) else ("never",) * 3
    if len(found) < runs:
        return (f"{len(found)} of {runs} seeds",) * 3
    kinds = (([float(one.rounds) for one in found], "{:,.0f}"), ([one.megabytes for one in found], "{:,.2f}"))
    return (*(_with_deviation(*kind) for kind in kinds), _with_deviation([one.simulated for one in found], "{:,.1f}"))


def _with_deviation(values: Sequence[float], form: str) -> str:
    mean, deviation = spread(values)
    text = "-" if mean is None else form.format(mean)
    return text if deviation is None else f"{text} ± {form.format(deviation)}"


def _validation_column(groups: Sequence[Group]) -> str:
    """One heading for all; where only some have protected labels, their cells are marked."""
    names = sorted({words.validation_name(group.first) for group in groups})
    return names[0] if len(names) == 1 else f"validation {one_score(groups) or 'score'}"


def _compared(group: Group, several: bool, mixed: bool, named: bool, tests: Sequence[str]) -> tuple[str, ...]:
    results = [r["result"] for r in group.records]
    traffic = [r["traffic"] for r in group.records]
    up, down = (_mean([t[way] / MB for t in traffic], "{:,.2f}") for way in ("up", "down"))
    name = f"{words.score_name(group.first)} " if named else ""
    marked = " (noisy labels)" if mixed and words.labels_noised(group.first) else ""
    best, rounds = (_mean([r[key] for r in results], "{:.0f}") for key in ("best_round", "rounds"))
    doubt = " (diverged)" if any(r["diverged"] for r in results) else ""
    doubt += " (not clearly better than guessing)" if any(map(words.no_better, group.records)) else ""
    missed = next(filter(None, map(decided.never_predicted, group.records)), None)
    doubt += f' (never predicts "{missed[0]}")' if missed else ""
    return (
        group.label + doubt,
        *((_seeds(group),) if several else ()),
        *(tests or (name + _score(group, [r["test_score"] for r in results]),)),
        name + _score(group, [r["validation_score"] for r in results]) + marked,
        f"{best} of {rounds}",
        f"{up} / {down}",
        _mean([r["seconds"] for r in results], "{:,.1f}"),
        words.exposure_short(group.first),
    )


def _seeds(group: Group) -> str:
    """How many seeds; the same seed again is no further one."""
    seeds, runs = len({r["training"]["seed"] for r in group.records}), len(group.records)
    return str(seeds) if seeds == runs else f"{seeds} ({runs} runs)"


def spread(values: Sequence[float | None]) -> tuple[float | None, float | None]:
    """Mean and sample standard deviation; None where one run has no value, or there is only one."""
    known = [v for v in values if v is not None and math.isfinite(v)]
    if not known or len(known) < len(values):
        return None, None
    return statistics.fmean(known), statistics.stdev(known) if len(known) > 1 else None


def _score(group: Group, values: Sequence[float | None]) -> str:
    mean, deviation = spread(values)
    text = words.score(group.first, mean)
    if deviation is None:
        return text
    return f"{text.removesuffix(' %')} ± {words.score(group.first, deviation)}"


def _mean(values: Sequence[float | None], form: str) -> str:
    mean, _ = spread(values)
    return "-" if mean is None else form.format(mean)


def in_words(groups: Sequence[Group]) -> list[str]:
    """A comparison in sentences: what was trained, what did best, what moved least, and how far to trust it."""
    runs = sum(len(group.records) for group in groups)
    methods = words.count(len({group.first["method"]["name"] for group in groups}), "method")
    told = [f"{methods} on {on_data(groups)}, {words.count(runs, 'run')}."]
    told += [
        *best_in_words(groups),
        *words.baselines([r for group in groups for r in group.records]),
        *_cheapest(groups),
    ]
    return told + _doubts(groups)


def on_data(groups: Sequence[Group]) -> str:
    """What was trained on, each of the data by a name of its own."""
    return words.listing(sorted(set(data_names([group.first for group in groups]))))


def _doubts(groups: Sequence[Group]) -> list[str]:
    """Why some of these runs should not be compared, if so."""
    told = []
    if len(set(data_names([group.first for group in groups]))) > 1:
        told.append("These runs are of different data: their scores do not rank the methods.")
    unsure = [group.label for group in groups if unknown_data(group.records)]
    if unsure and sum(len(group.records) for group in groups) > 1:
        told.append(
            f"{words.listing(unsure)}: recorded before runs kept a fingerprint of their data; that they saw the same "
            "data is concluded from names, columns, rows and task."
        )
    return told


def best_in_words(groups: Sequence[Group]) -> list[str]:
    """Which did best, and whether the seeds tell it from the others; nothing where they cannot be compared."""
    if one_score(groups) is None or len(set(data_names([group.first for group in groups]))) > 1:
        return []
    found = {group.label: spread([r["result"]["test_score"] for r in group.records]) for group in groups}
    known = {label: (mean, deviation) for label, (mean, deviation) in found.items() if mean is not None}
    if len(known) < 2:
        return []
    first = groups[0].first
    sign = metric_of(first).sign()
    order = sorted(known, key=lambda label: -sign * known[label][0])
    top, last = known[order[0]][0], known[order[-1]][0]
    best = [label for label in order if known[label][0] == top]
    name, least = words.score_name(first), words.score(first, last)
    if top == last:
        return [f"All have the same test {name}, {least}."]
    told = f"Best test {name}: {words.listing(best)} with {words.score(first, top)}; worst: {order[-1]} with {least}."
    return [told, *_chance({label: known[label] for label in order}, len(best))]


def _chance(ranked: Mapping[str, tuple[float, float | None]], best: int) -> list[str]:
    """Whether the lead of the first may be chance, by means and deviations over seeds in their order."""
    if all(deviation is None for _, deviation in ranked.values()):
        return ["One seed each: small differences may be chance."]
    top, first = next(iter(ranked.values()))
    near = [
        label
        for label, (mean, deviation) in list(ranked.items())[best:]
        if abs(top - mean) <= max(first or 0.0, deviation or 0.0)
    ]
    if not near:
        return []
    return [f"The lead over {words.listing(near)} is within a standard deviation over the seeds: it may be chance."]


def _cheapest(groups: Sequence[Group]) -> list[str]:
    """Of the federations among them: a reference in one place moves nothing between organisations."""
    moved = {
        group.label: sum(r["traffic"]["up"] + r["traffic"]["down"] for r in group.records) / len(group.records)
        for group in groups
        if not words.pools(group.first)
    }
    if len(moved) < 2:
        return []
    least, most = min(moved, key=lambda label: moved[label]), max(moved, key=lambda label: moved[label])
    return [
        f"Least training traffic: {least} with {words.size(moved[least])}; most: {most} with {words.size(moved[most])}."
    ]
