"""The two configuration files of a deployment: party.toml at every party, coordinator.toml at the label holder.

    party.toml                               coordinator.toml
    [party]                                  [coordinator]
    name = "telco"                           run = "churn"
    run = "churn"                            parties = ["bank_a", "bank_b", "telco"]
    table = "telco.csv"                      own = ["bank_a"]
    id = "customer"                          table = "labels.csv"
    policy = "policy.toml"                   id = "customer"
                                             label = "churned"
    [connection] [model] [columns] [http]    [connection] [method] [model] [training] [privacy] [absence]
                                             [schedule] [withdrawal] [http]

Paths in a file are relative to the file, so that a service may be started from anywhere.

Here is what every command reads, without torch: who this is, and how it connects. `settings.py` has the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import Field, model_validator

from colonnade.align.settings import MOST_IDS, Keep, Name, PartyName
from colonnade.config import Settings, build, read_toml, unknown_key, with_overrides
from colonnade.data.table_file import TableSection
from colonnade.deploy.withdrawal.waiting import WithdrawalLimit
from colonnade.errors import ConfigError
from colonnade.identity.credentials import Connection, Credentials
from colonnade.identity.names import COORDINATOR
from colonnade.record import Section, Sections
from colonnade.web.settings import HttpSection

OF_A_PARTY = ("party", "connection", "model", "columns", "http")
OF_THE_COORDINATOR = (
    "coordinator", "connection", "method", "model", "training", "privacy", "absence", "schedule", "withdrawal",
    "http",
)  # fmt: skip

WITHDRAWN = "the list of people who withdrew (`colonnade forget`), one file for all runs; never put an old copy back"


class PartySection(TableSection):
    """[party]: who this is, which run, and where its columns are."""

    name: PartyName = Field(description="this party's name; also the common name of its certificate")
    run: Name | None = Field(
        None,
        description="the run's name, as the label holder calls it: small letters, digits and -; for `colonnade serve` "
        "there is none to name",
    )
    categories: tuple[str, ...] = Field((), description="columns that hold categories although they look like numbers")
    label: str | None = Field(
        None,
        min_length=1,
        description="the label holder's own party: the column of the labels, which is left out where the table has it",
    )
    alignment: Path = Field(Path("alignment"), description="folder of the aligned rows, made by `colonnade align`")
    folder: Path = Field(Path("party"), description="where the party keeps its model, its ledger and what it sent")
    takes_over: Path | None = Field(
        None,
        description="folder of a finished run, where a proposal takes its parts over; unset: one of that name in or "
        "beside `folder`",
    )
    worth: Path = Field(Path("worth"), description="`colonnade worth`: where the ledger of answers is kept")
    policy: Path | None = Field(None, description="what the operator allows; without it the built-in limits hold")
    table_name: str | None = Field(
        None,
        min_length=1,
        description="under which name all runs count what they cost the table; unset: its file's, without the ending",
    )
    spent: Path = Field(
        Path("spent.db"), description="the ledger of that, one file for all runs; never put an old copy back"
    )
    withdrawn: Path = Field(Path("withdrawn.json"), description=WITHDRAWN)
    device: str = Field("cpu", description="cpu, cuda or cuda:N")
    most_ids: int = Field(
        5_000_000, ge=1, le=MOST_IDS, description="alignment: ids the label holder may bring; each one is a question"
    )

    @property
    def one_run(self) -> str:
        """The run's name, for a command that is about one run."""
        if self.run is None:
            raise ConfigError(
                "[party] needs 'run': the run's name, as the label holder calls it; write it there, or add --set "
                "party.run=NAME"
            )
        return self.run

    @property
    def called(self) -> str:
        """The name of the table in the ledger of all runs."""
        return self.table_name or self.table.name.partition(".")[0]


