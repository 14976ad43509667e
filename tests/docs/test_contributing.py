"""The diff of CONTRIBUTING is all that a new mechanism takes: it is applied to a copy of the project and tried."""

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


def test_a_mechanism_is_one_file_its_line_in_the_registry_and_its_test(tmp_path: Path) -> None:
    for part in ("src", "tests"):
        shutil.copytree(PROJECT / part, tmp_path / part, ignore=NO_CACHES)
    shutil.copy(PROJECT / "pyproject.toml", tmp_path)
    change = diff("How to add a mechanism")
    touched = re.findall(r"^\+\+\+ b/(.*)$", change, re.MULTILINE)
    assert sorted(touched) == [
        "src/colonnade/privacy/registry.py",
        "src/colonnade/privacy/signs.py",
        "tests/privacy/test_signs.py",
    ]
    alone = {**os.environ, "GIT_CEILING_DIRECTORIES": str(tmp_path.parent), "PYTHONPATH": str(tmp_path / "src")}
    subprocess.run(["git", "apply", "-"], input=change, text=True, cwd=tmp_path, env=alone, check=True)
    tried = ["tests/privacy/test_signs.py", "tests/privacy/test_events.py"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tried],
        cwd=tmp_path, env=alone, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
