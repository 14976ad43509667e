"""What every engine must do: one round. And how party sides are opened from a federation."""

from __future__ import annotations

import copy
import difflib
import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, cast

import torch
from torch import Tensor, nn

from colonnade.engines.party import PartySide
from colonnade.errors import ConfigError, ModelError
from colonnade.federation import Federation, Party
from colonnade.mapped import is_mapped
from colonnade.models.augment import Augment
from colonnade.models.cohort import Cohort
from colonnade.models.computing import Computing
from colonnade.models.dropout import with_keyed_dropout
from colonnade.models.encoders import ModelSettings, build_local
from colonnade.models.local import LocalModel, Regressor, Regressors, open_regressor
from colonnade.models.on_disk import ColumnsOnDisk
from colonnade.models.scaling import statistics
from colonnade.models.schema import Group, Schema
from colonnade.models.stack import Mode, Stack, Way, architecture_key
from colonnade.models.stagewise import as_local
from colonnade.privacy.gate import Down
from colonnade.randomness import draws, dropout_key, seeded
from colonnade.row_split import rows_of
from colonnade.wire.messages import Request
from colonnade.wire.numbers import NumberFormat, Numbers
from colonnade.wire.rows import KnownRows

Local = nn.Module | Regressor  # the local model of one party: a network, or anything that can be moved to a target
Encoders = Mapping[str, Local] | Callable[[str, tuple[int, ...]], Local | None] | None
DEPLOYED = "nats"  # the engine of separate organisations, whose ledgers are at the parties


@dataclass(frozen=True)
class GroupUploads:
    """The uploads of some parties of one group, decoded."""

    places: tuple[int, ...]  # in the group
    values: Mapping[str, Tensor]  # (len(places), B, ...)


def by_party(schema: Schema, uploaded: Sequence[GroupUploads]) -> dict[str, dict[str, Tensor]]:
    """The uploads (B, ...) of those who uploaded, by party."""
    return {
        group.parties[place]: {name: value[at] for name, value in part.values.items()}
        for group, part in zip(schema.groups, uploaded, strict=True)
        for at, place in enumerate(part.places)
    }


class Message(Protocol):
    """A message as it travelled: a `Release` of this process, or one that arrived from another."""

    @property
    def sender(self) -> str:
        """Whose message."""
        ...

    @property
    def payload(self) -> bytes:
        """Its bytes."""
        ...


@dataclass(frozen=True)
class Collected:
    """All uploads of one round: by query, then by group, in schema order, never in order of arrival."""

    uploaded: Sequence[Sequence[GroupUploads]]
    releases: Sequence[Sequence[Message]]  # by query; what the bytes are counted on
    absent: tuple[str, ...] = ()  # parties that did not answer in time, where the run goes on without them
    late: Sequence[tuple[int, str, Mapping[str, Tensor]]] = ()  # uploads of earlier rounds: number, party, arrays


