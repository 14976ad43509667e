"""The operator's policy: every rule can refuse, says what was asked and allowed, and which line to change."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from colonnade.deploy.agreement import Proposal
from colonnade.deploy.limits import check_training
from colonnade.deploy.policy import Policy, check_columns, check_prediction, check_run, read_policy
from colonnade.errors import ConfigError, Refused
from colonnade.wire.messages import COORDINATOR, Purpose, Query, Request
from tests.deploy.trials import TRAINING, Stage
from tests.nats_server import needs_nats

RUN: dict[str, Any] = {
    "method": {"name": "vimadmm", "settings": {"rho": 1.0}},
    "label_exposure": "full",
    "training": {"rounds": 200},
    "rows": 5000,
    "purposes": ["TRAIN", "EVALUATE"],
    "mechanism": "none",
}
FILE = """\
# what telco allows
methods = ["vimadmm"]
purposes = ["TRAIN", "EVALUATE", "PREDICT"]

most_rounds = 200
fewest_rows = 5000
most_rows_per_prediction = 10
  label_exposure = ["full"]
"require_mechanism" = ["none", "gaussian"]
"""


@pytest.fixture
def policy(tmp_path: Path) -> Policy:
    (tmp_path / "policy.toml").write_text(FILE)
    return read_policy(tmp_path / "policy.toml")


def test_what_is_allowed_passes(policy: Policy) -> None:
    check_run(policy, RUN)
    check_run(read_policy(None), {**RUN, "rows": 1, "training": {"rounds": 10**6}})
    check_prediction(policy, 10, "PREDICT")
    check_prediction(Policy(), 10**9, "EVALUATE")


@pytest.mark.parametrize(
    ("change", "needles"),
    [
        (
            {"method": {"name": "vimadmm_j"}},
            (
                "methods: the method 'vimadmm_j' was asked for, the policy allows vimadmm;",
                'line 2 of policy.toml would have to be `methods = ["vimadmm", "vimadmm_j"]`',
            ),
        ),
        (
            {"purposes": ["TRAIN", "EXPLAIN"]},
            ("purposes: EXPLAIN was asked", "allows TRAIN, EVALUATE, PREDICT;", "line 3 of policy.toml"),
        ),
        ({"purposes": ["RESELL"]}, ("purposes:", "'RESELL' was asked", "no purpose")),
        ({"training": {"rounds": 1001}}, ("most_rounds: 1,001 rounds", "allows 200;", "`most_rounds = 1001`")),
        ({"rows": 4999}, ("fewest_rows: the run has 4,999", "needs 5,000", "line 6", "`fewest_rows = 4999`")),
        ({"rows": 0}, ("fewest_rows:", "`fewest_rows = 1`")),
        ({"label_exposure": "noisy"}, ("label_exposure:", "'noisy' was asked", "allows full;", "line 8")),
        ({"mechanism": "laplace"}, ("require_mechanism:", "'laplace' was asked", "none, gaussian;", "line 9")),
    ],
)
def test_each_rule_refuses(change: dict[str, Any], needles: tuple[str, ...], policy: Policy) -> None:
    with pytest.raises(Refused) as refusal:
        check_run(policy, {**RUN, **change})
    text = str(refusal.value)
    assert "\n" not in text
    for needle in needles:
        assert needle in text


def test_the_line_that_a_refusal_names_allows_it(policy: Policy, tmp_path: Path) -> None:
    asked = {**RUN, "training": {"rounds": 777}}
    with pytest.raises(Refused, match="line 5"):
        check_run(policy, asked)
    (tmp_path / "policy.toml").write_text(FILE.replace("most_rounds = 200", "most_rounds = 777"))
    check_run(read_policy(tmp_path / "policy.toml"), asked)


def test_without_the_line_or_the_file_the_refusal_says_so(tmp_path: Path) -> None:
    (tmp_path / "short.toml").write_text("fewest_rows = 2\n")
    asked = {**RUN, "purposes": ["EXPLAIN"]}
    with pytest.raises(Refused, match=r"short\.toml would have to say `purposes"):
        check_run(read_policy(tmp_path / "short.toml"), asked)
    with pytest.raises(Refused, match="put `purposes"):
        check_run(Policy(), asked)


def test_a_protection_is_asked_of_training_only() -> None:
    strict = Policy(require_mechanism=("gaussian",))
    check_run(strict, {**RUN, "purposes": ["EVALUATE"]})
    with pytest.raises(Refused, match="require_mechanism"):
        check_run(strict, RUN)


def test_predictions(policy: Policy) -> None:
    with pytest.raises(Refused, match=r"most_rows_per_prediction: 11 rows.*allows 10.*line 7"):
        check_prediction(policy, 11, "PREDICT")
    with pytest.raises(Refused, match="purposes: EXPLAIN"):
        check_prediction(policy, 1, "EXPLAIN")
    with pytest.raises(Refused, match="allows none"):
        check_prediction(Policy(purposes=()), 1, "PREDICT")


@pytest.mark.parametrize("key", RUN)
@pytest.mark.parametrize("value", [None, True, 3.5, {}, {"name": 1, "rounds": "many"}, "", []])
def test_a_description_that_does_not_say_it_is_refused(key: str, value: Any, policy: Policy) -> None:
    with pytest.raises(Refused):
        check_run(policy, {**RUN, key: value} if value is not None else {k: v for k, v in RUN.items() if k != key})


@pytest.mark.parametrize("purposes", [[None], [["TRAIN"]], [{"TRAIN": 1}], [Purpose]])
def test_a_purpose_that_is_no_text_is_refused(purposes: list[Any], policy: Policy) -> None:
    with pytest.raises(Refused, match="purposes"):
        check_run(policy, {**RUN, "purposes": purposes})


def test_a_long_text_does_not_fill_the_refusal(policy: Policy) -> None:
    with pytest.raises(Refused) as refusal:
        check_run(policy, {**RUN, "method": {"name": "x" * 10**6}})
    assert len(str(refusal.value)) < 500


@pytest.mark.parametrize(
    ("text", "needle"),
    [
        ("most_round = 3", "did you mean 'most_rounds'"),
        ("most_rounds = -1", "most_rounds"),
        ("most_rounds = 'many'", "most_rounds"),
        ("fewest_rows = 0", "fewest_rows"),
        ("methods = 'vimadmm'", "methods"),
        ("methods = ['vimadm']", "did you mean 'vimadmm'"),
        ("purposes = ['SELL']", "purposes"),
        ("[policy]\nmost_rounds = 3", "unknown key 'policy'"),
        ("most_rounds =", "not valid TOML"),
    ],
)
def test_a_wrong_file_is_refused(text: str, needle: str, tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text(text)
    with pytest.raises(ConfigError, match=needle):
        read_policy(tmp_path / "policy.toml")
    with pytest.raises(ConfigError, match="does not exist"):
        read_policy(tmp_path / "none.toml")


def test_no_round_after_the_last_is_trained() -> None:
    """Rounds are what a party's epsilon was counted for: a coordinator cannot go on after them."""
    query, proposal = Query(Purpose.TRAIN, ("bank",), torch.arange(2)), agreed(trains=True)
    check_training(Request(3, (query,)), proposal, "bank", 9)
    with pytest.raises(
        Refused, match="request 4 asks for 1 training uploads; the run agreed on one in each of 3 rounds"
    ):
        check_training(Request(4, (query,)), proposal, "bank", 9)
    check_training(Request(4, (Query(Purpose.EVALUATE, ("bank",), torch.arange(5, 7)),)), proposal, "bank", 9)


