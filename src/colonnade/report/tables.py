"""The tables of one run as plain rows; the HTML page and the command line draw the same ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from colonnade.config import build
from colonnade.methods import make_method
from colonnade.models.encoders import ModelSettings
from colonnade.privacy.settings import PrivacySettings
from colonnade.report import words
from colonnade.report.record import Record, flat, released
from colonnade.run import Training


@dataclass(frozen=True)
class Table:
    """A caption, headings and rows of text; the first column names its row."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: frozenset[int] = frozenset({0})  # columns of words; the others are numbers, aligned right


def settings_table(record: Record) -> Table:
    """Every setting with its value and its meaning; those that differ from the default are marked."""
    method = make_method(record["method"]["name"], record["method"]["settings"])
    model = build(ModelSettings, record["model"], "model")
    training = build(Training, record["training"], "training")
    rows: list[tuple[str, ...]] = []
    privacy = build(PrivacySettings, record.get("privacy", {}), "privacy")
    for section, settings in (("method", method), ("model", model), ("training", training), ("privacy", privacy)):
        for name, value, meaning, changed in _walk(settings, type(settings)()):
            rows.append((f"{section}.{name}", words.value(value) + ("*" if changed else ""), meaning))
    rows += _of_parties(model)
    caption = "Settings (* differs from the default)"
    return Table(caption, ("setting", "value", "meaning"), tuple(rows), frozenset({0, 1, 2}))


def _of_parties(model: ModelSettings) -> Iterator[tuple[str, str, str]]:
    """What is different at single parties."""
    for party, different in model.parties.items():
        for name, value in different.given().items():
            for inner, single in flat({name: value}).items():
                yield f"model.{party}.{inner}", words.value(single) + "*", f"at {party}, in place of model.{inner}"


def _walk(settings: BaseModel, default: Any, prefix: str = "") -> Iterator[tuple[str, Any, str, bool]]:
    """Dotted name, value, meaning, and whether it differs from the default (of the same kind of settings)."""
    for name, field in type(settings).model_fields.items():
        value = getattr(settings, name)
        usual = getattr(default, name, None) if type(default) is type(settings) else None
        if isinstance(value, BaseModel):
            yield from _walk(value, usual, f"{prefix}{name}.")
        else:
            yield prefix + name, value, field.description or "", value != usual


def changed_settings(record: Record) -> list[str]:
    """Settings that differ from the default, as `name = value`."""
    table = settings_table(record)
    return [f"{name} = {value.removesuffix('*')}" for name, value, _ in table.rows if value.endswith("*")]


def parties_table(record: Record) -> Table:
    """What each party holds, sent, received and released."""
    counts = released(record)
    rows = []
    for party in record["about"]["parties"]:
        name = party["name"]
        traffic, mine = record["traffic"]["per_party"][name], counts.get(name, {})
        told = [f"{n:,} {purpose.lower()}" for purpose, n in sorted(mine.items())]
        held = words.shape(party["shape"])
        rows.append((name, held, words.size(traffic["up"]), words.size(traffic["down"]), ", ".join(told) or "none"))
    columns = ("party", "columns held", "training bytes up", "training bytes down", "releases")
    return Table("Parties", columns, tuple(rows), frozenset({0, 1, 4}))


def traffic_table(record: Record) -> Table:
    """Bytes per round and in total; multicast and evaluation apart."""
    traffic, rounds = record["traffic"], max(1, record["result"]["rounds"])
    kinds = (
        ("up: parties to coordinator", traffic["up"]),
        ("down: coordinator to parties", traffic["down"]),
        ("both directions", traffic["up"] + traffic["down"]),
        ("both, common messages sent once (multicast)", traffic["multicast"]),
        ("evaluation on validation and test rows, not in the above", traffic["evaluation"]),
    )
    rows = tuple((name, words.size(total / rounds), words.size(total)) for name, total in kinds)
    return Table("Traffic, counted on encoded messages", ("bytes", "mean per round", "total"), rows)


def machine_table(record: Record) -> Table:
    """Where it ran, and the fingerprint by which a repetition can be checked."""
    about = record["about"]
    rows = (
        *((key, str(value)) for key, value in about["machine"].items()),
        ("engine", about["engine"]),
        ("run", record["id"]),
        ("fingerprint of the model", record["fingerprint"]),
    )
    return Table("Machine and identity", ("what", "value"), rows, frozenset({0, 1}))
