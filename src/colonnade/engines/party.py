"""The party side of a round: learn from the last reply, speak, pass the gate. The same in every engine.

Where noise protects the uploads, nothing else may tell what a party computed. So steps that fail on a party's own
numbers are left out, an upload that fails is zero before noise, and the run goes on: the party's operator is told, the
coordinator is not. What fails with zeros in place of all numbers of the party, too, is the order's fault or the
program's, and is told as ever. A reply that is too large to compute with is refused before it is used. Neither says
anything of the columns. Parties that are stacked compute together, and fail together.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import torch
from torch import Tensor

from colonnade.board import Board
from colonnade.errors import ColonnadeError, ModelError, WireError
from colonnade.layout import canonical, check
from colonnade.methods.base import LARGEST_REPLY, Method, Received, check_gradients, small_enough
from colonnade.models.cohort import Cohort
from colonnade.privacy.gate import Gate, Spoken
from colonnade.privacy.sealed import Upload
from colonnade.privacy.training_rows import note
from colonnade.schedule import Turn
from colonnade.wire.messages import Ask, Order, Purpose, rows_digest

T = TypeVar("T")


@dataclass
class PartySide:
    """One cohort with its gate. Knows nothing of the transport."""

    method: Method
    cohort: Cohort
    gate: Gate
    remembers: bool = False  # keep what was said row by row: somebody may be silent
    turn: Turn | None = None  # the last training turn it was told of
    said: dict[str, Tensor] = field(default_factory=dict, repr=False)  # what was sent in it, (P, B, ...)
    best: dict[str, Tensor] = field(default_factory=dict, repr=False)  # the model of the best round
    kept: int = -1  # the order that last said keep
    memory: Board | None = field(default=None, repr=False)
    tell: Callable[[str], None] = field(default=warnings.warn, repr=False)  # the operator, of failures not told others

    def __post_init__(self) -> None:
        check_gradients(self.method, self.cohort.names[0], self.cohort.encoder.gradients)
        self.cohort.draw = self.gate.protection.source.normals
        self.method.open_party(self.cohort)
        self.cohort.make_canonical()
        if self.remembers:
            self.memory = Board(self.cohort.schema, len(self.cohort.names), self.gate.agreed)

    def answer(self, order: Order, reply: Received) -> list[Spoken]:
        """Do what the order says: keep, learn, speak; one answer per ask, empty where this cohort was not asked."""
        self._check_reply(order, reply)
        self.keep(order)
        if order.stop is not None or order.consent:
            return []
        self._learn(order, reply)
        self.cohort.make_canonical()
        return [self._speak(ask, order.number, part) for part, ask in enumerate(order.asks)]

    def _check_reply(self, order: Order, reply: Received) -> None:
        """With noise: refuse numbers with which squares would overflow; nobody who trains sends such."""
        if self.gate.protection.noised and not small_enough(reply.common, reply.own):
            raise WireError(
                f"the reply of order {order.number} has numbers beyond {LARGEST_REPLY:.0e}, or that are not finite; "
                "it is not used"
            )

    def keep(self, order: Order) -> None:
        """Keep the model that spoke last time, if the order says it is the best; before learning, and once."""
        if order.keep and self.kept != order.number:
            self.best, self.kept = self.cohort.model(), order.number

    def _learn(self, order: Order, reply: Received) -> None:
        check("a reply, as parties get it", lambda: {**reply.common, **reply.own})
        check("a party", self.tensors)
        learners = set(order.learners)
        places = [i for i, name in enumerate(self.cohort.names) if name in learners]
        if not places:
            return
        schema = self.cohort.schema
        turn = self.turn or Turn(0, schema.train, (), order.learners)  # an opening reply is about all rows
        turn = Turn(turn.number, turn.rows, turn.speakers, order.learners, order.steps)
        said = self._said(turn)
        if len(places) == len(self.cohort.names):
            self._take_steps(self.cohort, turn, said, reply)
            return
        part = self.cohort.pick(places)
        own = {k: v[places] for k, v in reply.own.items()}
        self._take_steps(part, turn, {k: v[places] for k, v in said.items()}, Received(reply.common, own))
        self.cohort.put(places, part)

    def _take_steps(self, cohort: Cohort, turn: Turn, said: Mapping[str, Tensor], reply: Received) -> None:
        self._discreetly(cohort, lambda c: self.method.learn(c, turn, said, reply), "local steps were left out")

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

    def _said(self, turn: Turn) -> dict[str, Tensor]:
        """What was last sent about the turn's rows; zero where nothing ever was."""
        return self.said if self.memory is None else self.memory.recall(turn.rows)

    def _speak(self, ask: Ask, number: int, part: int) -> Spoken:
        names = self.cohort.names
        wanted = set(ask.speakers)
        places = [i for i, name in enumerate(names) if name in wanted]
        rows = ask.rows.to(self.cohort.device)
        training = ask.purpose is Purpose.TRAIN
        if training:
            self.turn = Turn(number, rows, ask.speakers, ())
        if not places:
            return Spoken((), (), {})
        whole = len(places) == len(names)
        cohort = self.cohort if whole else self.cohort.pick(places)
        upload = self._upload(cohort, rows, training)
        self.gate.notes = note(self._trained_on(ask))
        speakers, about = [names[i] for i in places], rows_digest(ask.rows)
        spoken = self.gate.release(upload, speakers, number, ask.purpose, len(rows), part, about)
        if training:
            self._remember(places, rows, spoken.values)
        return spoken

    def _trained_on(self, ask: Ask) -> int:
        """How many rows of a question trained with noise, and would leave without it now."""
        if not self.gate.protection.noised or ask.purpose not in (Purpose.PREDICT, Purpose.EXPLAIN):
            return 0
        return int(torch.isin(ask.rows.cpu(), self.cohort.schema.train.cpu()).sum())

    def _upload(self, cohort: Cohort, rows: Tensor, training: bool) -> Upload:
        def speak(cohort: Cohort) -> Upload:
            about, x = cohort.about(rows), cohort.x(rows)
            if not training:
                return upload_about(self.method, about, x)
            with torch.no_grad():
                return self.method.speak(about, x, training)

        upload = self._discreetly(cohort, speak, "the upload is zero before noise") if training else speak(cohort)
        if upload is not None:
            return upload
        count, numbers = len(cohort.names), cohort.schema.dtype
        return Upload(
            {k: torch.zeros(count, *a.shape(len(rows)), dtype=a.dtype or numbers) for k, a in self.gate.agreed.items()}
        )

    def predict(self, columns: Tensor, number: int, rows: Tensor) -> Spoken:
        """Release what the current model says about new columns (P, B, ...), which are these rows to everybody."""
        upload = upload_about(self.method, self.cohort, columns)
        count, about = columns.shape[1], rows_digest(rows)
        return self.gate.release(upload, self.cohort.names, number, Purpose.PREDICT, count, about=about)

    def _remember(self, places: list[int], rows: Tensor, values: Mapping[str, Tensor]) -> None:
        if self.memory is not None:
            self.memory.remember(places, rows, values)
        else:
            self.said = dict(values)

    def tensors(self, said: bool = True) -> dict[str, Tensor]:
        """Everything that must survive a restart; without `said`, if what was said is kept elsewhere."""
        out = {f"cohort.{k}": v for k, v in self.cohort.tensors().items()}
        if said:
            out |= {f"said.{k}": v for k, v in self.said.items()}
        out |= {f"best.{k}": v for k, v in self.best.items()}
        if self.memory is not None:
            out |= {f"board.{k}": v for k, v in self.memory.values.items()}
        if self.turn is not None:
            out["turn.rows"] = self.turn.rows
            out["turn.number"] = torch.tensor(self.turn.number)
        return out

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Put saved tensors back."""
        device = self.cohort.device
        parts: dict[str, dict[str, Tensor]] = {"cohort": {}, "said": {}, "best": {}, "board": {}, "turn": {}}
        for name, value in tensors.items():
            kind, _, rest = name.partition(".")
            parts[kind][rest] = canonical(value.to(device))
        self.cohort.restore(parts["cohort"])
        self.said, self.best = parts["said"], parts["best"]
        if self.memory is not None:
            self.memory.values = parts["board"]
        if parts["turn"]:
            self.turn = Turn(int(parts["turn"]["number"]), parts["turn"]["rows"], (), ())

    def use_best(self) -> None:
        """Go back to the model of the best round, if one was kept."""
        if self.best:
            self.cohort.restore(self.best)

    def models(self) -> dict[str, dict[str, Tensor]]:
        """The current model of every party on its own, without the party axis."""
        model = self.cohort.model()
        return {name: {k: v[i] for k, v in model.items()} for i, name in enumerate(self.cohort.names)}

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
        self.cohort.restore({k: torch.stack([m[k] for m in mine]) for k in mine[0]})


def upload_about(method: Method, cohort: Cohort, columns: Tensor) -> Upload:
    """What a model that is not training says about columns (P, B, ...), on the scale that it reads.

    The one function behind every prediction: of a simulation, of a party in its own process, of a part from a folder.
    """
    with torch.no_grad():
        return method.speak(cohort, columns, False)


def _fails_on_zeros(cohort: Cohort, act: Callable[[Cohort], object]) -> bool:
    """Whether something fails for a cohort whose columns, networks and memory are all zero, whatever the numbers."""
    try:
        act(cohort.blank())
    except (ArithmeticError, torch.linalg.LinAlgError):  # type: ignore[attr-defined]  # of the zeros themselves
        return False
    except Exception:
        return True
    return False
