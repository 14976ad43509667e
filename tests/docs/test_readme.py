"""The README does what it says: its examples run, it is short, its pictures are there, links lead somewhere.

That its figures are those of the result files is checked in tests/bench/test_page.py.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import colonnade
from colonnade.bench.catalogue import find
from colonnade.bench.outcome import read
from colonnade.bench.page import SHOWN, command

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
RESULTS = sorted((ROOT / "benchmarks" / "results").glob("*.json"))
EXAMPLES = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
ROWS = [line for line in README.splitlines() if line.startswith("|")]
PAGES = ["README.md", "CONTRIBUTING.md", "docs/README.md", "docs/architecture.md", "benchmarks/README.md"]


def test_the_ten_lines_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(EXAMPLES[0], "README.md", "exec"), {})  # noqa: S102 - the README's own example
    accuracy, _, stop = capsys.readouterr().out.partition(" ")
    assert float(accuracy) > 0.95
    assert stop.startswith("all rounds done")
    assert (tmp_path / "runs" / "first" / "run.json").exists()
    assert (tmp_path / "runs" / "first" / "report.html").exists()


def customers(count: int, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    rng = np.random.default_rng(seed)
    income, minutes = rng.normal(40_000, 8_000, count), rng.gamma(2.0, 50.0, count)
    churn = np.where((income - 40_000) / 8_000 > (minutes - 100) / 70, "stays", "leaves")
    bank = pd.DataFrame({"customer": range(count), "income": income})
    return bank, pd.DataFrame({"customer": range(count), "minutes": minutes, "churn": churn})


def test_the_example_with_tables_scores_new_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (bank, telco), (new_bank, new_telco) = customers(300, 1), customers(200, 2)
    truth = new_telco.pop("churn")
    known: dict[str, Any] = {"cn": colonnade, "bank": bank, "telco": telco}
    known |= {"new_bank": new_bank, "new_telco": new_telco}
    exec(compile(EXAMPLES[1], "README.md", "exec"), known)  # noqa: S102
    scores = known["scores"]
    assert set(scores.columns) == {"leaves", "stays"} and list(scores.index) == list(range(200))
    assert ((scores["stays"] > 0.5).to_numpy() == (truth == "stays").to_numpy()).mean() > 0.9


def test_it_has_at_most_ten_result_rows_and_every_result_leads_to_its_file() -> None:
    shown = [row.split("|")[2] for row in ROWS if SHOWN.search(row)]
    assert 1 <= len(shown) <= 10 and len(ROWS) <= 40
    for result in shown:
        assert not re.search(r"\d", SHOWN.sub("", result)), f"a figure without its file: {result}"


@pytest.mark.parametrize("row", [row for row in ROWS if SHOWN.search(row)], ids=lambda row: row[2:42])
def test_a_row_has_its_command_and_what_the_paper_reports_or_the_target(row: str) -> None:
    _, result, beside, typed = (cell.strip() for cell in row.strip("|").split("|"))
    _, _, link, name, key = SHOWN.findall(result)[0]
    outcome = read(ROOT / link)
    bench = find(outcome.bench)
    assert typed.startswith(f"[`{command(name, bench, outcome).partition(' --out')[0]}`](benchmarks/README.md#")
    if key in bench.paper:
        assert float(beside) == bench.paper[key]
    else:
        limit = str(outcome.targets[key])
        assert beside in (limit.replace(">=", "at least").replace("<=", "at most"), limit.rsplit(maxsplit=1)[-1])


def test_a_privacy_figure_has_its_unit_and_stands_above_that_of_silence() -> None:
    private = [place for place, row in enumerate(ROWS) if "-dp.json" in row and "local_only" not in row]
    assert private
    for place in private:
        assert all(word in ROWS[place] for word in ("epsilon", "for each party", "delta"))
        budget = re.search(r'"(accuracy_eps[\d.]+)\.\w+"', ROWS[place])
        assert budget is not None and f'"{budget[1]}.local_only"' in ROWS[place + 1]
        assert f'"{budget[1]}.vimadmm_no_signal"' in ROWS[place + 1]  # what is not due to uploads


def test_the_pictures_are_there_and_small() -> None:
    for picture in (
        "docs/report.png",
        "docs/methods-mnist.svg",
        "docs/federation.svg",
        "docs/demo.svg",
        "docs/images/live-training.png",
    ):
        assert picture in README
        assert (ROOT / picture).stat().st_size < 300_000


def test_every_result_passed_at_a_clean_commit() -> None:
    assert RESULTS
    for path in RESULTS:
        outcome = json.loads(path.read_text(encoding="utf-8"))
        assert outcome["passed"], path.name
        assert re.fullmatch(r"[0-9a-f]{40}", outcome["commit"]), path.name


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for target, anchor in re.findall(r"\]\(([^)#:\s]+)(?:#([\w-]+))?(?: \"[^\"]*\")?\)", text):
        found = (ROOT / page).parent / target
        assert found.exists(), target
        assert not anchor or anchor in anchors(found.read_text(encoding="utf-8")), f"{target}#{anchor}"


def anchors(text: str) -> set[str]:
    """What a link can point at on a page, as GitHub names headings."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("folder", ["docs", "src"])
def test_no_words_that_mean_something_only_to_the_authors(folder: str) -> None:
    files = [ROOT / "README.md", *(p for p in (ROOT / folder).rglob("*") if p.suffix in {".md", ".py", ".j2"})]
    ours = re.compile(r"kindest|tamed|design notes", re.IGNORECASE)
    assert not [path for path in files if ours.search(path.read_text(encoding="utf-8"))]
