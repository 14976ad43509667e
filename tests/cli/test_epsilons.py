"""No epsilon without what belongs to it: every place that prints one is rendered, and its text is searched.

A block (a line, a paragraph, a table with its caption) that has a figure must also have its unit, delta, neighbouring
relation and accountant; and the output it stands in must say what is not covered.
"""

from __future__ import annotations

import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.progress import Progress as RichProgress
from rich.progress import TextColumn

from colonnade.cli import compare
from colonnade.cli.main import main
from colonnade.cli.screen import Bars, Screen, told
from colonnade.cli.training import tell
from colonnade.fit import Progress, fit
from colonnade.methods import make_method
from colonnade.report.content import content
from colonnade.report.html import render
from colonnade.report.markdown import as_markdown
from colonnade.report.record import read_records
from tests.federations import small

FIGURE = re.compile(r"epsilon(?: of)? \d")
BELONGS = (r"unit (PARTY|ROW|LABEL)", r"delta", r"neighbours", r"accountant")
DP = {"mechanism": "gaussian", "clip": 1.0, "sigma": 5.0, "epsilon": 2.5}
LABELS = {"labels": {"mechanism": "alibi", "epsilon": 2.0}}


def complaints(blocks: list[str]) -> list[str]:
    """What is wrong with an output, block by block."""
    figures = [block for block in blocks if FIGURE.search(block)]
    found = [f"{wanted} is missing: {b}" for b in figures for wanted in BELONGS if not re.search(wanted, b)]
    if figures and not any("not covered" in block.lower() for block in blocks):
        found.append("nothing says what is not covered")
    return found


def has_figure(blocks: list[str]) -> bool:
    return any(FIGURE.search(block) for block in blocks)


def paragraphs(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip()]


