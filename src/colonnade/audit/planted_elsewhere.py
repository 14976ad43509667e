"""Planted bugs that are no wrapper around one party's noise: of a secure sum, and of labels."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from colonnade.audit.label_game import OpenLabels
from colonnade.errors import ConfigError
from colonnade.privacy.around import AroundSum
from colonnade.privacy.labels import Labels, NoisyLabels
from colonnade.privacy.labels.settings import LabelSettings, open_labels
from colonnade.tasks import Task


@dataclass
class MissingShare(AroundSum):
    """A secure sum in which one party adds no noise; it needs noise that can be drawn again."""

    silent: str = ""  # the party

    def __call__(
        self, upload: Mapping[str, Tensor], parties: Sequence[str], number: int, what: str
    ) -> Mapping[str, Tensor]:
        """The parts of all, and of one the bare upload."""
        parts = self.inner(upload, parties, number, what)
        noise = self.inner({n: torch.zeros_like(v) for n, v in upload.items()}, parties, number, what)
        places = [i for i, party in enumerate(parties) if party == self.silent or party.startswith(f"{self.silent} ")]
        for name, value in parts.items():
            value[places] -= noise[name][places]
        return parts


def weaker_labels(stronger: Callable[[float, Task], float]) -> OpenLabels:
    """Labels that are opened with another epsilon than they say."""

    def opened(values: Tensor, task: Task, rows: Tensor, settings: LabelSettings, key: int) -> Labels:
        epsilon = float(settings.epsilon or 0.0)
        real = stronger(epsilon, task)
        labels = open_labels(values, task, rows, settings.model_copy(update={"epsilon": real}), key)
        if not isinstance(labels, NoisyLabels):
            raise ConfigError("this bug is one of a label mechanism; these labels have none")
        return replace(labels, epsilon=epsilon, evidence=labels.evidence * epsilon / real)

    return opened


# A label is kept as often as if there were two classes, however many there are.
kept_too_often = weaker_labels(lambda epsilon, task: epsilon + math.log(max(1, task.outputs - 1)))
# The deviation of the noise is 0.8 of what is said.
weak_label_noise = weaker_labels(lambda epsilon, task: epsilon / 0.8)
