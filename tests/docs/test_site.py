"""The documentation as a site: builds without a warning, is light, loads nothing from elsewhere, can be read by all."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote, urlsplit

import pytest
from mkdocs.exceptions import PluginError

from colonnade.methods import METHODS
from tests.architecture.source import ROOT
from tests.python_files import as_module
from tests.report.browser import axe_core, found, needs_chromium, opened, with_script
from tests.report.test_accessible import ASK

pytestmark = pytest.mark.xdist_group("site")
SHOWN = ("index.html", "examples/credit.html", "methods/vimadmm.html", "reference/python.html", "configuration.html")
MOST_BYTES = 1_000_000  # of a page with all it loads
TYPE = """
const write = (text) => {
  const found = document.createElement("pre");
  found.id = "found";
  found.textContent = text;
  document.body.append(found);
};
const box = document.querySelector("input[name=query]");
let tries = 0;
const look = setInterval(() => {
  const links = [...document.querySelectorAll(".md-search-result__link")].map((link) => link.getAttribute("href"));
  if (links.length || ++tries > 200) { clearInterval(look); write(JSON.stringify(links)); return; }
  box.focus();
  box.value = "withdrawal";
  box.dispatchEvent(new Event("keyup", { bubbles: true }));
  box.dispatchEvent(new Event("input", { bubbles: true }));
}, 100);
"""


class Loaded(HTMLParser):
    """What a page loads: scripts, styles, pictures."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        loads = tag in ("script", "img", "iframe", "source") or (
            tag == "link" and given.get("rel") in ("stylesheet", "icon")
        )
        at = given.get("src") or given.get("href")
        if loads and at and not at.startswith("data:"):
            self.found.append(at)


def build(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]  # --quiet hides warnings
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}  # mkdocs-material says that it ends in 2027
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "site"
    done = build(folder)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr
    assert "WARNING" not in done.stderr, done.stderr
    return folder


