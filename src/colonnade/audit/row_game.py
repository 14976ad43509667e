"""Unit ROW: the game against the figure itself. Was this row, all its columns and its label, in the training or not?

Nothing about a training row is sent, but the figure covers the models of all steps. So the player sees every noisy
gradient of every party, as the optimiser gets it, and plays many games in one training (Steinke, Nasr, Jagielski 2023):
half of the rows, chosen by coins, are there, the others are not, and of each it guesses which.

    canary      row i has its only column of its own, at every party, far too long: its gradient is along cell i, cut
                to norm C, and no other row is in that cell. The games are then as independent as the noise of cells
    code        the method's own local steps, with the run's rate, norm, noise, number type, parties, rounds and steps;
                only the optimiser is another one, which listens and moves nothing. Any network is covered, so also one
                whose first layer is zero
    score       s = y_i / (sigma C) of a step and a party is N(0, 1), and a = 1/sigma more if the row was drawn:
                sum log(1 - q + q exp(a s - a^2/2)), the most powerful one of whoever does not know the draws; the plain
                sum of s - q a/2, which is as good where noise is strong, and better where there is too little; and, for
                whoever takes the rows of the public plan for the draws, sum of s - a/2 over the steps with it

Error rates become a lower bound on epsilon through the accountant itself: of trainings with less and less noise, the
last that could not have so few errors (`least_noise`). Correct code obeys delta(epsilon) of its noise at every epsilon,

    right <= e^epsilon wrong + delta(epsilon)

so with confidence its bound stays below its figure. That assumes what the ledger says: that noise is Gaussian, and that
rows are drawn with the rate that it names. Of a long training some rounds are played, and held against their cost.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from colonnade.audit.at_home import NOISE
from colonnade.audit.bound import CONFIDENCE, shown_by, upper_limit
from colonnade.audit.checks import BOUND, Check
from colonnade.audit.own_rounds import rounds_of
from colonnade.audit.row_bound import Steps, least_noise
from colonnade.errors import RunError
from colonnade.methods.base import Method, Received
from colonnade.models.cohort import Cohort
from colonnade.models.heads import HeadSettings, apply_heads
from colonnade.models.schema import Group, Schema
from colonnade.models.stack import Mode, Stack
from colonnade.privacy.by_row import RowNoise
from colonnade.randomness import permutation, stream
from colonnade.schedule import RoundPlan
from colonnade.tasks import Task

WORK = 1e9  # numbers of canaries' columns that go through the steps: about ten seconds
AT_ONCE = 2.5e7  # of them in one step
MOST_STEPS = 2000  # of each party
FEWEST, MOST = 400, 4000  # canaries, in both worlds together
CLEAREST = 2.0  # deviations that the worlds are apart; beyond even a perfect player needs ever more games
FAR = 2.0**20  # how long a canary's column is
BELOW = "below the ledger's figure: nothing was found, which is no proof"
ABOVE = "ABOVE the ledger's figure: clipping, noise, draws or the ledger is wrong"
Watch = Callable[[int], Callable[[], None]]  # is told how many steps there are, and of each


@dataclass
class Listening:
    """An optimiser that hands on what a step is given, and moves nothing."""

    heard: Callable[[list[Tensor]], None]
    halve_every: int = 0

    def open(self, parameters: Sequence[Tensor]) -> dict[str, Tensor]:
        """It keeps nothing."""
        return {}

    def step(self, parameters: list[Tensor], gradients: list[Tensor], *rest: object) -> None:
        """Listen."""
        self.heard(gradients)


@dataclass(frozen=True)
class RowGame:
    """A training at home as a run has it: its draws and noise, method, parties, task and numbers."""

    how: RowNoise
    method: Method
    parties: tuple[str, ...]
    task: Task
    dtype: torch.dtype
    delta: float
    chained: bool = True  # networks are chains of linear layers; others have another way to their gradients
    listed: int = 1  # how often a training row is named; more than once is a bug that can be planted here

    def check(self, seed: int = 0, games: int | None = None, watch: Watch = lambda steps: lambda: None) -> Check:
        """Play, and hold the lower bound on epsilon against what the accountant says of the steps that were played."""
        plan = self.plan(games)
        wrong = self.play(plan, seed, watch(len(plan.rounds) * self.local_steps))
        alpha = (1 - CONFIDENCE) / (2 * len(wrong))
        found = [(least_noise(plan.steps, *(upper_limit(n, plan.each, alpha) for n in pair)), name, pair)
                 for name, pair in wrong.items()]  # fmt: skip
        sigma, score, (positives, negatives) = min(found)
        bound, claimed = plan.steps.epsilon(self.delta, sigma), plan.steps.epsilon(self.delta)
        failed = sigma <= plan.steps.sigma
        seen = f"{plan.each:,} rows in each world, {plan.steps.releases:,} of {self.how.event.releases:,} steps"
        shows = shown_by(plan.steps.apart, plan.each, 2 * len(wrong))
        facts = {
            "epsilon": bound, "claimed": claimed, "delta": self.delta, "unit": "ROW", "sigma": _number(sigma),
            "score": score, "fpr": positives / plan.each, "fnr": negatives / plan.each, "runs": plan.each,
            "releases": plan.steps.releases, "rate": plan.steps.rate, "shows": 1 / shows,
        }  # fmt: skip
        means = f"{ABOVE}; {seen}"
        if not failed:
            means = f"{BELOW}; {seen}: {_visible(shows)}"
        return Check(BOUND, means, f"{bound:.3f} epsilon", f"{claimed:.3f} ledger", failed=failed, facts=facts)

    def plan(self, games: int | None = None) -> Plan:
        """As many steps as can be told apart, and as many canaries as that leaves time for."""
        rate, sigma, local = self.how.plan.rate, self.how.sigma, self.local_steps
        of_one = Steps(rate, sigma, local * len(self.parties)).apart
        most = max(1, min(round((CLEAREST / of_one) ** 2), MOST_STEPS // local))
        rounds = rounds_of(self.how.steps // local, most)
        steps = local * len(rounds) * len(self.parties)
        fits = math.sqrt(min(WORK / steps, AT_ONCE / len(self.parties)) / rate)
        rows = 2 * games if games else 2 * int(min(MOST, max(FEWEST, fits)) // 2)
        batch = max(1, round(rate * rows))
        return Plan(rows, batch, rounds, Steps(batch / rows, sigma, steps))

    @property
    def local_steps(self) -> int:
        """Of a party in a round."""
        return int(getattr(self.method, "local_steps", 1))

    def play(self, plan: Plan, seed: int, tick: Callable[[], None]) -> dict[str, tuple[int, int]]:
        """By score, how often a row was taken for there that was not, and the other way round."""
        coins = permutation(torch.arange(plan.rows), seed, "audit rows")
        there = torch.zeros(plan.rows, dtype=torch.bool)
        there[coins[: plan.each]] = True
        cohort = self.cohort(plan, there, seed)
        sign, scores = self._signs(cohort), Scores(plan, 1 / plan.steps.sigma)

        def heard(gradients: list[Tensor]) -> None:
            summed = gradients[place].reshape(len(self.parties), -1).double() * cohort.by_row.batch  # type: ignore[union-attr]
            scores.add(sign * summed / self.how.deviation)
            tick()

        weight = _first(cohort)
        place = next(at for at, p in enumerate(cohort.trained(("head", "encoder"))) if p is weight)
        method = _listening(self.method, Listening(heard))
        for number in plan.rounds:
            scores.known = plan.public(number)
            method.learn(cohort, RoundPlan(number, scores.known, self.parties, self.parties), {}, Received({}, {}))
        return {n: (plan.each - int((s[~there] <= 0).sum()), plan.each - int((s[there] > 0).sum()))
                for n, s in scores.told.items()}  # fmt: skip

    def cohort(self, plan: Plan, there: Tensor, seed: int) -> Cohort:
        """All parties with a network each, and the canaries; those that are not there are held by nobody."""
        parties, rows = self.parties, plan.rows
        group = Group(parties, 1, (), rows)
        train = torch.arange(rows).repeat(self.listed)
        schema = Schema(
            parties, (group,), self.task, rows, train, HeadSettings(), seed, self.dtype, torch.device("cpu")
        )
        after = [] if self.chained else [nn.Softplus()]
        networks = [nn.Sequential(nn.Flatten(), nn.Linear(rows, 1), *after).to(self.dtype) for _ in parties]
        columns = (FAR * max(1.0, self.how.clip) * torch.eye(rows, dtype=self.dtype)).expand(len(parties), -1, -1)
        held = there.expand(len(parties), -1)
        cohort = Cohort(parties, columns, Stack(networks), schema, held=held, by_row=self._noise(plan))
        self.method.open_party(cohort)
        with torch.no_grad():
            _first(cohort).zero_()
        cohort.memory["targets"] = self.task.compact(self._labels(rows, seed)).expand(len(parties), *[-1] * self._wide)
        return cohort

    def _noise(self, plan: Plan) -> RowNoise:
        """The run's own, for the canaries: at the same rate."""
        rows, batch = plan.rows * self.listed, plan.batch * self.listed
        return replace(self.how, plan=replace(self.how.plan, rows=rows, batch=batch))

    @property
    def _wide(self) -> int:
        return 1 if self.task.exclusive else 2

    def _labels(self, rows: int, seed: int) -> Tensor:
        coin = stream(seed, "audit labels of rows")
        if self.task.exclusive:
            return torch.from_numpy(coin.integers(0, max(2, self.task.outputs), rows))
        return torch.from_numpy(coin.integers(0, 2, (rows, self.task.outputs))).double()

    def _signs(self, cohort: Cohort) -> Tensor:
        """(P, N) along or against its cell the gradient of each canary is, by differentiating the loss itself."""
        task, smoothing = self.task, float(getattr(self.method, "smoothing", 0.0))
        zeros = torch.zeros(len(self.parties), 1, cohort.schema.rows, dtype=self.dtype)
        first = cohort.encode(zeros, Mode.LEARN)  # the first layer is zero: this is any row's
        embedding = first.detach().expand(-1, cohort.schema.rows, -1).clone().requires_grad_()
        targets = task.smoothed(task.expand(cohort.memory["targets"][0], self.dtype), smoothing)
        task.loss(apply_heads(cohort.head, embedding), targets).backward()
        if embedding.grad is None:
            raise RunError(f"the loss of a {task.words} task has no gradient to play with")
        return embedding.grad.squeeze(2).sign().double()


