"""Notebooks of the tutorials, made from their pages: `make notebooks` writes them, a test says when they are old.

The page is the one text. Python and shell blocks become cells, a file that the page saves becomes a `%%writefile` cell,
and what a page shows stays as text, beside what the reader sees. Links lead to the pages in the repository.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

import jupytext
import nbformat

ROOT = Path(__file__).resolve().parent.parent
FOLDER = "examples/notebooks"
NAMES = ("tables", "images", "networks-and-trees", "privacy", "comparing-methods")
FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s#:]+)")
SAVED = re.compile(r"^```\w+ file=(\S+)\n")
FIRST = """```python
import os
import tempfile

os.chdir(tempfile.mkdtemp(prefix="colonnade-"))  # what this page writes goes into a folder of its own
os.environ.pop("FORCE_COLOR", None)  # commands show plain text
```
"""
HEADER = """---
jupyter:
  kernelspec: {display_name: Python 3, language: python, name: python3}
---
"""  # else jupytext takes the language of most blocks


def notebook(name: str) -> str:
    """The notebook of a page, as it is stored."""
    page = f"docs/tutorials/{name}.md"
    parts = FENCE.split((ROOT / page).read_text(encoding="utf-8"))
    parts = [
        SAVED.sub(r"```python\n%%writefile \1\n", part) if at % 2 else _moved(part) for at, part in enumerate(parts)
    ]
    told = f"*Made from [{page}](../../{page}) by `make notebooks`; change the page.*"
    title, _, text = "".join(parts).partition("\n")
    made = jupytext.reads(f"{HEADER}{title}\n\n{told}\n\n{FIRST}\n{text}", fmt="md")
    made.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    for number, cell in enumerate(made.cells):
        cell["id"], cell["metadata"] = f"cell-{number}", {}  # else drawn anew each time
    return nbformat.writes(nbformat.from_dict({**made, "nbformat": 4, "nbformat_minor": 5})) + "\n"


def _moved(text: str) -> str:
    """Links of a page, from where its notebook lies."""

    def link(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join("docs/tutorials", match[1]))
        return f"]({posixpath.relpath(target, FOLDER)}"

    return LINK.sub(link, text)


if __name__ == "__main__":
    for name in NAMES:
        path = ROOT / FOLDER / f"{name}.ipynb"
        path.parent.mkdir(exist_ok=True)
        path.write_text(notebook(name), encoding="utf-8")