def test_every_page_is_light_and_loads_nothing_from_elsewhere(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 60
    index = (site / "search/search_index.json").stat().st_size  # a script of every page loads it, or its copy .js
    for page in pages:
        weight = index + page.stat().st_size
        for at in Loaded(page.read_text(encoding="utf-8")).found:
            assert not urlsplit(at).netloc, f"{page.relative_to(site)} loads {at}"
            here = site / at.lstrip("/") if at.startswith("/") else page.parent / unquote(urlsplit(at).path)
            weight += here.stat().st_size
        assert weight < MOST_BYTES, f"{page.relative_to(site)}: {weight:,} bytes"


def test_all_options_and_methods_are_there(site: Path) -> None:
    commands = (site / "reference/commands.html").read_text(encoding="utf-8")
    assert all(text in commands for text in ("colonnade privacy calibrate", "--data-dir", "SECTION.KEY=VALUE"))
    methods = (site / "reference/methods.html").read_text(encoding="utf-8")
    assert all(f"<code>{name}</code>" in methods for name in ("vimadmm", "one_message", "local_steps", "head_update"))


def test_equations_are_drawn(site: Path) -> None:
    for path in sorted((ROOT / "docs").rglob("*.md")):
        text = re.sub(r"```.*?```|`[^`]*`", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        if "$$" in text:
            page = site / path.relative_to(ROOT / "docs").with_suffix(".html")
            assert "<math" in page.read_text(encoding="utf-8"), path


def test_nothing_is_left_of_the_notation_of_equations(site: Path) -> None:
    for name in (*METHODS, "index"):
        html = (site / "methods" / f"{name}.html").read_text(encoding="utf-8")
        text = re.sub(r"<(script|style|pre|code)\b.*?</\1>", "", html, flags=re.DOTALL)
        left = re.findall(r".{0,40}(?:\$|\\[a-z]+).{0,40}", re.sub(r"<[^>]*>", " ", text))
        assert left == [], f"{name}: {left}"


def test_the_table_of_methods_has_each_with_what_it_needs(site: Path) -> None:
    html = (site / "methods/index.html").read_text(encoding="utf-8")
    found = {row[0]: row for row in rows_of(html) if len(row) == 6 and row[0] != "method"}
    assert sorted(found) == sorted(METHODS), "docs/methods/README.md: a row of six cells for each method"
    for name, made in METHODS.items():
        told = {"each": "no", "total": "yes", "nothing": "yes"}[made.needs_uploads]
        assert found[name][5] == ("not needed" if made.pools else told), name


def rows_of(html: str) -> list[list[str]]:
    """The rows of all tables, cell by cell as plain text."""
    tables = [part.partition("</table>")[0] for part in re.split(r"<table\b", html)[1:]]
    rows = [row for table in tables for row in re.split(r"<tr\b[^>]*>", table)[1:]]
    cells = [[re.sub(r"<[^>]*>", "", cell) for cell in re.split(r"<t[dh]\b[^>]*>", row)[1:]] for row in rows]
    return [[unescape(cell).strip() for cell in row] for row in cells]


def test_figures_are_all_there_and_light(site: Path) -> None:
    """Cells say neither where they stand nor that they end: that was most of the page."""
    html = (site / "benchmarks/figures.html").read_text(encoding="utf-8")
    text = (ROOT / "benchmarks/README.md").read_text(encoding="utf-8")
    blocks = "".join(re.findall(r"<!-- figures of .*?<!-- end of figures -->", text, re.DOTALL))
    told = [[cell.strip(" `*") for cell in line.split("|")[1:-1]] for line in blocks.splitlines() if "|" in line]
    wanted = [row for row in told if not row[0].startswith("---")]
    assert len(wanted) > 500
    shown = Counter(map(tuple, rows_of(html)))
    assert not Counter(map(tuple, wanted)) - shown
    assert "</td>" not in html and "text-align" not in html and "<!-- figures of" not in html


def test_columns_of_numbers_stand_on_the_right(hooks: ModuleType) -> None:
    head = "<thead>\n<tr>\n<th>figure</th>\n" + '<th style="text-align: right;">result</th>\n</tr>\n</thead>\n'
    body = '<tbody>\n<tr>\n<td><code>x</code></td>\n<td style="text-align: right;">1.5</td>\n</tr>\n</tbody>\n'
    made = hooks._light(f"<table>\n{head}{body}</table>")
    assert made == ('<table data-right="2"><thead><tr><th>figure<th>result<tbody><tr><td><code>x</code><td>1.5</table>')
    style = (ROOT / "docs/style.css").read_text(encoding="utf-8")
    assert '[data-right~="2"] :is(th, td):nth-child(2)' in style
    words = "<table>\n<tbody>\n<tr>\n<td><p>two\n<em>lines</em>\nof text</p></td>\n</tr>\n</tbody>\n</table>"
    assert "two\n<em>lines</em>\nof text" in hooks._light(words)


def test_the_style_knows_every_column_of_numbers(site: Path) -> None:
    places = {
        int(place)
        for page in site.rglob("*.html")
        for found in re.findall(r'<table data-right="([\d ]+)"', page.read_text(encoding="utf-8"))
        for place in found.split()
    }
    style = (ROOT / "docs/style.css").read_text(encoding="utf-8")
    assert places and all(f'[data-right~="{n}"] :is(th, td):nth-child({n})' in style for n in places)


@pytest.fixture(scope="module")
def hooks() -> ModuleType:
    return as_module(ROOT / "docs/hooks.py")


class TestEquations:
    def test_one_that_begins_a_line_stays_in_its_paragraph(self, hooks: ModuleType) -> None:
        assert hooks._equations("takes\n$x$ steps").startswith("takes\n<span><math")

    def test_one_on_lines_of_its_own_is_a_block(self, hooks: ModuleType) -> None:
        assert '<div><math xmlns="http://www.w3.org/1998/Math/MathML" display="block">' in hooks._equations("$$\nx\n$$")

    def test_bars_know_their_side_and_cut_no_table(self, hooks: ModuleType) -> None:
        drawn = hooks._equations(r"| $\lVert x \rVert^2 + \lvert y \rvert$ | cell |")
        assert (drawn.count('form="prefix"'), drawn.count('form="postfix"'), drawn.count("|")) == (2, 2, 3)

    def test_a_side_that_is_given_is_kept(self, hooks: ModuleType) -> None:
        assert hooks._equations(r"$\left\lVert x \right\rVert$").count("<mo ") == 2

    def test_an_unknown_command_is_refused(self, hooks: ModuleType) -> None:
        for latex in (r"\nosuchcommand x", r"\begin{aligned} a &= b \end{aligned}"):
            with pytest.raises(PluginError, match="does not know"):
                hooks._equations(f"${latex}$")

    def test_code_is_not_touched(self, hooks: ModuleType) -> None:
        text = "`$x$` and\n\n```\n$$\nx\n$$\n```\n"
        assert hooks._outside_code(text, hooks._equations) == text


@needs_chromium
@pytest.mark.parametrize("name", ["index.html", "tutorials/tables.html"])
def test_search_works_from_a_folder(name: str, site: Path) -> None:
    page = site / name
    links = json.loads(found(opened(with_script(page.read_text(encoding="utf-8"), TYPE), page.parent)))
    assert any(urlsplit(link).path.endswith("/withdrawal.html") for link in links), links


@needs_chromium
@pytest.mark.parametrize("name", SHOWN)
def test_axe_finds_nothing_serious(name: str, site: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    axe = axe_core(tmp_path_factory.getbasetemp() / "axe-of-the-site")
    page = site / name
    still = re.sub(
        r"<script.*?</script>", "", page.read_text(encoding="utf-8"), flags=re.DOTALL
    )  # nothing moves meanwhile
    said = json.loads(found(opened(with_script(still, axe, ASK), page.parent)))
    assert said["passed"] > 20
    serious = [one for one in said["told"] if one["impact"] in ("serious", "critical")]
    assert serious == [], json.dumps(serious, indent=1)
