"""Cohort: the parties of one process whose local models are of one kind.

Party-side code always sees a leading party axis (P, B, ...). P is 1 in an organisation's
own process and M in simulation, so the same method code runs on one GPU and in a hospital.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor

from colonnade.errors import ConfigError, DataError
from colonnade.layout import canonical
from colonnade.models.by_row import RowTraining
from colonnade.models.heads import open_heads
from colonnade.models.local import LOCAL, PENDING, LocalModel, Regressors
from colonnade.models.on_disk import ColumnsOnDisk
from colonnade.models.optimise import State
from colonnade.models.scaling import apply_scaling
from colonnade.models.schema import Schema
from colonnade.models.stack import Mode, Stack
from colonnade.models.tokens import check_tokens

Draw = Callable[[Sequence[str], int, str, int, float], Tensor]  # parties, round, what for, how many, deviation: (P, n)
MODELS = ("parameter.", "buffer.", LOCAL)  # how the names of local models' tensors begin
KEPT = "kept."  # how names in a memory begin that are part of the model
PREDICT_CHUNK = 4096  # rows per forward pass outside training: bounds memory, changes no value


@dataclass
class Cohort:
    """Names, columns, local models and whatever a method remembers, all with a leading party axis."""

    names: tuple[str, ...]
    columns: Tensor | ColumnsOnDisk = field(repr=False)  # (P, N, ...)
    encoder: LocalModel = field(repr=False)
    schema: Schema = field(repr=False)
    scaling: dict[str, Tensor] = field(default_factory=dict, repr=False)  # shift and scale of the columns, if any
    head: dict[str, Tensor] = field(default_factory=dict, repr=False)  # where parties own their heads
    memory: dict[str, Tensor] = field(default_factory=dict, repr=False)  # a method's own tensors, (P, ...)
    optimiser: dict[str, State] = field(default_factory=dict, repr=False)  # per set of trained tensors
    draw: Draw | None = field(default=None, repr=False)  # normal numbers for noise in a party's own model
    by_row: RowTraining | None = field(default=None, repr=False)  # where they train row by row with noise
    graphs: dict[object, object] = field(default_factory=dict, repr=False)  # captured steps, see models/graphs.py
    held: Tensor | None = field(default=None, repr=False)  # (P, N) which rows they hold; None: all
    queried: Tensor | None = field(default=None, repr=False)  # (P, B) which of the rows asked about, see `about`
    asked: Tensor | None = field(default=None, repr=False)  # (B,) numbers of the rows asked about; None: new rows
    round_number: int | None = field(default=None, repr=False)  # that trains at the moment; None: none

    @property
    def device(self) -> torch.device:
        """Where the cohort lives."""
        return self.columns.device

    def own_heads(self, times: int = 1) -> None:
        """Give each party a head of its own, from its own stream; a model without gradients outputs logits itself.

        `times` is how many numbers there are for each output of the task.
        """
        s = self.schema
        outputs = times * s.outputs
        if isinstance(self.encoder, Regressors) and times > 1:
            self.encoder = self.encoder.widened(tuple(self.columns.shape[2:]), outputs, s.seed, s.dtype)
        if not self.encoder.gradients:
            return
        width = next(g.width for g in s.groups if self.names[0] in g.parties)
        drawn = open_heads(s.head, self.names, width, outputs, s.seed)
        self.head = {k: v.to(self.device, s.dtype).requires_grad_() for k, v in drawn.items()}

    def read(self, columns: Tensor) -> Tensor:
        """New columns (P, B, ...) as the local models read them: on their device, in their numbers, on their scale.

        Raises:
            DataError: a model reads whole numbers (tokens), and these are none, or are tokens that it does not know.
        """
        if not self.columns.is_floating_point() and columns.is_floating_point() and bool((columns % 1 != 0).any()):
            raise DataError(
                f"party {self.names[0]!r}: its network reads whole numbers (tokens), and these columns have fractions"
            )
        self.check_tokens(columns)
        return self.scale_columns(columns.to(self.device, self.columns.dtype))

    def check_tokens(self, columns: Tensor) -> None:
        """Refuse columns (P, B, ...) with a token that a party's network has no vector for, by party and column."""
        if self.columns.is_floating_point() or not isinstance(self.encoder, Stack):
            return
        for k, name in enumerate(self.names):
            network = self.encoder.pick([k]).to("cpu", self.schema.dtype)
            check_tokens(name, network, columns[k].to(self.columns.dtype))

    def scale_columns(self, columns: Tensor) -> Tensor:
        """New columns (P, B, ...) on the scale the networks were trained on."""
        return apply_scaling(columns, self.scaling["shift"], self.scaling["scale"]) if self.scaling else columns

    def x(self, rows: Tensor) -> Tensor:
        """The parties' columns of some rows, (P, B, ...); of a round that trains (`training_in`) as they train."""
        if isinstance(self.columns, ColumnsOnDisk):
            x = self.columns.rows(rows)
        else:
            x = self.columns.index_select(1, rows.to(self.device))
        if self.round_number is None or not self.schema.augment.active:
            return x
        return self.schema.augment.changed(x, self.names, self.schema.seed, self.round_number)

    @contextmanager
    def training_in(self, round_number: int) -> Iterator[None]:
        """While a round trains, its pictures may be changed."""
        self.round_number = round_number
        try:
            yield
        finally:
            self.round_number = None

    def x_of_each(self, rows: Tensor) -> Tensor:
        """Every party's columns of rows (P, B) of its own, (P, B, ...).

        Raises:
            ConfigError: a round trains whose pictures are changed; these may be of other rounds, changed otherwise.
        """
        if self.round_number is not None and self.schema.augment.active:
            raise ConfigError(
                "training.augment changes the pictures of a round, and this method also takes steps on rows of earlier "
                "rounds, as they were; leave augment out"
            )
        if isinstance(self.columns, ColumnsOnDisk):
            return self.columns.rows(rows)
        return self.columns[torch.arange(len(self.names), device=self.device)[:, None], rows]

    @property
    def whole(self) -> Tensor:
        """All columns (P, N, ...) at once.

        Raises:
            DataError: they are larger than memory.
        """
        if isinstance(self.columns, ColumnsOnDisk):
            raise DataError(
                f"this needs all columns of {', '.join(self.names)} in memory at once, and they lie on disk because "
                "they are large; give it fewer rows"
            )
        return self.columns

    def about(self, rows: Tensor) -> Cohort:
        """The cohort as it uploads about some rows: its embeddings of those that a party does not hold are zero."""
        queried_cohort = copy.copy(self)
        queried_cohort.asked = rows
        queried_cohort.queried = self.holding(rows)
        return queried_cohort

    def holding(self, rows: Tensor) -> Tensor | None:
        """(P, B) which of some rows each party holds; None: all of them all."""
        return None if self.held is None else self.held.index_select(1, rows.to(self.device))

    def silent_where_lacking(self, values: Tensor) -> Tensor:
        """An upload (P, B, K) about the rows asked about, which adds nothing to a sum where a party lacks the row."""
        return values if self.queried is None else values.masked_fill(~self.queried.unsqueeze(2), 0)

    def encode(self, x: Tensor, mode: Mode) -> Tensor:
        """Embeddings (P, B, d) of columns (P, B, ...)."""
        if mode is not Mode.PREDICT:
            out = self.encoder.output(x, mode)
        else:
            out = torch.cat([self.encoder.output(part, mode) for part in x.split(PREDICT_CHUNK, dim=1)], dim=1)
        return self.silent_where_lacking(out)

    def trained(self, parts: Sequence[str]) -> list[Tensor]:
        """The parameters of the named parts ("encoder", "head") that learn, in a fixed order."""
        tensors: list[Tensor] = []
        for part in parts:
            tensors += (self.encoder.parameters if part == "encoder" else self.head).values()
        return [t for t in tensors if t.requires_grad]

    def tensors(self) -> dict[str, Tensor]:
        """Everything that must survive a restart, by name."""
        out = self.encoder.tensors()
        out |= {f"scaling.{k}": v for k, v in self.scaling.items()}
        out |= {f"head.{k}": v for k, v in self.head.items()}
        out |= {f"memory.{k}": v for k, v in self.memory.items()}
        for parts, state in self.optimiser.items():
            out |= {f"optimiser.{parts}.{k}": v for k, v in state.items()}
        return {k: v.detach() for k, v in out.items()}

    def make_canonical(self) -> None:
        """Give whatever a method has put here the layout that it would have after a restart."""
        homes = [self.encoder.parameters, self.encoder.buffers, self.scaling, self.head, self.memory]
        for home in (*homes, *self.optimiser.values()):
            for name, value in home.items():
                kept = canonical(value.detach())
                if kept.data_ptr() != value.data_ptr():
                    home[name] = kept.requires_grad_(value.requires_grad)

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Put saved tensors back, in place where a tensor is already there."""
        local = {name: value for name, value in tensors.items() if name.startswith((*MODELS, PENDING))}
        if local:
            self.encoder.restore(local)
        with torch.no_grad():
            for name, value in tensors.items():
                if name in local:
                    continue
                kind, _, rest = name.partition(".")
                if kind == "optimiser":
                    parts, _, rest = rest.partition(".")
                    home: dict[str, Tensor] = self.optimiser.setdefault(parts, {})
                else:
                    home = self._home(kind)
                if rest in home:
                    home[rest].copy_(value)
                else:
                    home[rest] = value.to(self.device, copy=True)

    def _home(self, kind: str) -> dict[str, Tensor]:
        return {"scaling": self.scaling, "head": self.head, "memory": self.memory}[kind]

    def model(self) -> dict[str, Tensor]:
        """A copy of what predicts: networks, column scaling and own heads, without optimiser and most of the memory."""
        kept = (*MODELS, "scaling.", "head.", f"memory.{KEPT}")
        return {k: v.clone() for k, v in self.tensors().items() if k.startswith(kept)}

    def blank(self) -> Cohort:
        """A copy whose columns, networks and memory are all zero, and whose other models have seen no row."""
        blank = self.pick(range(len(self.names)))
        if isinstance(self.columns, ColumnsOnDisk):
            blank.columns = self.columns.blank()
        else:
            blank.columns = self.columns.new_zeros(()).expand(self.columns.shape)
        blank.encoder = self.encoder.blank()
        rest = {name: value for name, value in blank.tensors().items() if not name.startswith((*MODELS, PENDING))}
        blank.restore({name: torch.zeros_like(value) for name, value in rest.items()})
        return blank

    def pick(self, index: Sequence[int]) -> Cohort:
        """A copy with some of the parties; give it back with `put`. A party left out stays untouched."""
        chosen, part = list(index), copy.copy(self)
        part.names = tuple(self.names[i] for i in chosen)
        part.columns = self.columns.pick(chosen) if isinstance(self.columns, ColumnsOnDisk) else self._of(chosen)
        part.held = None if self.held is None else self.held[chosen]
        part.encoder = self.encoder.pick(chosen)
        part.head = {k: v.detach()[chosen].clone().requires_grad_() for k, v in self.head.items()}
        part.scaling = {k: v[chosen].clone() for k, v in self.scaling.items()}
        part.memory = {k: v[chosen].clone() for k, v in self.memory.items()}
        part.optimiser = {p: {k: v[chosen].clone() for k, v in s.items()} for p, s in self.optimiser.items()}
        part.graphs = {}
        return part

    def _of(self, chosen: list[int]) -> Tensor:
        """The columns of some parties, which nobody writes to; without a copy where they are neighbours."""
        first = chosen[0] if chosen else 0
        if chosen == list(range(first, first + len(chosen))):
            return self.whole[first : first + len(chosen)]
        return self.whole[chosen]

    def put(self, index: Sequence[int], part: Cohort) -> None:
        """Write a picked copy back into its places."""
        places = list(index)
        with torch.no_grad():
            self.encoder.put(places, part.encoder)
            homes = [(self.scaling, part.scaling), (self.head, part.head), (self.memory, part.memory)]
            homes += [(self.optimiser.setdefault(p, {}), s) for p, s in part.optimiser.items()]
            for mine, theirs in homes:
                for name, value in theirs.items():
                    if name not in mine:
                        mine[name] = value.new_zeros((len(self.names), *value.shape[1:]))
                    mine[name][places] = value.detach()
