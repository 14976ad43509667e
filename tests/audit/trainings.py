"""Short trainings with a listener, made once for all tests of the attacks."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from colonnade.audit.transcript import Transcript, record
from colonnade.data.sets import load_set
from colonnade.federation import Federation, Party
from colonnade.fit import Trainer
from colonnade.methods import VIMADMM, VIMADMMJ, LocalOnly
from colonnade.methods.base import Method
from colonnade.models.encoders import ModelSettings
from colonnade.privacy.mechanism import Mechanism
from colonnade.privacy.settings import PrivacySettings
from colonnade.run import Training

MODEL = ModelSettings(hidden=24, embedding=16)
METHODS: dict[str, Method] = {
    "vimadmm": VIMADMM.paper(),
    "vimadmm_j": VIMADMMJ.paper(),
    "local_only": LocalOnly(),
    "after, sgd": VIMADMM(residual="after", head_update="sgd"),
    "after, joint": VIMADMM(residual="after", head_update="joint"),
}


def open_training(
    federation: Federation,
    method: Method,
    mechanism: Mechanism | None = None,
    privacy: PrivacySettings | None = None,
    **training: Any,
) -> Trainer:
    settings = Training(**{"rounds": 12, "evaluate_every": 0, "schedule": {"batch": 256}, **training})
    return Trainer.open(federation, method, settings, MODEL, None, mechanism, privacy=privacy)


@cache
def digits() -> Federation:
    return load_set("digits", parties=3)


@cache
def plain(name: str) -> Transcript:
    """Digits, three parties, no protection."""
    return record(open_training(digits(), METHODS[name]))


def shuffled(federation: Federation) -> Federation:
    """The same columns beside other rows' labels: nothing about a label is left in them."""
    order = torch.randperm(federation.rows, generator=torch.Generator().manual_seed(5))
    parties = tuple(Party(p.name, p.columns[order]) for p in federation.parties)
    return Federation(parties, federation.labels, federation.task, federation.split, scaled=federation.scaled)
