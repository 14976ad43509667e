"""A model card: what somebody needs to know who is asked to use a model, or to answer for it, on one page of Markdown.

What the record of the run says is filled in. What only people can know, what the model is for and what it must not be
used for, is left for them, and said to be missing.
"""

from __future__ import annotations

from collections.abc import Iterator

from colonnade.report.content import Content
from colonnade.report.markdown import plain, table_lines

MISSING = "*Not said yet. Whoever puts the model to use writes it here:"


def model_card(content: Content) -> str | None:
    """The card of a report about one run; None where it is about several."""
    run = content.facts["run"]
    if run is None or not content.alone:
        return None
    return "\n\n".join(_blocks(content)) + "\n"


def _blocks(content: Content) -> Iterator[str]:
    record, run = content.records[0], content.facts["run"]
    assert run is not None
    about = record["about"]
    yield f"# Model card: {plain(content.facts['title'])}"
    yield f"**{plain(content.facts['verdict'])}**" if content.facts["verdict"] else ""
    yield "## The model"
    yield plain(" ".join(content.facts["summary"]))
    yield from table_lines(run["machine"])
    yield "## What it is for"
    yield f"{MISSING} which decisions it supports, who decides, and about whom.*"
    yield "## What it must not be used for"
    yield f"{MISSING} people and times that the training rows do not speak for, and decisions without a person.*"
    yield "## Data"
    rows = about["rows"]
    parts = f"{rows['train']:,} rows trained, {rows['validation']:,} chose the kept round, {rows['test']:,} tested it"
    yield plain(f"{about['federation']}: {parts}, once, at the end.")
    yield from table_lines(run["parties"])
    yield "## How good it is"
    for table in (run["metrics"], run["decision"], run["by_group"]):
        yield from () if table is None else table_lines(table)
    if run["by_group"] is None:
        yield 'Groups of people were not measured apart: by = "COLUMN" in [data] names one to see where it is worse.'
    yield "## What is protected, and what is not"
    yield plain(run["privacy"].verdict)
    yield plain(run["noise"])
    for question, answers in run["privacy"].answers:
        yield "\n".join((f"**{plain(question)}**", "", *(f"- {plain(answer)}" for answer in answers)))
    if run["privacy"].table is not None:
        yield from table_lines(run["privacy"].table)
    if run["privacy"].uploads:
        yield plain(run["privacy"].uploads)
    yield plain(run["privacy"].exposure)
    yield "## Limits"
    yield (
        "The figures are about rows like the test rows: of other people, or of another time, nothing was measured. "
        "Uploads that left cannot be called back. The report beside this card says how the run is repeated."
    )
