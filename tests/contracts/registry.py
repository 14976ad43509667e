"""Every registered method, as the contract tests walk them: a new one is picked up without being listed here."""

from __future__ import annotations

from typing import Any

from colonnade.methods import METHODS, make_method
from colonnade.methods.base import Method
from colonnade.models.heads import HeadSettings

NAMES = sorted(METHODS)
WITHOUT_NETWORKS = {"linear_admm"}  # a party's model is one matrix: no encoder learns, and a solve has no steps


def make(name: str, **settings: Any) -> Method:
    """A method with default settings, except those it declares among `settings`."""
    return make_method(name, {k: v for k, v in settings.items() if k in METHODS[name].model_fields})


def for_heads(name: str, head: HeadSettings, **settings: Any) -> Method:
    """A method that can train such heads: the joint solve is for linear ones only."""
    return make(name, **({"head_update": "sgd"} if head.layers > 1 else {}), **settings)
