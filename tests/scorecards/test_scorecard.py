"""Scorecards against slower ways to the same numbers, and what they release of the labels."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

import colonnade as cn
from colonnade.data.bins import Bins
from colonnade.errors import ColonnadeError, ConfigError, DataError, RunError
from colonnade.models.evidence import Evidence
from colonnade.models.monotone import merge
from colonnade.models.points import Scale
from colonnade.privacy.events import Unit
from colonnade.privacy.labels.randomised import RandomisedResponseEvent
from colonnade.privacy.labels.settings import LabelSettings, open_labels
from colonnade.randomness import key
from colonnade.scorecards.card import Scorecard
from tests.explain.shoppers import shoppers

ROWS = 600
TABLES = shoppers(ROWS)
ASKED: dict[str, Any] = {"labels": "churn", "id": "customer"}


@cache
def plain() -> Scorecard:
    return cn.scorecard(TABLES, release_labels=True, **ASKED)


@cache
def noisy(seed: int = 0) -> Scorecard:
    return cn.scorecard(TABLES, label_epsilon=2.0, classes=["no", "yes"], seed=seed, **ASKED)


@cache
def federation(stratify: bool = True) -> cn.Federation:
    return cn.Federation.from_tables(TABLES, split=None if stratify else {"stratify": False}, **ASKED)


def yes() -> np.ndarray:
    return (TABLES["telco"]["churn"] == "yes").to_numpy()


class TestEvidence:
    @pytest.mark.parametrize(("party", "column"), [("bank", "income"), ("bank", "age"), ("telco", "city")])
    def test_it_is_that_of_a_cross_table(self, party: str, column: str) -> None:
        train = federation().split.train.numpy()
        values = TABLES[party][column].iloc[train]
        if column == "city":
            binned = values
        else:
            cuts = values.quantile([0.2, 0.4, 0.6, 0.8], interpolation="lower")
            binned = pd.cut(values, [-np.inf, *cuts, np.inf]).cat.add_categories("empty").fillna("empty")
        counts = pd.crosstab(binned, yes()[train])
        shares = counts / counts.sum()
        woe = np.log(shares[False] / shares[True])
        card = next(one for one in plain().party(party).columns if one.bins.column == column)
        used = card.evidence.rows > 0
        np.testing.assert_allclose(card.evidence.woe[used], woe, atol=1e-12)
        np.testing.assert_array_equal(card.evidence.events[used], counts[True])
        assert card.evidence.iv == pytest.approx(((shares[False] - shares[True]) * woe).sum(), abs=1e-12)
        assert not card.evidence.noise.any()

    def test_a_bin_of_one_class_gets_half_a_row_of_both(self) -> None:
        found = Evidence.of(np.array([0, 0, 1, 1, 1]), np.array([0.0, 0, 0, 1, 1]), 3)
        good, bad = np.array([2.5, 1.0]) / 3.5, np.array([0.5, 2.0]) / 2.5
        np.testing.assert_allclose(found.woe, [*np.log(good / bad), 0.0])
        assert found.events.tolist() == [0, 2, 0]

    def test_estimates_from_replaced_labels_are_right_on_average(self) -> None:
        rng, keep = np.random.default_rng(0), 0.8
        codes = rng.integers(0, 3, 3000)
        truth = rng.random(3000) < np.array([0.2, 0.5, 0.8])[codes]
        found = []
        for _ in range(200):
            said = np.where(rng.random(3000) < keep, truth, ~truth).astype(float)
            found.append(Evidence.of(codes, said, 3, keep))
        events = np.stack([one.events for one in found])
        exact = np.bincount(codes, weights=truth)
        assert np.all(np.abs(events.mean(axis=0) - exact) < 4 * found[0].noise / math.sqrt(200))
        np.testing.assert_allclose(events.std(axis=0), found[0].noise, rtol=0.2)


class TestMonotone:
    @pytest.mark.parametrize("keep", [1.0, 0.8])
    @pytest.mark.parametrize("rising", [True, False])
    def test_rates_are_those_of_an_isotonic_regression(self, rising: bool, keep: float) -> None:
        rng = np.random.default_rng(int(rising))
        rows = rng.integers(5, 60, 14).astype(float)
        rate = np.linspace(0.1, 0.9, 14)[:: 1 if rising else -1] + rng.normal(0, 0.2, 14)
        yes = np.round(rows * np.clip(rate, 0.05, 0.95))
        whole, told = np.append(rows, [0.0, 30.0]), np.append(yes, [0.0, 11.0])  # a bin without rows, an empty one
        found = merge(whole, told, keep, ordered=15)
        slow = IsotonicRegression(increasing=rising).fit(np.arange(14), yes / rows, rows).predict(np.arange(14))
        blocks = np.append(np.unique(np.round(slow, 9), return_inverse=True)[1], [20, 21])
        assert len(set(blocks)) < 16, "some are merged"
        counts, events = (np.bincount(blocks, weights=values) for values in (whole, told))
        np.testing.assert_allclose(found.woe, Evidence.counted(counts, events, keep).woe[blocks], atol=1e-9)
        plain = Evidence.counted(whole, told, keep)
        assert found.woe[14] == 0 and found.events[15] == plain.events[15]
        estimated = (events - (1 - keep) * counts) / (2 * keep - 1)
        np.testing.assert_allclose(np.bincount(blocks, found.events), np.clip(estimated, 0, counts), atol=1e-9)

    def test_the_bins_of_a_card_are_merged(self) -> None:
        card = cn.scorecard(TABLES, release_labels=True, monotone=True, bins=12, rounds=20, **ASKED)
        free = cn.scorecard(TABLES, release_labels=True, bins=12, rounds=20, **ASKED)
        for party in ("bank", "telco"):
            for one, before in zip(card.party(party).columns, free.party(party).columns, strict=True):
                assert one.evidence.rows.sum() == before.evidence.rows.sum()
                assert one.evidence.events.sum() == pytest.approx(before.evidence.events.sum())
                if one.bins.kind == "level":
                    assert one.bins == before.bins
                    continue
                assert set(one.bins.cuts) <= set(before.bins.cuts)
                steps = np.diff(one.evidence.woe[:-1])
                assert np.all(steps > 0) or np.all(steps < 0), one.bins.column
        assert len(card.party("bank").columns[1].bins.cuts) < len(free.party("bank").columns[1].bins.cuts), (
            "age says little"
        )
        points = card.score(TABLES, id="customer").to_numpy()
        assert points[~yes()].mean() > points[yes()].mean() + 40


class TestPoints:
    def test_a_score_is_added_up_by_hand_from_the_saved_tables(self, tmp_path: Path) -> None:
        card = plain()
        card.save(tmp_path)
        new = shoppers(40, seed=9)
        hand = np.full(40, card.base_points)
        for party in ("bank", "telco"):
            with (tmp_path / f"{party}.csv").open() as file:
                lines = list(csv.DictReader(file))
            for line in lines:
                inside = [_inside(line["bin"], value) for value in new[party][line["column"]]]
                hand = hand + np.array(inside) * int(line["points"])
        points = card.score({"bank": new["bank"].sample(frac=1, random_state=1), "telco": new["telco"]}, id="customer")
        assert points.loc[range(40)].tolist() == hand.tolist()
        assert Scorecard.load(tmp_path).score(new, id="customer").tolist() == hand.tolist()

    def test_rows_are_matched_by_the_id_that_it_was_made_with(self, tmp_path: Path) -> None:
        """By position they would get points of several people, without a word."""
        new = shoppers(40, seed=9)
        mixed = {**new, "bank": new["bank"].sample(frac=1, random_state=1).reset_index(drop=True)}
        expected = plain().score(new, id="customer")
        plain().save(tmp_path / "named")
        one = cn.scorecard(TABLES, release_labels=True, labels="churn", id=["customer"])
        for card in (plain(), Scorecard.load(tmp_path / "named"), one):
            assert card.score(mixed).loc[expected.index].tolist() == expected.tolist()
        assert plain().score(mixed, id={"bank": "customer"}).loc[expected.index].tolist() == expected.tolist()
        without = {party: table.drop(columns="customer") for party, table in new.items()}
        assert plain().score(without).tolist() == expected.tolist()  # there is none: in order
        with pytest.raises(DataError, match="party 'bank' has no id column 'customer', and party 'telco' has one"):
            plain().score({**new, "bank": without["bank"]})

    def test_points_are_log_odds_of_a_logistic_regression(self) -> None:
        """scikit-learn on the same evidence, all in one place."""
        card, train = plain(), federation().split.train.numpy()
        each = [
            one.evidence.woe[codes]
            for mine in card.parties
            for one, codes in zip(mine.columns, mine.codes(TABLES[mine.party]), strict=True)
        ]
        woe, strength = np.stack(each, axis=1), 1 / (2 * 1e-4 * len(train))  # beta of the method
        central = LogisticRegression(C=strength, tol=1e-10, max_iter=2000).fit(woe[train], yes()[train])
        weights = [one.weight for party in card.parties for one in party.columns]
        np.testing.assert_allclose(weights, central.coef_[0], atol=0.02)
        scale = card.scale
        exact = scale.offset - scale.factor * central.decision_function(woe)
        assert np.abs(card.score(TABLES, id="customer").to_numpy() - exact).max() < len(weights) / 2 + 3
        np.testing.assert_allclose(card.probability(exact), central.predict_proba(woe)[:, 1])

    def test_the_scale(self) -> None:
        scale = Scale(600, 50, 20)
        assert scale.offset + scale.factor * math.log(50) == pytest.approx(600)
        assert scale.offset + scale.factor * math.log(100) == pytest.approx(620)
        card = plain()
        assert card.probability(600) == pytest.approx(1 / 51) and card.probability(620) == pytest.approx(1 / 101)

    def test_the_card_separates(self) -> None:
        points = plain().score(TABLES, id="customer").to_numpy()
        assert points[~yes()].mean() > points[yes()].mean() + 60
        assert (plain().metrics["auc"] or 0) > 0.9 and plain().event == "yes"
        noise = noisy().score(TABLES, id="customer").to_numpy()
        assert noise[~yes()].mean() > noise[yes()].mean() + 40


def _inside(name: str, value: Any) -> bool:
    """Whether a value is in a bin, by its name alone."""
    if pd.isna(value) or name == "empty":
        return bool(pd.isna(value)) and name == "empty"
    if isinstance(value, str):
        return name == value
    value, read = (pd.Timestamp(value), pd.Timestamp) if isinstance(value, pd.Timestamp) else (float(value), float)
    words = name.split(" ")
    if words[0] == "x":
        return bool(value <= read(words[2]) if words[1] == "<=" else value > read(words[2]))
    return bool(read(words[0]) < value <= read(words[4]))


class TestLabels:
    def test_without_a_word_nothing_is_released(self) -> None:
        with pytest.raises(ConfigError, match=r"tell bank about the labels.*--label-epsilon.*--release-labels"):
            cn.scorecard(TABLES, **ASKED)

    def test_the_label_holders_own_columns_need_no_release(self) -> None:
        card = cn.scorecard({"telco": TABLES["telco"]}, **ASKED)
        assert card.labels == "All columns are the label holder's own: no label left it."
        assert not [entry for entry in card.ledger if entry.number == 0]

    def test_plain_labels_stand_in_the_ledger(self) -> None:
        first = next(iter(plain().ledger))
        assert first.event.bare and first.unit is Unit.LABEL and first.rows == len(federation().split.train)
        assert "released to bank without protection" in plain().labels

    def test_noisy_labels_stand_in_the_ledger_with_their_epsilon(self) -> None:
        labels = [entry.event for entry in noisy().ledger if isinstance(entry.event, RandomisedResponseEvent)]
        assert labels and {event.epsilon for event in labels} == {2.0}, "one epsilon for evidence and training"
        bare = [entry for entry in noisy().ledger if entry.unit is Unit.LABEL and entry.event.bare]
        assert bare == []
        for word in ("epsilon 2,", "delta 0", "unit LABEL", "one row's whole label replaced", "Not covered:", "seed"):
            assert word in noisy().labels

    def test_events_are_estimated_from_the_labels_that_training_gets(self) -> None:
        data = federation(stratify=False)
        train = data.split.train
        asked = LabelSettings(mechanism="randomised_response", epsilon=2.0)
        drawn = open_labels(data.labels, data.task, train, asked, key(0, "label noise"), data.split.validation)
        said, keep = drawn.compact(train).flatten().numpy(), 1 / (1 + math.exp(-2.0))
        assert 0 < (said != yes()[train.numpy()]).mean() < 0.25
        city = next(one for one in noisy().party("telco").columns if one.bins.column == "city")
        for at, name in enumerate(city.bins.levels):
            here = (TABLES["telco"]["city"].iloc[train.numpy()] == name).to_numpy()
            expected = (said[here].sum() - (1 - keep) * here.sum()) / (2 * keep - 1)
            assert city.evidence.events[at] == pytest.approx(expected)

    def test_other_labels_behind_the_same_noisy_ones_give_the_same_card(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Nothing of a card but the measures on test rows may know a label that was not released."""
        reference = federation(stratify=False).labels

        def fixed(values: Any, *rest: Any) -> Any:
            return open_labels(reference, *rest)

        monkeypatch.setattr("colonnade.opening.open_labels", fixed)
        flipped = TABLES["telco"].assign(churn=np.where(np.arange(ROWS) % 3 == 0, "yes", TABLES["telco"]["churn"]))
        other = cn.scorecard(
            {**TABLES, "telco": flipped}, label_epsilon=2.0, classes=["no", "yes"], **ASKED
        )  # fmt: skip
        told = [{k: v for k, v in card.to_json().items() if k != "metrics"} for card in (noisy(), other)]
        assert told[0] == told[1]
        assert noisy().metrics != other.metrics

    def test_the_seed_draws_other_noise(self) -> None:
        assert noisy(1).to_json()["parties"] != noisy().to_json()["parties"]

    @pytest.mark.parametrize(
        ("asked", "told"),
        [
            ({"label_epsilon": 1.0, "release_labels": True}, "say one"),
            ({"label_epsilon": 0.0, "classes": ["no", "yes"]}, "epsilon"),
            (
                {"label_epsilon": 1.0, "split": {"stratify": True}, "classes": ["no", "yes"]},
                "in proportion to the classes",
            ),
            ({"release_labels": True, "bins": 1}, "bins = 1: needed a whole number from 2"),
            ({"release_labels": True, "pdo": 0}, "pdo = 0: needed a number above 0"),
            ({"release_labels": True, "odds": math.inf}, "odds = inf: needed a number above 0"),
        ],
        ids=str,
    )
    def test_what_makes_no_sense_is_refused(self, asked: dict[str, Any], told: str) -> None:
        with pytest.raises(ColonnadeError, match=told):
            cn.scorecard(TABLES, **ASKED, **asked)

    @pytest.mark.parametrize(
        ("change", "told"),
        [
            (lambda t: t.assign(churn=np.arange(ROWS) % 3 + 0.5), "a scorecard needs yes/no labels"),
            (
                lambda t: t.assign(churn=np.array(["a", "b", "c"])[np.arange(ROWS) % 3]),
                "a scorecard needs yes/no labels",
            ),
        ],
        ids=["numbers", "three classes"],
    )
    def test_other_labels_are_refused(self, change: Callable[[pd.DataFrame], pd.DataFrame], told: str) -> None:
        with pytest.raises(ConfigError, match=told):
            cn.scorecard({**TABLES, "telco": change(TABLES["telco"])}, release_labels=True, **ASKED)

    def test_a_class_that_was_found_by_counting_is_refused_under_an_epsilon(self) -> None:
        named = TABLES["telco"].assign(churn=TABLES["telco"]["churn"].map({"yes": "leaves", "no": "stays"}))
        with pytest.raises(ConfigError, match="which class counts as yes was found by counting the labels"):
            cn.scorecard({**TABLES, "telco": named}, label_epsilon=1.0, **ASKED)


