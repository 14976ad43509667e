"""Beside the page: the same as Markdown and as JSON, and every picture as SVG and PNG."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from colonnade.report.html import beside, clear_report, write_report
from colonnade.report.markdown import plain, verbatim
from colonnade.report.repeat import configuration
from tests.report.conftest import METHODS
from tests.report.test_explained import explained_record
from tests.report.test_page import Reader

Runs = dict[tuple[str, int], dict[str, Any]]


@pytest.fixture(scope="module")
def one(trained: Runs, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report([explained_record(trained["vimadmm", 0])], tmp_path_factory.mktemp("one")).parent


@pytest.fixture(scope="module")
def several(trained: Runs, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(list(trained.values()), tmp_path_factory.mktemp("several")).parent


def data(folder: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((folder / "report.json").read_text(), parse_constant=pytest.fail)
    return read


def test_all_lie_together(one: Path, several: Path) -> None:
    both = {"report.html", "report.md", "report.json", "pictures"}
    assert {p.name for p in several.iterdir()} == both
    assert {p.name for p in one.iterdir()} == {*both, "model-card.md"}


def test_a_model_card_says_how_good_it_is_for_whom_and_what_is_not_protected(one: Path, several: Path) -> None:
    card, facts = (one / "model-card.md").read_text(), data(one)
    for heading in ("What it is for", "What it must not be used for", "Data", "How good it is", "What is protected"):
        assert f"## {heading}" in card
    assert card.count("Not said yet.") == 2  # what only people can know is not made up
    assert plain(facts["verdict"]) in card
    assert "95 % interval" in card
    assert "No noise was used" in card


def test_every_picture_is_there_twice_and_is_what_it_says(one: Path, several: Path) -> None:
    for folder in (one, several):
        named = [name for picture in data(folder)["pictures"] for name in picture["files"]]
        assert {str(p.relative_to(folder)) for p in (folder / "pictures").iterdir()} == set(named)
        assert len(named) == len(set(named)) >= 8
        for name in named:
            content = (folder / name).read_bytes()
            if name.endswith("png"):
                assert content.startswith(b"\x89PNG\r\n\x1a\n")
            else:
                assert ElementTree.fromstring(content).tag.endswith("svg")
                assert b"#c0ff" not in content  # the page's placeholders
                assert b"var(--" not in content


def test_a_picture_of_several_lines_has_its_own_legend(several: Path) -> None:
    text = (several / "pictures" / "score-rounds.svg").read_text()
    assert all(f">{method}</text>" in text for method in METHODS)


def test_the_object_says_what_it_is_and_what_happened(one: Path, trained: Runs) -> None:
    record, said = trained["vimadmm", 0], data(one)
    assert (said["schema"], said["version"], said["kind"], said["comparison"]) == ("colonnade-report", 1, "run", None)
    (run,) = said["runs"]
    assert run["result"]["test_score"] == record["result"]["test_score"]
    assert run["classes"]["confusion"] == record["result"]["confusion"]
    assert run["classes"]["accuracy"] == pytest.approx(record["result"]["class_accuracy"])
    assert run["curve"]["rounds"] == [2, 4]
    assert len(run["curve"]["scores"]) == len(run["curve"]["megabytes"]) == len(run["curve"]["simulated"]) == 2
    assert {party["name"]: party["up"] for party in run["parties"]} == {
        name: traffic["up"] for name, traffic in record["traffic"]["per_party"].items()
    }
    assert run["privacy"]["statement"].keys() >= {"epsilon", "unit", "neighbours", "delta", "accountant", "not_covered"}
    assert run["repeat"] == {"file": "run.toml", "command": "colonnade train run.toml", "toml": configuration(record)}
    assert run["explanation"]["norm"] == [3.0, 1.0, 4.0, 2.0]
    assert run["fingerprint"] == record["fingerprint"]


def test_the_object_of_a_comparison(several: Path, trained: Runs) -> None:
    said = data(several)
    assert said["kind"] == "comparison"
    methods = {method["label"]: method for method in said["comparison"]["methods"]}
    assert set(methods) == set(METHODS)
    scores = [trained["vimadmm", seed]["result"]["test_score"] for seed in (0, 1)]
    assert methods["vimadmm"]["test_score"]["mean"] == pytest.approx(sum(scores) / 2)
    assert [run["id"] for run in said["runs"]] == [record["id"] for record in trained.values()]
    assert len(said["comparison"]["tables"][0]["rows"]) == len(METHODS)


def test_markdown_says_what_the_page_says(one: Path, several: Path) -> None:
    for folder in (one, several):
        page, text = Reader((folder / "report.html").read_text()), (folder / "report.md").read_text()
        bare = re.sub(r"\\(.)", r"\1", text)
        for sentence in data(folder)["summary"]:
            assert sentence in bare and sentence in page.text
        captions = re.findall(r"<caption><span>(.*?)</span></caption>", (folder / "report.html").read_text())
        assert captions
        missing = [c for c in captions if c.split("&")[0] not in bare and c != "Confusion matrix of the test rows"]
        assert missing == []
        for target in re.findall(r"\]\((pictures/[^)]+)\)", text):
            assert (folder / target).is_file()


def test_tables_of_markdown_have_as_many_cells_in_every_row(several: Path) -> None:
    blocks = (several / "report.md").read_text().split("\n\n")
    tables = [block.splitlines() for block in blocks if block.startswith("|")]
    assert len(tables) > 10
    for table in tables:
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table}) == 1, table[0]


def test_a_name_cannot_become_markup(record: dict[str, Any], tmp_path: Path) -> None:
    evil = "<img src=x>|[a](b)`\n# *x*"
    record["about"]["federation"] = record["about"]["parties"][0]["name"] = evil
    record["traffic"]["per_party"][evil] = {"up": 1, "down": 1}
    text = write_report([record], tmp_path).with_suffix(".md").read_text()
    assert re.search(r"(?<!\\)<img|(?<!\\)\[a\]|^# \*x", text, re.MULTILINE) is None
    assert r"\<img src=x\>\|\[a\](b)\` \# \*x\*" in text


def test_plain_and_verbatim() -> None:
    assert plain("a_b\n|c") == r"a\_b \|c"
    assert verbatim("x = '```'\n") == "````\nx = '```'\n````"


def test_the_same_records_give_the_same_bytes(one: Path, trained: Runs, tmp_path: Path) -> None:
    again = write_report([explained_record(trained["vimadmm", 0])], tmp_path).parent
    for path in sorted(one.rglob("*.*")):
        assert path.read_bytes() == (again / path.relative_to(one)).read_bytes(), path.name


def test_a_page_of_another_name_has_files_of_that_name(record: dict[str, Any], tmp_path: Path) -> None:
    path = write_report([record], tmp_path / "both.html")
    assert beside(path) == tuple(tmp_path / name for name in ("both.md", "both.json", "both-pictures"))
    assert all(place.exists() for place in beside(path))
    assert "](both-pictures/" in (tmp_path / "both.md").read_text()


def test_the_page_alone(record: dict[str, Any], tmp_path: Path) -> None:
    path = write_report([record], tmp_path, page_only=True)
    assert list(tmp_path.iterdir()) == [path]


def test_clearing_takes_the_report_and_nothing_else(record: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "mine.txt").touch()
    write_report([record], tmp_path)
    clear_report(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
    clear_report(tmp_path)  # nothing there: nothing to do
