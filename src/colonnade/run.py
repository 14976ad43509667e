"""Run: what a training gave: history, ledger, traffic, the model, prediction, saving and loading."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import torch
from pydantic import Field, field_validator
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from colonnade.admm.stopping import Stopping
from colonnade.config import Settings, build
from colonnade.data.columns import ColumnPlan
from colonnade.data.frames import Ids
from colonnade.data.stored import from_bytes, to_bytes
from colonnade.engines.base import Encoders
from colonnade.errors import DataError, NoSuchScore, RunError, Unwritable
from colonnade.evaluate.metrics import metric_of
from colonnade.federation import Federation, Task
from colonnade.folder import in_use
from colonnade.methods import make_method
from colonnade.methods.base import Method
from colonnade.models.computing import Computing, Precision
from colonnade.models.encoders import ModelSettings
from colonnade.predict import logits_of, named, read_rows
from colonnade.privacy.events import LabelExposure
from colonnade.privacy.ledger import Ledger, Release
from colonnade.privacy.settings import PrivacySettings
from colonnade.privacy.tally import tally
from colonnade.privacy.training_rows import TrainingRows, noised
from colonnade.schedule import ScheduleSettings
from colonnade.tasks import task_about
from colonnade.tasks.weights import class_text
from colonnade.wire.numbers import WireSettings
from colonnade.wire.traffic import Traffic

if TYPE_CHECKING:
    from colonnade.explain.explanation import Explanation

FORMAT = 1
RECORD, MODEL, LEDGER, STORE = "run.json", "model.safetensors", "ledger.jsonl", "run.db"
DTYPES = {"float32": torch.float32, "float64": torch.float64}
TRAINED = "training_rows.safetensors"  # digests of the rows that trained with noise
COLUMNS = "columns.skops"  # how tables became columns, by party, where the run was trained from tables


class Training(Settings):
    """How a method is trained: length, batches, evaluation, stopping, numbers and place."""

    rounds: int = Field(100, ge=1, description="exchanges at most")
    seed: int = Field(0, ge=0, description="of every random choice in the run")
    schedule: ScheduleSettings = Field(ScheduleSettings(), description="batches and participation")
    evaluate_every: int = Field(5, ge=0, description="rounds between evaluations on the validation rows; 0: never")
    stopping: Stopping = Field(Stopping(), description="when to stop early")
    metric: str | None = Field(
        None, description="chooses the kept round and stops early; unset: auc, accuracy, r2 or poisson_deviance"
    )
    class_weights: Literal["balanced"] | dict[str, Annotated[float, Field(gt=0, allow_inf_nan=False)]] | None = Field(
        None, description="how much the loss of a row of each class counts, 1 where not named; balanced: all alike"
    )
    engine: Literal["stacked", "loop"] = Field(
        "stacked", description="stacked: all parties at once; loop: the reference"
    )
    dtype: Literal["float32", "float64"] = Field("float32", description="numbers that networks compute in")
    precision: Precision = Field(
        "float32", description="arithmetic of the networks: float32, or faster and rounded (tf32: GPU only)"
    )
    compile: bool = Field(
        False, description="compile the networks' local steps, for speed; restarts are then not bit-identical"
    )
    wire: WireSettings = Field(WireSettings(), description="what is done to messages on their way")
    device: str = Field("cpu", description="cpu, cuda or cuda:N")
    checkpoint_every: int = Field(10, ge=1, description="rounds between checkpoints of a run with a folder")

    @field_validator("class_weights", mode="before")
    @classmethod
    def _by_name(cls, given: Any) -> Any:
        """Classes may be named as the labels are: 1 or True instead of "1" or "True"."""
        return dict(zip(map(class_text, given), given.values(), strict=True)) if isinstance(given, Mapping) else given

    @property
    def computing(self) -> Computing:
        """How the networks compute."""
        return Computing(self.precision, self.compile)


@dataclass
class Run:
    """A finished training."""

    id: str
    method: Method
    model_settings: ModelSettings
    training: Training
    about: dict[str, Any]  # federation, engine, machine: plain values
    history: list[dict[str, Any]] = field(repr=False)
    traffic: Traffic = field(repr=False)
    ledger: Ledger = field(repr=False)
    result: dict[str, Any]  # scores, rounds, reason, seconds
    state: dict[str, Tensor] = field(repr=False)  # the coordinator's part of the best model
    models: dict[str, dict[str, Tensor]] = field(repr=False)  # each party's part
    encoders: Encoders = field(default=None, repr=False)  # the networks, where the user brought them
    config: dict[str, Any] | None = None  # the TOML tables it came from, if any
    path: Path | None = None
    privacy: PrivacySettings = field(default_factory=PrivacySettings)
    plans: Mapping[str, ColumnPlan] = field(default_factory=dict, repr=False)  # how tables became columns, by party
    trained: TrainingRows | None = field(default=None, repr=False)  # only after a training with noise; None: not known
    releases_training_rows: bool = False  # predict them although they trained with noise, which undoes its promise

    def __repr__(self) -> str:
        """What was trained on what, how good it is, and where it is saved: settings are in `method` and `training`."""
        test, result = self.result["test_score"], self.result
        told = f"test {self.score_name} {test:.4f}" if test is not None else "not measured on test rows"
        done = f"{result['rounds']} of {self.training.rounds} rounds"
        saved = f", saved in {self.path}" if self.path is not None else ""
        return f"<Run {self.id}: {self.method.name} on {self.about['federation']}, {done}, {told}{saved}>"

    @property
    def score(self) -> float | None:
        """The kept model's score on the test rows; `score_name` says what it measures. None: not measured."""
        value: float | None = self.result["test_score"]
        return value

    @property
    def accuracy(self) -> float | None:
        """The share of test rows (of labels, for a multi-label task) decided right; None: not measured.

        Raises:
            NoSuchScore: the task predicts numbers, which have no accuracy.
        """
        if "accuracy" not in self.task.metrics:
            raise NoSuchScore(
                f"a {self.task.words} task has no accuracy; its score on the test rows is {self.score_name}: use "
                "run.score"
            )
        value: float | None = self.result.get("test_accuracy", self.score if self.metric == "accuracy" else None)
        return value

    @property
    def label_exposure(self) -> LabelExposure:
        """Who can read labels off the downlink of this run."""
        return self.privacy.exposure(self.method.exposes)

    @property
    def score_name(self) -> str:
        """What `score` measures, in words: accuracy, AUC, R2, ..."""
        return metric_of(self.task, self.result).title

    @property
    def metric(self) -> str:
        """The name of the metric that `score` is, as `training.metric` has it."""
        return metric_of(self.task, self.result).name

    @property
    def metrics(self) -> dict[str, dict[str, Any]]:
        """Every metric of the task on the test rows: `test`, `interval` and `baseline`; empty: not measured."""
        found: dict[str, dict[str, Any]] = self.result.get("metrics", {})
        return found

    @property
    def task(self) -> Task:
        """What the labels are."""
        return task_about(self.about)

    def fingerprint(self) -> str:
        """SHA-256 over every number of the model: equal for runs that are bit-identical."""
        digest = hashlib.sha256()
        for name, value in sorted(self._flat().items()):
            digest.update(name.encode())
            digest.update(value.detach().cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()

    @property
    def classes(self) -> tuple[Any, ...]:
        """The classes in the order of the columns of `predict_proba`: names, or 0..K-1; none for a regression."""
        return self.task.classes

    def logits(self, rows: Any, *, id: Ids = None) -> Tensor:
        """Logits (B, K) of new rows, in the order of the first party given. Each party's answer is a release.

        Args:
            rows: by party. For a run that was trained from tables: raw data frames, whose columns are found by name.
                For other runs: arrays (B, ...) as in training. For any run: `federation.select(rows)`.
            id: the column that data frames are matched on, or one per party. None: the column of the training if all
                frames have it, otherwise position.
        """
        return logits_of(self, read_rows(self, rows, id))

    def predict(self, rows: Any, *, id: Ids = None) -> Any:
        """Predictions for new rows, given as to `logits`.

        Returns:
            Class names (B,), or class numbers where the classes have no names; zeros and ones (B, K) for a multilabel
            task; numbers (B,) or (B, K) for a regression. A NumPy array; for data frames a pandas Series (or
            DataFrame), indexed by id or, without ids, by position.
        """
        read = read_rows(self, rows, id)
        return named(read, self.task.decide(logits_of(self, read)))

    def predict_proba(self, rows: Any, *, id: Ids = None) -> Any:
        """Probabilities (B, K) of new rows, given as to `logits`; columns in the order of `classes`.

        Returns:
            A NumPy array; for data frames a pandas DataFrame, indexed as in `predict`, its columns the classes.
        """
        read = read_rows(self, rows, id)
        return named(read, self.task.probabilities(logits_of(self, read)), self.classes)

    def append_ledger(self, before: int) -> None:
        """Add what was released after the first `before` to the saved ledger, if the run is saved."""
        if self.path is not None:
            _append(self.path / LEDGER, self.ledger.since(before))

    def record(self) -> dict[str, Any]:
        """The run as plain values: what `run.json` holds, and all a report needs."""
        t = self.traffic
        return {
            "format": FORMAT,
            "id": self.id,
            "about": self.about,
            "method": {"name": self.method.name, "settings": self.method.model_dump()},
            "model": self.model_settings.model_dump(),
            "own_encoders": self.encoders is not None,
            "training": self.training.model_dump(),
            "result": self.result,
            "fingerprint": self.fingerprint(),
            "label_exposure": self.label_exposure.value,
            "privacy": self.privacy.model_dump(),
            "history": self.history,
            "traffic": {
                "up": t.up,
                "down": t.down,
                "multicast": t.multicast,
                "evaluation": t.evaluation,
                "per_party": t.per_party(),
                "rounds": t.to_json(),
            },
            "releases": [[owner, purpose.value, n] for (owner, purpose), n in self.ledger.counts().items()],
            "mechanisms": sorted({release.mechanism for release in self.ledger}),
            "tally": [party.to_json() for party in tally(self.ledger, self.privacy.neighbours)],
            "config": self.config,
        }

    def save(self, folder: str | Path) -> Path:
        """Write the run's files, each whole or not at all, run.json last: the folder is complete when it is there."""
        folder, record = Path(folder), self.record()
        columns = to_bytes(self.plans) if self.plans else None
        flat = {k: v.detach().cpu().contiguous() for k, v in self._flat().items()}
        lines = "".join(json.dumps(release.to_json()) + "\n" for release in self.ledger)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            replace_file(folder / MODEL, save(flat))
            replace_file(folder / LEDGER, lines.encode())
            if columns is not None:
                replace_file(folder / COLUMNS, columns)
                record["columns"] = hashlib.sha256(columns).hexdigest()
            if self.trained is not None:
                replace_file(folder / TRAINED, self.trained.to_bytes(self.id))
            else:
                (folder / TRAINED).unlink(missing_ok=True)  # of another run
            replace_file(folder / RECORD, json.dumps(record, indent=1).encode())
        except OSError as error:
            raise Unwritable(f"the run cannot be saved in {folder} ({error.strerror}); see to the disk") from None
        self.path = folder
        return folder

    def _flat(self) -> dict[str, Tensor]:
        flat = {f"coordinator/{k}": v for k, v in self.state.items()}
        return flat | {f"party/{p}/{k}": v for p, model in self.models.items() for k, v in model.items()}

    @classmethod
    def load(cls, folder: str | Path, encoders: Encoders = None) -> Run:
        """Read a saved run; `encoders` are needed again if the run had networks of the user's own."""
        folder = Path(folder)
        record = read_record(folder)
        if record["own_encoders"] and encoders is None:
            raise RunError(f"{folder} was trained with networks of your own; pass them again as encoders=")
        try:
            flat = load((folder / MODEL).read_bytes())
            lines = (folder / LEDGER).read_text(encoding="utf-8").splitlines()
            ledger = Ledger(Release.from_json(json.loads(line)) for line in lines)
            plans = _read_plans(folder / COLUMNS, record["columns"]) if record.get("columns") else {}
            trained = _read_trained(folder / TRAINED, record["id"]) if noised(ledger) else None
        except FileNotFoundError as error:
            raise RunError(f"{folder} lacks {Path(str(error.filename)).name}; restore it or train again") from None
        except (SafetensorError, ValueError, KeyError, TypeError) as error:
            raise RunError(f"the files of {folder} are damaged ({error}); restore them from a copy") from None
        state = {k.removeprefix("coordinator/"): v for k, v in flat.items() if k.startswith("coordinator/")}
        names = tuple(p["name"] for p in record["about"]["parties"])
        models: dict[str, dict[str, Tensor]] = {name: {} for name in names}
        for key, value in flat.items():
            if key.startswith("party/"):
                _, name, rest = key.split("/", 2)
                models[name][rest] = value
        run = cls(
            id=record["id"],
            method=make_method(record["method"]["name"], record["method"]["settings"]),
            model_settings=build(ModelSettings, record["model"], "model"),
            training=build(Training, record["training"], "training"),
            about=record["about"],
            history=record["history"],
            traffic=Traffic.from_json(names, record["traffic"]["rounds"]),
            ledger=ledger,
            result=record["result"],
            state=state,
            models=models,
            encoders=encoders,
            config=record["config"],
            path=folder,
            privacy=build(PrivacySettings, record.get("privacy", {}), "privacy"),
            plans=plans,
            trained=trained,
        )
        if run.fingerprint() != record["fingerprint"]:
            raise RunError(f"{folder / MODEL} does not belong to its {RECORD}; restore both from one copy")
        return run

    def report(self, folder: str | Path) -> Path:
        """Write report.html (one self-contained file), the files beside it, and return its path."""
        from colonnade.report.html import write_report  # pictures are an optional extra: imported only here

        return write_report([self.record()], Path(folder))

    def explain(self, federation: Federation | None = None, **settings: Any) -> Explanation:
        """What each party contributed; settings are those of `ExplainSettings`. What leaves parties is released.

        Without a federation, the data of the run's own configuration are loaded.
        """
        from colonnade.explain.explain import explain  # stands above runs: imported only here
        from colonnade.explain.settings import ExplainSettings

        return explain(self, federation, build(ExplainSettings, settings, "explain"))


def read_record(folder: Path) -> dict[str, Any]:
    """The plain values of a saved run, or one sentence about what is wrong with the folder."""
    if not folder.is_dir():
        raise RunError(f"{str(folder)!r} is not a run folder; `colonnade train` makes one")
    try:
        record: dict[str, Any] = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    except FileNotFoundError:
        if busy := in_use(folder):
            raise RunError(f"{busy}; wait until it is done") from None
        unfinished = (folder / STORE).exists()
        hint = f"it was interrupted: run `colonnade resume {folder}`" if unfinished else "it is not a run folder"
        raise RunError(f"{folder} has no {RECORD}; {hint}") from None
    except ValueError as error:
        raise RunError(f"{folder / RECORD} is damaged ({error}); restore it from a copy") from None
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise RunError(f"{folder / RECORD} is not a run of format {FORMAT}")
    return record


def _read_plans(path: Path, digest: str) -> dict[str, ColumnPlan]:
    """How the tables of a saved run became columns; files of versions that did not store it have no such file."""
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != digest:
        raise RunError(f"{path} does not belong to its {RECORD}; restore both from one copy")
    try:
        return from_bytes(content)
    except DataError as error:
        raise RunError(f"{path} cannot be used: {error}") from None


def _read_trained(path: Path, run: str) -> TrainingRows | None:
    """What a saved run knows its training rows by; None where an earlier version saved it, or the file was removed."""
    return TrainingRows.from_bytes(path.read_bytes(), run) if path.exists() else None


def replace_file(path: Path, content: bytes) -> None:
    """Write beside, flush to disk, rename: a reader sees the old file or the new one."""
    beside = path.with_name(path.name + ".part")
    with beside.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


def _append(path: Path, releases: Iterable[Release]) -> None:
    with path.open("ab") as file:
        file.write("".join(json.dumps(release.to_json()) + "\n" for release in releases).encode())
        file.flush()
        os.fsync(file.fileno())
