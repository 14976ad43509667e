"""What a run promises in words: every figure with what belongs to it, and no figure where there is none."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colonnade.engines.remote import Remote
from colonnade.errors import ConfigError
from colonnade.privacy.accounting import exact_epsilon, rdp_epsilon, shift_of
from colonnade.privacy.events import LabelExposure
from colonnade.privacy.ledger import Entry, Ledger
from colonnade.privacy.promise import Circumstances
from colonnade.privacy.settings import PrivacySettings, SumSettings
from colonnade.privacy.so_far import SoFar
from colonnade.privacy.statement import Statement
from colonnade.privacy.tally import Tally, tally
from colonnade.report.privacy import DEPLOYED, own_parties
from colonnade.wire.messages import Purpose
from tests.releases import released

DP = PrivacySettings(mechanism="gaussian", clip=1.0, sigma=5.0)
PLAIN = PrivacySettings()
FULL = Circumstances(LabelExposure.FULL, uploaded=True)
PARAMETERS = {"gaussian": {"clip": 1.0, "sigma": 5.0, "simulated": 1.0}, "sum": {"parties": 3.0}}


def release(party: str, number: int, mechanism: str = "gaussian", purpose: Purpose = Purpose.TRAIN) -> Entry:
    return released(party, mechanism, number, purpose, **PARAMETERS.get(mechanism, {}))


def statement(*releases: Entry, settings: PrivacySettings = DP, about: Circumstances = FULL) -> Statement:
    return Statement.of(releases, settings, about)


def text(told: Statement) -> str:
    return "\n".join(sentence for _, answers in told.answers() for sentence in answers)


def test_the_federation_has_the_largest_figure_of_its_parties() -> None:
    told = statement(release("a", 1), release("b", 1), release("b", 2))
    assert told.worst is not None and told.worst.party == "b"
    assert told.epsilon == exact_epsilon(shift_of(5.0, 2), 1e-5)
    assert {s.party: s.exact for s in told.spent}["a"] == exact_epsilon(shift_of(5.0, 1), 1e-5)
    assert f"epsilon {told.epsilon:.3f} (exact accountant; {rdp_epsilon(shift_of(5.0, 2), 1e-5):.3f}" in text(told)


def test_too_little_noise_has_no_exact_figure_and_no_other_takes_its_place() -> None:
    """Above 10,000 the exact accountant gives up; the RDP bound is still a number, and must not pass for it."""
    told = statement(released("a", "gaussian", clip=1.0, sigma=0.005, simulated=1.0))
    assert math.isinf(told.epsilon) and told.to_json()["epsilon"] is None
    assert "far too little noise" in text(told)
    loud = statement(released("a", "gaussian", clip=1.0, sigma=0.05, simulated=1.0))
    assert "promise nothing" in text(loud) and "promise nothing" not in text(statement(release("a", 1)))


def test_a_large_delta_makes_the_epsilon_small_and_the_promise_empty() -> None:
    """With delta 0.5 the exact figure of little noise is epsilon 0: no reader may take that for privacy."""
    usual, empty = statement(release("a", 1)), statement(release("a", 1), settings=DP.model_copy(update={"delta": 0.5}))
    assert empty.epsilon == 0.0 and empty.rules_nothing_out and not usual.rules_nothing_out
    assert "A delta of 0.5 promises little: with about that chance anything may be told." in text(empty)
    assert "promises little" not in text(usual)
    silent = Statement.of(
        [], DP.model_copy(update={"delta": 0.5, "mechanism": "none"}), Circumstances(LabelExposure.NONE)
    )
    assert silent.epsilon == 0.0 and not silent.rules_nothing_out  # nothing was sent, whatever delta says


def test_noise_of_an_earlier_version_is_said_to_be_off_its_grid() -> None:
    """Ledgers and records from before grids can be read, and say what their noise does not cover."""
    old, new = release("a", 1), released("a", "gaussian", clip=1.0, sigma=5.0, grid=2.0**-18)
    assert "low bits of the noise" in text(statement(old)) and "low bits" not in text(statement(new))
    record = tally([old], "absent")[0].to_json()
    del record["off_grid"]  # as an earlier version wrote it
    for settings, told in ((DP, True), (DP.model_copy(update={"secure_sum": SumSettings(use=True)}), False)):
        again = Statement.from_tally([Tally.from_json(record)], settings, FULL)
        assert ("low bits" in text(again)) is told
    assert Tally.from_json(tally([new], "absent")[0].to_json()) == tally([new], "absent")[0]


def test_the_label_holder_s_own_record_names_the_method_s_noise() -> None:
    about = Circumstances(LabelExposure.FULL, uploaded=True, deployed=True, own="poisson binomial")
    said = text(statement(settings=PLAIN, about=about))
    assert "the method's own noise (poisson binomial)" in said
    assert "left without noise" not in said and "none was drawn" not in said


def test_the_other_relation_costs_more_and_is_named() -> None:
    replaced = DP.model_copy(update={"neighbours": "replaced"})
    one, other = statement(release("a", 1)), statement(release("a", 1), settings=replaced)
    assert other.epsilon > one.epsilon
    assert "neighbours: absent, sensitivity C" in text(one) and "neighbours: replaced, sensitivity 2C" in text(other)
    assert "compared with the same run without this party's data" in text(one)
    assert "compared with the same run with any other data of this party" in text(other)


def test_without_noise_the_verdict_is_what_it_means_and_what_to_do() -> None:
    bare, where = release("a", 1, "none"), 'What to do about it: documentation, page "What is protected".'
    assert statement(bare, settings=PLAIN).verdict() == (
        "No noise was used. The uploads may reveal the parties' columns, and the replies reveal the training labels to "
        f"every party. {where}"
    )
    quiet = statement(bare, settings=PLAIN, about=Circumstances(LabelExposure.NONE, uploaded=True))
    assert quiet.verdict().endswith(f"may reveal the parties' columns; the labels stay with their holder. {where}")
    summed = statement(release("a", 1, "sum"), settings=PrivacySettings(secure_sum=SumSettings(use=True)))
    assert "No noise was used. The sum of the uploads may reveal" in summed.verdict()
    for told in (statement(release("a", 1)), statement(bare), statement(release("a", 1, "teleport"), settings=PLAIN)):
        assert "No noise was used" not in told.verdict()


def test_a_single_release_without_noise_leaves_no_figure() -> None:
    told = statement(release("a", 1), release("b", 1), release("b", 2, "none"))
    assert math.isinf(told.epsilon)
    assert "no epsilon: uploads left without noise" in text(told)
    assert told.to_json()["epsilon"] is None and told.to_json()["epsilon_rdp"] is None


def test_an_unknown_mechanism_leaves_no_figure_and_is_named() -> None:
    told = statement(release("a", 1, "teleport"))
    assert math.isinf(told.epsilon)
    assert "no epsilon: uploads passed the mechanism 'teleport', which no accountant here knows" in text(told)


def test_noise_that_hides_nothing_is_not_called_no_noise() -> None:
    tiny = released("a", "gaussian", clip=1.0, sigma=1e-4)
    assert "no epsilon: far too little noise" in text(statement(tiny))


def test_who_never_uploaded_and_who_uploaded_elsewhere_are_told_apart() -> None:
    """The coordinator of separate organisations does not hold the parties' ledgers: that is no epsilon of 0."""
    silent = statement(settings=PLAIN, about=Circumstances(LabelExposure.FULL))
    assert silent.epsilon == 0 and "no party sent anything in training" in text(silent)
    apart = statement(settings=PLAIN, about=Circumstances(LabelExposure.FULL, uploaded=True, deployed=True))
    assert math.isinf(apart.epsilon) and "no epsilon: uploads left without noise" in text(apart)
    budget = PrivacySettings(mechanism="gaussian", clip=1.0, epsilon=3.0)
    agreed = statement(settings=budget, about=Circumstances(LabelExposure.FULL, uploaded=True, deployed=True))
    assert math.isinf(agreed.epsilon)
    assert "ledger of its own" in text(agreed) and "a budget of epsilon 3 (delta 1e-05, unit PARTY" in text(agreed)
    assert Remote.name == DEPLOYED


