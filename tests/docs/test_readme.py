"""The README does what it says: the example runs, figures are those of the result files, links lead somewhere."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
RESULTS = sorted((ROOT / "benchmarks" / "results").glob("*.json"))


def test_the_ten_lines_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    code = re.search(r"```python\n(.*?)```", README, re.DOTALL)
    assert code is not None
    exec(compile(code.group(1), "README.md", "exec"), {})  # noqa: S102 - the README's own example
    accuracy, _, stop = capsys.readouterr().out.partition(" ")
    assert float(accuracy) > 0.95
    assert stop.startswith("all rounds done")
    assert (tmp_path / "runs" / "first" / "run.json").exists()


@pytest.mark.parametrize("path", RESULTS, ids=lambda p: p.stem)
def test_figures_are_those_of_the_result_files(path: Path) -> None:
    """A row that names a result file shows the numbers in it, rounded as shown."""
    results = json.loads(path.read_text(encoding="utf-8"))["results"]
    rows = [line for line in README.splitlines() if f"benchmarks/results/{path.name}" in line]
    assert rows, f"{path.name} is not in the README"
    for line in rows:
        key, shown = (cell.strip() for cell in line.split("|")[2:4])
        places = len(shown.partition(".")[2])
        assert f"{results[key.strip('`')]:.{places}f}" == shown, line


def test_every_result_passed_at_a_clean_commit() -> None:
    assert RESULTS
    for path in RESULTS:
        outcome = json.loads(path.read_text(encoding="utf-8"))
        assert outcome["passed"], path.name
        assert re.fullmatch(r"[0-9a-f]{40}", outcome["commit"]), path.name


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "docs/README.md", "docs/architecture.md"])
def test_links_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    targets = re.findall(r"\]\(([^)#:]+)\)", text)
    missing = [t for t in targets if not ((ROOT / page).parent / t).exists()]
    assert not missing
