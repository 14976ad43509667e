"""`colonnade audit`: a whole run passes; a lost line, another claim and weaker noise do not."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from colonnade import fit
from colonnade.audit.bugs import plant
from colonnade.audit.checks import BOUND
from colonnade.audit.full_shape import CLIPPING, FRESH, LOW_BITS, SIZE
from colonnade.audit.label_game import LABELS, ONCE, UNIFORM
from colonnade.audit.own_rounds import OWN_ROUNDS
from colonnade.audit.sums import MASKS, SHARES
from colonnade.audit.target import MEMBERSHIP
from colonnade.privacy.mechanism import Protection
from colonnade.privacy.settings import PrivacySettings
from colonnade.run import LEDGER, RECORD
from tests.cli.conftest import SMALL, Call, call_main
from tests.contracts.registry import make
from tests.federations import small

NOISE = """
[privacy]
mechanism = "gaussian"
clip = 1.0
sigma = 1.5
"""
Lines = list[dict[str, Any]]


@pytest.fixture(scope="module")
def noised(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with noise, of a method that uploads little; read it, or copy it."""
    folder = tmp_path_factory.mktemp("noised")
    (folder / "small.toml").write_text(SMALL.replace('"vimadmm"', '"vimadmm_j"') + NOISE)
    with contextlib.redirect_stdout(io.StringIO()):
        assert call_main("train", folder / "small.toml", "--out", folder / "run") == 0
    return folder / "run"


def doctored(run: Path, to: Path, change: Callable[[Lines], Lines]) -> Path:
    """A copy of a run whose ledger was changed."""
    copy = Path(shutil.copytree(run, to / "doctored"))
    lines = [json.loads(line) for line in (copy / LEDGER).read_text().splitlines()]
    (copy / LEDGER).write_text("".join(json.dumps(line) + "\n" for line in change(lines)))
    return copy


def test_a_run_without_noise_has_no_epsilon_to_check(cli: Call, finished: Path) -> None:
    before = {path.name: path.read_bytes() for path in finished.iterdir() if path.suffix != ".db"}
    done = cli("audit", finished, "--rounds", 4, "--out", "audit.json")
    text = " ".join(done.out.split())
    assert done.code == 0, done.err
    assert "rounds 1 to 4 of 6 were trained again" in text
    assert text.startswith("Nothing found that contradicts the ledger, which claims no epsilon: no noise was used.")
    for attack in ("labels from the downlink", "model completion", "feature reconstruction", "membership of a row"):
        assert attack in text
    assert "8 of the 8 retrained uploads stand in it bit by bit" in text
    found = json.loads(Path("audit.json").read_text())
    assert found["passed"]
    assert found["claim"]["epsilon"] is None and found["checks"] == []
    assert {a["attack"]: a["score"] for a in found["attacks"]}["labels from the downlink"] > 0.5
    after = {path.name: path.read_bytes() for path in finished.iterdir() if path.suffix != ".db"}
    assert after == before  # the audit looks on: it adds no release to the run's ledger


def test_the_verdict_comes_first_and_every_check_is_there(cli: Call, noised: Path) -> None:
    done = cli("audit", noised, "--game", 200, "--rounds", 2, "--out", "audit.json")
    assert done.code == 0, done.err
    first = done.out.splitlines()[0]
    assert first.startswith(
        "Nothing found that contradicts epsilon 7.809 (unit PARTY, neighbours: absent, delta 1e-05,"
    )
    assert "exact accountant; 6 training releases of 'party_1', and nothing else)" in first
    found = json.loads(Path("audit.json").read_text())
    checks = {check["name"]: check for check in found["checks"]}
    assert not any(check["failed"] for check in checks.values()) and all(c["tried"] for c in checks.values())
    assert [*checks] == [CLIPPING, SIZE, FRESH, LOW_BITS, OWN_ROUNDS, BOUND, MEMBERSHIP]
    assert checks[SIZE]["facts"]["shape"] == "o 512 x 10 (float32)"  # the run's own
    bound = checks[BOUND]["facts"]
    assert 0 < bound["epsilon"] < bound["claimed"] == pytest.approx(found["claim"]["epsilon"])
    assert (bound["confidence"], bound["runs"]) == (0.9999, 200)
    assert (found["verdict"], found["not_tried"], found["ledger"]["problems"]) == (first, {}, [])
    attacks = {a["attack"]: a for a in found["attacks"]}
    real, bare = attacks["membership of a party, gaussian"], attacks["membership of a party, without noise"]
    assert real["score"] < bare["score"] == 1.0 and bare["ceiling"] is None
    assert real["p"] > 1e-4 and real["ceiling"] < 1