def test_all_in_one_place_promises_nothing() -> None:
    told = statement(settings=PLAIN, about=Circumstances(LabelExposure.FULL, pooled=True))
    assert math.isinf(told.epsilon) and "nobody to protect" in told.verdict()
    assert told.to_json()["epsilon"] is None


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (PLAIN, "leaves as it is"),
        (DP, "policy: none): nothing leaves"),
        (DP.model_copy(update={"evaluation": "simulated"}), "policy: simulated): what parties send about validation "),
    ],
)
def test_the_policy_for_evaluation_is_said(settings: PrivacySettings, sentence: str) -> None:
    assert sentence in text(statement(release("a", 1), settings=settings))
    assert ("un-noised and un-counted" in text(statement(release("a", 1), settings=settings))) == (
        settings.evaluation == "simulated"
    )


@pytest.mark.parametrize("exposure", LabelExposure)
def test_the_exposure_of_labels_is_said(exposure: LabelExposure) -> None:
    labels = {"mechanism": "alibi", "epsilon": 2.0} if exposure is LabelExposure.EPS else {}
    told = statement(settings=PrivacySettings(labels=labels), about=Circumstances(exposure))
    assert f"exposure {exposure.value}" in told.verdict()
    assert ("epsilon 2, delta 0, unit LABEL" in told.verdict()) == (exposure is LabelExposure.EPS)


