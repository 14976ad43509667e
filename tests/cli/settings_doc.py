"""The tables of docs/configuration.md, from the declarations. `python -m tests.cli.settings_doc` writes them again."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel

from colonnade.data.sets import SETS
from colonnade.methods import METHODS
from colonnade.models.encoders import ModelSettings
from colonnade.models.optimise import SGD, AdamW
from colonnade.report.repeat import toml_value
from colonnade.run import Training
from tests.architecture.source import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["PAGE", "generated", "page", "tomllib"]
PAGE = ROOT / "docs" / "configuration.md"
BEGIN, END = "<!-- settings: begin -->", "<!-- settings: end -->"


def rows(kind: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, field in kind.model_fields.items():
        default: Any = field.get_default()
        if isinstance(default, BaseModel) and name != "optimiser":
            yield from rows(type(default), f"{prefix}{name}.")
            continue
        plain = {k: getattr(default, k) for k in ("kind", "lr")} if isinstance(default, BaseModel) else default
        text = "unset" if plain is None else toml_value(plain)
        choices = _choices(field.annotation)
        meaning = (field.description or "").replace("|", "\\|")
        yield f"| `{prefix}{name}` | `{text}` | {meaning}{choices} |"


def _choices(annotation: Any) -> str:
    options = get_args(annotation) if get_origin(annotation) is Literal else ()
    return f" ({', '.join(f'`{o}`' for o in options)})" if len(options) > 1 else ""


def _summary(kind: Any) -> str:
    return (inspect.getdoc(kind) or "").splitlines()[0]


def _table(title: str, kind: type[BaseModel]) -> str:
    head = f"### {title}\n\n{_summary(kind)}\n\n| key | default | meaning |\n| --- | --- | --- |\n"
    return head + "\n".join(rows(kind))


def _set_rows() -> Iterator[str]:
    for name, load in SETS.items():
        options = ", ".join(f"`{key}`" for key in inspect.signature(load).parameters)
        yield f"| `{name}` | {_summary(load)} | {options} |"


def generated() -> str:
    """Everything between the marks."""
    parts = [
        "### Data sets for `[data] set`\n\n| name | what | options |\n| --- | --- | --- |\n" + "\n".join(_set_rows()),
        _table("`[training]`", Training),
        _table("`[model]`", ModelSettings),
        *(_table(f'`[method]` with `name = "{name}"`', kind) for name, kind in METHODS.items()),
        *(_table(f'`optimiser` with `kind = "{kind.model_fields["kind"].default}"`', kind) for kind in (AdamW, SGD)),
    ]
    return "\n\n".join(parts)


def page() -> str:
    """The page with its tables made anew."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{generated()}\n\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
