"""What people read has no markup of ours and no path of a checkout: a reader of a page can follow neither."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pydantic import BaseModel

from colonnade.cli.training import tell
from colonnade.federation import Federation
from colonnade.fit import fit
from colonnade.methods import METHODS, make_method
from colonnade.models.encoders import ModelSettings
from colonnade.privacy.settings import PrivacySettings
from colonnade.report import words
from colonnade.report.html import render, render_page, write_report
from colonnade.report.officer import page
from colonnade.report.officer_source import of_run
from colonnade.report.record import read_records
from colonnade.run import Training
from tests.federations import small
from tests.report.conftest import train
from tests.report.test_explained import explained_record
from tests.report.test_officer import KINDS, runs
from tests.report.test_page import Reader

__all__ = ["runs"]  # a fixture
NAV = Path(__file__).parents[2] / "mkdocs.yml"
SOURCE = Path(__file__).parents[2] / "src" / "colonnade"
PAGE = re.compile(r"documentation, page (\\?[\"'])(.+?)\1")


def strange(text: str) -> list[str]:
    """Back-ticks and paths of a checkout, with the words around them."""
    return [text[max(0, m.start() - 60) : m.end() + 60] for m in re.finditer(r"`|docs/|\.md\b", text)]


class Lines:
    """A terminal that keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def notify(self, text: str = "") -> None:
        self.told.append(text)


@pytest.mark.parametrize("task", ["binary", "multiclass", "multilabel", "regression", "count"])
def test_pages_of_every_task(task: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # so short a training is no better than a guess
        record = train("vimadmm_j", task=task)
    assert strange(Reader(render([record])).text) == []


@pytest.mark.parametrize("scale", [250_000.0, 3e-6])
def test_no_powers_of_ten_for_numbers_of_ordinary_size(scale: float) -> None:
    draw = np.random.default_rng(0)
    bank, telco = pd.DataFrame({"a": draw.normal(size=300)}), pd.DataFrame({"b": draw.normal(size=300)})
    bank["price"] = scale * (4 + bank["a"] + telco["b"] + draw.normal(size=300))
    federation = Federation.from_tables({"bank": bank, "telco": telco}, labels="price", task="regression")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # so short a training is no better than a guess
        run = fit(federation, "vimadmm_j", rounds=2, metric="rmse", progress=False)
    record = json.loads(json.dumps(run.record()))
    page = render([record])
    shown = Reader(page).text + "".join(re.findall(r"<title>([^<]*)</title>", page))
    (rmse,) = re.findall(r"RMSE ([\d.,]+\d)", words.how_good(record))[:1]
    assert float(rmse.replace(",", "")) == pytest.approx(record["result"]["test_score"], rel=0.01)
    in_a_file = {"1e-05", "1e-08"}  # settings stand as they would in a file
    powers = set(re.findall(r"(?<!\w)\d(?:\.\d+)?e[+-]?\d+\b", shown))
    assert powers - in_a_file == set()


@pytest.mark.parametrize("kind", KINDS)
def test_pages_cards_and_terminal_of_every_promise(kind: str, runs: Path, tmp_path: Path) -> None:
    (record,) = read_records([runs / kind])
    written = write_report([record], tmp_path)
    assert strange(Reader(written.read_text()).text) == []
    assert strange(written.with_name("model-card.md").read_text().replace("\\`", "`")) == []
    assert strange(Reader(render_page("officer.html.j2", page(of_run(runs / kind, "party_1")))).text) == []
    screen: Any = Lines()
    tell(screen, record, Path("runs/first"))
    assert strange("\n".join(screen.told)) == []


def test_pages_of_an_explained_run_and_of_several(trained: dict[tuple[str, int], dict[str, Any]]) -> None:
    explained = explained_record(trained["vimadmm", 0])
    damaged = {**trained["vimadmm", 0], "unexplained": "explain.json is damaged"}
    for records in ([explained], [damaged], [explained, *list(trained.values())[1:]]):
        assert strange(Reader(render(records)).text) == []


@pytest.mark.parametrize("method", METHODS)
def test_meanings_of_settings_are_plain(method: str) -> None:
    """They stand in the report's table of settings."""
    for settings in (make_method(method, {}), Training(), ModelSettings(), PrivacySettings()):
        for name, meaning in meanings(settings):
            assert strange(meaning) == [], name


def meanings(settings: BaseModel) -> Iterator[tuple[str, str]]:
    for name, field in type(settings).model_fields.items():
        yield name, field.description or ""
        if isinstance(inner := getattr(settings, name), BaseModel):
            yield from meanings(inner)


def test_pages_of_the_documentation_that_are_named_exist() -> None:
    titles = set(re.findall(r"^ *- ([^:\n]+):", NAV.read_text(), flags=re.MULTILINE))
    named = {found[1] for file in SOURCE.rglob("*.py") for found in PAGE.findall(file.read_text())}
    assert len(named) > 5
    assert named - titles == set()


def test_no_text_names_a_file_of_the_documentation() -> None:
    """Comments may; a text that a user reads may not, and those begin with a quotation mark on their line."""
    shown = re.compile(r"^[^#]*\"[^\"#]*\bdocs/\w", flags=re.MULTILINE)
    files = [file for file in SOURCE.rglob("*.py") if "bench" not in file.parts]  # whose pages are of a checkout
    found = {
        f"{file.relative_to(SOURCE)}: {line.strip()}"
        for file in files
        for line in file.read_text().splitlines()
        if shown.search(line) and '"""' not in line
    }
    assert found == set()


def test_a_run_in_a_notebook_is_plain() -> None:
    from colonnade.report.notebook import of_run as card

    assert strange(card(fit(small(), "vimadmm", rounds=1, progress=False))) == []
