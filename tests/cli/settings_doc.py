"""The tables of docs/configuration.md and docs/deployment.md, from the declarations.

`python -m tests.cli.settings_doc` writes them again.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from colonnade.data.column_settings import ColumnSettings, OneColumn
from colonnade.data.sets import SETS
from colonnade.deploy.policy import Policy
from colonnade.deploy.sections import CoordinatorSection, PartySection, Retraining
from colonnade.deploy.withdrawal.waiting import WithdrawalLimit
from colonnade.engines.remote import Absence
from colonnade.identity.credentials import Connection
from colonnade.methods import METHODS
from colonnade.models.encoders import ModelSettings
from colonnade.models.optimise import SGD, AdamW
from colonnade.privacy.settings import PrivacySettings
from colonnade.report.repeat import toml_value
from colonnade.run import Training
from colonnade.web.settings import HttpSection
from tests.architecture.source import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["DEPLOYMENT", "PAGE", "generated", "page", "tomllib"]
PAGE = ROOT / "docs" / "configuration.md"
DEPLOYMENT = ROOT / "docs" / "deployment.md"
BEGIN, END = "<!-- settings: begin -->", "<!-- settings: end -->"


def rows(kind: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, field in kind.model_fields.items():
        default: Any = field.get_default()
        if isinstance(default, BaseModel) and name != "optimiser":
            yield from rows(type(default), f"{prefix}{name}.")
            continue
        choices = _choices(field.annotation)
        meaning = (field.description or "").replace("|", "\\|")
        yield f"| `{prefix}{name}` | {_default(field)} | {meaning}{choices} |"


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    default: Any = field.get_default()
    plain = {k: getattr(default, k) for k in ("kind", "lr")} if isinstance(default, BaseModel) else default
    if isinstance(plain, tuple):
        plain = [item.value if isinstance(item, Enum) else item for item in plain]
    return "`unset`" if plain is None else f"`{toml_value(plain)}`"


def _choices(annotation: Any) -> str:
    options = get_args(annotation) if get_origin(annotation) is Literal else ()
    return f" ({', '.join(f'`{o}`' for o in options)})" if len(options) > 1 else ""


def _summary(kind: Any) -> str:
    return (inspect.getdoc(kind) or "").splitlines()[0]


def _table(title: str, kind: type[BaseModel], without: type[BaseModel] = BaseModel) -> str:
    head = f"### {title}\n\n{_summary(kind)}\n\n| key | default | meaning |\n| --- | --- | --- |\n"
    known = {*rows(without)}
    shown = [row for row in rows(kind) if row not in known]
    shown.sort(key=lambda row: "` | required | " not in row)  # those first, else as declared
    return head + "\n".join(shown)


def _set_rows() -> Iterator[str]:
    for name, load in SETS.items():
        options = ", ".join(f"`{key}`" for key in inspect.signature(load).parameters)
        yield f"| `{name}` | {_summary(load)} | {options} |"


def generated() -> str:
    """Everything between the marks."""
    parts = [
        "### Data sets for `[data] set`\n\n| name | what | options |\n| --- | --- | --- |\n" + "\n".join(_set_rows()),
        _table("`[data.columns]`, and by party `[data.columns.NAME]`", ColumnSettings),
        _table("`by_name` in `[data.columns.NAME]`: beside the same settings", OneColumn, ColumnSettings),
        _table("`[training]`", Training),
        _table("`[model]`", ModelSettings),
        _table("`[privacy]`", PrivacySettings),
        *(_table(f'`[method]` with `name = "{name}"`', kind) for name, kind in METHODS.items()),
        *(_table(f'`optimiser` with `kind = "{kind.model_fields["kind"].default}"`', kind) for kind in (AdamW, SGD)),
    ]
    return "\n\n".join(parts)


def of_deployment() -> str:
    """Everything between the marks of the page about separate organisations."""
    parts = [
        _table("`[party]` of party.toml", PartySection),
        _table("`[coordinator]` of coordinator.toml", CoordinatorSection),
        _table("`[connection]` of both", Connection),
        _table("`[absence]` of coordinator.toml", Absence),
        _table("`[schedule]` of coordinator.toml, for `colonnade serve`", Retraining),
        _table("`[withdrawal]` of coordinator.toml; a policy.toml has the same", WithdrawalLimit),
        _table("`[http]` of both, for `colonnade serve`", HttpSection),
        _table("policy.toml", Policy),
    ]
    return "\n\n".join(parts)


TABLES: dict[Path, Callable[[], str]] = {PAGE: generated, DEPLOYMENT: of_deployment}


def page(path: Path = PAGE) -> str:
    """A page with its tables made anew."""
    before, _, rest = path.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{TABLES[path]()}\n\n{END}{after}"


if __name__ == "__main__":
    for path in TABLES:
        path.write_text(page(path), encoding="utf-8")
