"""`predict`: rows of the run's own data, new tables, and what it cannot know."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from colonnade.cli.predict_ids import read_wanted
from colonnade.config import read_toml
from colonnade.data.sets import load_set
from colonnade.data.table_file import TextFormat
from colonnade.job import load_data
from colonnade.run import Run, read_record
from colonnade.saved import TRAINED
from tests.cli.conftest import SMALL, Call
from tests.cli.test_bad_input import edit, refused, write_tables


def read(path: str | Path) -> list[dict[str, str]]:
    with Path(path).open() as file:
        return list(csv.DictReader(file))


def write(path: str, values: np.ndarray, ids: list[str] | None = None) -> None:
    header = ([] if ids is None else ["who"]) + [f"c{k}" for k in range(values.shape[1])]
    rows = [([] if ids is None else [ids[i]]) + [repr(float(v)) for v in row] for i, row in enumerate(values)]
    Path(path).write_text("\n".join(",".join(line) for line in [header, *rows]) + "\n")


def test_test_rows_score_what_the_record_says(cli: Call, finished: Path) -> None:
    done = cli("predict", finished, "--rows", "test", "--proba", "--output", "test.csv", "--json")
    assert done.code == 0, done.err
    assert done.json["score"] == read_record(finished)["result"]["test_score"]
    rows = read("test.csv")
    assert done.json["rows"] == len(rows) == 359
    assert list(rows[0]) == ["row", "prediction", *(f"proba_{k}" for k in range(10))]
    federation = load_set("digits", parties=2)
    assert [int(r["row"]) for r in rows] == federation.split.test.tolist()
    for row in rows[:20]:
        chances = [float(row[f"proba_{k}"]) for k in range(10)]
        assert int(row["prediction"]) == int(np.argmax(chances))
        assert sum(chances) == pytest.approx(1, abs=1e-4)
    assert not Path("test.csv.part").exists()


def test_rows_that_count_differently_score_what_the_record_says(cli: Call) -> None:
    rng = np.random.default_rng(0)
    x, ids = rng.normal(size=(400, 3)), np.arange(400)
    yes = x[:, 0] + x[:, 1] + rng.normal(size=400) > 0
    bank = {"id": ids, "a": x[:, 0], "w": rng.uniform(0.1, 5, size=400), "y": np.where(yes, "yes", "no")}
    pd.DataFrame(bank).to_csv("bank.csv", index=False)
    pd.DataFrame({"id": ids, "b": x[:, 1]}).to_csv("telco.csv", index=False)
    tables = "tables = { bank = 'bank.csv', telco = 'telco.csv' }\nlabels = 'y'\nid = 'id'\nweights = 'w'\n"
    Path("job.toml").write_text(f"[data]\n{tables}[method]\nname = 'one_message'\n[model]\nencoder = 'ridge'\n")
    assert cli("train", "job.toml", "--out", "weighted").code == 0
    done = cli("predict", "weighted", "--rows", "test", "--output", "test.csv", "--json")
    recorded = pytest.approx(read_record(Path("weighted"))["result"]["test_score"], abs=1e-9)
    assert done.json["score"] == recorded
    assert (
        cli("columns", "weighted", "--rows", "test", "--draws", "2", "--json").json["importance"]["score"] == recorded
    )


def test_csv_goes_to_stdout_and_words_to_stderr(cli: Call, finished: Path) -> None:
    done = cli("predict", finished, "--rows", "validation")
    assert done.out.splitlines()[0] == "row,prediction"
    assert len(done.out.splitlines()) == 1 + 180
    assert "180 rows, accuracy 0." in done.err


def test_json_without_a_file_has_the_predictions(cli: Call, finished: Path) -> None:
    done = cli("predict", finished, "--rows", "test", "--json")
    assert len(done.json["predictions"]) == 359
    assert set(done.json["predictions"][0]) == {"row", "prediction"}


def test_new_tables_of_model_inputs(cli: Call, finished: Path) -> None:
    federation = load_set("digits", parties=2)
    rows = federation.split.test[:7]
    for party in federation.parties:
        write(f"{party.name}.csv", party.columns[rows].flatten(1).double().numpy())
    tables = ["--tables", "party_1=party_1.csv", "--tables", "party_2=party_2.csv"]
    done = cli("predict", finished, *tables, "--output", "new.csv")
    assert done.code == 0, done.err
    wanted = Run.load(finished).predict({p.name: p.columns[rows] for p in federation.parties})
    assert [int(r["prediction"]) for r in read("new.csv")] == wanted.tolist()
    assert [r["row"] for r in read("new.csv")] == [str(k) for k in range(7)]


def test_new_tables_are_joined_by_id_in_any_order(cli: Call, finished: Path) -> None:
    federation = load_set("digits", parties=2)
    rows = federation.split.test[:4]
    one, two = (p.columns[rows].flatten(1).double().numpy() for p in federation.parties)
    write("one.csv", one, ["007", "b", "c", "d"])
    write("two.csv", two[::-1], ["d", "c", "b", "007"])
    done = cli("predict", finished, "--tables", "party_1=one.csv", "--tables", "party_2=two.csv", "--id", "who")
    wanted = Run.load(finished).predict({p.name: p.columns[rows] for p in federation.parties}).tolist()
    lines = [line.split(",") for line in done.out.splitlines()[1:]]
    assert lines == [[name, str(label)] for name, label in zip(["007", "b", "c", "d"], wanted, strict=True)]


def test_tables_that_do_not_fit(cli: Call, finished: Path) -> None:
    good, narrow = np.zeros((3, 32)), np.zeros((3, 31))
    write("one.csv", good, ["a", "b", "c"])
    write("two.csv", good[:2], ["a", "b"])
    write("narrow.csv", narrow)
    write("plain.csv", good)
    write("short.csv", good[:2])
    Path("words.csv").write_text("\n".join([",".join(f"c{k}" for k in range(32)), *[",".join(["x"] * 32)] * 3]) + "\n")
    Path("nan.csv").write_text("\n".join([",".join(f"c{k}" for k in range(32)), *["," * 31] * 3]) + "\n")
    both = {
        ("plain.csv", "narrow.csv"): "31 columns of inputs; its model reads 32",
        ("plain.csv", "short.csv"): "different numbers of rows",
        ("plain.csv", "words.csv"): "not numeric",
        ("plain.csv", "nan.csv"): "NaN",
        ("plain.csv", "gone.csv"): "does not exist",
    }
    for (first, second), needle in both.items():
        done = cli("predict", finished, "--tables", f"party_1={first}", "--tables", f"party_2={second}")
        assert (done.code, done.out) == (2, ""), first
        assert needle in done.err
    done = cli("predict", finished, "--tables", "party_1=one.csv", "--tables", "party_2=two.csv", "--id", "who")
    assert "for example 'c'" in done.err
    done = cli("predict", finished, "--tables", "party_1=one.csv")
    assert "one file for each of the parties party_1, party_2" in done.err
    assert "needed PARTY=FILE" in cli("predict", finished, "--tables", "one.csv").err
    assert "say one thing to predict" in cli("predict", finished).err


def trained_from_tables(cli: Call) -> None:
    write_tables()
    assert cli("train", "tables.toml", "--out", "here").code == 0


def test_a_run_from_tables_predicts_its_own_rows_and_raw_ones_alike(cli: Call) -> None:
    trained_from_tables(cli)
    done = cli("predict", "here", "--rows", "test", "--proba", "--json")
    assert done.json["score"] == read_record(Path("here"))["result"]["test_score"]
    seen = {row["row"]: row for row in done.json["predictions"]}
    raw = cli("predict", "here", "--tables", "bank=bank.csv", "--tables", "telco=telco.csv", "--proba", "--json")
    assert raw.code == 0, raw.err
    told = {row["row"]: row for row in raw.json["predictions"]}
    assert list(told) == [str(k) for k in range(60)]
    assert {name: told[name] for name in seen} == seen


def test_raw_tables_in_other_orders_give_the_same(cli: Call) -> None:
    trained_from_tables(cli)
    tables = ["--tables", "bank=bank.csv", "--tables", "telco=telco.csv"]
    straight = cli("predict", "here", *tables, "--proba").out.splitlines()
    bank, telco = (pd.read_csv(file, dtype=str) for file in ("bank.csv", "telco.csv"))
    bank.iloc[::-1, ::-1].to_csv("bank.csv", index=False)
    telco.drop(columns="churn").sample(frac=1, random_state=0).to_csv("telco.csv", index=False, sep=";")
    again = cli("predict", "here", *tables, "--proba").out.splitlines()
    assert again[0] == straight[0]
    assert again[1:] == straight[:0:-1]


def test_each_table_may_have_its_own_name_for_the_id(cli: Call) -> None:
    write_tables()
    edit("telco.csv", "customer,", "subscriber,")
    edit("tables.toml", 'id = "customer"', 'id = { bank = "customer", telco = "subscriber" }')
    assert cli("train", "tables.toml", "--out", "here").code == 0
    tables = ["--tables", "bank=bank.csv", "--tables", "telco=telco.csv"]
    straight = cli("predict", "here", *tables)
    assert straight.out.splitlines()[1].startswith("0,")
    edit("bank.csv", "customer,", "key,")
    named = cli("predict", "here", *tables, "--id", "bank=key", "--id", "telco=subscriber")
    assert named.out == straight.out
    refused(cli("predict", "here", *tables), "party 'bank' has no id column 'customer', and party 'telco' has one")
    assert cli("predict", "here", *tables, "--id", "bank=key").out == straight.out  # telco's is that of the training
    refused(cli("predict", "here", *tables, "--id", "key", "--id", "x"), "party 'bank' has no id column 'x'")
    refused(
        cli("predict", "here", *tables, "--id", "bank=key", "--id", "x"),
        "--id 'x': say it for all tables, or PARTY=VALUE for each of bank, telco",
    )


def test_new_files_are_read_as_they_are_said_to_be_written(cli: Call) -> None:
    trained_from_tables(cli)
    tables = ["--tables", "bank=bank.csv", "--tables", "telco=telco.csv"]
    straight = cli("predict", "here", *tables, "--proba").out
    lines = Path("bank.csv").read_text().replace(",", ";").replace(".", ",")
    Path("bank.csv").write_text(lines)
    with_comma = cli("predict", "here", *tables, "--proba", "--decimal", "bank=,", "--separator", "bank=;")
    assert with_comma.code == 0 and with_comma.out == straight
    Path("bank.csv").write_text(lines.replace(";0,", ";1,").replace(";-0,", ";-1,"))
    refused(cli("predict", "here", *tables), "the comma may be a decimal mark or mark thousands; say decimal")
    assert cli("predict", "here", *tables, "--decimal", "bank=,").code == 0
    refused(cli("predict", "here", *tables, "--decimal", "."), "column 'income' had numbers in training and has text")
    refused(cli("predict", "here", *tables, "--encoding", "utf-9"), "[options] encoding = 'utf-9' is not valid")
    refused(cli("predict", "here", *tables, "--separator", ";", "--separator", ","), "--separator was said more than")


def test_an_id_of_several_columns_may_be_called_otherwise(cli: Call) -> None:
    write_tables()
    for file in ("bank.csv", "telco.csv"):
        lines = Path(file).read_text().splitlines()
        Path(file).write_text("\n".join([f"branch,{lines[0]}", *(f"{k % 4},{x}" for k, x in enumerate(lines[1:]))]))
    edit("tables.toml", 'id = "customer"', 'id = ["branch", "customer"]')
    assert cli("train", "tables.toml", "--out", "here").code == 0
    tables = ["--tables", "bank=bank.csv", "--tables", "telco=telco.csv"]
    straight = cli("predict", "here", *tables)
    assert straight.code == 0
    edit("bank.csv", "branch,customer", "office,client")
    bank, telco = ["--id", "bank=office", "--id", "bank=client"], ["--id", "telco=branch", "--id", "telco=customer"]
    assert cli("predict", "here", *tables, *bank, *telco).out == straight.out
    refused(cli("predict", "here", *tables, *bank, *telco[:2]), "all tables need ids of equally many columns")


def test_raw_tables_that_do_not_fit_are_refused_by_party_and_column(cli: Call) -> None:
    trained_from_tables(cli)
    tables = ["--tables", "bank=bank.csv", "--tables", "telco=telco.csv"]
    edit("bank.csv", "income", "Income")
    refused(cli("predict", "here", *tables), "party 'bank': the new table lacks the column 'income'", "'Income'")
    edit("bank.csv", "Income", "income")
    edit("telco.csv", "\n3,", "\n3,many")
    refused(cli("predict", "here", *tables), "party 'telco', column 'minutes' had numbers in training and has text now")
    refused(cli("predict", "here", *tables[:2]), "one file for each of the parties bank, telco; got bank")


def test_tables_of_some_parties_with_some_of_the_rows(cli: Call) -> None:
    """Each row by the parties that it has; every line says who was missing."""
    trained_from_tables(cli)
    for name, some in (("bank", slice(1, 7)), ("telco", slice(4, 9))):
        lines = Path(f"{name}.csv").read_text().splitlines()
        Path(f"{name}_new.csv").write_text("\n".join([lines[0], *lines[some]]) + "\n")
    alone = cli("predict", "here", "--tables", "bank=bank_new.csv", "--absent", "leave-out", "--proba")
    assert alone.code == 0, alone.err
    assert "6 rows; WITHOUT the part of telco" in alone.err
    rows = [line.split(",") for line in alone.out.splitlines()]
    assert rows[0][0] == "row" and rows[0][-1] == "without" and {row[-1] for row in rows[1:]} == {"telco"}
    both = ["--tables", "bank=bank_new.csv", "--tables", "telco=telco_new.csv"]
    refused(cli("predict", "here", *both), "the ids of 'bank' and 'telco' differ")
    few = cli("predict", "here", *both, "--absent", "leave-out").err
    assert "8 rows; 5 of them WITHOUT the part of bank, telco, see the column without" in few
    told = cli("predict", "here", *both, "--absent", "leave-out", "--json").json
    assert [row["without"] for row in told["predictions"]] == ["telco"] * 3 + [""] * 3 + ["bank"] * 2
    assert told["left_out"] == ["bank", "telco"]
    refused(cli("predict", "here", *both, "--absent", "leave-out", "--by-party"), "--by-party takes the parts of all")


def test_categories_stay_text_in_new_files_and_unknown_ones_are_told(cli: Call) -> None:
    write_tables()
    lines = Path("bank.csv").read_text().splitlines()
    codes = [f"{line},{k % 3 + 1}" for k, line in enumerate(lines[1:])]
    Path("bank.csv").write_text("\n".join([f"{lines[0]},branch", *codes]) + "\n")
    edit("tables.toml", 'id = "customer"', 'id = "customer"\ncategories = ["branch"]')
    assert cli("train", "tables.toml", "--out", "here").code == 0
    assert read_record(Path("here"))["about"]["parties"][0]["shape"] == [2 + 3]
    tables = ["--tables", "bank=bank.csv", "--tables", "telco=telco.csv"]
    assert cli("predict", "here", *tables).err == "60 rows\n"
    edit("bank.csv", f"{codes[0]}\n", f"{codes[0][:-1]}9\n")
    told = cli("predict", "here", *tables)
    assert told.code == 0
    assert "warning: party 'bank', column 'branch': 1 of 60 values are categories that training did not see" in told.err
    edit("tables.toml", '["branch"]', '["brunch"]')
    refused(cli("train", "tables.toml", "--out", "there"), "categories names 'brunch', which is a column of none")


def test_a_folder_without_stored_preprocessing_scores_no_raw_tables(cli: Call) -> None:
    trained_from_tables(cli)
    record = json.loads(Path("here/run.json").read_text())
    del record["columns"]
    Path("here/run.json").write_text(json.dumps(record))
    Path("here/columns.skops").unlink()
    done = cli("predict", "here", "--tables", "bank=bank.csv", "--tables", "telco=telco.csv")
    refused(done, "raw tables cannot be scored with this run", "did not store its preprocessing")
    assert cli("predict", "here", "--rows", "test").code == 0


def test_yes_and_no_have_a_probability_each(cli: Call) -> None:
    write_tables()
    lines = Path("telco.csv").read_text().splitlines()
    named = [line[:-1] + ("no" if line.endswith("0") else "yes") for line in lines[1:]]
    Path("telco.csv").write_text("\n".join([lines[0], *named]) + "\n")
    edit("tables.toml", 'id = "customer"', 'id = "customer"\ntask = "binary"')
    assert cli("train", "tables.toml", "--out", "here").code == 0
    assert cli("predict", "here", "--rows", "train", "--proba", "--output", "out.csv").code == 0
    told = pd.read_csv("out.csv")
    assert list(told.columns) == ["row", "prediction", "proba_no", "proba_yes"]
    np.testing.assert_allclose(told["proba_no"] + told["proba_yes"], 1, atol=1e-5)
    assert (told["prediction"] == np.where(told["proba_yes"] > 0.5, "yes", "no")).all()
    run, federation = Run.load("here"), load_data(read_toml(Path("tables.toml"))["data"])
    chances = torch.sigmoid(run.logits(federation.select(federation.split.train)))[:, 0]
    np.testing.assert_allclose(told["proba_yes"], chances, atol=1e-5)


def test_rows_keep_the_ids_of_their_owners(cli: Call) -> None:
    write_tables()
    for file in ("bank.csv", "telco.csv"):
        lines = Path(file).read_text().splitlines()
        Path(file).write_text("\n".join([lines[0], *(f"c{line}" for line in lines[1:])]) + "\n")
    assert cli("train", "tables.toml", "--out", "here").code == 0
    assert cli("predict", "here", "--rows", "test").out.splitlines()[1].startswith("c")


def test_classes_keep_their_names(cli: Call) -> None:
    write_tables()
    lines = Path("telco.csv").read_text().splitlines()
    named = [line[:-1] + ("stays" if line.endswith("0") else "leaves") for line in lines[1:]]
    Path("telco.csv").write_text("\n".join([lines[0], *named]) + "\n")
    assert cli("train", "tables.toml", "--out", "here").code == 0
    assert cli("predict", "here", "--rows", "train", "--proba", "--output", "out.csv").code == 0
    assert list(read("out.csv")[0]) == ["row", "prediction", "proba_leaves", "proba_stays"]
    assert {row["prediction"] for row in read("out.csv")} <= {"leaves", "stays"}
    cli("report", "here", "--out", "page.html")
    assert '<th scope="row">leaves</th>' in Path("page.html").read_text()


def test_tables_may_move_but_not_change(cli: Call, tmp_path: Path) -> None:
    write_tables()
    assert cli("train", "tables.toml", "--out", "here").code == 0
    (tmp_path / "moved").mkdir()
    for file in ("bank.csv", "telco.csv"):
        Path(file).rename(tmp_path / "moved" / file)
    assert cli("predict", "here", "--rows", "test").code == 2
    assert cli("predict", "here", "--rows", "test", "--data-dir", "moved").code == 0
    text = Path("moved/bank.csv").read_text()
    Path("moved/bank.csv").write_text(text.replace("0.", "1.", 1))
    changed = cli("predict", "here", "--rows", "test", "--data-dir", "moved")
    assert changed.code == 2
    assert "was trained on other data" in changed.err


def test_an_output_that_cannot_be_written(cli: Call, finished: Path, tmp_path: Path) -> None:
    done = cli("predict", finished, "--rows", "test", "--output", "no/such/folder/x.csv")
    assert done.code == 2
    assert "choose another --output" in done.err
    assert not (tmp_path / "no").exists()


def test_the_pooled_reference_predicts_too(cli: Call, tmp_path: Path) -> None:
    (tmp_path / "pooled.toml").write_text(SMALL.replace('"vimadmm"', '"centralized"'))
    assert cli("train", "pooled.toml", "--out", "here").code == 0
    done = cli("predict", "here", "--rows", "test", "--json")
    assert done.json["score"] == read_record(Path("here"))["result"]["test_score"]


def test_training_rows_that_had_noise_are_refused(cli: Call, tmp_path: Path) -> None:
    noise = '\n[privacy]\nmechanism = "gaussian"\nclip = 1.0\nepsilon = 1.0\n'
    (tmp_path / "own.toml").write_text(SMALL + noise)
    run = tmp_path / "run"
    assert cli("train", tmp_path / "own.toml", "--out", run).code == 0
    before = (run / "ledger.jsonl").read_bytes()
    done = cli("predict", run, "--rows", "train")
    assert done.code == 2 and "of these rows trained this run: predicting them would release them" in done.err
    assert (run / "ledger.jsonl").read_bytes() == before and not done.out
    assert cli("predict", run, "--rows", "test").code == 0
    assert cli("predict", run, "--rows", "train", "--training-rows", "release").code == 0
    told = [r for r in Run.load(run).ledger if "training_rows" in dict(r.parameters)]
    assert {dict(r.parameters)["training_rows"] for r in told} == {1258.0} and len(told) == 2


def test_raw_tables_that_trained_with_noise_are_refused(cli: Call) -> None:
    write_tables()
    Path("private.toml").write_text(
        Path("tables.toml").read_text() + '\n[privacy]\nmechanism = "gaussian"\nclip = 1.0\nepsilon = 1.0\n'
    )
    assert cli("train", "private.toml", "--out", "here").code == 0
    given = ["--tables", "bank=bank.csv", "--tables", "telco=telco.csv"]
    refused(cli("predict", "here", *given), "of these rows trained this run", "recognised by bank")
    Path("here", TRAINED).unlink()
    told = cli("predict", "here", *given)
    assert told.code == 0 and told.err.startswith("warning: this run was saved without digests of its training rows")


TABLE_ARGUMENTS = ["--tables", "bank=bank.csv", "--tables", "telco=telco.csv"]


def test_a_saved_model_predicts_tables_as_its_run_does_and_its_ledger_goes_on(cli: Call) -> None:
    trained_from_tables(cli)
    wanted = cli("predict", "here", *TABLE_ARGUMENTS, "--proba").out
    Run.load("here").model.save("model")
    before = Path("model/ledger.jsonl").read_text().count("\n")
    done = cli("predict", "model", *TABLE_ARGUMENTS, "--proba")
    assert done.code == 0, done.err
    assert done.out == wanted
    assert Path("model/ledger.jsonl").read_text().count("\n") == before + 2


def test_a_saved_model_of_arrays_takes_tables_of_numbers(cli: Call, finished: Path) -> None:
    rows = load_set("digits", parties=2).select(torch.arange(5))
    Run.load(finished).model.save("model")
    for party, columns in rows.columns.items():
        write(f"{party}.csv", columns.flatten(1).double().numpy())
    given = ["--tables", "party_1=party_1.csv", "--tables", "party_2=party_2.csv"]
    done = cli("predict", "model", *given)
    assert done.out == cli("predict", finished, *given).out and done.code == 0


def test_a_saved_model_knows_no_rows_of_its_own_and_asks_no_parties(cli: Call, finished: Path) -> None:
    Run.load(finished).model.save("model")
    refused(cli("predict", "model", "--rows", "test"), "is a saved model", "--rows", "use --tables PARTY=FILE")
    Path("ids.txt").write_text("1\n")
    refused(cli("predict", "model", "--ids", "ids.txt"), "is a saved model", "--ids", "use --tables PARTY=FILE")


def test_a_part_alone_is_refused_with_what_a_prediction_needs(cli: Call) -> None:
    trained_from_tables(cli)
    Run.load("here").model.part("bank").save("bank")
    refused(
        cli("predict", "bank", "--tables", "bank=bank.csv"),
        "holds the part of one party, and a prediction needs the parts of all",
        "--ids at the label holder",
        "Part.load('bank')",
    )


def test_a_threshold_moves_the_decision_of_yes_and_no(cli: Call) -> None:
    write_tables()
    edit("tables.toml", 'id = "customer"', 'id = "customer"\ntask = "binary"')
    assert cli("train", "tables.toml", "--out", "here").code == 0
    plain = cli("predict", "here", "--rows", "train", "--json").json
    half = cli("predict", "here", "--rows", "train", "--threshold", "0.5", "--json").json
    assert half["predictions"] == plain["predictions"]
    done = cli("predict", "here", "--rows", "train", "--proba", "--threshold", "0.3", "--output", "out.csv", "--json")
    told = pd.read_csv("out.csv")
    assert (told["prediction"] == (told["proba_1"] > 0.3)).all()
    assert 0 < (told["proba_1"] > 0.5).sum() < (told["proba_1"] > 0.3).sum(), "it has to make a difference here"
    labels = pd.read_csv("telco.csv").set_index("customer")["churn"]
    right = (told["prediction"].to_numpy() == labels.loc[told["row"]].to_numpy()).mean()
    assert (done.json["score_name"], done.json["score"]) == ("accuracy at threshold 0.3", pytest.approx(right))
    refused(cli("predict", "here", *TABLE_ARGUMENTS, "--threshold", "1.5"), "threshold = 1.5", "between 0 and 1")


def test_a_threshold_is_refused_for_other_tasks_before_anything_leaves(cli: Call, finished: Path) -> None:
    before = (finished / "ledger.jsonl").read_bytes()
    refused(
        cli("predict", finished, "--rows", "test", "--threshold", "0.4"),
        "threshold = 0.4 is for a yes/no task; this is a",
    )
    assert (finished / "ledger.jsonl").read_bytes() == before


def test_wanted_ids_of_several_columns_in_a_table_or_one_per_line(tmp_path: Path) -> None:
    (tmp_path / "new.csv").write_text("branch,account;x\n007,1;1\n8,2;2\n")
    table = read_wanted(tmp_path / "new.csv", ("branch", "account;x"), TextFormat(separator=","))
    (tmp_path / "new.txt").write_text("007|1;1\n8|2;2\n")
    assert table == read_wanted(tmp_path / "new.txt", ("branch", "account;x")) == ["007|1;1", "8|2;2"]
