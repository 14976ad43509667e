"""A newcomer's path: the built wheel in an environment of its own, then the tables tutorial by copy and paste."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.architecture.source import ROOT
from tests.docs.pages import steps_of

PAGE = ROOT / "docs/tutorials/tables.md"
MOST_SECONDS = 300  # for the page, after installation, of which a machine that is busy takes its share
# What the newcomer does with each block; it runs in the new environment, where there are no tests.
PASTED = """
import json, subprocess, sys
from pathlib import Path
names = {}
for step in json.load(open(sys.argv[1])):
    if step["kind"] == "python":
        exec(compile(step["text"], f"line {step['line']}", "exec"), names)
    elif step["kind"] == "bash":
        subprocess.run(["bash", "-euc", step["text"]], check=True)
    elif step["kind"] == "toml" and not Path(step["options"]["file"]).exists():
        Path(step["options"]["file"]).write_text(step["text"])
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment that has the wheel with the extras that the page names, and nothing else."""
    place = tmp_path_factory.mktemp("newcomer")
    clean = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(place), str(ROOT)]
    subprocess.run(pip, env=clean, check=True, capture_output=True)
    subprocess.run([sys.executable, "-m", "venv", str(place / "venv")], env=clean, check=True)
    found = place / "venv/bin/python"
    wheel = next(place.glob("*.whl"))
    install = [found, "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", f"{wheel}[cli,report,tables]"]
    subprocess.run(install, env=clean, check=True, capture_output=True, cwd=place)
    return found


def test_the_tables_tutorial_works_from_top_to_bottom(python: Path, tmp_path: Path) -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert 'pip install ".[cli,report,tables]"' in page
    steps = [asdict(step) for step in steps_of(page)]
    assert {step["kind"] for step in steps} >= {"python", "bash"}
    (tmp_path / "steps.json").write_text(json.dumps(steps), encoding="utf-8")
    folder = tmp_path / "empty"
    folder.mkdir()
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "COLONNADE", "VIRTUAL"))}
    env = {**kept, "PATH": f"{python.parent}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    begun = time.monotonic()
    command = [str(python), "-c", PASTED, str(tmp_path / "steps.json")]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    assert time.monotonic() - begun < MOST_SECONDS
    assert (folder / "scores.csv").read_text().count("\n") > 10
