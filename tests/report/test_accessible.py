"""axe-core finds nothing serious, in light and in dark. What needs no browser is in test_page.py and always runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from colonnade import fit
from colonnade.report.html import render, render_page
from colonnade.report.officer import page
from colonnade.report.officer_source import of_run
from tests.federations import small
from tests.report.browser import axe_core, found, needs_chromium, opened, with_script
from tests.report.test_explained import explained_record

pytestmark = [needs_chromium, pytest.mark.xdist_group("axe")]

ASK = """
document.querySelectorAll("details").forEach(fold => { fold.open = true; });
const dark = matchMedia("(prefers-color-scheme: dark)").matches;
axe.run().then(said => {
  const told = said.violations.map(v => ({id: v.id, impact: v.impact, at: v.nodes.map(n => n.html.slice(0, 200))}));
  document.documentElement.innerHTML = '<body><pre id="found"></pre></body>';
  document.getElementById("found").textContent = JSON.stringify({dark, told, passed: said.passes.length});
});
"""


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    return axe_core(tmp_path_factory.mktemp("axe"))


@pytest.fixture(scope="module")
def pages(trained: dict[tuple[str, int], dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    explained, folder = explained_record(trained["vimadmm", 0]), tmp_path_factory.mktemp("run") / "run"
    fit(small(), "vimadmm", rounds=2, out=folder, progress=False)
    officer = render_page("officer.html.j2", page(of_run(folder, "party_1")))
    several = render([explained, *list(trained.values())[1:]])
    return {"one": render([explained]), "several": several, "officer": officer}


def findings(page: str, axe: str, folder: Path, *, dark: bool) -> list[dict[str, Any]]:
    said = json.loads(found(opened(with_script(page, axe, ASK), folder, dark=dark)))
    assert said["dark"] is dark
    assert said["passed"] > 20
    return [one for one in said["told"] if one["impact"] in ("moderate", "serious", "critical")]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("name", ["one", "several", "officer"])
def test_axe_finds_nothing(name: str, dark: bool, pages: dict[str, str], axe: str, tmp_path: Path) -> None:
    assert findings(pages[name], axe, tmp_path, dark=dark) == []


def test_axe_would_find_a_picture_without_words_and_pale_letters(
    pages: dict[str, str], axe: str, tmp_path: Path
) -> None:
    bad = pages["one"].replace("</main>", '<img src="data:,"><p style="color: #ccc; background: #fff">pale</p></main>')
    assert {one["id"] for one in findings(bad, axe, tmp_path, dark=False)} >= {"image-alt", "color-contrast"}
