"""No file of the project names the machine it was written on or the place its packages came from."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.architecture.source import ROOT, lines

BINARY = {".png", ".webp", ".npz", ".gz", ".svg", ".safetensors", ".idx", ".ico"}
CACHES = {"__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis"}
NOT_OURS = {".git", ".venv", "build", "dist", "runs", "demo-run", ".carry"} | CACHES

# The dots are bracketed so that this file does not contain what it looks for.
TRACES = {
    "a path of a work machine": re.compile(r"(^|[^A-Za-z0-9_./-])/(work|farm|root)/", re.MULTILINE),
    "a package registry": re.compile(r"pypi[.]org|pythonhosted[.]org|download[.]pytorch[.]org|anaconda[.]org"),
    "a package from a local file": re.compile(r"@ *file:[/]"),
}


def project_files() -> list[Path]:
    """Tracked files and those about to be; without git (an unpacked archive) all that is not a known product."""
    listing = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        out = subprocess.run(listing, capture_output=True, text=True, check=True).stdout
        files = [ROOT / name for name in out.split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        files = [path for path in ROOT.rglob("*") if not NOT_OURS & set(path.relative_to(ROOT).parts)]
    return [path for path in files if path.is_file() and path.suffix not in BINARY]


def traces_in(text: str) -> list[str]:
    return [f"{what}: {found.group().strip()}" for what, form in TRACES.items() for found in form.finditer(text)]


def test_no_file_names_this_machine() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {trace}"
        for path in project_files()
        for trace in traces_in(path.read_text(errors="replace"))
    ]
    assert not found, lines(found)


def test_the_listing_sees_the_project() -> None:
    names = {path.relative_to(ROOT).as_posix() for path in project_files()}
    assert {"pyproject.toml", "constraints.txt", "Makefile", "src/colonnade/errors.py"} <= names


@pytest.mark.parametrize(
    "parts",
    [
        ("data = '/", "work/shared/mnist'"),
        ("/", "root/.cache"),
        ("torch @ file:", "///tmp/torch.whl"),
        ("see pypi", ".org/project/x"),
    ],
)
def test_a_trace_is_seen(parts: tuple[str, str]) -> None:
    assert traces_in("".join(parts))


@pytest.mark.parametrize("text", ["a/work/b", "../work/x", "numpy==2.4.6", "src/root/x.py", "make work"])
def test_an_innocent_text_is_left_alone(text: str) -> None:
    assert traces_in(text) == []
