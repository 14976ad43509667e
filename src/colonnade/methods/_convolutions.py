"""The optimiser of methods whose parties have convolutions, where nobody named one.

Convolutions need larger steps than the networks of tables do, which fall while they train, and a stronger decay. In a
simulation all networks are known when a training begins; what was chosen is recorded with the run as if it had been
named. Between organisations nobody knows the others' networks, and the usual optimiser stays.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Protocol, runtime_checkable

from torch import nn

from colonnade.config import Settings
from colonnade.methods.base import Method
from colonnade.models.optimise import AdamW, Optimiser
from colonnade.models.stack import has_convolutions

FOR_CONVOLUTIONS = AdamW(lr=3e-3, weight_decay=0.3, halve_every=150)
LOCAL_OPTIMISER = (
    "local optimiser; where it is unset and, in a simulation, all parties have convolutions: adamw with lr = 3e-3, "
    "weight_decay = 0.3, halve_every = 150"
)


@runtime_checkable
class Convolves(Protocol):
    """A method that has an optimiser of its own for convolutions."""

    convolutional: ClassVar[Optimiser]


def for_networks(method: Method, local_models: Iterable[object]) -> Method:
    """The method, with its optimiser for convolutions if all parties have some and nobody named an optimiser."""
    if not isinstance(method, Settings) or not isinstance(method, Convolves) or "optimiser" in method.model_fields_set:
        return method
    if not all(isinstance(model, nn.Module) and has_convolutions(model) for model in local_models):
        return method
    suited: Method = method.model_copy(update={"optimiser": method.convolutional})
    return suited
