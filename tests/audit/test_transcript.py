"""Listening changes nothing, hears everything, and finds what the ledger lacks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch

from colonnade.audit.transcript import record
from colonnade.audit.travelled import unlogged
from colonnade.methods import VIMADMM
from colonnade.privacy.gaussian import Gaussian, SeededNoise
from colonnade.privacy.ledger import Ledger
from colonnade.wire.messages import Purpose
from tests.audit.trainings import METHODS, digits, open_training, plain


@pytest.mark.parametrize("name", ["vimadmm", "vimadmm_j", "local_only"])
def test_a_listener_changes_no_bit_of_the_run(name: str) -> None:
    assert open_training(digits(), METHODS[name]).train().fingerprint() == plain(name).run.fingerprint()


def test_engines_are_recorded_alike() -> None:
    small: dict[str, Any] = {"rounds": 2, "schedule": {"batch": 64, "participation": 0.7}, "dtype": "float64"}
    loop, stacked = (
        record(open_training(digits(), METHODS["vimadmm"], engine=engine, **small)) for engine in ("loop", "stacked")
    )
    assert len(loop.recorded_rounds) == len(stacked.recorded_rounds)
    for one, other in zip(loop.recorded_rounds, stacked.recorded_rounds, strict=True):
        assert one.common.keys() == other.common.keys()
        assert one.own.keys() == other.own.keys()
        for heard, again in zip(one.uploads, other.uploads, strict=True):
            assert heard.uploaded.keys() == again.uploaded.keys()
            for party, arrays in heard.uploaded.items():
                torch.testing.assert_close(arrays["h"], again.uploaded[party]["h"])


def test_without_protection_the_clean_upload_is_what_was_received() -> None:
    transcript = plain("vimadmm")
    heard = [h for e in transcript.recorded_rounds for h in e.uploads if h.purpose is Purpose.TRAIN]
    assert set(transcript.clean) == set(digits().names)
    for party, uploads in transcript.clean.items():
        assert len(uploads) == len(heard) == 12
        for clean, got in zip(uploads, heard, strict=True):
            assert torch.equal(clean["h"], got.uploaded[party]["h"])


def test_with_noise_it_is_not() -> None:
    noise = Gaussian(1.0, 1.0, SeededNoise(0))
    transcript = record(open_training(digits(), VIMADMM(), noise, rounds=2))
    last = transcript.last_words()
    assert last is not None
    assert not torch.equal(transcript.clean["party_1"][-1]["h"], last.uploaded["party_1"]["h"])
    assert transcript.mechanism is noise
    assert {r.mechanism for r in transcript.run.ledger if r.owner == "party_1"} == {"gaussian"}


def test_every_message_of_a_run_is_in_its_ledger() -> None:
    for name in ("vimadmm", "vimadmm_j", "local_only"):
        assert plain(name).unlogged() == ()


def test_a_party_that_writes_elsewhere_is_named() -> None:
    trainer = open_training(digits(), METHODS["vimadmm_j"], rounds=2, engine="loop")
    side = next(side for side in trainer.engine.parties() if side.cohort.names == ("party_2",))
    side.gate.ledger = Ledger()
    assert set(record(trainer).unlogged()) == {"party_2"}


def test_the_bytes_are_what_counts_not_what_a_message_says_of_itself() -> None:
    @dataclass(frozen=True)
    class Lie:
        sender: str
        payload: bytes
        digest: str

    ledger = plain("vimadmm").run.ledger
    known = next(iter(ledger)).digest
    assert unlogged([Lie("party_1", b"never released", known)], ledger) == ("party_1",)
