"""Who lost weight is named and nobody else; part of the parties, rounded up, is trained again as the run was."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from colonnade import fit
from colonnade.errors import ConfigError
from colonnade.explain.denoise import denoise, fallen, rivals
from colonnade.explain.retrain import Again
from colonnade.explain.summary import advice, subset, summarise
from colonnade.federation import Federation
from colonnade.run import Run
from tests.contracts.registry import make
from tests.federations import small
from tests.trainers import changed

PARTIES = [f"p{k}" for k in range(8)]


def test_the_party_that_fell_is_named_and_nobody_else() -> None:
    rng = np.random.default_rng(0)
    before = 1 + rng.uniform(size=8)
    before[3] = 3.0  # the heaviest
    after = 2 * before * np.exp(0.02 * rng.normal(size=8))  # all weights doubled, a little by chance
    assert fallen(PARTIES, before.tolist(), after.tolist()) == []
    after[3] *= 0.4
    (fall,) = fallen(PARTIES, before.tolist(), after.tolist())
    assert (fall.party, fall.place_before) == ("p3", 1) and fall.place_after > 1
    assert fall.ratio == pytest.approx(0.4, rel=0.1)


def test_a_fall_within_what_chance_does_is_not_named() -> None:
    rng = np.random.default_rng(1)
    before = 1 + rng.uniform(size=8)
    for _ in range(50):
        after = before * np.exp(0.3 * rng.normal(size=8))  # loud chance
        assert len(fallen(PARTIES, before.tolist(), after.tolist())) <= 2
    lost = before.copy()
    lost[:] = before * 0.1  # all fell alike: nobody against the others
    assert fallen(PARTIES, before.tolist(), lost.tolist()) == []


def test_a_fall_that_costs_no_place_is_not_named() -> None:
    assert fallen(["a", "b", "c"], [9.0, 2.0, 1.0], [4.0, 2.0, 1.0]) == []


def test_a_party_that_a_neighbour_overtook_is_not_named() -> None:
    """On MNIST a noisy light party gains weight, and its neighbour, a little lighter too, loses a place to it."""
    before = [1.0, 1.2, 1.5, 1.6, 1.7, 1.8, 1.9, 2.0]
    overtaken = [1.5, 0.8, 1.5, 1.6, 1.7, 1.8, 1.9, 2.0]
    assert fallen(PARTIES, before, overtaken) == []
    lower = [1.0, 1.2, 1.5, 1.6, 1.7, 1.8, 1.9, 1.55]
    assert [(fall.party, fall.place_after - fall.place_before) for fall in fallen(PARTIES, before, lower)] == [
        ("p7", 4)
    ]


def test_a_fall_is_measured_against_the_others() -> None:
    before = [1.0, 1.2, 1.5, 1.6, 1.7, 1.8, 1.9, 2.0]
    calm = [w * c for w, c in zip(before, (1.0, 1.01, 0.99, 1.0, 1.01, 0.99, 1.0, 0.8), strict=True)]
    loud = [w * c for w, c in zip(before, (1.3, 0.8, 1.2, 0.8, 1.3, 0.85, 1.2, 0.8), strict=True)]
    assert [fall.party for fall in fallen(PARTIES, before, calm)] == ["p7"]
    assert fallen(PARTIES, before, loud) == []  # the same fall, where others fell as far
    little = [*before[:-1], 2.0 * 0.96]
    assert fallen(PARTIES, [*before[:5], 1.97, 1.98, 2.0], [*before[:5], 1.97, 1.98, 1.92]) == []  # two places, 4 %
    assert fallen(PARTIES, before, little) == []


def test_weights_of_other_parties_are_refused() -> None:
    with pytest.raises(ConfigError, match="3 parties, 2 weights"):
        fallen(["a", "b", "c"], [1.0, 2.0], [1.0, 2.0, 3.0])


@pytest.mark.parametrize(
    ("parties", "share", "count"), [(14, 0.5, 7), (14, 0.2, 3), (9, 0.5, 5), (9, 0.2, 2), (100, 0.07, 7)]
)
def test_shares_are_rounded_up_as_in_the_paper(parties: int, share: float, count: int) -> None:
    ranked = [f"p{k}" for k in range(parties)]
    assert subset(ranked, share, "most") == ranked[:count]
    assert subset(ranked, share, "least") == ranked[-count:]
    with pytest.raises(ConfigError, match="more than 0"):
        subset(ranked, 1.0, "most")


@pytest.fixture(scope="module")
def trained() -> tuple[Federation, Run]:
    federation = small(rows=120)
    model = {"hidden": 6, "embedding": 4}
    return federation, fit(federation, make("vimadmm", local_steps=2), rounds=5, evaluate_every=1, model=model)


def test_training_again_is_the_run_again(trained: tuple[Federation, Run]) -> None:
    federation, run = trained
    again = Again(run, "test")
    assert again.train(federation, "same").fingerprint() == run.fingerprint()
    assert again.score(run) == run.accuracy
    blind = Again(run).train(federation, "without a look at test rows")
    assert blind.accuracy is None and Again(run).score(blind) == run.result["validation_score"]


def test_summary_trains_with_those_parties_only(trained: tuple[Federation, Run]) -> None:
    federation, run = trained
    seen: list[str] = []
    again = Again(run, watch=lambda name, rounds: seen.append(f"{name}, {rounds}"))
    ranked = ["party_2", "party_0", "party_3", "party_1"]
    found = summarise(again, federation, ranked, [0.5])
    most, least = found["sets"]
    assert most["parties"] == ["party_0", "party_2"] and least["parties"] == ["party_1", "party_3"]
    direct = Again(run).train(federation.only(["party_0", "party_2"]), "direct")
    assert most["score"] == direct.result["validation_score"] and found["all"] == run.result["validation_score"]
    assert seen == ["most important 50 %, 5", "least important 50 %, 5"]


def test_advice_is_the_smallest_part_that_loses_little() -> None:
    def one(count: int, score: float, which: str = "most") -> dict[str, object]:
        return {"share": 0.5, "which": which, "parties": PARTIES[:count], "score": score, "validation": score}

    found = {"rows": "test", "all": 0.971, "validation": 0.97, "ranked": PARTIES}
    told = advice({**found, "sets": [one(6, 0.969), one(4, 0.966), one(2, 0.9), one(1, 0.99, "least")]}, "accuracy")
    assert told == "with these 4 of 8 parties: 96.6 % (all 8: 97.1 %, test rows): p0, p1, p2, p3"
    told = advice({**found, "sets": [one(2, 0.9)]}, "accuracy")
    assert told.startswith("no part that was tried") and "2 of them: 90.0 %" in told


def test_noise_on_a_party_in_training(trained: tuple[Federation, Run]) -> None:
    federation, run = trained
    methods = rivals(run.method, federation.name)
    assert list(methods) == ["vimadmm", "split_learning", "vafl"]
    norm = run.explain(federation, shapley="none", draws=1).norm
    found = denoise(Again(run), federation, "party_1", norm=norm, methods=methods, std=50.0, lengths=[2, 5])
    assert found["lengths"] == [2, 5] and set(found["scores"]) == set(methods)
    assert all(len(scores) == 2 for scores in found["scores"].values())
    assert len(found["norm_after"]) == 4 and found["norm_after"] != norm
    with pytest.raises(ConfigError, match="no party called"):
        denoise(Again(run), federation, "nobody", norm=norm, methods=methods)


def test_training_again_under_a_promise_must_be_asked_for(trained: tuple[Federation, Run]) -> None:
    _, run = trained
    privacy = run.privacy.model_validate({"mechanism": "gaussian", "clip": 1.0, "sigma": 9.0})
    promised = changed(run, design=replace(run.model.design, privacy=privacy))
    with pytest.raises(ConfigError, match="epsilon does not cover"):
        Again(promised)
    assert Again(promised, uncovered=True)
