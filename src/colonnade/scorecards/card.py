"""A scorecard: for each party a table of columns, bins and points; the points of a row are added up by hand.

    score = base points + the points of the bins that a row is in

What points mean is in `models/points.py`. A party's card follows from its own part of a trained model (`PartyCard.of`).
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from colonnade.config import build
from colonnade.data.bins import Bins
from colonnade.data.column_settings import OneColumn
from colonnade.data.frames import Key, as_frame, by_party, check_no_path, listed, names_of
from colonnade.data.ids import Ids, id_columns_of_new
from colonnade.data.kinds import BOOLEAN
from colonnade.data.new_rows import check_parties, keys_of_training, match_rows
from colonnade.data.said import as_said
from colonnade.errors import ConfigError, DataError, RunError, Unwritable
from colonnade.extras import need
from colonnade.methods.scorecard import ScorecardADMM
from colonnade.models.evidence import COUNTS, Evidence
from colonnade.models.points import Scale
from colonnade.part import Part
from colonnade.privacy.ledger import Ledger
from colonnade.rows import check_order
from colonnade.saved import read_json, read_ledger, write_ledger
from colonnade.written import replace_file

FILE, FORMAT = "scorecard.json", 1
HEADINGS = ("column", "bin", "rows", "events", "noise", "woe", "iv", "points")  # noise: the deviation of events
Values = np.ndarray[Any, Any]


@dataclass(frozen=True)
class ColumnCard:
    """One column: its bins, what labels say of them, the weight of its evidence in the log odds, and points."""

    bins: Bins
    evidence: Evidence = field(repr=False)
    weight: float  # of the woe in the log odds of the event: about -1 where columns say different things
    points: tuple[int, ...] = field(repr=False)

    def merged(self) -> ColumnCard:
        """With one bin for neighbours of one weight of evidence, where bins have an order."""
        e, cuts = self.evidence, np.array(self.bins.cuts)
        if not len(cuts):
            return self
        # Whether a bin differs from the next; the last of the ordered and the empty one always do.
        apart = np.append(e.woe[: len(cuts)] != e.woe[1 : len(cuts) + 1], [True, True])
        first = np.flatnonzero(np.append(True, apart[:-1]))
        rows, events, spread = (np.add.reduceat(values, first) for values in (e.rows, e.events, e.noise**2))
        bins = replace(self.bins, cuts=tuple(cuts[apart[: len(cuts)]].tolist()))
        points = tuple(self.points[at] for at in first)
        return replace(self, bins=bins, evidence=Evidence(rows, events, np.sqrt(spread), e.woe[first]), points=points)

    def lines(self) -> Iterator[tuple[str, str, int, float, float, float, float, int]]:
        """One line per bin that has training rows, in the order of `HEADINGS`."""
        e = self.evidence
        for at, name in enumerate(self.bins.names):
            if e.rows[at]:
                told = (float(values[at]) for values in (e.events, e.noise, e.woe))
                yield self.bins.column, name, int(e.rows[at]), *told, e.iv, self.points[at]  # type: ignore[misc]

    def to_json(self) -> dict[str, object]:
        """Plain values."""
        e = self.evidence
        told = {"rows": e.rows.tolist(), "events": e.events.tolist(), "noise": e.noise.tolist(), "woe": e.woe.tolist()}
        return {**self.bins.to_json(), "names": list(self.bins.names), **told, "iv": e.iv, "weight": self.weight,
                "points": list(self.points)}  # fmt: skip

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> ColumnCard:
        """The inverse of `to_json`."""
        rows, events, noise, woe = (np.array(facts[name]) for name in ("rows", "events", "noise", "woe"))
        evidence = Evidence(rows, events, noise, woe)
        return cls(Bins.from_json(facts), evidence, float(facts["weight"]), tuple(map(int, facts["points"])))


@dataclass(frozen=True)
class PartyCard:
    """What one party holds of a scorecard: its own columns."""

    party: str
    columns: tuple[ColumnCard, ...]
    said: Mapping[str, OneColumn] = field(default_factory=dict, repr=False)  # what their owner said some columns hold
    id: Key | None = None  # what its table was joined on; None: nothing, or nobody kept it

    @classmethod
    def of(cls, part: Part) -> PartyCard:
        """The card of a party, from its part of a model; columns whose training rows are all in one bin are left out.

        Raises:
            RunError: the model is no scorecard.
        """
        method, plan = part.design.method, part.plans.get(part.party)
        if not isinstance(method, ScorecardADMM) or plan is None:
            raise RunError(f"the part of {part.party!r} is of a {method.name} model, and no scorecard")
        part.check()
        tables = {name: part.tensors[f"head.{name}"].double() for name in (*COUNTS, "weight.0")}
        points = method.scale.bin_points(tables["weight.0"], tables["woe"])  # (C, MOST_BINS)
        made = []
        for at, bins in enumerate(plan.features):
            assert isinstance(bins, Bins)
            places = list(bins.numbers)  # those without an order are counted from the end of a table
            evidence = Evidence(*(tables[name][at, places].numpy() for name in COUNTS))
            whole = tuple(map(int, points[at, places].tolist()))
            if (evidence.rows > 0).sum() > 1:
                found = ColumnCard(bins, evidence, float(tables["weight.0"][at, 0]), whole)
                made.append(found.merged() if method.monotone else found)
        return cls(part.party, tuple(made), plan.said, plan.id)

    def codes(self, table: Any) -> list[Values]:
        """For each column the bin (N,) of every row of a table, whose columns are found by name."""
        whose = f"party {self.party!r}"
        check_no_path(whose, table)
        frame, names = as_frame(whose, table, None), [one.bins.column for one in self.columns]
        for name in names:
            if name not in frame.columns:
                raise DataError(
                    f"{whose}: the table lacks the column {name!r} of the scorecard; it has {listed(frame)}"
                )
        frame = as_said(self.party, frame[names], self.said)
        return [one.bins.codes(self.party, frame[one.bins.column]) for one in self.columns]

    def points(self, table: Any) -> Values:
        """(N,) the sum of the points of its columns, in the order of the table; computed at home."""
        each = [np.array(one.points)[codes] for one, codes in zip(self.columns, self.codes(table), strict=True)]
        total: Values = np.sum(each, axis=0)
        return total

    @property
    def text_columns(self) -> list[str]:
        """The columns of levels that are not booleans: in a text file they must not be taken for numbers."""
        return [one.bins.column for one in self.columns if one.bins.kind == "level" and one.bins.holds != BOOLEAN]

    def lines(self) -> list[tuple[Any, ...]]:
        """One line per column and bin, in the order of `HEADINGS`."""
        return [line for one in self.columns for line in one.lines()]

    def to_json(self) -> dict[str, object]:
        """Plain values."""
        said = {name: one.model_dump(mode="json", exclude_unset=True) for name, one in self.said.items()}
        id = {} if self.id is None else {"id": list(names_of(self.id))}
        return {"columns": [one.to_json() for one in self.columns], "said": said, **id}

    @classmethod
    def from_json(cls, party: str, facts: Mapping[str, Any]) -> PartyCard:
        """The inverse of `to_json`."""
        said = {name: build(OneColumn, one, name) for name, one in facts["said"].items()}
        id = tuple(map(str, facts.get("id", ())))
        columns = tuple(map(ColumnCard.from_json, facts["columns"]))
        return cls(party, columns, said, (id[0] if len(id) == 1 else id) or None)

    def save(self, folder: str | Path) -> Path:
        """Write it as NAME.csv, for the party's own people."""
        folder = Path(folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            replace_file(folder / f"{quote(self.party, safe=' ')}.csv", self.csv().encode())
        except OSError as error:
            raise Unwritable(f"the card cannot be saved in {folder} ({error.strerror}); see to the disk") from None
        return folder

    def csv(self) -> str:
        """The same as text."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(HEADINGS)
        writer.writerows((*line[:3], *(f"{x:.6g}" for x in line[3:7]), line[7]) for line in self.lines())
        return out.getvalue()


@dataclass(frozen=True)
class Scorecard:
    """The cards of all parties, in one place; `party(name)` is what one of them may keep."""

    parties: tuple[PartyCard, ...]
    base_points: int
    scale: Scale
    event: str  # the class that low scores warn of
    labels: str  # what was released of the labels, to whom and at what price, in a sentence
    metrics: Mapping[str, float | None] = field(default_factory=dict)  # of the scores on the test rows
    notes: tuple[str, ...] = ()
    ledger: Ledger = field(default_factory=Ledger, repr=False)

    def party(self, name: str) -> PartyCard:
        """One party's card."""
        found = next((card for card in self.parties if card.party == name), None)
        if found is None:
            raise ConfigError(f"no party called {name!r}; parties: {', '.join(card.party for card in self.parties)}")
        return found

    def score(self, tables: Any, *, id: Ids = None) -> Any:
        """Points of new rows: a pandas.Series in the order of the first table, indexed by id where one is named.

        Args:
            tables: one data frame per party, raw.
            id: the column to match rows on, or one per party; None: the one that the scorecard was made with where all
                tables have it, otherwise all tables have the same rows in the same order.
        """
        pandas: Any = need("pandas", extra="tables", purpose="a table")
        given = by_party("tables", tables)
        check_parties({card.party: card for card in self.parties}, given)
        made_with = {card.party: card.id for card in self.parties}
        keys = id_columns_of_new(id, made_with)
        frames = {p: as_frame(f"party {p!r}", t, keys.get(p, made_with[p])) for p, t in given.items()}
        keys = keys or keys_of_training(frames, made_with)
        if not keys:
            check_order({f"party {party!r}": table for party, table in given.items()}, "; or name an id with id (--id)")
        frames, index = match_rows(frames, keys)
        total = sum(card.points(frames[card.party]) for card in self.parties)
        return pandas.Series(self.base_points + total, index=index, name="points")

    def probability(self, points: Any) -> Values:
        """What scores say of the event's probability."""
        odds = (np.asarray(points, dtype=np.float64) - self.scale.offset) / self.scale.factor
        return 1 / (1 + np.exp(odds))

    def __str__(self) -> str:
        lines = [f"Points warn of {self.event!r} where they are low; base points {self.base_points}. {self.labels}"]
        for card in self.parties:
            lines.append(f"\n{card.party}")
            lines += [
                f"  {column:<20} {name:<28} {rows:>8,} rows  woe {woe:+.3f}  {points:+d} points"
                for column, name, rows, _, _, woe, _, points in card.lines()
            ]
        return "\n".join([*lines, *self.notes])

    # -- files ----------------------------------------------------------------------------------

    def to_json(self) -> dict[str, object]:
        """Plain values, without the ledger."""
        s = self.scale
        return {
            "format": FORMAT,
            "event": self.event,
            "base_points": self.base_points,
            "scale": {"base_score": s.base_score, "odds": s.odds, "pdo": s.pdo},
            "labels": self.labels,
            "metrics": dict(self.metrics),
            "notes": list(self.notes),
            "parties": {card.party: card.to_json() for card in self.parties},
        }

    def save(self, folder: str | Path) -> Path:
        """Write NAME.csv for each party, the ledger, and scorecard.json last."""
        folder = Path(folder)
        try:
            for card in self.parties:
                card.save(folder)
            write_ledger(folder, self.ledger)
            replace_file(folder / FILE, (json.dumps(self.to_json(), indent=1) + "\n").encode())
        except OSError as error:
            raise Unwritable(f"the scorecard cannot be saved in {folder} ({error.strerror}); see to the disk") from None
        return folder

    @classmethod
    def load(cls, folder: str | Path) -> Scorecard:
        """Read what `save` wrote.

        Raises:
            RunError: there is no scorecard in the folder, or it is damaged.
        """
        path = Path(folder) / FILE
        try:
            facts = read_json(path)
        except (FileNotFoundError, NotADirectoryError):
            raise RunError(f"{folder} has no {FILE}; make one with colonnade scorecard") from None
        try:
            if facts["format"] != FORMAT:
                raise RunError(f"{path} has format {facts['format']!r}; this version reads {FORMAT}")
            parties = tuple(PartyCard.from_json(name, card) for name, card in facts["parties"].items())
            scale, notes, metrics = Scale(**facts["scale"]), tuple(facts["notes"]), dict(facts["metrics"])
            told = int(facts["base_points"]), scale, str(facts["event"]), str(facts["labels"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise RunError(f"{path} is damaged ({error!r}); restore it from a copy") from None
        return cls(parties, *told, metrics, notes, read_ledger(Path(folder)))