@pytest.mark.parametrize(
    ("method", "accountant"),
    [
        ('name = "vafl"\nnoise = 30.0', "absent, delta 1e-05, exact accountant"),
        ('name = "vfl_pbm"\ntheta = 0.05', "replaced, delta 1e-05, RDP accountant"),
        ('name = "linear_admm"\nnoise = 0.1', None),
    ],
    ids=["vafl", "vfl_pbm", "linear_admm"],
)
def test_noise_of_a_method_s_own_is_played_where_it_has_an_epsilon(
    method: str, accountant: str | None, cli: Call, tmp_path: Path
) -> None:
    (tmp_path / "own.toml").write_text(
        SMALL.replace('name = "vimadmm"', method).replace("local_steps", "# local_steps")
    )
    assert cli("train", tmp_path / "own.toml", "--out", tmp_path / "run").code == 0
    done = cli("audit", tmp_path / "run", "--rounds", 2, "--game", 200, "--out", "audit.json")
    assert done.code == 0, done.out + done.err
    text, found = " ".join(done.out.split()), json.loads(Path("audit.json").read_text())
    names = [check["name"] for check in found["checks"] if check["tried"]]
    if accountant:
        assert names == [CLIPPING, SIZE, FRESH, LOW_BITS, OWN_ROUNDS, BOUND, MEMBERSHIP]
        assert accountant in text.split("Audit of")[0] and text.startswith("Nothing found that contradicts epsilon")
        return
    assert names == [] and [*found["not_tried"]] == [BOUND]
    assert text.startswith("Nothing could be played against the noise of this run; its ledger is in order. Not tried: ")


def test_training_at_home_is_played_against_its_figure(cli: Call, tmp_path: Path) -> None:
    rows = SMALL.replace('name = "vimadmm"', 'name = "local_only"').replace("local_steps = 2", "local_steps = 1")
    (tmp_path / "rows.toml").write_text(rows + '[privacy]\nunit = "row"\nepsilon = 4.0\n')
    done = cli("train", tmp_path / "rows.toml", "--set", "model.encoder=tanh", "--out", tmp_path / "run")
    assert done.code == 0, done.err
    done = cli("audit", tmp_path / "run", "--rounds", 2, "--game", 300, "--out", "audit.json")
    assert done.code == 0, done.out + done.err
    found = json.loads(Path("audit.json").read_text())
    assert found["verdict"].startswith("Nothing found that contradicts epsilon 4.000 (unit ROW, ")
    assert found["not_tried"] == {}
    bound = next(check for check in found["checks"] if check["name"] == BOUND)["facts"]
    assert (bound["unit"], bound["runs"]) == ("ROW", 300) and bound["epsilon"] < bound["claimed"]
    assert bound["claimed"] == pytest.approx(found["claim"]["epsilon"], rel=0.02)


def test_a_secure_sum_and_label_noise_are_played(cli: Call, tmp_path: Path) -> None:
    sums = 'secure_sum = { use = true }\nlabels = { mechanism = "randomised_response", epsilon = 2.0 }\n'
    changed = SMALL.replace('"vimadmm"', '"vimadmm_j"').replace("parties = 2", "parties = 3") + NOISE + sums
    (tmp_path / "sum.toml").write_text(changed.replace("evaluate_every = 2", "evaluate_every = 0"))
    assert cli("train", tmp_path / "sum.toml", "--out", tmp_path / "run").code == 0
    done = cli("audit", tmp_path / "run", "--rounds", 2, "--game", 100, "--json")
    assert done.code == 0, done.json["verdict"]
    names = [check["name"] for check in done.json["checks"]]
    assert {SHARES, MASKS, BOUND, LABELS, UNIFORM, ONCE} < set(names)
    assert "and label epsilon 2.000 (unit LABEL, delta 0, of one row's label)." in done.json["verdict"]
    attacks = {a["attack"] for a in done.json["attacks"]}
    assert "membership of a party, gaussian sum" in attacks and "feature reconstruction" not in attacks
    assert done.json["retrained"]["found"] == done.json["retrained"]["uploads"] == 6


