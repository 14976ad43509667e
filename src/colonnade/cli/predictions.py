"""Predictions as a table: CSV to a file or to stdout, or JSON."""

from __future__ import annotations

import csv
import io
import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from colonnade.cli.screen import Screen
from colonnade.errors import RunError

if TYPE_CHECKING:
    from colonnade.explain.contributions import Contributions
    from colonnade.model import Model
    from colonnade.predict import Prediction

Table = tuple[list[str], list[list[Any]]]


@dataclass(frozen=True)
class Answer:
    """What is told of each row, and where to."""

    proba: bool = False
    threshold: float | None = None  # None: that of the model
    output: Path | None = None  # None: stdout

    def check(self, model: Model) -> None:
        """Refuse what the task does not have, before anything leaves a party."""
        import torch

        nothing = torch.zeros(0, model.task.outputs)
        model.answers(nothing, self.threshold)
        if self.proba:
            model.task.probabilities(nothing)


def table_of(model: Model, names: Sequence[str], found: Prediction, answer: Answer) -> Table:
    """The header and the rows of the CSV file; classes by name where they have one, points where they are a score.

    Where somebody was left out of some row, a column `without` says who.
    """
    from colonnade.methods.base import GivesPoints

    answers = model.answers(found.logits, answer.threshold, found.complete)
    told = model.task.decide(answers.decided)
    values = told.reshape(len(names), -1).tolist()
    header = ["row", *(["prediction"] if told.ndim == 1 else [f"prediction_{k}" for k in range(told.shape[1])])]
    lines = [[name, *row] for name, row in zip(names, values, strict=True)]
    if answer.proba:
        header += [f"proba_{name}" for name in model.classes]
        shares = model.task.probabilities(answers.calibrated.double()).tolist()
        lines = [[*line, *(float(f"{p:.6g}") for p in row)] for line, row in zip(lines, shares, strict=True)]
    if isinstance(model.method, GivesPoints):
        header = [*header, "points"]
        points = model.method.points(found.logits).tolist()
        lines = [[*line, score] for line, score in zip(lines, points, strict=True)]
    if found.left_out:
        header = [*header, "without"]
        lines = [[*line, " ".join(without)] for line, without in zip(lines, found.without, strict=True)]
    return header, lines


def with_terms(table: Table, terms: Contributions) -> Table:
    """The same with what each party adds to the score: columns base, from_PARTY, with several outputs each by name."""
    import torch

    header, lines = table
    several = len(terms.outputs) > 1
    added = [
        f"{name}_{output}" if several else name
        for output in terms.outputs
        for name in ("base", *(f"from_{party}" for party in terms.names))
    ]
    base = terms.base.expand(len(lines), 1, -1)
    values = torch.cat([base, terms.values], dim=1).transpose(1, 2).flatten(1).tolist()  # (B, K (M + 1))
    far = float(terms.base.abs().max() / terms.values.abs().max().clamp(min=1e-300))
    of_base = 6 + max(0, math.ceil(math.log10(max(far, 1))))  # so that sums are right, however far it is from 0
    digits = [of_base, *(6 for _ in terms.names)] * len(terms.outputs)
    return [*header, *added], [
        [*line, *(float(f"{x:.{n}g}") for x, n in zip(row, digits, strict=True))]
        for line, row in zip(lines, values, strict=True)
    ]


def csv_text(header: Sequence[str], lines: Iterable[Sequence[Any]]) -> str:
    """A table as the text of a CSV file."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(lines)
    return out.getvalue()


def write_text(path: Path, text: str) -> None:
    """Beside, then renamed: a reader sees the old file or the new one."""
    beside = path.with_name(path.name + ".part")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise RunError(f"the results cannot be written to {path}: {error}; choose another --output") from None


def show(
    screen: Screen,
    run: Path,
    output: Path | None,
    table: Table,
    score: tuple[str, float] | None,
    left_out: Sequence[str] = (),
) -> None:
    """Write the table to its file or to stdout, and say in a line what it is."""
    header, lines = table
    if output is not None:
        write_text(output, csv_text(header, lines))
    name, value = score or (None, None)
    told = {"run": str(run), "rows": len(lines), "score": value, "score_name": name}
    told |= {"left_out": list(left_out)} if left_out else {}
    if screen.as_json:
        where = (
            {"output": str(output)} if output else {"predictions": [dict(zip(header, x, strict=True)) for x in lines]}
        )
        screen.emit({**told, **where})
        return
    if output is None:
        sys.stdout.write(csv_text(header, lines))
    known = "" if score is None else f", {name} {value:.4f} against the known labels"
    without = ""
    if left_out:
        fewer = sum(bool(line[header.index("without")]) for line in lines)
        which = f"{fewer:,} of them " if fewer < len(lines) else ""
        without = f"; {which}WITHOUT the part of {', '.join(left_out)}, see the column without"
    screen.aside(f"{len(lines):,} rows{known}" + (f", written to {output}" if output else "") + without)
