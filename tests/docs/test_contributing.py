"""The diffs of CONTRIBUTING are all that something new takes: they are applied to a copy of the project and tried."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).parents[2]
NO_CACHES = shutil.ignore_patterns("__pycache__", "*.pyc")


def diff(section: str) -> str:
    """The diff of one section of CONTRIBUTING."""
    text = (PROJECT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    body = text.partition(f"## {section}\n")[2].partition("\n## ")[0]
    found = re.findall(r"```diff\n(.*?)```", body, re.DOTALL)
    assert len(found) == 1, f"{section}: one diff was expected"
    return str(found[0])


# Section -> the files that its diff touches, and the tests that are tried then: files, and words of the others' names.
SECTIONS: dict[str, tuple[list[str], list[str], list[str]]] = {
    "How to add a mechanism": (
        ["src/colonnade/privacy/registry.py", "src/colonnade/privacy/signs.py", "tests/privacy/test_signs.py"],
        ["tests/privacy/test_signs.py", "tests/privacy/test_events.py"],
        ["test_signs", "test_events"],
    ),
    "How to add a task": (
        [
            "src/colonnade/tasks/__init__.py",
            "src/colonnade/tasks/share.py",
            "src/colonnade/testing/federations.py",
            "tests/tasks/test_share.py",
        ],
        ["tests/tasks/test_share.py", "tests/explain/test_explain.py", "tests/methods/test_fu.py"],
        ["test_share", "(share and (row_by_row or every_task))"],
    ),
    "How to add a metric": (
        ["src/colonnade/evaluate/metrics.py", "tests/evaluate/test_metrics.py"],
        ["tests/evaluate/test_metrics.py"],
        ["median_error", "tested_here"],
    ),
    "How to add a method": (
        [
            "docs/methods/shared_slope.md",
            "src/colonnade/methods/__init__.py",
            "src/colonnade/methods/shared_slope.py",
            "tests/methods/test_shared_slope.py",
        ],
        ["tests/methods/test_shared_slope.py", "tests/contracts/test_methods.py"],
        ["shared_slope"],
    ),
}


def added(change: str) -> set[str]:
    """The names that a diff brings: of its own functions and classes, and of its files."""
    lines = re.findall(r"^\+(?:def|class) (\w+)", change, re.MULTILINE)
    files = re.findall(r"^--- /dev/null\n\+\+\+ b/(.*)$", change, re.MULTILINE)
    return {name for name in (*lines, *(Path(file).stem for file in files)) if not name.startswith("__")}


def test_a_diff_is_all_it_takes(tmp_path: Path) -> None:
    """All are applied to one copy, and tried by one process: they touch different files, and none uses another's."""
    for part in ("src", "tests", "docs/methods"):
        shutil.copytree(PROJECT / part, tmp_path / part, ignore=NO_CACHES)
    shutil.copy(PROJECT / "pyproject.toml", tmp_path)
    alone = {**os.environ, "GIT_CEILING_DIRECTORIES": str(tmp_path.parent), "PYTHONPATH": str(tmp_path / "src")}
    for section, (files, *_) in SECTIONS.items():
        change = diff(section)
        assert sorted(re.findall(r"^\+\+\+ b/(.*)$", change, re.MULTILINE)) == files
        subprocess.run(["git", "apply", "-"], input=change, text=True, cwd=tmp_path, env=alone, check=True)
    tried = [file for _, tests, _ in SECTIONS.values() for file in tests]
    words = " or ".join(word for *_, named in SECTIONS.values() for word in named)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tried, "-k", words],
        cwd=tmp_path, env=alone, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]


def test_no_diff_needs_another() -> None:
    changes = {section: diff(section) for section in SECTIONS}
    for section, change in changes.items():
        others = set().union(*(added(other) for name, other in changes.items() if name != section)) - added(change)
        assert others, "the diffs bring nothing"
        assert not [name for name in others if re.search(rf"^\+.*\b{name}\b", change, re.MULTILINE)], section


def test_no_two_diffs_touch_one_file() -> None:
    touched = [file for files, *_ in SECTIONS.values() for file in files]
    assert len(touched) == len(set(touched))
