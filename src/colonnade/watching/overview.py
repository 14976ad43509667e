"""Everything that the files of an organisation say of its runs: what `colonnade status` shows on one screen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from colonnade.config import read_toml
from colonnade.deploy.sections import PartySection, read_coordinator_file, read_party_file, role_of
from colonnade.deploy.spent_note import entries_of, read_note
from colonnade.deploy.withdrawal.waiting import Waiting, read_waiting
from colonnade.errors import ColonnadeError, ConfigError
from colonnade.record import RECORD, STORE
from colonnade.service.versions import FILE as MODELS
from colonnade.service.versions import Version, folder_of, list_versions, numbers, read_models
from colonnade.watching.runs import GIVEN_UP, PARTY_STORE, PROPOSAL, UNKNOWN, RunReader, RunStatus

MOST_RUNS = 20  # of one place that are shown: the last ones
HERE = (Path("party.toml"), Path("coordinator.toml"))
RUNS = Path("runs")  # where `colonnade train` puts runs


@dataclass(frozen=True)
class Spending:
    """What a unit of a table has cost in all runs; never a figure without what belongs to it."""

    unit: str
    epsilon: float | None  # None: no bound
    accountant: str
    delta: float
    neighbours: str
    why: str = ""  # there is no bound

    def __str__(self) -> str:
        what = f"unit {self.unit}, {self.neighbours}, delta {self.delta:g}"
        if self.epsilon is None:
            return f"no epsilon ({what}): {self.why or 'some left without noise'}"
        return f"epsilon {self.epsilon:.3f} ({self.accountant} accountant, {what})"


@dataclass(frozen=True)
class TableStatus:
    """What all runs have cost a party's table."""

    party: str
    table: str
    runs: int
    spent: tuple[Spending, ...] = ()
    most_epsilon: float | None = None  # that the policy allows, by unit; None: no limit
    predictions: tuple[int, int, int] = (0, 0, 0)  # rows, predictions in all, those of the row that has most
    note: str = ""  # why there is no figure

    def to_json(self) -> dict[str, object]:
        """Plain values."""
        rows, times, most = self.predictions
        predicted = {"rows": rows, "times": times, "most": most}
        return {**vars(self), "spent": [vars(one) for one in self.spent], "predictions": predicted}


@dataclass(frozen=True)
class ModelStatus:
    """The versions of a label holder's model."""

    run: str
    used: int | None
    waiting: int  # trainings that were asked for
    versions: tuple[Version, ...]

    def to_json(self) -> dict[str, object]:
        """Plain values."""
        return {**vars(self), "versions": [{**vars(one), "folder": str(one.folder)} for one in self.versions]}


@dataclass(frozen=True)
class Status:
    """One look at everything."""

    runs: tuple[RunStatus, ...] = ()
    tables: tuple[TableStatus, ...] = ()
    models: tuple[ModelStatus, ...] = ()
    left_out: int = 0  # older runs that are not shown
    withdrawals: tuple[Waiting, ...] = ()  # of other organisations, that wait for a person here or were refused

    def to_json(self) -> dict[str, object]:
        """Plain values."""
        kinds = ("runs", "tables", "models", "withdrawals")
        parts = {name: [one.to_json() for one in getattr(self, name)] for name in kinds}
        return {**parts, "left_out": self.left_out}

    def __add__(self, other: Status) -> Status:
        both = (self.runs + other.runs, self.tables + other.tables, self.models + other.models)
        return Status(*both, self.left_out + other.left_out, self.withdrawals + other.withdrawals)