class CoordinatorSection(TableSection):
    """[coordinator]: the run, its parties, and where the labels are."""

    run: Name = Field(description="the run's name: small letters, digits and -")
    parties: tuple[PartyName, ...] = Field(min_length=1, description="all parties, in the order of the federation")
    own: tuple[PartyName, ...] = Field((), description="parties of this organisation: they hold all ids of the table")
    label: str = Field(min_length=1, description="the label column of the table; a row without one is only predicted")
    task: Literal["multiclass", "binary", "multilabel", "regression", "count"] | None = Field(
        None, description="what the labels are; guessed where that is clear"
    )
    classes: tuple[str, ...] | None = Field(
        None,
        min_length=2,
        description="which classes there are, in their order (no, yes); those that occur if left out",
    )
    weights: str | None = Field(None, description="column of the table: how much each row counts; all alike if unset")
    alignment: Path = Field(Path("alignment"), description="folder of the aligned rows, made by `colonnade align`")
    keep: Keep = Field("all", description="alignment: rows that all parties hold, or also those only some hold")
    train_on: Literal["complete", "all"] = Field(
        "complete", description="rows that train: those that all parties hold, or also those that only some hold"
    )
    folder: Path = Field(Path("run"), description="where the run is kept")
    takes_over: Path | None = Field(
        None,
        description="folder of a finished run of one_message whose parts are taken over: parties that are new train "
        "alone, and those that are not named any more have left",
    )
    worth: Path = Field(
        Path("worth"), description="`colonnade worth`: where the ledger and the key of the label noise are kept"
    )
    withdrawn: Path = Field(Path("withdrawn.json"), description=WITHDRAWN)
    predictions: bool = Field(True, description="propose that the parties also answer predictions later")
    validation: float = Field(0.1, ge=0, lt=1, description="share of the labelled rows that choose the best round")
    test: float = Field(0.15, ge=0, lt=1, description="share of the labelled rows that are evaluated once, at the end")
    stratify: bool | None = Field(
        None,
        description="every part has each class in the same proportion; unset: where a row has one class and labels are "
        "not protected",
    )
    time: str | None = Field(None, description="column of the table: the latest rows test, the past trains")
    groups: str | None = Field(None, description="column of the table: rows of one group are all in one part")
    split_seed: int = Field(0, ge=0, description="of the random choice of validation and test rows")
    by: str | None = Field(None, description="column of the table: test rows are also measured by its groups")
    most_ids: int = Field(5_000_000, ge=1, le=MOST_IDS, description="alignment: ids a party may bring")

    @model_validator(mode="after")
    def _own_are_parties(self) -> CoordinatorSection:
        strange = next((name for name in self.own if name not in self.parties), None)
        if strange is not None:
            raise ValueError(f"own names {strange!r}, who is not among parties")
        if len(set(self.parties)) < len(self.parties):
            raise ValueError("parties names somebody twice")
        return self


class Retraining(Settings):
    """[schedule]: when a label holder that serves trains again."""

    every: str | None = Field(
        None,
        pattern=r"^[1-9]\d{0,4}[mhdw]$",
        description="time after the end of a training until the next: minutes, hours, days or weeks, e.g. 7d; unset: "
        "only when asked for",
    )

    align: Literal["never", "more"] = Field(
        "never",
        description="before a training by the schedule: new ids that all parties hold get rows (`align --more`); where "
        "that cannot be, training goes on with the rows there are",
    )

    patience: float = Field(120.0, gt=0, description="seconds without any progress after which that is given up")

    @property
    def seconds(self) -> float | None:
        """`every` in seconds."""
        units = {"m": 60, "h": 3600, "d": 86400, "w": 604800}
        return None if self.every is None else float(self.every[:-1]) * units[self.every[-1]]


@dataclass(frozen=True)
class PartyFile:
    """party.toml; [model] and [columns] are not checked yet."""

    party: PartySection
    connection: Connection
    tables: Sections = field(repr=False)  # all sections as read
    http: HttpSection | None = field(default=None, kw_only=True)  # where calls are answered; None: nowhere
    place: Path = field(kw_only=True)  # the folder of the file

    def credentials(self) -> Credentials:
        """The party's identity; its certificate must carry its name."""
        return _credentials(self.connection, self.party.name)


