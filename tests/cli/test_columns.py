"""`columns`, `predict --by-party` and `scorecard`: files in, tables and files out, and what they refuse."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import colonnade as cn
from tests.cli.conftest import Call, call_main
from tests.cli.test_bad_input import TABLES, edit, refused, write_tables


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two tables, a run of them, and the bank's part."""
    folder = tmp_path_factory.mktemp("columns")
    with pytest.MonkeyPatch.context() as here, contextlib.redirect_stdout(io.StringIO()):
        here.chdir(folder)
        write_tables()
        assert call_main("train", "tables.toml", "--out", "run", "--quiet") == 0
        cn.Model.load("run").part("bank").save("part")
    return folder


@pytest.fixture
def trained(cli: Call, made: Path) -> Call:
    """The command line in a copy of that folder."""
    shutil.copytree(made, Path.cwd(), dirs_exist_ok=True)
    return cli


class TestColumns:
    def test_a_part_alone(self, trained: Call) -> None:
        done = trained("columns", "part", "--table", "bank.csv", "--output", "why", "--draws", 3)
        assert done.code == 0, done.err
        assert "income" in done.out and "mean absolute change of the outputs of party 'bank'" in done.out
        table = pd.read_csv("bank.csv")
        part = cn.Part.load("part")
        rows = pd.read_csv("why/contributions.csv", index_col="row")
        expected = part.contributions(table).to_frame()
        np.testing.assert_allclose(rows.to_numpy(), expected.to_numpy(), atol=1e-12)
        assert list(rows.columns) == ["(base)", "income", "balance", "(total)"] and len(rows) == 60
        importance = pd.read_csv("why/importance.csv")
        np.testing.assert_allclose(importance["importance"], part.importance(table, draws=3).to_frame()["importance"])
        facts = json.loads(Path("why/columns.json").read_text())
        assert facts["contributions"]["rows"] == 60 and facts["importance"]["draws"] == 3
        assert not Path("part/part_ledger.jsonl").exists(), "nothing left"

    def test_a_text_file_may_be_said_to_be_written_otherwise(self, trained: Call) -> None:
        pd.read_csv("bank.csv").to_csv("german.csv", sep=";", decimal=",", index=False)
        files = (["bank.csv"], ["german.csv", "--separator", ";", "--decimal", ","])
        one, other = (trained("columns", "part", "--table", *file, "--json").json for file in files)
        assert one == other

    def test_one_row_is_shown_with_what_each_column_adds(self, trained: Call) -> None:
        pd.read_csv("bank.csv")[:1].to_csv("one.csv", index=False)
        done = trained("columns", "part", "--table", "one.csv", "--background", "bank.csv")
        assert done.code == 0 and "(base)" in done.out and "(total)" in done.out and "income" in done.out
        assert "counted from the mean of 60 background rows" in done.out

    def test_a_run_by_a_metric(self, trained: Call) -> None:
        before = len(cn.Model.load("run").ledger)
        done = trained("columns", "run", "--rows", "test", "--draws", 2, "--metric", "log_loss", "--json")
        assert done.code == 0, done.err
        found = done.json["importance"]
        assert {one["column"] for one in found["columns"]} == {"income", "balance", "minutes"}
        assert found["of"] == "log loss lost" and done.json["contributions"] is None
        assert len(cn.Model.load("run").ledger) == before + 2 + 2 * 3, "the folder's ledger goes on"

    def test_a_party_of_a_run_with_heads_at_the_coordinator(self, trained: Call) -> None:
        edit("tables.toml", "vimadmm_j", "vimadmm")
        assert call_main("train", "tables.toml", "--out", "split", "--quiet") == 0
        done = trained("columns", "split", "--party", "bank", "--table", "bank.csv", "--json")
        assert done.code == 0 and done.json["contributions"]["gap"] < 1e-9
        cn.Model.load("split").part("bank").save("bare")
        refused(trained("columns", "bare", "--table", "bank.csv"), "vimadmm keeps the heads at the coordinator")

    @pytest.mark.parametrize(
        ("arguments", "told"),
        [
            (("part",), "--table FILE of one party, or --rows"),
            (("part", "--table", "bank.csv", "--rows", "test"), "say one thing to explain"),
            (("part", "--table", "bank.csv", "--party", "telco"), "holds the part of 'bank'"),
            (("run", "--table", "bank.csv"), "--party (bank, telco)"),
            (("run", "--table", "bank.csv", "--party", "shop"), "no party called 'shop'"),
            (("run", "--rows", "test", "--party", "bank"), "--party and --background go with --table"),
            (("part", "--table", "bank.csv", "--metric", "auc"), "--metric and --uncovered go with --rows"),
            (("part", "--table", "telco.csv"), "lacks the column 'income'"),
            (("part", "--table", "bank.csv", "--draws", "0"), "draws = 0"),
            (("nowhere", "--table", "bank.csv", "--party", "bank"), "nowhere"),
        ],
    )
    def test_what_cannot_be_explained_is_refused(self, trained: Call, arguments: tuple[str, ...], told: str) -> None:
        done = trained("columns", *arguments, "--output", "why")
        assert done.code == 2 and told in done.err
        assert not Path("why").exists()