@dataclass(frozen=True)
class Plan:
    """What is played: so many canaries in so many rounds."""

    rows: int
    batch: int
    rounds: list[int] = field(repr=False)
    steps: Steps

    @property
    def each(self) -> int:
        """Canaries in each of the two worlds."""
        return self.rows // 2

    def public(self, number: int) -> Tensor:
        """The rows that everybody knows a round by."""
        return public_rows(self.rows, self.batch, number)


def public_rows(rows: int, batch: int, number: int) -> Tensor:
    """Rows of a plan as the coordinator sends it; a training at home that goes by it has no secret draws."""
    return permutation(torch.arange(rows), 0, "audit plan", number)[:batch]


class Scores:
    """Sums over steps and parties of what the noisy gradients say for each row being there."""

    def __init__(self, plan: Plan, ahead: float) -> None:
        self.rate, self.ahead = plan.steps.rate, ahead
        self.told = {n: torch.zeros(plan.rows, dtype=torch.float64) for n in ("likelihood", "sum", "sum over the plan")}
        self.known = torch.empty(0, dtype=torch.int64)  # rows of the plan of this round

    def add(self, seen: Tensor) -> None:
        """One step: (P, N), of correct code standard normal, and `ahead` more where a row was drawn."""
        odds = self.ahead * seen - self.ahead**2 / 2
        never = math.log1p(-self.rate) if self.rate < 1 else -math.inf
        drawn = torch.logaddexp(torch.full_like(odds, never), odds + math.log(self.rate))
        self.told["likelihood"] += drawn.sum(dim=0)
        self.told["sum"] += (seen - self.rate * self.ahead / 2).sum(dim=0)
        self.told["sum over the plan"][self.known] += odds[:, self.known].sum(dim=0)


def _number(sigma: float) -> float | None:
    """JSON has no infinity: none at all."""
    return sigma if math.isfinite(sigma) else None


def _visible(shows: float) -> str:
    if math.isinf(shows):
        return f"too few to show anything; {NOISE!r} needs no games"
    return f"noise below about {1 / shows:.2f} of what is promised would have shown"


def _first(cohort: Cohort) -> Tensor:
    parameters: Any = cohort.encoder.parameters
    found: Tensor = parameters["1.weight"]
    return found


def _listening(method: Any, optimiser: Listening) -> Method:
    made: Method = method.model_copy(update={"optimiser": optimiser})
    return made
