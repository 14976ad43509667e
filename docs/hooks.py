"""What the site needs beyond the pages as they lie in the repository; mkdocs calls these functions.

Pages link to files outside of docs/ as anybody would who reads them in a checkout. Here those files become pages of the
site (Markdown, and sources that a page points to) or files beside them (settings and results of benchmarks), and the
links are changed to match. So one text serves both readers. Equations are `$$ ... $$` on lines of their own or `$...$`
in a line; they become MathML, which every browser draws by itself.
"""

from __future__ import annotations

import inspect
import json
import posixpath
import re
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any

import latex2mathml.converter
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.nav import Navigation
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
PROJECT = (
    "README.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "CHANGELOG.md",
    "CODE_OF_CONDUCT.md",
)  # texts of the repository's first folder
# Every page loads the index of the search: what people do not look for by words stays out of it.
INDEXED = 250  # letters of a section
UNSEARCHED = ("source/", "benchmarks/", "project/CHANGELOG", "project/README", "paper.md", "reference/")
NAMES: dict[str, str] = {}  # page -> its name in the menu, by which people look for it
FIGURES = "benchmarks/figures.md"  # benchmarks/README.md; a README would be the first page of its section
FOLDERS = {  # a link to a folder leads to this page
    "benchmarks/results": "benchmarks/figures.md",
    "benchmarks/unfinished": "benchmarks/figures.md",
    "examples/systemd": "examples/README.md",
}
FENCE = re.compile(r"(^ *(`{3,}|~{3,}).*?^ *\2 *$)", re.MULTILINE | re.DOTALL)
HEAD = re.compile(r"^( *`{3,})(\w+) +([^\n]+)$", re.MULTILINE)
CODE = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)
PRE = re.compile(r"(<pre[^>]*>(?:<span></span>)?)<code>")
LINK = re.compile(r"(\]\(|(?:src|href)=\")([^)\s\"#]+)")
TABLE = re.compile(r"<table>.*?</table>", re.DOTALL)
RIGHT = ' style="text-align: right;"'  # on every cell of a column of numbers
NEEDLESS = re.compile(r"(<(?:table|thead|tbody|tr)>)\n|</(?:thead|tbody|tr|th|td)>\n?")
MARK = re.compile(r"<!-- (?:end of figures|figures of [\w-]+) -->\s*")  # where `bench --write-pages` writes
BLOCK = re.compile(r"^\$\$\s*(.+?)\s*\$\$$", re.MULTILINE | re.DOTALL)
BAR = re.compile(r"(?<!left)(?<!right)\\([lr])[vV]ert(?![a-zA-Z])")
SIDES = {"l": "\\left", "r": "\\right"}  # which side of what it encloses a bar is on: | and || are alike on both
SLASH = "<mo>&#x0002F;</mo>"
INLINE = re.compile(r"(?<![\\$])\$(?!\s)([^$\n]+?)(?<!\s)\$(?!\d)")