class Engine(Protocol):
    """Where the parties run. Everything else about a round is the same everywhere."""

    name: str

    def run_round(self, request: Request, down: Down) -> Collected:
        """Deliver the messages and wait for the uploads."""
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
class CohortBuilder:
    """The parties' local models, grouped by architecture, before an engine places them."""

    owners: Mapping[str, Party]  # who holds which columns; in an organisation's own process itself alone
    schema: Schema
    modules: Mapping[str, Local]
    scaling: frozenset[str]  # the parties that scale their columns
    spares_training: bool = False  # scales come from rows that do not train: no noise covers them (unit ROW)
    scales: Mapping[str, Mapping[str, Tensor]] = field(default_factory=dict)  # by party, tensors of a former part that
    # has them (`scaling.shift`, `scaling.scale`); of all others they are fitted

    def cohort(self, parties: Sequence[str], way: Way | None = None) -> Cohort:
        """A cohort of parties of one group, on the schema's device."""
        s, owners = self.schema, self.owners
        columns = [owners[p].columns for p in parties]
        reads = columns_dtype(self.modules[parties[0]], not columns[0].is_floating_point(), s.dtype)
        models, held, scaling = self._models(parties, way), self._held(parties), self._scaling(parties, reads)
        if any(map(is_mapped, columns)):
            on_disk = ColumnsOnDisk(tuple(columns), s.device, reads, scaling, held)
            return Cohort(tuple(parties), on_disk, models, s, scaling, held=held)
        stacked = columns[0].unsqueeze(0) if len(columns) == 1 else torch.stack(columns)
        cohort = Cohort(tuple(parties), stacked.to(s.device, reads), models, s, scaling, held=held)
        if scaling:
            cohort.columns = cohort.scale_columns(cohort.whole)
        if held is not None:  # whatever stands in rows that a party does not hold, its network sees zeros there
            cohort.columns = cohort.whole.clone()
            cohort.columns[~held] = 0
        cohort.check_tokens(cohort.whole)
        return cohort

    def _scaling(self, parties: Sequence[str], reads: torch.dtype) -> dict[str, Tensor]:
        """Shift and scale of the columns (P, ...), where these parties scale them; tokens are not scaled."""
        s, owners = self.schema, self.owners
        if reads is not s.dtype or not set(parties) & self.scaling:
            return {}
        both = [self._known(p) or statistics(owners[p].columns, self._scale_rows(owners[p])) for p in parties]
        return {
            "shift": torch.stack([shift for shift, _ in both]).to(s.device, s.dtype),
            "scale": torch.stack([scale for _, scale in both]).to(s.device, s.dtype),
        }

    def _known(self, party: str) -> tuple[Tensor, Tensor] | None:
        """Shift and scale as they were in a former run; None: there was none."""
        known = self.scales.get(party, {})
        return (known["scaling.shift"], known["scaling.scale"]) if "scaling.shift" in known else None

    def _held(self, parties: Sequence[str]) -> Tensor | None:
        """(P, N) which rows they hold; None: all."""
        held = [self.owners[p].held for p in parties]
        if all(mine is None for mine in held):
            return None
        everything = torch.ones(self.schema.rows, dtype=torch.bool)
        return torch.stack([everything if mine is None else mine for mine in held]).to(self.schema.device)

    def _models(self, parties: Sequence[str], way: Way | None) -> LocalModel:
        s, models = self.schema, [self.modules[p] for p in parties]
        networks = [model for model in models if isinstance(model, nn.Module)]
        if networks:
            return Stack(networks, way, s.computing).to(s.device, s.dtype)
        return Regressors(parties, [m for m in models if not isinstance(m, nn.Module)], s.outputs)

    def _scale_rows(self, owner: Party) -> Tensor:
        """The rows that a party's scales are taken from: training rows that it holds, or others where those are spared.

        Raises:
            ConfigError: training rows are spared, and there are no others.
        """
        rows = rows_of("others" if self.spares_training else "training", self.schema.train, self.schema.rows)
        return rows if owner.held is None else rows[owner.held[rows]]


def cohort_builder(  # noqa: PLR0913, PLR0917 - all that a schema is made of
    federation: Federation,
    model: ModelSettings,
    encoders: Encoders,
    seed: int,
    dtype: torch.dtype,
    device: torch.device,
    computing: Computing,
    numbers: NumberFormat = "full",
    alone: str = "",
    augment: Augment | None = None,
) -> CohortBuilder:
    """Build every party's local model and group the parties of one kind.

    `numbers` are those of messages, `alone` is the party that no other shares a group with, if there is one, and
    `augment` says how pictures are changed in training; None: not at all.
    """
    modules: dict[str, Local] = {}
    introductions: dict[str, Introduction] = {}
    for party in federation.parties:
        own, shape, name = model.of(party.name), tuple(party.columns.shape[1:]), party.name
        modules[name] = open_module(encoders, own, name, shape, federation.task.outputs, seed, dtype)
        reads = columns_dtype(modules[name], not party.columns.is_floating_point(), dtype)
        apart = model.apart(own) + in_a_group_alone(name, alone)
        introductions[name] = introduce(name, modules[name], shape, reads, apart)
    schema = Schema(
        parties=federation.names,
        groups=form_groups(introductions),
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
        augment=augment or Augment(),
    )
    scaling = frozenset(name for name in federation.names if model.of(name).scales(federation.scaled))
    return CohortBuilder({party.name: party for party in federation.parties}, schema, modules, scaling)


def numbers_of(schema: Schema) -> Numbers:
    """The numbers in which the messages of a run travel."""
    return Numbers(cast(NumberFormat, schema.numbers), schema.dtype)


def known_rows(schema: Schema) -> KnownRows:
    """Which rows train, for reading and writing requests."""
    return KnownRows(schema.train, schema.rows)


@dataclass(frozen=True)
class Introduction:
    """What a party tells about its network: enough to group it, nothing about its columns but their shape."""

    architecture: str  # digest of the network's structure
    shape: tuple[int, ...]  # of one row of columns
    width: int  # of an embedding
    parameters: tuple[int, ...] = ()  # how many numbers each learning tensor holds, in order


def open_module(
    encoders: Encoders,
    model: ModelSettings,
    party: str,
    shape: tuple[int, ...],
    outputs: int,
    seed: int,
    dtype: torch.dtype,
) -> Local:
    """A party's local model with its first weights; `model` is as this party has it."""
    module = _module(encoders, model, party, shape, seed)
    if isinstance(module, nn.Module):
        return with_keyed_dropout(module, dropout_key(seed, party)).to(dtype)
    regressor = copy.deepcopy(module)  # a user's own stays as it was
    open_regressor(regressor, party, shape, outputs, seed, dtype)
    return regressor


