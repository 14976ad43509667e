"""What a new user types at the Python front door, right or wrong: an answer, or one clear sentence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from colonnade import Training, fit
from colonnade.errors import ConfigError, DataError
from colonnade.methods import VIMADMM, make_method
from colonnade.models.optimise import AdamW
from tests.federations import small

SHORT: dict[str, Any] = {"rounds": 2}


def test_a_method_by_name_class_or_settings_is_the_same() -> None:
    runs = [fit(small(), method, **SHORT) for method in ("vimadmm", VIMADMM, VIMADMM())]
    assert len({run.fingerprint() for run in runs}) == 1


@pytest.mark.parametrize("method", ["vimadmm", VIMADMM])
def test_keywords_are_settings_of_training_and_method(method: Any) -> None:
    run = fit(small(), method, batch=20, rho=2.0, lr=0.02, **SHORT)
    assert (run.training.rounds, run.training.schedule.batch) == (2, 20)
    assert run.method == VIMADMM(rho=2.0, optimiser=VIMADMM().optimiser.model_copy(update={"lr": 0.02}))
    assert run.training == Training(rounds=2, schedule={"batch": 20})  # type: ignore[arg-type]


def test_settings_of_the_method_go_with_a_training_object() -> None:
    run = fit(small(), "vimadmm", training=Training(rounds=2), rho=2.0)
    assert (run.training, run.method.rho) == (Training(rounds=2), 2.0)  # type: ignore[attr-defined]


class Twofold(VIMADMM):
    """A method with a setting that the training has, too."""

    seed: int = 3


def test_a_keyword_of_training_and_method_is_refused_with_both_ways_to_say_it() -> None:
    with pytest.raises(ConfigError, match=r"say which: training=Training\(seed=\.\.\.\) or Twofold\(seed=\.\.\.\)"):
        fit(small(), Twofold, seed=1)


WRONG: dict[str, tuple[Callable[[], object], str]] = {
    "a name that does not exist": (lambda: fit(small(), "vimadm", **SHORT), r"did you mean 'vimadmm'\?"),
    "something else as a method": (lambda: fit(small(), 3, **SHORT), "a method is needed, e.g. 'vimadmm'"),  # type: ignore[arg-type]
    "another class as a method": (lambda: fit(small(), Training, **SHORT), "a method is needed"),
    "a class of the user's": (lambda: fit(small(), int, **SHORT), "a method is needed"),  # type: ignore[arg-type]
    "no federation": (lambda: fit({"a": [1]}, "vimadmm"), "fit needs a Federation first.*got dict"),  # type: ignore[arg-type]
    "a setting of an inner one": (
        lambda: VIMADMM(lr=0.1),
        r"unknown key 'lr' in \[VIMADMM\]; did you mean 'optimiser.lr'\?",
    ),  # type: ignore[call-arg]
    "a misspelt setting": (lambda: VIMADMM(roh=1.0), r"did you mean 'rho'\?"),  # type: ignore[call-arg]
    "a wrong value": (lambda: VIMADMM(rho=-1.0), r"\[VIMADMM\] rho = -1.0 is not valid"),
    "a wrong value further in": (lambda: VIMADMM(optimiser={"kind": "adamw", "lr": -1}), r"optimiser\.adamw\.lr = -1"),  # type: ignore[arg-type]
    "a misspelt setting further in": (lambda: VIMADMM(optimiser={"kind": "adamw", "lrr": 1}), r"did you mean 'lr'\?"),  # type: ignore[arg-type]
    "a value without a name": (lambda: VIMADMM(1.0), "VIMADMM takes settings by name, e.g. rho="),  # type: ignore[misc]
    "an optimiser of no kind": (
        lambda: make_method("vimadmm", {"optimiser": {"lr": 0.1}}),
        r"optimiser = \{'lr': 0.1\} is not valid: needed 'kind' in it: 'sgd' or 'adamw'",
    ),
    "a value in place of settings": (
        lambda: fit(small(), "vimadmm", privacy={"secure_sum": True}),
        r"secure_sum = True is not valid: needed settings by name, e.g. \{ use = ... \}; there are use, colluders",
    ),
    "an optimiser": (lambda: AdamW(lr="fast"), r"\[AdamW\] lr = 'fast' is not valid"),  # type: ignore[arg-type]
    "training": (lambda: Training(passes=3), r"unknown key 'passes' in \[Training\]; known keys"),  # type: ignore[call-arg]
    "a misspelt keyword": (
        lambda: fit(small(), "vimadmm", round=3),
        r"'round' is no setting of the training nor of VIMADMM; did you mean 'rounds'\?",
    ),
    "an unknown keyword": (lambda: fit(small(), "vimadmm", passes=3), "'passes' is no setting .*known: augment, "),
    "local models by another name": (
        lambda: fit(small(), "one_message", local={"party_0": object()}),
        r"'local' is no setting: say encoders=\{'PARTY': \.\.\.\} for local models of your own",
    ),
    "a keyword of the networks": (
        lambda: fit(small(), "vimadmm", hidden=3),
        r"'hidden' is a setting of model: say model=\{'hidden': \.\.\.\}",
    ),
    "a keyword of the promise": (lambda: fit(small(), "vimadmm", clip=3), r"say privacy=\{'clip': \.\.\.\}"),
    "a keyword with two meanings in a method": (
        lambda: fit(small(), "split_learning", lr=0.1),
        r"'lr' may mean a setting of optimiser\.lr of SplitLearning or server_optimiser\.lr of SplitLearning; say "
        r"which: "
        r"optimiser=\{'kind': 'adamw', 'lr': \.\.\.\} or server_optimiser=",
    ),
    "a keyword beside what it is in": (
        lambda: fit(small(), "vimadmm", optimiser={"kind": "sgd"}, lr=0.1),
        "lr is said twice, by itself and in optimiser",
    ),
    "a keyword of a method that is an object": (
        lambda: fit(small(), VIMADMM(), rho=2.0),
        r"'rho' is a setting of the method, which was given as an object; say it there, VIMADMM\(rho=\.\.\.\)",
    ),
    "a keyword of the training beside an object": (
        lambda: fit(small(), "vimadmm", training=Training(), rounds=2),
        "give either training=Training",
    ),
    "a keyword out of range": (lambda: fit(small(), "vimadmm", rho=-1.0), r"rho = -1\.0 is not valid"),
    "a list for a dict": (lambda: fit(small(), "vimadmm", model=[1, 2]), r"\[model\] needs settings by name"),  # type: ignore[arg-type]
    "a list of settings": (lambda: make_method("vimadmm", [1]), r"\[method vimadmm\] needs settings by name"),  # type: ignore[arg-type]
    "make_method with an unknown one": (lambda: make_method("vimadmm", {"lr": 1}), r"did you mean 'optimiser\.lr'\?"),
    "make_method without a name": (lambda: make_method(VIMADMM), "a method is named by a text"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("what", WRONG)
def test_one_sentence_about(what: str) -> None:
    call, told = WRONG[what]
    with pytest.raises(ConfigError, match=told) as caught:
        call()
    assert "\n" not in str(caught.value) and caught.value.__cause__ is None


def test_settings_inside_others_are_read_as_before() -> None:
    made = VIMADMM(optimiser={"kind": "sgd", "lr": 0.3})  # type: ignore[arg-type]
    assert (made.optimiser.kind, made.optimiser.lr) == ("sgd", 0.3)
    assert VIMADMM(optimiser=AdamW(lr=0.2)).optimiser == AdamW(lr=0.2)
    assert VIMADMM.model_validate_json(made.model_dump_json()) == made


def test_a_run_is_shown_in_one_line(tmp_path: Path) -> None:
    run = fit(small(), "vimadmm", out=tmp_path / "run", **SHORT)
    shown = repr(run)
    assert len(shown) < 200 + len(str(tmp_path)) and "\n" not in shown
    assert run.id in shown and "vimadmm on small, 2 of 2 rounds, test accuracy 0." in shown and str(tmp_path) in shown
    never = fit(small(), "vimadmm", privacy={"mechanism": "gaussian", "clip": 1.0, "sigma": 2.0}, **SHORT)
    assert "not measured on test rows" in repr(never)


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (torch.tensor([3, 100_000]), r"1 of 2 row numbers do not exist \(first: 100000\); the rows are 0 to 89"),
        (torch.tensor([-1]), r"1 of 1 row numbers do not exist \(first: -1\)"),
        (torch.tensor([0.5]), r"needed a list of row numbers from 0 to 89; got torch.float32 of shape \(1,\)"),
        (torch.tensor(5), r"got torch.int64 of shape \(\)"),
        (torch.ones(7, dtype=torch.bool), r"got torch.bool of shape \(7,\)"),
    ],
)
def test_rows_that_do_not_exist_cannot_be_selected(rows: torch.Tensor, says: str) -> None:
    with pytest.raises(DataError, match=says):
        small().select(rows)


def test_rows_are_selected_by_number_or_by_a_mask() -> None:
    federation = small()
    mask = torch.zeros(federation.rows, dtype=torch.bool)
    mask[[4, 7]] = True
    for rows in (torch.tensor([4, 7]), torch.tensor([4, 7], dtype=torch.int32), np.array([4, 7]), [4, 7], mask):
        selected = federation.select(rows)
        for party in federation.parties:
            assert torch.equal(selected.columns[party.name], party.columns[[4, 7]])


@pytest.mark.parametrize(
    ("rows", "words"),
    {
        "too large": ([0, 60], r"rows: 1 of 2 row numbers do not exist \(first: 60\); the rows are 0 to 59"),
        "negative": ([-1, 3], r"rows: 1 of 2 row numbers do not exist \(first: -1\)"),
        "twice": ([4, 5, 4], "rows: row 4 is named more than once; name each row once"),
        "fractions": ([0.5], "rows: needed a list of row numbers"),
    }.values(),
)
def test_rows_that_a_federation_cannot_take_are_refused(rows: list[float], words: str) -> None:
    with pytest.raises(DataError, match=words):
        small(rows=60).take(torch.tensor(rows))


def test_rows_that_are_taken_keep_their_part_and_their_order() -> None:
    whole = small(rows=60)
    part = whole.take([59, 3, 20])
    assert part.rows == 3
    assert torch.equal(part.labels, whole.labels[[59, 3, 20]])
    assert torch.equal(part.parties[0].columns, whole.parties[0].columns[[59, 3, 20]])
    tested = set(whole.split.test.tolist()) & {59, 3, 20}
    assert {[59, 3, 20][k] for k in part.split.test.tolist()} == tested
