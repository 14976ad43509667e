"""Words, tables, and the configuration that repeats a run."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colonnade.job import read_job
from colonnade.report import compared, tables, words
from colonnade.report.record import grouped
from colonnade.report.repeat import configuration, to_toml

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
PLAIN = TEXT | st.integers(-(2**62), 2**62) | st.floats(allow_nan=False) | st.booleans()
VALUES = st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3))
SECTIONS = st.dictionaries(TEXT, st.dictionaries(TEXT, VALUES, min_size=1, max_size=4), max_size=3)


@given(SECTIONS)
def test_toml_reads_back_to_the_same(sections: dict[str, dict[str, Any]]) -> None:
    assert tomllib.loads(to_toml(sections)) == sections


def test_the_configuration_repeats_the_job(record: dict[str, Any]) -> None:
    record["config"] = {
        "training": {"rounds": 4, "schedule": {"batch": 40}},
        "method": {"name": "vimadmm", "optimiser": {"kind": "sgd", "lr": 0.05}},
        "compare": {"methods": ["vimadmm"]},
    }
    text = configuration(record)
    assert text is not None
    job = read_job(tomllib.loads(text))
    assert job.training.schedule.batch == 40
    assert job.data == {"set": "digits"}
    assert job.tables["method"]["optimiser"] == {"kind": "sgd", "lr": 0.05}
    assert "compare" not in text


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 bytes"), (999, "999 bytes"), (1000, "1.0 kB"), (2_340_000, "2.3 MB"), (5e9, "5.0 GB")]
)
def test_sizes(count: float, text: str) -> None:
    assert words.size(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.44, "0.4 s"), (59.94, "59.9 s"), (61, "1 min 1 s"), (3599.7, "1 h 0 min"), (7260, "2 h 1 min")],
)
def test_durations(seconds: float, text: str) -> None:
    assert words.duration(seconds) == text


def test_label_exposure_is_said_in_words(record: dict[str, Any]) -> None:
    assert words.exposure(record).startswith("Labels: the replies reveal the training labels to every party")
    record["label_exposure"] = "NONE"
    assert words.exposure(record) == "Labels: nothing the coordinator sends down was computed from a label."
    record["label_exposure"] = "EPS"
    assert "behind a label mechanism" in words.exposure(record)
    record["method"]["name"] = "centralized"
    assert "nobody to hide them from" in words.exposure(record)


def test_an_old_record_does_not_claim_that_nothing_was_noised(record: dict[str, Any]) -> None:
    assert "No noise was used" in words.noise(record)
    del record["mechanisms"]
    assert "No noise was used" not in words.noise(record)


def test_the_settings_table_has_every_setting_and_marks_changes(record: dict[str, Any]) -> None:
    rows = {name: value for name, value, _ in tables.settings_table(record).rows}
    assert rows["method.local_steps"] == "1*"
    assert rows["method.rho"] == "1"
    assert rows["training.schedule.batch"] == "40*"
    assert rows["training.stopping.patience"] == "0"
    assert all(meaning for name, _, meaning in tables.settings_table(record).rows if not name.endswith("kind"))


def test_another_optimiser_is_marked_as_a_whole(record: dict[str, Any]) -> None:
    record["method"]["settings"]["optimiser"] = {"kind": "sgd", "lr": 0.1}
    rows = {name: value for name, value, _ in tables.settings_table(record).rows}
    assert rows["method.optimiser.kind"] == "sgd*"


def test_traffic_and_parties_add_up(record: dict[str, Any]) -> None:
    traffic = record["traffic"]
    assert tables.traffic_table(record).rows[2][2] == words.size(traffic["up"] + traffic["down"])
    parties = tables.parties_table(record)
    assert [row[0] for row in parties.rows] == [p["name"] for p in record["about"]["parties"]]
    assert "4 train" in parties.rows[0][4]


def test_mean_and_deviation_over_seeds(trained: dict[tuple[str, int], dict[str, Any]]) -> None:
    copies = [json.loads(json.dumps(trained["vimadmm", 0])) for _ in range(3)]
    for place, score in enumerate((0.5, 0.6, 0.7)):
        copies[place]["training"]["seed"] = place
        copies[place]["result"]["test_score"] = score
    table = compared.comparison_table(grouped(copies))
    assert table.rows[0][1:3] == ("3", "60.00 ± 10.00 %")
    copies[1]["result"]["test_score"] = None
    assert compared.comparison_table(grouped(copies)).rows[0][2] == "not measured"


@pytest.mark.parametrize(
    ("ours", "theirs", "told"),
    [
        (
            (0.5, 0.7),
            (0.5, 0.6),
            ["The lead over fedbcd is within a standard deviation over the seeds: it may be chance."],
        ),
        ((0.69, 0.7), (0.5, 0.6), []),
        ((0.7,), (0.5,), ["One seed each: small differences may be chance."]),
        ((0.6, 0.6), (0.6, 0.6), []),
    ],
)
def test_a_lead_that_the_seeds_do_not_bear_out_is_called_one(
    ours: tuple[float, ...], theirs: tuple[float, ...], told: list[str], record: dict[str, Any]
) -> None:
    records = []
    for name, scores in (("vimadmm", ours), ("fedbcd", theirs)):
        for seed, score in enumerate(scores):
            copy = json.loads(json.dumps(record))
            copy["method"]["name"], copy["training"]["seed"], copy["result"]["test_score"] = name, seed, score
            records.append(copy)
    best, *chance = compared.best_in_words(grouped(records))
    assert best.startswith("All have the same" if set(ours) == set(theirs) else "Best test accuracy: vimadmm")
    assert chance == told


def test_one_seed_needs_no_deviation(record: dict[str, Any]) -> None:
    table = compared.comparison_table(grouped([record]))
    assert "seeds" not in table.columns
    assert "±" not in table.caption + "".join(table.rows[0])


def test_rows_that_lack_something_are_counted_in_the_summary(record: dict[str, Any]) -> None:
    assert not any("held by all parties" in sentence for sentence in words.summary(record))
    record["about"]["partial"] = {"complete": 12, "labelled": 1234, "held": {"bank": 1234, "telco": 900}}
    said = " ".join(words.summary(record))
    assert (
        "12 are held by all parties and have a label; 1,234 have a label; parties hold: bank 1,234, telco 900." in said
    )