class Blocks(HTMLParser):
    """The texts of a page, one per paragraph, definition, caption or table cell; a configuration is what it is."""

    TAGS = ("p", "dd", "dt", "caption", "td", "th", "li", "h1", "h2", "h3", "figcaption")

    def __init__(self, page: str) -> None:
        super().__init__()
        self.blocks: list[str] = []
        self.inside = 0
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in self.TAGS:
            self.blocks.append("")
            self.inside += 1

    def handle_endtag(self, tag: str) -> None:
        self.inside -= tag in self.TAGS

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.blocks[-1] += data


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of every promise: both, columns (stopped by its budget), labels, one that never speaks, rows, none."""
    place = tmp_path_factory.mktemp("runs")
    kinds: dict[str, tuple[str, dict[str, Any]]] = {
        "both": ("vimadmm_j", {**DP, **LABELS, "evaluation": "simulated"}),
        "columns": ("vimadmm", {**DP, "neighbours": "replaced"}),
        "labels": ("vimadmm", LABELS),
        "alone": ("local_only", {}),
        "rows": ("local_only", {"unit": "row", "epsilon": 2.5, **LABELS}),
        "nothing": ("vimadmm", {}),
    }
    for name, (method, privacy) in kinds.items():
        made = make_method(method, {"local_steps": 1})
        networks = {"encoder": "tanh"} if name == "rows" else None
        fit(small(), made, privacy=privacy, model=networks, out=place / name, rounds=6, evaluate_every=2)
    return place


RUNS = ("both", "columns", "labels", "alone", "rows", "nothing")


@pytest.mark.parametrize("name", RUNS)
def test_on_a_page(name: str, folder: Path) -> None:
    blocks = Blocks(render(read_records([folder / name]))).blocks
    assert complaints(blocks) == []
    assert has_figure(blocks) == (name != "nothing")


def test_on_a_page_of_several_runs(folder: Path) -> None:
    blocks = Blocks(render(read_records([folder]))).blocks
    assert complaints(blocks) == []
    assert has_figure(blocks)


@pytest.mark.parametrize("names", [*((name,) for name in RUNS), RUNS], ids=" ".join)
def test_in_the_markdown_beside_a_page(names: tuple[str, ...], folder: Path) -> None:
    text = as_markdown(content(read_records([folder / name for name in names])), "pictures")
    blocks = paragraphs(re.sub(r"\\(.)", r"\1", text))
    assert complaints(blocks) == []
    assert has_figure(blocks) == (names != ("nothing",))


@pytest.mark.parametrize("name", RUNS)
def test_in_the_last_words_of_a_training(name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (record,) = read_records([folder / name])
    tell(Screen(), record, folder / name)
    blocks = paragraphs(capsys.readouterr().out)
    assert complaints(blocks) == []
    assert has_figure(blocks) == (name in ("both", "columns", "labels", "rows"))


def test_in_a_comparison(folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    places = [folder / name for name in RUNS]
    compare.show(Screen(), read_records(places), places, tmp_path)
    blocks = paragraphs(capsys.readouterr().out)
    assert has_figure(blocks)
    assert [bad for block in blocks for bad in complaints([block])] == []  # each note says what it does not cover


@pytest.mark.parametrize(
    "words",
    [
        ("epsilon", "--sigma", "30", "--rounds", "53"),
        ("calibrate", "--epsilon", "1", "--rounds", "53"),
        ("calibrate", "--epsilon", "1", "--rounds", "53", "--rate", "0.1", "--parties", "3"),
        *(("explain", name) for name in RUNS),
    ],
    ids=" ".join,
)
def test_in_the_privacy_commands(words: tuple[str, ...], folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["privacy", *(str(folder / word) if word in RUNS else word for word in words)]
    for extra in ([], ["--json"]):
        with pytest.raises(SystemExit):
            main([*command, *extra])
        out = capsys.readouterr().out
        if extra:
            assert json.loads(out).keys() >= {"epsilon", "unit", "neighbours", "delta", "accountant", "not_covered"}
        else:
            blocks = paragraphs(out) if words[0] == "explain" else [" ".join(out.split())]
            assert complaints(blocks) == [] and has_figure(blocks) == (words[-1] != "nothing")


def watched(privacy: dict[str, Any], terminal: bool = True) -> tuple[list[Progress], str]:
    """A training that somebody watches, and what stands on the screen."""
    seen: list[Progress] = []
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=300, color_system=None)
    with RichProgress(TextColumn("{task.fields[told]}"), console=console, disable=not terminal) as bars:
        move = Bars(bars).watch("x", 4)

        def watch(now: Progress) -> None:
            seen.append(now)
            move(now)

        made = make_method("vimadmm_j", {"local_steps": 1})
        schedule = {"batch": 20, "participation": 0.5}
        fit(small(), made, privacy=privacy, rounds=4, evaluate_every=2, schedule=schedule, watch=watch)
    return seen, out.getvalue()


class TestProgress:
    def test_what_was_spent_rises_and_is_explained_once(self) -> None:
        seen, shown = watched({**DP, "epsilon": None, "evaluation": "simulated"})
        spent = [now.epsilon for now in seen]
        assert all(value is not None for value in spent)
        assert spent == sorted(spent, key=float) and spent[0] < spent[-1]  # type: ignore[arg-type, operator]
        assert shown.count("exact accountant, unit PARTY, neighbours: absent, delta 1e-05") == 1
        assert f"epsilon {spent[-1]:.3f}" in shown and "not covered" in shown
        assert seen[0].spent is not None and len(seen[0].spent.parties) == 2  # of four: the others have not spoken

    def test_agreement_with_noisy_labels_is_not_called_validation(self) -> None:
        seen, shown = watched(LABELS)
        assert "agreement with noisy labels" in told(seen[-1]) and "validation" not in told(seen[-1])
        assert shown.count("is not the true score") == 1
        plain, _ = watched({})
        assert "validation" in told(plain[-1]) and plain[-1].epsilon is None and "epsilon" not in told(plain[-1])

    def test_where_nobody_watches_nothing_is_printed(self) -> None:
        assert watched({**DP, **LABELS}, terminal=False)[1].strip() == ""


def test_a_lonely_figure_would_be_found() -> None:
    assert complaints(["epsilon 3.0", "not covered: labels"]) != []
    whole = "epsilon 3.0, unit PARTY, delta 1e-5, neighbours: absent, exact accountant"
    assert complaints([whole]) == ["nothing says what is not covered"]
    assert complaints([whole, "Not covered: labels"]) == []
