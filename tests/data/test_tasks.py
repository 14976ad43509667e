"""What labels mean: which task is guessed, what is refused, which of two classes is the positive one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from colonnade.checkpoint import fingerprint
from colonnade.errors import ColonnadeError, ConfigError, DataError
from colonnade.federation import Federation, RowSplit
from colonnade.fit import fit
from colonnade.job import load_data
from colonnade.methods import VIMADMM
from colonnade.tasks import guess, ways_to_read
from tests.trainers import TINY

X = {"a": np.random.default_rng(0).normal(size=(60, 2))}


def of(labels: Any, **options: Any) -> Federation:
    return Federation.from_arrays(X, np.resize(np.asarray(labels), 60), **options)


@pytest.mark.parametrize(
    ("labels", "names", "first"),
    [
        ([0, 1], (), 0.0),
        ([1, 2], ("1", "2"), 0.0),
        ([1.0, 0.0], (), 1.0),
        ([-1, 1], ("-1", "1"), 0.0),
        ([True, False], ("False", "True"), 1.0),
        (["yes", "no"], ("no", "yes"), 1.0),
        (["Yes", "unknown"], ("unknown", "Yes"), 1.0),
        (["n", "y"], ("n", "y"), 0.0),
        (["1", "0"], ("0", "1"), 1.0),
        (["good", "good", "bad"], ("good", "bad"), 0.0),
        (["bad", "bad", "good"], ("bad", "good"), 0.0),
        ([2, 1, 1], ("1", "2"), 1.0),
        ([1, 2, 2], ("2", "1"), 1.0),
    ],
)
def test_two_values_are_yes_or_no_and_the_positive_one_comes_second(
    labels: list[Any], names: tuple[str, ...], first: float
) -> None:
    federation = of(labels)
    assert (federation.task.name, federation.outputs, federation.task.names) == ("binary", 1, names)
    assert federation.labels.shape == (60, 1) and federation.labels[0, 0] == first


def test_more_texts_are_classes_in_sorted_order() -> None:
    federation = of(["red", "green", "blue"])
    assert federation.task.name == "multiclass" and federation.task.names == ("blue", "green", "red")
    assert federation.labels[:3].tolist() == [2, 1, 0]


def test_fractions_are_a_number_to_predict() -> None:
    federation = of([0.5, 1.0, 2.25])
    assert federation.task.name == "regression" and federation.labels.shape == (60, 1)


@pytest.mark.parametrize("labels", [range(21), [1, 2, 3], np.array([0.0, 1.0, 7.0])])
def test_more_whole_numbers_are_refused_with_the_ways_to_say_it(labels: Any) -> None:
    with pytest.raises(DataError, match=r'"multiclass" \(classes\), task="count" .* or task="regression"'):
        of(labels)
    assert of(labels, task="regression").task.name == "regression"
    assert of(labels, task="multiclass").outputs == len(list(labels))


def test_two_fractions_are_refused() -> None:
    with pytest.raises(DataError, match=r'task="binary".*task="regression"'):
        of([0.5, 1.5])


def test_one_value_is_refused() -> None:
    for labels, task in (([3], None), (["no"], None), ([0], "multiclass"), ([0], "binary")):
        with pytest.raises(DataError, match=r"nothing to learn|two different labels"):
            of(labels, task=task)


def test_classes_are_the_values_that_occur_and_keep_their_names() -> None:
    federation = of([1, 2, 3], task="multiclass")
    assert federation.outputs == 3 and federation.task.names == ("1", "2", "3")
    assert federation.labels[:3].tolist() == [0, 1, 2]
    assert of([0, 5, 10], task="multiclass").task.names == ("0", "5", "10")


def test_numbers_from_zero_stay_as_they_are() -> None:
    federation = of(range(10), task="multiclass")
    assert federation.labels[:10].tolist() == list(range(10)) and federation.task.names == ()


def test_a_class_without_a_row_is_kept_where_classes_are_said() -> None:
    federation = of([0, 1, 3], task="multiclass", classes=5)
    assert federation.outputs == 5 and federation.labels[:3].tolist() == [0, 1, 3]
    named = of(["low", "high"], task="multiclass", classes=["low", "middle", "high"])
    assert named.outputs == 3 and named.labels[:2].tolist() == [0, 2]
    assert of(["bad", "good"], classes=["bad", "good"]).task.names == ("bad", "good")
    assert of([1, 2], classes=[2, 1]).labels[:2, 0].tolist() == [1, 0]


@pytest.mark.parametrize(
    ("labels", "options", "sentence"),
    [
        ([0, 1, 7], {"task": "multiclass", "classes": 5}, "whole numbers from 0 to 4; got from 0 to 7"),
        (["a", "b"], {"task": "multiclass", "classes": 5}, "got as text, e.g. 'a'"),
        (["a", "x"], {"classes": ["a", "b"]}, "the label 'x' is none of the classes 'a', 'b'"),
        (["a", "b"], {"task": "binary", "classes": ["a", "b", "c"]}, "a yes/no task has 2"),
        ([0, 1], {"classes": ["a", "a"]}, "different names"),
        ([0, 1], {"classes": "yes"}, "different names"),
        ([0.5, 1.5], {"task": "regression", "classes": 2}, "is for classes"),
        ([0.5, 1.5, 2.0], {"task": "multiclass"}, "whole numbers or text"),
        ([0, 1, 2], {"task": "binary"}, r"two different labels; got 3 \(0, 1, 2\)"),
        (["a", "b"], {"task": "regression"}, "needs numbers as labels; got text"),
    ],
)
def test_labels_that_do_not_fit_are_refused(labels: list[Any], options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ColonnadeError, match=sentence):
        of(labels, **options)


def test_several_columns() -> None:
    flags = np.stack([np.arange(60) % 2, np.arange(60) % 3 == 0], axis=1)
    assert Federation.from_arrays(X, flags).task.name == "multilabel"
    assert Federation.from_arrays(X, flags[:, :1]).task.name == "binary"
    with pytest.raises(DataError, match=r"one label column; got 2\. Choose one .* task=\"multilabel\""):
        Federation.from_arrays(X, flags, task="binary")


def test_an_id_column_is_not_classes() -> None:
    with pytest.raises(DataError, match="class of its own"):
        of(range(100, 160), task="multiclass")


def test_training_rows_of_one_class_are_refused() -> None:
    split = RowSplit(torch.arange(0, 40, 2), torch.arange(1, 40, 2), torch.arange(40, 60))
    with pytest.raises(DataError, match="all training rows have the label 'good'"):
        of(["good", "bad"], split=split)


def test_classes_that_only_test_rows_have_are_warned_of() -> None:
    labels = np.arange(60) % 2
    labels[50:] = 2
    split = RowSplit(torch.arange(30), torch.arange(30, 45), torch.arange(45, 60))
    federation = Federation.from_arrays(X, labels, task="multiclass", split=split)
    run = fit(federation, VIMADMM(), rounds=2, model=TINY)
    assert any("10 test rows have classes that no training row has (number 2)" in w for w in run.result["warnings"])


def test_the_positive_class_and_its_rule_are_recorded_and_said() -> None:
    run = fit(of(["good", "good", "bad"]), VIMADMM(), rounds=2, model=TINY)
    assert run.about["positive"] == {"class": "bad", "why": "the rarer of the two"}
    assert fit(of([0, 1]), VIMADMM(), rounds=2, model=TINY).about["positive"]["class"] == "1"


def test_label_privacy_needs_the_positive_class_named() -> None:
    """Found by counting, it could swap the meaning of every label when one changes."""
    privacy = {"labels": {"mechanism": "randomised_response", "epsilon": 1.0}}
    with pytest.raises(ConfigError, match=r"counting the labels .*name both"):
        fit(of(["good", "good", "bad"]), VIMADMM(), rounds=1, model=TINY, privacy=privacy)
    named = of(["good", "good", "bad"], classes=["good", "bad"])
    assert fit(named, VIMADMM(), rounds=1, model=TINY, privacy=privacy).about["positive"]["why"] == "as named"


def test_tables_follow_the_same_rules() -> None:
    frame = pd.DataFrame({"x": X["a"][:, 0], "marks": np.resize(range(21), 60), "good": np.resize([1, 2], 60)})
    with pytest.raises(DataError, match="label column 'marks': the labels are 21 different whole numbers from 0 to 20"):
        Federation.from_tables({"a": frame}, labels="marks")
    federation = Federation.from_tables({"a": frame}, labels="good")
    assert federation.task.name == "binary" and federation.task.names == ("1", "2") and federation.task.positive
    sparse = Federation.from_tables({"a": frame}, labels="good", task="multiclass", classes=[1, 2, 3])
    assert sparse.outputs == 3 and set(sparse.labels.tolist()) == {0, 1}


def test_data_of_a_run_of_the_first_version_mean_what_they_meant(tmp_path: Path) -> None:
    """Labels 1 and 2 were three classes then; resuming and predicting need the same labels again."""
    path = tmp_path / "a.csv"
    pd.DataFrame({"x": X["a"][:, 0], "good": np.resize([1, 2], 60)}).to_csv(path, index=False)
    data = {"tables": {"a": str(path)}, "labels": "good"}
    then = load_data(data, {"task": "multiclass", "outputs": 3, "class_names": []})
    assert (then.task.name, then.outputs) == ("multiclass", 3) and then.labels[:2].tolist() == [1, 2]
    now = load_data(data)
    assert now.task.name == "binary"
    again = load_data(data, {"task": "binary", "outputs": 1, "class_names": list(now.task.names)})
    assert fingerprint(again) == fingerprint(now) and again.task.names == now.task.names


@pytest.mark.parametrize(
    ("labels", "found"),
    [
        (["0", "1", "x"], "text among numbers (e.g. 'x')"),
        (["12", "13", "14", "not known"], "text among numbers (e.g. 'not known')"),
        (["12.5", "13.25", "7"], "numbers written as text (e.g. '12.5')"),
        (["12,5", "13,25", "?"], "numbers written as text (e.g. '12,5')"),
    ],
)
def test_one_stray_word_does_not_turn_numbers_into_classes(labels: list[str], found: str) -> None:
    with pytest.raises(DataError, match="multiclass") as refused:
        of(labels)
    assert found in str(refused.value)
    frame = pd.DataFrame({"x": range(60), "y": np.resize(labels, 60)})
    with pytest.raises(DataError, match="label column 'y'"):
        Federation.from_tables({"a": frame}, labels="y")
    assert of(labels, task="multiclass").outputs == len(labels)


def test_text_that_is_not_mostly_numbers_stays_classes() -> None:
    assert of(["1", "2", "a", "b"]).task.names == ("1", "2", "a", "b")
    assert of(["1", "2", "3"]).task.names == ("1", "2", "3")


@pytest.mark.parametrize(
    ("labels", "classes", "kind"),
    [
        ([1, 2], None, "whole numbers"),
        ([1, 2], [1, 2, 3], "whole numbers"),
        ([1, 2], ["1", "2", "other"], "text"),
        ([0.5, 1.0], [0.5, 1.0], "numbers"),
        ([True, False], None, "booleans"),
        ([True, False], ["False", "True", "x"], "text"),
        (["1", "2"], None, "text"),
    ],
)
def test_the_kind_of_the_labels_is_kept_where_all_classes_are_of_it(labels: Any, classes: Any, kind: str) -> None:
    task = "multiclass" if classes is not None and len(classes) > 2 else "binary"
    assert of(labels, classes=classes, task=task).task.kind == kind


@pytest.mark.parametrize(
    "values", [[0, 1], [1.5, 2.5], ["a", "b"], ["a", "b", "c"], [0, 1, 2], [-1, 0, 1], [0.5, 1.0, 7.0], [3, 3]]
)
def test_a_task_is_guessed_where_there_is_one_way_to_read_the_labels(values: list[Any]) -> None:
    ways = ways_to_read(np.unique(values))
    if len(ways) == 1:
        assert guess(np.asarray(values)) is ways[0]
        return
    with pytest.raises(DataError) as refused:
        guess(np.asarray(values))
    assert all(f'task="{way.name}"' in str(refused.value) for way in ways)
