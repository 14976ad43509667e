"""What several runs cost together: by unit, never less than one of them, and as dp-accounting composes it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from colonnade.privacy.accounting import exact_epsilon
from colonnade.privacy.bounded import BoundedGaussianEvent
from colonnade.privacy.events import EmptyEvent, Event, Hides, Kind, OtherEvent, PlainEvent, Unit
from colonnade.privacy.gaussian import GaussianEvent
from colonnade.privacy.labels.alibi import AlibiEvent
from colonnade.privacy.ledger import Entry
from colonnade.privacy.pbm import PoissonBinomialEvent, counted_epsilon
from colonnade.privacy.secure_sum.event import SumEvent
from colonnade.privacy.together import Cost, costs_by_owner, costs_of, together
from colonnade.wire.messages import COORDINATOR, Purpose

NOISE, COUNTS = GaussianEvent(1.0, 30.0), PoissonBinomialEvent(8, 0.01, 2)
LABELS = AlibiEvent(3.0, 1.0, 2.0, 0.0)


@dataclass(frozen=True)
class Sampled(Event):
    """Stands for local training with unit ROW: one event for so many sampled steps."""

    kind: ClassVar[Kind] = Kind("sampled", "for this test", Hides.COLUMNS)
    rate: float = 0.01
    sigma: float = 1.0
    steps: int = 100

    def to_dp_event(self, rows: int, sensitivity: float = 1.0) -> Any:
        import dp_accounting as dp

        step = dp.PoissonSampledDpEvent(self.rate, dp.GaussianDpEvent(self.sigma))
        return dp.SelfComposedDpEvent(step, self.steps)


def figure(*costs: Cost, unit: Unit = Unit.PARTY, **options: Any) -> float:
    return together(costs, 1e-5, **options)[unit].epsilon


def test_gaussian_releases_of_several_runs_are_one_gaussian() -> None:
    runs = [Cost(NOISE, 100, 53), Cost(GaussianEvent(0.1, 10.0), 50, 20), Cost(BoundedGaussianEvent(1.0, 9.0, 2.0), 3)]
    mu = math.sqrt(53 / 30**2 + 20 / 10**2 + 6 / 81)
    found = together(runs, 1e-5)[Unit.PARTY]
    assert found.epsilon == pytest.approx(exact_epsilon(mu, 1e-5)) and found.accountant == "exact"
    assert found.releases == 74
    assert figure(*runs, neighbours="replaced") == pytest.approx(exact_epsilon(2 * mu, 1e-5))
    each = [figure(run) for run in runs]
    assert max(each) < found.epsilon < sum(each)  # more than one run, less than their epsilons added up


def test_a_sum_costs_what_the_noise_of_the_sum_costs() -> None:
    assert figure(Cost(SumEvent(NOISE, 4.0, 1.0), 10, 53)) == pytest.approx(figure(Cost(NOISE, 10, 53)))


def test_counts_and_noise_together_are_within_both_added_up_and_above_each() -> None:
    runs = [Cost(COUNTS, 5, 10), Cost(NOISE, 5, 10)]
    found = together(runs, 1e-5)[Unit.PARTY]
    assert found.accountant == "RDP"
    alone = counted_epsilon([COUNTS.counted(50)], 1e-5)
    assert figure(runs[0]) == pytest.approx(alone)
    assert max(alone, figure(runs[1])) < found.epsilon < alone + counted_epsilon([], 1e-5, math.sqrt(10) / 30)


def test_events_of_dp_accounting_compose_with_noise_in_their_unit() -> None:
    import dp_accounting as dp

    local, noise = Sampled(unit=Unit.ROW), GaussianEvent(1.0, 5.0, unit=Unit.ROW)
    found = together([Cost(local, 1, 2), Cost(noise, 1, 3)], 1e-5)[Unit.ROW]
    accountant = dp.pld.PLDAccountant(dp.NeighboringRelation.ADD_OR_REMOVE_ONE)
    accountant.compose(local.to_dp_event(1), 2).compose(dp.GaussianDpEvent(5.0), 3)
    assert found.accountant == "PLD" and found.epsilon == pytest.approx(accountant.get_epsilon(1e-5))
    assert "one row added or removed" in str(found)


def test_units_are_counted_apart() -> None:
    found = together([Cost(NOISE, 1, 53), Cost(Sampled(unit=Unit.ROW), 1), Cost(LABELS, 0, 2)], 1e-5)
    assert list(found) == [Unit.PARTY, Unit.ROW, Unit.LABEL]
    assert found[Unit.PARTY].epsilon == pytest.approx(0.897, abs=1e-3)
    assert (found[Unit.LABEL].epsilon, found[Unit.LABEL].delta) == (6.0, 0.0)  # pure: they add up


@pytest.mark.parametrize("event", [PlainEvent(), OtherEvent("mine"), SumEvent(PlainEvent(), 3.0)])
def test_what_has_no_bound_leaves_none(event: Event) -> None:
    found = together([Cost(NOISE, 1, 53), Cost(event, 1)], 1e-5)[Unit.PARTY]
    assert math.isinf(found.epsilon) and str(found).startswith("no bound at all (unit PARTY): ")


def test_nothing_released_costs_nothing() -> None:
    assert together([], 1e-5) == {} and together([Cost(EmptyEvent(), 1), Cost(NOISE, 1, 0)], 1e-5) == {}


def test_what_a_ledger_holds_is_counted_once() -> None:
    def entry(owner: str, event: Event, number: int, purpose: Purpose = Purpose.TRAIN) -> Entry:
        return Entry(owner, "x", event, purpose, number, 7, f"{owner}{number}")

    entries = [entry("bank", NOISE, n) for n in range(3)] + [entry("bank", PlainEvent(), 9, Purpose.PREDICT)]
    entries += [entry(COORDINATOR, LABELS, n) for n in range(3)] + [entry(COORDINATOR, PlainEvent(), 4)]
    assert costs_of(entries, "bank") == [Cost(NOISE, 7, 3)]
    assert costs_by_owner(entries) == {"bank": [Cost(NOISE, 7, 3)], COORDINATOR: [Cost(LABELS, 0, 1)]}


@pytest.mark.parametrize("event", [NOISE, SumEvent(NOISE, 4.0, 1.0), COUNTS, LABELS, PlainEvent(), OtherEvent("mine")])
def test_a_cost_survives_its_file(event: Event) -> None:
    cost = Cost(event, 5, 6)
    assert Cost.from_json(cost.to_json()) == cost
