"""What each kind of column becomes, against slow and obvious references, and what new tables may hold."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import skops.io
import torch
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction import FeatureHasher
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, QuantileTransformer, StandardScaler

from colonnade.check import check_job
from colonnade.data.column_settings import PartyColumns, columns_of
from colonnade.data.columns import ColumnPlan
from colonnade.data.features import NumberFeature, _moments
from colonnade.data.stored import from_bytes, to_bytes
from colonnade.errors import ConfigError, DataError
from colonnade.federation import Federation
from colonnade.job import read_job

ROWS = 200
TRAIN = torch.arange(150)


def plan_of(values: Any, train: torch.Tensor = TRAIN, **settings: Any) -> ColumnPlan:
    return ColumnPlan.fit("bank", pd.DataFrame({"x": values}), train, PartyColumns(**settings))


def encoded(values: Any, train: torch.Tensor = TRAIN, **settings: Any) -> np.ndarray:
    return plan_of(values, train, **settings).encode(pd.DataFrame({"x": values})).numpy()


def with_holes(values: np.ndarray, every: int = 7) -> np.ndarray:
    return np.where(np.arange(len(values)) % every == 3, np.nan, values)


@pytest.fixture
def normal() -> np.ndarray:
    return np.random.default_rng(0).normal(50, 9, ROWS)


# -- numbers --------------------------------------------------------------------------------------


def test_empty_numbers_are_the_median_and_a_column_says_where(normal: np.ndarray) -> None:
    values = with_holes(normal)
    known = values[:150][~np.isnan(values[:150])]
    filled = np.where(np.isnan(values), np.median(known), values)
    expected = np.stack([(filled - known.mean()) / known.std(), np.isnan(values)], axis=1)
    np.testing.assert_allclose(encoded(values), expected, atol=1e-6)
    np.testing.assert_allclose(encoded(values, missing="fill"), expected[:, :1], atol=1e-6)
    with pytest.raises(DataError, match="party 'bank', column 'x': 29 of 200 values are empty"):
        encoded(values, missing="refuse")


def test_numbers_without_empty_values_in_training_have_no_second_column(normal: np.ndarray) -> None:
    plan = plan_of(normal)
    assert plan.width == 1
    new = pd.DataFrame({"x": [np.nan, 60.0]})
    with pytest.warns(UserWarning, match="column 'x': 1 of 2 values are empty .*, and training had no empty value"):
        told = plan.transform(new)
    np.testing.assert_allclose(told[0, 0], (np.median(normal[:150]) - normal[:150].mean()) / normal[:150].std(), 1e-5)


@pytest.mark.parametrize("kind", ["Int64", "Float64", "boolean"])
def test_columns_of_pandas_with_empty_values_are_like_those_of_numpy(kind: str) -> None:
    values = [1, 0, None, 1] * 50
    told = encoded(pd.array(values, dtype=kind))
    levels = [[v == 0, v == 1, v is None] for v in values]
    numbers = encoded(np.array([np.nan if v is None else v for v in values]))
    np.testing.assert_allclose(told, levels if kind == "boolean" else numbers, atol=1e-6)


def test_extremes_are_drawn_in_and_ordinary_numbers_are_not(normal: np.ndarray) -> None:
    expected = StandardScaler().fit(normal[:150, None]).transform(normal[:, None])
    np.testing.assert_allclose(encoded(normal), expected, atol=1e-6)
    wild = normal.copy()
    wild[[3, 180]] = 1e9
    ordered = np.sort(wild[:150])
    low, high = ordered[1], ordered[int(np.ceil(0.99 * 149))]
    drawn = np.clip(wild, low - (high - low), high + (high - low))
    expected = StandardScaler().fit(drawn[:150, None]).transform(drawn[:, None])
    np.testing.assert_allclose(encoded(wild), expected, atol=1e-6)
    plain = StandardScaler().fit(wild[:150, None]).transform(wild[:, None])
    np.testing.assert_allclose(encoded(wild, clip="never"), plain, rtol=1e-5)


def test_two_quantiles_bound_the_numbers(normal: np.ndarray) -> None:
    ordered = np.sort(normal[:150])
    low, high = ordered[int(np.floor(0.1 * 149))], ordered[int(np.ceil(0.8 * 149))]
    drawn = np.clip(normal, low, high)
    expected = StandardScaler().fit(drawn[:150, None]).transform(drawn[:, None])
    np.testing.assert_allclose(encoded(normal, clip=[0.1, 0.8]), expected, atol=1e-6)


@pytest.mark.parametrize("clip", ["extremes", [0.01, 0.99]])
def test_a_rare_event_is_no_extreme(clip: Any) -> None:
    rare = np.zeros(ROWS)
    rare[5] = 1.0
    assert encoded(rare, clip=clip)[5, 0] > 5


def test_quantile_scaling_is_that_of_scikit_learn(normal: np.ndarray) -> None:
    values = with_holes(np.exp(normal / 9))
    known = values[:150][~np.isnan(values[:150])]
    reference = QuantileTransformer(n_quantiles=len(known), output_distribution="normal").fit(known[:, None])
    filled = np.where(np.isnan(values), np.median(known), values)
    expected = reference.transform(filled[:, None])[:, 0]
    told = encoded(values, scaling="quantile", clip="never")
    np.testing.assert_allclose(told[:, 0], expected, atol=1e-5)
    assert abs(told[np.isnan(values), 0]).max() < 1e-3  # the median is the middle


def test_of_many_training_rows_evenly_spaced_ones_give_the_median(
    normal: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("colonnade.data.features.MOST_SORTED", 40)
    feature = plan_of(normal, clip="never").features[0]
    assert isinstance(feature, NumberFeature)
    assert feature.fill == np.median(normal[:150:4])
    assert feature.center == normal[:150].mean()  # means are of all of them


def test_numbers_may_stay_as_they_are(normal: np.ndarray) -> None:
    np.testing.assert_allclose(encoded(normal, scaling="plain")[:, 0], normal, rtol=1e-6)


def test_an_all_empty_column_is_zero_whatever_it_holds_later() -> None:
    for values in (np.full(ROWS, np.nan), [None] * ROWS, pd.Series([pd.NaT] * ROWS)):
        plan = plan_of(values)
        assert not plan.encode(pd.DataFrame({"x": values})).any()
        for later in ([1.0, 2.0], ["a", "b"], pd.to_datetime(["2020-01-01", "2021-01-01"])):
            assert not plan.transform(pd.DataFrame({"x": later})).any()


def test_a_column_that_is_empty_on_the_training_rows_only_is_zero(normal: np.ndarray) -> None:
    values = np.where(np.arange(ROWS) < 150, np.nan, normal)
    assert not encoded(values).any()


def test_a_constant_column_with_empty_values_says_where_they_are() -> None:
    values = with_holes(np.full(ROWS, 7.0))
    np.testing.assert_array_equal(encoded(values), np.stack([np.zeros(ROWS), np.isnan(values)], axis=1))


def test_infinite_numbers_are_refused_in_training_and_later(normal: np.ndarray) -> None:
    with pytest.raises(DataError, match="column 'x': 1 of 200 values are infinite"):
        encoded(np.where(np.arange(ROWS) == 199, np.inf, normal))
    with pytest.raises(DataError, match="column 'x': 1 of 2 values are infinite"):
        plan_of(normal).transform(pd.DataFrame({"x": [-np.inf, 50.0]}))


def test_new_numbers_far_outside_the_training_are_named(normal: np.ndarray) -> None:
    with pytest.warns(UserWarning, match=r"column 'x': 2 of 2 values are far outside .*first: 5000\).*check the unit"):
        plan_of(normal).transform(pd.DataFrame({"x": [5000.0, 6000.0]}))


@pytest.mark.parametrize("offset", [0.0, 1e9])
def test_mean_and_deviation_are_those_of_scikit_learn(offset: float) -> None:
    for values in (np.random.default_rng(0).normal(size=1000) + offset, np.full(1000, 0.1) + offset):
        scaler = StandardScaler().fit(values[:, None])
        np.testing.assert_allclose(_moments(values), (scaler.mean_[0], scaler.scale_[0]), rtol=1e-7)


# -- levels ---------------------------------------------------------------------------------------


def cities(rows: int = ROWS) -> np.ndarray:
    weights = np.array([40, 30, 20, 5, 3, 2]) / 100
    return np.random.default_rng(1).choice(["Ulm", "Bonn", "Jena", "Rom", "Oslo", "Bern"], rows, p=weights)


def test_empty_text_is_a_level_of_its_own_and_the_last() -> None:
    values = np.where(np.arange(ROWS) % 7 == 3, None, cities())
    levels = sorted({v for v in values[:150] if v is not None})
    expected = [[v == level for level in levels] + [v is None] for v in values]
    np.testing.assert_array_equal(encoded(values, rare=1), expected)
    np.testing.assert_array_equal(encoded(values, rare=1, missing="fill"), np.array(expected)[:, :-1])
    text = ["None" if v is None else v for v in values]  # the word is no empty value
    assert encoded(text, rare=1).shape[1] == len(levels) + 1


@pytest.mark.parametrize("rare", [1, 5, 20])
def test_rare_levels_are_together_as_in_scikit_learn(rare: int) -> None:
    values = np.append(cities(), "Rhodes")
    encoder = OneHotEncoder(min_frequency=rare, handle_unknown="infrequent_if_exist", sparse_output=False)
    expected = encoder.fit(values[:150, None]).transform(values[:, None])
    np.testing.assert_array_equal(encoded(values, rare=rare), expected)


def test_one_hot_keeps_the_most_frequent_levels() -> None:
    values = cities()
    expected = OneHotEncoder(max_categories=4, sparse_output=False).fit(values[:150, None]).transform(values[:, None])
    np.testing.assert_array_equal(encoded(values, levels="one_hot", most=3), expected)


def test_ordinal_levels_are_numbered_as_in_scikit_learn() -> None:
    values = cities()
    encoder = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1).fit(values[:150, None])
    np.testing.assert_array_equal(encoded(values, levels="ordinal", rare=1), encoder.transform(values[:, None]))
    plan = plan_of(values, levels="ordinal", rare=1)
    assert plan.width == 1 and plan.places == {"x": (0,)}
    new = pd.DataFrame({"x": [*values[:2], "never seen"]})
    with pytest.warns(UserWarning, match="1 of 3 values are categories that training did not see"):
        np.testing.assert_array_equal(plan.transform(new), encoder.transform(new.to_numpy()))
    assert from_bytes(to_bytes({"bank": plan}))["bank"].agrees(plan)
    assert not plan_of(values, levels="one_hot").agrees(plan)


def test_ordinal_levels_that_are_empty_rare_or_one_for_all() -> None:
    values = np.array([None if k % 9 == 4 else "abc"[k % 2 + (k % 50 == 0)] for k in range(ROWS)], dtype=object)
    told = encoded(values, levels="ordinal")[:, 0]
    known = sorted({v for v in values[:150] if v is not None})
    expected = [len(known) if v is None else known.index(v) for v in values]  # empty ones are a level of their own
    np.testing.assert_array_equal(told, expected)
    filled = encoded(values, levels="ordinal", missing="fill")[:, 0]
    np.testing.assert_array_equal(filled, np.where(told == len(known), -1, told))
    assert not encoded(np.full(ROWS, "same"), levels="ordinal").any()
    with pytest.raises(DataError, match=r"'x' is left out \(150 different values in 150 rows\).* no other column"):
        encoded([f"note {k}" for k in range(ROWS)], most=50, levels="ordinal")


def test_many_levels_are_hashed_as_in_scikit_learn() -> None:
    values = np.array([f"zip{k % 70}" for k in range(ROWS)])
    expected = FeatureHasher(16, input_type="string").transform([[v] for v in values]).toarray()
    np.testing.assert_array_equal(encoded(values, most=50, buckets=16), expected)
    np.testing.assert_array_equal(encoded(values, levels="hash", buckets=16), expected)
    plan = plan_of(values, levels="hash", buckets=16)
    assert plan.transform(pd.DataFrame({"x": ["never seen"]})).abs().sum() == 1  # nobody knows, and no name is kept
    assert b"zip" not in to_bytes({"bank": plan})


def test_hashed_empty_text_has_a_place_of_its_own() -> None:
    values = np.array([None if k % 9 == 4 else f"zip{k % 70}" for k in range(ROWS)], dtype=object)
    told = encoded(values, levels="hash", buckets=16)
    np.testing.assert_array_equal(told[:, 16], [v is None for v in values])
    assert (np.abs(told).sum(axis=1) == 1).all()


def test_almost_as_many_levels_as_rows_are_refused_until_somebody_says_hash() -> None:
    values = [f"note {k}" for k in range(ROWS)]
    with pytest.raises(DataError, match=r"'x' is refused \(150 different values in 150 rows\).*\(kind = 'ignore'\)"):
        encoded(values, by_name={"x": {"kind": "category"}})
    assert encoded(values, levels="hash").shape == (ROWS, 256)


def test_unknown_levels_count_as_rare_ones_where_there_are_any() -> None:
    plan = plan_of(cities(), rare=20)
    with pytest.warns(UserWarning, match=r"2 of 2 values .* fewer than 20 rows or not at all; they count as 'other'"):
        told = plan.transform(pd.DataFrame({"x": ["Rhodes", "Oslo"]}))
    assert torch.equal(told[0], told[1]) and told[0].sum() == 1


def test_booleans_as_objects_with_empty_values_are_booleans() -> None:
    values = pd.Series([True, None, False, True] * 50, dtype=object)
    plan = plan_of(values)
    assert plan.categories == {"x": "booleans"}
    later = plan.transform(pd.DataFrame({"x": [True, False]}))
    assert later.tolist() == [[0, 1, 0], [1, 0, 0]]


# -- dates ----------------------------------------------------------------------------------------


def slow_date(values: Any, train: int) -> np.ndarray:
    """Date by date with the standard library."""
    days = np.array([(v - datetime.datetime(1970, 1, 1)).total_seconds() / 86400 for v in values])
    years = np.array([v.year for v in values], dtype=float)
    numbers = [(x - x[:train].mean()) / (x[:train].std() or 1) for x in (days, years)]
    months = sorted({v.strftime("%b") for v in values[:train]})
    weekdays = sorted({v.strftime("%a") for v in values[:train]})
    levels = [[v.strftime("%b") == m for m in months] + [v.strftime("%a") == d for d in weekdays] for v in values]
    return np.column_stack([*numbers, np.array(levels, dtype=float)])


@pytest.mark.parametrize("start", ["1899-11-30 06:00", "1969-12-20", "2023-02-27 23:59:59"])
@pytest.mark.parametrize("unit", ["s", "ms", "ns"])
def test_dates_become_days_year_month_and_weekday(start: str, unit: str) -> None:
    dates = pd.Series(pd.date_range(start, periods=ROWS, freq="53h")).astype(f"datetime64[{unit}]")
    np.testing.assert_allclose(encoded(dates), slow_date(dates.dt.to_pydatetime().tolist(), 150), atol=2e-5)


def test_parts_of_dates_are_neither_grouped_nor_hashed() -> None:
    dates = pd.Series(pd.date_range("2020-01-01", periods=ROWS, freq="3D"))
    for settings in ({"levels": "hash", "buckets": 4}, {"rare": 50}, {"most": 2}, {"levels": "one_hot", "most": 2}):
        np.testing.assert_array_equal(encoded(dates, **settings), encoded(dates))


def test_empty_dates_are_in_the_middle_and_a_column_says_where() -> None:
    dates = pd.Series(pd.date_range("2020-01-01", periods=ROWS, freq="3D"))
    empty = np.arange(ROWS) % 7 == 3
    told = encoded(dates.mask(empty))
    np.testing.assert_array_equal(told[:, 1], empty)  # days, where empty, year, months, weekdays
    assert not told[empty, 3:].any()
    assert (told[~empty, 3:].sum(axis=1) == 2).all()


def test_a_date_is_that_of_its_time_zone_and_new_ones_are_brought_there() -> None:
    berlin = pd.Series(pd.date_range("2020-06-01 23:30", periods=ROWS, freq="25h", tz="Europe/Berlin"))
    plan = plan_of(berlin)
    np.testing.assert_allclose(encoded(berlin), encoded(berlin.dt.tz_localize(None)), atol=1e-6)
    elsewhere = pd.DataFrame({"x": berlin.dt.tz_convert("Asia/Tokyo")})
    assert torch.equal(plan.transform(elsewhere), plan.encode(pd.DataFrame({"x": berlin})))
    says = "had dates with time zone Europe/Berlin in training and has no time zone now"
    with pytest.raises(DataError, match=says):
        plan.transform(pd.DataFrame({"x": berlin.dt.tz_localize(None)}))


def test_dates_as_python_objects_and_as_text_are_dates_where_somebody_says_so() -> None:
    dates = pd.Series(pd.date_range("2020-01-01", periods=ROWS, freq="3D"))
    expected = encoded(dates)
    np.testing.assert_array_equal(encoded(dates.dt.date), expected)
    said = {"by_name": {"x": {"kind": "date"}}}
    np.testing.assert_allclose(encoded(dates.dt.strftime("%Y-%m-%d"), **said), expected, atol=1e-6)
    with pytest.raises(DataError, match="'x': kind = 'date', and it holds numbers"):
        encoded(np.arange(ROWS), **said)
    with pytest.raises(DataError, match=r"had dates .* has text now; give it as in training \(pandas.to_datetime"):
        plan_of(dates).transform(pd.DataFrame({"x": ["2020-01-31"] * 4}))
    with pytest.raises(DataError, match=r"had dates in training and has numbers now; give it as in training$"):
        plan_of(dates).transform(pd.DataFrame({"x": [1.0, 2.0]}))


# -- what is said by name -------------------------------------------------------------------------


def table() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "age": ["31", "44", "unknown", "52"] * 50,
            "code": [1, 2, 30, 2] * 50,
            "debt": [-999.0, 5.0, 6.0, 8.0] * 50,
            "note": [f"n{k}" for k in range(ROWS)],
        }
    )


SAID = {
    "age": {"kind": "number", "empty": ["unknown"]},
    "code": {"kind": "category"},
    "debt": {"empty": [-999], "missing": "fill", "scaling": "plain"},
    "note": {"kind": "ignore"},
}


def test_what_is_said_of_a_column_holds_for_it_alone_and_later_too() -> None:
    plan = ColumnPlan.fit("bank", table(), TRAIN, PartyColumns(by_name=SAID))
    assert (plan.numbers, plan.categories) == (("age", "debt"), {"code": "numbers"})
    told = plan.encode(table())
    assert told.shape[1] == 2 + 1 + 3
    np.testing.assert_array_equal(told[:, 1], table()["age"] == "unknown")
    np.testing.assert_allclose(told[:4, 2], [6, 5, 6, 8])
    back = from_bytes(to_bytes({"bank": plan}))["bank"]
    assert torch.equal(back.transform(table()), told)
    assert torch.equal(back.transform(table().drop(columns="note")), told)
    assert back.agrees(plan) and plan.agrees(back)
    with pytest.raises(
        DataError, match=r"'age': kind = 'number', and not all values are numbers \(first in the row with id '0'"
    ):
        plan.transform(table().replace({"age": {"31": "?"}}))


@pytest.mark.parametrize("code", [-999, -999.0, "-999"])
@pytest.mark.parametrize("kind", [int, float, str, "category"])
def test_a_value_that_means_an_empty_one_may_be_a_number_or_text(code: Any, kind: Any) -> None:
    values = pd.Series([-999, 5, 6, 8] * 50).astype(kind)
    said = {"kind": "category" if kind == "category" else "number", "empty": [code]}
    told = encoded(values, by_name={"x": said})
    np.testing.assert_array_equal(told[:, -1], np.arange(ROWS) % 4 == 0)


@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_a_day_may_mean_an_empty_date(zone: str | None) -> None:
    dates = pd.Series(pd.date_range("2020-01-01", periods=ROWS, freq="3D")).dt.tz_localize(zone)
    empty = np.arange(ROWS) % 4 == 0
    coded = dates.mask(empty, pd.Timestamp("9999-12-31", tz=zone).as_unit("us"))
    said = {"by_name": {"x": {"empty": ["9999-12-31", -1]}}}
    np.testing.assert_array_equal(encoded(coded, **said), encoded(dates.mask(empty)))


def test_all_columns_ignored_is_refused() -> None:
    with pytest.raises(DataError, match="party 'bank': all columns are ignored"):
        plan_of(cities(), by_name={"x": {"kind": "ignore"}})


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"scalling": "plain"}, "unknown key 'scalling' in .*did you mean 'scaling'"),
        ({"scaling": "log"}, "scaling = 'log' is not valid"),
        ({"clip": [0.9, 0.1]}, "the lower one first"),
        ({"clip": "some"}, "needed 'extremes', 'never' or two quantiles"),
        ({"telco": {"rare": 0}}, r"\[data.columns.telco\] rare = 0 is not valid"),
        ({"telco": {"by_name": {"zip": {"kind": "word"}}}}, "kind = 'word' is not valid"),
        ({"shop": {"rare": 2}}, "'shop' is no party with a table; parties: bank, telco"),
        ({"by_name": {"zip": {"kind": "ignore"}}}, "by_name: say whose column it is"),
        (["scaling"], "needs settings by name"),
    ],
)
def test_settings_that_do_not_exist_are_named(given: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        columns_of(given, ["bank", "telco"])


def test_a_party_s_settings_stand_over_those_for_all_and_a_column_s_over_both() -> None:
    given = {"rare": 5, "scaling": "quantile", "telco": {"rare": 9, "by_name": {"zip": {"scaling": "plain"}}}}
    found = columns_of(given, ["bank", "telco"])
    assert (found["bank"].rare, found["telco"].rare) == (5, 9)
    one, other = found["telco"].of("zip"), found["telco"].of("age")
    assert (one.rare, one.scaling, other.scaling) == (9, "plain", "quantile")


def test_a_federation_takes_what_is_said_about_columns() -> None:
    frame = table().drop(columns="note").assign(y=["no", "yes"] * 100)
    columns = {"scaling": "plain", "bank": {"by_name": {k: SAID[k] for k in ("age", "code", "debt")}}}
    federation = Federation.from_tables({"bank": frame}, labels="y", columns=columns)
    assert federation.parties[0].columns.shape == (ROWS, 6)
    np.testing.assert_allclose(federation.parties[0].columns[:4, 0], [31, 44, 44, 52])


def test_a_configuration_says_how_columns_become_numbers(tmp_path: Path) -> None:
    table().assign(y=["no", "yes"] * 100).to_csv(tmp_path / "bank.csv", index=False)
    data = {"tables": {"bank": str(tmp_path / "bank.csv")}, "labels": "y", "columns": {"bank": {"by_name": SAID}}}
    job = read_job({"data": data})
    assert job.federation().plans["bank"].categories == {"code": "numbers"}
    assert check_job(job, rounds=False).errors == []
    with pytest.raises(DataError, match="column 'age': 50 of 200 values are not numbers"):
        read_job({"data": {**data, "columns": {}}}).federation()


# -- new tables, and files ------------------------------------------------------------------------


def test_columns_that_the_model_was_not_trained_with_are_named_in_a_warning(normal: np.ndarray) -> None:
    frame = pd.DataFrame({"x": normal})
    with pytest.warns(UserWarning, match="not trained with, which are not read: 'a', 'b', 'c' and 1 more"):
        told = plan_of(normal).transform(frame.assign(a=1, b=2, c=3, d=4))
    assert torch.equal(told, plan_of(normal).encode(frame))


def test_one_new_row_may_lack_any_value_that_training_lacked_too() -> None:
    frame = pd.DataFrame(
        {
            "n": with_holes(np.arange(ROWS, dtype=float)),
            "t": np.where(np.arange(ROWS) % 7 == 3, None, cities()),
            "d": pd.Series(pd.date_range("2020-01-01", periods=ROWS)).mask(np.arange(ROWS) % 7 == 3),
        }
    )
    plan = ColumnPlan.fit("bank", frame, TRAIN)
    for nothing in (None, np.nan, pd.NaT):
        new = pd.DataFrame({"n": [nothing], "t": [nothing], "d": [nothing]})
        assert torch.equal(plan.transform(new)[0], plan.encode(frame)[3])


def test_a_plan_of_an_earlier_version_encodes_as_it_did_and_refuses_what_it_refused() -> None:
    """Those files hold fitted estimators of scikit-learn, which are their own reference."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(5, 2, 60), "flat": 3.0, "city": cities(60), "yes": rng.random(60) > 0.5})
    text = frame.assign(yes=frame["yes"].map(str)).astype({"city": object, "yes": object})
    parts = [
        ("numbers", StandardScaler(), ["a", "flat"]),
        ("categories", OneHotEncoder(handle_unknown="ignore", sparse_output=False), ["city", "yes"]),
    ]
    transformer = ColumnTransformer(parts).fit(text)
    expected = transformer.transform(text)
    expected[:, 1] = 0
    constant = np.array([False, True] + [False] * (expected.shape[1] - 2))
    kinds = {"city": "text", "yes": "booleans"}
    old = {"numbers": ("a", "flat"), "categories": kinds, "constant": constant, "transformer": transformer}
    plan = from_bytes(skops.io.dumps({"bank": {**old, "id": "customer", "label": None}}))["bank"]
    assert np.array_equal(plan.transform(frame).numpy(), expected.astype(np.float32))
    with pytest.raises(DataError, match="column 'a': 1 of 60 values are empty"):
        plan.transform(frame.assign(a=frame["a"].where(frame.index > 0)))
    with pytest.raises(DataError, match="column 'city': 1 of 60 values are empty"):
        plan.transform(frame.assign(city=frame["city"].where(frame.index > 0)))
    again = from_bytes(to_bytes({"bank": plan}))["bank"]
    assert again.agrees(plan) and torch.equal(again.transform(frame), plan.transform(frame))


