"""Uploads without their signal: the noise leaves, and nothing that was computed from columns.

For the question what uploads contribute (`upload_gain.py`): whatever a training still reaches behind this, its uploads
are not the reason. A mechanism is given zeros in place of the upload, or what stands for zero where it draws counts,
and then does what it always does: its noise is the same draw, and the ledger, the budget and all other draws stay as
they were. Where uploads leave without noise, as under label privacy alone, zeros leave.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from colonnade.privacy.around import Around, AroundSum
from colonnade.privacy.declared import Declared
from colonnade.privacy.mechanism import Hiding, Protection


@dataclass
class Silenced(Around):
    """A mechanism that is given uploads without signal; rounds and budget stay as they were."""

    def given(self, upload: Mapping[str, Tensor], parties: Sequence[str]) -> Mapping[str, Tensor]:
        """Nothing, in the shape of the upload."""
        counts = self.event.counted(1)
        nothing = 0.0 if counts is None else counts.trials / 2  # of counts, the mean of value 0
        return {name: torch.full_like(value, nothing) for name, value in upload.items()}


@dataclass
class SilencedSum(Silenced, AroundSum):
    """The same where releases only open together."""


def separable(protection: Protection) -> bool:
    """Whether signal and noise can be told apart: not where a method puts the noise into its model."""
    return not isinstance(protection.training, Declared)


def without_signal(protection: Protection) -> Protection:
    """The protection of a run with the signal of its training uploads removed; evaluation and prediction as before."""
    training = protection.training
    return replace(protection, training=SilencedSum(training) if isinstance(training, Hiding) else Silenced(training))
