"""A party joins a finished model of one_message."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from colonnade import Federation, Run, fit
from colonnade.errors import ConfigError, RunError
from colonnade.extend import extend
from colonnade.methods import OneMessage
from colonnade.saved import KEPT
from colonnade.wire.messages import COORDINATOR, Purpose
from tests.deploy.memory import Room
from tests.federations import small

TREES: dict[str, Any] = {"encoder": "trees", "trees": {"most": 12, "smallest_leaf": 3}}
NOISY: dict[str, Any] = {"labels": {"mechanism": "randomised_response", "epsilon": 1.0}}
OLD, NEW = ("party_0", "party_1"), "party_2"


def everybody(task: str = "binary") -> Federation:
    return small(widths=(4, 3, 2), rows=250, task=task)


def first(whole: Federation, **options: Any) -> Run:
    return fit(whole.only(OLD), options.pop("method", "one_message"), model=options.pop("model", TREES), **options)


class TestJoining:
    @pytest.mark.parametrize("privacy", [{}, NOISY], ids=["plain", "noisy labels"])
    def test_as_if_all_had_been_there_from_the_beginning(self, tmp_path: Path, privacy: dict[str, Any]) -> None:
        """The same model to the last bit, from the files of a run, with the labels that were drawn then."""
        whole = everybody()
        first(whole, privacy=privacy, out=tmp_path / "old")
        before = {path.name: path.read_bytes() for path in (tmp_path / "old").iterdir()}
        joined = extend(tmp_path / "old", whole, out=tmp_path / "new")
        wanted = fit(whole, "one_message", model=TREES, privacy=privacy)
        assert joined.fingerprint() == wanted.fingerprint()
        assert joined.metrics == wanted.metrics
        assert joined.result["validation_score"] == wanted.result["validation_score"]
        assert joined.traffic.up == wanted.traffic.up
        assert {path.name: path.read_bytes() for path in (tmp_path / "old").iterdir()} == before
        loaded = Run.load(tmp_path / "new")
        rows = whole.select(whole.split.test)
        assert torch.equal(loaded.logits(rows), wanted.logits(rows))

    def test_nothing_of_the_others_changes_and_only_the_newcomer_sends(self) -> None:
        whole = everybody()
        old = first(whole)
        joined = old.extend(whole)
        for party in OLD:
            assert joined.models[party].keys() == old.models[party].keys()
            assert all(torch.equal(joined.models[party][k], v) for k, v in old.models[party].items())
        since = list(joined.ledger)[len(old.ledger) :]
        assert [e.owner for e in joined.ledger][: len(old.ledger)] == [e.owner for e in old.ledger]
        assert {(e.owner, e.audience) for e in since} == {(COORDINATOR, NEW), (NEW, COORDINATOR)}
        told = [(e.purpose, e.rows) for e in since if e.owner == NEW]
        assert (Purpose.TRAIN, 150) in told
        noted = joined.about["joined"]
        assert [(one["party"], one["run"], one["present"], one["labels"], one["rows"]) for one in noted] == [
            (NEW, old.id, list(OLD), "none", 150)
        ]
        assert noted[0]["when"].endswith("+00:00")

    def test_several_one_after_the_other_and_of_other_kinds(self, tmp_path: Path) -> None:
        whole = small(widths=(4, 4, 2, 4), rows=250, task="multiclass")
        model = {"hidden": 6, "embedding": 4}
        method = OneMessage(local_steps=6)
        run = fit(whole.only(["party_0", "party_2"]), method, model=model, dtype="float64")
        run = run.extend(whole.only(["party_0", "party_1", "party_2"]))  # in the group of party_0, before party_2
        run = run.extend(whole, model=TREES, out=tmp_path / "run")
        everything = {**model, "party_3": TREES}
        wanted = fit(whole, method, model=everything, dtype="float64")
        rows = whole.select(whole.split.test)
        torch.testing.assert_close(run.logits(rows), wanted.logits(rows), rtol=0, atol=1e-6)
        assert [one["party"] for one in run.about["joined"]] == ["party_1", "party_3"]
        assert torch.equal(Run.load(tmp_path / "run").logits(rows), run.logits(rows))

    def test_the_guest_stays_the_guest(self) -> None:
        whole = everybody()
        joined = first(whole, guest="party_0", privacy=NOISY).extend(whole)
        wanted = fit(whole, "one_message", model=TREES, guest="party_0", privacy=NOISY)
        assert joined.fingerprint() == wanted.fingerprint()
        assert joined.method == wanted.method
        assert joined.about["joined"][0]["labels"] == "randomised response"


class TestRefusals:
    def test_a_method_whose_parties_were_trained_together(self) -> None:
        run = fit(small().only(OLD), "vimadmm_j", rounds=1)
        with pytest.raises(ConfigError, match="nobody can join a model of vimadmm_j"):
            run.extend(small())

    @pytest.mark.parametrize("names", [OLD, ("party_0", NEW), ("party_0", "party_1", NEW, "party_3")])
    def test_not_exactly_one_new_party(self, names: tuple[str, ...]) -> None:
        whole = small(widths=(4, 3, 2, 2), rows=250, task="binary")
        run = first(whole)
        with pytest.raises(ConfigError, match=r"needed the parties of the run \(party_0, party_1\) and one more"):
            run.extend(whole.only(names))

    def test_other_rows(self) -> None:
        whole = everybody()
        run = first(whole)
        with pytest.raises(RunError, match=r"not those that the run was trained on \(it has 250 rows, these are 249\)"):
            run.extend(whole.take(torch.arange(249)))

    def test_a_run_that_kept_no_scores(self, tmp_path: Path) -> None:
        whole = everybody()
        first(whole, out=tmp_path / "run")
        (tmp_path / "run" / KEPT).unlink()
        with pytest.raises(RunError, match="this run kept no scores"):
            extend(tmp_path / "run", whole)

    def test_scores_of_another_run(self, tmp_path: Path) -> None:
        whole = everybody()
        for name in ("one", "other"):
            first(whole, model={"encoder": "ridge"}, out=tmp_path / name, seed=len(name))
        (tmp_path / "one" / KEPT).write_bytes((tmp_path / "other" / KEPT).read_bytes())
        with pytest.raises(RunError, match="is of another run than"):
            extend(tmp_path / "one", whole)

    def test_a_folder_that_holds_a_run(self, tmp_path: Path) -> None:
        whole = everybody()
        run = first(whole, out=tmp_path / "run")
        with pytest.raises(RunError, match="already holds a run"):
            run.extend(whole, out=tmp_path / "run")


def test_a_run_of_separate_organisations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Refused by that name, and before anything is said of tables that the label holder never had."""
    from colonnade.cli.main import main

    settings: dict[str, Any] = {"data": {"widths": (4, 3), "rows": 90, "task": "binary"}, "model": {"encoder": "ridge"}}
    with Room.of(tmp_path, OLD, method={"name": "one_message", "folds": 2}, **settings) as scene:
        scene.train()
    folder = scene.trial.place(COORDINATOR)
    with pytest.raises(SystemExit) as ended:
        main(["extend", str(folder), "--party", "shop=shop.csv"])
    assert ended.value.code == 2
    assert "this run is one of separate organisations" in capsys.readouterr().err


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pd = pytest.importorskip("pandas")
    from colonnade.cli.main import main

    drawn = torch.randn(200, 4, generator=torch.Generator().manual_seed(0)).numpy()
    ids = [f"c{k}" for k in range(200)]
    bank = {"customer": ids, "income": drawn[:, 0], "churn": (drawn.sum(axis=1) > 0).astype(int)}
    pd.DataFrame(bank).to_csv(tmp_path / "bank.csv", index=False)
    pd.DataFrame({"customer": ids, "minutes": drawn[:, 1]}).to_csv(tmp_path / "telco.csv", index=False)
    pd.DataFrame({"client": ids[::-1], "spent": drawn[::-1, 2]}).to_csv(tmp_path / "shop.csv", index=False)
    tables = f"tables = {{ bank = '{tmp_path}/bank.csv', telco = '{tmp_path}/telco.csv' }}"
    keys = "id = { bank = 'customer', telco = 'customer' }"
    (tmp_path / "job.toml").write_text(
        f"[data]\n{tables}\nlabels = 'churn'\ntask = 'binary'\n{keys}\n"
        "[method]\nname = 'one_message'\n[model]\nencoder = 'ridge'\n"
    )
    main_ok(main, ["train", str(tmp_path / "job.toml"), "--out", str(tmp_path / "old"), "--quiet"])
    command = ["extend", str(tmp_path / "old"), "--party", f"shop={tmp_path}/shop.csv", "--out", str(tmp_path / "new")]
    main_ok(main, [*command, "--set", "data.id.shop='client'", "--json"])
    told = json.loads(capsys.readouterr().out.strip().splitlines()[-1])
    assert told["stop"] == "shop joined"
    joined, old = Run.load(tmp_path / "new"), Run.load(tmp_path / "old")
    assert joined.model.design.parties == ("bank", "telco", "shop")
    assert joined.score is not None
    assert old.score is not None
    assert joined.score > old.score
    main_ok(main, ["predict", str(tmp_path / "new"), "--rows", "test", "--output", str(tmp_path / "test.csv")])
    with pytest.raises(SystemExit):
        main([*command[:4], "--out", str(tmp_path / "other")])  # its id has another name
    assert not (tmp_path / "other").exists()


def main_ok(main: Any, arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert not ended.value.code
