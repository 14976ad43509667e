"""What a report says, before it is a page, a Markdown file or a JSON object: all three are made of this."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict

from colonnade.errors import RunError
from colonnade.record import Worth
from colonnade.report import classes, compared, decided, explained, metrics, repeat, tables, words
from colonnade.report.curves import Picture, confusion, pictures
from colonnade.report.interactions import not_tested
from colonnade.report.on_test import OnTest, on_test
from colonnade.report.privacy import Page, notes, privacy_page
from colonnade.report.record import Group, Record, Terms, check_record, grouped
from colonnade.report.tables import Table
from colonnade.report.uploads import better_at_home
from colonnade.report.worth import WorthPage, joint_groups, worth_page


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
    confusion: list[list[classes.Cell]]
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
    verdict: str  # the first sentence; empty: there is none
    worth: WorthPage | None
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
        worth = self.facts["worth"]
        return [*(worth.pictures if worth is not None else ()), *self.curves, *more]


def _drawn(told: explained.Explained | OnTest | None) -> tuple[Picture, ...]:
    return () if told is None else told.pictures


def content(
    records: Sequence[Record], terms: Terms | None = None, worth: Worth | None = None, more: Sequence[str] = ()
) -> Content:
    """All that a report about these runs says.

    Args:
        records: of the runs.
        terms: clock and target of a comparison.
        worth: what joining is worth, where the runs were trained to find that out.
        more: sentences after its own.

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
    drawn = () if worth is None else joint_groups(groups, worth)
    facts = _one(records[0]) if alone else _several(groups, terms, drawn)
    if worth is not None:
        page = worth_page(worth)
        facts["title"] = f"Is it worth joining? {_joint(worth, records)}"
        facts["verdict"], facts["worth"], facts["summary"] = page.verdict, page, [*page.sentences, *more]
        facts["costs"] = None  # of methods; here there is one
        facts["comparison"] = facts["comparison"] if terms.metrics else None
        facts["notes"] = notes(joint_groups(groups, worth))
    return Content(groups, terms, facts, tuple(pictures(groups, terms)))


def _joint(worth: Worth, records: Sequence[Record]) -> str:
    """The joint training by its method and data."""
    joint = next(one for one in worth["trials"] if one["role"] == "joint")
    first = next(record for record in records if record["id"] == joint["runs"][0])
    return f"{joint['method']} on {first['about']['federation']}"


def _one(record: Record) -> Facts:
    about, result, traffic = record["about"], record["result"], record["traffic"]
    best = "-" if result["best_round"] is None else f"{result['best_round']:,}"
    tiles = [
        (f"test {words.score_name(record)}", words.score(record, result["test_score"])),
        ("best round", f"{best} of {result['rounds']:,}"),
        ("training traffic", words.size(traffic["up"] + traffic["down"])),
        ("time", words.duration(result["seconds"])),
    ]
    known = {words.how_good(record), *decided.sentences(record)}  # of the summary, that the verdict has
    return {
        "title": f"{record['method']['name']} on {about['federation']}",
        "kind": "one run",
        "verdict": " ".join(filter(None, (words.verdict(record), better_at_home(record)))),
        "worth": None,
        "tiles": tiles,
        "run": _details(record),
        "summary": [*(text for text in words.summary(record) if text not in known), *not_tested(record)],
        "comparison": None,
        "costs": None,
        "contributions": None,
        "groups": [],
        "notes": [],
        "diverged": result["stop"] if result["diverged"] else None,
    }


def _several(groups: Sequence[Group], terms: Terms, drawn: Sequence[Group]) -> Facts:
    """Several runs; those of `drawn` groups with pictures of their test rows: of all it would be dozens."""
    methods = len({group.first["method"]["name"] for group in groups})
    number = sum(len(group.records) for group in groups)
    best = compared.best_in_words(groups)
    bad = [group.label for group in groups if any(r["result"]["diverged"] for r in group.records)]
    return {
        "title": f"{words.count(methods, 'method')} on {compared.on_data(groups)}",
        "kind": words.count(number, "run"),
        "verdict": " ".join(best),
        "worth": None,
        "tiles": [],
        "run": None,
        "summary": [text for text in compared.in_words(groups) if text not in best],
        "comparison": metrics.compared(groups, terms),
        "costs": compared.costs_table(groups, terms),
        "contributions": explained.side_by_side(groups),
        "notes": notes(groups),
        "groups": [_member(group, f"method-{number}-", group in drawn) for number, group in enumerate(groups, start=1)],
        "diverged": f"{words.listing(bad)}: a run diverged; its best round was kept" if bad else None,
    }


def _member(group: Group, prefix: str, draws: bool) -> GroupFacts:
    facts = _details(group.first, prefix)
    shown = facts["on_test"]
    facts["on_test"] = shown if draws or shown is None else shown.without_pictures()
    return {"label": group.label, "runs": [_told(r) for r in group.records], **facts}


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
        "classes": classes.classes_table(record),
        "confusion": classes.confusion_cells(record),
        "matrix": [] if prefix else confusion(record),
        "class_names": classes.class_names(record),
        "pairs": classes.confused_pairs(record),
        "machine": tables.machine_table(record),
        "threads": record["about"]["machine"].get("threads"),
        "command": repeat.command(record),
        "configuration": repeat.configuration(record),
    }