class TestNewRows:
    def test_a_missing_column_is_refused_by_name(self) -> None:
        with pytest.raises(DataError, match="party 'bank': the table lacks the column 'age' of the scorecard"):
            plain().score({**TABLES, "bank": TABLES["bank"].drop(columns="age")}, id="customer")

    def test_another_type_is_refused_by_name(self) -> None:
        with pytest.raises(DataError, match="party 'bank', column 'income': the scorecard has bins of numbers for it"):
            plain().score({**TABLES, "bank": TABLES["bank"].assign(income="much")}, id="customer")

    def test_unknown_levels_and_empty_values_have_bins(self) -> None:
        table = TABLES["telco"][:3].assign(city=["Rome", None, "Ulm"])
        codes = plain().party("telco").codes(table)[1]
        assert [plain().party("telco").columns[1].bins.names[code] for code in codes] == ["other", "empty", "Ulm"]

    def test_codes_that_mean_an_empty_value_mean_it_in_new_rows(self, tmp_path: Path) -> None:
        coded = {**TABLES, "bank": TABLES["bank"].assign(age=TABLES["bank"]["age"].fillna(-999))}
        said = {"bank": {"by_name": {"age": {"empty": [-999]}}}}
        cn.scorecard(coded, release_labels=True, columns=said, **ASKED).save(tmp_path)
        again = Scorecard.load(tmp_path)
        assert again.score(coded, id="customer").tolist() == plain().score(TABLES, id="customer").tolist()

    def test_a_column_in_one_bin_is_left_out_and_named(self) -> None:
        same = {**TABLES, "bank": TABLES["bank"].assign(country="DE")}
        card = cn.scorecard(same, release_labels=True, **ASKED)
        assert any("bank: left out" in note and "country" in note for note in card.notes)
        for mine, without in zip(card.parties, plain().parties, strict=True):
            assert [one.points for one in mine.columns] == [one.points for one in without.columns]
            one, other = ([column.weight for column in found.columns] for found in (mine, without))
            np.testing.assert_allclose(one, other, atol=1e-9)


