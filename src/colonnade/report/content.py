"""What a report says, before it is a page, a Markdown file or a JSON object: all three are made of this."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict

from colonnade.errors import RunError
from colonnade.report import explained, metrics, repeat, tables, words
from colonnade.report.curves import Picture, confusion, pictures
from colonnade.report.on_test import OnTest, on_test
from colonnade.report.privacy import Page, notes, privacy_page
from colonnade.report.record import Group, Record, Terms, check_record, grouped
from colonnade.report.tables import Table


@dataclass(frozen=True)
class Headline:
    """What the runs were trained to find out, and the answer; a comparison of methods has no other question."""

    title: str
    told: Sequence[str]  # sentences instead of the usual summary


class Told(TypedDict):
    """One run of several of a kind."""

    seed: int
    summary: list[str]


class RunFacts(TypedDict):
    """Everything about one run."""

    summary: list[str]
    privacy: Page
    noise: str
    settings: Table
    changed: list[str]
    parties: Table
    explained: explained.Explained | None
    traffic: Table
    metrics: Table | None
    decision: Table | None
    by_group: Table | None
    on_test: OnTest | None
    classes: Table | None
    confusion: list[list[tables.Cell]]
    matrix: list[Picture]
    class_names: list[str]
    pairs: list[str]
    machine: Table
    threads: int | None
    command: str | None
    configuration: str | None


class GroupFacts(RunFacts):
    """Runs that differ in nothing but their seed."""

    label: str
    runs: list[Told]


class Facts(TypedDict):
    """What the templates read; `run` where there is one, the rest of the tables where there are several."""

    title: str
    kind: str
    tiles: list[tuple[str, str]]
    run: RunFacts | None
    summary: list[str]
    comparison: Table | None
    costs: Table | None
    contributions: Table | None
    groups: list[GroupFacts]
    notes: list[tuple[str, str]]
    diverged: str | None


@dataclass(frozen=True)
class Content:
    """A report about one run, or about several side by side."""

    groups: tuple[Group, ...]
    terms: Terms
    facts: Facts
    curves: tuple[Picture, ...]

    @property
    def alone(self) -> bool:
        """Whether it is about one run."""
        return len(self.records) == 1

    @property
    def records(self) -> list[Record]:
        """The runs, those of one kind together."""
        return [record for group in self.groups for record in group.records]

    @property
    def files(self) -> list[Picture]:
        """Every picture that becomes a file: those of the page, and the matrix that the page has as a table."""
        run = self.facts["run"]
        runs: Sequence[RunFacts] = self.facts["groups"] if run is None else [run]
        more = (
            picture for run in runs for picture in (*_drawn(run["on_test"]), *run["matrix"], *_drawn(run["explained"]))
        )
        return [*self.curves, *more]


def _drawn(told: explained.Explained | OnTest | None) -> tuple[Picture, ...]:
    return () if told is None else told.pictures


def content(records: Sequence[Record], terms: Terms | None = None, headline: Headline | None = None) -> Content:
    """All that a report about these runs says.

    Raises:
        RunError: there is no run, or one is damaged.
    """
    if not records:
        raise RunError("a report needs at least one run; name its folder")
    for record in records:
        check_record(record, f"run {record.get('id', 'without an id')}")
    groups = tuple(grouped(records))
    terms = Terms.of(records[0]) if terms is None else terms
    alone = sum(len(group.records) for group in groups) == 1  # also where it was named twice
    facts = _one(records[0]) if alone else _several(groups, terms)
    if headline is not None:
        facts["title"], facts["summary"] = headline.title, list(headline.told)
    return Content(groups, terms, facts, tuple(pictures(groups, terms)))


def _one(record: Record) -> Facts:
    about, result, traffic = record["about"], record["result"], record["traffic"]
    best = "-" if result["best_round"] is None else f"{result['best_round']:,}"
    tiles = [
        (f"test {words.score_name(record)}", words.score(record, result["test_score"])),
        ("best round", f"{best} of {result['rounds']:,}"),
        ("training traffic", words.size(traffic["up"] + traffic["down"])),
        ("time", words.duration(result["seconds"])),
    ]
    return {
        "title": f"{record['method']['name']} on {about['federation']}",
        "kind": "one run",
        "tiles": tiles,
        "run": _details(record),
        "summary": words.summary(record),
        "comparison": None,
        "costs": None,
        "contributions": None,
        "groups": [],
        "notes": [],
        "diverged": result["stop"] if result["diverged"] else None,
    }


def _several(groups: Sequence[Group], terms: Terms) -> Facts:
    methods = len({group.first["method"]["name"] for group in groups})
    number = sum(len(group.records) for group in groups)
    bad = [group.label for group in groups if any(r["result"]["diverged"] for r in group.records)]
    return {
        "title": f"{words.count(methods, 'method')} on {tables.on_data(groups)}",
        "kind": words.count(number, "run"),
        "tiles": [],
        "run": None,
        "summary": tables.in_words(groups),
        "comparison": metrics.compared(groups, terms),
        "costs": tables.costs_table(groups, terms),
        "contributions": explained.side_by_side(groups),
        "notes": notes(groups),
        "groups": [_member(group, f"method-{number}-") for number, group in enumerate(groups, start=1)],
        "diverged": f"{words.listing(bad)}: a run diverged; its best round was kept" if bad else None,
    }


def _member(group: Group, prefix: str) -> GroupFacts:
    return {"label": group.label, "runs": [_told(r) for r in group.records], **_details(group.first, prefix)}


def _told(record: Record) -> Told:
    return {"seed": record["training"]["seed"], "summary": words.summary(record)}


def _details(record: Record, prefix: str = "") -> RunFacts:
    """Everything about one run; among several it has a prefix for the names of its pictures, and fewer of them."""
    return {
        "summary": words.summary(record),
        "privacy": privacy_page(record),
        "noise": words.noise(record),
        "settings": tables.settings_table(record),
        "changed": tables.changed_settings(record),
        "parties": tables.parties_table(record),
        "explained": explained.explained(record, prefix),
        "traffic": tables.traffic_table(record),
        "metrics": metrics.metrics_table(record),
        "decision": metrics.decision_table(record),
        "by_group": metrics.groups_table(record),
        "on_test": on_test(record, prefix),
        "classes": tables.classes_table(record),
        "confusion": tables.confusion_cells(record),
        "matrix": [] if prefix else confusion(record),
        "class_names": tables.class_names(record),
        "pairs": tables.confused_pairs(record),
        "machine": tables.machine_table(record),
        "threads": record["about"]["machine"].get("threads"),
        "command": repeat.command(record),
        "configuration": repeat.configuration(record),
    }
