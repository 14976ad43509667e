"""Bugs that go by the name of a party or the number of a round: every one shows, correct code is left alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from colonnade.audit.own_rounds import MOST_DRAWS, OWN_ROUNDS, alike, rounds_of
from colonnade.audit.shapes import Layout
from colonnade.audit.target import Target
from colonnade.privacy.around import Around
from colonnade.privacy.bounded import BoundedGaussian
from colonnade.privacy.gaussian import Gaussian, SeededNoise, SystemNoise
from colonnade.privacy.grid import step_of
from colonnade.privacy.mechanism import Mechanism
from colonnade.privacy.pbm import PoissonBinomial
from colonnade.privacy.settings import PrivacySettings, SumSettings
from colonnade.wire.numbers import Numbers

Arrays = Mapping[str, Tensor]
PARTIES, ROUNDS, WIDTH = ("bank", "shop", "telco", "clinic"), 12, 6
Change = Callable[[Mechanism, Arrays, Sequence[str], int, str], Arrays]


@dataclass
class Wrong(Around):
    """A mechanism that is wrong for some parties and rounds."""

    change: Change

    def __call__(self, upload: Arrays, parties: Sequence[str], number: int, what: str) -> Arrays:
        return self.change(self.inner, upload, parties, number, what)


def _bare_first(inner: Mechanism, upload: Arrays, parties: Sequence[str], number: int, what: str) -> Arrays:
    grid = 2.0**-20
    if number > 1:
        return inner(upload, parties, number, what)
    return {n: ((v.double() * 1e-12 / grid).trunc() * grid).to(v) for n, v in upload.items()}


def _silent_party(inner: Mechanism, upload: Arrays, parties: Sequence[str], number: int, what: str) -> Arrays:
    out = dict(inner(upload, parties, number, what))
    for value in out.values():
        value[[place for place, party in enumerate(parties) if party == "clinic"]] = 0.0
    return out


def _two_alike(inner: Mechanism, upload: Arrays, parties: Sequence[str], number: int, what: str) -> Arrays:
    return inner(upload, ["shop" if party == "clinic" else party for party in parties], number, what)


def _old_noise(inner: Mechanism, upload: Arrays, parties: Sequence[str], number: int, what: str) -> Arrays:
    return inner(upload, parties, 2 if number == 9 else number, what)


def _opposite(inner: Mechanism, upload: Arrays, parties: Sequence[str], number: int, what: str) -> Arrays:
    if number != 9:
        return inner(upload, parties, number, what)
    return {n: -v for n, v in inner({n: -v for n, v in upload.items()}, parties, 2, what).items()}


def _long_once(inner: Mechanism, upload: Arrays, parties: Sequence[str], number: int, what: str) -> Arrays:
    wider = Gaussian(4.0, 0.5, SeededNoise(3)) if number == 3 else inner  # the same noise, four times as long
    return wider(upload, parties, number, what)


def _clipped_together(inner: Mechanism, upload: Arrays, parties: Sequence[str], number: int, what: str) -> Arrays:
    norms = torch.stack([value.double().flatten(1).norm(dim=1) for value in upload.values()]).norm(dim=0)
    factor, grid = (1 / norms.mean().clamp(min=1e-30)).clamp(max=1.0), step_of(2.0)
    noise = inner({n: torch.zeros_like(v, dtype=torch.float64) for n, v in upload.items()}, parties, number, what)
    return {n: ((v.double() * factor / grid).trunc() * grid + noise[n]).to(v) for n, v in upload.items()}


BUGS: dict[str, Change] = {
    "the first round has no noise": _bare_first,
    "one party has no noise": _silent_party,
    "two parties share their noise": _two_alike,
    "a round has the noise of an earlier one": _old_noise,
    "a round takes away the noise of an earlier one": _opposite,
    "uploads of one round are too long": _long_once,
    "all parties are clipped by one factor": _clipped_together,
}


def target(mechanism: Mechanism, senders: tuple[str, ...] = PARTIES) -> Target:
    numbers = Numbers(dtype=torch.float32)
    return Target(mechanism, Layout.of((200, WIDTH)), numbers, ROUNDS, senders=senders, rounds=ROUNDS)


def failed(target: Target) -> list[str]:
    return [check.name for check in target.at_full_shape(1) if check.failed]


@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_of_one_party_or_round_is_seen_there_and_nowhere_else(bug: str) -> None:
    planted = Wrong(Gaussian(1.0, 2.0, SeededNoise(3)), BUGS[bug])
    assert failed(target(planted)) == [OWN_ROUNDS]
    assert failed(target(planted, senders=())) == []


MECHANISMS: dict[str, Mechanism] = {
    "clipped": Gaussian(1.0, 2.0, SeededNoise(4)),
    "weak": Gaussian(1.0, 0.01, SeededNoise(4)),
    "of the system": Gaussian(1.0, 2.0, SystemNoise()),
    "bounded": BoundedGaussian(1.0, 3.0, WIDTH, SeededNoise(4)),
    "counts": PoissonBinomial(16, 0.05, WIDTH, SeededNoise(4)),
}


@pytest.mark.parametrize("name", MECHANISMS)
def test_correct_code_is_left_alone(name: str) -> None:
    found = [check for check in target(MECHANISMS[name]).at_full_shape(1) if check.name == OWN_ROUNDS]
    assert [(check.failed, check.facts) for check in found] == [(False, {"parties": 4, "rounds": 12})]


@pytest.mark.parametrize("bug", ["one party has no noise", "two parties share their noise"])
def test_counts_and_bounded_numbers_too(bug: str) -> None:
    for name in ("counts", "bounded"):
        assert OWN_ROUNDS in failed(target(Wrong(MECHANISMS[name], BUGS[bug])))


def test_of_a_sum_every_partys_share() -> None:
    from colonnade.privacy.secure_sum.adders import simulated

    privacy = PrivacySettings(mechanism="gaussian", clip=1.0, sigma=2.0, secure_sum=SumSettings(use=True))
    adders = simulated("audit", PARTIES, 3, privacy)
    mechanism = privacy.protection(ROUNDS, SeededNoise(3), adders).training
    numbers = Numbers(dtype=torch.float32)
    layout, opener = Layout.of((200, WIDTH)), adders.opener(ROUNDS)
    summed = Target(mechanism, layout, numbers, ROUNDS, parties=PARTIES, opener=opener, senders=PARTIES, rounds=ROUNDS)
    assert [check.name for check in summed.at_full_shape(1)][-1] == OWN_ROUNDS
    assert failed(summed) == []


def test_rounds_that_are_played_begin_with_the_first_and_end_with_the_last() -> None:
    assert rounds_of(4, 10) == [1, 2, 3, 4]
    assert rounds_of(1000, 6)[:3] == [1, 2, 3]
    assert rounds_of(1000, 6)[-1] == 1000
    assert len(rounds_of(1000, 6)) == 6
    assert rounds_of(9, 2) == [1, 9]
    assert len(rounds_of(10**6, MOST_DRAWS)) == MOST_DRAWS


def test_nothing_to_compare_shows_nothing() -> None:
    assert alike(torch.ones(1, 5)) == 1.0
    assert alike(torch.zeros(3, 5)) == 1.0