class TestByParty:
    def test_each_party_has_a_column(self, trained: Call) -> None:
        tables = ["--tables", "bank=bank.csv", "--tables", "telco=telco.csv"]
        before = len(cn.Model.load("run").ledger)
        done = trained("predict", "run", *tables, "--proba", "--by-party", "--output", "out.csv")
        assert done.code == 0, done.err
        model, told = cn.Model.load("run"), pd.read_csv("out.csv")
        assert len(model.ledger) == before + 2, "as much as for a prediction"
        score = told["base"] + told["from_bank"] + told["from_telco"]
        np.testing.assert_allclose(1 / (1 + np.exp(-score)), told["proba_1"], atol=1e-5)
        plain = trained("predict", "run", *tables, "--proba", "--output", "plain.csv")
        assert plain.code == 0
        pd.testing.assert_frame_equal(told[["row", "prediction"]], pd.read_csv("plain.csv")[["row", "prediction"]])

    def test_classes_have_a_column_each(self, cli: Call, finished: Path) -> None:
        done = cli("predict", finished, "--rows", "test", "--by-party", "--json")
        assert done.code == 0, done.err
        assert {"base_0", "from_party_1_0", "from_party_2_9"} <= set(done.json["predictions"][0])

    def test_not_between_organisations(self, trained: Call) -> None:
        refused(
            trained("predict", "run", "--ids", "ids.csv", "--by-party"), "--by-party takes the parts of all parties"
        )


