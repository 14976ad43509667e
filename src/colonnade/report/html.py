"""One self-contained HTML page about one run, or about several side by side; and the files beside it.

The page asks the network for nothing (and forbids itself to, by a content security policy), reads on a phone, on
paper and in the dark, and is a few hundred kilobytes at most. All texts are escaped by the template engine; only the
figures, made here, are not. Beside it lie the same content as Markdown and as JSON, and the pictures as files.
"""

from __future__ import annotations

import functools
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from colonnade.errors import RunError
from colonnade.extras import need
from colonnade.record import Worth
from colonnade.report.record import Group, Record, Terms

if TYPE_CHECKING:
    from colonnade.report.content import Content

PAGE, FIGURE, PICTURES, CARD = "report.html", "comparison.svg", "pictures", "model-card.md"
ENDS = (".html", ".htm")


def write_report(
    records: Sequence[Record],
    folder_or_file: str | Path,
    terms: Terms | None = None,
    *,
    page_only: bool = False,
    worth: Worth | None = None,
    more: Sequence[str] = (),
) -> Path:
    """Write the page and what lies beside it; return the page's path. Each file appears whole or not at all.

    Args:
        records: run records, as `Run.record()` gives and `run.json` holds them; several make a comparison.
        folder_or_file: a file that ends in .html, or a folder to write report.html into.
        terms: clock and target of a comparison; those of the first run's [compare] section if None.
        page_only: no Markdown, JSON and pictures beside it.
        worth: what joining is worth, where the runs were trained to find that out.
        more: sentences after its own.

    Raises:
        RunError: there is no record, one is damaged, or a file cannot be written.
        DataError: the report extra is not installed.
    """
    content = _content(records, terms, worth, more)
    path = page_path(folder_or_file)
    page = _page(content)
    if not page_only:
        _write_beside(content, path)
    return write_file(path, page.encode())


def page_path(folder_or_file: str | Path) -> Path:
    """Where the page goes."""
    target = Path(folder_or_file)
    return target if target.suffix.lower() in ENDS else target / PAGE


def beside(page: Path) -> tuple[Path, Path, Path]:
    """The Markdown file, the JSON file and the folder of pictures that belong to a page."""
    folder = PICTURES if page.name == PAGE else f"{page.stem}-{PICTURES}"
    return page.with_suffix(".md"), page.with_suffix(".json"), page.with_name(folder)


def card_path(page: Path) -> Path:
    """Where the model card of a page about one run is."""
    return page.with_name(CARD if page.name == PAGE else f"{page.stem}-{CARD}")


def clear_report(folder: Path) -> None:
    """Remove an older report from a folder, and nothing else."""
    page = folder / PAGE
    *files, pictures = beside(page)
    for file in (page, card_path(page), *files):
        file.unlink(missing_ok=True)
    if pictures.is_dir():
        shutil.rmtree(pictures)


def write_figure(groups: Sequence[Group], folder: Path, terms: Terms) -> Path:
    """Write the figure of a comparison beside its page and return its path."""
    require_extra()
    from colonnade.report.curves import figure  # draws, so it needs the extra

    return write_file(folder / FIGURE, figure(groups, terms).encode())


def _write_beside(content: Content, page: Path) -> None:
    from colonnade.report.card import model_card
    from colonnade.report.machine import as_json
    from colonnade.report.markdown import as_markdown

    markdown, data, folder = beside(page)
    for picture in content.files:
        for kind, drawn in picture.drawing.files().items():
            write_file(folder / f"{picture.drawing.name}.{kind}", drawn)
    write_file(markdown, as_markdown(content, folder.name).encode())
    write_file(data, as_json(content, folder.name).encode())
    if (card := model_card(content)) is not None:
        write_file(card_path(page), card.encode())


def write_file(path: Path, content: bytes) -> Path:
    """Write a file that appears whole or not at all; its path.

    Raises:
        RunError: it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(path.name + ".part")
        unfinished.write_bytes(content)
        unfinished.replace(path)
    except OSError as error:
        raise RunError(f"the report cannot be written to {path}: {error}; choose another place") from None
    return path


def require_extra() -> Any:
    """The template engine, if all that a report needs is installed; for checks before a long training.

    Raises:
        DataError: it is not; the message has the command that installs it.
    """
    need("matplotlib", extra="report", purpose="a report")
    return need("jinja2", extra="report", purpose="a report")


def render(records: Sequence[Record], terms: Terms | None = None) -> str:
    """The page as text."""
    return _page(_content(records, terms))


def _content(
    records: Sequence[Record], terms: Terms | None, worth: Worth | None = None, more: Sequence[str] = ()
) -> Content:
    require_extra()
    from colonnade.report.content import content  # draws, so it needs the extra

    return content(records, terms, worth, more)


def _page(content: Content) -> str:
    legend = [group.label for group in content.groups]
    return render_page("report.html.j2", {"pictures": content.curves, "legend": legend, **content.facts})


def render_page(template: str, facts: Mapping[str, object]) -> str:
    """A template of this package, filled in.

    Raises:
        DataError: the report extra is not installed.
    """
    page: str = _template(template).render(**facts)
    return page


@functools.cache  # reading it takes as long as filling it in
def _template(name: str) -> Any:
    jinja = require_extra()
    environment = jinja.Environment(
        loader=jinja.PackageLoader("colonnade.report"),
        autoescape=True,
        undefined=jinja.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(name)
