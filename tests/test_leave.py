"""A party leaves a finished model of one_message."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load, save

from colonnade import Federation, Run, fit
from colonnade.errors import ConfigError, RunError
from colonnade.leave import leave
from colonnade.methods import OneMessage
from colonnade.report.uploads import told_of_uploads
from colonnade.saved import KEPT
from colonnade.upload_gain import check_can_compare
from colonnade.wire.messages import COORDINATOR
from tests.deploy.memory import Room
from tests.federations import small

TREES: dict[str, Any] = {"encoder": "trees", "trees": {"most": 12, "smallest_leaf": 3}}
NOISY: dict[str, Any] = {"labels": {"mechanism": "randomised_response", "epsilon": 1.0}}
PARTIES = ("party_0", "party_1", "party_2")


def everybody(task: str = "binary") -> Federation:
    return small(widths=(4, 3, 2), rows=250, task=task)


def trained(whole: Federation, **options: Any) -> Run:
    return fit(whole, options.pop("method", "one_message"), model=TREES, **options)


class TestLeaving:
    @pytest.mark.parametrize("gone", PARTIES)
    @pytest.mark.parametrize("privacy", [{}, NOISY], ids=["plain", "noisy labels"])
    def test_as_if_it_had_never_been_there(self, tmp_path: Path, gone: str, privacy: dict[str, Any]) -> None:
        """The same model and figures to the last bit, from the files of a run, with the labels that were drawn then."""
        whole = everybody()
        trained(whole, privacy=privacy, out=tmp_path / "old")
        before = {path.name: path.read_bytes() for path in (tmp_path / "old").iterdir()}
        left = leave(tmp_path / "old", gone, whole, out=tmp_path / "new")
        rest = whole.only([name for name in PARTIES if name != gone])
        wanted = trained(rest, privacy=privacy)
        assert left.fingerprint() == wanted.fingerprint()
        assert left.metrics == wanted.metrics
        assert left.traffic.record() == wanted.traffic.record()
        assert {path.name: path.read_bytes() for path in (tmp_path / "old").iterdir()} == before
        loaded = Run.load(tmp_path / "new")
        rows = rest.select(rest.split.test)
        assert torch.equal(loaded.logits(rows), wanted.logits(rows))

    def test_bytes_to_and_from_it_alone_are_taken_out(self) -> None:
        """Behind noise the guest gets labels of its own, and so do the others."""
        whole = everybody()
        run = trained(whole, guest="party_0", privacy=NOISY)
        left = leave(run, "party_2", whole)
        wanted = trained(whole.only(PARTIES[:2]), guest="party_0", privacy=NOISY)
        assert left.fingerprint() == wanted.fingerprint()
        assert left.traffic.per_party() == wanted.traffic.per_party()
        assert left.traffic.multicast == wanted.traffic.multicast
        assert left.traffic.evaluation == wanted.traffic.evaluation

    def test_nothing_of_it_remains_but_the_record(self, tmp_path: Path) -> None:
        whole = everybody()
        run = trained(whole)
        left = run.leave("party_1", whole, out=tmp_path / "new")
        assert list(left.models) == ["party_0", "party_2"]
        assert left.result["stop"] == "party_1 left"
        (noted,) = left.about["left"]
        assert (noted["party"], noted["run"], noted["present"]) == ("party_1", run.id, ["party_0", "party_2"])
        assert noted["when"].endswith("+00:00")
        assert [party["name"] for party in left.about["parties"]] == ["party_0", "party_2"]
        assert len(left.kept["cache.scores"]) == 2
        assert list(left.ledger) == list(run.ledger), "what it released was released"
        assert {"party_1"} <= {entry.owner for entry in left.ledger}

    def test_with_trees_on_top(self) -> None:
        pytest.importorskip("lightgbm")
        whole, method = everybody(), OneMessage(guest="party_0", stack="trees")
        left = leave(trained(whole, method=method), "party_1", whole)
        wanted = trained(whole.only(["party_0", "party_2"]), method=method)
        assert left.fingerprint() == wanted.fingerprint()

    def test_who_joined_may_leave_and_come_back(self) -> None:
        whole = everybody("multiclass")
        first = trained(whole.only(PARTIES[:2]))
        joined = first.extend(whole)
        left = joined.leave("party_2", whole)
        assert left.fingerprint() == first.fingerprint()
        assert [one["party"] for one in left.about["joined"]] == ["party_2"]
        again = left.extend(whole)
        assert again.fingerprint() == joined.fingerprint()
        assert [one["party"] for one in again.about["left"]] == ["party_2"]

    def test_what_its_uploads_gained_is_asked_of_the_run_that_it_left(self) -> None:
        whole = everybody()
        left = trained(whole, privacy=NOISY).leave("party_2", whole)
        with pytest.raises(RunError, match="was left by a party after its training"):
            check_can_compare(left)
        assert "asks about the run before that" in told_of_uploads(left.record())


class TestRefusals:
    def test_a_method_whose_parties_were_trained_together(self) -> None:
        run = fit(small(), "vimadmm_j", rounds=1)
        with pytest.raises(ConfigError, match="nobody can leave a model of vimadmm_j"):
            run.leave("party_0", small())

    def test_nobody_of_that_name(self) -> None:
        whole = everybody()
        with pytest.raises(ConfigError, match=r"no party called 'shop'; parties: party_0, party_1, party_2"):
            trained(whole).leave("shop", whole)

    def test_the_only_party(self) -> None:
        whole = everybody().only(["party_0"])
        with pytest.raises(ConfigError, match="'party_0' is the only party of the run"):
            trained(whole).leave("party_0", whole)

    def test_the_guest(self) -> None:
        whole = everybody()
        with pytest.raises(ConfigError, match="'party_0' is the guest, the label holder's own party"):
            trained(whole, guest="party_0").leave("party_0", whole)

    def test_other_rows_or_not_everybody(self) -> None:
        whole = everybody()
        run = trained(whole)
        with pytest.raises(RunError, match=r"not those that the run was trained on \(it has 250 rows, these are 249\)"):
            run.leave("party_0", whole.take(torch.arange(249)))
        with pytest.raises(ConfigError, match="no party called 'party_2'"):
            run.leave("party_2", whole.only(PARTIES[:2]))

    def test_a_run_that_kept_no_scores(self, tmp_path: Path) -> None:
        whole = everybody()
        trained(whole, out=tmp_path / "run")
        (tmp_path / "run" / KEPT).unlink()
        with pytest.raises(RunError, match="this run kept no scores"):
            leave(tmp_path / "run", "party_0", whole)

    def test_scores_that_somebody_changed(self, tmp_path: Path) -> None:
        """A bit of one score: the stacks would be fitted to it without a word."""
        trained(everybody(), out=tmp_path / "run")
        file = tmp_path / "run" / KEPT
        kept = load(file.read_bytes())
        kept["cache.scores"][0, 3] += 1.0
        file.write_bytes(save(kept))
        with pytest.raises(RunError, match="was changed or is damaged: its digest does not fit"):
            leave(tmp_path / "run", "party_1", everybody())
        file.write_bytes(save({name: value for name, value in kept.items() if name != "of.digest"}))
        assert leave(tmp_path / "run", "party_1", everybody()), "a file of an earlier version has none"

    def test_a_folder_that_holds_a_run(self, tmp_path: Path) -> None:
        whole = everybody()
        run = trained(whole, out=tmp_path / "run")
        with pytest.raises(RunError, match="already holds a run"):
            run.leave("party_0", whole, out=tmp_path / "run")

    def test_a_run_of_separate_organisations(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        from colonnade.cli.main import main

        settings: dict[str, Any] = {
            "data": {"widths": (4, 3), "rows": 90, "task": "binary"},
            "model": {"encoder": "ridge"},
        }
        with Room.of(tmp_path, PARTIES[:2], method={"name": "one_message", "folds": 2}, **settings) as scene:
            scene.train()
        with pytest.raises(SystemExit) as ended:
            main(["leave", str(scene.trial.place(COORDINATOR)), "--party", "party_1"])
        assert ended.value.code == 2
        assert "one of separate organisations" in (told := capsys.readouterr().err) and "takes_over" in told


@pytest.mark.filterwarnings("ignore:rows whose id not every table has")
def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The tables of all go on saying which rows there are: without the shop's, more would match."""
    pd = pytest.importorskip("pandas")
    from colonnade.cli.main import main

    drawn = torch.randn(200, 4, generator=torch.Generator().manual_seed(0)).numpy()
    ids = [f"c{k}" for k in range(200)]
    bank = {"customer": ids, "income": drawn[:, 0], "churn": (drawn.sum(axis=1) > 0).astype(int)}
    pd.DataFrame(bank).to_csv(tmp_path / "bank.csv", index=False)
    pd.DataFrame({"customer": ids, "minutes": drawn[:, 1]}).to_csv(tmp_path / "telco.csv", index=False)
    pd.DataFrame({"customer": ids[:180], "spent": drawn[:180, 2]}).to_csv(tmp_path / "shop.csv", index=False)
    tables = ", ".join(f"{name} = '{tmp_path}/{name}.csv'" for name in ("bank", "telco", "shop"))
    (tmp_path / "job.toml").write_text(
        f"[data]\ntables = {{ {tables} }}\nlabels = 'churn'\ntask = 'binary'\nid = 'customer'\n"
        "[method]\nname = 'one_message'\n[model]\nencoder = 'ridge'\n[model.shop]\nscale_columns = 'always'\n"
    )

    def run(*arguments: str) -> int:
        with pytest.raises(SystemExit) as ended:
            main(list(arguments))
        return int(ended.value.code or 0)

    assert run("train", str(tmp_path / "job.toml"), "--out", str(tmp_path / "old"), "--quiet") == 0
    assert run("leave", str(tmp_path / "old"), "--party", "bank", "--out", str(tmp_path / "no")) == 2
    assert not (tmp_path / "no").exists()
    capsys.readouterr()
    assert run("leave", str(tmp_path / "old"), "--party", "shop", "--out", str(tmp_path / "new"), "--json") == 0
    told = json.loads(capsys.readouterr().out.strip().splitlines()[-1])
    assert told["stop"] == "shop left"
    left = Run.load(tmp_path / "new")
    assert left.model.design.parties == ("bank", "telco")
    assert sum(left.about["rows"][part] for part in ("train", "validation", "test")) == 180
    new = ["--tables", f"bank={tmp_path}/bank.csv", "--tables", f"telco={tmp_path}/telco.csv"]
    assert run("predict", str(tmp_path / "new"), *new, "--output", str(tmp_path / "new.csv")) == 0
    assert run("predict", str(tmp_path / "new"), "--rows", "test", "--output", str(tmp_path / "test.csv")) == 0
    assert run("report", str(tmp_path / "new"), "--out", str(tmp_path / "report")) == 0
    assert "shop left" in (tmp_path / "report" / "report.html").read_text(encoding="utf-8")

    for newcomer in ("shop", "store"):  # who left comes back, or somebody else comes
        back = ["--party", f"{newcomer}={tmp_path}/shop.csv", "--out", str(tmp_path / newcomer)]
        assert run("extend", str(tmp_path / "new"), *back, "--set", f"model.{newcomer}.scale_columns=always") == 0
        joined = Run.load(tmp_path / newcomer)
        assert joined.model.design.parties == ("bank", "telco", newcomer)
    assert run("predict", str(tmp_path / "shop"), "--rows", "test", "--output", str(tmp_path / "test.csv")) == 0
    assert Run.load(tmp_path / "shop").metrics == Run.load(tmp_path / "old").metrics
