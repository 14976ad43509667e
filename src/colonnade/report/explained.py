"""What `colonnade explain` found out about the parties, for a report: from the explain.json beside a run.

The file is read as plain values (docs/explain.md), so that a report needs neither the data nor the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from colonnade.evaluate.metrics import find_title
from colonnade.numerals import fixed, short
from colonnade.report import words
from colonnade.report.curves import Picture
from colonnade.report.explain_figures import scatter
from colonnade.report.figures import bars, views
from colonnade.report.record import Group, Record
from colonnade.report.tables import Table
from colonnade.tasks import task_about

MEASURES = {  # key -> heading of a column, caption of its bars, key of the whiskers
    "norm": ("size of its weights", "Size of each party's weights in the model, which is no contribution", None),
    "noise": ("lost to noise on its columns", "Score lost when noise is put on one party's columns", "noise_spread"),
    "mask": ("lost without it", "Score lost when one party is silent", None),
    "shapley": ("Shapley value", "Shapley value: a party's fair share of the score", "shapley_error"),
}
CONTRIBUTION = ("shapley", "mask", "noise")  # the first of these that is there ranks; norms only if they were asked for
SHORT = {"norm": "sizes of weights", "noise": "noisy columns", "mask": "silence", "shapley": "Shapley values"}
MOST_CLASSES = 20


@dataclass(frozen=True)
class Explained:
    """Sentences, tables and pictures about which party contributed what."""

    sentences: tuple[str, ...]
    tables: tuple[Table, ...]
    pictures: tuple[Picture, ...]


def explained(record: Record, prefix: str = "") -> Explained | None:
    """What the record says about its parties, or why that cannot be read; None if nobody explained the run.

    With a prefix for the names of the pictures, which then stand among those of other runs, only bars are drawn.
    """
    if record.get("unexplained"):
        return Explained((f"Not shown: {record['unexplained']}.",), (), ())
    found = record.get("explanation")
    if not found:
        return None
    record = _judged(record)
    tables = (
        _measures_table(found, record),
        _agreement_table(found),
        _summary_table(found, record),
        _denoise_table(found, record),
        _classes_table(found, record),
    )
    drawn = [*(_bars(key, found, record) for key in MEASURES), _denoised(found)]
    drawn += [] if prefix else [_columns(found), *_scattered(found)]
    pictures = [picture for picture in drawn if picture is not None]
    return Explained(
        tuple(_sentences(found, record)),
        tuple(table for table in tables if table is not None),
        tuple(replace(p, drawing=replace(p.drawing, name=prefix + p.drawing.name)) for p in pictures),
    )


def side_by_side(groups: Sequence[Group]) -> Table | None:
    """What each party adds to the score, by method; None if fewer than two runs of the same parties say so."""
    groups = [replace(group, records=tuple(map(_judged, group.records))) for group in groups]
    shown = [(group, found) for group in groups if (found := group.first.get("explanation")) and found.get("shapley")]
    shown = [(g, found) for g, found in shown if _comparable(g.first) == _comparable(shown[0][0].first)]
    if len(shown) < 2:
        return None
    order = [[sorted(found["shapley"], reverse=True).index(v) + 1 for v in found["shapley"]] for _, found in shown]
    rows = tuple(
        (party, *(f"{_points(found['shapley'][k], g.first)} ({order[n][k]})" for n, (g, found) in enumerate(shown)))
        for k, party in enumerate(shown[0][1]["parties"])
    )
    unit = "percentage points" if words.is_share(shown[0][0].first) else words.score_name(shown[0][0].first)
    rest = ", first seed" if any(len(group.records) > 1 for group, _ in shown) else ""
    caption = f"Shapley values: what each party adds to the score, in {unit} (in brackets: its place){rest}"
    return Table(caption, ("party", *(group.label for group, _ in shown)), rows)


def _judged(record: Record) -> Record:
    """The record, its score being the one that the explanation is about, which may be another metric than the run's."""
    metric = find_title((record.get("explanation") or {}).get("score_name", ""))
    return record if metric is None else {**record, "result": {**record["result"], "metric": metric.name}}


def _comparable(record: Record) -> tuple[Any, ...]:
    """What runs have in common whose parties can stand in one table."""
    return (record["explanation"]["parties"], words.score_name(record), record["about"].get("data"))


def _ranking(found: Mapping[str, Any]) -> tuple[str | None, list[str]]:
    """The measure that ranks, and the parties by it, the highest first; files of earlier versions rank by norms."""
    asked = found.get("rank_by", "auto")
    by = next((key for key in CONTRIBUTION if found.get(key)), None) if asked == "auto" else asked
    if by is None:
        return None, []
    order = sorted(range(len(found["parties"])), key=lambda k: -found[by][k])
    return by, [found["parties"][k] for k in order]


