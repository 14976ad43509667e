"""What every registered method owes to privacy: it passes the gate, says what it declared, and tells who sees labels.

Whether labels reach the downlink is tried out, not only declared: labels are changed, and the bytes that go down
are compared. A later method is picked up without being listed here.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from colonnade.config import build
from colonnade.errors import GateError
from colonnade.federation import Federation
from colonnade.fit import Trainer
from colonnade.methods import VIMADMM
from colonnade.methods.base import Method, Reply, State, Uploads
from colonnade.privacy.events import LabelExposure
from colonnade.privacy.labels import Labels
from colonnade.privacy.labels.settings import open_labels
from colonnade.privacy.settings import PrivacySettings
from colonnade.randomness import key
from colonnade.run import Training
from colonnade.schedule import RoundPlan
from colonnade.wire.codec import decode
from colonnade.wire.messages import Purpose
from tests.contracts.registry import EVERY, covering, fitting, make
from tests.federations import small
from tests.trainers import ENGINES, TINY, TrainedRound, rounds_of

DOCS = Path(__file__).parents[2] / "docs" / "methods"
CLIP, SIGMA = 1e-3, 5.0
DP = {"mechanism": "gaussian", "clip": CLIP, "sigma": SIGMA, "evaluation": "simulated"}
LABEL_DP = {"labels": {"mechanism": "alibi", "epsilon": 0.3, "uniform_rounds": 1}}
BATCH = {"batch": 20}


def opened(method: Any, federation: Federation, privacy: dict[str, Any], **training: Any) -> Trainer:
    """A trainer whose run id is always the same, so that equal runs send equal bytes."""
    settings = build(Training, {"dtype": "float64", "schedule": BATCH, "rounds": 3, **training}, "training")
    about = {"id": "test", "ways": (), "config": None}
    promise = build(PrivacySettings, privacy, "privacy")
    return Trainer.open(federation, method, settings, TINY, None, None, about, promise)


@pytest.mark.parametrize(("name", "engine"), covering(ENGINES))
class TestTheGate:
    def test_uploads_are_noised_recorded_and_as_declared(self, name: str, engine: str) -> None:
        method = make(name, local_steps=1, noise=False)  # not what a method brings itself: this is about the gate's
        trainer = opened(method, fitting(name, small()), DP, engine=engine, evaluate_every=2)
        if sends_whole_numbers(trainer, method):
            assert_refused_before_anything_left(trainer)
            return
        trained = 0
        for one_round in rounds_of(trainer):
            for payload, purpose, rows in uploads(one_round):
                header, arrays = decode(payload)
                declared = declaration(trainer, method, str(header["sender"]))
                assert {n: tuple(a.shape) for n, a in arrays.items()} == {n: a.shape(rows) for n, a in declared.items()}
                if purpose is Purpose.TRAIN:
                    trained += 1
                    assert noise_of(arrays) == pytest.approx(SIGMA * CLIP, rel=0.5), "clipped to C, then noised"
        assert (trained == 0) == (method.needs_uploads == "nothing")
        uploaded = [r for r in trainer.ledger if r.owner in trainer.coordinator.schema.parties]
        assert {r.mechanism for r in uploaded if r.purpose is Purpose.TRAIN} <= {"gaussian"}
        assert sum(r.purpose is Purpose.TRAIN for r in uploaded) == trained

    def test_every_message_stands_in_the_ledger(self, name: str, engine: str) -> None:
        trainer = opened(make(name, local_steps=1), fitting(name, small()), {}, engine=engine, evaluate_every=2)
        sent = [hashlib.sha256(p).hexdigest() for one_round in rounds_of(trainer) for p in one_round.payloads]
        assert sorted(sent) == sorted(release.digest for release in trainer.ledger)


def sends_whole_numbers(trainer: Trainer, method: Method) -> bool:
    schema = trainer.coordinator.schema
    declared = [array for group in schema.groups for array in method.upload_arrays(schema, group).values()]
    return method.needs_uploads != "nothing" and any(a.dtype and not a.dtype.is_floating_point for a in declared)


def assert_refused_before_anything_left(trainer: Trainer) -> None:
    """Codes cannot take Gaussian noise: the gate says so, and no upload is recorded."""
    with pytest.raises(GateError, match="whole numbers"):
        list(rounds_of(trainer))
    assert not [r for r in trainer.ledger if r.owner in trainer.coordinator.schema.parties]


def uploads(one_round: TrainedRound) -> Iterator[tuple[bytes, Purpose, int]]:
    """Every upload of a round, with what it was asked for."""
    for ask, releases in zip(one_round.request.queries, one_round.collected.releases, strict=True):
        yield from ((released.payload, ask.purpose, len(ask.rows)) for released in releases)


def declaration(trainer: Trainer, method: Method, party: str) -> Any:
    schema = trainer.coordinator.schema
    return method.upload_arrays(schema, schema.groups[schema.position(party)[0]])


def noise_of(arrays: dict[str, Tensor]) -> float:
    """The root mean square of all numbers; what a clipped upload adds to it is small beside the noise."""
    cells = torch.cat([a.double().flatten() for a in arrays.values() if a.is_floating_point()])
    return float(cells.square().mean().sqrt())


class TestWhoSeesLabels:
    @pytest.mark.parametrize("name", EVERY)
    def test_a_run_records_the_exposure(self, name: str) -> None:
        """EPS behind a label mechanism, else the method's own; what never goes down needs no mechanism."""
        method = make(name, local_steps=1)
        held = fitting(name, small())
        plain, noisy = (opened(method, held, privacy, rounds=1).train() for privacy in ({}, LABEL_DP))
        assert plain.label_exposure is method.exposes
        assert plain.record()["label_exposure"] == method.exposes.value
        wanted = LabelExposure.NONE if method.exposes is LabelExposure.NONE else LabelExposure.EPS
        assert noisy.record()["label_exposure"] == wanted.value

    @pytest.mark.parametrize("name", EVERY)
    def test_its_page_says_the_same(self, name: str) -> None:
        file = DOCS / f"{name}.md"
        page = " ".join(file.read_text(encoding="utf-8").split()) if file.is_file() else ""
        _, heading, section = page.partition("## Who sees labels")
        assert heading, f"docs/methods/{name}.md has no section 'Who sees labels'"
        uploaded = re.findall(r"[Ll]abel exposure(?: is|:) \**(NONE|EPS|FULL)", section.partition(" ## ")[0])
        assert uploaded, f"docs/methods/{name}.md does not say 'Label exposure is {make(name).exposes.value}'"
        assert uploaded[0] == make(name).exposes.value

    @pytest.mark.parametrize(("name", "engine"), covering(ENGINES))
    def test_what_it_declares_is_what_goes_down(self, name: str, engine: str) -> None:
        """Other labels: what goes down stays as it is, to the last byte, if and only if the method exposes NONE."""
        method, federation = make(name, local_steps=1), fitting(name, small())
        other = replace(federation, labels=shifted(federation))
        same = downlink(method, federation, {}, engine) == downlink(method, other, {}, engine)
        assert same == (method.exposes is LabelExposure.NONE)

    @pytest.mark.parametrize(("name", "engine"), covering(ENGINES))
    def test_behind_a_mechanism_only_protected_labels_go_down(self, name: str, engine: str) -> None:
        """Labels that the noise makes equal send equal bytes, validation scores and best rounds included."""
        method, federation = make(name, local_steps=1), fitting(name, small())
        equal, different = twins(federation)
        first, again, other = (
            downlink(method, f, LABEL_DP, engine, evaluate_every=1) for f in (federation, equal, different)
        )
        assert first == again
        assert (first == other) == (method.exposes is LabelExposure.NONE)


