"""[labels]: how the label holder's labels are protected, and the mechanism those settings ask for."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor

from colonnade.config import Settings
from colonnade.errors import ConfigError
from colonnade.privacy.events import EmptyEvent, Event, PlainEvent
from colonnade.privacy.labels import Labels
from colonnade.privacy.labels.alibi import Alibi, AlibiEvent
from colonnade.privacy.labels.plain import PlainLabels
from colonnade.privacy.labels.randomised import RandomisedResponse, RandomisedResponseEvent
from colonnade.tasks import Task
from colonnade.tasks.reading import COUNTED

MECHANISMS: dict[str, tuple[type[Alibi | RandomisedResponse], type[Event]]] = {
    "alibi": (Alibi, AlibiEvent),
    "randomised_response": (RandomisedResponse, RandomisedResponseEvent),
}  # by the name that settings have for them


class LabelSettings(Settings):
    """What stands between the plain labels and training."""

    mechanism: Literal["none", "alibi", "randomised_response"] = Field(
        "none", description="noise drawn once before training: Laplace (alibi), or some labels replaced"
    )
    epsilon: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="label privacy of one row's whole label, delta = 0; smaller hides more",
    )
    uniform_rounds: int = Field(
        5, ge=0, description="first rounds that do not listen to the model, which else would teach itself"
    )

    @model_validator(mode="after")
    def _epsilon_with_a_mechanism(self) -> LabelSettings:
        if self.protects and self.epsilon is None:
            raise ValueError(f"mechanism = {self.mechanism!r} needs an epsilon, for instance epsilon = 2.83")
        if not self.protects and self.epsilon is not None:
            raise ValueError(
                f"epsilon = {self.epsilon} promises a protection that mechanism = 'none' does not give; "
                "choose 'alibi' or 'randomised_response', or leave epsilon out"
            )
        return self

    @property
    def protects(self) -> bool:
        """Whether training sees noisy labels."""
        return self.mechanism != "none"

    @property
    def countable(self) -> bool:
        """Whether training sees one of the classes of each row, its own or another; Laplace noise leaves none."""
        return not self.protects or MECHANISMS[self.mechanism][0] is RandomisedResponse

    @property
    def events(self) -> tuple[type[Event], ...]:
        """What a ledger may say of the coordinator's messages."""
        made = MECHANISMS[self.mechanism][1] if self.protects else PlainEvent
        return (made, EmptyEvent)


def check_counted(positive: str, settings: LabelSettings) -> None:
    """Refuse a mechanism where the labels were counted to choose the positive class.

    One label more or less could then swap the meaning of all, which no mechanism that hides one label at a time covers.
    """
    if settings.protects and positive in COUNTED:
        raise ConfigError(
            f"label mechanism {settings.mechanism!r}: which class counts as yes was found by counting the labels "
            f'({positive}), which it does not cover; name both, e.g. classes=["good", "bad"], first the no'
        )


def check_split_alone(stratified: bool, settings: LabelSettings) -> None:
    """Refuse a mechanism where the labels were counted to split the rows: every party is told which rows train."""
    if settings.protects and stratified:
        raise ConfigError(
            f"label mechanism {settings.mechanism!r}: the rows were split in proportion to the classes, which counts "
            "the labels and is not covered; split them without: split={'stratify': False}"
        )


def open_labels(  # one argument per fact
    values: Tensor,
    task: Task,
    train: Tensor,
    settings: LabelSettings,
    key: int,
    held_out: Tensor | None = None,
) -> Labels:
    """The labels as training may see them.

    The same key and settings give the same noise, so that a coordinator that starts again draws nothing new.

    Args:
        values: all labels by row number, on the run's device.
        task: what kind of labels.
        train: row numbers that train.
        settings: which mechanism.
        key: of the noise, up to 128 bits, for these labels only; plain labels ignore it. Secret: with it the noise
            can be taken away again.
        held_out: rows to validate on, which a mechanism then noises too, each once.
    """
    if not settings.protects:
        return PlainLabels.of(values, task, train)
    if settings.epsilon is None:  # only `model_construct` and `model_copy` come here
        raise ConfigError(f"label mechanism {settings.mechanism!r} needs an epsilon")
    rows = train.cpu() if held_out is None else torch.cat([train.cpu(), held_out.cpu()])
    noisy = MECHANISMS[settings.mechanism][0]
    return noisy.of(values, task, rows, settings.epsilon, settings.uniform_rounds, key)
