"""The party side of a round: learn from the last reply, upload, pass the gate. The same in every engine.

Where noise protects the uploads, nothing else may tell what a party computed. So steps that fail on a party's own
numbers are left out, an upload that fails is zero before noise, and the run goes on: the party's operator is told, the
coordinator is not. What fails with zeros in place of all numbers of the party, too, is the request's fault or the
program's, and is told as ever. A reply that is too large to compute with is refused before it is used. Neither says
anything of the columns. Parties that are stacked compute together, and fail together.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from colonnade.errors import ColonnadeError, ConfigError, ModelError, WireError
from colonnade.gpu import to_device
from colonnade.layout import canonical, check
from colonnade.methods.base import LARGEST_REPLY, Method, Received, check_classifiers, check_gradients, small_enough
from colonnade.models.cohort import Cohort
from colonnade.models.crossfit import regressors_of
from colonnade.models.row_gradients import check_network
from colonnade.privacy.gate import NOTHING, Gate, Passed
from colonnade.privacy.sealed import Upload
from colonnade.privacy.training_rows import note
from colonnade.schedule import RoundPlan
from colonnade.upload_cache import UploadCache
from colonnade.wire.messages import Purpose, Query, Request, rows_digest

T = TypeVar("T")


class Prepared(NamedTuple):
    """What a cohort computed for one query, before the gate."""

    query: Query
    number: int
    part: int
    places: list[int]  # of the parties that were asked, in the cohort
    rows: Tensor
    held: Tensor | None  # (P, B) which rows they hold; None: all
    upload: Upload | None  # None: nobody was asked


@dataclass
class PartySide:
    """One cohort with its gate. Knows nothing of the transport."""

    method: Method
    cohort: Cohort
    gate: Gate
    remembers: bool = False  # keep uploads row by row: not everybody may upload in every round
    plan: RoundPlan | None = None  # the last training round it was told of
    uploaded: dict[str, Tensor] = field(default_factory=dict, repr=False)  # what was sent in it, (P, B, ...)
    best: dict[str, Tensor] = field(default_factory=dict, repr=False)  # the model of the best round
    kept: int = -1  # the request that last said keep
    cache: UploadCache | None = field(default=None, repr=False)
    asked: str = ""  # digest of all that was asked so far, where masks are of one question and no other
    tell: Callable[[str], None] = field(default=warnings.warn, repr=False)  # the operator, of failures not told others

    def __post_init__(self) -> None:
        self.cohort.by_row = self.gate.protection.local
        if self.cohort.by_row is not None:
            check_network(self.cohort)
        check_gradients(self.method, self.cohort.names[0], self.cohort.encoder.gradients)
        check_augment(self.method, self.cohort)
        models = regressors_of(self.cohort.encoder)
        check_classifiers(self.method, self.cohort.names[0], models, self.cohort.schema.task)
        self.cohort.draw = self.gate.protection.source.normals
        self.method.open_party(self.cohort)
        self.cohort.make_canonical()
        if self.remembers:
            self.cache = UploadCache(self.cohort.schema, len(self.cohort.names), self.gate.agreed)

    def answer(self, request: Request, reply: Received) -> list[Passed]:
        """Do what the request says: keep, learn, upload; an answer per query, empty where this cohort was not asked."""
        return [self.release(prepared) for prepared in self.prepare(request, reply)]

    def prepare(self, request: Request, reply: Received) -> list[Prepared]:
        """Keep, learn, and compute an upload per query. Nothing leaves yet, and a GPU may still be at it."""
        self._check_reply(request, reply)
        self.keep(request)
        if request.stop is not None:
            self.gate.record_training(self.cohort.names, request.number)  # from now on anybody may ask the model
        if request.stop is not None or request.consent:
            return []
        self._learn(request, reply)
        self.cohort.make_canonical()
        return [self._prepare_query(query, request.number, part) for part, query in enumerate(request.queries)]

    def _check_reply(self, request: Request, reply: Received) -> None:
        """With noise: refuse numbers with which squares would overflow; nobody who trains sends such."""
        if self.gate.protection.noised and not small_enough(reply.common, reply.own):
            raise WireError(
                f"the reply of request {request.number} has numbers beyond {LARGEST_REPLY:.0e}, or that are not "
                "finite; it is not used"
            )

    def keep(self, request: Request) -> None:
        """Keep the model that uploaded last time, if the request says it is the best; before learning, and once."""
        if request.keep and self.kept != request.number:
            self.best, self.kept = self.cohort.model(), request.number

    def _learn(self, request: Request, reply: Received) -> None:
        check("a reply, as parties get it", lambda: {**reply.common, **reply.own})
        check("a party", self.tensors)
        learners = set(request.learners)
        places = [i for i, name in enumerate(self.cohort.names) if name in learners]
        if not places:
            return
        schema = self.cohort.schema
        plan = self.plan or RoundPlan(0, schema.train, (), request.learners)  # an opening reply is about all rows
        plan = RoundPlan(plan.number, plan.rows, plan.senders, request.learners, request.steps)
        uploaded = self._uploaded(plan)
        with self.cohort.training_in(plan.number):
            self._learn_as(places, plan, uploaded, reply)

    def _learn_as(self, places: list[int], plan: RoundPlan, uploaded: Mapping[str, Tensor], reply: Received) -> None:
        """Local steps of the parties at these places; the others stay untouched."""
        if len(places) == len(self.cohort.names):
            self._take_steps(self.cohort, plan, uploaded, reply)
            return
        part = self.cohort.pick(places)
        own = {k: v[places] for k, v in reply.own.items()}
        self._take_steps(part, plan, {k: v[places] for k, v in uploaded.items()}, Received(reply.common, own))
        self.cohort.put(places, part)

    def _take_steps(self, cohort: Cohort, plan: RoundPlan, uploaded: Mapping[str, Tensor], reply: Received) -> None:
        self._discreetly(cohort, lambda c: self.method.learn(c, plan, uploaded, reply), "local steps were left out")

    def _discreetly(self, cohort: Cohort, act: Callable[[Cohort], T], otherwise: str) -> T | None:
        """Do something with a cohort; None, if that fails on its own numbers and noise is promised."""
        try:
            return act(cohort)
        except ColonnadeError:
            raise
        except Exception as error:
            if not self.gate.protection.noised or _fails_on_zeros(cohort, act):
                raise
            names, kind = ", ".join(cohort.names), type(error).__name__  # not its text: that may hold numbers
            self.tell(f"{names}: {otherwise} ({kind}); with noise, the coordinator is not told")
            return None

    def _uploaded(self, plan: RoundPlan) -> dict[str, Tensor]:
        """What was last sent about the round's rows; zero where nothing ever was."""
        return self.uploaded if self.cache is None else self.cache.recall(plan.rows)

    def _prepare_query(self, query: Query, number: int, part: int) -> Prepared:
        names, rows = self.cohort.names, to_device(query.rows, self.cohort.device)
        wanted, training = set(query.senders), query.purpose is Purpose.TRAIN
        places = [i for i, name in enumerate(names) if name in wanted]
        if training:
            self.plan = RoundPlan(number, rows, query.senders, ())
        if not places:
            return Prepared(query, number, part, places, rows, None, None)
        cohort = self.cohort if len(places) == len(names) else self.cohort.pick(places)
        with cohort.training_in(number) if training else nullcontext():
            upload = self._upload(cohort, rows, training)
        return Prepared(query, number, part, places, rows, cohort.holding(rows), upload)

    def release(self, prepared: Prepared) -> Passed:
        """Let an upload that was prepared pass the gate."""
        if prepared.upload is None:
            return NOTHING
        query, rows, held = prepared.query, prepared.rows, prepared.held
        senders = [self.cohort.names[i] for i in prepared.places]
        self.gate.notes = note(self._trained_on(query))
        self.gate.lacking = {} if held is None else dict(zip(senders, (~held).sum(dim=1).tolist(), strict=True))
        about = f"{self.asked}{rows_digest(query.rows)}"
        passed = self.gate.release(
            prepared.upload, senders, prepared.number, query.purpose, len(rows), prepared.part, about
        )
        if query.purpose is Purpose.TRAIN:
            self._remember(prepared.places, rows, passed.values)
        return passed

    def _trained_on(self, query: Query) -> int:
        """How many rows of a question trained with noise, and would leave without it now."""
        if not self.gate.protection.noised or query.purpose not in (Purpose.PREDICT, Purpose.EXPLAIN):
            return 0
        return int(torch.isin(query.rows.cpu(), self.cohort.schema.train.cpu()).sum())

    def _upload(self, cohort: Cohort, rows: Tensor, training: bool) -> Upload:
        def compute(cohort: Cohort) -> Upload:
            about, x = cohort.about(rows), cohort.x(rows)
            if not training:
                return upload_about(self.method, about, x)
            with torch.no_grad():
                return self.method.upload(about, x, training)

        upload = self._discreetly(cohort, compute, "the upload is zero before noise") if training else compute(cohort)
        if upload is not None:
            return upload
        count, numbers = len(cohort.names), cohort.schema.dtype
        return Upload(
            {k: torch.zeros(count, *a.shape(len(rows)), dtype=a.dtype or numbers) for k, a in self.gate.agreed.items()}
        )

    def predict(self, columns: Tensor, number: int, rows: Tensor) -> Passed:
        """Release what the current model says about new columns (P, B, ...), which are these rows to everybody."""
        upload = upload_about(self.method, self.cohort, columns)
        count, about = columns.shape[1], rows_digest(rows)
        return self.gate.release(upload, self.cohort.names, number, Purpose.PREDICT, count, about=about)

    def _remember(self, places: list[int], rows: Tensor, values: Mapping[str, Tensor]) -> None:
        if self.cache is not None:
            self.cache.remember(places, rows, values)
            return
        self.uploaded = dict(values)
        if len(places) < len(self.cohort.names):  # the others were left out of the round, and do not learn from it
            for name, value in values.items():
                self.uploaded[name] = value.new_zeros(len(self.cohort.names), *value.shape[1:])
                self.uploaded[name][places] = value

    def tensors(self, uploaded: bool = True) -> dict[str, Tensor]:
        """Everything that must survive a restart; without `uploaded`, if that is kept elsewhere."""
        out = {f"cohort.{k}": v for k, v in self.cohort.tensors().items()}
        if uploaded:
            out |= {f"said.{k}": v for k, v in self.uploaded.items()}
        out |= {f"best.{k}": v for k, v in self.best.items()}
        if self.cache is not None:
            out |= {f"board.{k}": v for k, v in self.cache.values.items()}
        if self.plan is not None:
            out["turn.rows"] = self.plan.rows
            out["turn.number"] = torch.tensor(self.plan.number)
        return out

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Put saved tensors back."""
        device = self.cohort.device
        parts: dict[str, dict[str, Tensor]] = {"cohort": {}, "said": {}, "best": {}, "board": {}, "turn": {}}
        for name, value in tensors.items():
            kind, _, rest = name.partition(".")
            parts[kind][rest] = canonical(value.to(device))
        self.cohort.restore(parts["cohort"])
        self.uploaded, self.best = parts["said"], parts["best"]
        if self.cache is not None:
            self.cache.values = parts["board"]
        if parts["turn"]:
            self.plan = RoundPlan(int(parts["turn"]["number"]), parts["turn"]["rows"], (), ())

    def use_best(self) -> None:
        """Go back to the model of the best round, if one was kept; what is no part of the model yet goes either way."""
        self.cohort.restore(self.best or self.cohort.model())

    def models(self) -> dict[str, dict[str, Tensor]]:
        """The current model of every party on its own, without the party axis."""
        each = [self.cohort.pick([place]).model() for place in range(len(self.cohort.names))]  # some may have more
        return {name: {k: v[0] for k, v in own.items()} for name, own in zip(self.cohort.names, each, strict=True)}

    def load_models(self, models: Mapping[str, Mapping[str, Tensor]]) -> None:
        """The inverse of `models`.

        Raises:
            ModelError: they are of other local models than these.
        """
        mine = [models[name] for name in self.cohort.names]
        missing = [k for k in self.cohort.encoder.tensors() if k not in mine[0] and self.cohort.encoder.gradients]
        if missing:
            raise ModelError(
                f"party {self.cohort.names[0]!r}: the saved model has no {missing[0]!r}, which this network has: it is "
                "not the network of the run; pass the same encoders= again"
            )
        for place, own in enumerate(mine):
            part = self.cohort.pick([place])
            part.restore({k: v.to(part.device)[None] for k, v in own.items()})
            self.cohort.put([place], part)


def upload_about(method: Method, cohort: Cohort, columns: Tensor) -> Upload:
    """What a model that is not training says about columns (P, B, ...), on the scale that it reads.

    The one function behind every prediction: of a simulation, of a party in its own process, of a part from a folder.
    """
    with torch.no_grad():
        return method.upload(cohort, columns, False)


def check_augment(method: Method, cohort: Cohort) -> None:
    """Refuse to change pictures in training where there are none, or where a training is not many rounds of them.

    Raises:
        ConfigError: naming the party, the method or the unit.
    """
    augment = cohort.schema.augment
    if not augment.active:
        return
    for party in cohort.names:
        augment.check(party, tuple(cohort.columns.shape[2:]))
    if getattr(method, "once", False) or getattr(method, "whole", False):
        raise ConfigError(
            f"training.augment changes pictures anew in each round, and {method.name} does not learn from batches in "
            "many rounds; leave augment out, or take a method that does, e.g. vimadmm"
        )
    if cohort.by_row is not None:
        raise ConfigError(
            "training.augment and privacy.unit = 'row' are not combined: steps row by row take pictures as they are; "
            "leave augment out"
        )


def _fails_on_zeros(cohort: Cohort, act: Callable[[Cohort], object]) -> bool:
    """Whether something fails for a cohort whose columns, networks and memory are all zero, whatever the numbers."""
    try:
        act(cohort.blank())
    except (ArithmeticError, torch.linalg.LinAlgError):  # type: ignore[attr-defined]  # of the zeros themselves
        return False
    except Exception:
        return True
    return False
