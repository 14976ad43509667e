"""The coordinator side of a round: request, receive, evaluate, coordinate. The same in every engine.

request n       reply to n - 1, rows of n, who evaluates, keep/stop
uploads n  -> evaluate with the state that was in force when they uploaded
-> coordinate -> request n + 1
the end       request T + 1 carries the last reply and asks for evaluation only; request T + 2 says stop;
              request T + 3 asks about the test rows, once
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from colonnade.admm.stopping import Watch
from colonnade.engines.base import Collected, GroupUploads, Message, by_party
from colonnade.engines.facts import CoordinatorFacts
from colonnade.engines.plan import TrainingPlan
from colonnade.engines.queries import open_sum, remember, rows_that_fit
from colonnade.engines.taken_over import TakenOver, asked_of, opened
from colonnade.errors import Diverged, RunError
from colonnade.evaluate.decision import Decision, fit_decision
from colonnade.evaluate.judge import Judge
from colonnade.evaluate.metrics import Metric, choose_metric, metric_of
from colonnade.gpu import to_device
from colonnade.layout import canonical, canonical_all, check
from colonnade.methods.base import (
    Method,
    Reply,
    State,
    Uploads,
    fit_at_home,
    is_model,
    small_enough,
)
from colonnade.methods.rounds import AddsIncrements, New, outside_training
from colonnade.methods.without import fit_for_all, in_their_places, outputs, remembered
from colonnade.models.schema import Schema
from colonnade.privacy.gate import CoordinatorGate, Down
from colonnade.privacy.labels import Labels
from colonnade.privacy.mechanism import Opener
from colonnade.record import Round
from colonnade.schedule import Schedule, chunked
from colonnade.upload_cache import UploadCache
from colonnade.wire.codec import all_finite
from colonnade.wire.messages import COORDINATOR, Purpose, Query, Request
from colonnade.wire.rows import rows_size
from colonnade.wire.traffic import Traffic


@dataclass
class CoordinatorSide:
    """Labels, the method's state, the schedule, the watch and the gate of the label holder."""

    method: Method
    schema: Schema
    labels: Labels
    truth: Tensor = field(repr=False)  # plain labels, for evaluation only
    validation: Tensor = field(repr=False)  # row numbers
    schedule: Schedule = field(repr=False)
    training_plan: TrainingPlan
    gate: CoordinatorGate = field(repr=False)
    traffic: Traffic = field(repr=False)
    history: list[Round] = field(default_factory=list, repr=False)
    number: int = 0  # the last round whose uploads were received
    keep: bool = False
    stop: str | None = None
    opener: Opener | None = field(default=None, repr=False)  # of a secure sum: nobody's part can be read
    noised: bool = False  # uploads are: then parties refuse replies that are too large
    row_weights: Tensor | None = field(default=None, repr=False)  # (N,) of the metrics; None: all rows alike
    home: Labels | None = field(default=None, repr=False)  # the true labels, for methods that fit with them at home
    taken: TakenOver | None = field(default=None, repr=False)  # parts of a former run; None: everybody trains

    def __post_init__(self) -> None:
        self.watch = Watch(self.training_plan.stopping)
        self.state: State
        self.state, opening = opened(self.method, self.schema, self.labels, self.home, self.taken)
        self.state |= self.labels.state()
        self.state = canonical_all(self.state)
        self.reply: Reply = opening.canonical() if opening else Reply()
        self.learners: tuple[str, ...] = asked_of(self.taken, self.schema.parties) if opening else ()
        self.steps: tuple[tuple[str, int], ...] = ()
        self.best_state: State = {}
        self.best_scores: dict[str, float | None] = {}  # every metric of the kept round on the validation rows
        self.decision: Decision | None = None  # of the kept round
        self.away: tuple[str, ...] = ()  # who did not answer last time, where the run goes on without them
        self.caches: list[UploadCache] | None = None
        if self.schedule.someone_may_be_silent or self.training_plan.goes_on:
            s = self.schema
            self.caches = [UploadCache(s, len(g.parties), self.method.upload_arrays(s, g)) for g in s.groups]

    # -- down ---------------------------------------------------------------------------------

    def request(self) -> tuple[Request, Down]:
        """The next request, and its encrypted messages (which carry the reply to the round before)."""
        check("the coordinator", self.tensors)
        number = self.number + 1
        stop = self.stop or (self.training_plan.end if number > self.training_plan.rounds + 1 else None)
        queries = () if stop else self._asks(number)
        request = Request(number, queries, () if stop else self.learners, self.steps, self.keep, stop)
        reply = Reply() if stop else self.reply
        down = self.gate.release(request, reply.common, reply.own)
        self.traffic.later(lambda: self.count_down(request, down))
        return request, down

    def test_request(self, rows: Tensor) -> tuple[Request, Down]:
        """After the last request: an evaluation on the test rows, and nothing else."""
        request = Request(self.number + 2, self._evaluations(rows))  # number + 1 was the request to stop
        down = self.gate.release(request, {}, ())
        self.count_down(request, down)
        return request, down

    def _asks(self, number: int) -> tuple[Query, ...]:
        queries: list[Query] = []
        last = number == self.training_plan.rounds + 1
        if not last:
            plan = self.schedule.plan(number)
            senders = tuple(p for p in asked_of(self.taken, plan.senders) if p not in self.away)
            queries.append(Query(Purpose.TRAIN, senders, plan.rows))
        if len(self.validation) and self.training_plan.asks_after(number - 1):
            queries += self._evaluations(self.validation)
        return tuple(queries)

    def _evaluations(self, rows: Tensor) -> tuple[Query, ...]:
        """Everybody is asked about these rows, in pieces that fit a message."""
        s = self.schema
        fitting = rows_that_fit(self.method, s, summed=self.opener is not None)
        return tuple(Query(Purpose.EVALUATE, asked_of(self.taken, s.parties), part) for part in chunked(rows, fitting))

    def count_down(self, request: Request, down: Down) -> None:
        """Add the messages of a request to the traffic."""
        record = self.traffic.begin(request.number)
        asked = [query for query in request.queries if query.purpose is Purpose.EVALUATE]
        evaluating = sum(rows_size(query.rows, self.gate.known) for query in asked)
        if not request.learners and request.stop is None and len(asked) == len(request.queries):
            evaluating = len(down.everyone.payload)  # the evaluation on the test rows: nothing of it is training
        record.down += len(down.everyone.payload) - evaluating
        record.evaluation_down += evaluating * len(self.schema.parties)
        record.multicast_down += len(down.everyone.payload) - evaluating
        own = {party: len(released.payload) for party, released in down.own.items()}
        record.down += np.array([own.get(party, 0) for party in self.schema.parties], dtype=np.int64)
        record.multicast_down += sum(own.values())

    # -- up -----------------------------------------------------------------------------------

    def receive(self, request: Request, collected: Collected) -> None:
        """Take the uploads of a round: evaluate first, then coordinate."""
        self.traffic.settle()  # messages of before: the engine has sealed them by now
        self.keep, self.away = False, collected.absent
        record: Round = {"round": request.number - 1}
        if collected.absent:
            record["absent"] = list(collected.absent)
        if request.steps:  # what was learnt with since the last round, where it was not the method's number
            record["steps"] = dict(request.steps)
        self._catch_up(collected)
        evaluations = [i for i, query in enumerate(request.queries) if query.purpose is Purpose.EVALUATE]
        if evaluations and not collected.absent:  # a score without somebody's part would be another model's
            told = [self.uploads(request, i, collected.uploaded[i]) for i in evaluations]
            told = outside_training(self.method, self.state, told, self.labels, New(self.validation, request.trainers))
            self.state = canonical_all(self.state)
            if self.training_plan.evaluates_after(request.number - 1):
                record["score"] = self._evaluate(request, told)
        self.reply, self.learners, self.steps = Reply(), (), ()
        for place, (query, uploaded) in enumerate(zip(request.queries, collected.uploaded, strict=True)):
            if query.purpose is Purpose.TRAIN and self.stop is None:
                try:
                    self._coordinate(request.number, self.uploads(request, place, uploaded))
                except Diverged as error:
                    self.give_up(request.number, error)
                record.update(cast(Round, self.reply.noted()))  # by names of the method's own
        self.number = request.number
        if len(record) > 1:
            self.history.append(record)
        self.traffic.later(partial(self.count_up, request, collected.releases))  # they may not be sealed yet

    def uploads(self, request: Request, place: int, uploaded: Sequence[GroupUploads]) -> Uploads:
        """The uploads to one query by group, of others from the upload cache; under a secure sum only the total."""
        query = request.queries[place]
        if self.taken is not None:
            return self.taken.beside(self.method, self.schema, self.state, query, by_party(self.schema, uploaded))
        if not query.senders and self.caches is None:
            return Uploads(())
        if self.opener is not None:
            return open_sum(self.opener, self.schema, request, place, uploaded)
        if self.schedule.leaves_out and query.purpose is Purpose.TRAIN:  # who was left out adds nothing
            return in_their_places(self.method, self.schema, by_party(self.schema, uploaded), len(query.rows))[0]
        if self.caches is None or query.purpose is not Purpose.TRAIN:
            return Uploads(tuple(part.values for part in uploaded))
        rows = query.rows.to(self.schema.device)
        for cache, part in zip(self.caches, uploaded, strict=True):
            if part.places:
                cache.remember(part.places, rows, part.values)
        return Uploads(tuple(cache.recall(rows) for cache in self.caches))

    def _catch_up(self, collected: Collected) -> None:
        """What came too late for its round is the last word on those rows all the same."""
        for number, party, values in collected.late:
            g, place = self.schema.position(party)
            rows = self.schedule.plan(number).rows.to(self.schema.device)
            if self.caches is not None:
                self.caches[g].remember([place], rows, {name: value[None] for name, value in values.items()})

    def count_up(self, request: Request, releases: Sequence[Sequence[Message]]) -> None:
        """Add the uploads of a round to the traffic."""
        record = self.traffic.open(request.number)
        place = {party: i for i, party in enumerate(self.schema.parties)}
        for query, messages in zip(request.queries, releases, strict=True):
            for released in messages:
                if query.purpose is Purpose.TRAIN:
                    record.up[place[released.sender]] += len(released.payload)
                else:
                    record.evaluation_up += len(released.payload)

    def _evaluate(self, request: Request, uploads: list[Uploads]) -> float:
        if self.opener is None:  # of a secure sum there is only the total
            uneven = self.schedule.leaves_out or self.schema.held is not None
            places = self._choosing if uneven else None
            fit_for_all(self.method, self.state, uploads, self.labels, self.validation, places)
            self.state = canonical_all(self.state)
        remember(self.method, self.state, self.validation.to(self.schema.device), uploads)
        logits = torch.cat([outputs(self.method, self.state, h) for h in uploads])
        if self.judging is not None:
            logits = logits[self.judging.to(logits.device)]
        done, plan, keeper = request.number - 1, self.training_plan, self.keeper
        gain, name = keeper.gain(keeper(logits)), "" if keeper is self.judge else keeper.metric.title
        better, self.stop = self.watch.see(gain, done, plan.may_stop_after(done), keeper.value, name)
        if better:
            self.best_scores = self.judge.all(logits)
            self.decision = self.decide(logits)
            self.keep = True
            self.best_state = {k: v.clone() for k, v in self.state.items() if is_model(k)}
            kept = remembered(self.method, self.state, uploads, self.labels, self.validation)
            self.best_state |= canonical_all(kept)
        return self.judge(logits)

    def decide(self, outputs: Tensor) -> Decision | None:
        """Threshold and calibration of these outputs of the validation rows, where they were asked for."""
        settings, rows = self.training_plan.decision, self.judging_rows
        if not settings.asked:
            return None
        truth = self.truth[rows.to(self.truth.device)]
        return fit_decision(settings, self.schema.task, outputs, truth, self.weights_of(rows))

    @cached_property
    def judging(self) -> Tensor | None:
        """Places of the validation rows that judge; None: all of them."""
        return self.method.judging(self.validation) if isinstance(self.method, AddsIncrements) else None

    @cached_property
    def _choosing(self) -> Tensor:
        """Places of the validation rows that something may be fitted to: all, or those that do not judge."""
        every = torch.arange(len(self.validation))
        free = every if self.judging is None else every[~torch.isin(every, self.judging.cpu())]
        return free if len(free) else every

    @property
    def judging_rows(self) -> Tensor:
        """The validation rows that judge."""
        return self.validation if self.judging is None else self.validation[self.judging.to(self.validation.device)]

    @cached_property
    def judge(self) -> Judge:
        """What gives the validation score: keep and stop go down to the parties, so protected labels judge noised."""
        task, labels, name = self.schema.task, self.labels, self.training_plan.metric
        if labels.epsilon is None:
            truth = self.truth[self.judging_rows.to(self.truth.device)]
            return Judge.of(task, truth, name, weights=self.weights_of(self.judging_rows))
        return Judge.of(task, labels.held_out(self.judging_rows), name, noisy=True)

    @cached_property
    def keeper(self) -> Judge:
        """What chooses the kept round and stops: the judge, unless the method goes by the loss."""
        return self.judge.by_loss() if self.training_plan.by_loss else self.judge

    @property
    def metric(self) -> Metric:
        """What the validation scores so far are; before the first one, what was asked for."""
        return self.judge.metric if self.watch.judged else choose_metric(self.schema.task, self.training_plan.metric)

    @property
    def best_score(self) -> float | None:
        """The validation score of the kept round; None before the first evaluation."""
        if self.watch.best_round >= 0 and self.keeper is not self.judge:
            return self.best_scores[self.judge.metric.name]
        return self.judge.value(self.watch.best) if self.watch.best_round >= 0 else None

    def shares(self, rows: Tensor) -> Tensor:
        """(K,) how often these rows have each class or label; protected labels are counted as they were noised."""
        if self.labels.epsilon is not None:
            return self.labels.held_out(rows).mean(dim=0)
        return self.schema.task.shares(self.truth[rows.to(self.truth.device)], self.weights_of(rows))

    def weights_of(self, rows: Tensor) -> Tensor | None:
        """(B,) how much these rows count in a metric; None: all alike."""
        return None if self.row_weights is None else self.row_weights[rows.cpu()]

    def _coordinate(self, number: int, uploads: Uploads) -> None:
        plan = self.schedule.plan(number)
        present = tuple(p for p in asked_of(self.taken, plan.learners) if p not in self.away)
        senders = tuple(p for p in asked_of(self.taken, plan.senders) if p not in self.away)
        plan = replace(plan, rows=to_device(plan.rows, self.schema.device), senders=senders, learners=present)
        try:
            with torch.no_grad():
                reply = self.method.coordinate(self.state, plan, uploads, self.labels).canonical()
                fit_at_home(self.method, self.state, reply, self.home)
        except torch.linalg.LinAlgError:  # type: ignore[attr-defined]  # embeddings too large to be squared
            raise Diverged(COORDINATOR, "set of heads") from None
        finally:
            self.state = canonical_all(self.state)
        replied = [value for part in (reply.common, *reply.own) for value in part.values()]
        if not (all_finite(*replied) and all(map(self.gate.numbers.fit, replied))):
            raise Diverged(COORDINATOR, "reply")
        if self.noised and not small_enough(reply.common, *reply.own):  # parties would refuse it
            raise Diverged(COORDINATOR, "reply")
        steps = {**reply.steps, **dict(plan.steps)}  # a method's choice, unless the schedule names a number
        self.reply, self.learners, self.steps = reply, plan.learners, tuple(steps.items())

    def give_up(self, number: int, error: Diverged) -> None:
        """Somebody left the finite numbers in round `number`: stop next, say what is kept and what to change."""
        kept = "the best round is kept" if self.watch.best_round >= 0 else "no round was evaluated, so none is kept"
        self.end(
            number,
            f"diverged: {error} in round {number}; {kept}; "
            "try a smaller learning rate, fewer local steps or damping = 1/M",
        )

    def end(self, number: int, reason: str) -> None:
        """Whatever became of round `number`, the next request says stop."""
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
        for g, cache in enumerate(self.caches or []):
            out |= {f"board.{g}.{k}": v for k, v in cache.values.items()}
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
            "decision": None if self.decision is None else self.decision.to_json(),
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
                home = own.setdefault(int(g), {}) if kind == "own" else (self.caches or [])[int(g)].values
                home[rest] = moved
        self.reply = Reply(common, tuple(own[g] for g in sorted(own)))
        self.number, self.keep, self.stop = facts["number"], facts["keep"], facts["stop"]
        self.learners, self.away = tuple(facts["learners"]), tuple(facts.get("away", ()))
        self.steps = tuple((str(p), int(n)) for p, n in facts["steps"])
        self.watch.load(facts["watch"])
        self.best_scores = facts.get("best_scores", {})
        decision = facts.get("decision")
        self.decision = None if decision is None else Decision.from_json(decision)
        task = self.schema.task
        former = metric_of(task, facts)
        if self.watch.judged and former != self.metric:
            raise RunError(
                f"this run was begun by an earlier version, which judged rounds by {former.title}; this one judges by "
                f"{self.metric.title}, and the two cannot be mixed: train it again, or go on with the earlier version"
            )
