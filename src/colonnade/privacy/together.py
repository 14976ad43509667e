"""What releases of several runs cost together: by unit, with the tightest accountant that knows all of them.

    only Gaussian noise             exact: mu = sqrt(sum mu_i^2) over all releases of all runs, solved for epsilon
    anything that dp-accounting     PLD; RDP, where PLD does not know an event
    has an event for (unit ROW)
    counts, alone or with noise     RDP: the divergences of each order add up, the best order is converted
    labels behind noise             pure: epsilons add up, and delta stays 0

Each of these composes adaptively: what a later run does may depend on what an earlier one gave away. Runs on one table
are not independent, so nothing tighter is claimed. A sum of the runs' own epsilons would hold, too, and be larger.
Units are not mixed: a figure of one unit says nothing of releases that hide only another.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from colonnade.extras import need
from colonnade.privacy.accounting import SENSITIVITY, Neighbours, check_delta, exact_epsilon, of_its_size
from colonnade.privacy.events import Event, Hides, Parameters, Unit
from colonnade.privacy.ledger import Entry
from colonnade.privacy.pbm import Counted, counted_epsilon
from colonnade.privacy.registry import read_event
from colonnade.wire.messages import COORDINATOR, Purpose

RELATIONS = {Unit.ROW: "one row added or removed", Unit.LABEL: "one row's whole label replaced"}
NOT_COVERED = "evaluation, predictions and releases that hide another unit are not covered"


class CostLine(TypedDict):
    """A cost as a line of a file; stored, so its keys never change."""

    unit: str
    mechanism: str
    parameters: Parameters
    rows: int
    times: int


@dataclass(frozen=True)
class Cost:
    """So many releases alike: what was done to each, and about how many rows each was."""

    event: Event
    rows: int
    times: int = 1

    def to_json(self) -> CostLine:
        """Plain values."""
        event = self.event
        facts = {"unit": event.unit.value, "mechanism": event.name, "parameters": event.parameters}
        return {**facts, "rows": self.rows, "times": self.times}  # type: ignore[typeddict-item]

    @classmethod
    def from_json(cls, line: Mapping[str, Any]) -> Cost:
        """The inverse of `to_json`; a mechanism that is not known here gives an event that no accountant takes."""
        stored = tuple((str(name), float(value)) for name, value in line["parameters"])
        return cls(read_event(line["mechanism"], Unit(line["unit"]), stored)[0], int(line["rows"]), int(line["times"]))


def costs_of(entries: Iterable[Entry], owner: str) -> list[Cost]:
    """What the training releases of an owner cost, alike ones together; label noise is drawn once, and counts once."""
    alike: Counter[tuple[Event, int]] = Counter()
    for entry in entries:
        if entry.owner != owner or entry.purpose is not Purpose.TRAIN or entry.event.kind.hides is Hides.NEEDLESS:
            continue
        if entry.event.pure is not None:
            alike[entry.event, 0] = 1
        else:
            alike[entry.event, entry.rows] += 1
    return [Cost(event, rows, times) for (event, rows), times in alike.items()]


def costs_by_owner(entries: Sequence[Entry]) -> dict[str, list[Cost]]:
    """The same of everybody; what the coordinator sends with plain labels promises nothing, and is left out."""
    owners = sorted({entry.owner for entry in entries})
    found = {owner: costs_of(entries, owner) for owner in owners}
    found[COORDINATOR] = [cost for cost in found.get(COORDINATOR, []) if not cost.event.bare]
    return {owner: costs for owner, costs in found.items() if costs}


@dataclass(frozen=True)
class Together:
    """What some releases cost together, in one unit."""

    unit: Unit
    epsilon: float  # infinite: there is no bound, and `why` says why
    delta: float
    neighbours: str
    accountant: str
    releases: int
    why: str = ""

    @property
    def facts(self) -> str:
        """What belongs to the figure; never print one without."""
        return (
            f"{self.accountant} accountant over {self.releases:,} releases, delta {self.delta:g}, unit "
            f"{self.unit.value}, neighbours: {self.neighbours}"
        )

    def __str__(self) -> str:
        if math.isinf(self.epsilon):
            return f"no bound at all (unit {self.unit.value}): {self.why}"
        little = ", a size that promises little" * bool(of_its_size(self.epsilon, self.delta))
        return f"epsilon {self.epsilon:.4g} ({self.facts}){little}"


def together(costs: Iterable[Cost], delta: float, neighbours: Neighbours = "absent") -> dict[Unit, Together]:
    """What all of it costs, by unit; units of which nothing was released are not in it.

    Args:
        costs: of all runs.
        delta: of the figure; labels need none.
        neighbours: of unit PARTY. Noise that was calibrated for the other relation counts for what it is.
    """
    check_delta(delta)
    by_unit: dict[Unit, list[Cost]] = {}
    for cost in costs:
        if cost.times and cost.event.kind.hides is not Hides.NEEDLESS:
            by_unit.setdefault(cost.event.unit, []).append(cost)
    return {unit: _of_unit(unit, by_unit[unit], delta, neighbours) for unit in Unit if unit in by_unit}


def _of_unit(unit: Unit, costs: list[Cost], delta: float, neighbours: Neighbours) -> Together:
    relation = RELATIONS.get(unit, neighbours)
    count = sum(cost.times * cost.event.releases for cost in costs)
    if bare := sum(cost.times for cost in costs if cost.event.bare):
        return Together(unit, math.inf, delta, relation, "no", count, f"{bare:,} releases left without noise")
    scale = SENSITIVITY[neighbours] if unit is Unit.PARTY else 1.0
    epsilon, accountant = _figure(costs, delta, scale)
    if accountant:
        return Together(unit, epsilon, 0.0 if accountant == PURE else delta, relation, accountant, count)
    names = ", ".join(sorted({repr(cost.event.name) for cost in costs}))
    return Together(unit, math.inf, delta, relation, "no", count, f"no accountant composes releases of {names}")


PURE = "pure"


def _figure(costs: Sequence[Cost], delta: float, scale: float) -> tuple[float, str]:
    """The epsilon and its accountant; no name, where none knows all of it."""
    pure = [(cost.event.pure, cost.times) for cost in costs]
    if all(epsilon is not None for epsilon, _ in pure):
        return sum((epsilon or 0.0) * times for epsilon, times in pure), PURE
    counts = [(cost.event.counted(cost.rows), cost) for cost in costs]
    noised = [cost for part, cost in counts if part is None]
    precisions = [cost.event.precision(cost.rows) for cost in noised]
    if all(precision is not None for precision in precisions):
        total = sum((p or 0.0) * cost.times for p, cost in zip(precisions, noised, strict=True))
        shift = scale * math.sqrt(total)
        if len(noised) == len(costs):
            return exact_epsilon(shift, delta), "exact"
        parts = [Counted(p.trials, p.theta, p.among, p.cells * cost.times) for p, cost in counts if p is not None]
        return counted_epsilon(parts, delta, shift), "RDP"
    return _composed(costs, delta, scale) if len(noised) == len(costs) else (math.inf, "")


def _composed(costs: Sequence[Cost], delta: float, scale: float) -> tuple[float, str]:
    """By dp-accounting, of events that it knows."""
    events = [(cost.event.to_dp_event(cost.rows, scale), cost.times) for cost in costs]
    if any(event is None for event, _ in events):
        return math.inf, ""
    relation = need("dp_accounting", extra="privacy", purpose="an epsilon").NeighboringRelation.ADD_OR_REMOVE_ONE
    for name, home, kind in (("PLD", "pld", "PLDAccountant"), ("RDP", "rdp", "RdpAccountant")):
        module = need(f"dp_accounting.{home}", extra="privacy", purpose="an epsilon")
        accountant = getattr(module, kind)(neighboring_relation=relation)
        if all(accountant.supports(event) for event, _ in events):
            for event, times in events:
                accountant.compose(event, times)
            return float(accountant.get_epsilon(delta)), name
    return math.inf, ""
