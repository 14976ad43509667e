"""The command that repeats a run: its configuration as TOML, and the line to type."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from colonnade.report.record import Record

FILE = "run.toml"
BARE = re.compile(r"[A-Za-z0-9_-]+")


def command(record: Record) -> str | None:
    """What to type, once the configuration is saved; None for a run that came from Python."""
    return f"colonnade train {FILE}" if record["config"] else None


def configuration(record: Record) -> str | None:
    """The resolved configuration of this run as a TOML file; None for a run that came from Python."""
    if not record["config"]:
        return None
    sections = {"data": {"set": "digits"}, **record["config"]}  # what an absent [data] section means
    sections.pop("compare", None)  # the method section already is the compared method's
    return to_toml(sections)


def to_toml(sections: Mapping[str, Mapping[str, Any]]) -> str:
    """Sections of plain values as TOML that reads back to the same values."""
    parts = []
    for name, body in sections.items():
        lines = [f"{toml_key(key)} = {toml_value(value)}" for key, value in body.items() if value is not None]
        if lines:
            parts.append("\n".join([f"[{toml_key(name)}]", *lines]))
    return "\n\n".join(parts) + "\n"


def toml_key(name: str) -> str:
    """A name as a TOML key, in quotation marks where it needs them."""
    return name if BARE.fullmatch(name) else _text(name)


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # JSON's escapes are TOML's, but for DEL


def toml_value(value: Any) -> str:
    """One plain value as TOML."""
    if isinstance(value, Mapping):
        inner = ", ".join(f"{toml_key(k)} = {toml_value(v)}" for k, v in value.items() if v is not None)
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(toml_value(item) for item in value) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else str(value)  # nan, inf, -inf
    return str(value) if isinstance(value, int) else _text(str(value))
