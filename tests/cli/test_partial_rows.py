"""Tables that share only some rows, from the command line: trained, predicted, explained; and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Call
from tests.methods.test_partial_rows import frames

CONFIG = """
[data]
tables = { bank = "bank.csv", telco = "telco.csv" }
labels = "left"
id = "customer"
keep = "partial"
[method]
name = "fedmvt"
[model]
hidden = 6
embedding = 4
[training]
rounds = 4
evaluate_every = 2
schedule = { batch = 16 }
"""


@pytest.fixture
def config(cli: Call) -> Path:
    """The configuration and its tables, in the folder where the command line is called."""
    for name, frame in zip(("bank", "telco"), frames(), strict=True):
        frame.to_csv(f"{name}.csv", index=False)
    path = Path("partial.toml")
    path.write_text(CONFIG)
    return path


def test_trained_predicted_and_explained(cli: Call, config: Path) -> None:
    assert cli("train", config, "--out", "run").code == 0
    done = cli("predict", "run", "--rows", "train", "--json")
    assert done.code == 0, done.err
    assert {int(row["row"]) for row in done.json["predictions"]} <= set(range(18, 42))  # what both have, with a label
    explained = cli("explain", "run", "--rows", "test", "--set", "tsne=0", "--json")
    assert explained.code == 0, explained.err


def test_labelled_rows_train_sums_and_are_predicted_by_who_holds_them(cli: Call, config: Path) -> None:
    chosen = ("--set", "data.keep=labelled", "--set", "method.name=vimadmm_j")
    assert cli("train", config, *chosen, "--out", "run").code == 0
    done = cli("predict", "run", "--rows", "train", "--absent", "leave-out", "--json")
    assert done.code == 0, done.err
    without = {int(row["row"]): row["without"] for row in done.json["predictions"]}
    assert {row for row, gone in without.items() if gone == "telco"} == set(range(18))
    assert set(without.values()) == {"", "telco"}


def test_an_audit_is_refused(cli: Call, config: Path) -> None:
    assert cli("train", config, "--out", "run").code == 0
    refused = cli("audit", "run")
    assert refused.code == 2 and "lack a party's columns or a label" in refused.err


@pytest.mark.parametrize(
    ("change", "sentence"),
    [("method.name=vimadmm", "keep = 'labelled'"), ("data.keep=some", "needed 'all' or 'labelled' or 'partial'")],
)
def test_what_does_not_fit_is_refused_and_leaves_nothing(cli: Call, config: Path, change: str, sentence: str) -> None:
    refused = cli("train", config, "--set", change, "--out", "run")
    assert refused.code == 2 and sentence in refused.err
    assert not Path("run").exists()
