"""Values that figures tell whoever points at them, and how many pages a report takes on paper."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from colonnade.report.figures import Axis, Line, bars, chart
from colonnade.report.hints import MOST, along
from colonnade.report.html import render
from colonnade.report.plots import intervals
from tests.report.browser import CHROMIUM, needs_chromium
from tests.report.test_explained import explained_record

SVG = "{http://www.w3.org/2000/svg}"
MOST_PAGES = 6


def spots(svg: str) -> list[tuple[float, float, str]]:
    circles = ElementTree.fromstring(svg).iter(f"{SVG}circle")
    return [(float(one.attrib["cx"]), float(one.attrib["cy"]), str(one.findtext(f"{SVG}title"))) for one in circles]


def test_a_hint_is_where_matplotlib_draws_the_point() -> None:
    line = Line("one", [1.0, 2.0, 5.0], [0.1, 0.4, 0.2])
    svg = chart("x", [line], Axis("rounds", "score")).svg()
    found = spots(svg)
    assert [text for *_, text in found] == ["rounds 1, score 0.1", "rounds 2, score 0.4", "rounds 5, score 0.2"]
    path = re.search(r'<path d="M ([\d. ]+?) \nL ([\d. ]+?) \nL ([\d. ]+?) \n" clip-path', svg)
    assert path
    drawn = [tuple(map(float, point.split())) for point in path.groups()]
    for (x, y, _), (at_x, at_y) in zip(found, drawn, strict=True):
        assert (x, y) == (pytest.approx(at_x, abs=0.2), pytest.approx(at_y, abs=0.2))


def test_several_lines_say_which() -> None:
    lines = [Line(name, [1.0], [0.5], place=place) for place, name in enumerate(("<a>", "b"))]
    told = [text for *_, text in spots(chart("x", lines, Axis("rounds", "score")).svg())]
    assert told == ["<a>: rounds 1, score 0.5", "b: rounds 1, score 0.5"]


def test_bars_and_intervals_tell_their_values() -> None:
    assert [text for *_, text in spots(bars("x", ["a", "b"], [0.25, -1.0], "share", errors=[0.1, 0.2]).svg())] == [
        "a: 0.25 ± 0.1",
        "b: -1 ± 0.2",
    ]
    assert spots(intervals("x", ["a"], [0.5], [(0.4, 0.7)], "AUC").svg())[0][2] == "a: 0.5 (0.4 to 0.7)"


def test_a_long_line_tells_some_of_its_points_and_the_last() -> None:
    told = list(along("", list(range(10_000)), [0.0] * 10_000, ("x", "y")))
    assert len(told) <= MOST + 1
    assert (told[0].x, told[-1].x) == (0, 9_999)


def pages_of(html: str, folder: Path) -> int:
    """How many pages Chromium prints."""
    page, paper = folder / "page.html", folder / "page.pdf"
    page.write_text(html, encoding="utf-8")
    command = [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}"]
    subprocess.run([*command, f"--print-to-pdf={paper}", page.as_uri()], capture_output=True, timeout=180, check=True)
    return len(re.findall(rb"/Type /Page\b(?!s)", paper.read_bytes()))


@needs_chromium
def test_one_run_takes_at_most_six_pages_of_paper(
    trained: dict[tuple[str, int], dict[str, Any]], tmp_path: Path
) -> None:
    assert 1 <= pages_of(render([explained_record(trained["vimadmm", 0])]), tmp_path) <= MOST_PAGES


@needs_chromium
def test_of_several_runs_paper_has_what_is_unfolded(
    trained: dict[tuple[str, int], dict[str, Any]], tmp_path: Path
) -> None:
    html = render(list(trained.values()))
    folded, unfolded = (pages_of(text, tmp_path) for text in (html, html.replace("<details>", "<details open>")))
    assert 1 <= folded <= MOST_PAGES
    assert folded < unfolded
