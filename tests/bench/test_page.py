"""The pages show the figures of the result files: all of them, none by hand, and each next to where it comes from."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from colonnade.bench.catalogue import CHECKOUT, find, read_bench
from colonnade.bench.chart import draw
from colonnade.bench.controls import controls
from colonnade.bench.outcome import Outcome, read
from colonnade.bench.page import MISSING, UNFINISHED, command, figures, fill, number, refresh, spread_key
from colonnade.bench.pages import CHART, CHARTED, DOCUMENT, write_pages
from colonnade.bench.paper_page import page
from colonnade.errors import ConfigError

RESULTS = CHECKOUT / "benchmarks" / "results"
PAGE = CHECKOUT / "benchmarks" / "README.md"
SVG = "{http://www.w3.org/2000/svg}"
MARKS = "<!-- figures of {} -->\n<!-- end of figures -->\n"
FOUND: dict[str, Any] = {
    "bench": "mine",
    "results": {"score": 98.0967, "score_std": 0.0472, "old_ms": 12.5, "score.a": 90.0, "score_std.a": 1.0},
    "targets": {"score": {"at_least": 90.0}},  # of then: the page goes by those of now
    "passed": False,
    "machine": {"cpu": "A CPU", "cores": 2, "gpu": None, "device": "cpu"},
    "commit": "0123456789abcdef0123456789abcdef01234567",
}
TOML = """title = "t"
kind = "speed"
options = "--seeds 5"
[targets]
score = { at_least = 97.8 }
new_ms = { at_most = 10.0 }
gone = { at_least = 1.0 }
[paper]
score = 97.5
"score.a" = "about 90"
[renamed]
old_ms = "new_ms"
"""


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small checkout with one benchmark, its result, and two pages."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "benchmarks" / "results").mkdir(parents=True)
    (tmp_path / "benchmarks" / "mine.toml").write_text(TOML)
    (tmp_path / "benchmarks" / "results" / "mine.json").write_text(json.dumps(FOUND))
    (tmp_path / "benchmarks" / "README.md").write_text("Before.\n\n" + MARKS.format("mine") + "\nAfter.\n")
    (tmp_path / "README.md").write_text('So good: [1.0 %](benchmarks/results/mine.json "score").\n')
    return tmp_path


def test_the_committed_pages_are_what_the_result_files_give(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(CHECKOUT)
    for path, make in ((PAGE, fill), (CHECKOUT / "README.md", refresh)):
        text = path.read_text(encoding="utf-8")
        assert make(text, RESULTS) == text, f"{path.name} differs from the results: colonnade bench --write-pages"
    paper = (CHECKOUT / DOCUMENT).read_text(encoding="utf-8")
    assert page(RESULTS) == paper, f"{DOCUMENT} differs from the results: colonnade bench --write-pages"
    chart = draw(read(RESULTS / CHARTED))
    assert (CHECKOUT / CHART).read_text(encoding="utf-8") == chart, "colonnade bench --write-pages"


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.json")), ids=lambda path: path.stem)
def test_every_figure_of_a_result_file_is_on_the_page(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(CHECKOUT)
    outcome, bench = read(path), find(read(path).bench)
    block = PAGE.read_text(encoding="utf-8").partition(f"<!-- figures of {path.stem} -->")[2].partition("<!-- end")[0]
    rows = dict(re.findall(r"^\| `([\w.=,]+)` \| ([^|]+) \|", block, re.MULTILINE))
    folded = {spread_key(key, outcome.results) for key in outcome.results} - {None}  # spreads have no row of their own
    assert len(rows) == len(outcome.results) - len(folded)
    for key, value in outcome.results.items():
        if key not in folded:
            shown = float(rows[bench.renamed.get(key, key)].replace(",", ""))
            assert shown == pytest.approx(value, rel=1e-3), key
    assert outcome.commit[:12] in block and "colonnade bench " + outcome.bench in block
    assert set(bench.paper) <= set(outcome.results), "the paper's figure stands beside none of ours"


def test_a_block_shows_results_spread_targets_paper_and_where_from(checkout: Path) -> None:
    assert write_pages() == [Path("benchmarks/README.md"), Path("README.md")]
    page = (checkout / "benchmarks" / "README.md").read_text()
    for line in (
        "| `score` | 98.10 | 0.047 | ≥ 97.8 | yes | 97.50 |",
        "| `new_ms` | 12.50 |  | ≤ 10 | **no** |  |",
        "| `score.a` | 90 | 1 |  |  | about 90 |",
        "| `gone` | not measured |  | ≥ 1 | **no** |  |",
        "`colonnade bench mine --seeds 5 --out benchmarks/results/mine.json` · A CPU, 2 cores · "
        "commit `0123456789ab` · [mine.json](results/mine.json)",
    ):
        assert line in page.splitlines()
    assert page.startswith("Before.\n") and page.endswith("\nAfter.\n") and "score_std" not in page
    assert (checkout / "README.md").read_text() == 'So good: [98.1 %](benchmarks/results/mine.json "score").\n'
    assert write_pages() == []  # nothing changes a second time


def test_another_result_is_another_page(checkout: Path) -> None:
    write_pages()
    path = checkout / "benchmarks" / "results" / "mine.json"
    path.write_text(json.dumps({**FOUND, "results": {**FOUND["results"], "score": 12.3}}))
    assert len(write_pages()) == 2
    assert "| `score` | 12.30 | 0.047 | ≥ 97.8 | **no** | 97.50 |" in (checkout / "benchmarks/README.md").read_text()
    path.unlink()
    (checkout / "README.md").write_text("no figures")
    write_pages()
    assert MISSING in (checkout / "benchmarks/README.md").read_text()


def test_a_renamed_figure_is_found_by_either_name(checkout: Path) -> None:
    results = checkout / "benchmarks" / "results"
    for name in ("old_ms", "new_ms"):
        link = f'](benchmarks/results/mine.json "{name}")'
        assert refresh(f"[9.0 ms{link}", results) == f"[12.5 ms{link}"


def test_what_cannot_be_shown_is_refused(checkout: Path) -> None:
    results = checkout / "benchmarks" / "results"
    with pytest.raises(ConfigError, match="no block <!-- figures of mine -->"):
        fill("Nothing.", results)
    (results / "more.json").write_text(json.dumps(FOUND))
    with pytest.raises(ConfigError, match="no block <!-- figures of more -->"):
        fill(MARKS.format("mine"), results)
    with pytest.raises(ConfigError, match=r"mine.json has no 'typo'"):
        refresh('[1](benchmarks/results/mine.json "typo")', results)
    (results / "mine.json").write_text('{"bench": "mine"}')
    with pytest.raises(ConfigError, match=r"mine.json is no result of a benchmark"):
        fill(MARKS.format("mine") + MARKS.format("more"), results)
    (checkout / "README.md").unlink()
    (results / "mine.json").write_text(json.dumps(FOUND))
    (checkout / "benchmarks" / "README.md").write_text(MARKS.format("mine") + MARKS.format("more"))
    with pytest.raises(ConfigError, match="there is no"):
        write_pages()


@pytest.mark.parametrize(
    ("value", "shown"),
    [(98.0967, "98.10"), (1060.8, "1061"), (0.245976, "0.2460"), (20.0, "20"), (1.4855e-5, "1.485e-05"), (0.0, "0")],
)
def test_numbers_have_four_digits(value: float, shown: str) -> None:
    assert number(value) == shown


def test_the_spread_of_a_budget_is_found() -> None:
    results = {"accuracy_eps8.vafl": 47.0, "accuracy_std_eps8.vafl": 4.5, "epoch2.vafl": 1.5, "epoch2.vafl_std": 0.5}
    bench = read_bench("x", {"title": "t", "kind": "private", "data": {"set": "mnist"}})
    outcome = Outcome("x", results, {}, {"device": "cuda:0"}, "unknown")
    assert [(row.key, row.spread) for row in figures(outcome, bench)] == [
        ("accuracy_eps8.vafl", "4.5"), ("epoch2.vafl", "0.50"),
    ]  # fmt: skip
    assert command("y", bench, outcome) == (
        "colonnade bench x --data-dir DIR --device cuda --out benchmarks/results/y.json"
    )


def test_the_chart_shows_every_method_and_names_those_that_never_got_there() -> None:
    results = {"test_accuracy.vafl": 97.4, "mb_to_96.vafl": 1060.8, "test_accuracy.vimadmm": 98.1}
    results |= {"mb_to_96.vimadmm": 106.08, "test_accuracy.linear_admm": 92.0}
    picture = ElementTree.fromstring(draw(Outcome("mnist-zoo", results, {}, {}, "unknown")))
    told = [text.text for text in picture.iter(f"{SVG}text")]
    assert told[2:] == [
        "VIMADMM", "106 MB, test accuracy 98.1 %", "VAFL", "1,061 MB, test accuracy 97.4 %",
        "Never reached 96 %: Linear-ADMM (92.0 %)",
    ]  # fmt: skip
    short, long = (float(bar.attrib["width"]) for bar in list(picture.iter(f"{SVG}rect"))[1:])
    assert short == pytest.approx(long / 10, abs=0.1)


def test_no_accuracy_under_noise_stands_without_its_controls() -> None:
    def told(**results: float) -> str:
        found = {key.replace("__", "."): value for key, value in results.items()}
        return controls(replace(read(RESULTS / CHARTED), results=found))

    both = {"accuracy_eps8__vimadmm": 93.0, "accuracy_eps8__local_only": 97.448, "accuracy_eps2.8__vimadmm": 95.0}
    assert told(**both, **{"accuracy_eps8__vimadmm_no_signal": 92.0}) == (
        "What is not due to uploads, beside these figures: `eps8`: `local_only` has 97.45, uploads without their "
        "signal 92.00; `eps2.8`: `local_only` has (not measured), uploads without their signal (not measured)."
    )
    assert "`local_only` has 97.00, uploads without their signal (not measured)" in told(
        epsilon_spent__vfl_pbm=300.0, test_accuracy__local_only=97.0
    )
    assert "(not measured)" in told(test_accuracy__eps1_25=80.0)
    assert told(test_accuracy__vimadmm=98.0, epsilon_spent__local_only=0.0) == ""


def test_a_table_that_is_being_filled_is_shown_and_says_where_it_is(checkout: Path) -> None:
    write_pages()
    benchmarks = checkout / "benchmarks"
    whole = (benchmarks / "README.md").read_text()
    (benchmarks / UNFINISHED).mkdir()
    (benchmarks / "results" / "mine.json").rename(benchmarks / UNFINISHED / "mine.json")
    (checkout / "README.md").write_text("no figures")
    write_pages()
    filling = (benchmarks / "README.md").read_text()
    assert filling == whole.replace("](results/mine.json)", "](unfinished/mine.json)") != whole
