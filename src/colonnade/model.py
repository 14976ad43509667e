"""Model: what remains when training is over: the task, the parties' parts and the coordinator's part.

A folder of a model holds

    model.json                     the design, the parties, digests of the other files
    model.safetensors              every number: coordinator/..., party/NAME/...
    columns.skops                  how tables become columns, where it was trained from tables
    training_rows.safetensors      what rows that trained with noise are known by
    ledger.jsonl                   what left the parties so far, in training and since
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from colonnade import saved as files
from colonnade.data.columns import ColumnPlan
from colonnade.data.ids import Ids
from colonnade.design import Design
from colonnade.engines.base import Encoders, encoders_of
from colonnade.engines.own_code import warn_of_other_code
from colonnade.errors import ConfigError, RunError, Unwritable
from colonnade.evaluate.answers import Answers
from colonnade.evaluate.decision import Decision
from colonnade.methods.base import Method
from colonnade.part import BROKEN, PARTY, Part
from colonnade.predict import Prediction, WhenAbsent, named, predicted, read_rows
from colonnade.privacy.ledger import Ledger
from colonnade.privacy.training_rows import TrainingRows, noised
from colonnade.record import RECORD, ByGroup, RunRecord, read_record
from colonnade.score import scores, scores_by_group
from colonnade.tasks import Task
from colonnade.written import replace_file

if TYPE_CHECKING:
    from colonnade.explain.contributions import Contributions, Importance

ABOUT = "model.json"
FORMAT = 1
COORDINATOR_PART, PARTY_PART = "coordinator/", "party/"  # how names of stored tensors begin


@dataclass
class Model:
    """A trained model: predicts, is scored, saved, loaded, and taken apart by party."""

    design: Design
    parts: Mapping[str, Part] = field(repr=False)  # in federation order
    state: dict[str, Tensor] = field(repr=False)  # the coordinator's part
    ledger: Ledger = field(default_factory=Ledger, repr=False)  # what left the parties; grows with every prediction
    rounds: int = 0  # that trained it; later messages are numbered after them
    trained: TrainingRows | None = field(default=None, repr=False)  # only after a training with noise; None: not known
    releases_training_rows: bool = False  # predict them although they trained with noise, which undoes its promise
    from_tables: bool = False  # trained from tables: without column plans, raw ones cannot be read
    encoders: Encoders = field(default=None, repr=False)  # the networks, where the user brought them
    path: Path | None = None  # the folder whose ledger goes on
    decision: Decision | None = None  # threshold and calibration of yes/no, where they were fitted

    @classmethod
    def assemble(
        cls,
        design: Design,
        state: Mapping[str, Tensor],
        models: Mapping[str, Mapping[str, Tensor]],
        shapes: Mapping[str, Sequence[int]],
        plans: Mapping[str, ColumnPlan],
        encoders: Encoders = None,
        ledger: Ledger | None = None,
    ) -> Model:
        """A model from its numbers.

        Args:
            design: what all parts have in common.
            state: the coordinator's part.
            models: by party; who is not in it keeps its part at home.
            shapes: of a row of columns, by party.
            plans: how tables became columns, by owner.
            encoders: networks that the user brought.
            ledger: what left the parties.
        """
        parts = {
            party: Part(
                design,
                party,
                tuple(shapes[party]),
                models.get(party, {}),
                plans if design.in_one_place else {p: plan for p, plan in plans.items() if p == party},
                encoders_of(encoders, party),
            )
            for party in design.parties
        }
        return cls(design, parts, dict(state), Ledger() if ledger is None else ledger, encoders=encoders)

    def __repr__(self) -> str:
        """What it predicts from whose columns, and where it is saved."""
        saved = f", saved in {self.path}" if self.path is not None else ""
        told = f"{self.task.words} from {', '.join(self.parts)}"
        return f"<Model of run {self.design.id}: {self.method.name}, {told}{saved}>"

    @property
    def task(self) -> Task:
        """What the labels are."""
        return self.design.task

    @property
    def classes(self) -> tuple[Any, ...]:
        """The classes in the order of the columns of `predict_proba`: names, or 0..K-1; none for numbers."""
        return self.task.classes

    @property
    def method(self) -> Method:
        """What trained it."""
        return self.design.method

    @property
    def plans(self) -> dict[str, ColumnPlan]:
        """How tables become columns, by owner; empty where it was trained from arrays."""
        return {owner: plan for part in self.parts.values() for owner, plan in part.plans.items()}

    def _repr_html_(self) -> str:
        from colonnade.report.notebook import of_model  # only a notebook asks

        promise = self.design.privacy.in_words()
        return of_model(f"Model: {self.method.name}, {self.rounds} rounds", self.task, self.parts, promise)

    def flat(self) -> dict[str, Tensor]:
        """Every tensor by its stored name."""
        flat = {f"{COORDINATOR_PART}{name}": value for name, value in self.state.items()}
        for party, part in self.parts.items():
            flat |= {f"{PARTY_PART}{party}/{name}": value for name, value in part.tensors.items()}
        return flat

    def fingerprint(self) -> str:
        """SHA-256 over every number of the model: equal for models that are bit-identical."""
        return files.fingerprint(self.flat())

    # -- predicting -----------------------------------------------------------------------------

    def prediction(self, rows: Any, *, id: Ids = None, absent: WhenAbsent = "refuse") -> Prediction:
        """Logits (B, K) of new rows, in the order of the first party given. Each party's answer is a release.

        Args:
            rows: by party. For a model that was trained from tables: raw data frames, whose columns are found by name.
                For other models: arrays (B, ...) as in training. For any model: `federation.select(rows)`.
            id: the column that data frames are matched on, or one per party. None: the column of the training if all
                frames have it, otherwise position.
            absent: "refuse": all parties are needed. "leave-out": a party may be missing, or lack rows of the others;
                each row is predicted by the parties that it has, where the model has an answer then (docs/subsets.md).
        """
        return predicted(self, read_rows(self, rows, id, absent))

    def logits(self, rows: Any, *, id: Ids = None, absent: WhenAbsent = "refuse") -> Tensor:
        """Logits (B, K) of new rows, given as to `prediction`; a warning says who was left out."""
        return self.prediction(rows, id=id, absent=absent).warned().logits

    def predict(
        self, rows: Any, *, id: Ids = None, threshold: float | None = None, absent: WhenAbsent = "refuse"
    ) -> Any:
        """Predictions for new rows, given as to `prediction`; a warning says who was left out.

        Args:
            rows: as for `prediction`.
            id: as for `prediction`.
            absent: as for `prediction`.
            threshold: of a yes/no task, the probability above which a yes is said; None: the one that was chosen in
                training, otherwise 0.5.

        Returns:
            Class names (B,), or class numbers where the classes have no names; zeros and ones (B, K) for a multilabel
            task; numbers (B,) or (B, K) for a regression. A NumPy array; for data frames a pandas Series (or
            DataFrame), indexed by id or, without ids, by position.
        """
        read = read_rows(self, rows, id, absent)
        if threshold is not None:
            self.task.moved(torch.zeros(0, self.task.outputs), threshold)  # refused before anything leaves
        found = predicted(self, read).warned()
        return named(read, self.task.decide(self.answers(found.logits, threshold, found.complete).decided))

    def answers(self, logits: Tensor, threshold: float | None = None, complete: Tensor | None = None) -> Answers:
        """What the model says with these logits: calibrated, and decided by its own threshold or another one.

        Rows that are not `complete` (B,) lack a party, and are not calibrated: combinations are fitted by themselves.
        """
        return Answers.of_outputs(self.task, logits, self.decision, threshold, complete)

    def predict_proba(
        self, rows: Any, *, id: Ids = None, calibrated: bool = True, absent: WhenAbsent = "refuse"
    ) -> Any:
        """Probabilities (B, K) of new rows, given as to `prediction`; columns in the order of `classes`.

        Calibrated, where the model has a calibration, unless `calibrated` is False; a warning says who was left out.

        Returns:
            A NumPy array; for data frames a pandas DataFrame, indexed as in `predict`, its columns the classes.
        """
        read = read_rows(self, rows, id, absent)
        self.task.probabilities(torch.zeros(0, self.task.outputs))  # refused before anything leaves
        found = predicted(self, read).warned()
        told = self.answers(found.logits, None, found.complete).calibrated if calibrated else found.logits
        return named(read, self.task.probabilities(told), self.classes)

    def score(
        self, rows: Any, labels: Any, metrics: Sequence[str] | None = None, *, id: Ids = None, weights: Any = None
    ) -> dict[str, float]:
        """How good the model is on new rows, by the names of metrics; NaN where these rows do not define one.

        Args:
            rows: as for `logits`.
            labels: as in training: the name of a column of one of the tables; or an array, in the order of the first
                table; or a pandas Series or DataFrame, indexed like what `predict` answers.
            metrics: names, e.g. `["auc"]`; None: all that the task has.
            id: as for `logits`.
            weights: how much each row counts, given as labels are; None: all alike.
        """
        return scores(self, rows, labels, metrics, id, weights)

    def score_by_group(
        self,
        rows: Any,
        labels: Any,
        by: Any,
        metrics: Sequence[str] | None = None,
        *,
        id: Ids = None,
        weights: Any = None,
    ) -> ByGroup:
        """How good the model is on each group of new rows, with counts and 95 % intervals.

        Args:
            rows: as for `logits`.
            labels: as for `score`.
            by: each row's group, given as labels are: a column of one of the tables, an array, or a pandas Series.
            metrics: as for `score`.
            id: as for `logits`.
            weights: as for `score`.

        Returns:
            `column` and `groups`: by name `rows`, `small` (too few rows, or too few of a class, to compare) and
            `metrics`, each with `value` and `interval`; None where these rows do not define one.
        """
        return scores_by_group(self, rows, labels, by, metrics, id, weights)

    def contributions(self, rows: Any, *, party: str | None = None, **how: Any) -> Contributions:
        """What each party, or each column of one party, adds to the score (`explain.of_model.contributions`)."""
        from colonnade.explain.of_model import contributions

        return contributions(self, rows, party, **how)

    def importance(self, rows: Any, labels: Any, metric: str | None = None, **how: Any) -> Importance:
        """What the model loses when a column's values are dealt out anew (`explain.of_model.importance`)."""
        from colonnade.explain.of_model import importance

        return importance(self, rows, labels, metric, **how)

    def part(self, party: str) -> Part:
        """What one organisation holds: its own column plan and numbers, and nothing of the others'."""
        if party not in self.parts:
            raise ConfigError(f"no party called {party!r}; parties: {', '.join(self.parts)}")
        noisy, known = noised(self.ledger), self.trained
        return replace(
            self.parts[party],
            design=self.design.for_party(party),
            noisy=noisy,
            trained=known.of_party(party) if known is not None and party in known.apart else None,
            ledger=Ledger(),
        )

    def append_ledger(self, before: int) -> None:
        """Add what was released after the first `before` to the saved ledger, if the model is saved."""
        if self.path is not None:
            files.append_ledger(self.path / files.LEDGER, self.ledger.since(before))

    # -- saving ---------------------------------------------------------------------------------

    def write(self, folder: Path) -> str | None:
        """Write the files that a folder of a run and one of a model have in common; the digest of the column plans."""
        files.write_tensors(folder, self.flat())
        files.write_ledger(folder, self.ledger)
        columns = files.write_plans(folder, self.plans)
        files.write_trained(folder, self.trained, self.design.id)
        return columns

    def save(self, folder: str | Path) -> Path:
        """Write the model alone, without the record of how it came about; model.json last.

        The ledger of a model that is saved already, in a run folder or elsewhere, goes on there; this is a copy.

        Raises:
            RunError: the folder holds a run or a party's part.
            Unwritable: the disk is full, or the folder may not be written.
        """
        folder = Path(folder)
        for other in (RECORD, PARTY):
            if (folder / other).exists():
                raise RunError(f"{folder} holds a {other}, whose files these would replace; choose another folder")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            about = {
                "format": FORMAT,
                "design": self.design.to_json(),
                "shapes": {party: list(part.shape) for party, part in self.parts.items()},
                "rounds": self.rounds,
                "from_tables": self.from_tables,
                "own_encoders": self.encoders is not None,
                "fingerprint": self.fingerprint(),
                "columns": self.write(folder),
                **({} if self.decision is None else {"decision": self.decision.to_json()}),
            }
            replace_file(folder / ABOUT, (json.dumps(about, indent=1) + "\n").encode())
        except OSError as error:
            raise Unwritable(f"the model cannot be saved in {folder} ({error.strerror}); see to the disk") from None
        self.path = folder if self.path is None else self.path
        return folder

    @classmethod
    def load(cls, folder: str | Path, encoders: Encoders = None) -> Model:
        """Read a model, from a folder of its own or from a run folder.

        Args:
            folder: with `model.json`, or with `run.json` of this version or of version 0.1.
            encoders: the networks, where the user brought them.

        Raises:
            RunError: there is no model in the folder, or its files are damaged or of different models.
        """
        folder = Path(folder)
        if not (folder / ABOUT).exists():
            if (folder / PARTY).exists() and not (folder / RECORD).exists():
                raise RunError(f"{folder} holds the part of one party, which is read with Part.load")
            return cls.of_run(read_record(folder), folder, encoders)
        about = files.read_json(folder / ABOUT)
        try:
            if about["format"] != FORMAT:
                raise RunError(f"{folder / ABOUT} has format {about['format']!r}; this version reads {FORMAT}")
            design, shapes, own = Design.from_json(about["design"]), about["shapes"], bool(about["own_encoders"])
            plans, rounds = files.read_plans(folder, about["columns"], ABOUT), int(about["rounds"])
            from_tables, told = bool(about["from_tables"]), str(about["fingerprint"])
            decision = _decision(about)
        except BROKEN as error:
            raise RunError(f"{folder / ABOUT} is damaged ({error!r}); restore it from a copy") from None
        model = _read(design, folder, shapes, plans, (own, encoders))
        model.rounds, model.from_tables, model.decision = rounds, from_tables, decision
        return _checked(model, told, ABOUT)

    @classmethod
    def of_run(cls, record: RunRecord, folder: Path, encoders: Encoders = None) -> Model:
        """The model of a run folder, given its record."""
        try:
            shapes = {party["name"]: party["shape"] for party in record["about"]["parties"]}
            tokens = [party["name"] for party in record["about"]["parties"] if party.get("integers")]
            design = Design.from_json({**record, "parties": list(shapes), "tokens": tokens})
            plans = files.read_plans(folder, record.get("columns"), RECORD)
            model = _read(design, folder, shapes, plans, (record["own_encoders"], encoders))
            warn_of_other_code(record, design.method, shapes, encoders)
            model.rounds = record["result"]["rounds"]
            model.from_tables = bool(plans) or "tables" in (record["config"] or {}).get("data", {})
            model.decision, told = _decision(record), record["fingerprint"]
        except BROKEN as error:
            raise RunError(f"{folder / RECORD} is damaged ({error!r}); restore it from a copy") from None
        return _checked(model, told, RECORD)


