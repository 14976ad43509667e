"""Run: what a training gave: history, ledger, traffic, the model, prediction, saving and loading."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator
from torch import Tensor

from colonnade.admm.stopping import Stopping
from colonnade.config import Settings, build
from colonnade.data.columns import ColumnPlan
from colonnade.data.ids import Ids
from colonnade.design import DTYPES
from colonnade.engines.base import Encoders
from colonnade.errors import NoSuchScore, Unwritable
from colonnade.evaluate.answers import Evaluated
from colonnade.evaluate.decision import DecisionSettings
from colonnade.evaluate.metrics import metric_of
from colonnade.federation import Federation, Task
from colonnade.methods.base import Method
from colonnade.methods.rounds import HasUsual, schedule_of
from colonnade.model import Model
from colonnade.models.augment import Augment
from colonnade.models.computing import Computing, Precision
from colonnade.models.encoders import ModelSettings
from colonnade.outward import Outward
from colonnade.predict import WhenAbsent
from colonnade.privacy.events import LabelExposure
from colonnade.privacy.ledger import Ledger
from colonnade.privacy.settings import PrivacySettings
from colonnade.privacy.tally import tally
from colonnade.record import FORMAT, RECORD, STORE, About, Measured, Result, Round, RunRecord, Sections, read_record
from colonnade.saved import LEDGER, read_kept, write_kept
from colonnade.schedule import ScheduleSettings
from colonnade.tasks.weights import class_text
from colonnade.wire.numbers import WireSettings
from colonnade.wire.traffic import Traffic
from colonnade.written import replace_file

if TYPE_CHECKING:
    from colonnade.explain.explanation import Explanation

__all__ = ["DTYPES", "LEDGER", "RECORD", "STORE", "Run", "Training", "read_record"]


LARGE_BATCH = 32768  # rows of one message that hold a hundred numbers each


class Training(Settings):
    """How a method is trained: length, batches, evaluation, stopping, numbers and place."""

    rounds: int = Field(
        100,
        ge=1,
        description="rounds at most; where unset, assisted_boosting has 20, one_message a pass over the training rows",
    )
    epochs: float | None = Field(
        None, gt=0, description="instead of rounds: how often every training row is visited, at most"
    )
    seed: int = Field(0, ge=0, description="of every random choice in the run")
    schedule: ScheduleSettings = Field(ScheduleSettings(), description="batches and participation")
    evaluate_every: int | None = Field(
        None,
        ge=0,
        description="rounds between evaluations on the validation rows; 0: never; unset: after each of the first 5 "
        "rounds (20 where validation rows are at most a batch), then every 5",
    )
    stopping: Stopping = Field(Stopping(), description="when to stop early")
    metric: str | None = Field(
        None,
        description="chooses the kept round and stops early; unset: auc, accuracy, r2 or poisson_deviance (in "
        "assisted_boosting the loss)",
    )
    decision: DecisionSettings = Field(DecisionSettings(), description="thresholds and calibration of yes/no")
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
        False, description="compile what the networks do in training, for speed; restarts are then not bit-identical"
    )
    augment: Augment = Field(Augment(), description="random changes of pictures in training")
    wire: WireSettings = Field(WireSettings(), description="what is done to messages on their way")
    device: str = Field("cpu", description="cpu, cuda or cuda:N")
    checkpoint_every: int = Field(10, ge=1, description="rounds between checkpoints of a run with a folder")

    @model_validator(mode="after")
    def _one_length(self) -> Training:
        if self.epochs is not None and "rounds" in self.model_fields_set:
            raise ValueError(f"rounds = {self.rounds} and epochs = {self.epochs:g} both say how long; give one of them")
        return self

    def on_parties(self, names: Sequence[str]) -> Training:
        """The same, without what the schedule says of other parties; a party by itself is in every round."""
        schedule = self.schedule
        named = {key: dict(getattr(schedule, key)) for key in ("speeds", "steps")}
        kept = {key: {name: value for name, value in own.items() if name in names} for key, own in named.items()}
        changed: dict[str, Any] = {key: own for key, own in kept.items() if own != named[key]}
        if len(names) == 1 and schedule.participation < 1:
            changed["participation"] = 1.0
        return self.model_copy(update={"schedule": schedule.model_copy(update=changed)}) if changed else self

    def in_rounds(self, method: Method, train: Tensor, parties: tuple[str, ...]) -> Training:
        """The same with its length in rounds, which depends on the training rows; unchanged where it was said so.

        A method that needs one pass gets it where nobody said in how many rounds, and no second one, which would say
        the same again; in messages as large as they may be where their size is open. One that has a usual length gets
        that.

        Args:
            method: whose parties may upload or not; only where they do, rounds may be of one party.
            train: row numbers that train.
            parties: in federation order.
        """
        if isinstance(method, HasUsual):
            usual = method.usual.where_unsaid(self.model_fields_set, self.stopping)
            return self.model_copy(update=usual)._in_rounds(method, train, parties)
        return self._in_rounds(method, train, parties)

    def _in_rounds(self, method: Method, train: Tensor, parties: tuple[str, ...]) -> Training:
        once, settings = getattr(method, "once", False) and "rounds" not in self.model_fields_set, self.schedule
        epochs = min(1.0, self.epochs or 1.0) if once else self.epochs
        if epochs is None:
            return self
        if once:
            usual = {"batch": LARGE_BATCH, "shuffle": "never"}  # rows in their order take fewer bytes
            usual = {name: value for name, value in usual.items() if name not in settings.model_fields_set}
            settings = settings.model_copy(update=usual)
        schedule = schedule_of(method, settings, train, parties, self.seed)
        rounds = max(1, math.ceil(epochs * schedule.rounds_per_pass - 1e-9))
        return self.model_copy(update={"rounds": rounds, "epochs": None, "schedule": settings})

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
class Run(Outward):
    """A finished training: the model, and the record of how it came about."""

    model: Model
    training: Training
    about: About  # federation, engine, machine
    history: list[Round] = field(repr=False)
    traffic: Traffic = field(repr=False)
    result: Result  # scores, rounds, reason, seconds
    config: Sections | None = None  # the TOML tables it came from, if any
    tested: Evaluated | None = field(default=None, repr=False, compare=False)  # after training; never saved
    kept: dict[str, Tensor] = field(default_factory=dict, repr=False)  # the parties' scores, where one more can join

    def __repr__(self) -> str:
        """What was trained on what, how good it is, and where it is saved: settings are in `method` and `training`."""
        test, result = self.result["test_score"], self.result
        told = f"test {self.score_name} {test:.4f}" if test is not None else "not measured on test rows"
        done = f"{result['rounds']} of {self.training.rounds} rounds"
        saved = f", saved in {self.path}" if self.path is not None else ""
        return f"<Run {self.id}: {self.method.name} on {self.about['federation']}, {done}, {told}{saved}>"

    # -- how good -------------------------------------------------------------------------------

    @property
    def score(self) -> float | None:
        """The kept model's score on the test rows; `score_name` says what it measures. None: not measured."""
        return self.result["test_score"]

    @property
    def accuracy(self) -> float | None:
        """The share of test rows (of labels, for a multi-label task) decided right; None: not measured.

        Raises:
            NoSuchScore: the task predicts numbers, which have no accuracy.
        """
        if "accuracy" not in self.task.metrics:
            raise NoSuchScore(f"a {self.task.words} task has no accuracy; run.score is its {self.score_name}")
        return self.result.get("test_accuracy", self.score if self.metric == "accuracy" else None)

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
    def metrics(self) -> dict[str, Measured]:
        """Every metric of the task on the test rows: `test`, `interval` and `baseline`; empty: not measured."""
        return self.result.get("metrics", {})

    # -- the model's ----------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """The run's name in every message and in the ledger."""
        return self.model.design.id

    @property
    def task(self) -> Task:
        """What the labels are."""
        return self.model.task

    @property
    def classes(self) -> tuple[Any, ...]:
        """The classes in the order of the columns of `predict_proba`: names, or 0..K-1; none for a regression."""
        return self.model.classes

    @property
    def method(self) -> Method:
        """What trained it."""
        return self.model.method

    @property
    def model_settings(self) -> ModelSettings:
        """The built-in networks."""
        return self.model.design.settings

    @property
    def privacy(self) -> PrivacySettings:
        """What was promised to whom."""
        return self.model.design.privacy

    @property
    def encoders(self) -> Encoders:
        """The networks, where the user brought them."""
        return self.model.encoders

    @property
    def ledger(self) -> Ledger:
        """What left everybody, in training and since."""
        return self.model.ledger

    @property
    def path(self) -> Path | None:
        """Where it is saved."""
        return self.model.path

    @property
    def state(self) -> dict[str, Tensor]:
        """The coordinator's part of the model."""
        return self.model.state

    @property
    def models(self) -> dict[str, Mapping[str, Tensor]]:
        """Each party's part of the model; empty where it stays with the party."""
        return {party: part.tensors for party, part in self.model.parts.items()}

    @property
    def plans(self) -> dict[str, ColumnPlan]:
        """How tables become columns, by owner."""
        return self.model.plans

    @property
    def releases_training_rows(self) -> bool:
        """Predict rows that trained with noise, which undoes its promise; see `docs/privacy.md`."""
        return self.model.releases_training_rows

    @releases_training_rows.setter
    def releases_training_rows(self, value: bool) -> None:
        self.model.releases_training_rows = value

    def fingerprint(self) -> str:
        """SHA-256 over every number of the model: equal for runs that are bit-identical."""
        return self.model.fingerprint()

    def logits(self, rows: Any, *, id: Ids = None, absent: WhenAbsent = "refuse") -> Tensor:
        """Logits (B, K) of new rows: `Model.logits`."""
        return self.model.logits(rows, id=id, absent=absent)

    def predict(
        self, rows: Any, *, id: Ids = None, threshold: float | None = None, absent: WhenAbsent = "refuse"
    ) -> Any:
        """Predictions for new rows: `Model.predict`.

        Examples:
            >>> import colonnade as cn
            >>> cn.fit(cn.sets.digits(2), "vimadmm", rounds=5).predict(cn.sets.digits(2).select([0, 1, 2])).shape
            (3,)
        """
        return self.model.predict(rows, id=id, threshold=threshold, absent=absent)

    def predict_proba(
        self, rows: Any, *, id: Ids = None, calibrated: bool = True, absent: WhenAbsent = "refuse"
    ) -> Any:
        """Probabilities of new rows: `Model.predict_proba`."""
        return self.model.predict_proba(rows, id=id, calibrated=calibrated, absent=absent)

    # -- saving ---------------------------------------------------------------------------------

    def record(self) -> RunRecord:
        """The run as plain values: what `run.json` holds, and all a report needs."""
        decision = self.model.decision
        record: RunRecord = {
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
            "traffic": self.traffic.record(),
            "releases": [[owner, purpose.value, n] for (owner, purpose), n in self.ledger.counts().items()],
            "mechanisms": sorted({release.mechanism for release in self.ledger}),
            "tally": [party.to_json() for party in tally(self.ledger, self.privacy.neighbours)],
            "config": self.config,
        }
        return record if decision is None else {**record, "decision": decision.to_json()}

    def save(self, folder: str | Path) -> Path:
        """Write the run's files, each whole or not at all, run.json last: the folder is complete when it is there."""
        folder, record = Path(folder), self.record()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if (columns := self.model.write(folder)) is not None:
                record["columns"] = columns
            write_kept(folder, self.kept, self.model.design.id)
            replace_file(folder / RECORD, json.dumps(record, indent=1).encode())
        except OSError as error:
            raise Unwritable(f"the run cannot be saved in {folder} ({error.strerror}); see to the disk") from None
        self.model.path = folder
        return folder

    @classmethod
    def load(cls, folder: str | Path, encoders: Encoders = None) -> Run:
        """Read a saved run; `encoders` are needed again if the run had networks of the user's own."""
        folder = Path(folder)
        record = read_record(folder)
        model = Model.of_run(record, folder, encoders)
        return cls(
            model=model,
            training=build(Training, record["training"], "training"),
            about=record["about"],
            history=record["history"],
            traffic=Traffic.from_json(model.design.parties, record["traffic"]["rounds"]),
            result=record["result"],
            config=record["config"],
            kept=read_kept(folder, model.design.id),
        )

    def extend(self, federation: Federation, **how: Any) -> Run:
        """The run with one more party, the only one that trains and sends anything (`extend.extend`)."""
        from colonnade.extend import extend  # stands above runs: imported only here

        return extend(self, federation, **how)

    def leave(self, party: str, federation: Federation, **how: Any) -> Run:
        """The run without one of its parties; nobody trains or sends anything (`leave.leave`)."""
        from colonnade.leave import leave  # stands above runs: imported only here

        return leave(self, party, federation, **how)

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
