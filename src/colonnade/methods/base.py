"""The round protocol: what a method sees, and the few small functions that are a method.

A method never sees other parties' columns, the transport, the device, the clock, the gate or
a global random generator. Both sides of the wire stand in one file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import torch
from torch import Tensor

from colonnade.errors import ConfigError, GateError, ModelError
from colonnade.federation import Federation
from colonnade.layout import canonical_all
from colonnade.models.classifier import Classifier
from colonnade.models.cohort import Cohort
from colonnade.models.schema import Group, Schema
from colonnade.models.stack import Mode
from colonnade.privacy.events import LabelExposure
from colonnade.privacy.gaussian import NoiseSource
from colonnade.privacy.labels import Labels
from colonnade.privacy.labels.settings import LabelSettings
from colonnade.privacy.mechanism import Mechanism
from colonnade.privacy.sealed import Array, Upload
from colonnade.schedule import RoundPlan
from colonnade.tasks import Task

State = dict[str, Tensor]  # the coordinator's; flat, so that saving it needs no code of a method's own
LARGEST_REPLY = 2.0**50  # of one number, where uploads are noised: its square is still a float32


@dataclass(frozen=True)
class Reply:
    """The coordinator's answer to one round."""

    common: Mapping[str, Tensor] = field(default_factory=dict)  # sent once to all
    own: tuple[Mapping[str, Tensor], ...] = ()  # per group, (P, ...); slice k goes only to party k
    notes: Mapping[str, Tensor] = field(default_factory=dict)  # for the history; never sent
    steps: Mapping[str, int] = field(default_factory=dict)  # where the method chooses them by party; in the next order

    def canonical(self) -> Reply:
        """The same in the layout in which a checkpoint would give it back."""
        return replace(self, common=canonical_all(self.common), own=tuple(canonical_all(part) for part in self.own))

    def noted(self) -> dict[str, float]:
        """Notes as plain numbers, fetched from the device together: each fetch waits for all work on it."""
        if not self.notes:
            return {}
        return dict(zip(self.notes, torch.stack([note.double() for note in self.notes.values()]).tolist(), strict=True))


@dataclass(frozen=True)
class Received:
    """A reply as one cohort gets it: the common part, and its own parties' slices (P, ...)."""

    common: Mapping[str, Tensor]
    own: Mapping[str, Tensor]


@dataclass(frozen=True)
class Uploads:
    """What the coordinator holds for a round's rows: this round's releases, older ones from the upload cache."""

    groups: tuple[Mapping[str, Tensor], ...]  # (P, B, ...) per group, the same grouping in every engine

    def total(self, name: str) -> Tensor:
        """The sum over all parties: all that a secure sum provides."""
        parts = [group[name].sum(dim=0) for group in self.groups]
        return parts[0] if len(parts) == 1 else sum(parts[1:], parts[0])


@runtime_checkable
class Method(Protocol):
    """One training method: a frozen settings object and seven functions.

    `needs_gradients: ClassVar[bool] = False` says that local models are only ever moved towards targets
    (`models/approach.py`), so that they need not be networks; a method that does not say it needs gradients.
    `gives_labels: ClassVar[bool] = True` says that local models fit labels themselves, so that they may be classifiers.
    `once: ClassVar[bool] = True` says that one pass over the training rows is a whole training.
    `whole: ClassVar[bool] = True` says that every round is about all training rows, and misses no reply.
    """

    name: ClassVar[str]  # its file name; the name everywhere
    needs_uploads: ClassVar[Literal["each", "total", "nothing"]]  # what coordinate needs of the uploads
    exposes: ClassVar[LabelExposure]  # who can read labels off the downlink
    pools: ClassVar[bool]  # a reference that puts all columns in one place

    def model_dump(self) -> dict[str, Any]:
        """The settings as plain values; every method is a `Settings`, which has this."""

    def open_party(self, cohort: Cohort) -> None:
        """Prepare a cohort: heads of its own, remembered tensors."""

    def open_coordinator(self, schema: Schema, labels: Labels) -> tuple[State, Reply | None]:
        """The coordinator's first state, and what all parties get before round 1, if anything."""

    def upload_arrays(self, schema: Schema, group: Group) -> Mapping[str, Array]:
        """The arrays that a party of the group uploads; the gate lets nothing else pass."""

    def upload(self, cohort: Cohort, x: Tensor, training: bool) -> Upload:
        """What the cohort would upload about columns x (P, B, ...)."""

    def coordinate(self, state: State, plan: RoundPlan, uploads: Uploads, labels: Labels) -> Reply:
        """Update the state, and answer."""

    def learn(self, cohort: Cohort, plan: RoundPlan, uploaded: Mapping[str, Tensor], reply: Received) -> None:
        """Local steps. `uploaded` is what was sent, as its reader decoded it, never the clean upload."""

    def predict(self, state: State, uploads: Uploads) -> Tensor:
        """Logits (B, K) from the uploads."""


FACTS = ("name", "needs_uploads", "exposes", "pools")  # what a class of methods says of itself
FUNCTIONS = ("open_party", "open_coordinator", "upload_arrays", "upload", "coordinate", "learn", "predict")


