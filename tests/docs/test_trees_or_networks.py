"""docs/trees-or-networks.md has the figures of the results that it links to."""

from __future__ import annotations

import json
import re

import pytest

from tests.architecture.source import ROOT

PAGE = (ROOT / "docs" / "trees-or-networks.md").read_text(encoding="utf-8")
SETS = ("credit", "bank", "adult")
METHODS = ("one_message", "assisted_boosting", "vimadmm_j")
OF_SETS = {
    "LightGBM, all columns in one place": "central",
    '`one_message` with `stack = "trees"`': "score.one_message",
    "`one_message`": "score.one_message_linear",
    "`assisted_boosting`": "score.assisted_boosting",
    "`vimadmm_j` with trees": "score.vimadmm_j",
    **{f"MB between organisations, `{name}`": f"mb.{name}" for name in METHODS},
    **{f"CPU seconds over LightGBM's, `{name}`": f"cpu_ratio.{name}" for name in METHODS},
}
OF_PEERS = {
    **{f"`{name}` with trees": name for name in METHODS},
    "XGBoost federated, 20 trees": "xgboost_20",
    "XGBoost federated, 100 trees": "xgboost_100",
}


def figures(bench: str) -> dict[str, float]:
    found: dict[str, float] = json.loads((ROOT / "benchmarks" / "results" / f"{bench}.json").read_text())["results"]
    return found


def cells(section: str, line: str) -> list[str]:
    """The cells of the one line of a table that begins so, in the part of the page under a heading."""
    part = PAGE.split(f"\n## {section}")[1].split("\n## ")[0].split("taken earlier")[0]
    (found,) = re.findall(rf"^\| {re.escape(line)} \| (.*) \|$", part, re.MULTILINE)
    return [cell.strip() for cell in str(found).split("|")]


def same(cell: str, value: float) -> bool:
    """Whether a number is that value as far as it is written out."""
    digits = len(cell.partition(".")[2])
    return f"{value:.{digits}f}".removeprefix("0") == cell.removeprefix("0")


@pytest.mark.parametrize("line", OF_SETS)
def test_sets(line: str) -> None:
    found = [figures("trees")[f"{OF_SETS[line]}.{name}"] for name in SETS]
    assert [same(*pair) for pair in zip(cells("Which method for trees", line), found, strict=True)] == [True] * 3


def test_private_labels() -> None:
    (line,) = re.findall(
        r"^\| `one_message` .*label epsilon 1 .*? \| (\.\d+ \| \.\d+ \| \.\d+) \|$", PAGE, re.MULTILINE
    )
    found = [figures("trees")[f"auc_eps1.one_message.{name}"] for name in SETS]
    assert all(same(*pair) for pair in zip(line.split(" | "), found, strict=True))


@pytest.mark.parametrize("line", OF_PEERS)
def test_peers(line: str) -> None:
    found = [figures("peers")[f"{what}.{OF_PEERS[line]}"] for what in ("auc", "seconds", "mb")]
    told = cells("Others who train trees over columns of several", line)
    assert [same(*pair) for pair in zip(told, found, strict=True)] == [True] * 3, (told, found)