def _read(
    design: Design,
    folder: Path,
    shapes: Mapping[str, Sequence[int]],
    plans: Mapping[str, ColumnPlan],
    networks: tuple[bool, Encoders],
) -> Model:
    """The numbers and the ledger of a folder; `networks`: whether the user brought any, and those given now."""
    own, encoders = networks
    if own and encoders is None:
        raise RunError(f"{folder} was trained with local models of your own; pass them again as encoders=")
    flat, ledger = files.read_tensors(folder), files.read_ledger(folder)
    state = files.beginning(flat, COORDINATOR_PART)
    models = {p: files.beginning(flat, f"{PARTY_PART}{p}/") for p in shapes}
    model = Model.assemble(design, state, models, shapes, plans, encoders, ledger)
    model.trained, model.path = files.read_trained(folder, noised(ledger), design.id), folder
    return model


def _decision(about: Mapping[str, Any]) -> Decision | None:
    """What a stored model or run says of its decisions; earlier versions had none."""
    return None if about.get("decision") is None else Decision.from_json(about["decision"])


def _checked(model: Model, told: str, record: str) -> Model:
    if model.fingerprint() != told:
        raise RunError(
            f"{(model.path or Path()) / files.MODEL} does not belong to its {record}; restore both from one copy"
        )
    return model
