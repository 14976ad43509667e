"""docs/explain.md shows the numbers of the result file, every one of its keys is there, and its picture is small."""

from __future__ import annotations

import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "explain.md").read_text(encoding="utf-8")
RESULTS = json.loads((ROOT / "benchmarks" / "results" / "mnist-explain.json").read_text(encoding="utf-8"))["results"]
SHOWN = re.compile(r"^\| [^|]+ \| `([\w.]+)` \| ([\d.]*) ?\| ([^|]*) ?\|$", re.MULTILINE)


def test_numbers_are_those_of_the_result_file() -> None:
    rows = SHOWN.findall(PAGE)
    assert len(rows) >= 18
    for key, shown, _ in rows:
        assert key in RESULTS, key
        if shown:  # numbers that are measured again are named only
            places = len(shown.partition(".")[2])
            assert f"{RESULTS[key]:.{places}f}" == shown, key


def test_the_papers_numbers_are_those_of_the_benchmark() -> None:
    toml = (ROOT / "benchmarks" / "mnist-explain.toml").read_text(encoding="utf-8")
    paper = [number for _, _, number in SHOWN.findall(PAGE) if re.match(r"\d", number)]
    assert len(paper) == 9 and all(number.strip() in toml for number in paper)


def test_the_picture_is_small() -> None:
    assert (ROOT / "docs" / "explain-mnist.svg").stat().st_size < 60_000
    assert "](explain-mnist.svg)" in PAGE
