"""Every mechanism of the registry: its ledger lines stay as they are, it has words, and accountants know or refuse it.

A new mechanism is picked up without being listed here.
"""

from __future__ import annotations

import importlib
import json
import math
import pkgutil
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import torch

import colonnade.privacy
from colonnade.errors import AccountingError
from colonnade.privacy import accounting, pbm, sampled
from colonnade.privacy.accounting import SENSITIVITY, Neighbours, mean_shift, rdp_epsilon
from colonnade.privacy.bounded import BoundedGaussian, BoundedGaussianEvent
from colonnade.privacy.declared import Declared, ModelNoiseEvent
from colonnade.privacy.events import EmptyEvent, Event, Hides, OtherEvent, Parameters, PlainEvent, Unit
from colonnade.privacy.gaussian import Gaussian, GaussianEvent, SeededNoise
from colonnade.privacy.labels.settings import LabelSettings, open_labels
from colonnade.privacy.ledger import Entry, Ledger
from colonnade.privacy.mechanism import Mechanism, Unchanged
from colonnade.privacy.pbm import Counted, PoissonBinomial, counted_epsilon
from colonnade.privacy.registry import EVENTS, kind_of, read_event
from colonnade.privacy.secure_sum.adders import simulated
from colonnade.privacy.secure_sum.event import SumEvent
from colonnade.privacy.settings import PrivacySettings, SumSettings
from colonnade.privacy.tally import tally
from colonnade.report import words
from colonnade.tasks.multiclass import Multiclass
from colonnade.wire.messages import COORDINATOR, Purpose
from tests.releases import released

WRITTEN = (Path(__file__).parents[1] / "golden" / "events.jsonl").read_text().splitlines()  # before events were classes
NOTE: Parameters = (("training_rows", 2.0),)
DELTA = 1e-5
ACCOUNTANTS: list[tuple[Any, Callable[[list[Entry]], object]]] = [
    (accounting, mean_shift), (pbm, Counted.of), (sampled, sampled.sampled_events),
]  # fmt: skip


def example(event: type[Event]) -> Event:
    """An event with something in every field."""
    values = {float: 0.25, int: 4, bool: True, float | None: 0.125, Unit: Unit.ROW}
    hints = get_type_hints(event)
    return event(**{f.name: values[hints[f.name]] for f in fields(event)})


PARTS = [example(event) for event in EVENTS.values()]
EVERY = [*PARTS, *(SumEvent(part, 3.0, 1.0, unit=part.unit) for part in PARTS), SumEvent(PlainEvent(), 3.0)]


def name_of(event: Event) -> str:
    return f"{event.name} of {len(event.parameters)}"


def release(event: Event, notes: Parameters = (), number: int = 7) -> Entry:
    return Entry("bank", COORDINATOR, event, Purpose.TRAIN, number, 20, "ab", notes)


def subclasses(of: type[Event]) -> set[type[Event]]:
    return {below for direct in of.__subclasses__() for below in {direct, *subclasses(direct)}}


def test_every_class_of_events_is_in_the_registry() -> None:
    for module in pkgutil.walk_packages(colonnade.privacy.__path__, "colonnade.privacy."):
        importlib.import_module(module.name)
    found = {event for event in subclasses(Event) if event.__module__.startswith("colonnade.")}
    assert found == {*EVENTS.values(), SumEvent, OtherEvent}
    assert len({kind.name for kind in EVENTS}) == len(EVENTS)


@pytest.mark.parametrize("event", EVERY, ids=name_of)
class TestEveryEvent:
    @pytest.mark.parametrize("notes", [(), NOTE], ids=["alone", "with a note"])
    def test_it_survives_the_ledger(self, event: Event, notes: Parameters) -> None:
        written = json.dumps(release(event, notes).to_json())
        again = Entry.from_json(json.loads(written))
        assert again == release(event, notes) and type(again.event) is type(event)
        assert json.dumps(again.to_json()) == written

    def test_it_can_be_found_by_its_name_alone(self, event: Event) -> None:
        assert kind_of(event.name) == event.kind
        assert event.kind.hides is not Hides.UNKNOWN

    def test_a_report_has_words_for_it(self, event: Event) -> None:
        said = words.noise({"mechanisms": [event.name], "releases": [["bank", "TRAIN", 3]]})
        assert len(event.kind.words.split()) > 1
        assert event.kind.words in said or (
            event.kind in (PlainEvent.kind, EmptyEvent.kind) and said.startswith("No noise was used")
        )

    def test_accountants_know_it_or_refuse_it_by_name(self, event: Event) -> None:
        supported = 0
        for accountant, account in ACCOUNTANTS:
            if accountant.supports(event):
                supported += 1
                assert account([release(event)])
                continue
            with pytest.raises(AccountingError, match=f"passed the mechanism '{event.name}', which no accountant here"):
                account([release(event)])
        assert supported <= 1
        told = tally([release(event)], "absent")[0]
        assert told.unknown == (() if supported else (event.name,))
        figure = math.isfinite(told.shift) or bool(told.counts) or bool(told.sampled)
        assert figure == (bool(supported) and not event.bare)

    def test_dp_accounting_composes_its_releases_to_the_same_bound(self, event: Event) -> None:
        from dp_accounting.rdp import RdpAccountant

        for neighbours, sensitivity in SENSITIVITY.items():
            theirs = RdpAccountant(orders=accounting.ORDERS)
            events = [event.to_dp_event(20, sensitivity) for _ in range(3)]
            if None in events or sampled.supports(event):  # of sampled steps: `test_sampled.py`
                assert not accounting.supports(event)
                continue
            for one in events:
                theirs.compose(one)
            relation: Neighbours = "absent" if neighbours == "absent" else "replaced"
            ours = mean_shift([release(event)] * 3, relation) if accounting.supports(event) else 0.0
            assert rdp_epsilon(ours, DELTA) == pytest.approx(theirs.get_epsilon(DELTA), rel=1e-6)