class TestPieces:
    """Numbers in pieces: how far each lies in each of them, scaled."""

    def test_they_are_how_far_a_number_lies_in_each_piece(self) -> None:
        values = np.arange(101.0)
        frame = pd.DataFrame({"age": values})
        plan = ColumnPlan.fit("bank", frame, torch.arange(101), PartyColumns(pieces=4))
        encoded = plan.encode(frame).numpy().astype(float)
        edges = [1.0, 25.0, 50.0, 75.0, 99.0]  # quantiles; the last hundredths are not told apart
        for piece in range(4):
            within = np.interp(values, edges[piece : piece + 2], [0.0, 1.0])
            expected = (within - within.mean()) / within.std()
            np.testing.assert_allclose(encoded[:, 1 + piece], expected, atol=1e-5)
        np.testing.assert_allclose(encoded[:, 0], (values - 50) / values.std(), atol=1e-5)

    def test_a_linear_model_of_them_bends(self) -> None:
        frame = pd.DataFrame({"age": np.linspace(-1, 1, 200)})
        bent = np.abs(frame["age"].to_numpy())
        plan = ColumnPlan.fit("bank", frame, torch.arange(200), PartyColumns(pieces=4))
        design = np.c_[np.ones(200), plan.encode(frame).numpy()]
        residual = bent - design @ np.linalg.lstsq(design, bent, rcond=None)[0]
        assert np.abs(residual).max() < 0.02

    def test_empty_values_lie_where_the_median_does_and_are_marked(self) -> None:
        frame = pd.DataFrame({"age": [0.0, 1.0, 2.0, 3.0, 4.0, np.nan]})
        plan = ColumnPlan.fit("bank", frame, torch.arange(6), PartyColumns(pieces=2))
        encoded = plan.encode(frame).numpy()
        assert encoded.shape == (6, 4)
        np.testing.assert_array_equal(encoded[:, 1], [0, 0, 0, 0, 0, 1])
        np.testing.assert_array_equal(encoded[5, [0, 2, 3]], encoded[2, [0, 2, 3]])

    def test_two_values_have_no_pieces(self) -> None:
        frame = pd.DataFrame({"flag": [0.0, 1.0] * 5})
        assert ColumnPlan.fit("bank", frame, torch.arange(10), PartyColumns(pieces=16)).width == 1

    def test_extremes_are_drawn_in_before_pieces_are_cut(self) -> None:
        frame = pd.DataFrame({"income": [*np.arange(1000.0), 1e9]})
        plan = ColumnPlan.fit("bank", frame, torch.arange(1001), PartyColumns(pieces=8))
        assert np.abs(plan.encode(frame).numpy()).max() < 10

    def test_the_mean_row_is_the_mean_of_the_rows(self) -> None:
        frame = pd.DataFrame({"age": np.random.default_rng(0).gamma(1, 1, 500)})
        frame.loc[:50, "age"] = np.nan
        plan = ColumnPlan.fit("bank", frame, torch.arange(500), PartyColumns(pieces=6))
        assert plan.mean is not None
        torch.testing.assert_close(plan.mean, plan.encode(frame).double().mean(0), atol=1e-5, rtol=0)

    def test_they_survive_a_file_and_are_compared(self) -> None:
        frame = pd.DataFrame({"age": np.arange(50.0)})
        plan, other = (
            ColumnPlan.fit("bank", frame, torch.arange(50), PartyColumns(pieces=pieces)) for pieces in (4, 5)
        )
        again = from_bytes(to_bytes({"bank": plan}))["bank"]
        torch.testing.assert_close(again.encode(frame), plan.encode(frame), atol=0, rtol=0)
        assert plan.agrees(again)
        assert not plan.agrees(other)