def _headline(found: Mapping[str, Any]) -> str:
    """Who contributes most; sizes of weights are called what they are."""
    by, ranked = _ranking(found)
    if by is None:
        return "Nothing measured here says what each party contributes; the sizes of its weights do not."
    some = min(3, max(1, len(ranked) // 3))
    most, least = words.listing(ranked[:some]), words.listing(ranked[-some:])
    if by == "norm":
        return f"Largest weights: {most}; smallest: {least}. This does not say who contributes."
    all_of = words.count(len(ranked), "party", "parties")
    return f"By {SHORT[by]}, of {all_of} the highest contribution: {most}; the lowest: {least}."


def _sentences(found: Mapping[str, Any], record: Record) -> list[str]:
    on = "on " + words.count(found["count"], f"{found['rows']} row")
    told = [
        _headline(found),
        f"Measured {on}; the whole model has {_article(record)} of {words.score(record, found.get('score'))} there.",
    ]
    told += [f"{SHORT.get(key, key).capitalize()}: not available, {why}." for key, why in _pairs(found, "unavailable")]
    told += [*_advice(found), *(f"{note[:1].upper()}{note[1:].rstrip('.')}." for note in found.get("notes", ()))]
    released = found.get("releases", 0)
    return [*told, f"{words.count(released, 'message')} left the parties for this; the ledger lists them (EXPLAIN)."]


def _article(record: Record) -> str:
    name = words.score_name(record)
    return f"{'an' if name[0] in 'aAFRM' else 'a'} {name}"  # an F1, an R2, a log loss


def _pairs(found: Mapping[str, Any], key: str) -> list[tuple[str, str]]:
    return [(name, str(why).rstrip(".")) for name, why in (found.get(key) or {}).items()]


def _advice(found: Mapping[str, Any]) -> list[str]:
    """What retraining with some of the parties has shown, and which party lost weight."""
    told = [_sentence(found["summary"]["advice"])] if found.get("summary") else []
    if found.get("fallen") is not None:
        told.append(f"Lost weight since the earlier run: {_fallen(found['fallen'])}.")
    noisy = found.get("denoise")
    if noisy and noisy.get("norm_after"):
        told.append(f"Trained with noise on {noisy['party']}, these lost weight: {_fallen(noisy['fallen'])}.")
    return told


def _sentence(text: str) -> str:
    return f"Advice: {text.rstrip('.')}."


def _fallen(falls: Sequence[Mapping[str, Any]]) -> str:
    told = [f"{fall['party']} (place {fall['place_before']}, now {fall['place_after']})" for fall in falls]
    return words.listing(told) if told else "nobody"


def _summary_table(found: Mapping[str, Any], record: Record) -> Table | None:
    summary = found.get("summary")
    if not summary:
        return None
    total = len(summary["ranked"])
    rows = [(f"all {total}", words.score(record, summary["all"]), "")]
    for one in summary["sets"]:
        name = f"{one['which']} important {100 * one['share']:g} % ({len(one['parties'])})"
        rows.append((name, words.score(record, one["score"]), ", ".join(one["parties"])))
    name = f"{words.score_name(record)}, {summary['rows']} rows"
    return Table("Trained again with some of the parties", ("parties", name, "which"), tuple(rows), frozenset({0, 2}))


def _denoise_table(found: Mapping[str, Any], record: Record) -> Table | None:
    noisy = found.get("denoise")
    if not noisy:
        return None
    rows = tuple((name, *(words.score(record, value) for value in scores)) for name, scores in noisy["scores"].items())
    columns = ("method", *(f"after {words.count(length, 'round')}" for length in noisy["lengths"]))
    what = f"{words.score_name(record)} on {noisy['rows']} rows"
    return Table(f"Trained with noise (std {noisy['std']:g}) on the columns of {noisy['party']}: {what}", columns, rows)


def _measures_table(found: Mapping[str, Any], record: Record) -> Table | None:
    there = [key for key in MEASURES if found.get(key)]
    if not there:
        return None
    rows, (_, ranked) = [], _ranking(found)
    for place, party in enumerate(found["parties"]):
        cells = (_cell(key, found, place, record) for key in there)
        rows.append((party, str(ranked.index(party) + 1) if ranked else "-", *cells))
    columns = ("party", "rank", *(MEASURES[key][0] for key in there))
    return Table("What each party contributed", columns, tuple(rows))


def _cell(key: str, found: Mapping[str, Any], place: int, record: Record) -> str:
    value = found[key][place]
    if key == "norm":
        return f"{value:.3f}"
    around = found.get(MEASURES[key][2] or "")
    return _points(value, record) + (f" ± {_points(around[place], record)}" if around else "")


def _points(value: float, record: Record) -> str:
    """A difference of scores: percentage points for accuracy."""
    return f"{100 * value:.2f}" if words.is_share(record) else fixed(value, 4)


def _agreement_table(found: Mapping[str, Any]) -> Table | None:
    rows = tuple(
        (f"{SHORT[one['one']]} and {SHORT[one['other']]}", _number(one["spearman"]), _number(one["kendall"]))
        for one in found.get("agreement", ())
    )
    caption = "Do the measures put the parties in the same order? (1: the same, 0: unrelated, -1: reversed)"
    return Table(caption, ("measures", "Spearman", "Kendall tau-b"), rows) if rows else None


def _number(value: float | None) -> str:
    return "constant" if value is None else f"{value:.2f}"


def _classes_table(found: Mapping[str, Any], record: Record) -> Table | None:
    drops: Sequence[Sequence[float]] | None = found.get("class_drop")
    if not drops or len(drops[0]) > MOST_CLASSES:
        return None
    names = found.get("class_names") or [str(place) for place in range(len(drops[0]))]
    share = bool(task_about(record["about"]).classes)  # of a class's rows decided right, also where AUC is the score
    rows = tuple(
        (party, *(f"{100 * value:.2f}" if share else fixed(value, 4) for value in row))
        for party, row in zip(found["parties"], drops, strict=True)
    )
    unit = "percentage points of the class's rows" if share else "score of the output"
    return Table(f"What is lost of each class without a party ({unit})", ("party", *map(str, names)), rows)


def _bars(key: str, found: Mapping[str, Any], record: Record) -> Picture | None:
    values: Sequence[float] | None = found.get(key)
    if not values:
        return None
    _, caption, whiskers = MEASURES[key]
    share = words.is_share(record) and key != "norm"
    scale = 100.0 if share else 1.0
    around = [scale * value for value in found.get(whiskers or "") or ()]
    unit = "norm of its weights" if key == "norm" else "percentage points" if share else words.score_name(record)
    parties = found["parties"]
    drawing = bars(f"explain-{key}", parties, [scale * v for v in values], unit, around)
    told = "; ".join(f"{party} {short(scale * v, 3)}" for party, v in zip(parties, values, strict=True))
    return Picture(drawing, f"{caption}.", f"{caption}, in {unit}: {told}.")


def _denoised(found: Mapping[str, Any]) -> Picture | None:
    noisy = found.get("denoise")
    if not noisy or not noisy.get("norm_after"):
        return None
    parties, values = found["parties"], noisy["norm_after"]
    caption = f"Weights when the model is trained with noise on the columns of {noisy['party']}"
    told = "; ".join(f"{party} {short(v, 3)}" for party, v in zip(parties, values, strict=True))
    marked = parties.index(noisy["party"])
    drawing = bars("explain-denoise", parties, values, "norm of its weights", marked=marked)
    return Picture(drawing, f"{caption}.", f"{caption}: {told}.")


def _scattered(found: Mapping[str, Any]) -> list[Picture]:
    """One picture for each party, so that on a phone they stand below each other."""
    pictures = []
    for number, one in enumerate(found.get("tsne") or (), start=1):
        whose = f"{one['party']}, the {one['which']} party"
        caption = f"t-SNE of the uploads of {whose}: a point is a row, shape and colour are its class."
        drawing = scatter(f"explain-tsne-{number}", [("", one["points"], one["labels"])], one["names"])
        told = f"{words.count(len(one['points']), 'row')}; classes: {words.listing(one['names'])}."
        pictures.append(Picture(drawing, caption, f"{caption} {told}"))
    return pictures


def _columns(found: Mapping[str, Any]) -> Picture | None:
    pictures = found.get("pictures")
    if not pictures:
        return None
    caption = "What each party sees of one row"
    images = {party: image for party, rows in pictures.items() if (image := _pixels(rows)) is not None}
    if not images:
        return None
    told = f"One picture for each of {words.listing(list(images))}."
    drawing = views("explain-columns", list(images), list(images.values()))
    return Picture(drawing, f"{caption}.", f"{caption}. {told}")


def _pixels(rows: Any) -> Any:
    """The first row as an image, colours last, from 0 to 1; None for a party without images."""
    image = np.asarray(rows[0], dtype=float)
    if image.ndim != 3:
        return image if image.ndim == 2 else None
    image = image.transpose(1, 2, 0)
    image = (image - image.min()) / max(float(np.ptp(image)), 1e-12)
    return image if image.shape[2] in (3, 4) else image[:, :, 0]