def columns_dtype(model: Local, whole: bool, dtype: torch.dtype) -> torch.dtype:
    """The numbers in which a local model reads its columns: whole ones, if they are and it begins with an Embedding.

    Such tokens are neither cast nor scaled.
    """
    if not whole or not isinstance(model, nn.Module):
        return dtype
    first = next((m for m in model.modules() if next(m.parameters(recurse=False), None) is not None), None)
    return torch.int64 if isinstance(first, (nn.Embedding, nn.EmbeddingBag)) else dtype


def introduce(
    party: str,
    module: Local,
    shape: tuple[int, ...],
    reads: torch.dtype,
    apart: str = "",
    name_of: Callable[[nn.Module], str] = architecture_key,
) -> Introduction:
    """What the others need to know of a party's local model.

    `name_of` is what networks of one group have in common, `apart` what keeps parties of equal networks apart.
    A regressor is in a group by itself, unless it says `alike = True`: those that print the same share a group.
    """
    if isinstance(module, nn.Module):
        text, width = name_of(module), _width(module, party, shape, reads)
        _refuse_draws(module, party, shape, reads)
        learning = tuple(p.numel() for p in module.parameters() if p.requires_grad)
    else:
        kind = f"{type(module).__module__}.{type(module).__qualname__}"
        text, learning = f"{kind}|{module!r}" if getattr(module, "alike", False) else f"{kind}|{party}", ()
        width = int(module.output(torch.zeros(2, *shape, dtype=reads)).shape[1])
    return Introduction(hashlib.sha256((text + apart).encode()).hexdigest(), shape, width, learning)


def in_a_group_alone(party: str, alone: str) -> str:
    """What `introduce` needs to keep a party apart from all others; empty: it is not the one to be alone."""
    return f"|{party} alone" if party == alone else ""


def form_groups(introductions: Mapping[str, Introduction]) -> tuple[Group, ...]:
    """Parties of one architecture and column shape together, in order of first appearance."""
    groups: dict[Introduction, list[str]] = {}
    for party, introduction in introductions.items():
        groups.setdefault(introduction, []).append(party)
    return tuple(
        Group(tuple(parties), one.width, one.parameters, math.prod(one.shape)) for one, parties in groups.items()
    )


def encoders_of(encoders: Encoders, party: str) -> Encoders:
    """What one party needs of the local models that a user brought; None: those of the settings."""
    if not isinstance(encoders, Mapping):
        return encoders
    return {party: encoders[party]} if party in encoders else None


def check_encoders(encoders: Encoders, parties: Sequence[str]) -> None:
    """Refuse local models for parties that do not exist; parties without one get that of the settings."""
    if not isinstance(encoders, Mapping):
        return
    strange = next((name for name in encoders if name not in parties), None)
    if strange is not None:
        close = difflib.get_close_matches(str(strange), parties, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"parties: {', '.join(parties)}"
        raise ConfigError(f"encoders has a model for {strange!r}, who is not a party; {hint}")


def _module(encoders: Encoders, model: ModelSettings, party: str, shape: tuple[int, ...], seed: int) -> Local:
    own: Local | None = None
    if isinstance(encoders, Mapping):
        own = encoders.get(party)
    elif encoders is not None:
        make = encoders
        own = seeded(lambda: make(party, shape), seed, "encoder", party)
    return build_local(model, shape, seed, party) if own is None else as_local(party, own)


def _refuse_draws(module: nn.Module, party: str, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """Layers that draw are keyed or refused by name; what a forward pass draws besides, only trying it shows."""
    columns = torch.zeros(1, 2, *shape, dtype=dtype)
    with torch.no_grad():
        drawn = draws(lambda: Stack([module]).forward(columns, Mode.LEARN))
    if drawn:
        raise ModelError(
            f"the encoder of party {party!r} draws random numbers in its forward pass (torch.rand, "
            "nn.functional.dropout, ...), so that no run could be repeated; use nn.Dropout layers, which draw from the "
            "seed of the run"
        )


def _width(module: nn.Module, party: str, shape: tuple[int, ...], dtype: torch.dtype) -> int:
    """The width of an embedding, by trying two rows."""
    columns = torch.zeros(1, 2, *shape, dtype=dtype)
    try:
        with torch.no_grad():
            out = Stack([module]).forward(columns, Mode.PREDICT)
    except RuntimeError as error:
        tokens = any(isinstance(layer, nn.Embedding) for layer in module.modules())
        hint = "; whole numbers are left as they are for a network that begins with nn.Embedding only" if tokens else ""
        raise ModelError(
            f"the encoder of party {party!r} cannot read columns of shape {tuple(columns.shape[2:])}: {error}{hint}"
        ) from None
    if out.dim() != 3:
        raise ModelError(
            f"the encoder of party {party!r} gives shape {tuple(out.shape[1:])} for {columns.shape[1]} rows; "
            "needed (rows, width)"
        )
    return int(out.shape[2])
