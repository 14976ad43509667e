"""Design: what all parts of a model have in common, and what it takes to open their networks again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from pydantic import Field

from colonnade.config import Settings, build
from colonnade.engines.base import Local, columns_dtype, form_groups, in_a_group_alone, introduce
from colonnade.methods import make_method
from colonnade.methods._guest import shown_by
from colonnade.methods.base import Method
from colonnade.models.computing import Computing, Precision
from colonnade.models.encoders import ModelSettings
from colonnade.models.schema import Schema
from colonnade.privacy.settings import PrivacySettings
from colonnade.tasks import Task, find_task, task_about
from colonnade.wire.numbers import WireSettings

DTYPES = {"float32": torch.float32, "float64": torch.float64}


class Arithmetic(Settings):
    """In which numbers a model computes and uploads: what of `Training` still matters when training is over."""

    seed: int = Field(0, ge=0, description="of every random choice")
    dtype: Literal["float32", "float64"] = Field("float32", description="numbers that networks compute in")
    precision: Precision = Field("float32", description="arithmetic of the networks")
    compile: bool = Field(False, description="compile the networks")
    wire: WireSettings = Field(WireSettings(), description="what is done to messages on their way")
    device: str = Field("cpu", description="cpu, cuda or cuda:N")

    @classmethod
    def among(cls, training: Mapping[str, Any]) -> Arithmetic:
        """What stored settings of a training say of it; settings that their version did not know have defaults."""
        return build(cls, {name: training[name] for name in cls.model_fields if name in training}, "training")

    def place(self) -> torch.device:
        """The device of the training where it is; otherwise the CPU."""
        return torch.device(self.device if torch.cuda.is_available() else "cpu")


@dataclass(frozen=True)
class Design:
    """What all parts of a model have in common: everybody who took part knows it."""

    id: str  # of the run that trained it
    method: Method
    settings: ModelSettings
    task: Task
    parties: tuple[str, ...]
    arithmetic: Arithmetic = field(default_factory=Arithmetic)
    privacy: PrivacySettings = field(default_factory=PrivacySettings)
    tokens: tuple[str, ...] = ()  # parties whose columns came as whole numbers

    @property
    def in_one_place(self) -> bool:
        """Whether all columns were put together first (`Federation.pooled`), by the method or before it."""
        return self.method.pools or self.parties == ("everyone",)

    def to_json(self) -> dict[str, object]:
        """Plain values."""
        return {
            "id": self.id,
            "method": {"name": self.method.name, "settings": self.method.model_dump()},
            "model": self.settings.model_dump(),
            "training": self.arithmetic.model_dump(),
            "privacy": self.privacy.model_dump(),
            "about": self.task.about(),
            "parties": list(self.parties),
            **({"tokens": list(self.tokens)} if self.tokens else {}),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Design:
        """The inverse of `to_json`; a run's record has the same keys, but for `parties`."""
        return cls(
            id=str(values["id"]),
            method=make_method(values["method"]["name"], values["method"]["settings"]),
            settings=build(ModelSettings, values["model"], "model"),
            task=task_about(values["about"]),
            parties=tuple(map(str, values["parties"])),
            arithmetic=Arithmetic.among(values["training"]),
            privacy=build(PrivacySettings, values.get("privacy", {}), "privacy"),
            tokens=tuple(map(str, values.get("tokens", ()))),
        )

    @classmethod
    def proposed(cls, body: Mapping[str, Any]) -> Design:
        """That of a proposal which all organisations agreed to; names of classes stay with the label holder."""
        about = {"task": body["task"], "outputs": int(body["outputs"])}
        return cls.from_json({**body, "id": body["run"], "about": about})

    def schema(self, shapes: Mapping[str, tuple[int, ...]], modules: Mapping[str, Local], rows: int) -> Schema:
        """The frame in which some parties, with columns of these shapes, upload about rows of which none trains."""
        a = self.arithmetic
        dtype = DTYPES[a.dtype]
        introduced = {}
        for party, shape in shapes.items():
            reads = columns_dtype(modules[party], party in self.tokens, dtype)
            apart = self.settings.apart(self.settings.of(party)) + in_a_group_alone(party, shown_by(self.method))
            introduced[party] = introduce(party, modules[party], shape, reads, apart)
        return Schema(
            parties=self.parties,
            groups=form_groups(introduced),
            task=self.task,
            rows=rows,
            train=torch.empty(0, dtype=torch.int64),
            head=self.settings.head,
            seed=a.seed,
            dtype=dtype,
            device=a.place(),
            computing=Computing(a.precision, a.compile),
            numbers=a.wire.numbers,
        )

    def for_party(self, party: str) -> Design:
        """What a party knows of it: names of classes stay with the label holder, others' local models with them."""
        own = tuple(name for name in self.tokens if name == party)
        task = find_task(self.task)(self.task.outputs)
        return replace(self, task=task, tokens=own, settings=self.settings.of(party))