@runtime_checkable
class BringsNoise(Protocol):
    """A method that is defined with noise of its own: it stands at the gate, before every upload of training."""

    @property
    def brings(self) -> str:
        """What the ledger calls it; empty: it was switched off."""

    def mechanism(self, source: NoiseSource, schema: Schema) -> Mechanism | None:
        """What the gate has to put there; None: it was switched off."""


@runtime_checkable
class FitsOutputs(Protocol):
    """A method whose prediction has numbers that are fitted on validation rows, before each evaluation on them."""

    def fit_outputs(self, state: State, uploads: Sequence[Uploads], labels: Labels, rows: Tensor) -> None:
        """Update the state from every party's uploads about these rows, in pieces; never called under a secure sum.

        Only `labels.held_out` may be used: what is kept is told to the parties, so protected labels stay protected.
        """


@runtime_checkable
class FitsAtHome(Protocol):
    """A method with numbers that the label holder fits with its true labels, also where the parties get noisy ones.

    They stay with the label holder: such a method replies to no round. Where labels are protected, a run is evaluated
    once, at its end, because `keep` and `stop` would tell the parties of them.
    """

    def fit_at_home(self, state: State, labels: Labels) -> None:
        """Update the state after a round was coordinated; `labels` are the true ones."""


@runtime_checkable
class Extends(FitsAtHome, Protocol):
    """A method whose finished models a party can join: the label holder has all that the others ever sent.

    What it has of training, validation and test rows stands in its state under `cache.`; nobody else gets to see it.
    """

    def remember(self, state: State, rows: Tensor, uploads: Uploads) -> None:
        """Keep what every party said about rows that are evaluated."""

    def recall(self, state: State, rows: Tensor) -> Uploads | None:
        """What every party said about these rows; None: not all of it is known."""

    def join(self, schema: Schema, kept: Sequence[State], labels: Labels) -> State:
        """A state of all parties of a schema, each of which is in one of the states kept; fitted with true labels."""

    def take_over(self, state: State, kept: State, places: Tensor) -> None:
        """Put what parties sent in a former run into a new state, each the first time; nothing is fitted.

        `places` (N,): where each row of the new run stood in the former one; -1: nowhere.
        """

    def beside(self, state: State, rows: Tensor, uploads: Uploads, asked: Sequence[str]) -> Uploads:
        """The uploads of all parties about these rows: of those that were asked as they came, others' from the state.

        `uploads` has zeros in the places of the others.
        """


@runtime_checkable
class ChecksLabels(Protocol):
    """A method that cannot be trained with all labels; asked before anything is proposed to anybody."""

    def check_labels(self, task: Task, settings: LabelSettings, weighted: bool) -> None:
        """Refuse what it cannot use: a kind of labels, a mechanism, or rows that count differently."""


@runtime_checkable
class GivesPoints(Protocol):
    """A method whose predictions stand for whole points, which people add up."""

    def points(self, logits: Tensor) -> Tensor:
        """(B,) the scores that logits (B, K) stand for."""


@runtime_checkable
class Traceable(Protocol):
    """A method whose uploads can be traced back to columns; explanations of the others' columns are refused by name."""

    def computed(self, cohort: Cohort, x: Tensor, mode: Mode) -> dict[str, Tensor]:
        """What `upload` wraps, with gradients (P, B, ...).

        An array called `o` is the party's own outputs, which the coordinator only weighs and adds up.
        """


def is_model(name: str) -> bool:
    """Whether a tensor of the coordinator's state is part of the model; duals and caches are about training rows."""
    return name != "dual" and not name.startswith("cache.")


def small_enough(*parts: Mapping[str, Tensor]) -> bool:
    """Whether every number of a reply is one that parties with noise compute with: finite, at most `LARGEST_REPLY`."""
    numbers = [value for part in parts for value in part.values() if value.is_floating_point() and value.numel()]
    return all(bool(value.abs().max() <= LARGEST_REPLY) for value in numbers)  # a NaN is not


def brings(method: Method) -> str:
    """What the ledger calls the noise that a method brings itself; empty: none."""
    return method.brings if isinstance(method, BringsNoise) else ""


def check_numbers(method: Method, numbers: str, secure_sum: bool) -> None:
    """Refuse to round what has a format of its own: a sum of whole numbers, or uploads that a method packs itself.

    Such a method says `packs: ClassVar[bool] = True`.
    """
    if numbers == "full":
        return
    if secure_sum:
        raise ConfigError(
            f"training.wire.numbers = {numbers!r} would round what a secure sum adds up as masked whole numbers of 8 "
            "bytes; leave one of the two out"
        )
    if getattr(method, "reads_bins", False) and numbers != "float32":
        raise ConfigError(
            f"training.wire.numbers = {numbers!r} would round points, which are whole numbers and must add up; use "
            "'full' or 'float32'"
        )
    if getattr(method, "packs", False):
        raise ConfigError(
            f"training.wire.numbers = {numbers!r}: {method.name} makes small whole numbers of its uploads itself, and "
            "they must arrive as they are; leave it at 'full'"
        )


