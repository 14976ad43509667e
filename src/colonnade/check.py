"""Look at tables before anything is trained: one sentence for each thing that is wrong or doubtful.

Nothing is sent and nothing is written. A party's own columns are looked at by itself (`inspect_party`); where all
tables are in one place, as in a simulation, also how they fit together. Whether a column tells the label is asked of
the label holder's own columns only: about another party's columns the answer would be a release.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from colonnade.data.beside import Beside
from colonnade.data.column_settings import PartyColumns, columns_of
from colonnade.data.features import LevelFeature
from colonnade.data.frames import Key, as_frame, by_party, names_of, read_table
from colonnade.data.ids import Ids, id_columns, is_in, places, text_ids
from colonnade.data.inspect import Finding, TableFacts, inspect_table, some_rows
from colonnade.data.inspect_labels import inspect_labels, inspect_leaks
from colonnade.data.new_columns import unseen
from colonnade.data.preprocess import encode_labels
from colonnade.data.rare import without_counts
from colonnade.data.said import as_said
from colonnade.errors import DataError, DoubtfulData
from colonnade.extras import need
from colonnade.federation import Federation
from colonnade.job import Job, read_table_data
from colonnade.methods.rounds import schedule_of
from colonnade.row_split import RowSplit, SplitSettings, as_settings
from colonnade.run import Training

MOST = 10  # warnings that a training shows


@dataclass(frozen=True)
class Check:
    """What was found. `federation` is the joined data; None where an error stands in its way."""

    tables: tuple[TableFacts, ...]
    findings: tuple[Finding, ...]
    federation: Federation | None = field(default=None, repr=False)

    @property
    def errors(self) -> list[str]:
        """What stops a training."""
        return [one.text for one in self.findings if one.level == "error"]

    @property
    def warnings(self) -> list[str]:
        """What does not stop a training, but is probably not meant so."""
        return [one.text for one in self.findings if one.level == "warning"]

    @property
    def notes(self) -> list[str]:
        """What is worth knowing."""
        return [one.text for one in self.findings if one.level == "note"]

    def data(self, see: str = "colonnade check") -> Federation:
        """The joined data, after one warning for each doubt; `DataError` where there are errors."""
        errors = self.errors
        if errors:
            more = f" (and {len(errors) - 1} more: {see} lists them)" if len(errors) > 1 else ""
            raise DataError(errors[0] + more)
        for text in self.warnings[:MOST]:
            warnings.warn(text, DoubtfulData, stacklevel=2)
        if len(self.warnings) > MOST:
            warnings.warn(f"{len(self.warnings) - MOST} more: {see} lists them", DoubtfulData, stacklevel=2)
        assert self.federation is not None
        return self.federation

    def answered(self, training: Training) -> Check:
        """The same, less the doubts that the settings of a training have an answer to."""
        values = {"decision.decide_by": training.decision.decide_by, "class_weights": training.class_weights}
        chosen = {name for name, value in values.items() if value is not None}
        return replace(self, findings=tuple(one for one in self.findings if not chosen & set(one.answered_by)))

    def to_json(self) -> dict[str, Any]:
        """Everything but the data."""
        return {"tables": [asdict(table) for table in self.tables], "findings": [asdict(one) for one in self.findings]}

    def __str__(self) -> str:
        lines = [f"{one.level}: {one.text}" for one in self.findings]
        return "\n".join(lines) or "nothing doubtful was found"


def check(tables: Mapping[str, Any], *, labels: Any, id: Ids = None, **meaning: Any) -> Check:
    """Look at tables as `Federation.from_tables` would join them; its arguments, and what it refuses is told.

    Examples:
        >>> import colonnade as cn
        >>> import pandas as pd
        >>> ages, churn = ["31", "44", "unknown"] * 20, ["no", "yes"] * 30
        >>> bank = pd.DataFrame({"customer": range(60), "age": ages, "churn": churn})
        >>> print(cn.check({"bank": bank}, labels="churn", id="customer").errors[0][:70])
        party 'bank', column 'age': 20 of 60 values are not numbers (first in r
    """
    given = by_party("tables", tables)
    keys = id_columns(id, given)
    given = {p: read_table(t, id=keys.get(p)) if isinstance(t, (str, Path)) else t for p, t in given.items()}
    frames = {party: as_frame(f"party {party!r}", table, keys.get(party)) for party, table in given.items()}
    split = meaning.get("split")
    aside = Beside(meaning.get("weights"), SplitSettings() if isinstance(split, RowSplit) else as_settings(split))
    beside = {labels if isinstance(labels, str) else None, *aside.taken}
    columns = {party: _columns(party, frame, keys.get(party), beside) for party, frame in frames.items()}
    said = columns_of(meaning.get("columns"), given)
    facts = tuple(inspect_table(party, columns[party], said[party]) for party in frames if len(columns[party].columns))
    found = [one for table in facts for one in table.findings]
    federation, joining = _join(given, labels, id, meaning)
    known = {without_counts(one.text) for one in found}  # joining counts training rows alone
    found = [*(one for one in joining if without_counts(one.text) not in known), *found]
    found += _of_labels(frames, columns, labels, meaning)
    if keys:
        found += _overlap(frames, keys)
        found += _together(frames, keys, aside)
    if federation is not None:
        named = {(one.party, one.column) for one in found}
        found += [one for one in _unseen(columns, frames, keys, federation) if (one.party, one.column) not in named]
    return Check(facts, tuple(_in_order(found)), federation)


def _columns(party: str, frame: Any, key: Key | None, beside: set[Any]) -> Any:
    """What a party would train with, indexed by its ids where they can be used."""
    left = frame.drop(columns=[name for name in frame.columns if name in beside or name in names_of(key)])
    if key is not None:
        with suppress(DataError):  # told by joining
            return left.set_axis(text_ids(f"party {party!r}", frame, key), axis=0)
    return left


def check_job(job: Job, *, rounds: bool = True) -> Check:
    """Look at the data of a configuration; with `rounds` also at how often its rounds visit them."""
    if "tables" in job.data:
        frames, options = read_table_data(job.labelled_data)
        found = check(frames, **options)
        found = replace(found, federation=found.federation and job.part_of(found.federation))
    else:
        found = Check((), (), job.federation())
    if found.federation is None:
        return found
    job.model.check_parties(found.federation.names)
    of_rounds = _epochs(job, found.federation) if rounds else ()
    doubts = found.answered(job.training).findings
    return replace(found, findings=tuple(_in_order([*doubts, *of_rounds])))


def inspect_party(party: str, table: Any, id: Any, columns: PartyColumns | None = None) -> Check:
    """Look at one party's own table, as its owner may do alone, before it is aligned with others'."""
    keys = id_columns(id, [party])
    frame = as_frame(f"party {party!r}", table, keys.get(party))
    text_ids(f"party {party!r}", frame, keys[party])
    facts = inspect_table(party, _columns(party, frame, keys[party], set()), columns)
    return Check((facts,), tuple(_in_order(list(facts.findings))))


def inspect_label_table(table: Any, id: Any, label: str, task: str | None, classes: Any = None) -> Check:
    """Look at the label holder's table of a deployment: the labels, and whether a column beside them tells them."""
    keys = id_columns(id, ["the label holder"])
    frame = as_frame("the labels", table, keys["the label holder"])
    text_ids("the labels", frame, keys["the label holder"])
    if label not in frame.columns:
        raise DataError(f"the table of labels has no column {label!r}; columns: {', '.join(frame.columns)}")
    columns = frame.drop(columns=[label, *names_of(keys["the label holder"])])
    meaning = {"task": task, "classes": classes}
    found = _of_labels({"the label holder": frame}, {"the label holder": columns}, label, meaning)
    empty = int(frame[label].isna().sum())
    if empty:
        found.append(Finding("note", f"{empty:,} of {len(frame):,} rows have no label; they are only predicted"))
    return Check((), tuple(_in_order(found)))


def _in_order(found: list[Finding]) -> list[Finding]:
    order = {"error": 0, "warning": 1, "note": 2}
    return sorted({one.text: one for one in found}.values(), key=lambda one: order[one.level])


def _join(
    frames: Mapping[str, Any], labels: Any, id: Ids, meaning: Mapping[str, Any]
) -> tuple[Federation | None, list[Finding]]:
    """The joined data, and what joining them said."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            federation = Federation.from_tables(frames, labels=labels, id=id, **meaning)
        except DataError as error:
            return None, [Finding("error", str(error))]
    return federation, [Finding("warning", str(one.message)) for one in told if issubclass(one.category, UserWarning)]


def _of_labels(
    frames: Mapping[str, Any], columns: Mapping[str, Any], labels: Any, meaning: Mapping[str, Any]
) -> list[Finding]:
    """Class balance and leaks, where one table has the labels; what is wrong with them, joining says."""
    holders = [party for party, frame in frames.items() if isinstance(labels, str) and labels in frame.columns]
    if len(holders) != 1:
        return []
    party = holders[0]
    known = frames[party][labels].notna()
    try:
        read = encode_labels(
            frames[party].loc[known, [labels]], *(meaning.get(key) for key in ("task", "classes", "positive"))
        )
    except DataError as error:
        return [Finding("error", str(error), party, labels)]
    rows = some_rows(len(read.values))
    beside = columns[party].iloc[known.to_numpy().nonzero()[0][rows]].infer_objects()
    return [*inspect_labels(read.task, read.values), *inspect_leaks(party, beside, read.task, read.values[rows])]


def _overlap(frames: Mapping[str, Any], keys: Mapping[str, Any]) -> Iterator[Finding]:
    """How many ids of each table all tables have."""
    try:
        ids = {party: text_ids(f"party {party!r}", frame, keys[party]) for party, frame in frames.items()}
    except DataError as error:
        yield Finding("error", str(error))
        return
    for party, mine in ids.items():
        common = np.logical_and.reduce([is_in(mine, theirs) for theirs in ids.values()])
        yield Finding("note", f"party {party!r}: {int(common.sum()):,} of {len(mine):,} ids are in all tables", party)


def _together(frames: Mapping[str, Any], keys: Mapping[str, Any], aside: Beside) -> Iterator[Finding]:
    """Rows that share a part of their ids, a person's years, and are split at random."""
    party, key = next(iter(keys.items()))
    names = names_of(key)
    if len(names) < 2 or aside.split.time or aside.split.groups or any(n not in frames[party].columns for n in names):
        return
    counted = [f"{int((frames[party][name].value_counts() > 1).sum()):,} values of {name!r}" for name in names]
    yield Finding(
        "note",
        f"party {party!r}: {' and '.join(counted)} have several rows each, and a random split has some of them in "
        "training and some in test rows; if they are of one person, say split.groups (or split.time) with that column",
        party,
    )


def _unseen(
    columns: Mapping[str, Any], frames: Mapping[str, Any], keys: Mapping[str, Any], federation: Federation
) -> Iterator[Finding]:
    """Categories that training rows have seldom, or that only validation or test rows have."""
    pd = need("pandas", extra="tables", purpose="a table")
    for party, plan in federation.plans.items():
        frame = columns[party]
        if keys:
            mine = text_ids(f"party {party!r}", frames[party], keys[party])
            at = places(pd.Index(federation.ids, dtype="str"), mine)
            frame = frame.iloc[at[at >= 0]]
        frame = as_said(party, frame, plan.said)
        for feature in plan.features:
            if not isinstance(feature, LevelFeature) or feature.part:
                continue
            strange = plan.strangers(frame, feature)
            if strange:
                yield Finding(
                    "warning" if feature.other is None else "note",
                    f"party {party!r}, column {feature.column!r}: {strange:,} of {len(frame):,} values are categories "
                    f"that training {unseen(feature)}",
                    party,
                    feature.column,
                )


def _epochs(job: Job, federation: Federation) -> Iterator[Finding]:
    t = job.on(federation).training
    schedule = schedule_of(job.method, t.schedule, federation.split.train, federation.names, t.seed)
    short = schedule.shortfall(t.rounds)
    if short:
        yield Finding("warning", short)
        return
    passes = t.rounds / schedule.rounds_per_pass
    rows = len(federation.split.train)
    told = f"{t.rounds:,} rounds of {schedule.batch:,} rows visit each of the {rows:,} training rows"
    yield Finding("note", f"{told} {passes:.0f} times")
