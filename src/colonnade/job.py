"""Job: a configuration file as objects: data, method, model, training.

[data]                 set = "mnist", parties = 14, data_dir = "..."; or
tables = { bank = "bank.csv", telco = "telco.csv" }, labels = "churn", id = "customer" (or one name per party)
[method]               name = "vimadmm", preset = "paper", and the method's own settings
[model]                encoder = "mlp", hidden = 120, embedding = 60, head = { layers = 2 }
[model.telco]          encoder = "ridge": what is different at one party
[training]             rounds = 100, seed = 0, schedule = { batch = 1024 }, stopping = { drop = 0.02 }
[privacy]              mechanism = "gaussian", clip = 0.005, epsilon = 1, labels = { mechanism = "alibi", ... }
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from colonnade.callbacks import Callback
from colonnade.config import build, unknown_key
from colonnade.data.frames import Frames, read_table
from colonnade.data.ids import id_columns
from colonnade.data.sets import load_set
from colonnade.data.table_file import WRITTEN, text_formats
from colonnade.design import DTYPES
from colonnade.engines.base import Encoders, open_module
from colonnade.engines.own_code import OwnCode, own_code, shapes_of
from colonnade.errors import ConfigError
from colonnade.federation import Federation
from colonnade.fit import fit
from colonnade.methods import make_method
from colonnade.methods._convolutions import for_networks
from colonnade.methods.base import Method
from colonnade.methods.rounds import schedule_of
from colonnade.models.encoders import ModelSettings
from colonnade.privacy.settings import PrivacySettings
from colonnade.progress import Watcher
from colonnade.record import About, Section, Sections
from colonnade.run import Run, Training
from colonnade.tasks import task_about

SECTIONS = ("data", "method", "model", "training", "privacy", "compare")
# What Federation.from_tables takes.
MEANING = ("labels", "id", "task", "keep", "classes", "weights", "columns", "columns_from", "split", "by")
CHOOSES = ("only", "pooled")  # whose columns are trained on; for every kind of data
TABLE_KEYS = ("tables", *MEANING, "categories", *WRITTEN, *CHOOSES)


@dataclass(frozen=True)
class Job:
    """One training, ready to start. Everything is checked before anything is written."""

    data: Section
    method: Method
    model: ModelSettings
    training: Training
    privacy: PrivacySettings
    tables: Sections = field(repr=False)  # the sections as read, for the record; empty: made in Python
    encoders: Encoders = field(default=None, repr=False)  # networks of the user's own, which no file can bring

    def federation(self) -> Federation:
        """Load the data; settings of parties that it does not have are refused."""
        federation = load_data(self.labelled_data)
        self.model.check_parties(federation.names)
        return federation

    @property
    def labelled_data(self) -> Section:
        """The data section; where labels are protected, its split does not count them unless it says so."""
        if "tables" not in self.data or not self.privacy.labels.protects:
            return self.data
        return _unstratified(self.data)

    def part_of(self, federation: Federation) -> Federation:
        """The columns of this data that the job trains on: usually all."""
        return chosen_part(federation, self.data)

    def on(self, federation: Federation) -> Job:
        """The same with its length in rounds of these training rows."""
        parties = ("everyone",) if self.method.pools else federation.names
        return replace(self, training=self.training.in_rounds(self.method, federation.split.train, parties))

    def suited(self, federation: Federation) -> Job:
        """The same with the settings that a training on this data chooses by the parties' networks."""
        outputs, training = federation.task.outputs, self.training
        networks = (
            open_module(self.encoders, self.model.of(name), name, shape, outputs, training.seed, DTYPES[training.dtype])
            for name, shape in ((party.name, tuple(party.columns.shape[1:])) for party in federation.parties)
        )
        return replace(self, method=for_networks(self.method, networks))

    def own_code(self, federation: Federation) -> OwnCode:
        """By which code it trains on this data, where it is not ours."""
        shapes = shapes_of(federation, self.method.pools)
        return own_code(self.method, shapes, self.encoders, self.training.seed)

    def shortfall(self, federation: Federation) -> str:
        """A sentence about rounds that do not visit every training row once; nothing where they do."""
        t, train = self.on(federation).training, federation.split.train
        return schedule_of(self.method, t.schedule, train, federation.names, t.seed).shortfall(t.rounds)

    def fit(
        self,
        federation: Federation,
        out: Path | None = None,
        watch: Watcher | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> Run:
        """Train."""
        return fit(
            federation,
            self.method,
            training=self.training,
            model=self.model,
            encoders=self.encoders,
            privacy=self.privacy,
            out=out,
            watch=watch,
            callbacks=callbacks,
            config=self.tables or None,
        )


def read_job(tables: Mapping[str, Any], method: str | None = None, seed: int | None = None) -> Job:
    """A job from TOML tables; `method` and `seed` replace what the tables say (for comparisons)."""
    for section, body in tables.items():
        if section not in SECTIONS:
            raise ConfigError(unknown_key(section, list(SECTIONS), "configuration"))
        if not isinstance(body, Mapping):
            raise ConfigError(f"{section!r} must be a section, e.g. [{section}]; got {body!r}")
    spec = dict(_method_section(tables, method))
    training = dict(tables.get("training", {}))
    if seed is not None:
        training["seed"] = seed
    name, preset = spec.pop("name", "vimadmm"), spec.pop("preset", None)
    privacy = build(PrivacySettings, tables.get("privacy", {}), "privacy")
    data = dict(tables.get("data", {"set": "digits"}))
    if privacy.by_row and "tables" in data:  # recorded, so that the same numbers come out when the run is resumed
        data.setdefault("columns_from", "others")
    resolved = {
        **tables,
        **({"data": data} if "data" in tables else {}),
        "method": {"name": name, **({"preset": preset} if preset else {}), **spec},
        "training": training,
    }
    return Job(
        data=data,
        method=make_method(name, spec, preset),
        model=build(ModelSettings, tables.get("model", {}), "model"),
        training=build(Training, training, "training"),
        privacy=privacy,
        tables=resolved,
    )


def _method_section(tables: Mapping[str, Any], method: str | None) -> Section:
    """[method] is the default; [compare.NAME] holds the settings of one method of a comparison."""
    spec = dict(tables.get("method", {}))
    if method is None:
        return spec
    if spec.get("name", method) != method:
        spec = {}
    return {**spec, **dict(tables.get("compare", {}).get(method, {})), "name": method}


def load_data(data: Mapping[str, Any], about: About | None = None) -> Federation:
    """The federation that a [data] section describes; `about` is that of a run on it, whose labels mean the same again.

    The first version guessed tasks by other rules, and numbered classes up to the largest label.
    """
    options = {key: value for key, value in data.items() if key not in CHOOSES}
    if "tables" in options:
        return chosen_part(_load_tables(_as_before(about, options) if about is not None else options), data)
    name = options.pop("set", None)
    if name is None:
        raise ConfigError("[data] needs `set = NAME` (digits, mnist, ...) or `tables = { party = FILE, ... }`")
    return chosen_part(load_set(name, **options), data)


def chosen_part(federation: Federation, data: Mapping[str, Any]) -> Federation:
    """What `only = ["bank"]` (some parties' columns) or `pooled = true` (all columns in one place) of [data] leaves."""
    only, pooled = data.get("only"), data.get("pooled", False)
    if only is not None and (not isinstance(only, list) or not only or not all(isinstance(n, str) for n in only)):
        raise ConfigError(f'[data] only = {only!r} is not valid: needed a list of parties, e.g. ["bank"]')
    if not isinstance(pooled, bool):
        raise ConfigError(f"[data] pooled = {pooled!r} is not valid: needed true or false")
    if only is not None and pooled:
        raise ConfigError("[data] has both only and pooled; choose some parties, or all columns in one place")
    if pooled:
        return replace(federation.pooled(), name=f"{federation.name} in one place")
    if only is None:
        return federation
    name = f"{only[0]} alone" if len(only) == 1 else "+".join(only)
    return replace(federation.only(only), name=name)


def _as_before(about: About, options: Section) -> Section:
    numbered = task_about(about).exclusive and not about.get("class_names")
    meaning = {"task": about["task"], **({"classes": about["outputs"]} if numbered else {})}
    return {**meaning, **(options if about.get("stratified") else _unstratified(options))}


def _unstratified(options: Section) -> Section:
    """Options whose split does not count labels, unless they say that it does."""
    split = options.get("split", {})
    return {**options, "split": {"stratify": False, **split}} if isinstance(split, Mapping) else options


def _load_tables(options: Section) -> Federation:
    frames, meaning = read_table_data(options)
    return Federation.from_tables(frames, **meaning)


def read_table_data(options: Section) -> tuple[Frames, dict[str, Any]]:
    """The tables of a [data] section, and the other arguments of `Federation.from_tables`."""
    for key in options:
        if key not in TABLE_KEYS:
            raise ConfigError(unknown_key(key, list(TABLE_KEYS), "data"))
    files: Any = options["tables"]
    if not isinstance(files, Mapping) or not files:
        raise ConfigError("[data] tables needs party names and files, e.g. tables = { bank = 'bank.csv' }")
    if "labels" not in options:
        raise ConfigError("[data] tables also needs `labels = COLUMN`, a column of one of the tables")
    meaning = {key: options[key] for key in MEANING if key in options}
    return read_tables(options), meaning


def read_tables(options: Section) -> Frames:
    """The table files of a [data] section as data frames, by party."""
    files: Any = options["tables"]
    keys, categories = id_columns(options.get("id"), files), _categories(options.get("categories", []))
    written = text_formats(options, files)
    frames = {p: read_table(path, id=keys.get(p), categories=categories, text=written[p]) for p, path in files.items()}
    for name in categories:
        if not any(name in frame.columns for frame in frames.values()):
            raise ConfigError(f"[data] categories names {name!r}, which is a column of none of the tables")
    return frames


def _categories(names: Any) -> list[str]:
    """Columns whose values are categories although they look like numbers."""
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ConfigError(f'[data] categories needs a list of column names, e.g. ["postcode"]; got {names!r}')
    return names


def new_run_folder(method: str) -> Path:
    """A folder name that sorts by time."""
    return Path("runs") / f"{time.strftime('%Y%m%d-%H%M%S')}-{method}"