# -- names of people ------------------------------------------------------------------------------


def people() -> pd.DataFrame:
    """A column of names, one of cities of which three are rare, and a number."""
    city = np.array([f"city{k % 4}" for k in range(ROWS)], dtype=object)
    city[[10, 20, 30]] = ["Hidden A", "Hidden B", "Hidden C"]
    return pd.DataFrame({"name": [f"Person {k}" for k in range(ROWS)], "city": city, "age": np.arange(ROWS) % 60})


def test_a_column_of_names_is_left_out_with_its_counts_and_nothing_of_it_is_kept() -> None:
    says = r"column 'name' is left out \(150 different values in 150 rows\)"
    with pytest.warns(UserWarning, match=says) as told:
        plan = ColumnPlan.fit("bank", people(), TRAIN)
    assert len(told) == 1 and "Person" not in str(told[0].message)
    assert list(plan.columns) == ["age", "city"]
    assert b"Person" not in to_bytes({"bank": plan}) and b"Hidden" not in to_bytes({"bank": plan})
    usual = people().drop(index=[10, 20, 30])
    assert torch.equal(plan.transform(usual.drop(columns="name")), plan.transform(usual))


@pytest.mark.parametrize("said", [{"kind": "category"}, {"kind": "category", "levels": "one_hot"}])
def test_a_column_of_names_that_was_asked_for_is_refused_without_its_values(said: dict[str, Any]) -> None:
    with pytest.raises(DataError, match=r"column 'name' is refused \(150 different values") as told:
        ColumnPlan.fit("bank", people(), TRAIN, PartyColumns(by_name={"name": said}))
    assert "Person" not in str(told.value)