class TestScorecard:
    def test_a_card_is_made_saved_and_scores_new_tables(self, trained: Call) -> None:
        done = trained("scorecard", "tables.toml", "--release-labels", "--bins", 3, "--out", "card")
        assert done.code == 0, done.err
        assert "released to bank without protection" in done.out and "information" in done.out
        assert {path.name for path in Path("card").iterdir()} == {
            "bank.csv", "telco.csv", "scorecard.json", "ledger.jsonl",
        }  # fmt: skip
        tables = ["--tables", "bank=bank.csv", "--tables", "telco=telco.csv", "--id", "customer"]
        scored = trained("scorecard", "card", *tables, "--output", "points.csv")
        assert scored.code == 0, scored.err
        frames = {"bank": pd.read_csv("bank.csv"), "telco": pd.read_csv("telco.csv")}
        from colonnade.scorecards.card import Scorecard

        expected = Scorecard.load("card").score(frames, id="customer")
        assert pd.read_csv("points.csv")["points"].tolist() == expected.tolist()
        frames["bank"].to_csv("semicolons.csv", sep=";", decimal=",", index=False)
        german = ["--tables", "bank=semicolons.csv", "--separator", "bank=;", "--decimal", "bank=,"]
        assert trained("scorecard", "card", *german, *tables[2:], "--output", "german.csv").code == 0
        assert Path("german.csv").read_text() == Path("points.csv").read_text()
        to_screen = trained("scorecard", "card", *tables)
        assert to_screen.out.splitlines()[0] == "row,points,probability_1"

    def test_a_run_and_a_part_of_one_show_their_cards(self, trained: Call) -> None:
        """As organisations have them: each its part in a folder of its own."""
        data, others = TABLES.split("[method]")
        settings = others[others.index("[model]") :]
        Path("card.toml").write_text(f"{data}[data.columns]\nbins = 3\n[method]\nname = 'scorecard'\n{settings}")
        assert trained("train", "card.toml", "--out", "cards", "--quiet").code == 0
        shown = trained("scorecard", "cards", "--out", "all")
        assert shown.code == 0 and "base points" in shown.out and "stands in the ledger of cards" in shown.out, (
            shown.err
        )
        cn.Model.load("cards").part("bank").save("own")
        alone = trained("scorecard", "own", "--out", "home")
        assert alone.code == 0 and "income" in alone.out, alone.err
        assert Path("home/bank.csv").read_text() == Path("all/bank.csv").read_text()
        assert "minutes" not in trained("scorecard", "own", "--json").out
        tables = {name: f"{name}={name}.csv" for name in ("bank", "telco")}
        scored = trained("scorecard", "own", "--tables", tables["bank"], "--json").json["scores"]
        whole = trained("predict", "cards", "--tables", tables["bank"], "--tables", tables["telco"], "--json")
        rest = cn.Model.load("cards").part("telco").predict(pd.read_csv("telco.csv"))["o"][:, 0].tolist()
        base = json.loads(Path("all/scorecard.json").read_text())["base_points"]
        by_row = {row["row"]: row["points"] for row in whole.json["predictions"]}
        assert by_row == {row: base + mine + other for (row, mine), other in zip(scored, rest, strict=True)}
        assert not Path("own/part_ledger.jsonl").exists(), "nothing left"
        refused(trained("scorecard", "own", "--tables", tables["telco"]), "is of party 'bank' alone")
        refused(trained("columns", "own", "--table", "bank.csv"), "stands on its card")

    def test_noisy_labels(self, trained: Call) -> None:
        done = trained("scorecard", "tables.toml", "--label-epsilon", 2, "--out", "card", "--json")
        assert done.code == 0, done.err
        assert "epsilon 2, delta 0, unit LABEL" in done.json["labels"]
        assert any(noise > 0 for noise in done.json["parties"]["bank"]["columns"][0]["noise"])

    @pytest.mark.parametrize(
        ("arguments", "told"),
        [
            (("tables.toml", "--out", "card"), "--label-epsilon"),
            (("tables.toml", "--release-labels"), "--out DIR"),
            (("tables.toml", "--release-labels", "--out", "run"), "run exists already"),
            (("tables.toml", "--release-labels", "--out", "card", "--bins", "1"), "bins = 1"),
            (("tables.toml", "--release-labels", "--tables", "bank=bank.csv"), "give that folder"),
            (("run", "--tables", "bank=bank.csv"), "trained vimadmm_j, and no scorecard"),
            (("part",), "is of a vimadmm_j model, and no scorecard"),
            (("why", "--tables", "bank=bank.csv"), "has no scorecard.json"),
            (("part", "--label-epsilon", "1"), "leave out the options that are for making a scorecard"),
            (("private.toml", "--release-labels", "--out", "card"), "[privacy] is for trainings"),
            (("digits.toml", "--release-labels", "--out", "card"), "a scorecard needs tables"),
            (("party.toml", "--release-labels", "--out", "card"), "organisations train a scorecard as a run"),
        ],
    )
    def test_what_cannot_be_made_is_refused(self, trained: Call, arguments: tuple[str, ...], told: str) -> None:
        Path("private.toml").write_text(TABLES + "[privacy.labels]\nmechanism = 'alibi'\nepsilon = 1.0\n")
        Path("digits.toml").write_text("[data]\nset = 'digits'\n")
        Path("party.toml").write_text("[party]\nname = 'bank'\n")
        Path("why").mkdir()
        refused(trained("scorecard", *arguments), told)
        assert not Path("card").exists()
