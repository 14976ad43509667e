"""`colonnade privacy`: numbers with everything that belongs to them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from colonnade import Run, fit
from colonnade.cli.main import main
from colonnade.deploy.export import export
from colonnade.deploy.table_ledger import Entered, Sent, TableLedger
from colonnade.privacy.accounting import exact_epsilon, rdp_epsilon, shift_of
from colonnade.privacy.gaussian import GaussianEvent
from colonnade.privacy.ledger import Ledger
from colonnade.privacy.together import Cost
from tests.contracts.registry import make
from tests.federations import small

DP = {"mechanism": "gaussian", "clip": 1.0, "sigma": 5.0}


def told(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as end:
        main(["privacy", *words])
    out = capsys.readouterr()
    assert end.value.code in (0, None), out.err
    return out.out


def test_epsilon_names_unit_relation_delta_and_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    text = told(capsys, "epsilon", "--sigma", "30", "--rounds", "53")
    assert "epsilon 0.897 (exact accountant), 0.980 (the paper's RDP bound)" in text
    assert "unit PARTY, neighbours: absent, delta 1e-05; labels, evaluation and predictions not covered" in text
    replaced = json.loads(
        told(capsys, "epsilon", "--sigma", "30", "--rounds", "53", "--neighbours", "replaced", "--json")
    )
    assert replaced["epsilon"] == pytest.approx(1.928, abs=1e-3) and replaced["unit"] == "PARTY"


def test_calibrate_is_the_inverse(capsys: pytest.CaptureFixture[str]) -> None:
    made = json.loads(told(capsys, "calibrate", "--epsilon", "1", "--rounds", "53", "--json"))
    back = json.loads(told(capsys, "epsilon", "--sigma", str(made["sigma"]), "--rounds", "53", "--json"))
    assert back["epsilon"] == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("rows", [(), ("--rate", "0.5")], ids=["party", "row"])
def test_a_large_delta_is_not_passed_over(rows: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("epsilon", "--sigma", "1", "--rounds", "2", *rows)
    said = "A delta of 0.4 promises little: with about that chance anything may be told."
    assert said in told(capsys, *asked, "--delta", "0.4") and said[:7] not in told(capsys, *asked)
    assert said in told(capsys, "calibrate", "--epsilon", "1", "--rounds", "2", *rows, "--delta", "0.4")


def test_training_at_home(capsys: pytest.CaptureFixture[str]) -> None:
    steps = ("--rounds", "50", "--rate", "0.2", "--parties", "3")
    made = json.loads(told(capsys, "calibrate", "--epsilon", "2", *steps, "--json"))
    assert (made["unit"], made["accountant"], made["steps"], made["parties"]) == ("ROW", "PLD", 50, 3)
    back = json.loads(told(capsys, "epsilon", "--sigma", str(made["sigma"]), *steps, "--json"))
    assert 1.98 < back["epsilon"] <= 2.0 < back["epsilon_rdp"]
    text = told(capsys, "calibrate", "--epsilon", "2", *steps)
    assert "only as long as nobody else knows which rows a step drew" in text and "not covered" in text


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("epsilon", "--sigma", "1", "--rounds", "5", "--rate", "2"), "rate = 2"),
        (("epsilon", "--sigma", "1", "--rounds", "5", "--rate", "1", "--neighbours", "replaced"), "added or removed"),
        (("epsilon", "--sigma", "0", "--rounds", "5"), "needed a noise multiplier above 0"),
        (("epsilon", "--sigma", "1", "--rounds", "5", "--delta", "2"), "needed a probability between 0 and 1"),
        (("calibrate", "--epsilon", "-1", "--rounds", "5"), "needed a number above 0"),
        (("epsilon", "--sigma", "1", "--rounds", "5", "--neighbours", "any"), "needed absent or replaced"),
    ],
)
def test_bad_numbers(words: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["privacy", *words])
    assert end.value.code == 2 and sentence in capsys.readouterr().err


def test_a_run_is_explained_from_its_ledger(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = {"rounds": 4, "evaluate_every": 2}
    labels = {"mechanism": "alibi", "epsilon": 2.0}
    fit(small(), make("vimadmm_j", local_steps=1), privacy={**DP, "labels": labels}, out=tmp_path / "both", **options)
    text = told(capsys, "explain", str(tmp_path / "both"))
    exact, rdp = exact_epsilon(shift_of(5.0, 4), 1e-5), rdp_epsilon(shift_of(5.0, 4), 1e-5)
    assert (
        f"epsilon {exact:.3f} (exact accountant; {rdp:.3f} by the paper's RDP bound), delta 1e-05, unit PARTY" in text
    )
    assert "Labels: epsilon 2, delta 0, unit LABEL" in text and "whoever knows its seed" in text
    facts = json.loads(told(capsys, "explain", str(tmp_path / "both"), "--json"))
    assert facts["epsilon"] == pytest.approx(exact) and facts["uncovered"] == {}
    fit(small(), make("vimadmm_j", local_steps=1), privacy={"labels": labels}, out=tmp_path / "labels", **options)
    assert "whoever knows its seed" in told(capsys, "explain", str(tmp_path / "labels"))  # label noise is seeded, too
    assert "a party's own network, should it be given away" in text  # it was trained on clean columns
    looks = {**DP, "evaluation": "simulated"}
    fit(small(), make("vimadmm_j", local_steps=1), privacy=looks, out=tmp_path / "looks", **options)
    assert "releases for EVALUATE, which left without noise" in told(capsys, "explain", str(tmp_path / "looks"))
    fit(small(), make("vimadmm_j", local_steps=1), out=tmp_path / "bare", **options)
    bare = told(capsys, "explain", str(tmp_path / "bare"))
    assert "no epsilon: uploads left without noise" in bare
    assert "Labels: the replies reveal the training labels to every party" in bare
    fit(small(), make("local_only", local_steps=1), out=tmp_path / "alone", **options)
    assert "no party sent anything in training" in told(capsys, "explain", str(tmp_path / "alone"))


def test_a_secure_sum_is_explained_with_its_colluders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    privacy = DP | {"secure_sum": {"use": True}}
    fit(small((3, 2, 3)), make("vimadmm_j"), rounds=2, privacy=privacy, out=tmp_path / "sum", progress=False)
    text = told(capsys, "explain", str(tmp_path / "sum"))
    assert "The figure tolerates 1 colluder: parties that tell the label holder what they know of the sum." in text
    assert "With one more it would be epsilon" in text
    facts = json.loads(told(capsys, "explain", str(tmp_path / "sum"), "--json"))
    assert facts["colluders"] == 1 and facts["colluders_used_up"] == [] and facts["epsilon_one_more"] > facts["epsilon"]


def party_folder(run: Run, party: str, folder: Path, **proposal: Any) -> Path:
    """What a party's process leaves behind after training, from a simulation of the same run."""
    settings = {"name": run.method.name, "settings": run.method.model_dump()}
    names = [one["name"] for one in run.about["parties"]]
    body = {"parties": names, "method": settings, "privacy": run.privacy.model_dump(), **proposal}
    folder.mkdir()
    part, mine = run.model.part(party), [entry for entry in run.ledger if entry.owner == party]
    export(folder, {"proposal": body}, part, Ledger(mine))
    return folder


