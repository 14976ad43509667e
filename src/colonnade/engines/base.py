"""What every engine must do: one round trip. And how party sides are opened from a federation."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, cast

import torch
from torch import Tensor, nn

from colonnade.engines.party import PartySide
from colonnade.errors import ConfigError, ModelError
from colonnade.federation import Federation, Party
from colonnade.models.cohort import Cohort
from colonnade.models.computing import Computing
from colonnade.models.dropout import with_keyed_dropout
from colonnade.models.encoders import ModelSettings, build_encoder
from colonnade.models.scaling import statistics
from colonnade.models.schema import Group, Schema
from colonnade.models.stack import Mode, Stack, Way, architecture_key
from colonnade.privacy.gate import Down
from colonnade.randomness import dropout_key, seeded
from colonnade.wire.messages import Order
from colonnade.wire.numbers import NumberFormat, Numbers

Encoders = Mapping[str, nn.Module] | Callable[[str, tuple[int, ...]], nn.Module] | None


@dataclass(frozen=True)
class Said:
    """What some parties of one group said, as decoded."""

    places: tuple[int, ...]  # in the group
    values: Mapping[str, Tensor]  # (len(places), B, ...)


class Message(Protocol):
    """A message as it travelled: a `Released` of this process, or one that arrived from another."""

    @property
    def sender(self) -> str:
        """Whose message."""
        ...

    @property
    def payload(self) -> bytes:
        """Its bytes."""
        ...


@dataclass(frozen=True)
class Answers:
    """All answers of one exchange: by ask, then by group, in schema order, never in order of arrival."""

    said: Sequence[Sequence[Said]]
    releases: Sequence[Sequence[Message]]  # by ask; what the bytes are counted on
    absent: tuple[str, ...] = ()  # parties that did not answer in time, where the run goes on without them
    late: Sequence[tuple[int, str, Mapping[str, Tensor]]] = ()  # answers to earlier turns: number, party, arrays


class Engine(Protocol):
    """Where the parties run. Everything else about a round is the same everywhere."""

    name: str

    def exchange(self, order: Order, down: Down) -> Answers:
        """Deliver the messages and wait for the answers."""
        ...

    def parties(self) -> list[PartySide]:
        """The party sides that live in this process."""
        ...

    @property
    def ways(self) -> list[Way]:
        """How each group runs its forward pass, where that was a choice."""
        ...

    def tensors(self) -> dict[str, Tensor]:
        """The parties' state, for a checkpoint (simulation only)."""
        ...

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Put a checkpoint back."""
        ...


@dataclass(frozen=True)
class Workshop:
    """The parties' networks, grouped by architecture, before an engine places them."""

    owners: Mapping[str, Party]  # who holds which columns; in an organisation's own process itself alone
    schema: Schema
    modules: Mapping[str, nn.Module]
    scale: bool  # whether parties scale their columns

    def cohort(self, parties: Sequence[str], way: Way | None = None) -> Cohort:
        """A cohort of parties of one group, on the schema's device."""
        s, owners = self.schema, self.owners
        stack = Stack([self.modules[p] for p in parties], way, s.computing).to(s.device, s.dtype)
        columns = [owners[p].columns for p in parties]
        stacked = columns[0].unsqueeze(0) if len(columns) == 1 else torch.stack(columns)
        cohort = Cohort(tuple(parties), stacked.to(s.device, s.dtype), stack, s)
        if self.scale:
            both = [statistics(owners[p].columns, self._training_rows(owners[p])) for p in parties]
            cohort.scaling = {
                "shift": torch.stack([shift for shift, _ in both]).to(s.device, s.dtype),
                "scale": torch.stack([scale for _, scale in both]).to(s.device, s.dtype),
            }
            cohort.columns = cohort.scale_columns(cohort.columns)
        if any(owners[p].held is not None for p in parties):
            self._empty(cohort, [owners[p].held for p in parties])
        return cohort

    def _training_rows(self, owner: Party) -> Tensor:
        """The training rows that a party holds: its statistics are of these."""
        train = self.schema.train
        return train if owner.held is None else train[owner.held[train]]

    def _empty(self, cohort: Cohort, held: Sequence[Tensor | None]) -> None:
        """Whatever stands in rows that a party does not hold, its network sees zeros there."""
        everything = torch.ones(self.schema.rows, dtype=torch.bool)
        cohort.held = torch.stack([everything if mine is None else mine for mine in held]).to(self.schema.device)
        cohort.columns = cohort.columns.clone()
        cohort.columns[~cohort.held] = 0


