"""Settings: default, range and meaning declared once, read from TOML, checked with a hint.

Every settings class is a frozen pydantic model. The same declaration is the Python
constructor, the TOML section, the `--set` option and the line in the report.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

from colonnade.errors import ConfigError

if sys.version_info >= (3, 11):
    import tomllib
else:  # Python 3.10 has no TOML reader of its own
    import tomli as tomllib


class Settings(BaseModel):
    """Base of all settings: frozen, unknown keys refused with the nearest known one."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False)

    def __init__(self, *unnamed: Any, **values: Any) -> None:
        """Settings by name.

        Raises:
            ConfigError: one is unknown, of the wrong type or out of range; one sentence, as from a file.
        """
        name = type(self).__name__
        if unnamed:
            raise ConfigError(f"{name} takes settings by name, e.g. {_example(type(self))}; got {unnamed[0]!r}")
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise ConfigError(_sentence(error, type(self), name)) from None

    # Settings inside others are then still made by pydantic, which knows where in the outer ones they stand.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]


S = TypeVar("S", bound=BaseModel)


def build(kind: type[S], values: Mapping[str, Any], section: str) -> S:
    """`kind(**values)`, with one clear sentence instead of a validation report."""
    if not isinstance(values, Mapping):
        raise ConfigError(f"[{section}] needs settings by name, e.g. {_example(kind)}; got {values!r}")
    try:
        return kind.model_validate(dict(values))
    except ValidationError as error:
        raise ConfigError(_sentence(error, kind, section)) from None


def _sentence(error: ValidationError, kind: type[BaseModel], section: str) -> str:
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"]) or section
    if first["type"] == "extra_forbidden" or _nobodys(kind, first):
        return unknown_key(where, _known_keys(kind, first["loc"]), section, _inside(kind, where))
    meaning = _meaning(kind, first["loc"])
    if first["type"] == "missing":
        return f"[{section}] needs {where!r}" + (f": {meaning}" if meaning else "")
    got = first.get("input")
    wanted = first["msg"][0].lower() + first["msg"][1:]
    if first["type"] == "string_pattern_mismatch" and meaning:
        wanted = f"needed {meaning}"  # which people read more easily than a regular expression
    if first["type"] == "union_tag_not_found":
        wanted = f"needed 'kind' in it{_kinds(kind, first['loc'])}"
    if first["type"] == "model_type" and (known := _known_keys(kind, (*first["loc"], ""))):
        wanted = f"needed settings by name, e.g. {{ {known[0]} = ... }}; there are {', '.join(known)}"
    named = f" {where} = {got!r}" if first["loc"] else ""
    return f"[{section}]{named} is not valid: {wanted}"


def _nobodys(kind: type[BaseModel], error: Mapping[str, Any]) -> bool:
    """Whether a value stands at a name that is no setting, where a table (a party's) could stand."""
    where = error["loc"]
    return len(where) == 1 and where[0] not in kind.model_fields and not isinstance(error.get("input"), Mapping)


def _known_keys(kind: type[BaseModel], where: tuple[int | str, ...]) -> list[str]:
    """The keys that could stand at the end of `where`: those of the inner settings, of the chosen one in a union."""
    options = [kind]
    for part in where[:-1]:
        fields = [option.model_fields[part] for option in options if part in option.model_fields]
        inner = [model for field in fields for model in inner_models(field.annotation)]
        tagged = [o for o in options if "kind" in o.model_fields and o.model_fields["kind"].default == part]
        options = inner or tagged or options
    return [key for option in options for key in option.model_fields]


def _kinds(kind: type[BaseModel], where: tuple[int | str, ...]) -> str:
    """Which kinds of settings may stand at `where`, if that is a field of `kind` itself."""
    field = kind.model_fields.get(str(where[0])) if len(where) == 1 else None
    made = [] if field is None else inner_models(field.annotation)
    return ": " + " or ".join(repr(one.model_fields["kind"].default) for one in made) if made else ""


def _meaning(kind: type[BaseModel], where: tuple[int | str, ...]) -> str:
    """What the field at `where` is described as, if it is a field of `kind` itself."""
    known = kind.model_fields.get(str(where[0])) if len(where) == 1 else None
    return (known.description or "") if known is not None else ""


def inner_models(annotation: Any) -> list[type[BaseModel]]:
    """The settings classes that a field may hold."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in inner_models(part)]


def _inside(kind: type[BaseModel], key: str) -> list[str]:
    """Where a key of that name is declared one level further in: `lr` is `optimiser.lr`."""
    fields = kind.model_fields.items()
    return [
        f"{name}.{key}" for name, field in fields if any(key in m.model_fields for m in inner_models(field.annotation))
    ]


def _example(kind: type[BaseModel]) -> str:
    """One setting by name, with its default."""
    name, field = next(iter(kind.model_fields.items()))
    return f"{name}={field.default!r}"


def unknown_key(key: str, known: list[str], section: str, inside: Sequence[str] = ()) -> str:
    """The sentence for a key nobody declared, with the nearest declared one, or the same name `inside` another."""
    close = list(inside) or difflib.get_close_matches(key.rsplit(".", 1)[-1], known, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"known keys: {', '.join(sorted(known))}"
    return f"unknown key {key!r} in [{section}]; {hint}"


def read_toml(path: Path) -> Mapping[str, Any]:
    """The tables of a TOML file, or one sentence about why not."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"configuration file {str(path)!r} does not exist; check the path") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"configuration file {str(path)!r} cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None


def parse_toml(text: str) -> Mapping[str, Any]:
    """The tables of a text that we wrote ourselves."""
    return tomllib.loads(text)


def with_overrides(tables: Mapping[str, Any], overrides: list[str]) -> dict[str, Any]:
    """Apply `section.key=value` overrides; values are read as TOML, else taken as text."""
    result: dict[str, Any] = {k: dict(v) if isinstance(v, Mapping) else v for k, v in tables.items()}
    for item in overrides:
        name, equals, text = item.partition("=")
        parts = name.strip().split(".")
        if not equals or len(parts) < 2 or not all(parts):
            raise ConfigError(f"--set {item!r}: needed section.key=value, e.g. --set training.rounds=20")
        try:
            value: Any = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            value = text.strip()
        table: dict[str, Any] = result
        for part in parts[:-1]:
            inner = table.setdefault(part, {})
            if not isinstance(inner, dict):
                raise ConfigError(f"--set {item!r}: {part!r} is a value, not a section")
            table = inner
        table[parts[-1]] = value
    return result
