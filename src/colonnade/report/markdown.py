"""A report as Markdown: the same words, tables and pictures as the page, for a wiki, a pull request or a terminal.

Names come from users: whatever Markdown or HTML would read as markup is escaped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from colonnade.report.content import Content, RunFacts
from colonnade.report.curves import Picture
from colonnade.report.explained import Explained
from colonnade.report.on_test import OnTest
from colonnade.report.privacy import Page
from colonnade.report.tables import Table

MARKUP = re.compile(r"([\\`*_\[\]<>|#~$&])")


def as_markdown(content: Content, pictures: str) -> str:
    """The file as text; `pictures` is the folder of pictures beside it."""
    blocks, curves = list(_opening(content, pictures)), list(_curves(content, pictures))
    if (run := content.facts["run"]) is not None:
        blocks += _run(run, 2, pictures, curves)
    else:
        blocks += curves
        if content.facts["contributions"] is not None:
            blocks += ["## What each party contributed", *table_lines(content.facts["contributions"])]
        blocks.append("## Methods one by one")
        for group in content.facts["groups"]:
            blocks.append(f"### {plain(group['label'])}")
            blocks += [plain(f"Seed {told['seed']}: {' '.join(told['summary'])}") for told in group["runs"]]
            blocks += _run(group, 4, pictures)
    blocks += ["---", "Written by Colonnade from the records of the runs alone."]
    return "\n\n".join(blocks) + "\n"


def plain(text: Any) -> str:
    """Text in which nothing is markup, on one line."""
    return MARKUP.sub(r"\\\1", " ".join(str(text).split()))


def verbatim(text: str) -> str:
    """A block of code, with a fence longer than any in it."""
    longest = max((len(found) for found in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text.rstrip()}\n{fence}"


def _opening(content: Content, pictures: str) -> Iterator[str]:
    facts = content.facts
    yield f"# {plain(facts['title'])}"
    yield f"Colonnade, {plain(facts['kind'])}"
    if facts["diverged"]:
        yield f"**Training diverged.** {plain(facts['diverged'])}."
    yield "## Summary"
    if facts["tiles"]:
        yield "\n".join(f"- {plain(name)}: **{plain(value)}**" for name, value in facts["tiles"])
    if facts["verdict"]:
        yield f"**{plain(facts['verdict'])}**"
    yield plain(" ".join(facts["summary"]))
    if (run := facts["run"]) is not None:
        yield plain(run["privacy"].verdict)
        yield plain(run["noise"])
        return
    if (worth := facts["worth"]) is not None:
        yield "## Alone, together, in one place"
        yield from table_lines(worth.table)
        yield from (_picture(picture, pictures) for picture in worth.pictures)
    if facts["comparison"] is not None:
        yield "## Comparison"
    for table in (facts["comparison"], facts["costs"]):
        yield from () if table is None else table_lines(table)
    yield from (f"**{plain(labels)}.** {plain(text)}" for labels, text in facts["notes"])


def _curves(content: Content, pictures: str) -> Iterator[str]:
    if content.curves:
        yield "## Curves"
    yield from (_picture(picture, pictures) for picture in content.curves)


def _run(run: RunFacts, level: int, pictures: str, curves: Sequence[str] = ()) -> Iterator[str]:
    """The sections about one run, under headings of a level; curves of its training stand after what came out of it."""
    head = "#" * level
    if run["metrics"]:
        yield f"{head} Metrics"
        for table in (run["metrics"], run["decision"], run["by_group"]):
            yield from [] if table is None else table_lines(table)
    if run["on_test"] is not None:
        yield f"{head} Test rows"
        yield from _shown(run["on_test"], pictures)
    if run["classes"]:
        yield f"{head} Classes"
        yield from (_picture(picture, pictures) for picture in run["matrix"])
        if run["pairs"]:
            yield plain(f"Most frequent mistakes: {'; '.join(run['pairs'])}.")
        yield from table_lines(run["classes"])
    yield from curves
    yield f"{head} Parties and traffic"
    yield from table_lines(run["parties"])
    yield from table_lines(run["traffic"])
    if run["explained"] is not None:
        yield f"{head} What each party contributed"
        yield from _shown(run["explained"], pictures)
    yield f"{head} Privacy"
    yield from _privacy(run["privacy"])
    yield f"{head} Settings"
    yield from table_lines(run["settings"])
    yield f"{head} Repeat this run"
    yield from _repeat(run)
    yield from table_lines(run["machine"])


def _shown(told: Explained | OnTest, pictures: str) -> Iterator[str]:
    yield from (plain(sentence) for sentence in told.sentences)
    for table in told.tables:
        yield from table_lines(table)
    yield from (_picture(picture, pictures) for picture in told.pictures)


def _privacy(page: Page) -> Iterator[str]:
    if not page.answers:
        yield plain(page.verdict)
    for question, answers in page.answers:
        yield "\n".join((f"**{plain(question)}**", "", *(f"- {plain(answer)}" for answer in answers)))
    if page.table is not None:
        yield from table_lines(page.table)
    if page.uploads:
        yield plain(page.uploads)
    yield plain(page.exposure)


def _repeat(run: RunFacts) -> Iterator[str]:
    if run["command"] is None or run["configuration"] is None:
        yield "This run was started from Python. Call `colonnade.fit` with the same federation, settings and seed."
        return
    yield "Save these lines as `run.toml`, then type the command."
    yield verbatim(run["command"])
    yield verbatim(run["configuration"])


def table_lines(table: Table) -> Iterator[str]:
    """A table under its caption."""
    yield f"**{plain(table.caption)}**"
    marks = ("---" if place in table.words else "---:" for place in range(len(table.columns)))
    rows = (table.columns, *table.rows)
    lines = ["| " + " | ".join(plain(cell) for cell in row) + " |" for row in rows]
    yield "\n".join((lines[0], f"| {' | '.join(marks)} |", *lines[1:]))


def _picture(picture: Picture, folder: str) -> str:
    return f"![{plain(picture.description)}]({folder}/{picture.drawing.name}.png)\n\n*{plain(picture.caption)}*"