def open_workshop(
    federation: Federation,
    model: ModelSettings,
    encoders: Encoders,
    seed: int,
    dtype: torch.dtype,
    device: torch.device,
    computing: Computing,
    numbers: NumberFormat = "full",
) -> Workshop:
    """Build every party's network and group the parties that can be stacked; `numbers` are those of messages."""
    shapes = {party.name: tuple(party.columns.shape[1:]) for party in federation.parties}
    modules = {name: open_module(encoders, model, name, shape, seed, dtype) for name, shape in shapes.items()}
    schema = Schema(
        parties=federation.names,
        groups=form_groups({name: introduce(name, modules[name], shapes[name], dtype) for name in modules}),
        task=federation.task,
        rows=federation.rows,
        train=federation.split.train,
        head=model.head,
        seed=seed,
        dtype=dtype,
        device=device,
        held=None if federation.held is None else federation.held.to(device),
        labelled=None if federation.labelled is None else federation.labelled.to(device),
        computing=computing,
        numbers=numbers,
    )
    scale = not federation.scaled if model.scale_columns == "auto" else model.scale_columns == "always"
    return Workshop({party.name: party for party in federation.parties}, schema, modules, scale)


def numbers_of(schema: Schema) -> Numbers:
    """The numbers in which the messages of a run travel."""
    return Numbers(cast(NumberFormat, schema.numbers), schema.dtype)


@dataclass(frozen=True)
class Introduction:
    """What a party tells about its network: enough to group it, nothing about its columns but their shape."""

    architecture: str  # digest of the network's structure
    shape: tuple[int, ...]  # of one row of columns
    width: int  # of an embedding
    parameters: tuple[int, ...] = ()  # how many numbers each learning tensor holds, in order


def open_module(
    encoders: Encoders, model: ModelSettings, party: str, shape: tuple[int, ...], seed: int, dtype: torch.dtype
) -> nn.Module:
    """A party's network with its first weights."""
    module = _module(encoders, model, party, shape, seed)
    return with_keyed_dropout(module, dropout_key(seed, party)).to(dtype)


def introduce(
    party: str,
    module: nn.Module,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    key: Callable[[nn.Module], str] = architecture_key,
) -> Introduction:
    """What the others need to know of a party's network; `key` is what networks of one group have in common."""
    architecture = hashlib.sha256(key(module).encode()).hexdigest()
    learning = tuple(p.numel() for p in module.parameters() if p.requires_grad)
    return Introduction(architecture, shape, _width(module, party, shape, dtype), learning)


def form_groups(introductions: Mapping[str, Introduction]) -> tuple[Group, ...]:
    """Parties of one architecture and column shape together, in order of first appearance."""
    groups: dict[Introduction, list[str]] = {}
    for party, introduction in introductions.items():
        groups.setdefault(introduction, []).append(party)
    return tuple(Group(tuple(parties), one.width, one.parameters) for one, parties in groups.items())


def _module(encoders: Encoders, model: ModelSettings, party: str, shape: tuple[int, ...], seed: int) -> nn.Module:
    if encoders is None:
        return build_encoder(model, shape, seed, party)
    if isinstance(encoders, Mapping):
        if party not in encoders:
            raise ConfigError(f"no encoder for party {party!r}; give one for each of the parties, or a function")
        return encoders[party]
    make = encoders
    return seeded(lambda: make(party, shape), seed, "encoder", party)


def _width(module: nn.Module, party: str, shape: tuple[int, ...], dtype: torch.dtype) -> int:
    """The width of an embedding, by trying two rows."""
    columns = torch.zeros(1, 2, *shape, dtype=dtype)
    try:
        with torch.no_grad():
            out = Stack([module]).forward(columns, Mode.PREDICT)
    except RuntimeError as error:
        raise ModelError(
            f"the encoder of party {party!r} cannot read columns of shape {tuple(columns.shape[2:])}: {error}"
        ) from None
    if out.dim() != 3:
        raise ModelError(
            f"the encoder of party {party!r} gives shape {tuple(out.shape[1:])} for {columns.shape[1]} rows; "
            "wanted (rows, width)"
        )
    return int(out.shape[2])