def test_seeded_noise_and_the_operating_system_s_are_told_apart() -> None:
    seeded = statement(release("a", 1))
    assert "drawn from the run's seed" in text(seeded) and "whoever knows its seed" in text(seeded)
    system = released("a", "gaussian", clip=1.0, sigma=5.0)
    assert "keyed by the operating system" in text(statement(system)) and "seed" not in text(statement(system))
    assert "none was drawn" in text(statement(release("a", 1, "none"), settings=PLAIN))


def test_a_secure_sum_is_named_only_where_there_is_one() -> None:
    summed = DP.model_copy(update={"secure_sum": SumSettings(use=True, colluders=2)})
    shared = released("a", "gaussian sum", clip=1.0, sigma=5.0, parties=4.0, colluders=2.0)
    told = statement(shared, settings=summed)
    assert "The figure tolerates 2 colluders: parties that tell the label holder" in text(told)
    assert any("tolerates 2 colluders" in line for line in told.lines()) and "tolerates 2 colluders" in told.verdict()
    assert "tolerates" not in " ".join(statement(release("a", 1)).lines())
    assert "Secure sum" not in text(statement(release("a", 1)))
    bare = statement(release("a", 1, "sum"), settings=PrivacySettings(secure_sum=SumSettings(use=True)))
    assert math.isinf(bare.epsilon)
    assert "only the sum of the uploads can be read" in text(bare) and "There is no noise in the sum" in text(bare)


def test_the_label_holders_own_party_is_one_of_the_colluders() -> None:
    summed = DP.model_copy(update={"secure_sum": SumSettings(use=True, colluders=1)})
    shared = released("a", "gaussian sum", clip=1.0, sigma=5.0, parties=4.0, colluders=1.0)
    about = Circumstances(LabelExposure.FULL, uploaded=True, parties=4, label_holders=("bank",))
    told, free = statement(shared, settings=summed, about=about), statement(shared, settings=summed)
    assert "bank belongs to the label holder, which knows what it adds: 1 of 1 colluders is used up" in text(told)
    assert "The figure tolerates no more colluders" in text(told)
    facts = told.to_json()
    assert (facts["colluders"], facts["colluders_used_up"]) == (0, ["bank"])
    assert free.to_json()["colluders"] == 1 and statement(release("a", 1)).to_json()["colluders"] is None
    assert told.epsilon == free.epsilon  # the noise of three shares, whoever the fourth is
    more = exact_epsilon(1 / 5 * math.sqrt(3 / 2), 1e-5)
    assert facts["epsilon_one_more"] == pytest.approx(more) and more > told.epsilon
    assert f"With one more it would be epsilon {more:.3f} (exact accountant" in text(told)
    guest = replace(about, label_holders=(), guest="bank")
    assert statement(shared, settings=summed, about=guest).to_json()["colluders"] == 0


