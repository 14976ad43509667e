"""The coordinator side of a round: order, hear, evaluate, coordinate. The same in every engine.

order n       reply to n - 1, rows of n, who evaluates, keep/stop
answers n  -> evaluate with the state that was in force when they spoke
-> coordinate -> order n + 1
the end       order T + 1 carries the last reply and asks for evaluation only; order T + 2 says stop;
              order T + 3 asks about the test rows, once
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypedDict, cast

import torch
from torch import Tensor

from colonnade.admm.stopping import Stopping, Watch, WatchFacts
from colonnade.board import Board
from colonnade.engines.base import Answers, Said
from colonnade.errors import Diverged, RunError
from colonnade.evaluate.judge import Judge
from colonnade.evaluate.metrics import Metric, choose_metric, metric_of
from colonnade.layout import canonical, canonical_all, check
from colonnade.methods.base import FitsOutputs, Heard, Method, Reply, State, outputs, small_enough
from colonnade.models.schema import Schema
from colonnade.privacy.gate import CoordinatorGate, Down
from colonnade.privacy.labels import Labels
from colonnade.privacy.mechanism import Opener
from colonnade.record import Round
from colonnade.schedule import Schedule, chunked
from colonnade.wire.messages import COORDINATOR, Ask, Order, Purpose, rows_digest
from colonnade.wire.traffic import Traffic

EVALUATION_CHUNK = 65536  # rows per evaluation message,
EVALUATION_BYTES = 24 * 2**20  # and what they may take in one answer, well below the limit of a message


@dataclass(frozen=True)
class Plan:
    """How long, and how often to look."""

    rounds: int
    evaluate_every: int  # 0: never
    stopping: Stopping
    goes_on: bool = False  # with remembered uploads, when a party stays away
    metric: str | None = None  # that chooses the kept round; None: the task's own
    end: str = "all rounds done"  # the reason to stop after the last round


class CoordinatorFacts(TypedDict):
    """What of a coordinator survives a restart as plain values."""

    number: int
    keep: bool
    stop: str | None
    learners: list[str]
    away: list[str]
    steps: list[list[str | int]]
    watch: WatchFacts
    metric: str
    best_scores: dict[str, float | None]


@dataclass
class CoordinatorSide:
    """Labels, the method's state, the schedule, the watch and the gate of the label holder."""

    method: Method
    schema: Schema
    labels: Labels
    truth: Tensor = field(repr=False)  # plain labels, for evaluation only
    validation: Tensor = field(repr=False)  # row numbers
    schedule: Schedule = field(repr=False)
    plan: Plan
    gate: CoordinatorGate = field(repr=False)
    traffic: Traffic = field(repr=False)
    history: list[Round] = field(default_factory=list, repr=False)
    number: int = 0  # the last exchange that was heard
    keep: bool = False
    stop: str | None = None
    opener: Opener | None = field(default=None, repr=False)  # of a secure sum: nobody's part can be heard
    noised: bool = False  # uploads are: then parties refuse replies that are too large
    row_weights: Tensor | None = field(default=None, repr=False)  # (N,) of the metrics; None: all rows alike

    def __post_init__(self) -> None:
        self.watch = Watch(self.plan.stopping)
        self.state: State
        self.state, opening = self.method.open_coordinator(self.schema, self.labels)
        self.state |= self.labels.state(self.schema.dtype)
        self.state = canonical_all(self.state)
        self.reply: Reply = _canonical(opening) if opening else Reply()
        self.learners: tuple[str, ...] = self.schema.parties if opening else ()
        self.steps: tuple[tuple[str, int], ...] = ()
        self.best_state: State = {}
        self.best_scores: dict[str, float | None] = {}  # every metric of the kept round on the validation rows
        self.away: tuple[str, ...] = ()  # who did not answer last time, where the run goes on without them
        self.boards: list[Board] | None = None
        if self.schedule.someone_may_be_silent or self.plan.goes_on:
            s = self.schema
            self.boards = [Board(s, len(g.parties), self.method.says(s, g)) for g in s.groups]

    # -- down ---------------------------------------------------------------------------------

    def order(self) -> tuple[Order, Down]:
        """The next order, and its sealed messages (which carry the reply to the exchange before)."""
        check("the coordinator", self.tensors)
        number = self.number + 1
        stop = self.stop or (self.plan.end if number > self.plan.rounds + 1 else None)
        asks = () if stop else self._asks(number)
        order = Order(number, asks, () if stop else self.learners, self.steps, self.keep, stop)
        reply = Reply() if stop else self.reply
        down = self.gate.release(order, reply.common, reply.own)
        self.count_down(order, down)
        return order, down

    def test_order(self, rows: Tensor) -> tuple[Order, Down]:
        """After the last order: a look at the test rows, and nothing else."""
        order = Order(self.number + 2, self._looks(rows))  # number + 1 was the order to stop
        down = self.gate.release(order, {}, ())
        self.count_down(order, down)
        return order, down

    def _asks(self, number: int) -> tuple[Ask, ...]:
        asks: list[Ask] = []
        last = number == self.plan.rounds + 1
        if not last:
            turn = self.schedule.turn(number)
            speakers = tuple(p for p in turn.speakers if p not in self.away)
            asks.append(Ask(Purpose.TRAIN, speakers, turn.rows))
        every = self.plan.evaluate_every
        if every and len(self.validation) and (last or (number > 1 and (number - 1) % every == 0)):
            asks += self._looks(self.validation)
        return tuple(asks)

    def _looks(self, rows: Tensor) -> tuple[Ask, ...]:
        """Everybody is asked about these rows, in pieces that fit a message."""
        s = self.schema
        fitting = rows_that_fit(self.method, s, summed=self.opener is not None)
        return tuple(Ask(Purpose.EVALUATE, s.parties, part) for part in chunked(rows, fitting))

    def count_down(self, order: Order, down: Down) -> None:
        """Add the messages of an order to the traffic."""
        record = self.traffic.begin(order.number)
        looking = sum(4 * len(a.rows) for a in order.asks if a.purpose is Purpose.EVALUATE)
        if not order.learners and order.stop is None and all(a.purpose is Purpose.EVALUATE for a in order.asks):
            looking = len(down.everyone.payload)  # the look at the test rows: nothing of it is training
        record.down += len(down.everyone.payload) - looking
        record.evaluation_down += looking * len(self.schema.parties)
        record.multicast_down += len(down.everyone.payload) - looking
        for place, party in enumerate(self.schema.parties):
            if party in down.own:
                record.down[place] += len(down.own[party].payload)
                record.multicast_down += len(down.own[party].payload)

    # -- up -----------------------------------------------------------------------------------

    def hear(self, order: Order, answers: Answers) -> None:
        """Take the answers to an order: evaluate first, then coordinate."""
        self.count_up(order, answers)
        self.keep, self.away = False, answers.absent
        record: Round = {"round": order.number - 1}
        if answers.absent:
            record["absent"] = list(answers.absent)
        if order.steps:  # what was learnt with since the last exchange, where it was not the method's number
            record["steps"] = dict(order.steps)
        self._catch_up(answers)
        looks = [i for i, ask in enumerate(order.asks) if ask.purpose is Purpose.EVALUATE]
        if looks and not answers.absent:  # a score without somebody's part would be another model's
            record["score"] = self._evaluate(order, [self.heard(order, i, answers.said[i]) for i in looks])
        self.reply, self.learners, self.steps = Reply(), (), ()
        for place, (ask, said) in enumerate(zip(order.asks, answers.said, strict=True)):
            if ask.purpose is Purpose.TRAIN and self.stop is None:
                try:
                    self._coordinate(order.number, self.heard(order, place, said))
                except Diverged as error:
                    self.give_up(order.number, error)
                record.update(cast(Round, _as_numbers(self.reply.notes)))  # by names of the method's own
        self.number = order.number
        if len(record) > 1:
            self.history.append(record)

    def heard(self, order: Order, place: int, said: Sequence[Said]) -> Heard:
        """The answers to one ask by group, silent parties from the board; under a secure sum only their total."""
        ask = order.asks[place]
        if not ask.speakers and self.boards is None:
            return Heard(())
        if self.opener is not None:
            return open_sum(self.opener, self.schema, order, place, said)
        if self.boards is None or ask.purpose is not Purpose.TRAIN:
            return Heard(tuple(part.values for part in said))
        rows = ask.rows.to(self.schema.device)
        for board, part in zip(self.boards, said, strict=True):
            if part.places:
                board.remember(part.places, rows, part.values)
        return Heard(tuple(board.recall(rows) for board in self.boards))

    def _catch_up(self, answers: Answers) -> None:
        """What came too late for its turn is the last word on those rows all the same."""
        for number, party, values in answers.late:
            g, place = self.schema.position(party)
            rows = self.schedule.turn(number).rows.to(self.schema.device)
            if self.boards is not None:
                self.boards[g].remember([place], rows, {name: value[None] for name, value in values.items()})

    def count_up(self, order: Order, answers: Answers) -> None:
        """Add the answers to an order to the traffic."""
        record = self.traffic.open(order.number)
        place = {party: i for i, party in enumerate(self.schema.parties)}
        for ask, releases in zip(order.asks, answers.releases, strict=True):
            for released in releases:
                if ask.purpose is Purpose.TRAIN:
                    record.up[place[released.sender]] += len(released.payload)
                else:
                    record.evaluation_up += len(released.payload)

    def _evaluate(self, order: Order, heard: list[Heard]) -> float:
        if isinstance(self.method, FitsOutputs) and self.opener is None:  # of a secure sum there is only the total
            self.method.fit_outputs(self.state, heard, self.labels, self.validation)
            self.state = canonical_all(self.state)
        logits = torch.cat([outputs(self.method, self.state, h) for h in heard])
        value = self.judge(logits)
        better, self.stop = self.watch.see(self.judge.gain(value), order.number - 1)
        if better:
            self.best_scores = self.judge.all(logits)
            self.keep = True
            self.best_state = {k: v.clone() for k, v in self.state.items() if is_model(k)}
        return value

    @cached_property
    def judge(self) -> Judge:
        """What gives the validation score: keep and stop go down to the parties, so protected labels judge noised."""
        task, labels, name = self.schema.task, self.labels, self.plan.metric
        if labels.epsilon is None:
            truth = self.truth[self.validation.to(self.truth.device)]
            return Judge.of(task, truth, name, weights=self.weights_of(self.validation))
        return Judge.of(task, labels.held_out(self.validation), name, noisy=True)

    @property
    def metric(self) -> Metric:
        """What the validation scores so far are; before the first one, what was asked for."""
        return self.judge.metric if self.watch.seen else choose_metric(self.schema.task, self.plan.metric)

    @property
    def best_score(self) -> float | None:
        """The validation score of the kept round; None before the first evaluation."""
        return self.judge.value(self.watch.best) if self.watch.best_round >= 0 else None

    def shares(self, rows: Tensor) -> Tensor:
        """(K,) how often these rows have each class or label; protected labels are counted as they were noised."""
        if self.labels.epsilon is not None:
            return self.labels.held_out(rows).mean(dim=0)
        return self.schema.task.shares(self.truth[rows.to(self.truth.device)], self.weights_of(rows))

    def weights_of(self, rows: Tensor) -> Tensor | None:
        """(B,) how much these rows count in a metric; None: all alike."""
        return None if self.row_weights is None else self.row_weights[rows.cpu()]

    def _coordinate(self, number: int, heard: Heard) -> None:
        turn = self.schedule.turn(number)
        present = tuple(p for p in turn.learners if p not in self.away)
        spoke = tuple(p for p in turn.speakers if p not in self.away)
        turn = replace(turn, rows=turn.rows.to(self.schema.device), speakers=spoke, learners=present)
        try:
            with torch.no_grad():
                reply = _canonical(self.method.coordinate(self.state, turn, heard, self.labels))
        except torch.linalg.LinAlgError:  # type: ignore[attr-defined]  # embeddings too large to be squared
            raise Diverged(COORDINATOR, "set of heads") from None
        finally:
            self.state = canonical_all(self.state)
        if not all(bool(torch.isfinite(v).all()) for part in (reply.common, *reply.own) for v in part.values()):
            raise Diverged(COORDINATOR, "reply")
        numbers = self.gate.numbers
        if not all(numbers.fit(v) for part in (reply.common, *reply.own) for v in part.values()):
            raise Diverged(COORDINATOR, "reply")
        if self.noised and not small_enough(reply.common, *reply.own):  # parties would refuse it
            raise Diverged(COORDINATOR, "reply")
        steps = {**reply.steps, **dict(turn.steps)}  # a method's choice, unless the schedule names a number
        self.reply, self.learners, self.steps = reply, turn.learners, tuple(steps.items())

    def give_up(self, number: int, error: Diverged) -> None:
        """Somebody left the finite numbers in exchange `number`: stop next, say what is kept and what to change."""
        kept = "the best round is kept" if self.watch.best_round >= 0 else "no round was evaluated, so none is kept"
        self.end(
            number,
            f"diverged: {error} in round {number}; {kept}; "
            "try a smaller learning rate, fewer local steps or damping = 1/M",
        )

    def end(self, number: int, reason: str) -> None:
        """Whatever became of exchange `number`, the next order says stop."""
        self.number, self.reply, self.learners, self.steps = number, Reply(), (), ()
        self.stop = reason

    # -- restart ------------------------------------------------------------------------------

    def tensors(self) -> dict[str, Tensor]:
        """Everything that must survive a restart, as tensors."""
        out = {f"state.{k}": v for k, v in self.state.items()}
        out |= {f"best.{k}": v for k, v in self.best_state.items()}
        out |= {f"common.{k}": v for k, v in self.reply.common.items()}
        for g, part in enumerate(self.reply.own):
            out |= {f"own.{g}.{k}": v for k, v in part.items()}
        for g, board in enumerate(self.boards or []):
            out |= {f"board.{g}.{k}": v for k, v in board.values.items()}
        return out

    def facts(self) -> CoordinatorFacts:
        """Everything that must survive a restart, as plain values."""
        return {
            "number": self.number,
            "keep": self.keep,
            "stop": self.stop,
            "learners": list(self.learners),
            "away": list(self.away),
            "steps": [list(s) for s in self.steps],
            "watch": self.watch.to_json(),
            "metric": self.metric.name,
            "best_scores": self.best_scores,
        }

    def restore(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        """Put a saved coordinator back."""
        device = self.schema.device
        common: dict[str, Tensor] = {}
        own: dict[int, dict[str, Tensor]] = {}
        for name, value in tensors.items():
            kind, _, rest = name.partition(".")
            moved = canonical(value.to(device))
            if kind == "state":
                self.state[rest] = moved
            elif kind == "best":
                self.best_state[rest] = moved
            elif kind == "common":
                common[rest] = moved
            else:
                g, _, rest = rest.partition(".")
                home = own.setdefault(int(g), {}) if kind == "own" else (self.boards or [])[int(g)].values
                home[rest] = moved
        self.reply = Reply(common, tuple(own[g] for g in sorted(own)))
        self.number, self.keep, self.stop = facts["number"], facts["keep"], facts["stop"]
        self.learners, self.away = tuple(facts["learners"]), tuple(facts.get("away", ()))
        self.steps = tuple((str(p), int(n)) for p, n in facts["steps"])
        self.watch.load(facts["watch"])
        self.best_scores = facts.get("best_scores", {})
        task = self.schema.task
        former = metric_of(task, facts)
        if self.watch.seen and former != self.metric:
            raise RunError(
                f"this run was begun by an earlier version, which judged rounds by {former.title}; this one judges by "
                f"{self.metric.title}, and the two cannot be mixed: train it again, or go on with the earlier version"
            )


def _canonical(reply: Reply) -> Reply:
    """The reply in the layout in which a checkpoint would give it back."""
    return replace(reply, common=canonical_all(reply.common), own=tuple(canonical_all(part) for part in reply.own))


def is_model(name: str) -> bool:
    """Whether a tensor of the coordinator's state is part of the model; duals and caches are about training rows."""
    return name != "dual" and not name.startswith("cache.")


def open_sum(opener: Opener, schema: Schema, order: Order, place: int, said: Sequence[Said]) -> Heard:
    """The total of the answers to one ask, as if one party had said it all."""
    parts: dict[str, dict[str, Tensor]] = {}
    for group, part in zip(schema.groups, said, strict=True):
        for at, where in enumerate(part.places):
            parts[group.parties[where]] = {name: value[at] for name, value in part.values.items()}
    ask = order.asks[place]
    total = opener.total(order.number, place, ask.purpose, rows_digest(ask.rows), parts)
    return Heard(({name: value[None].to(schema.device, schema.dtype) for name, value in total.items()},))


def rows_that_fit(method: Method, schema: Schema, *, summed: bool = False) -> int:
    """How many rows a party can be asked about in one message; under a secure sum every number takes 8 bytes."""
    dtype = torch.float64 if summed else schema.dtype
    sizes = [sum(a.size(dtype) for a in method.says(schema, group).values()) for group in schema.groups]
    return min(EVALUATION_CHUNK, max(1, EVALUATION_BYTES // max(1, *sizes)))


def _as_numbers(notes: Mapping[str, Tensor]) -> dict[str, float]:
    """Notes as plain numbers, fetched from the device together: each fetch waits for all work on it."""
    if not notes:
        return {}
    return dict(zip(notes, torch.stack([note.double() for note in notes.values()]).tolist(), strict=True))