def mechanisms() -> list[Mechanism]:
    """One of every kind, with the parameters of the stored lines."""
    source = SeededNoise(3)
    alone: list[Mechanism] = [
        Unchanged(),
        Gaussian(0.005, 10.0, source),
        BoundedGaussian(1.0, 2.0, 5, source),
        PoissonBinomial(16, 0.05, 3, source),
        Declared(ModelNoiseEvent(0.5, simulated=True)),
    ]
    summed = PrivacySettings(mechanism="gaussian", clip=0.005, sigma=10.0, secure_sum=SumSettings(use=True))
    adders = simulated("run", ("a", "b", "c"), 3, summed)
    return [*alone, *(adders.mechanisms(one)[0] for one in alone)]


def labels(mechanism: str) -> Event:
    settings = LabelSettings(mechanism=mechanism, epsilon=2.0)
    return open_labels(torch.tensor([0, 1, 2]), Multiclass(3), torch.tensor([0, 1]), settings, 5).event


def test_ledgers_are_written_as_before_events_were_classes() -> None:
    told: list[tuple[Event, Parameters]] = [(mechanism.event, ()) for mechanism in mechanisms()]
    told += [(EmptyEvent(unit=Unit.LABEL), ()), (PlainEvent(unit=Unit.LABEL), ()), (PlainEvent(), NOTE)]
    told += [(labels("alibi"), ()), (labels("randomised_response"), ())]
    assert [json.dumps(release(event, notes).to_json()) for event, notes in told] == WRITTEN


@pytest.mark.parametrize("line", WRITTEN)
def test_ledgers_from_before_events_were_classes_are_read_and_written_again(line: str) -> None:
    read = Entry.from_json(json.loads(line))
    assert not isinstance(read.event, OtherEvent)
    assert json.dumps(read.to_json()) == line


def test_a_ledger_makes_equal_events_once() -> None:
    lines = [json.loads(line) for line in WRITTEN] * 2
    ledger = Ledger(Entry.from_json(line) for line in lines)
    assert len({id(r.event) for r in ledger}) <= len(WRITTEN)


@pytest.mark.parametrize(
    ("mechanism", "parameters"),
    [
        ("gaussian", {"clip": 1.0}),
        ("gaussian", {"clip": 1.0, "sigma": 0.0}),
        ("gaussian", {"clip": 1.0, "sigma": math.nan}),
        ("bounded gaussian", {"bound": 1.0, "width": 3.0}),
        ("poisson binomial", {"trials": 16.0, "theta": 0.5, "width": 3.0}),
        ("gaussian sum", {"clip": 1.0, "sigma": 5.0}),
        ("teleport sum", {"parties": 3.0}),
        ("teleport", {"sigma": 5.0}),
        ("none sum", {"parties": 3.0}),
        ("sum sum", {"parties": 3.0}),
    ],
)
def test_what_cannot_be_read_is_kept_and_refused(mechanism: str, parameters: dict[str, float]) -> None:
    one = released("bank", mechanism, **parameters)
    assert (one.mechanism, one.parameters) == (mechanism, tuple(parameters.items()))
    assert Ledger([one]).precision("bank") == 0
    assert tally([one], "absent")[0].unknown == (mechanism,)
    assert not one.event.bare, "nobody may take it for a release that makes no promise"


def test_a_sum_of_bounded_numbers_has_no_accountant() -> None:
    """The noise of a part is not that of the sum, and nothing here says what the sum costs."""
    part = BoundedGaussianEvent(1.0, 2.0, 5.0)
    assert part.precision(3) == 3 * 5 / 4
    assert SumEvent(part, 3.0, 1.0).precision(3) is None


def test_a_sum_of_counts_is_over_the_honest_parties() -> None:
    event, _ = read_event("poisson binomial sum", Unit.PARTY, tuple({
        "trials": 16.0, "theta": 0.05, "width": 3.0, "simulated": 0.0, "parties": 5.0, "colluders": 2.0
    }.items()))  # fmt: skip
    assert event.counted(10) == Counted(16, 0.05, among=3, cells=30)
    assert counted_epsilon([Counted(16, 0.05, 3, 30)], DELTA) > 0


def test_noise_from_before_grids_is_told_apart() -> None:
    now, before = GaussianEvent(1.0, 5.0, grid=0.5), GaussianEvent(1.0, 5.0)
    assert before.off_grid and not now.off_grid and now.before_grids == before
    assert not SumEvent(before, 3.0, 1.0).off_grid, "sums always were on a grid"


@pytest.mark.parametrize("name", ["teleport", "teleport sum", "none sum", "sum sum", "", "None"])
def test_a_name_that_nobody_stores_is_unknown(name: str) -> None:
    assert kind_of(name).name == name
    assert kind_of(name).hides is Hides.UNKNOWN