def test_whose_parties_they_are_stands_in_the_label_holders_file() -> None:
    assert own_parties({"coordinator": {"own": ["bank"], "run": "churn"}}) == ("bank",)
    assert own_parties({"training": {}}) == own_parties(None) == ()


def test_a_sum_without_noise_tolerates_all_but_two() -> None:
    plain = PrivacySettings(secure_sum=SumSettings(use=True))
    about = Circumstances(LabelExposure.FULL, uploaded=True, parties=5, label_holders=("bank",))
    told = statement(release("a", 1, "sum"), settings=plain, about=about)
    assert "What hides single uploads tolerates 2 more colluders" in text(told) and told.to_json()["colluders"] == 2


def test_more_parties_of_the_label_holder_than_colluders_are_refused() -> None:
    settings = PrivacySettings(secure_sum=SumSettings(use=True, colluders=1))
    settings.check_sum(5, "sum", False, False, ("a",))
    with pytest.raises(ConfigError, match=r"a, b belong to the label holder.*set colluders = 2, or more"):
        settings.check_sum(5, "sum", False, False, ("a", "b"))


def test_predictions_are_never_covered() -> None:
    told = statement(release("a", 1), release("a", 2, "none", Purpose.PREDICT))
    assert math.isfinite(told.epsilon)
    assert "1 releases for PREDICT, which left without noise" in text(told) and "; predictions;" in text(told)


PARTIES = st.sampled_from(["a", "b", "c"])
MECHANISMS = st.sampled_from(["gaussian", "none", "teleport"])
RELEASES = st.lists(st.tuples(PARTIES, st.integers(1, 9), MECHANISMS, st.sampled_from(Purpose)), max_size=12)


@given(RELEASES, st.sampled_from(["absent", "replaced"]))
def test_a_tally_survives_json_and_says_what_the_ledger_says(drawn: list[Any], neighbours: Any) -> None:
    ledger = [release(*one) for one in drawn]
    found = tally(ledger, neighbours)
    again = [Tally.from_json(json.loads(json.dumps(one.to_json()))) for one in found]
    assert again == list(found)
    settings = DP.model_copy(update={"neighbours": neighbours})
    assert Statement.from_tally(again, settings, FULL) == Statement.of(ledger, settings, FULL)
    for one in found:
        mine = [r for r in ledger if r.owner == one.party and r.purpose is Purpose.TRAIN]
        assert one.releases == len(mine)
        assert math.isinf(one.shift) == any(r.mechanism != "gaussian" for r in mine)
        assert sum(dict(one.bare).values()) == sum(r.owner == one.party and r.mechanism == "none" for r in ledger)


def test_the_figure_so_far_is_that_of_the_ledger() -> None:
    ledger = Ledger([release("a", 1), release("b", 1), release("b", 2)])
    so_far = SoFar.of(ledger, DP, ("a", "b", "c"))
    assert so_far is not None
    assert so_far.parties == {s.party: pytest.approx(s.exact) for s in Statement.of(ledger, DP, FULL).spent}
    assert so_far.figure == f"epsilon {so_far.largest:.3f} (least {so_far.parties['a']:.3f})"
    assert "unit PARTY, neighbours: absent, delta 1e-05" in so_far.legend and "not covered" in so_far.legend
    assert SoFar.of(ledger, PLAIN, ("a",)) is None and SoFar.of(Ledger(), DP, ("a",)) is None
