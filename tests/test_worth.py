"""Is a candidate worth joining: the estimate, what is released for it, and candidates that cheat."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from torch import Tensor

import colonnade as cn
from colonnade.errors import ColonnadeError, ConfigError, DataError, ModelError, WireError
from colonnade.federation import Federation, RowSplit
from colonnade.joining import scores as learners
from colonnade.joining.answer import answer, as_levels, read_answer, read_question
from colonnade.joining.gain import balanced_folds, gain_of
from colonnade.joining.judge import Judge
from colonnade.joining.question import Labelled, Question, Sample, ask, draw_sample
from colonnade.joining.scores import FOLDS
from colonnade.joining.sides import sides_of
from colonnade.privacy.events import Unit
from colonnade.privacy.labels.randomised import RandomisedResponseEvent
from colonnade.privacy.ledger import Ledger
from colonnade.tasks.binary import Binary
from colonnade.wire.codec import decode, encode
from colonnade.wire.messages import COORDINATOR, Purpose

ROWS = 2400
KEY = 20_260_101


def federation(task: str = "binary", rows: int = ROWS, seed: int = 0) -> Federation:
    """A bank with half of what explains the label, a shop with the other half, a stranger with nothing."""
    rng = np.random.default_rng(seed)
    bank, shop, noise = rng.normal(size=(3, rows, 3))
    total = bank[:, 0] + 1.5 * shop[:, 0]
    labels: Any = {
        "binary": (total + rng.normal(size=rows) > 0).astype(int),
        "multiclass": np.digitize(total, [-1, 1]),
        "multilabel": np.stack([total > 0, total > 1], axis=1).astype(int),
        "regression": total + 0.1 * rng.normal(size=rows),
        "count": rng.poisson(np.exp(0.5 * total)),
    }[task]
    everything = torch.arange(rows)
    split = RowSplit(everything[: rows - 200], everything[rows - 200 : rows - 100], everything[rows - 100 :])
    columns = {"bank": bank, "shop": shop, "stranger": noise}
    return Federation.from_arrays(columns, labels, task=task, split=split)


def labelled(whole: Federation) -> Labelled:
    return Labelled(whole.labels, whole.task, whole.split.train)


def question(whole: Federation, epsilon: float = 1.0, ledger: Ledger | None = None) -> Question:
    sample = draw_sample(whole.split.train, 1000, 0)
    return ask("trial", ("shop",), labelled(whole), sample, epsilon, KEY, Ledger() if ledger is None else ledger)


# -- the estimate -------------------------------------------------------------------------------


def test_who_knows_something_is_told_from_who_does_not() -> None:
    found = cn.worth(federation(), holder="bank", rows=1000)
    shop, stranger = found["shop"], found["stranger"]
    assert shop.gain.sure and shop.gain.value > 0.1
    assert stranger.gain.interval is not None and not stranger.gain.sure
    assert stranger.gain.interval[0] <= 0 <= stranger.gain.interval[1]
    assert abs(stranger.gain.value) < 0.01
    assert "adds something" in str(found) and "stranger: no gain can be seen" in str(found)


def test_the_gain_is_that_of_a_slower_and_plainer_computation() -> None:
    whole, rng = federation(), np.random.default_rng(1)
    truth = whole.labels[:1000]
    own, theirs = (torch.from_numpy(rng.normal(size=(1000, 1))) + truth * shift for shift in (0.5, 0.8))
    folds = balanced_folds(truth, 0)
    found = gain_of(whole.task, truth, own, theirs, folds)
    y, number = truth[:, 0].numpy(), folds.numpy()
    both = torch.cat([own, theirs], dim=1).numpy()
    both = (both - both.mean(axis=0)) / both.std(axis=0)
    areas = []
    for fold in range(FOLDS):
        at, rest = number == fold, number != fold
        joined = LogisticRegression(C=1.0, tol=1e-8).fit(both[rest], y[rest]).decision_function(both[at])
        areas.append((roc_auc_score(y[at], both[at, 0]), roc_auc_score(y[at], joined)))
    alone, joined = np.mean(areas, axis=0)
    assert found.alone == pytest.approx(alone, abs=1e-4)
    assert found.joined == pytest.approx(joined, abs=1e-4)
    assert found.value == pytest.approx(joined - alone, abs=1e-4)


@pytest.mark.parametrize("task", ["multiclass", "multilabel", "regression", "count"])
def test_every_task_has_an_estimate(task: str) -> None:
    found = cn.worth(federation(task), holder="bank", rows=1000, epsilon=4.0)
    assert found["shop"].gain.sure, found
    assert found["stranger"].gain.value < 0.3 * found["shop"].gain.value, found
    told = "whether the labels of" in found.released and "are above the median" in found.released
    assert told == (task in ("regression", "count"))


def test_the_estimate_is_the_same_again_and_follows_the_seed() -> None:
    first, again, other = (cn.worth(federation(), holder="bank", rows=1000, seed=seed) for seed in (3, 3, 4))
    assert first.to_json() == again.to_json()
    assert first["shop"].gain.value != other["shop"].gain.value


def test_without_boosted_trees_a_linear_model_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(learners, "find_spec", lambda name: None if name == "lightgbm" else real(name))
    monkeypatch.setattr(learners, "Trees", None)  # would fail if anybody grew one
    found = cn.worth(federation(), holder="bank", rows=1000)
    assert found["shop"].gain.sure and not found["stranger"].gain.sure


def test_a_label_holder_without_columns_is_compared_with_guessing() -> None:
    whole = federation()
    asked = question(whole)
    judge = Judge.of(labelled(whole), None, asked.sample)
    levels = as_levels(whole.parties[1].columns[asked.sample.judged, :1], "shop")
    found = judge.gain(levels)
    assert found.alone == pytest.approx(0.5)
    assert found.joined > 0.8


# -- candidates that cheat ----------------------------------------------------------------------


def judged(whole: Federation, levels: Tensor) -> Any:
    asked = question(whole)
    return Judge.of(labelled(whole), whole.parties[0].columns, asked.sample).gain(levels)


def test_a_constant_adds_exactly_nothing() -> None:
    found = judged(federation(), torch.full((1000, 1), 7, dtype=torch.uint8))
    assert found.value == 0.0 and found.interval == (0.0, 0.0) and not found.sure


def test_repeating_the_labels_one_got_is_worth_nothing_since_they_are_of_other_rows() -> None:
    """And the same cheat would look splendid if rows whose labels were sent were judged: that is why they are not."""
    whole = federation()
    asked = question(whole)
    _, told = read_question(asked.release.payload, "trial", "shop", whole.rows, whole.task)
    cheat = (255 * told).to(torch.uint8)
    assert not judged(whole, cheat).sure
    fooled = Judge.of(labelled(whole), whole.parties[0].columns, Sample(asked.sample.judged, asked.sample.told))
    assert fooled.gain(cheat).sure and fooled.gain(cheat).value > 0.05


def test_noise_is_rarely_mistaken_for_knowledge() -> None:
    """Over many strangers the lower end of the interval is above 0 in about one of forty."""
    whole = federation(rows=1200)
    sample = draw_sample(whole.split.train, 400, 0)
    judge = Judge.of(labelled(whole), whole.parties[0].columns, sample)
    rng = np.random.default_rng(5)
    found = [judge.gain(torch.from_numpy(rng.integers(0, 256, (400, 1)).astype(np.uint8))) for _ in range(40)]
    assert sum(one.sure for one in found) <= 3
    assert abs(float(np.mean([one.value for one in found]))) < 0.004


def test_tied_scores_of_several_folds_do_not_invent_a_gain() -> None:
    """The own score is one number per fold: pooled over folds noise would rank rows by the level of their fold."""
    whole = federation(rows=1200)
    truth = whole.labels[:1000]
    folds = balanced_folds(truth, 0)
    own = folds[:, None].double()
    noise = torch.from_numpy(np.random.default_rng(2).integers(0, 256, (1000, 1)).astype(np.uint8))
    found = gain_of(whole.task, truth, own, noise, folds)
    assert found.alone == pytest.approx(0.5)
    assert not found.sure and abs(found.value) < 0.05


def message(**changes: Any) -> bytes:
    header = {"run": "trial", "number": 1, "kind": Purpose.EVALUATE.value, "part": 0, "sender": "shop"}
    arrays: dict[str, Tensor] = {"scores": torch.zeros(30, 1, dtype=torch.uint8)}
    return encode(header | changes.pop("header", {}), changes.pop("arrays", arrays))


def test_a_good_answer_is_read() -> None:
    assert read_answer(message(), "trial", "shop", 30, 1).shape == (30, 1)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"arrays": {"scores": torch.zeros(29, 1, dtype=torch.uint8)}}, "shape"),
        ({"arrays": {"scores": torch.zeros(31, 1, dtype=torch.uint8)}}, "shape"),
        ({"arrays": {"scores": torch.zeros(30, 2, dtype=torch.uint8)}}, "shape"),
        ({"arrays": {"scores": torch.zeros(30, 1)}}, "float32"),
        ({"arrays": {"scores": torch.zeros(30, 1, dtype=torch.int64)}}, "int64"),
        ({"arrays": {}}, "0 arrays"),
        ({"arrays": {"scores": torch.zeros(30, 1, dtype=torch.uint8), "more": torch.zeros(1)}}, "2 arrays"),
        ({"header": {"sender": "stranger"}}, "sender"),
        ({"header": {"run": "other"}}, "run"),
        ({"header": {"kind": "TRAIN"}}, "kind"),
        ({"header": {"number": 2}}, "number"),
    ],
)
def test_anything_but_that_many_bytes_is_refused_by_name(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(WireError, match=said):
        read_answer(message(**changes), "trial", "shop", 30, 1)


def test_bytes_that_are_no_message_and_messages_that_are_too_long_are_refused() -> None:
    for payload in (b"", b"\xff" * 50, message()[:-3]):
        with pytest.raises(WireError):
            read_answer(payload, "trial", "shop", 30, 1)
    long = message(arrays={"scores": torch.zeros(10**6, 1, dtype=torch.uint8)})
    with pytest.raises(WireError, match="limit"):
        read_answer(long, "trial", "shop", 30, 1)


def test_scores_that_are_no_numbers_do_not_leave_the_candidate() -> None:
    with pytest.raises(ModelError, match="shop"):
        as_levels(torch.tensor([[1.0], [float("nan")]]), "shop")
    far = torch.tensor([[0.0], [1.0]] * 1000 + [[1e30]], dtype=torch.float64)
    assert set(as_levels(far, "shop").flatten().tolist()) == {0, 255}  # one row cannot squeeze all others together


# -- what the label holder releases -------------------------------------------------------------


def test_what_leaves_does_not_depend_on_labels_of_judged_rows() -> None:
    whole = federation()
    asked = question(whole)
    changed = whole.labels.clone()
    changed[asked.sample.judged] = 1 - changed[asked.sample.judged]
    changed[whole.split.test] = 1 - changed[whole.split.test]
    assert question(replace(whole, labels=changed)).release.payload == asked.release.payload
    told = asked.sample.told[:1]
    changed = whole.labels.clone()
    changed[told] = 1 - changed[told]
    assert question(replace(whole, labels=changed)).release.payload != asked.release.payload


def test_labels_are_turned_round_as_often_as_epsilon_says_and_the_ledger_says_so() -> None:
    whole, ledger = federation(), Ledger()
    asked = question(whole, epsilon=1.0, ledger=ledger)
    _, told = read_question(asked.release.payload, "trial", "shop", whole.rows, whole.task)
    kept = float((told == whole.labels[asked.sample.told]).double().mean())
    assert kept == pytest.approx(np.e / (np.e + 1), abs=4 * np.sqrt(0.2 / 1000))
    (entry,) = ledger
    assert isinstance(entry.event, RandomisedResponseEvent) and entry.event.epsilon == 1.0
    assert (entry.owner, entry.unit, entry.rows) == (COORDINATOR, Unit.LABEL, 1000)
    assert ledger.holds(asked.release.digest)


def test_both_sides_write_what_left_and_the_same_again_is_no_second_release() -> None:
    whole, holder, candidate = federation(), Ledger(), Ledger()
    shop = whole.parties[1].columns
    asked = [question(whole, ledger=holder) for _ in range(2)]
    assert asked[0].release.payload == asked[1].release.payload and len(holder) == 1
    answers = [answer("trial", "shop", shop, asked[0].release.payload, whole.task, candidate) for _ in range(2)]
    assert answers[0].payload == answers[1].payload and len(candidate) == 1
    (entry,) = candidate
    assert (entry.owner, entry.purpose, entry.rows) == ("shop", Purpose.EVALUATE, 1000)


def test_rows_that_validate_and_test_are_not_touched() -> None:
    whole = federation()
    asked = question(whole)
    kept = torch.cat([whole.split.validation, whole.split.test])
    assert not bool(torch.isin(kept, torch.cat([asked.sample.told, asked.sample.judged])).any())
    assert not bool(torch.isin(asked.sample.told, asked.sample.judged).any())


# -- questions that are none --------------------------------------------------------------------


def forged(whole: Federation, change: Any) -> bytes:
    header, arrays = decode(question(whole).release.payload)
    change(header, arrays)
    return encode({k: v for k, v in header.items() if k != "version"}, arrays)


@pytest.mark.parametrize(
    "change",
    [
        lambda h, a: h.update(run="other"),
        lambda h, a: h.update(asks=h["asks"][:1]),
        lambda h, a: h.update(asks=h["asks"][::-1]),
        lambda h, a: a.pop("flags.targets"),
        lambda h, a: a.update({"bits.1": a["bits.0"]}),  # told rows are judged
        lambda h, a: a.update({"bits.1": torch.full((4000,), 255, dtype=torch.uint8)}),  # rows that do not exist
        lambda h, a: a.update({"length.targets": torch.tensor([999], dtype=torch.int32)}),
        lambda h, a: (a.pop("flags.targets"), a.update({"common.targets": torch.full((1000, 1), 2)})),
        lambda h, a: (a.pop("flags.targets"), a.update({"common.targets": torch.zeros(1000, 1)})),
    ],
)
def test_a_candidate_refuses_what_is_no_question(change: Any) -> None:
    whole = federation()
    read_question(question(whole).release.payload, "trial", "shop", whole.rows, whole.task)
    with pytest.raises(WireError):
        read_question(forged(whole, change), "trial", "shop", whole.rows, whole.task)


def test_what_cannot_be_asked_is_refused_by_name() -> None:
    whole = federation()
    cases: list[tuple[dict[str, Any], type[ColonnadeError], str]] = [
        ({}, ConfigError, "holder="),
        ({"holder": "nobody"}, ConfigError, "nobody"),
        ({"holder": "bank", "epsilon": 0.0}, ConfigError, "epsilon"),
        ({"holder": "bank", "epsilon": float("inf")}, ConfigError, "epsilon"),
        ({"holder": "bank", "rows": 5}, ConfigError, "rows = 5"),
        ({"holder": "bank", "labels": "y"}, ConfigError, "leave out labels"),
    ]
    for said, error, words in cases:
        with pytest.raises(error, match=words):
            cn.worth(whole, **said)
    with pytest.raises(ConfigError, match="nobody else"):
        cn.worth(whole.only(["bank"]), holder="bank")
    with pytest.raises(DataError, match="training rows"):
        cn.worth(federation(rows=350), holder="bank")
    stratified = replace(whole, split=replace(whole.split, stratified=True))
    with pytest.raises(ConfigError, match="in proportion to the classes"):
        cn.worth(stratified, holder="bank", rows=1000)
    counted = replace(whole, task=Binary(1, ("good", "bad"), positive=_counted()))
    with pytest.raises(ConfigError, match="counting the labels"):
        cn.worth(counted, holder="bank", rows=1000)


def _counted() -> str:
    from colonnade.tasks.reading import COUNTED

    return next(iter(COUNTED))


# -- what only shows together -------------------------------------------------------------------


def together(rows: int = 3000, turned: bool = True) -> Federation:
    """A yes where the second columns of both have the same sign, most of the time; or where the bank's is positive."""
    rng = np.random.default_rng(8)
    bank, shop = rng.normal(size=(2, rows, 2))
    sign = np.sign(bank[:, 1] * (shop[:, 1] if turned else 1))
    labels = (0.5 * bank[:, 0] + 0.5 * shop[:, 0] + 1.5 * sign + rng.logistic(size=rows) > 0).astype(int)
    everything = torch.arange(rows)
    split = RowSplit(everything[: rows - 200], everything[rows - 200 : rows - 100], everything[rows - 100 :])
    return Federation.from_arrays({"bank": bank, "shop": shop}, labels, split=split)