class TestFiles:
    def test_a_damaged_file_and_an_empty_folder_are_refused(self, tmp_path: Path) -> None:
        with pytest.raises(RunError, match=r"has no scorecard\.json"):
            Scorecard.load(tmp_path)
        plain().save(tmp_path)
        (tmp_path / "scorecard.json").write_text('{"format": 1}')
        with pytest.raises(RunError, match="is damaged"):
            Scorecard.load(tmp_path)
        (tmp_path / "scorecard.json").write_text('{"format": 9}')
        with pytest.raises(RunError, match="has format 9; this version reads 1"):
            Scorecard.load(tmp_path)

    def test_printed_it_shows_bins_and_points(self) -> None:
        shown = str(plain())
        assert "Points warn of 'yes'" in shown and "city" in shown and "points" in shown


def test_cuts_leave_no_bin_without_rows() -> None:
    values = np.array([0.0] * 50 + [1.0, 2.0, 3.0] * 10 + [math.nan])
    bins = Bins.of_numbers("x", "number", values, 5)
    codes = bins.codes("bank", pd.Series(values))
    assert bins.cuts == (0.0, 2.0) and set(codes) == set(range(len(bins.names)))
    assert bins.names[0] == "x <= 0" and bins.names[-1] == "empty"
    assert torch.equal(torch.tensor(codes[:50]), torch.zeros(50, dtype=torch.int64))


def test_cuts_are_exactly_what_is_printed() -> None:
    """Also where values are large and close together."""
    rng = np.random.default_rng(0)
    for values in (1.6e9 + rng.normal(0, 40, 500), rng.normal(0, 1e-7, 500), rng.normal(0, 1e12, 500)):
        bins = Bins.of_numbers("x", "number", values, 5)
        assert len(bins.cuts) == 4
        assert [float(name.split(" <= ")[1]) for name in bins.names[:-2]] == list(bins.cuts)
