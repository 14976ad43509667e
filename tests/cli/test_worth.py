"""`colonnade worth` as people type it: tables in one place, and real processes of two organisations."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import colonnade as cn
from colonnade.align.files import Alignment, write_alignment
from colonnade.align.match import Agreed, MatchReport, PartyMatch
from tests.cli.conftest import Call
from tests.cli.organisations import COORDINATOR, PARTIES, PARTY, Process
from tests.nats_server import NatsServer, needs_nats

ROWS = 900
IDS = [f"Kunde-{7919 * (row + 17):07d}" for row in range(ROWS)]


def tables(seed: int = 5) -> dict[str, pd.DataFrame]:
    """The bank knows some of who churns, the telco more, and the shop nothing."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(ROWS, 5)).round(5)
    churned = np.where(values[:, 0] + 1.5 * values[:, 2] + 0.5 * rng.normal(size=ROWS) > 0, "yes", "no")
    columns = {"bank": ("income_zq", "balance_zq"), "telco": ("minutes_zq", "calls_zq"), "shop": ("visits_zq",)}
    found, place = {}, 0
    for name, heads in columns.items():
        found[name] = pd.DataFrame({"customer": IDS, **{head: values[:, place + k] for k, head in enumerate(heads)}})
        place += len(heads)
    found["labels"] = pd.DataFrame({"customer": IDS, "churned": churned})
    return found


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration of tables in one place, in the current folder."""
    monkeypatch.chdir(tmp_path)
    made = tables()
    made["bank"] = made["bank"].merge(made.pop("labels"))
    for name, table in made.items():
        table.to_csv(f"{name}.csv", index=False)
    files = ", ".join(f'{name} = "{name}.csv"' for name in made)
    Path("churn.toml").write_text(f'[data]\ntables = {{ {files} }}\nlabels = "churned"\nid = "customer"\n')
    return tmp_path / "churn.toml"


def test_candidates_in_one_place_are_told_with_interval_bytes_and_epsilon(cli: Call, config: Path) -> None:
    result = cli("worth", config, "--epsilon", 2, "--rows", 300)
    assert result.code == 0, result.err
    lines = result.out.splitlines()
    assert lines[0].startswith("telco: adds something: AUC ") and "95 % interval +" in lines[0]
    assert lines[1].startswith("shop: no gain can be seen")
    assert "bytes down and" in lines[2]
    assert "epsilon 2, delta 0, unit LABEL" in lines[3] and "Not covered:" in lines[3]


def test_the_numbers_are_those_of_python(cli: Call, config: Path) -> None:
    result = cli("worth", config, "--epsilon", 2, "--rows", 300, "--json")
    made = tables()
    made["bank"] = made["bank"].merge(made.pop("labels"))
    found = cn.worth(made, labels="churned", id="customer", epsilon=2.0, rows=300)
    assert result.json == json.loads(json.dumps(found.to_json()))
    assert found.holder == "bank" and found.told == found.judged == 300


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--candidate", "telco"], "--candidate"),
        (["--own", "party.toml"], "--own"),
        (["--without-own"], "--without-own"),
        (["--epsilon", "0"], "epsilon"),
        (["--rows", "20"], "rows = 20"),
        (["--holder", "shop"], "column of the table of 'bank'"),
    ],
)
def test_what_makes_no_sense_is_refused(cli: Call, config: Path, options: list[str], said: str) -> None:
    result = cli("worth", config, *options)
    assert result.code == 2 and said in result.err and result.out == ""


# -- between organisations ----------------------------------------------------------------------


def furnish(folder: Path, certificates: Path, server: str) -> None:
    """bank/ with the labels and telco/, aligned."""
    made, agreed = tables(), Agreed("small", "0" * 32, ("telco",), "all", ROWS, 0)
    for name in PARTIES:
        here = folder / name
        here.mkdir(parents=True)
        shutil.copytree(certificates, here / "certs")
        made[name].sample(frac=1, random_state=1).to_csv(here / f"{name}.csv", index=False)
        (here / "party.toml").write_text(PARTY.format(name=name, server=server))
        (here / "policy.toml").write_text("fewest_rows = 10\n")
        me = "coordinator" if name == "bank" else name
        report = MatchReport(ROWS, (PartyMatch("telco", ROWS, ROWS),), ROWS, 0, 0)
        write_alignment(here / "alignment", Alignment(me, agreed, np.arange(ROWS), tuple(IDS), None, report))
    made["labels"].to_csv(folder / "bank" / "labels.csv", index=False)
    (folder / "bank" / "coordinator.toml").write_text(COORDINATOR.format(server=server))


@pytest.fixture
def two(tmp_path: Path) -> Any:
    with NatsServer(tmp_path / "nats", parties=PARTIES) as server:
        furnish(tmp_path / "two", server.certificates, server.url)
        yield tmp_path / "two"


@needs_nats
def test_two_organisations_over_a_real_server(two: Path) -> None:
    asked = ("worth", "coordinator.toml", "--own", "party.toml", "--rows", "300", "--epsilon", "2", "--json")
    candidate, holder = Process(two / "telco", "worth", "party.toml", "--json"), Process(two / "bank", *asked)
    try:
        assert holder.end() == 0, holder.err
        assert candidate.end() == 0, candidate.err
    finally:
        holder.kill()
        candidate.kill()
    first, told = json.loads(holder.out), json.loads(candidate.out)
    assert not any(word in holder.err + candidate.err for word in (*IDS[:20], "_zq"))
    (telco,) = first["candidates"]
    assert telco["clear"] and telco["gain"] > 0.1
    assert (first["epsilon"], first["epsilon_spent"], first["unit"]) == (2.0, 2.0, "LABEL")
    assert (told["bytes_down"], told["bytes_up"]) == (telco["bytes_down"], telco["bytes_up"])
    assert json.loads((two / "bank" / "worth" / "estimate.json").read_text()) == first
    for side, mechanism in (("bank", "randomised response"), ("telco", "none")):
        (line,) = (two / side / "worth" / "ledger.jsonl").read_text().splitlines()
        assert json.loads(line)["mechanism"] == mechanism
        assert (two / side / "worth").stat().st_mode & 0o077 == 0


def test_the_label_holder_must_say_what_it_compares_with(cli: Call, tmp_path: Path, certs: Path) -> None:
    furnish(tmp_path / "two", certs, "tls://localhost:9")
    bank = tmp_path / "two" / "bank"
    cases = {
        (): "--own",
        ("--own", bank / "party.toml", "--without-own"): "either",
        ("--own", tmp_path / "two" / "telco" / "party.toml"): "not among own",
        ("--without-own", "--candidate", "bank"): "not own",
        ("--without-own", "--holder", "bank"): "--holder",
    }
    for options, said in cases.items():
        result = cli("worth", bank / "coordinator.toml", *options)
        assert result.code == 2 and said in result.err, (options, result.err)
        assert not (bank / "worth").exists()
    result = cli("worth", tmp_path / "two" / "telco" / "party.toml", "--epsilon", "3")
    assert result.code == 2 and "for the label holder" in result.err


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from colonnade.identity.certificates import make_trial

    folder = tmp_path_factory.mktemp("worth") / "certs"
    make_trial(folder, PARTIES)
    return folder
