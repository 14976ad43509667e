"""`colonnade init tables`: files that it understands train as they are; what could be meant in two ways is refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from colonnade.config import parse_toml, read_toml
from colonnade.job import read_job
from tests.cli.conftest import Call, Result
from tests.cli.test_bad_input import edit, listing, write_tables

ROWS = 60


def columns(*, seed: int = 0, rows: int = ROWS) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame({"income": rng.normal(40, 9, rows).round(2), "city": rng.choice(["Bonn", "Ulm", "Ems"], rows)})


def write_pair(bank: pd.DataFrame, telco: pd.DataFrame) -> None:
    bank.to_csv("bank.csv", index=False)
    telco.to_csv("telco.csv", index=False)


def pair(id: str = "customer", other: str = "customer") -> tuple[pd.DataFrame, pd.DataFrame]:
    """Two tables of the same people; whether they stay depends on both."""
    bank, telco = columns(seed=1), columns(seed=2).rename(columns={"income": "minutes", "city": "plan"})
    ids = [f"c{k:03d}" for k in range(ROWS)]
    stays = bank["income"] + telco["minutes"] + np.random.default_rng(3).normal(0, 9, ROWS) > 80
    telco = telco.assign(churn=np.where(stays, "no", "yes"), **{other: ids})
    return bank.assign(**{id: ids}), telco.sample(frac=1, random_state=0)


def refused(done: Result, *words: str) -> None:
    """One sentence on stderr; on stdout at most the tables, so that people see what is meant."""
    assert done.code == 2, done
    assert done.err.startswith("error: ") and len(done.err.splitlines()) == 1
    assert done.out == "" or done.out.startswith("Tables")
    for word in words:
        assert word in done.err, done.err


def data(file: str = "run.toml") -> dict[str, object]:
    return dict(read_toml(Path(file))["data"])


def test_two_tables_train_and_predict_as_they_are(cli: Call) -> None:
    write_pair(*pair())
    done = cli("init", "tables")
    assert done.code == 0, done.err
    assert "id: 'customer'; 60 ids are in all tables" in done.out
    assert "label: churn of telco, yes/no (no, yes): the only column that is called as labels are" in done.out
    assert "other columns that could be the label (--label): city of bank (classes: Bonn, Ems, Ulm); " in done.out
    said = data()
    assert said["tables"] == {"bank": "bank.csv", "telco": "telco.csv"}
    assert (said["id"], said["labels"], said["task"], said["classes"]) == ("customer", "churn", "binary", ["no", "yes"])
    assert cli("check", "run.toml").code == 0
    short = ["--set", "training.epochs=2", "--out", "here"]
    trained = cli("train", "run.toml", *short)
    assert trained.code == 0, trained.err
    scored = cli("predict", "here", "--tables", "bank=bank.csv", "--tables", "telco=telco.csv", "--proba")
    assert scored.out.splitlines()[0] == "row,prediction,proba_no,proba_yes"
    assert len(scored.out.splitlines()) == 1 + ROWS


def test_every_commented_line_of_settings_is_valid(cli: Call) -> None:
    write_pair(*pair())
    assert cli("init", "tables").code == 0
    text = Path("run.toml").read_text()
    settings = r"^# (\[[\w.]+\]|[a-z_]+ = .*)$"
    assert len(re.findall(settings, text, re.MULTILINE)) >= 8
    job = read_job(parse_toml(re.sub(settings, r"\1", text, flags=re.MULTILINE)))
    assert job.privacy.epsilon == 4 and job.privacy.labels.protects and job.training.metric == "log_loss"
    commands = re.findall(r"^#.*\bcolonnade (\w+) ", text, re.MULTILINE)
    assert {"check", "train", "report", "predict", "compare"} <= set(commands)


def test_each_table_may_call_the_id_differently_which_is_marked(cli: Call) -> None:
    write_pair(*pair("customer", "subscriber"))
    done = cli("init", "tables")
    assert done.code == 0 and "id: bank 'customer', telco 'subscriber'" in done.out
    assert data()["id"] == {"bank": "customer", "telco": "subscriber"}
    assert "CHECK that these columns mean the same people" in Path("run.toml").read_text()


def test_an_id_of_two_columns(cli: Call) -> None:
    bank, telco = pair()
    for table in (bank, telco):
        table["branch"], table["account"] = table["customer"].str[1:3], table["customer"].str[3:]
    write_pair(bank.drop(columns="customer"), telco.drop(columns="customer"))
    done = cli("init", "tables")
    assert done.code == 0 and "id: 'branch' + 'account'; 60 ids" in done.out
    assert data()["id"] == ["branch", "account"]


def test_files_with_semicolons_and_decimal_commas_in_other_formats(cli: Call) -> None:
    bank, telco = pair()
    bank.to_csv("bank.csv.gz", sep=";", decimal=",", index=False)
    telco.to_parquet("telco.parquet")
    done = cli("init", "tables", ".", "--out", "churn.toml")
    assert done.code == 0, done.err
    assert data("churn.toml")["tables"] == {"bank": "bank.csv.gz", "telco": "telco.parquet"}
    assert cli("check", "churn.toml").code == 0


def test_what_a_file_leaves_open_is_said_by_options_and_written_down(cli: Call) -> None:
    bank, telco = pair()
    write_pair(bank, telco)
    lines = [f"{name};{k + 1},{100 + k}" for k, name in enumerate(bank["customer"])]
    Path("bank.csv").write_text("\n".join(["customer;income", *lines]) + "\n")
    refused(cli("init", "tables"), "the comma may be a decimal mark", "party 'bank'", "--decimal")
    assert not Path("run.toml").exists()
    assert cli("init", "tables", "--decimal", "bank=,").code == 0
    assert data()["decimal"] == {"bank": ","}
    assert cli("check", "run.toml").code == 0


def test_what_tells_nothing_is_left_out_and_said(cli: Call) -> None:
    bank, telco = pair()
    write_pair(bank.assign(email=[f"{k}@example.org" for k in range(ROWS)]), telco)
    done = cli("init", "tables")
    assert done.code == 0 and "left out of bank, since nearly every row has another value: email" in done.out
    assert data()["columns"] == {"rare": 5, "bank": {"by_name": {"email": {"kind": "ignore"}}}}


def test_dates_in_another_form_are_no_identifier(cli: Call) -> None:
    bank, telco = pair()
    write_pair(bank.assign(since=[f"{k % 28 + 1:02d}.{k // 28 + 1:02d}.2020" for k in range(ROWS)]), telco)
    done = cli("init", "tables")
    assert "column 'since': its values look like dates written as text" in done.out
    assert data()["columns"] == {"rare": 5}


def test_whole_numbers_may_be_classes_a_count_or_a_number(cli: Call) -> None:
    bank, telco = pair()
    write_pair(bank, telco.drop(columns="churn").assign(visits=np.arange(ROWS) % 5))
    done = cli("init", "tables", "--label", "visits")
    refused(done, "5 different whole numbers from 0 to 4", 'task="count"', "--task")
    assert cli("init", "tables", "--label", "visits", "--task", "count").code == 0
    assert data()["task"] == "count" and "classes" not in data()
    assert cli("check", "run.toml").code == 0


def test_a_written_file_stays_unless_it_is_said(cli: Call) -> None:
    write_pair(*pair())
    Path("run.toml").write_text("mine")
    refused(cli("init", "tables"), "run.toml already exists", "--force")
    assert Path("run.toml").read_text() == "mine"
    assert cli("init", "tables", "--force").code == 0
    assert data()["labels"] == "churn"
    refused(cli("init", "tables", "--out", "no/such/run.toml"), "no/such/run.toml cannot be written: No such file")
    refused(cli("init", "tables", "--out", "."), "is a folder; name the file to write")


def test_errors_of_the_tables_are_told_and_are_status_1(cli: Call) -> None:
    bank, telco = pair()
    write_pair(bank.assign(income=[*map(str, bank["income"][1:]), "unknown"]), telco)
    done = cli("init", "tables")
    assert done.code == 1
    assert "error: party 'bank', column 'income': 1 of 60 values is not a number" in done.out
    assert "check: 1 error" in done.out and "next: colonnade check run.toml" in done.out
    assert data()["columns"] == {"rare": 5}, "numbers with a stray text are no identifier"
    assert Path("run.toml").exists()


def test_names_that_are_hard_to_write(cli: Call) -> None:
    bank, telco = pair()
    telco = telco.rename(columns={"churn": 'said "no" \\ left'})
    bank.rename(columns={"city": "stadt\n# [x"}).to_csv("Bank & Söhne.csv", index=False)
    telco.to_csv("2 telco.csv", index=False)
    named = ["--party", "bank a=Bank & Söhne.csv", "--label", 'said "no" \\ left', "--out", "my run.toml"]
    assert cli("init", "tables", "2 telco.csv", *named).code == 0
    said = data("my run.toml")
    assert said["tables"] == {"bank a": "Bank & Söhne.csv", "party_2_telco": "2 telco.csv"}
    assert said["labels"] == 'said "no" \\ left'
    assert "colonnade train 'my run.toml'" in Path("my run.toml").read_text()
    assert cli("check", "my run.toml").code == 0
    Path("x\ny.csv").write_text("a,b\n1,2\n")
    refused(cli("init", "tables"), "control characters in its name; rename it")
    refused(cli("init", "tables", "--party", "a\nb=2 telco.csv"), "a party's name has no line breaks")
    refused(cli("init", "tables", "--out", "a\nb.toml"), "cannot be printed")


def test_ids_that_are_said(cli: Call) -> None:
    write_pair(*pair("customer", "subscriber"))
    done = cli("init", "tables", "--id", "bank=customer", "--id", "telco=subscriber")
    assert done.code == 0 and data()["id"] == {"bank": "customer", "telco": "subscriber"}
    refused(cli("init", "tables", "--force", "--id", "bank=customer"), "id names no column for party 'telco'")


def test_labels_in_a_file_of_their_own(cli: Call) -> None:
    bank, telco = pair()
    write_pair(bank, telco.drop(columns="churn"))
    telco[["customer", "churn"]].to_csv("labels.csv", index=False)
    done = cli("init", "tables")
    assert done.code == 0 and "label: churn of labels" in done.out
    assert cli("check", "run.toml").code == 0


def test_json_has_all_that_was_found(cli: Call) -> None:
    write_pair(*pair())
    found = cli("init", "tables", "--json").json
    assert found["id"] == {"bank": "customer", "telco": "customer"} and found["common"] == ROWS
    assert found["label"] == {"party": "telco", "column": "churn", "task": "binary"}
    assert found["candidates"][0] == {"party": "telco", "column": "churn", "tasks": ["binary"]}
    assert found["errors"] == []


# -- folders that are not as they should be -----------------------------------------------------


def _no_tables() -> None:
    Path("notes.txt").write_text("none")


def _one_table() -> None:
    pair()[1].to_csv("telco.csv", index=False)


def _unrelated() -> None:
    write_pair(*pair())
    pd.DataFrame({"article": ["a", "b", "c"], "price": [1.5, 2.5, 3.5]}).to_csv("prices.csv", index=False)


def _new_rows_beside() -> None:
    bank, telco = pair()
    write_pair(bank, telco)
    bank.assign(customer=[f"n{k}" for k in range(ROWS)]).to_csv("new_bank.csv", index=False)


def _no_label() -> None:
    bank, telco = pair()
    write_pair(bank.assign(owns=["no", "yes"] * (ROWS // 2)), telco.rename(columns={"churn": "left"}))


def _two_labels() -> None:
    bank, telco = pair()
    write_pair(bank.assign(target=["no", "yes"] * (ROWS // 2)), telco)


def _three_lengths() -> None:
    bank, telco = pair()
    lengths = {name: np.linspace(0.1, at, ROWS).round(3) for at, name in enumerate("xyz", 2)}
    write_pair(bank.assign(**lengths), telco.rename(columns={"churn": "left"}))


def _two_ids() -> None:
    bank, telco = pair()
    for table in (bank, telco):
        table["passport"] = "p" + table["customer"]
    write_pair(bank, telco)


def _label_twice() -> None:
    bank, telco = pair()
    write_pair(bank.assign(churn=telco.sort_values("customer")["churn"].to_numpy()), telco)


def _one_name() -> None:
    bank, telco = pair()
    write_pair(bank, telco)
    telco.to_csv("telco.tsv", sep="\t", index=False)


def _broken() -> None:
    write_pair(*pair())
    Path("notes.csv").write_text("")


def _no_id() -> None:
    bank, telco = pair()
    write_pair(bank.drop(columns="customer"), telco.drop(columns="customer"))


def _numbered_through() -> None:
    bank, telco = pair()
    write_pair(
        bank.drop(columns="customer").assign(row=range(ROWS)), telco.drop(columns="customer").assign(no=range(ROWS))
    )


AWKWARD: dict[Callable[[], None], tuple[str, ...]] = {
    _no_tables: ("there is no table in .", ".parquet", "name the files or folder"),
    _one_table: ("one table was found, telco.csv", 'documentation, page "scikit-learn"'),
    _unrelated: ("no id that all of them share", "bank and telco by 'customer'", "name only the files that belong"),
    _new_rows_beside: ("no id that all of them share", "bank and telco by 'customer'"),
    _no_label: ("which column is the label?", "--label", "owns of bank (yes/no: no or yes)", "left of telco (yes/no"),
    _two_labels: ("which column is the label?", "target of bank", "churn of telco"),
    _three_lengths: ("which column is the label?", "left of telco (yes/no", "y of bank (regression: 0.1 to 3)"),
    _two_ids: ("can be matched in 2 ways", "--id customer", "--id passport"),
    _label_twice: ("which column is the label?", "churn of bank", "churn of telco"),
    _one_name: ("telco.csv and telco.tsv would both be the table of party 'telco'", "--party"),
    _broken: ("notes.csv", "it is empty", "leave the file out"),
    _numbered_through: ("numbered through, as rows of anything are", "say --id bank=row --id telco=no"),
    _no_id: ("no column with different values in every row is shared by the tables bank, telco", "--same-order"),
}


@pytest.mark.parametrize("make", AWKWARD, ids=lambda make: make.__name__.strip("_"))
def test_an_awkward_folder_is_refused_and_nothing_is_written(make: Callable[[], None], cli: Call) -> None:
    make()
    before = listing(Path())
    refused(cli("init", "tables"), *AWKWARD[make])
    assert listing(Path()) == before


REMEDIES: dict[Callable[[], None], list[str]] = {
    _one_table: ["--party", "telco=telco.csv"],
    _unrelated: ["bank.csv", "telco.csv"],
    _no_label: ["--label", "left"],
    _two_labels: ["--label", "churn"],
    _three_lengths: ["--label", "y"],
    _two_ids: ["--id", "passport"],
    _one_name: ["bank.csv", "--party", "shop=telco.tsv"],
    _broken: ["bank.csv", "telco.csv"],
    _numbered_through: ["--id", "bank=row", "--id", "telco=no"],
    _no_id: ["--same-order"],
}


@pytest.mark.parametrize("make", REMEDIES, ids=lambda make: make.__name__.strip("_"))
def test_what_the_refusal_advises_helps(make: Callable[[], None], cli: Call) -> None:
    make()
    done = cli("init", "tables", *REMEDIES[make])
    assert done.code == 0, done.err
    assert cli("check", "run.toml").code == 0


def test_options_that_name_nothing_are_refused(cli: Call) -> None:
    write_tables(ROWS)

    def told(*options: str) -> Result:
        return cli("init", "tables", *options)

    refused(told("--label", "chrun"), "no table has the label column 'chrun'; did you mean 'churn'?")
    refused(told("--id", "client"), "party 'bank' has no id column 'client'")
    refused(told("--party", "bank"), "--party 'bank': needed NAME=FILE")
    refused(told("--party", "bank=gone.csv"), "the table of party 'bank', 'gone.csv', does not exist")
    refused(told("gone"), "'gone' does not exist")
    refused(told("tables.toml"), "'tables.toml' is no table")
    refused(told("--task", "colour"), "task = 'colour': needed one of")
    refused(told("--id", "customer", "--same-order"), "--same-order says that there is no id")
    edit("telco.csv", "\n0,", "\n1,")
    refused(told("--id", "customer"), "party 'telco', id column 'customer': 1 ids occur more than once")
    assert not Path("run.toml").exists()
