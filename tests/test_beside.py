"""A method beside each party alone and all columns in one place, in Python and on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import colonnade as cn
from colonnade.beside import MISSED, read_beside, trials
from colonnade.cli.screen import Bars
from colonnade.errors import ConfigError
from colonnade.evaluate.chance import resamples
from colonnade.evaluate.metrics import METRICS
from colonnade.federation import Federation
from colonnade.job import chosen_part, load_data, read_job
from colonnade.progress import Progress, Watcher
from colonnade.report.record import read_records
from colonnade.report.worth import read_worth
from colonnade.run import Run, read_record
from tests.cli.conftest import Call, cli, config
from tests.federations import small

__all__ = ["cli", "config"]  # fixtures
SHORT: dict[str, Any] = {"rounds": 3, "model": {"hidden": 6}, "progress": False}


def both(rows: int = 400) -> Federation:
    """Two parties of whom each knows a half of what makes a yes."""
    rng = np.random.default_rng(0)
    columns = {name: rng.normal(size=(rows, 3)).astype(np.float32) for name in ("bank", "telco")}
    odds = 3 * sum(part[:, 0] for part in columns.values())
    return Federation.from_arrays(columns, (rng.random(rows) < 1 / (1 + np.exp(-odds))).astype(int), name="both")


def test_each_alone_all_together_and_in_one_place() -> None:
    federation = both()
    found = cn.compare(federation, ["vimadmm_j"], seeds=2, beside=("alone", "central"), rounds=15, progress=False)
    assert found.worth is not None
    lines = {line["who"]: line for line in found.worth["trials"]}
    assert list(lines) == ["all together", "bank alone", "telco alone", "all columns in one place"]
    assert [line["columns"] for line in lines.values()] == [6, 3, 3, 6]
    assert all(len(line["runs"]) == 2 for line in lines.values())
    assert found.verdict.startswith("Joining is worth it: test AUC 0.")
    runs = {run.id: run for run in found.runs}
    joint, best = ([runs[name] for name in lines[who]["runs"]] for who in ("all together", found.worth["best"] or ""))
    gain = found.worth["gain"]
    assert gain is not None and gain["paired"]
    means = [np.mean([run.score for run in some]) for some in (joint, best)]
    assert gain["value"] == pytest.approx(means[0] - means[1])
    auc, apart = METRICS["auc"], []
    for heavy in resamples(len(federation.split.test)):
        values = [
            torch.stack([auc.values(t.task, t.answers.to(auc), t.truth, heavy) for t in map(_tested, some)]).mean(dim=0)
            for some in (joint, best)
        ]
        apart.append(values[0] - values[1])
    assert gain["interval"] == pytest.approx(np.quantile(torch.cat(apart).numpy(), [0.025, 0.975]).tolist())
    validation = {who: line["validation"] for who, line in lines.items() if line["role"] == "alone"}
    assert found.worth["best"] == max(validation, key=lambda who: validation[who] or 0)  # not by the test rows


def _tested(run: Run) -> Any:
    assert run.tested is not None
    return run.tested


@pytest.mark.parametrize(("method", "told"), [("vimadmm_j", True), ("split_learning", False)])
def test_what_only_shows_together_may_be_part_of_the_price(method: str, told: bool) -> None:
    """A yes is likelier where the first columns of both have the same sign: no sum of scores has that."""
    rng = np.random.default_rng(0)
    columns = {name: rng.normal(size=(1500, 2)).astype(np.float32) for name in ("bank", "telco")}
    odds = 4 * np.sign(columns["bank"][:, 0] * columns["telco"][:, 0])
    labels = (rng.random(1500) < 1 / (1 + np.exp(-odds))).astype(int)
    xor = Federation.from_arrays(columns, labels, name="xor")
    options: dict[str, Any] = {"seeds": 1, "progress": False, "model": {"hidden": 16}}
    found = cn.compare(xor, [method], beside=["central"], rounds=20, **options)
    assert found.worth is not None and found.worth["price"] is not None
    if told:
        assert found.worth["price"]["value"] > 0.2
    assert (MISSED in found.worth["notes"]) == told
    if told:
        noise = {"mechanism": "gaussian", "clip": 1.0, "sigma": 2.0, "evaluation": "simulated"}
        noisy = cn.compare(xor, [method], beside=["central"], privacy=noise, rounds=8, **options)
        assert noisy.worth is not None and MISSED not in noisy.worth["notes"]


def test_in_a_folder_it_is_kept_and_goes_on(tmp_path: Path) -> None:
    federation = small(task="binary")
    what: dict[str, Any] = {"seeds": 1, "beside": ["alone"], "out": tmp_path / "here", **SHORT}
    found = cn.compare(federation, ["vimadmm_j"], **what)
    places = sorted(path.parent.name for path in (tmp_path / "here").glob("*/run.json"))
    assert places == [*(f"alone-party_{n}-0" for n in range(4)), "vimadmm_j-0"]
    again = cn.compare(federation, ["vimadmm_j"], **what)
    assert again.worth == found.worth and found.worth is not None  # read: intervals row by row
    (tmp_path / "here" / "worth.json").unlink()
    later = cn.compare(federation, ["vimadmm_j"], **what)
    assert later.worth is not None and later.worth["gain"] is not None and found.worth["gain"] is not None
    assert not later.worth["gain"]["paired"] and later.worth["gain"]["value"] == found.worth["gain"]["value"]
    assert "wider than they need to be" in later.verdict
    page = cn.report(tmp_path / "here", tmp_path / "page").read_text()
    assert "Is it worth joining?" in page and 'id="worth"' in page
    records = read_records([tmp_path / "here"])
    assert read_worth(tmp_path / "here", records) == later.worth
    assert not any("tested" in key for record in records for key in (*record, *record["result"]))  # no row is stored


def test_what_stays_at_home_has_no_noise() -> None:
    noise = {"mechanism": "gaussian", "clip": 1.0, "sigma": 2.0, "evaluation": "simulated"}
    found = cn.compare(small(), ["vimadmm_j"], seeds=1, beside=["alone", "central"], privacy=noise, **SHORT)
    joint, *others = found.runs
    assert joint.privacy.protects and not any(run.privacy.protects for run in others)


def test_settings_of_other_parties_and_networks_of_ones_own_are_left_out() -> None:
    model = {"hidden": 6, "party_1": {"hidden": 9}}
    schedule = {"speeds": {"party_1": 2.0}, "participation": 0.6}
    found = cn.compare(
        small(), ["vimadmm_j"], seeds=1, beside=["alone", "central"], rounds=2, model=model, schedule=schedule,
        progress=False,
    )  # fmt: skip
    settings = {run.about["federation"]: run.model_settings for run in found.runs}
    assert list(settings["party_1 alone"].parties) == ["party_1"] and not settings["party_0 alone"].parties
    assert {run.training.schedule.participation for run in found.runs} == {0.6, 1.0}
    assert found.runs[2].training.schedule.speeds == {"party_1": 2.0} and not found.runs[1].training.schedule.speeds


def test_a_method_that_refuses_one_party_is_replaced_and_it_is_said() -> None:
    method = cn.methods.VIMADMM(damping=0.5)
    found = cn.compare(small(), [method], seeds=1, beside=["alone"], **SHORT)
    assert found.worth is not None and [line["method"] for line in found.worth["trials"]][1:] == ["centralized"] * 4
    (note,) = found.worth["notes"]
    assert note.startswith("party_0 alone, party_1 alone, party_2 alone and party_3 alone: trained by centralized, ")
    assert "vimadmm refuses one party (damping = 0.5 is below 1/M" in note


@pytest.mark.parametrize(
    ("methods", "beside", "said"),
    [
        (["vimadmm", "fdml"], ["alone"], "is asked of one method; got vimadmm, fdml"),
        (["centralized"], ["alone"], "centralized has all columns in one place already"),
        (["vimadmm"], ["together"], 'needed "alone", "central" or both'),
        (["vimadmm"], "alone", 'needed "alone", "central" or both'),
        (["vimadmm"], ["alone", "alone"], 'needed "alone", "central" or both'),
    ],
)
def test_what_cannot_be_asked(methods: list[str], beside: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        cn.compare(small(), methods, seeds=1, beside=beside, **SHORT)


def test_one_party_has_nothing_to_join() -> None:
    federation = small().only(["party_0"])
    with pytest.raises(ConfigError, match="there is nothing to join"):
        trials(read_job({"method": {"name": "vimadmm"}}), federation, read_beside(["alone"]))


# -- on the command line --------------------------------------------------------------------------


def test_compare_with_parties_alone_and_one_central_model(cli: Call, config: Path) -> None:
    what = ["compare", config, "--alone", "--central", "--out", "here"]
    done = cli(*what, "--json")
    assert done.code == 0, done.err
    found = done.json
    names = {path.parent.name for path in Path("here").glob("*/run.json")}
    parties = [party["name"] for party in read_record(Path("here/vimadmm-0"))["about"]["parties"]]
    assert names == {"vimadmm-0", "central-0", *(f"alone-{party}-0" for party in parties)}
    assert found["worth"] == json.loads(Path("here/worth.json").read_text())
    assert found["verdict"].startswith("Joining ") and found["worth"]["gain"]["paired"]
    page = cli("report", "here", "--page-only", "--out", "page", "--json").json["report"]
    assert found["verdict"].split(";")[0] in Path(page).read_text()
    shown = cli("compare", "here", "--out", "there").out
    assert shown.startswith("Joining ")
    assert "all columns in one place" in shown and "Methods side by side" not in shown
    assert "--alone and --central choose what to train" in cli("compare", "here", "--alone").err


def test_an_interrupted_party_alone_is_resumed_from_its_configuration(cli: Call, config: Path) -> None:
    what = ["compare", config, "--alone", "--out"]
    assert cli(*what, "whole").code == 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Bars, "watch", _interrupted)
        assert cli(*what, "here").code == 130
    done = cli("resume", "here/alone-party_1-0", "--json")
    assert done.code == 0, done.err
    assert done.json["fingerprint"] == read_record(Path("whole/alone-party_1-0"))["fingerprint"]


def _interrupted(self: Bars, name: str, rounds: int) -> Watcher:
    """Ctrl-C in the fifth round of a party alone."""

    def move(now: Progress) -> None:
        if name.startswith("alone-") and now.round == 5:
            raise KeyboardInterrupt

    return move


def test_parties_alone_train_on_the_rows_of_protected_labels(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    lines = {name: ["id,x,y"] for name in ("bank", "telco")}
    for n in range(120):
        for name, table in lines.items():
            table.append(
                f"{n},{rng.normal():.3f},{'yes' if n % 3 else 'no'}" if name == "bank" else f"{n},{rng.normal():.3f}"
            )
    lines["telco"][0] = "id,z"
    for name, table in lines.items():
        (tmp_path / f"{name}.csv").write_text("\n".join(table) + "\n")
    files = {name: str(tmp_path / f"{name}.csv") for name in lines}
    job = read_job({
        "data": {"tables": files, "labels": "y", "id": "id"},
        "privacy": {"labels": {"mechanism": "randomised_response", "epsilon": 2.0}},
    })  # fmt: skip
    federation = job.federation()
    for trial in trials(job, federation, ("alone", "central"))[1:]:
        assert not trial.job.privacy.labels.protects
        again = read_job(trial.job.tables)  # as another process, or `colonnade resume`, reads it
        assert torch.equal(again.federation().split.test, federation.split.test)
        assert not again.privacy.labels.protects


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"only": []}, "needed a list of parties"),
        ({"only": "party_1"}, "needed a list of parties"),
        ({"only": ["nobody"]}, "no party called 'nobody'"),
        ({"pooled": "yes"}, "needed true or false"),
        ({"only": ["party_1"], "pooled": True}, "has both only and pooled"),
    ],
)
def test_parts_of_the_data_that_cannot_be_chosen(data: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_data({"set": "digits", "parties": 2, **data})


def test_parts_of_the_data_are_chosen_by_name() -> None:
    whole = load_data({"set": "digits", "parties": 3})
    two = load_data({"set": "digits", "parties": 3, "only": ["party_1", "party_3"]})
    assert (two.names, two.name) == (("party_1", "party_3"), "party_1+party_3")
    assert torch.equal(two.split.test, whole.split.test)
    assert load_data({"set": "digits", "parties": 3, "pooled": True}).width == whole.width == 64


def test_a_model_over_all_columns_scores_raw_tables() -> None:
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(2)
    tables = {name: pandas.DataFrame({f"{name}_x": rng.normal(size=90)}) for name in ("bank", "telco")}
    labels = np.where(tables["bank"]["bank_x"] + tables["telco"]["telco_x"] > 0, "yes", "no")
    federation = Federation.from_tables({**tables, "bank": tables["bank"].assign(y=labels)}, labels="y")
    found = cn.compare(federation, ["vimadmm_j"], seeds=1, beside=["alone", "central"], **SHORT)
    joint, bank, _, central = found.runs
    assert (joint.method.name, central.method.name) == ("vimadmm_j", "vimadmm_j")
    assert bank.predict({"bank": tables["bank"]}).shape == (90,)
    proba = central.predict_proba(tables)
    rows = chosen_part(federation, {"pooled": True}).select(list(range(90)))
    np.testing.assert_allclose(np.asarray(proba), np.asarray(central.predict_proba(rows)), rtol=1e-5)
