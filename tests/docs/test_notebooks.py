"""The notebooks are those of the pages, and run."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import nbformat
import pytest

from tests.architecture.source import ROOT
from tests.docs.followed import compare
from tests.docs.pages import steps_of
from tests.docs.test_tutorials import PAGES, text_of
from tests.python_files import as_module

FOLDER = ROOT / "examples" / "notebooks"
SECONDS = 300  # of one cell


@pytest.fixture(scope="module")
def made() -> ModuleType:
    return as_module(ROOT / "docs" / "notebooks.py")


def stored(name: str) -> nbformat.NotebookNode:
    return nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)


def as_cell(kind: str, text: str, file: str | None) -> str:
    first = f"%%writefile {file}\n" if file else {"bash": "%%bash\n", "python": ""}[kind]
    return first + text.rstrip("\n")


def test_every_page_that_runs_in_one_process_has_one(made: ModuleType) -> None:
    assert made.NAMES == PAGES
    assert {path.stem for path in FOLDER.iterdir()} == set(PAGES)


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("name", PAGES)
def test_it_is_what_the_page_gives(name: str, made: ModuleType) -> None:
    assert (FOLDER / f"{name}.ipynb").read_text(encoding="utf-8") == made.notebook(name), "old: run make notebooks"


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("name", PAGES)
def test_its_cells_are_the_blocks_of_the_page(name: str) -> None:
    book = stored(name)
    nbformat.validate(book)
    cells = [cell.source for cell in book.cells if cell.cell_type == "code"]
    blocks = [as_cell(s.kind, s.text, s.options.get("file")) for s in steps_of(text_of(name)) if s.kind != "text"]
    assert cells[1:] == blocks, "the first makes a folder"
    assert all(not cell.outputs for cell in book.cells if cell.cell_type == "code")


def test_links_lead_to_pages(made: ModuleType) -> None:
    for name in PAGES:
        words = "".join(cell.source for cell in stored(name).cells if cell.cell_type == "markdown")
        found = made.LINK.findall(words)
        assert len(found) > 3
        assert [target for target in found if not (FOLDER / target).exists()] == []


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_one_runs_in_a_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks of the others are run with their pages: a kernel that starts commands takes three times as long."""
    from nbclient import NotebookClient

    for variable in ("JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR", "TMPDIR"):
        monkeypatch.setenv(variable, str(tmp_path))
    book = stored("images")
    NotebookClient(book, timeout=SECONDS, kernel_name="python3").execute()
    seen = [line for cell in book.cells for out in cell.get("outputs", []) for line in out.get("text", "").splitlines()]
    shown = [step.text for step in steps_of(text_of("images")) if step.kind == "text"]
    compare("".join(shown).splitlines(), seen)