@dataclass
class Overview:
    """Files and folders that are looked at again and again."""

    places: Sequence[Path]
    overrides: Sequence[str] = ()
    _readers: dict[Path, RunReader] = field(default_factory=dict, repr=False)

    @classmethod
    def here(cls) -> Overview:
        """What is in the current folder.

        Raises:
            ConfigError: nothing is.
        """
        found = [path for path in (*HERE, RUNS) if path.exists()]
        if not found:
            raise ConfigError(
                "there is nothing to show here: neither party.toml nor coordinator.toml nor a folder runs; name a file "
                "or a run folder"
            )
        return cls(found)

    def look(self) -> Status:
        """How everything is now.

        Raises:
            ConfigError: a place is no configuration file of a deployment, and no folder.
        """
        found = Status()
        for place in self.places:
            found += self._of(place)
        return found

    def readers(self) -> dict[str, RunReader]:
        """The folders of the runs that the last look showed, by what the runs are called."""
        return {reader.status().run: reader for reader in self._readers.values()}

    def _of(self, place: Path) -> Status:
        if place.is_dir():
            return self._of_folder(place)
        if place.suffix != ".toml" or not place.exists():
            raise ConfigError(f"{str(place)!r} is neither a run folder nor a file party.toml or coordinator.toml")
        if role_of(place) == "party":
            party = read_party_file(place, list(self.overrides)).party
            found = self._runs(_of_a_party(party.folder)) + Status(tables=(table_status(party),))
            return replace(found, withdrawals=_waiting(party.withdrawn))
        holder = read_coordinator_file(place, list(self.overrides)).coordinator
        found = self._of_folder(holder.folder) if holder.folder.is_dir() else Status()
        named = tuple(replace(model, run=holder.run) for model in found.models)
        return replace(found, models=named, withdrawals=_waiting(holder.withdrawn))

    def _of_folder(self, folder: Path) -> Status:
        if (folder / MODELS).exists() or (numbers(folder) and not is_run(folder)):
            models = read_models(folder)
            shown = ModelStatus(folder.name, models.used or None, models.waiting, tuple(list_versions(folder)))
            return _given_up(self._runs([folder_of(folder, n) for n in numbers(folder)]), shown)
        if is_run(folder):
            return self._runs([folder])
        inside = [path for path in folder.iterdir() if path.is_dir() and is_run(path)]
        inside.sort(key=lambda path: path.stat().st_mtime)
        if not inside:
            return Status((RunStatus(folder.name, folder, state=UNKNOWN, note="there is no run in it"),))
        return self._runs(inside)

    def _runs(self, folders: Sequence[Path]) -> Status:
        shown = folders[-MOST_RUNS:]
        for folder in shown:
            self._readers.setdefault(folder, RunReader(folder))
        return Status(tuple(self._readers[folder].status() for folder in shown), left_out=len(folders) - len(shown))


def _given_up(found: Status, model: ModelStatus) -> Status:
    """A version that was given up has not ended, and is not one that goes on when somebody starts it again."""
    why = {one.folder: one.why for one in model.versions if one.state == GIVEN_UP}
    runs = tuple(replace(run, state=GIVEN_UP, note=why[run.folder]) if run.folder in why else run for run in found.runs)
    return replace(found, runs=runs) + Status(models=(model,))


def _waiting(withdrawn: Path) -> tuple[Waiting, ...]:
    """Withdrawals that wait; where the list cannot be read, whoever needs it says so."""
    try:
        return read_waiting(withdrawn)
    except ColonnadeError:
        return ()


def is_run(folder: Path) -> bool:
    """Whether a run was begun in a folder."""
    return any((folder / name).exists() for name in (STORE, RECORD, PARTY_STORE, PROPOSAL))


def _of_a_party(folder: Path) -> list[Path]:
    """The runs of a party's folder: in itself, and in its subfolders, the last ones last."""
    if not folder.is_dir():
        return []
    inside = [path for path in folder.iterdir() if path.is_dir() and is_run(path)]
    inside.sort(key=lambda path: path.stat().st_mtime)
    return [*([folder] if is_run(folder) else []), *inside]


def table_status(party: PartySection) -> TableStatus:
    """What all runs have cost a party's table, as the process that changed it last has noted."""
    shown = TableStatus(party.name, party.called, 0, most_epsilon=_allowed(party.policy))
    try:
        digest, runs, predictions = entries_of(party.spent, party.called)
    except ColonnadeError as error:
        return replace(shown, note=str(error))
    shown = replace(shown, runs=runs, predictions=predictions)
    if not runs:
        return shown
    noted = read_note(party.spent, party.called, digest)
    if noted is None:
        return replace(shown, note="not computed yet: colonnade privacy budget PARTY.toml")
    return replace(shown, spent=tuple(_spendings(noted)))


def _spendings(noted: Mapping[str, object]) -> Iterator[Spending]:
    entries = noted.get("together")
    for entry in entries if isinstance(entries, list) else ():
        epsilon = entry.get("epsilon")
        yield Spending(
            str(entry["unit"]), None if epsilon is None else float(epsilon), str(entry["accountant"]),
            float(entry["delta"]), str(entry["neighbours"]), str(entry.get("why") or ""),
        )  # fmt: skip


def _allowed(policy: Path | None) -> float | None:
    """What the policy allows for a table; whoever serves reads and checks all of it."""
    try:
        limit = read_toml(policy).get("most_epsilon") if policy is not None and policy.exists() else None
    except ColonnadeError:
        return None
    return float(limit) if isinstance(limit, (int, float)) and limit > 0 else None