def test_a_party_reads_its_own_statement(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its own releases, and what belongs to the figure; not those of others, which are in their ledgers."""
    privacy = {**DP, "secure_sum": {"use": True}}
    run = fit(small((3, 2, 3)), make("vimadmm_j"), rounds=2, privacy=privacy, evaluate_every=0, progress=False)
    folder = str(party_folder(run, "party_1", tmp_path / "party", own=["party_0"]))
    text = told(capsys, "explain", folder)
    assert text.startswith("From the ledger of party_1, one party of the run") and "between 3 parties" in text
    assert "delta 1e-05, unit PARTY" in text and "party_1 with 2 releases" in text and "Not covered" in text
    assert "party_0 belongs to the label holder, which knows what it adds" in text
    assert "tolerates no more colluders" in text and "With one more it would be epsilon" in text
    assert "What the uploads contributed was not measured" in text and "every party has to agree to" in text
    facts = json.loads(told(capsys, "explain", folder, "--json"))
    assert (facts["party"], list(facts["parties"]), facts["uploads"]) == ("party_1", ["party_1"], None)
    assert run.epsilon is not None and facts["epsilon"] == pytest.approx(float(run.epsilon))
    assert facts["colluders_used_up"] == ["party_0"]


def test_a_party_that_sent_nothing_says_so_of_itself_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = fit(small(), make("vimadmm_j"), rounds=2, privacy=DP, evaluate_every=0, progress=False)
    folder = party_folder(run, "party_1", tmp_path / "party")
    (folder / "ledger.jsonl").write_text("")
    assert "Columns: party_1 sent nothing in training (epsilon 0" in told(capsys, "explain", str(folder))


@pytest.mark.parametrize(
    ("what", "sentence"),
    [
        ("a part alone", "without what it released; name the folder of the party's process"),
        ("no object", "without what it released"),
        ("no proposal", "party.json is damaged (KeyError('method')); restore it from a copy"),
        ("not over", "a party whose training is not over"),
        ("neither", "has neither run.json nor party.json; needed the folder of a run, or a party's own folder"),
    ],
)
def test_a_folder_without_a_statement(
    what: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = fit(small(), make("vimadmm_j"), rounds=2, privacy=DP, evaluate_every=0, progress=False)
    folder = party_folder(run, "party_1", tmp_path / "party")
    if what == "a part alone":
        (folder / "ledger.jsonl").unlink()
    elif what == "no object":
        (folder / "party.json").write_text("[]")
    elif what == "no proposal":
        (folder / "party.json").write_text('{"run": "r", "party": "party_1", "proposal": {}}')
    else:
        (folder / "party.json").unlink()
        if what == "not over":
            (folder / "party.db").touch()
    with pytest.raises(SystemExit) as end:
        main(["privacy", "explain", str(folder)])
    assert end.value.code == 2 and sentence in capsys.readouterr().err


PARTY = """\
[party]
name = "telco"
run = "churn"
table = "customers.csv.gz"
id = "customer"
policy = "policy.toml"

[connection]
server = "tls://localhost:4222"
authority = "ca.crt"
certificate = "telco.crt"
key = "telco.key"
"""


def test_a_party_sees_what_its_table_has_cost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "party.toml").write_text(PARTY)
    (tmp_path / "policy.toml").write_text("most_epsilon = 4\n")
    empty = told(capsys, "budget", str(tmp_path / "party.toml"))
    assert "table 'customers': 0 runs" in empty and "nothing was spent on it" in empty
    ledger = TableLedger(tmp_path / "spent.db")
    for name in ("a", "b"):
        ledger.enter(Entered(name, name, "telco", "customers", "c0", 9, (Cost(GaussianEvent(1.0, 30.0), 5, 53),)))
    ledger.send("a", Sent(9, "x"), "customers", ["C1"])
    text = " ".join(told(capsys, "budget", str(tmp_path / "party.toml")).split())
    assert "all together: epsilon 1.313 (exact accountant over 106 releases, delta 1e-05, unit PARTY" in text
    assert "the policy allows: epsilon 4, by unit (most_epsilon), delta 1e-05" in text
    assert "evaluation, predictions and releases that hide another unit are not covered" in text
    assert text.count("0.897 (exact)") == 2 and text.count("agreed on") == 2
    assert "predicted, which no noise covers: 1 rows, 1 times in all, one row 1 times at most" in text
    facts = json.loads(told(capsys, "budget", str(tmp_path / "party.toml"), "--json"))
    assert [run["run"] for run in facts["runs"]] == ["a", "b"] and facts["together"][0]["unit"] == "PARTY"
    other = told(capsys, "budget", str(tmp_path / "party.toml"), "--set", "party.table_name=others")
    assert "table 'others': 0 runs" in other
