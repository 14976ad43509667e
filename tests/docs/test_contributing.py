"""The diffs of CONTRIBUTING are all that something new takes: they are applied to a copy of the project and tried."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
NO_CACHES = shutil.ignore_patterns("__pycache__", "*.pyc")


def diff(section: str) -> str:
    """The diff of one section of CONTRIBUTING."""
    text = (PROJECT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    body = text.partition(f"## {section}\n")[2].partition("\n## ")[0]
    found = re.findall(r"```diff\n(.*?)```", body, re.DOTALL)
    assert len(found) == 1, f"{section}: one diff was expected"
    return str(found[0])


# Section -> the files that its diff touches, and the tests that are tried then.
SECTIONS: dict[str, tuple[list[str], list[str]]] = {
    "How to add a mechanism": (
        ["src/colonnade/privacy/registry.py", "src/colonnade/privacy/signs.py", "tests/privacy/test_signs.py"],
        ["tests/privacy/test_signs.py", "tests/privacy/test_events.py"],
    ),
    "How to add a task": (
        ["src/colonnade/tasks/__init__.py", "src/colonnade/tasks/share.py", "tests/tasks/test_share.py"],
        ["tests/tasks/test_share.py"],
    ),
    "How to add a metric": (
        ["src/colonnade/evaluate/metrics.py", "tests/evaluate/test_metrics.py"],
        ["tests/evaluate/test_metrics.py", "-k", "median_error or tested_here"],
    ),
    "How to add a method": (
        [
            "docs/methods/shared_slope.md",
            "src/colonnade/methods/__init__.py",
            "src/colonnade/methods/shared_slope.py",
            "tests/methods/test_shared_slope.py",
        ],
        ["tests/methods/test_shared_slope.py", "tests/contracts/test_methods.py", "-k", "shared_slope"],
    ),
}


@pytest.mark.parametrize("section", SECTIONS)
def test_a_diff_is_all_it_takes(section: str, tmp_path: Path) -> None:
    for part in ("src", "tests", "docs/methods"):
        shutil.copytree(PROJECT / part, tmp_path / part, ignore=NO_CACHES)
    shutil.copy(PROJECT / "pyproject.toml", tmp_path)
    change, (files, tried) = diff(section), SECTIONS[section]
    assert sorted(re.findall(r"^\+\+\+ b/(.*)$", change, re.MULTILINE)) == files
    alone = {**os.environ, "GIT_CEILING_DIRECTORIES": str(tmp_path.parent), "PYTHONPATH": str(tmp_path / "src")}
    subprocess.run(["git", "apply", "-"], input=change, text=True, cwd=tmp_path, env=alone, check=True)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tried],
        cwd=tmp_path, env=alone, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