@dataclass(frozen=True)
class CoordinatorFile:
    """coordinator.toml; what is for training is not checked yet."""

    coordinator: CoordinatorSection
    connection: Connection
    tables: Sections = field(repr=False)  # all sections as read, for the record
    http: HttpSection | None = field(default=None, kw_only=True)  # where calls are answered; None: nowhere

    @property
    def schedule(self) -> Retraining:
        """When it trains again."""
        return build(Retraining, self.tables.get("schedule", {}), "schedule")

    @property
    def withdrawal(self) -> WithdrawalLimit:
        """How many people parties may withdraw here without a person being asked."""
        return build(WithdrawalLimit, self.tables.get("withdrawal", {}), "withdrawal")

    def credentials(self) -> Credentials:
        """The coordinator's identity."""
        return _credentials(self.connection, COORDINATOR)


def role_of(path: Path) -> Literal["party", "coordinator"]:
    """Whose configuration this is."""
    tables = read_toml(path)
    for role in ("party", "coordinator"):
        if role in tables:
            return "party" if role == "party" else "coordinator"
    raise ConfigError(f"{path} has neither a [party] nor a [coordinator] section; it is not a deployment's file")


def read_party_file(path: Path, overrides: list[str] | None = None) -> PartyFile:
    """Read party.toml, and check what is not for training."""
    tables = _tables(path, overrides, OF_A_PARTY)
    section = build(PartySection, tables.get("party", {}), "party")
    http, place = _http(tables, path), path.resolve().parent
    return PartyFile(_placed(section, path), _connection(tables, path), tables, http=http, place=place)


def read_coordinator_file(path: Path, overrides: list[str] | None = None) -> CoordinatorFile:
    """Read coordinator.toml, and check what is not for training."""
    return coordinator_file_of(_tables(path, overrides, OF_THE_COORDINATOR), path)


def coordinator_file_of(tables: Sections, path: Path) -> CoordinatorFile:
    """The same, of its sections; `path` is where they stand, or stood."""
    section = build(CoordinatorSection, tables.get("coordinator", {}), "coordinator")
    read = CoordinatorFile(_placed(section, path), _connection(tables, path), tables, http=_http(tables, path))
    _ = read.schedule, read.withdrawal  # what is wrong with them is said now
    return read


def _tables(path: Path, overrides: list[str] | None, sections: tuple[str, ...]) -> dict[str, Section]:
    tables = with_overrides(read_toml(path), overrides or [])
    for section, body in tables.items():
        if section not in sections:
            raise ConfigError(unknown_key(section, list(sections), path.name))
        if not isinstance(body, Mapping):
            raise ConfigError(f"{section!r} must be a section, e.g. [{section}]; got {body!r}")
    if sections[0] not in tables:
        shown = 'documentation, page "Separate organisations"'
        raise ConfigError(f"{path} has no [{sections[0]}] section; one is shown in the {shown}")
    return tables


def _connection(tables: Mapping[str, Any], path: Path) -> Connection:
    return _placed(build(Connection, tables.get("connection", {}), "connection"), path)


def _http(tables: Mapping[str, Any], path: Path) -> HttpSection | None:
    return _placed(build(HttpSection, tables["http"], "http"), path) if "http" in tables else None


S = TypeVar("S", bound=Settings)


def _placed(settings: S, path: Path) -> S:
    """Paths of a section, relative to the file they stand in."""
    here = path.resolve().parent
    found = {name: here / value for name, value in settings if isinstance(value, Path)}
    return settings.model_copy(update=found)


def _credentials(connection: Connection, name: str) -> Credentials:
    credentials = Credentials.load(connection)
    if credentials.name != name:
        raise ConfigError(
            f"the certificate {connection.certificate.name} is {credentials.name!r}'s; this process is {name!r}: "
            "give it its own certificate"
        )
    return credentials