def downlink(
    method: Any, federation: Federation, privacy: dict[str, Any], engine: str, evaluate_every: int = 0
) -> list[bytes]:
    """Every byte that parties receive in a short training.

    Without evaluations on validation rows by default: which round is best goes down too, and plain labels decide it.
    """
    trainer = opened(method, federation, privacy, engine=engine, evaluate_every=evaluate_every)
    sealed = ([e.down.everyone, *e.down.own.values()] for e in rounds_of(trainer))
    return [released.payload for messages in sealed for released in messages]


def shifted(federation: Federation) -> Tensor:
    """Every label another one."""
    return (federation.labels + 1) % federation.outputs


def twins(federation: Federation) -> tuple[Federation, Federation]:
    """Two federations with other labels: in one the noise makes them equal to the first, in the other it does not."""
    y, other = federation.labels, shifted(federation)
    guarded = torch.cat([federation.split.train, federation.split.validation]).unique()
    hidden = (protected(federation, y) == protected(federation, other)).all(dim=1)  # by guarded row
    equal, different = y.clone(), y.clone()
    equal[guarded[hidden]] = other[guarded[hidden]]
    different[guarded[~hidden]] = other[guarded[~hidden]]
    assert hidden.sum() >= 20 and (~hidden).sum() >= 5  # both have something to show
    assert torch.equal(protected(federation, equal), protected(federation, y))
    return replace(federation, labels=equal), replace(federation, labels=different)


def protected(federation: Federation, labels: Tensor) -> Tensor:
    """What is left of labels behind the mechanism of `LABEL_DP`, as a run with seed 0 draws it."""
    settings = build(PrivacySettings, LABEL_DP, "privacy").labels
    split, noise = federation.split, key(0, "label noise")
    found = open_labels(labels, federation.task, split.train, settings, noise, split.validation)
    return found.held_out(torch.cat([split.train, split.validation]).unique())


class Quiet(VIMADMM):
    """Sends heads that labels never touched, and nothing else of use."""

    exposes: ClassVar[LabelExposure] = LabelExposure.NONE

    def coordinate(self, state: State, plan: RoundPlan, uploads: Uploads, labels: Labels) -> Reply:
        made = super().coordinate(dict(state), plan, uploads, labels)
        nothing = {name: torch.zeros_like(value) for name, value in made.common.items()}
        return Reply(nothing, tuple({k: torch.ones_like(v) for k, v in part.items()} for part in made.own))


class Careless(Quiet):
    """Declares the same, and looks at plain labels behind the mechanism's back."""

    truth: ClassVar[Tensor]

    def coordinate(self, state: State, plan: RoundPlan, uploads: Uploads, labels: Labels) -> Reply:
        made = super().coordinate(state, plan, uploads, labels)
        leak = {name: value + self.truth[plan.rows][:, None] for name, value in made.common.items()}
        return Reply(leak, made.own)


def test_the_comparison_tells_quiet_methods_from_careless_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """So the tests above can fail, for declarations of both kinds."""
    federation = small()
    equal, _ = twins(federation)
    other = replace(federation, labels=shifted(federation))
    assert downlink(Quiet(local_steps=1), federation, {}, "loop") == downlink(Quiet(local_steps=1), other, {}, "loop")
    sent = []
    for held in (federation, equal):
        monkeypatch.setattr(Careless, "truth", held.labels, raising=False)
        sent.append(downlink(Careless(local_steps=1), held, LABEL_DP, "loop"))
    assert sent[0] != sent[1]
