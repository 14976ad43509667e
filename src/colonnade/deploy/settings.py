"""The two configuration files of a deployment (`sections.py`), with what they say about training."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from colonnade.config import build
from colonnade.data.column_settings import PartyColumns
from colonnade.deploy.sections import (
    CoordinatorFile,
    CoordinatorSection,
    PartyFile,
    coordinator_file_of,
    read_coordinator_file,
    read_party_file,
)
from colonnade.engines.remote import Absence
from colonnade.methods import make_method
from colonnade.methods.base import Method
from colonnade.models.encoders import ModelSettings, PartySettings
from colonnade.privacy.settings import PrivacySettings
from colonnade.record import Sections
from colonnade.row_split import SplitSettings
from colonnade.run import Training


@dataclass(frozen=True)
class PartyConfig(PartyFile):
    """party.toml as objects."""

    model: PartySettings | None = None  # where its local model differs from the proposal's
    columns: PartyColumns = field(default_factory=PartyColumns)  # how its columns become numbers, at home


@dataclass(frozen=True)
class CoordinatorConfig(CoordinatorFile):
    """coordinator.toml as objects."""

    method: Method
    model: ModelSettings
    training: Training
    absence: Absence
    privacy: PrivacySettings


def read_party(path: Path, overrides: list[str] | None = None) -> PartyConfig:
    """Read and check party.toml."""
    read = read_party_file(path, overrides)
    model = build(PartySettings, read.tables["model"], "model") if "model" in read.tables else None
    columns = build(PartyColumns, read.tables.get("columns", {}), "columns")
    return PartyConfig(read.party, read.connection, read.tables, model, columns, http=read.http, place=read.place)


def read_coordinator(path: Path, overrides: list[str] | None = None) -> CoordinatorConfig:
    """Read and check coordinator.toml."""
    return _coordinator_of(read_coordinator_file(path, overrides))


def coordinator_of(tables: Sections, path: Path) -> CoordinatorConfig:
    """The same, of sections that were read from a file of this path at another time."""
    return _coordinator_of(coordinator_file_of(tables, path))


def _coordinator_of(read: CoordinatorFile) -> CoordinatorConfig:
    tables = read.tables
    spec = dict(tables.get("method", {}))
    name, preset = spec.pop("name", "vimadmm"), spec.pop("preset", None)
    model = build(ModelSettings, tables.get("model", {}), "model")
    model.check_parties(read.coordinator.parties)
    return CoordinatorConfig(
        coordinator=read.coordinator,
        connection=read.connection,
        tables=tables,
        method=make_method(name, spec, preset),
        model=model,
        training=build(Training, tables.get("training", {}), "training"),
        absence=build(Absence, tables.get("absence", {}), "absence"),
        privacy=build(PrivacySettings, tables.get("privacy", {}), "privacy"),
        http=read.http,
    )


def split_of(section: CoordinatorSection, protected: bool) -> SplitSettings:
    """How the labelled rows are split; where labels are protected, without counting them unless that was said."""
    stratify = False if protected and section.stratify is None else section.stratify
    said: dict[str, object] = {name: getattr(section, name) for name in ("validation", "test", "time", "groups")}
    given = {name: value for name, value in said.items() if name in section.model_fields_set}
    return build(SplitSettings, {**given, "stratify": stratify, "seed": section.split_seed}, "coordinator")
