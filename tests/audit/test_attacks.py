"""Each attack succeeds on a training without protection, and falls to chance where there is nothing to find."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from colonnade.audit.attacks import attack
from colonnade.audit.completion import complete_model, embeddings
from colonnade.audit.labels import infer_labels, majority, visits
from colonnade.audit.membership import auc, membership_of_a_party, membership_of_a_row, row_losses
from colonnade.audit.reconstruction import decode_columns, reconstruct
from colonnade.audit.table import HEADINGS, Finding, table
from colonnade.audit.transcript import record
from colonnade.methods import VIMADMM, VIMADMMJ
from colonnade.methods.centralized import Centralized
from colonnade.privacy.gaussian import Gaussian, SeededNoise
from colonnade.privacy.labels.settings import LabelSettings
from colonnade.privacy.mechanism import Unchanged
from colonnade.privacy.settings import PrivacySettings
from colonnade.tasks import TASKS
from tests.audit.trainings import METHODS, digits, open_training, plain, shuffled
from tests.federations import small


class TestLabels:
    @pytest.mark.parametrize("name", ["vimadmm", "vimadmm_j", "local_only"])
    def test_all_of_them(self, name: str) -> None:
        found = infer_labels(plain(name))
        assert found is not None
        assert (found.score, found.rows) == (1.0, len(digits().split.train))
        assert 0.09 < found.chance < 0.12

    @pytest.mark.parametrize("name", ["vimadmm", "vimadmm_j"])
    def test_the_decoded_dual_is_the_coordinator_s_own(self, name: str) -> None:
        trainer = open_training(digits(), METHODS[name], dtype="float64", rounds=8)
        transcript = record(trainer)
        decoded = torch.zeros_like(trainer.coordinator.state["dual"])
        for visit in visits(transcript):
            assert visit.exact
            decoded[visit.rows] = visit.dual
        torch.testing.assert_close(decoded, trainer.coordinator.state["dual"], rtol=0, atol=1e-9)

    @pytest.mark.parametrize("name", ["after, sgd", "after, joint"])
    def test_most_of_them_with_the_printed_residual(self, name: str) -> None:
        found = infer_labels(plain(name))
        assert found is not None
        assert found.score > 0.9

    @pytest.mark.parametrize("method", [VIMADMM(residual="before"), VIMADMMJ(smoothing=0.1)], ids=["split", "joint"])
    @pytest.mark.parametrize("task", ["multiclass", "binary", "multilabel"])
    def test_other_tasks_and_silent_parties(self, method: VIMADMM | VIMADMMJ, task: str) -> None:
        schedule = {"batch": 20, "participation": 0.5}
        transcript = record(open_training(small(task=task), method, schedule=schedule, rounds=9))
        found = infer_labels(transcript)
        assert found is not None
        assert found.score == 1.0

    @pytest.mark.parametrize(("sigma", "rounds", "least"), [(3.0, 5, 1.0), (50.0, 15, 0.99)])
    def test_noise_on_the_uplink_does_not_help_them(self, sigma: float, rounds: int, least: float) -> None:
        """Noise of 50 C makes the model certain of random classes, sometimes of the right one; not in three visits."""
        noise = Gaussian(1.0, sigma, SeededNoise(0))
        found = infer_labels(record(open_training(digits(), VIMADMMJ(), noise, rounds=rounds)))
        assert found is not None
        assert found.score >= least

    @pytest.mark.parametrize("name", ["vimadmm_j", "local_only"])
    @pytest.mark.parametrize("mechanism", ["alibi", "randomised_response"])
    def test_label_noise_does(self, name: str, mechanism: Literal["alibi", "randomised_response"]) -> None:
        privacy = PrivacySettings(labels=LabelSettings(mechanism=mechanism, epsilon=0.05))
        found = infer_labels(record(open_training(digits(), METHODS[name], privacy=privacy, rounds=5)))
        assert found is not None
        assert found.score < found.chance + 0.06

    def test_a_downlink_of_noise_gives_chance(self) -> None:
        generator = torch.Generator().manual_seed(0)
        heard = plain("vimadmm")
        noise = tuple(
            replace(e, common={n: torch.randn(v.shape, generator=generator) for n, v in e.common.items()})
            for e in heard.recorded_rounds
        )
        found = infer_labels(replace(heard, recorded_rounds=noise))
        assert found is not None
        assert found.score < found.chance + 0.05

    def test_nothing_to_read(self) -> None:
        assert infer_labels(record(open_training(small(task="regression"), VIMADMMJ(), rounds=2))) is None


class TestCompletion:
    @pytest.mark.parametrize(("name", "least"), [("vimadmm", 0.6), ("vimadmm_j", 0.4)])
    def test_forty_labels_are_enough_for_most_rows(self, name: str, least: float) -> None:
        found = complete_model(plain(name), "party_2")
        assert found is not None
        assert found.score > least
        assert found.rows == digits().rows - 40

    def test_more_labels_help(self) -> None:
        few, many = (complete_model(plain("vimadmm"), "party_2", labelled=n) for n in (20, 400))
        assert few is not None
        assert many is not None
        assert many.score > few.score + 0.05

    def test_columns_of_other_rows_give_chance(self) -> None:
        found = complete_model(record(open_training(shuffled(digits()), VIMADMMJ.paper(), rounds=3)), "party_2")
        assert found is not None
        assert abs(found.score - found.chance) < 0.05

    def test_a_label_that_nobody_has_seen(self) -> None:
        """All known labels alike: the head says what it has seen, and does not fall over."""
        federation = replace(small(task="binary"), labels=torch.zeros(90, 1, dtype=torch.float64))
        found = complete_model(record(open_training(federation, VIMADMMJ(), rounds=1)), "party_1", labelled=10)
        assert found is not None
        assert (found.score, found.chance) == (1.0, 1.0)

    def test_embeddings_are_what_the_party_itself_would_compute(self) -> None:
        transcript, before = plain("vimadmm"), len(plain("vimadmm").run.ledger)
        values = embeddings(transcript, "party_3")
        assert values.shape == (digits().rows, 16)
        assert len(transcript.run.ledger) == before  # it looks at its own: nothing is released


class TestReconstruction:
    @pytest.mark.parametrize(("name", "least"), [("vimadmm", 0.6), ("vimadmm_j", 0.4)])
    def test_columns_are_read_off_uploads(self, name: str, least: float) -> None:
        found = reconstruct(plain(name), "party_2")
        assert found is not None
        assert found.score > least

    def test_noise_hides_them(self) -> None:
        noise = Gaussian(1.0, 30.0, SeededNoise(0))
        found = reconstruct(record(open_training(digits(), METHODS["vimadmm"], noise, rounds=2)), "party_2")
        assert found is not None
        assert abs(found.score) < 0.05

    def test_a_linear_upload_gives_everything_and_an_unrelated_one_nothing(self) -> None:
        generator = torch.Generator().manual_seed(0)
        truth, noise = (torch.randn(300, 4, generator=generator, dtype=torch.float64) for _ in range(2))
        mixing = torch.randn(4, 6, generator=generator, dtype=torch.float64)
        known, others = torch.arange(150), torch.arange(150, 300)
        assert decode_columns(truth @ mixing + 3, truth, known, others) > 0.99
        assert abs(decode_columns(noise, truth, known, others)) < 0.05

    def test_nobody_uploaded(self) -> None:
        assert reconstruct(plain("local_only"), "party_2") is None


class TestMembership:
    def test_an_overfitted_model_knows_its_rows(self) -> None:
        federation = shuffled(small(rows=150))  # nothing to learn but the rows themselves
        run = open_training(federation, METHODS["local_only"], rounds=150, dtype="float64").train()
        before = len(run.ledger)
        found = membership_of_a_row(run, federation)
        assert found is not None
        assert found.score > 0.8
        assert len(run.ledger) == before  # the audit writes nothing into the run's ledger

    def test_a_model_that_never_trained_on_either_gives_chance(self) -> None:
        found = membership_of_a_row(open_training(digits(), VIMADMMJ(), rounds=1).train(), digits())
        assert found is not None
        assert abs(found.score - 0.5) < 0.06

    def test_no_test_rows_no_finding(self) -> None:
        federation = small()
        split = replace(federation.split, test=federation.split.test[:0])
        federation = replace(federation, split=split)
        assert membership_of_a_row(open_training(federation, VIMADMMJ(), rounds=1).train(), federation) is None

    def test_losses_of_rows_average_to_the_task_s_loss(self) -> None:
        logits, classes = torch.randn(8, 3, generator=torch.Generator().manual_seed(0)), torch.arange(8) % 3
        mean = torch.nn.functional.cross_entropy(logits, classes)
        assert float(row_losses(TASKS["multiclass"](logits.shape[1]), logits, classes).mean()) == pytest.approx(
            float(mean), rel=1e-5
        )
        yes = (logits > 0).double()
        assert float(row_losses(TASKS["multilabel"](3), 100 * logits, yes).max()) < 0.7
        assert torch.equal(
            row_losses(TASKS["regression"](logits.shape[1]), logits, logits), torch.zeros(8, dtype=torch.float64)
        )

    @settings(max_examples=40)
    @given(members=st.lists(st.integers(0, 5), min_size=1), others=st.lists(st.integers(0, 5), min_size=1))
    def test_auc_counts_pairs(self, members: list[int], others: list[int]) -> None:
        slow = sum((m > o) + 0.5 * (m == o) for m in members for o in others) / (len(members) * len(others))
        assert auc(torch.tensor(members), torch.tensor(others)) == pytest.approx(slow)

    def test_a_party_without_noise_is_always_seen(self) -> None:
        uploads = plain("vimadmm").clean["party_1"]
        assert membership_of_a_party(uploads, Unchanged(), "party_1", games=5).score == 1.0

    @pytest.mark.parametrize(("sigma", "releases"), [(1.0, 1), (2.0, 4), (1000.0, 4)])
    def test_a_party_behind_noise_is_seen_as_often_as_the_ledger_allows(self, sigma: float, releases: int) -> None:
        uploads = [{"h": u["h"][:20]} for u in plain("vimadmm").clean["party_1"][:releases]]
        found = membership_of_a_party(uploads, Gaussian(1.0, sigma, SeededNoise(1)), "party_1", games=500)
        expected = 0.5 * math.erfc(-math.sqrt(releases) / sigma / 2)
        assert found.score == pytest.approx(expected, abs=0.06)


def test_all_attacks_in_one_table() -> None:
    noise = Gaussian(1.0, 5.0, SeededNoise(0))
    findings = attack(record(open_training(digits(), METHODS["vimadmm"], noise, rounds=3)))
    names = [finding.attack for finding in findings]
    assert names == [
        "labels from the downlink",
        "model completion",
        "feature reconstruction",
        "membership of a party, without noise",
        "membership of a party, gaussian",
        "membership of a row",
    ]
    rows = table(findings)
    assert all(len(row) == len(HEADINGS) and all(isinstance(cell, str) for cell in row) for row in rows)
    assert [row[0] for row in rows] == names


def test_a_method_that_says_nothing_gives_fewer_openings() -> None:
    assert [f.attack for f in attack(plain("local_only"))] == [
        "labels from the downlink",
        "model completion",
        "membership of a row",
    ]
    pooled = attack(record(open_training(digits(), Centralized(), rounds=2)))
    assert [f.attack for f in pooled] == ["membership of a row"]


def test_advantage_and_majority() -> None:
    assert Finding("x", 0.75, 0.5, 10, "").advantage == pytest.approx(0.5)
    assert majority(torch.tensor([[0, 1], [0, 1], [1, 1], [0, 0]])) == pytest.approx(0.75)
