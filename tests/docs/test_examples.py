"""The pages of docs/examples do what they say, from files to scores, with the tables that are beside them."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.architecture.source import ROOT
from tests.docs.followed import Reader, alike
from tests.docs.test_deployment import anchors

PAGES = {"credit": "credit", "bank-marketing": "bank_marketing", "six-views": "mfeat", "counts": "counts"}
EXAMPLES = ROOT / "examples"
MOST_BYTES = 450_000  # of all tables together


def page(name: str) -> str:
    return (ROOT / "docs" / "examples" / f"{name}.md").read_text(encoding="utf-8")


def reader(folder: Path, name: str) -> Reader:
    shutil.copytree(EXAMPLES / PAGES[name], folder / "examples" / PAGES[name])
    return Reader(folder)


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("name", PAGES)
def test_the_page_does_what_it_says(name: str, tmp_path: Path) -> None:
    """Every block, in order; what a page shows is compared."""
    somebody = reader(tmp_path, name)
    somebody.follow(page(name))
    made = {path.name for path in (tmp_path / "examples" / PAGES[name]).iterdir()}
    assert made & {"scores.csv", "bank-part", "model", "visits.csv"}, "nobody new was scored, nothing kept"


WRONG = {
    "another number": ("```bash\necho AUC 0.82\n```\n\n```text\nAUC 0.72\n```\n", "never shown: AUC 0.72"),
    "another count": ("```bash\necho 20 rows\n```\n\n```text\n21 rows\n```\n", "never shown: 21 rows"),
    "another word": ("```python\nprint('yes')\n```\n\n```text\nno\n```\n", "never shown: no"),
    "another order": ("```bash\nprintf 'a\\nb\\n'\n```\n\n```text\nb\na\n```\n", "never shown: a"),
    "a command that fails": ("```bash\nfalse\n```\n", "false: status 1"),
    "a command of ours that fails": ("```bash\ncolonnade check no.toml\n```\n", "colonnade check no.toml: status 2"),
    "a line that is not in the file": (
        "```bash\necho a = 1 > x.toml\n```\n\n```toml file=x.toml\na = 2\n```\n",
        "never shown: a = 2",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_page_that_is_wrong_fails(name: str, tmp_path: Path) -> None:
    text, told = WRONG[name]
    with pytest.raises(AssertionError, match=rf"line \d+ of the page, \w+: {told}"):
        Reader(tmp_path).follow(text)


def test_numbers_may_differ_a_little_and_nothing_else() -> None:
    assert alike("AUC 0.824  (interval 0.75 to 0.87)", "AUC 0.82 (interval 0.7512 to 0.8650)")
    assert alike("12 rows... 1.5 s", "12 rows, quite some, 1.53 s")
    assert not alike("AUC 0.824", "AUC 0.724")
    assert not alike("12 rows", "13 rows")
    assert not alike("yes 0.5", "no 0.5")


@pytest.mark.parametrize("path", [*(f"docs/examples/{name}.md" for name in PAGES), "examples/README.md"])
def test_links_lead_somewhere(path: str) -> None:
    text = (ROOT / path).read_text(encoding="utf-8")
    found = re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", text)
    assert len(found) > 4
    for target, anchor in found:
        there = (ROOT / path).parent / target if target else ROOT / path
        assert there.exists(), target
        assert not anchor or anchor in anchors(there.read_text(encoding="utf-8")), f"{target}#{anchor}"


def test_the_tables_are_small_and_their_source_is_named() -> None:
    files = [file for folder in PAGES.values() for file in (EXAMPLES / folder).rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) < MOST_BYTES
    named = (EXAMPLES / "README.md").read_text(encoding="utf-8").partition("## Where the tables are from")[2]
    assert [folder for folder in PAGES.values() if f"| `{folder}/` |" not in named] == []
