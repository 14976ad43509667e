"""Tables, labels and weights that are matched by position, and whose pandas indexes say that they must not be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import colonnade as cn
from colonnade.errors import RowsDisagree
from colonnade.federation import Federation

ROWS = 60
IDS = [f"{row:03d}" for row in np.random.default_rng(0).permutation(ROWS)]


def columns(index: Any = None) -> tuple[pd.DataFrame, pd.DataFrame, pd.Series]:
    """Two parties' columns and the labels; row i of each is the same row."""
    rng = np.random.default_rng(1)
    bank = pd.DataFrame({"income": rng.normal(size=ROWS), "age": rng.normal(size=ROWS)}, index=index)
    telco = pd.DataFrame({"minutes": rng.normal(size=ROWS)}, index=index)
    return bank, telco, pd.Series(np.where(bank["income"] > telco["minutes"], "yes", "no"), index=index)


def moved(rows: Any) -> Any:
    return rows.sample(frac=1, random_state=1)


class TestWithoutIds:
    def test_a_table_in_another_order_is_refused(self) -> None:
        bank, telco, labels = columns()
        with pytest.raises(RowsDisagree, match=r"party 'telco': the index has the same rows as that of party 'bank'"):
            Federation.from_tables({"bank": bank, "telco": moved(telco)}, labels=labels)

    def test_labels_in_another_order_are_refused(self) -> None:
        bank, telco, labels = columns()
        with pytest.raises(RowsDisagree, match=r"the labels: the index .* reset_index\(drop=True\).* name an id"):
            Federation.from_tables({"bank": moved(bank), "telco": moved(telco)}, labels=labels)
        found = cn.check({"bank": bank, "telco": telco}, labels=moved(labels))
        assert any(one.startswith("the labels: the index") for one in found.errors)

    def test_weights_in_another_order_are_refused(self) -> None:
        bank, telco, labels = columns()
        weights = pd.Series(np.arange(1.0, ROWS + 1))
        with pytest.raises(RowsDisagree, match=r"the weights: the index has the same rows"):
            Federation.from_tables({"bank": bank, "telco": telco}, labels=labels, weights=moved(weights))

    def test_one_order_of_all_and_indexes_of_other_things_are_taken(self) -> None:
        bank, telco, labels = columns()
        expected = Federation.from_tables({"bank": bank, "telco": telco}, labels=labels)
        alike = {"bank": moved(bank), "telco": moved(telco)}
        taken = Federation.from_tables(alike, labels=moved(labels))
        order = moved(labels).index.tolist()
        np.testing.assert_array_equal(taken.labels, expected.labels[order])
        assert cn.check(alike, labels=moved(labels)).errors == []
        others = {"bank": bank, "telco": telco.set_axis(IDS)}  # says nothing about the rows of the bank
        np.testing.assert_array_equal(Federation.from_tables(others, labels=labels).labels, expected.labels)

    def test_new_rows_in_another_order_are_refused(self) -> None:
        bank, telco, labels = columns()
        federation = Federation.from_tables({"bank": bank, "telco": telco}, labels=labels)
        model = cn.fit(federation, "vimadmm_j", rounds=1, progress=False).model
        with pytest.raises(RowsDisagree, match=r"party 'telco': the index .* name an id with id \(--id\)"):
            model.predict({"bank": bank, "telco": moved(telco)})
        assert len(model.predict({"bank": moved(bank), "telco": moved(telco)})) == ROWS

    def test_arrays_that_are_data_frames_are_refused_alike(self) -> None:
        bank, telco, labels = columns()
        for given, truth in (({"bank": bank, "telco": moved(telco)}, labels), ({"bank": bank}, moved(labels))):
            with pytest.raises(RowsDisagree, match="the index has the same rows as that of party 'bank'"):
                Federation.from_arrays(given, truth)
        assert Federation.from_arrays({"bank": moved(bank), "telco": moved(telco)}, moved(labels)).rows == ROWS

    def test_points_of_new_rows_in_another_order_are_refused(self) -> None:
        bank, telco, labels = columns()
        tables = {"bank": bank.assign(late=labels), "telco": telco}
        card = cn.scorecard(tables, labels="late", release_labels=True, bins=2)
        with pytest.raises(RowsDisagree, match="party 'telco': the index"):
            card.score({"bank": bank, "telco": moved(telco)})


class TestWithIds:
    def tables(self) -> tuple[dict[str, pd.DataFrame], pd.Series]:
        bank, telco, labels = columns(IDS)
        named = {"bank": bank.rename_axis("customer"), "telco": telco.rename_axis("customer")}
        return {party: table.reset_index() for party, table in named.items()}, labels

    def test_labels_by_an_id_of_no_name_are_refused_in_another_order(self) -> None:
        tables, labels = self.tables()
        expected = Federation.from_tables(tables, labels=labels.to_numpy(), id="customer").labels
        assert Federation.from_tables(tables, labels=labels, id="customer").labels.equal(expected)
        named = moved(labels).rename_axis("customer")
        assert Federation.from_tables(tables, labels=named, id="customer").labels.equal(expected)
        with pytest.raises(RowsDisagree, match=r"the labels: the index .* is not called 'customer'; call it so"):
            Federation.from_tables(tables, labels=moved(labels), id="customer")

    def test_labels_by_ids_that_are_numbers_are_refused_in_another_order(self) -> None:
        bank, telco, labels = columns()
        numbers = np.random.default_rng(0).permutation(ROWS)
        tables = {"bank": bank.assign(customer=numbers), "telco": telco.assign(customer=numbers)}
        with pytest.raises(RowsDisagree, match="the labels: the index has the ids of the rows in another order"):
            Federation.from_tables(tables, labels=labels, id="customer")  # 0, 1, 2, ...: an id or a place
        Federation.from_tables(tables, labels=labels.to_numpy(), id="customer")

    def test_weights_by_id_are_refused_in_another_order(self) -> None:
        tables, labels = self.tables()
        weights = pd.Series(np.arange(1.0, ROWS + 1), index=IDS)
        given = {**tables, "bank": tables["bank"].assign(late=labels.to_numpy())}
        Federation.from_tables(given, labels="late", id="customer", weights=weights)
        with pytest.raises(RowsDisagree, match=r"the weights: the index has the ids of the rows in another order"):
            Federation.from_tables(given, labels="late", id="customer", weights=moved(weights))

    def test_weights_in_another_order_than_the_table_of_the_labels_are_refused(self) -> None:
        tables, labels = self.tables()
        given = {**tables, "bank": tables["bank"].assign(late=labels.to_numpy())}
        with pytest.raises(RowsDisagree, match="the weights: the index has the same rows as that of the labels"):
            Federation.from_tables(
                given, labels="late", id="customer", weights=moved(pd.Series(np.arange(1.0, ROWS + 1)))
            )