def test_what_only_shows_together_is_seen_and_warned_of_by_name() -> None:
    found = cn.worth(together(), holder="bank", interactions=2, epsilon=3.0)
    shop = found["shop"]
    assert shop.interaction is not None and shop.interaction.sure and shop.interaction.value > 0.1
    assert "shop: its columns and the label holder's say something together" in str(found)
    assert "agree with the sides of 2 columns" in found.released
    assert found.to_json()["candidates"][0]["interaction"] == shop.interaction.value  # type: ignore[index]
    (down,) = (entry for entry in found.ledger if entry.owner == COORDINATOR)
    assert isinstance(down.event, RandomisedResponseEvent)
    assert (down.event.epsilon, down.event.outputs) == (3.0, 3.0)
    assert down.event.keep == pytest.approx(np.e / (np.e + 1))  # each of three bits has a third of it


def test_where_nothing_shows_only_together_nobody_is_warned() -> None:
    found = cn.worth(together(turned=False), holder="bank", interactions=2, epsilon=3.0)
    assert found["shop"].interaction is not None and not found["shop"].interaction.sure
    assert "together" not in str(found["shop"].sentence()) and found["shop"].warning() == ""
    assert cn.worth(together(), holder="bank", epsilon=3.0)["shop"].interaction is None


def test_a_candidate_cannot_make_up_an_interaction_from_what_it_was_told() -> None:
    whole = together()
    sample = draw_sample(whole.split.train, 1000, 0)
    sides = sides_of(whole.parties[0].columns, whole.split.train, 2)
    asked = ask("trial", ("shop",), labelled(whole), sample, 3.0, KEY, Ledger(), sides)
    _, told = read_question(asked.release.payload, "trial", "shop", whole.rows, asked.task)
    judge = Judge.of(labelled(whole), whole.parties[0].columns, sample, sides=sides)
    for cheat in (255 * told, torch.full_like(told, 9), 255 * told.flip(0)):
        found = judge.interaction(cheat.to(torch.uint8))
        assert found is not None and not found.sure


def test_interactions_need_a_yes_or_no_and_a_column_with_two_sides() -> None:
    with pytest.raises(ConfigError, match="yes or no"):
        cn.worth(federation("multiclass"), holder="bank", rows=1000, interactions=2)
    with pytest.raises(ConfigError, match="two sides"):
        sides_of(torch.ones(300, 2), torch.arange(300), 2)
    assert cn.worth(federation("regression"), holder="bank", rows=1000, interactions=2)["shop"].interaction is not None