def check_gradients(method: Method, party: str, has: bool) -> None:
    """Refuse a local model without gradients, unless the method says `needs_gradients: ClassVar[bool] = False`."""
    if has or not getattr(method, "needs_gradients", True):
        return
    raise ConfigError(
        f"method {method.name!r} needs the gradients of every local model, and that of party {party!r} has none (it is "
        "ridge, trees, or a regressor of its own); give it a network, or use vimadmm_j or vimadmm"
    )


def check_classifiers(method: Method, party: str, models: Sequence[object], task: Task) -> None:
    """Refuse a classifier, unless the method gives parties the labels and they are classes."""
    odd = next((model for model in models if isinstance(model, Classifier)), None)
    if odd is None:
        return
    if not getattr(method, "gives_labels", False):
        raise ModelError(
            f"the local model of party {party!r} is {type(odd.estimator).__name__}, a classifier; {method.name} asks a "
            "party to move its outputs towards numbers, not to guess labels: pass a regressor, or use one_message"
        )
    odd.check_task(task.family, task.words)


def check_participation(method: Method, participation: float) -> None:
    """Refuse rounds of some parties where there is one round: no row would have the answers of all of them."""
    if participation < 1 and getattr(method, "once", False):
        raise ConfigError(
            f"schedule.participation = {participation:g}: {method.name} asks every party once about every row; leave "
            "it at 1"
        )


def check_absence(method: Method, goes_on: bool) -> None:
    """Refuse to go on without a party whose one upload is all that there ever is of it, or that may miss no reply."""
    if goes_on and getattr(method, "whole", False):
        raise ConfigError(
            f"absence.then = 'continue': in {method.name} a party that misses a round no longer has the model that the "
            "coordinator counts on; use 'wait' or 'stop'"
        )
    if goes_on and getattr(method, "once", False):
        raise ConfigError(
            f"absence.then = 'continue': {method.name} asks every party once, and without its answer there is no model "
            "with it; use 'wait' or 'stop'"
        )


def check_rows(method: Method, federation: Federation) -> None:
    """Refuse rows that lack a party's columns or a label, unless the method says that it takes them.

    `lacking: ClassVar[bool] = True` takes rows that some parties do not hold, `partial` also those without a label.
    """
    if not federation.partial or getattr(method, "partial", False):
        return
    if getattr(method, "lacking", False):
        if federation.labelled is None:
            return
        unknown = federation.rows - int(federation.labelled.sum())
        raise ConfigError(
            f"method {method.name!r} needs rows that have a label, and {unknown} of {federation.rows} rows have none: "
            "train it on federation.take(federation.labelled) (tables: keep = 'labelled'), or use fedmvt"
        )
    lacking = federation.rows - int(federation.complete.sum())
    raise ConfigError(
        f"method {method.name!r} needs rows that every party holds and that have a label, and {lacking} of "
        f"{federation.rows} rows are not such: train it on Federation.matched() (tables: keep = 'all'), or use "
        "one_message, vimadmm_j, another method that answers without some parties, or fedmvt, which learn from the "
        "others too"
    )


def check_lacking(method: Method) -> None:
    """Refuse labelled rows that some parties do not hold, unless the method says `lacking: ClassVar[bool] = True`."""
    if not getattr(method, "lacking", False):
        raise ConfigError(
            f"coordinator.train_on = 'all': method {method.name!r} needs rows that every party holds; use 'complete', "
            "or one_message, vimadmm_j or another method that answers without some parties"
        )


def check_labels(method: Method, task: Task, settings: LabelSettings, weighted: bool) -> None:
    """Refuse labels that the method cannot be trained with."""
    if isinstance(method, ChecksLabels):
        method.check_labels(task, settings, weighted)


def check_bins(method: Method, party: str, cut: bool) -> None:
    """Refuse columns that are cut into bins, unless the method says `reads_bins: ClassVar[bool] = True`."""
    wanted = getattr(method, "reads_bins", False)
    if wanted and not cut:
        raise ConfigError(
            f"method {method.name!r} reads columns that are cut into bins, and those of party {party!r} are not; say "
            "bins = 5 about its columns ([columns] of party.toml, [data.columns] of a simulation)"
        )
    if cut and not wanted:
        raise ConfigError(
            f"the columns of party {party!r} are cut into bins, whose numbers mean nothing to method {method.name!r}; "
            "leave bins out, or use the method scorecard"
        )


def fit_at_home(method: Method, state: State, reply: Reply, labels: Labels | None) -> None:
    """What a method fits with true labels, after a round to which it had nothing to reply."""
    if not isinstance(method, FitsAtHome) or labels is None:
        return
    if reply.common or any(reply.own):
        raise GateError(f"{method.name} fits with true labels and replies; nothing was released")
    method.fit_at_home(state, labels)


def on_scale(state: Mapping[str, Tensor], logits: Tensor) -> Tensor:
    """Predictions as the labels were before they were standardised.

    In float64, as the labels were read: float32 has no numbers between 10,000,001 and 10,000,002.
    """
    return logits.double() * state["target.scale"] + state["target.shift"] if "target.scale" in state else logits