@pytest.mark.parametrize("purpose", list(Purpose))
def test_a_party_that_brings_its_part_answers_predictions_only(purpose: Purpose) -> None:
    """Nothing is counted of it, so nothing but what is limited elsewhere may be asked of it."""
    proposal, rows = agreed(trains=False), torch.arange(2) if purpose is Purpose.TRAIN else torch.arange(5, 7)
    others = Request(1, (Query(purpose, ("telco",), rows),))
    check_training(others, proposal, "bank", 9)
    mine = Request(1, (Query(purpose, ("bank",), rows),))
    if purpose in (Purpose.PREDICT, Purpose.EXPLAIN):
        check_training(mine, proposal, "bank", 9)
    else:
        with pytest.raises(Refused, match="request 1 asks 'bank' to train, which brings its part of a former run"):
            check_training(mine, proposal, "bank", 9)
    with pytest.raises(Refused, match="asks 'bank' to train"):
        check_training(replace(others, learners=("bank",)), proposal, "bank", 9)


def agreed(trains: bool) -> Proposal:
    """As much of a proposal as limits read: five rows train, in three rounds."""
    training = SimpleNamespace(rounds=3)
    facts = SimpleNamespace(training=lambda: training, train=torch.arange(5), trains=lambda party: trains)
    return cast(Proposal, facts)


@needs_nats
def test_a_party_refuses_a_precision_that_its_device_lacks(tmp_path: Path) -> None:
    training = {**TRAINING, "dtype": "float32", "precision": "tf32"}
    with Stage(tmp_path, noise=0.0, training=training) as s:
        s.organisations.start()
        assert s.wait_until_gone(COORDINATOR) == [2]
    assert "'tf32' is a mode of NVIDIA GPUs, and the device is 'cpu'" in s.failure(COORDINATOR)


def test_columns_leave_only_where_the_operator_says_that_both_are_one_organisation(tmp_path: Path) -> None:
    check_columns(Policy(), "")
    check_columns(Policy(shows_columns=True), "all of its columns")
    (tmp_path / "policy.toml").write_text("shows_columns = false\n")
    with pytest.raises(Refused, match=r"line 1 of policy\.toml would have to be `shows_columns = true`"):
        check_columns(read_policy(tmp_path / "policy.toml"), "all of its columns")