def place(path: str) -> str | None:
    """Where a file of the repository is on the site; None: nowhere."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path in PROJECT:
        return f"project/{path}"
    if path == "benchmarks/README.md":
        return FIGURES
    if path.startswith("src/") and path.endswith(".py"):
        return f"source/{path.removeprefix('src/')}.md"
    if path.startswith(("benchmarks/", "examples/")) and (ROOT / path).is_file():
        return path
    return "examples/README.md" if path.startswith("examples") else None


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what lies outside of docs/, and what is written from the program itself."""
    texts = {f"project/{name}": (ROOT / name).read_text(encoding="utf-8") for name in PROJECT}
    texts[FIGURES] = (ROOT / "benchmarks/README.md").read_text(encoding="utf-8")
    texts |= {"reference/commands.md": commands(), "reference/methods.md": methods()}
    for pattern in ("benchmarks/*.toml", "benchmarks/results/*.json", "benchmarks/unfinished/*.json"):
        for path in sorted(ROOT.glob(pattern)):
            files.append(_file(config, path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")))
    for source in sorted(_sources(files, texts)):
        code = (ROOT / source).read_text(encoding="utf-8")
        texts[str(place(source))] = f"# {source.removeprefix('src/')}\n\n````python\n{code}````\n"
    for path in ("examples/README.md", "examples/organisations/README.md"):
        texts[path] = (ROOT / path).read_text(encoding="utf-8")
    for path in ("examples/organisations/compose.yaml", "examples/make_excerpts.py"):
        files.append(_file(config, path, (ROOT / path).read_text(encoding="utf-8")))
    for path in sorted(ROOT.glob("examples/systemd/*.service")):
        files.append(_file(config, path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")))
    for path, text in texts.items():
        files.append(_file(config, path, text))
    return files


def _file(config: MkDocsConfig, path: str, text: str) -> File:
    return File.generated(config, path, content=text)


def _sources(files: Files, texts: dict[str, str]) -> set[str]:
    """Sources that a page points to."""
    found = set()
    for file in files.documentation_pages():
        for _, target in LINK.findall(Path(str(file.abs_src_path)).read_text(encoding="utf-8")):
            path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(file.src_uri), target))
            if path.startswith("src/") and path.endswith(".py"):
                found.add(path)
    return found


def _home(page: str) -> str:
    """Where a page of the site lies in the repository."""
    folder, _, name = page.partition("/")
    if page == FIGURES:
        return "benchmarks/README.md"
    if folder == "project":
        return name
    if folder in ("benchmarks", "examples") and (ROOT / page).is_file():
        return page
    return f"docs/{page}"


def on_nav(nav: Navigation, config: MkDocsConfig, files: Files) -> Navigation:
    """Remember what pages are called in the menu, where their headings say it otherwise."""
    NAMES.update({page.url: str(page.title) for page in nav.pages if page.title})
    return nav


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links to where files are on the site, and equations as MathML."""
    if page.file.src_uri.startswith(UNSEARCHED):
        page.meta["search"] = {"exclude": True}
    here = _home(page.file.src_uri)

    def moved(match: re.Match[str]) -> str:
        before, target = match.groups()
        if "://" in target or target.startswith(("mailto:", "/")):
            return match[0]
        repository = posixpath.normpath(posixpath.join(posixpath.dirname(here), target))
        at = place(repository)
        if at not in files.src_uris:  # a folder: what is first in it
            at = FOLDERS.get(repository) or place(posixpath.join(repository, "README.md"))
        if at is None:
            return match[0]
        return before + posixpath.relpath(at, posixpath.dirname(page.file.src_uri) or ".")

    return _outside_code(markdown, lambda text: _equations(LINK.sub(moved, text)))


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Code that scrolls can be reached with the keyboard, and is not looked for by words."""
    return PRE.sub(r'\1<code tabindex="0" data-search-exclude>', html)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Tables without what HTML can do without, which was most of a page of figures."""
    return TABLE.sub(lambda table: _light(table[0]), MARK.sub("", output))


def _light(table: str) -> str:
    """A table that says once which columns stand on the right (`style.css`), and does not end what ends by itself."""
    heads = re.findall(r"<th[ >][^<]*", table)
    right = " ".join(str(place) for place, head in enumerate(heads, 1) if RIGHT in head)
    table = NEEDLESS.sub(r"\1", table.replace(RIGHT, ""))
    return table.replace("<table>", f'<table data-right="{right}">', 1) if right else table


def on_post_build(config: MkDocsConfig) -> None:
    """The index of the search has the titles and the beginning of every section: every page loads it."""
    path = Path(config.site_dir) / "search/search_index.json"
    index = json.loads(path.read_text(encoding="utf-8"))
    for one in index["docs"]:
        one["text"] = one["text"][:INDEXED]
        name = NAMES.get(one["location"], "")
        if name.lower() not in one["title"].lower():
            one["text"] = f"<p>{escape(name)}</p> {one['text']}"
    path.write_text(json.dumps(index, ensure_ascii=False, separators=(",", ":")), encoding="utf-8")


def _outside_code(markdown: str, change: Callable[[str], str]) -> str:
    """Apply a change to everything but code; fences get titles."""
    parts = FENCE.split(markdown)
    for at in range(0, len(parts), 3):  # text, a fence, its mark, text ...
        kept: list[str] = []

        def keep(match: re.Match[str], kept: list[str] = kept) -> str:
            kept.append(match[0])
            return f"\0{len(kept) - 1}\0"

        text = change(CODE.sub(keep, parts[at]))
        parts[at] = re.sub("\0(\\d+)\0", lambda match, kept=kept: kept[int(match[1])], text)
        if at + 1 < len(parts):
            parts[at + 1] = _titled(parts[at + 1])
    return "".join(part for at, part in enumerate(parts) if at % 3 != 2)


def _titled(fence: str) -> str:
    """What tests read behind a fence's language (machine, terminal, file), as the title that readers see."""

    def said(match: re.Match[str]) -> str:
        known = dict(word.partition("=")[::2] for word in match[3].split())
        words = {"machine": "", "terminal": "terminal ", "file": ""}
        told = [before + known[key] for key, before in words.items() if key in known]
        return f"{match[1]}{match[2]}" + (f' title="{", ".join(told)}"' if told else "")

    return HEAD.sub(said, fence, count=1)


def _equations(text: str) -> str:
    text = BLOCK.sub(lambda match: f"\n<div>{_drawn(match[1], 'block')}</div>\n", text)
    # In a span, or Markdown would make a block of an equation that begins a line.
    return INLINE.sub(lambda match: f"<span>{_drawn(match[1], 'inline')}</span>", text)


def _drawn(latex: str, display: str) -> str:
    """MathML of one equation; refused where a command is not known, which would else be drawn as its name."""
    mathml = latex2mathml.converter.convert(BAR.sub(lambda bar: SIDES[bar[1]] + bar[0], latex), display=display)
    if "\\" in mathml or "<mi>&</mi>" in mathml:
        raise PluginError(f"an equation has a command that latex2mathml does not know: {latex}")
    return mathml.replace(SLASH, '<mo lspace="0" rspace="0">&#x0002F;</mo>')  # 1/M, not 1 / M


# -- pages that are written from the program ------------------------------------------------------


def commands() -> str:
    """Every command with its arguments, options, types and defaults."""
    import typer.main

    from colonnade.cli.main import app

    told = "Written from the program. [Commands, explained](../cli.md) says what they are for."
    lines = ["# Commands, every option", "", told, ""]
    group = typer.main.get_command(app)
    for name, command in group.commands.items():  # type: ignore[attr-defined]
        lines += _command(f"colonnade {name}", command, 2)
        for inner, one in getattr(command, "commands", {}).items():
            lines += _command(f"colonnade {name} {inner}", one, 3)
    return "\n".join(lines)


def _command(name: str, command: Any, level: int) -> list[str]:
    lines = [f"{'#' * level} `{name}`", "", inspect.cleandoc(command.help or ""), ""]
    options = [parameter for parameter in command.params if "--help" not in parameter.opts]
    if options and not hasattr(command, "commands"):
        lines += ["| option | takes | default | meaning |", "| --- | --- | --- | --- |"]
        lines += [_option(parameter) for parameter in options] + [""]
    return lines


def _option(parameter: Any) -> str:
    names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
    if parameter.param_type_name == "argument":
        names = f"`{parameter.metavar or parameter.name.upper()}`"
    default = parameter.default() if callable(parameter.default) else parameter.default
    shown = "required" if parameter.required else "" if default in (None, False, ()) else f"`{default}`"
    kind = parameter.type_descriptor.annotation
    takes = "" if kind is bool else parameter.metavar or getattr(kind, "__name__", str(kind)).lower()
    cells = (names, takes, shown, getattr(parameter, "help", "") or "")
    return "| " + " | ".join(str(cell).replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def methods() -> str:
    """Every method with its settings, from their declarations."""
    from colonnade.methods import METHODS

    told = "Written from the program; `[method]` in a file, `cn.methods` in Python."
    lines = ["# Settings of the methods", "", told, ""]
    for name in METHODS:
        made = METHODS[name]
        first = inspect.cleandoc(made.__doc__ or "").split("\n\n")[0].replace("\n", " ")
        lines += [f"## `{name}`", "", first, "", f"[About {name}](../methods/{name}.md)", ""]
        if made.model_fields:
            lines += ["| setting | default | meaning |", "| --- | --- | --- |"]
            for key, field in made.model_fields.items():
                default = "required" if field.is_required() else f"`{field.get_default(call_default_factory=True)!r}`"
                meaning = (field.description or "").replace("|", "\\|").replace("\n", " ")
                lines.append(f"| `{key}` | {default} | {meaning} |")
            lines.append("")
    return "\n".join(lines)
