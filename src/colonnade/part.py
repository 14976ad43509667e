"""Part: what one organisation holds of a model, from its own table to its upload.

A folder of a part holds what that organisation may keep and nothing of the others:

    party.json           the design, whose part it is, the shape of a row and digests of the other files
    model.safetensors    network, column scaling, and the head if the party owns one
    columns.skops        how its table becomes the columns that the network reads, where it was trained from a table

A party's process between organisations writes the same files when training is over, and its ledger beside them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from colonnade.data.columns import ColumnPlan
from colonnade.data.frames import as_frame, check_no_path, is_frame
from colonnade.design import DTYPES, Design
from colonnade.engines.base import CohortBuilder, Encoders, Local, open_module
from colonnade.engines.queries import rows_that_fit
from colonnade.engines.stacked import Stacked
from colonnade.errors import ConfigError, DataError, RunError, Unwritable
from colonnade.federation import Party
from colonnade.models.stack import Way
from colonnade.privacy.ledger import Ledger
from colonnade.privacy.mechanism import Protection
from colonnade.privacy.training_rows import TrainingRows, check_new, note
from colonnade.rows import Rows, as_columns
from colonnade.saved import (
    append_ledger,
    fingerprint,
    read_json,
    read_plans,
    read_tensors,
    read_trained,
    write_plans,
    write_tensors,
    write_trained,
)
from colonnade.schedule import chunked
from colonnade.written import replace_file

if TYPE_CHECKING:
    from colonnade.explain.contributions import Contributions, Importance

PARTY = "party.json"
PART_LEDGER = "part_ledger.jsonl"  # the ledger of a party's process is another, and its own
FORMAT = 1
BROKEN = (KeyError, TypeError, ValueError, AttributeError)  # what plain values of another shape give


def open_parts(
    design: Design,
    parts: Sequence[Part],
    ledger: Ledger,
    protection: Protection,
    columns: Mapping[str, Tensor] | None = None,
) -> Stacked:
    """The parties of some parts with what they learned, each behind its gate, over these columns (B, ...) by party.

    Args:
        design: of the model.
        parts: all of its parts, or some.
        ledger: where whatever leaves is recorded.
        protection: what stands before it.
        columns: not scaled: whoever asks scales them as in training (`Cohort.scale_columns`). None: no rows.

    Raises:
        RunError: the numbers of a part are not here.
    """
    given = columns or {part.party: torch.zeros(0, *part.shape) for part in parts}
    for part in parts:
        part.check()
    modules = {part.party: part.module() for part in parts}
    schema = design.schema({part.party: part.shape for part in parts}, modules, len(next(iter(given.values()))))
    reads = {name: torch.int64 if name in design.tokens else schema.dtype for name in modules}
    owners = {name: Party(name, given[name].to(reads[name])) for name in modules}
    builder = CohortBuilder(owners, schema, modules, scaling=frozenset())
    ways: list[Way] = ["each"] * len(schema.groups)  # a prediction is one pass: nothing to time
    engine = Stacked.open(builder, design.method, ledger, design.id, False, protection, ways)
    for side in engine.sides:
        side.load_models({part.party: part.tensors for part in parts})
    return engine


def uploads(engine: Stacked, rows: Rows, trained: Tensor, first: int, most: int) -> Iterator[Uploads]:
    """What the parties of an engine release about new rows, in as many messages as their size needs.

    Args:
        engine: from `open_parts`.
        rows: columns of every party of the engine, not scaled.
        trained: (B,) which of them trained with noise, for the ledger.
        first: the number of the first message.
        most: rows in one message.
    """
    for number, piece in enumerate(chunked(torch.arange(len(rows)), most), first):
        groups = []
        for side in engine.sides:
            side.gate.notes = note(int(trained[piece].sum()))
            columns = torch.stack([rows.columns[name][piece] for name in side.cohort.names])  # (P, B, ...)
            groups.append(side.predict(side.cohort.read(columns), number, piece).sent)
        yield Uploads(number, piece, groups)


@dataclass(frozen=True)
class Uploads:
    """One message of every party, as its reader decodes it: values (P, B, ...) by group, about these rows."""

    number: int
    rows: Tensor = field(repr=False)
    groups: Sequence[Mapping[str, Tensor]] = field(repr=False)


@dataclass
class Part:
    """One party's part of a model: column plan, network, and the head if the party owns one."""

    design: Design
    party: str
    shape: tuple[int, ...]  # of a row of columns, as the network reads them
    tensors: Mapping[str, Tensor] = field(repr=False)
    plans: Mapping[str, ColumnPlan] = field(default_factory=dict, repr=False)  # its own; of a pooled model everybody's
    encoders: Encoders = field(default=None, repr=False)  # its network, where the user brought it
    noisy: bool = False  # its uploads had noise in training
    trained: TrainingRows | None = field(default=None, repr=False)  # what it knows training rows with noise by
    releases_training_rows: bool = False  # predict them although they trained with noise, which undoes its promise
    ledger: Ledger = field(default_factory=Ledger, repr=False)  # what this object released
    path: Path | None = None

    def __repr__(self) -> str:
        """Whose part of what."""
        saved = f", saved in {self.path}" if self.path is not None else ""
        return f"<Part of {self.party!r} in run {self.design.id}: {self.design.method.name}{saved}>"

    def module(self) -> Local:
        """The local model as it began."""
        d = self.design
        dtype, settings = DTYPES[d.arithmetic.dtype], d.settings.of(self.party)
        return open_module(self.encoders, settings, self.party, self.shape, d.task.outputs, d.arithmetic.seed, dtype)

    def check(self) -> None:
        """Refuse a part whose numbers are with its party: a network with its first weights would answer anything."""
        if not self.tensors:
            raise RunError(
                f"the part of {self.party!r} is not here, it stays with that organisation: ask the parties "
                "(`colonnade predict RUN --ids FILE`), or load it there with Part.load"
            )

    # -- predicting -----------------------------------------------------------------------------

    def read(self, table: Any) -> Tensor:
        """(B, ...) columns as the network reads them.

        Args:
            table: where the training was from tables, a raw data frame, whose columns are found by name, in any order;
                otherwise an array (B, ...) as in training.

        Raises:
            DataError: a column is missing, unknown, retyped, or these are not columns of this party.
        """
        whose, plan = f"party {self.party!r}", self.plans.get(self.party)
        check_no_path(whose, table)
        if self.plans and plan is None:
            raise DataError(
                f"{whose} reads the columns of {', '.join(self.plans)} in one place; give the model their tables"
            )
        if plan is not None:
            if not is_frame(table):
                raise DataError(
                    f"{whose}: got {type(table).__name__} without column names, which could be raw or encoded; pass a "
                    "raw data frame with the columns of the training"
                )
            return plan.transform(as_frame(whose, table, plan.id))
        if is_frame(table):
            raise DataError(
                f"{whose}: got a data frame, and this part knows its columns by position only; pass an array exactly "
                "as in training"
            )
        columns = as_columns(self.party, table)
        if tuple(columns.shape[1:]) != self.shape:
            raise DataError(
                f"{whose} has columns of shape {tuple(columns.shape[1:])}; its part of the model reads {self.shape}"
            )
        return columns

    def predict(self, table: Any) -> dict[str, Tensor]:
        """The party's own share of a prediction: its upload (B, ...) about these rows, by name, in the table's order.

        It passes the gate, as a release: recorded in `ledger`, and in `part_ledger.jsonl` of the folder that the part
        was loaded from or saved in.

        Args:
            table: as for `read`.

        Raises:
            ConfigError: under a secure sum, nobody's upload can be read alone.
            Refused: some of these rows trained with noise.
        """
        d = self.design
        if d.privacy.secure_sum.use:
            raise ConfigError(
                f"this model has a secure sum: the upload of {self.party!r} opens only together with the others'; "
                "predict with the whole model, or ask the parties"
            )
        rows = Rows({self.party: self.read(table)})
        trained = check_new(self.trained, self.noisy, rows, self.releases_training_rows)
        engine = open_parts(d, [self], self.ledger, Protection.everywhere(None))
        found: list[Mapping[str, Tensor]] = []
        for uploaded in uploads(engine, rows, trained, len(self.ledger) + 1, rows_that_fit(d.method, engine.schema)):
            found.append(uploaded.groups[0])
            if self.path is not None:
                append_ledger(self.path / PART_LEDGER, self.ledger.since(len(self.ledger) - 1))
        return {name: torch.cat([part[name][0] for part in found]).cpu() for name in found[0]}

    # -- explaining, at home: nothing leaves ------------------------------------------------------

    def contributions(self, table: Any, *, background: Any = None, seed: int = 0) -> Contributions:
        """What each of the party's own columns adds to its share of the score of each row, from a starting row.

        Columns are those of the table: what one of them was encoded to counts together. Base and contributions add up
        to the share. Nothing leaves the party and no ledger grows.

        Args:
            table: as for `read`.
            background: rows whose mean is the starting row, given as a table; None: the mean training row.
            seed: of random orders, which only some local models need.

        Raises:
            ConfigError: the head is at the coordinator, so that the upload is no score; or no starting row is known.
        """
        from colonnade.explain.columns import explain_part

        return explain_part(self, table, background, seed)

    def importance(self, table: Any, *, draws: int = 5, seed: int = 0) -> Importance:
        """How much the party's share of the score changes when the values of one column are dealt out anew.

        It needs no labels, and says nothing about whether the changes make the score better or worse.

        Args:
            table: as for `read`, at least two rows.
            draws: how often they are dealt out; the spread is over these.
            seed: of the draws.

        Raises:
            ConfigError: the head is at the coordinator, so that the upload is no score.
        """
        from colonnade.explain.columns import importance_of_part

        return importance_of_part(self, table, draws, seed)

    # -- saving ---------------------------------------------------------------------------------

    def fingerprint(self) -> str:
        """SHA-256 over every number of the part."""
        return fingerprint(self.tensors)

    def save(self, folder: str | Path, beside: Mapping[str, object] | None = None) -> Path:
        """Write the files of the part, party.json last; `beside` are facts that it also holds."""
        folder = Path(folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            columns = write_plans(folder, self.plans)
            write_tensors(folder, self.tensors)
            write_trained(folder, self.trained, self.design.id)
            about = {
                "run": self.design.id,
                "party": self.party,
                **(beside or {}),
                "fingerprint": self.fingerprint(),
                "part": {
                    "format": FORMAT,
                    "noisy": self.noisy,
                    "design": self.design.to_json(),
                    "shape": list(self.shape),
                    "own_encoder": self.encoders is not None,
                    "columns": columns,
                },
            }
            replace_file(folder / PARTY, (json.dumps(about, indent=1) + "\n").encode())
        except OSError as error:
            raise Unwritable(
                f"the part of {self.party!r} cannot be saved in {folder} ({error.strerror}); see to the disk"
            ) from None
        self.path = folder if self.path is None else self.path
        return folder

    @classmethod
    def load(cls, folder: str | Path, encoder: Local | None = None) -> Part:
        """Read a part: one that was saved alone, or the folder of a party's process after training.

        Args:
            folder: with `party.json`.
            encoder: the local model, where the party brought one of its own.

        Raises:
            RunError: there is no part in the folder, or its files are damaged or of different parts.
        """
        folder = Path(folder)
        try:
            about = read_json(folder / PARTY)
        except (FileNotFoundError, NotADirectoryError):
            raise RunError(
                f"{folder} has no {PARTY}: it is not the folder of a party that has finished training; a whole model "
                "is loaded with Model.load"
            ) from None
        try:
            part = _part_of(about, folder)
            name, design = str(about["party"]), Design.from_json(part["design"])
            if part["own_encoder"] and encoder is None:
                raise RunError(f"{folder} was trained with a network of the party's own; pass it again as encoder=")
            shape, noisy, told = tuple(int(n) for n in part["shape"]), bool(part["noisy"]), about["fingerprint"]
            plans = read_plans(folder, part["columns"], PARTY)
        except BROKEN as error:
            raise RunError(f"{folder / PARTY} is damaged ({error!r}); restore it from a copy") from None
        own = {name: encoder} if encoder is not None else None
        trained = read_trained(folder, noisy, design.id)
        read = cls(design, name, shape, read_tensors(folder), plans, own, noisy, trained, path=folder)
        if read.fingerprint() != told:
            raise RunError(f"the model in {folder} does not belong to its {PARTY}; restore both from one copy")
        return read


def _part_of(about: Mapping[str, Any], folder: Path) -> Mapping[str, Any]:
    """What party.json says of the part; earlier versions wrote neither the shape of the columns nor all digests."""
    if "part" not in about and "proposal" in about:
        raise RunError(
            f"{folder / PARTY} was written by an earlier version; start the party once more (`colonnade party`), which "
            "writes its files anew"
        )
    found: Mapping[str, Any] = about["part"]
    if found["format"] != FORMAT:
        raise RunError(f"{folder / PARTY} has a part of format {found['format']!r}; this version reads {FORMAT}")
    return found