def test_rare_and_unseen_levels_are_one_with_one_counted_warning() -> None:
    plan = ColumnPlan.fit("bank", people().drop(columns="name"), TRAIN)
    new = people().drop(columns="name").iloc[:12].replace({"city": {"city1": "unheard of"}})
    with pytest.warns(UserWarning, match=r"'city': 4 of 12 values .*; they count as 'other'") as told:
        encoded = plan.transform(new)
    assert len(told) == 1 and "unheard" not in str(told[0].message)
    assert torch.equal(encoded[1, 1:], encoded[10, 1:]) and encoded[1, 1:].sum() == 1


def test_a_plan_of_an_earlier_version_encodes_as_it_did() -> None:
    from colonnade.data.features import from_plain
    from colonnade.data.kinds import Levels

    old = {"column": "city", "kind": "text", "known": ("Bonn", "Ulm"), "rare": ("Rom",), "holes": True}
    feature = from_plain({**old, "indicator": True})
    out = np.zeros((feature.width, 5), dtype=np.float32)
    feature.encode(Levels(("Bonn", "Rom", "Ulm", "new"), np.array([0, 1, 2, 3, -1])), out)  # type: ignore[union-attr, arg-type]
    np.testing.assert_array_equal(out.argmax(0), [0, 2, 1, 2, 3])