def test_another_claim_of_such_noise_is_caught(cli: Call, tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(
        SMALL.replace('name = "vimadmm"\nlocal_steps = 2', 'name = "vafl"\nnoise = 30.0')
    )
    assert cli("train", tmp_path / "own.toml", "--out", tmp_path / "run").code == 0

    def more(lines: Lines) -> Lines:
        for line in lines:
            line["parameters"] = [[k, 90.0 if k == "deviation" else v] for k, v in line["parameters"]]
        return lines

    done = cli("audit", doctored(tmp_path / "run", tmp_path, more), "--rounds", 2, "--game", 50)
    assert done.code == 1 and "claim another mechanism" in " ".join((done.out + done.err).split())

    def older(lines: Lines) -> Lines:
        return [{**line, "parameters": [p for p in line["parameters"] if p[0] != "grid"]} for line in lines]

    shutil.rmtree(tmp_path / "doctored")
    done = cli("audit", doctored(tmp_path / "run", tmp_path, older), "--rounds", 2, "--game", 50)
    text = " ".join((done.out + done.err).split())
    assert done.code == 1 and "noised in floating point by an earlier version" in text
    assert "claim another mechanism" not in text


@pytest.mark.parametrize("bug", ["weak_noise", "large_unclipped", "float_sum"])
def test_code_that_does_less_than_the_ledger_says_is_seen(
    bug: str, cli: Call, noised: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run's ledger says one thing; the code that is installed does another."""
    honest = PrivacySettings.protection

    def wrong(self: PrivacySettings, *args: Any) -> Protection:
        made = honest(self, *args)
        return replace(made, training=plant(bug, made.training, 1.0))

    monkeypatch.setattr(PrivacySettings, "protection", wrong)
    done = cli("audit", noised, "--game", 50, "--rounds", 1)
    assert done.code == 1
    told = {"weak_noise": f"{SIZE}: the noise is SMALLER", "large_unclipped": f"{CLIPPING}: uploads leave LONGER"}
    assert done.out.startswith(f"FAILED: {told.get(bug, LOW_BITS)}")
    assert "What the ledger claims: epsilon 7.809 (unit PARTY" in done.out


def lost(owner: str, purpose: str, number: int) -> Callable[[Lines], Lines]:
    def change(lines: Lines) -> Lines:
        kept = [e for e in lines if (e["owner"], e["purpose"], e["number"]) != (owner, purpose, number)]
        assert len(kept) < len(lines)
        return kept

    return change


def changed(**facts: Any) -> Callable[[Lines], Lines]:
    """The last training upload in the ledger, with something else said of it, added to the rest or in its place."""

    def change(lines: Lines) -> Lines:
        place = max(n for n, e in enumerate(lines) if e["owner"] == "party_2" and e["purpose"] == "TRAIN")
        again = {**lines[place], **facts}
        return [*lines, again] if "digest" in facts else [*lines[:place], again, *lines[place + 1 :]]

    return change


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lost("party_2", "TRAIN", 3), "1 release travelled and not in the ledger: TRAIN of 'party_2'"),
        (lost("party_1", "EVALUATE", 3), "1 release travelled and not in the ledger: EVALUATE of 'party_1'"),
        (lost("coordinator", "TRAIN", 2), "travelled and not in the ledger: the coordinator to everyone"),
        (changed(mechanism="magic"), "that no accountant knows: 'party_2' passed the mechanism 'magic'"),
        (changed(owner="stranger", digest="0"), "'stranger' is no party of the run"),
        (changed(mechanism="gaussian", parameters=[["sigma", 9.0]]), "claim another mechanism (gaussian"),
        (changed(number=99, digest="0"), "beyond the schedule: after round 6"),
        (changed(digest="0"), "'party_2' a second time in the same round"),
        (changed(rows=1), "about another number of rows"),
    ],
)
def test_a_ledger_that_is_not_whole(
    change: Callable[[Lines], Lines], sentence: str, finished: Path, cli: Call, tmp_path: Path
) -> None:
    done = cli("audit", doctored(finished, tmp_path, change), "--rounds", 1, "--json")
    assert done.code == 1, done.err
    assert any(sentence in problem for problem in done.json["ledger"]["problems"]), done.json["ledger"]["problems"]
    assert not done.json["passed"]


def test_predictions_may_come_after_the_run(cli: Call, finished: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(finished, tmp_path / "asked"))
    assert cli("predict", copy, "--rows", "test", "--output", "test.csv").code == 0
    done = cli("audit", copy, "--rounds", 1, "--json")
    assert done.code == 0, done.json["ledger"]["problems"]
    assert ["party_1", "PREDICT", 1] in done.json["ledger"]["releases"]


def test_a_run_from_python_has_no_configuration(cli: Call, tmp_path: Path) -> None:
    fit(small(), make("vimadmm_j"), rounds=1, evaluate_every=0, out=tmp_path / "run")
    done = cli("audit", tmp_path / "run")
    assert done.code == 2
    assert "was started from Python" in done.err


def edited(run: Path, to: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    copy = Path(shutil.copytree(run, to / "edited"))
    record = json.loads((copy / RECORD).read_text())
    change(record)
    (copy / RECORD).write_text(json.dumps(record))
    return copy


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda r: r["about"].update(partial={"complete": 1}), "lack a party's columns"),
        (
            lambda r: r["method"].update(name="centralized", settings={}),
            "nothing is sent, so there is nothing to attack",
        ),
        (lambda r: r["config"]["data"].update(parties=3), "was trained on other data"),
    ],
)
def test_what_cannot_be_audited(
    change: Callable[[dict[str, Any]], None], sentence: str, finished: Path, cli: Call, tmp_path: Path
) -> None:
    done = cli("audit", edited(finished, tmp_path, change))
    assert (done.code, done.out) == (2, "")
    assert sentence in done.err
    assert len(done.err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "sentence"), [(["nowhere"], "is not a run folder"), ([".", "--out", "no/x"], "--out")]
)
def test_a_wrong_place_is_one_sentence(words: list[str], sentence: str, cli: Call) -> None:
    done = cli("audit", *words)
    assert done.code == 2
    assert sentence in done.err
