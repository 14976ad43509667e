"""An audit of a run between organisations, from the folder of the label holder and of a party."""

from __future__ import annotations

import contextlib
import io
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from colonnade.audit.at_home import DRAWS, GRADIENTS
from colonnade.audit.at_home import NOISE as AT_HOME
from colonnade.audit.checks import BOUND
from colonnade.audit.full_shape import CLIPPING, FRESH, LOW_BITS, SIZE
from colonnade.audit.label_game import LABELS
from colonnade.audit.sums import MASKS, SHARES
from colonnade.wire.messages import COORDINATOR
from tests.cli.conftest import call_main
from tests.deploy.memory import Room

PARTIES = ("party_0", "party_1", "party_2")
DATA = {"widths": (5, 4, 5), "rows": 90}
TRAINING = {"rounds": 4, "dtype": "float64", "evaluate_every": 0, "schedule": {"batch": 20}}
NOISE = {"mechanism": "gaussian", "clip": 1.0, "epsilon": 4.0}
NOISY_LABELS = {"labels": {"mechanism": "alibi", "epsilon": 3.0}}
METHOD = {"name": "vimadmm_j", "local_steps": 1}


def trained(
    folder: Path,
    privacy: dict[str, Any],
    method: dict[str, Any] = METHOD,
    model: dict[str, Any] = {"hidden": 4, "embedding": 3},  # noqa: B006
) -> Path:
    with Room.of(folder, PARTIES, data=DATA, model=model, training=TRAINING, method=method, privacy=privacy) as scene:
        scene.train()
    return folder


def audited(folder: Path, *options: object) -> tuple[int, dict[str, Any]]:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = call_main("audit", folder, "--game", 50, "--json", *options)
    return code, json.loads(out.getvalue())


def played(found: dict[str, Any]) -> set[str]:
    return {check["name"] for check in found["checks"] if check["tried"]}


def test_noise_and_label_noise_at_both_sides(tmp_path: Path) -> None:
    place = trained(tmp_path, NOISE | NOISY_LABELS)
    for who, party in ((COORDINATOR, "'each party'"), ("party_1", "'party_1'")):
        code, found = audited(place / who)
        assert code == 0, found["verdict"]
        assert {CLIPPING, SIZE, FRESH, LOW_BITS, BOUND, LABELS} < played(found)
        assert f"4 training releases of {party}" in found["verdict"]
        assert found["verdict"].startswith("Nothing found that contradicts epsilon 4.000 (unit PARTY")
        assert {"attacks", "training again", "ledgers of the other parties"} <= set(found["not_tried"])
        assert next(c for c in found["checks"] if c["name"] == SIZE)["facts"]["shape"] == "o 20 x 3 (float64)"
        assert ("ledger against bytes" in found["not_tried"]) == (who != COORDINATOR)


def test_a_secure_sum_is_played_with_keys_of_the_audit_s_own(tmp_path: Path) -> None:
    place = trained(tmp_path, NOISE | {"secure_sum": {"use": True}})
    code, found = audited(place / "party_2")
    assert code == 0, found["verdict"]
    assert {SHARES, MASKS, BOUND} < played(found)


@pytest.mark.parametrize("who", [COORDINATOR, "party_0"])
def test_a_run_without_noise_claims_nothing(who: str, tmp_path: Path) -> None:
    code, found = audited(trained(tmp_path, {}) / who)
    assert (code, played(found)) == (0, set())
    assert found["verdict"] == "Nothing found that contradicts the ledger, which claims no epsilon: no noise was used."


def test_a_party_s_ledger_that_says_more_noise_is_contradicted(tmp_path: Path) -> None:
    place = trained(tmp_path, NOISE) / "party_0"
    with contextlib.closing(sqlite3.connect(place / "party.db")) as store:
        store.execute("drop trigger ledger_no_change")
        for at, body in store.execute("select id, body from ledger").fetchall():
            line = json.loads(body)
            line["parameters"] = [[k, 2 * v if k == "sigma" else v] for k, v in line["parameters"]]
            store.execute("update ledger set body = ? where id = ?", (json.dumps(line), at))
        store.commit()
    code, found = audited(place)
    assert code == 1
    assert any("claim another mechanism" in problem for problem in found["ledger"]["problems"])
    assert found["verdict"].startswith("FAILED: ")


def test_training_at_home_is_checked_against_what_was_agreed_on(tmp_path: Path) -> None:
    """Unit ROW: the party's ledger has one line, of all steps; at the label holder stands what it should be."""
    rows = {"unit": "row", "epsilon": 4.0}
    place = trained(tmp_path, rows, {"name": "local_only"}, {"encoder": "tanh", "embedding": 3})
    for who in (COORDINATOR, "party_1"):
        code, found = audited(place / who)
        assert code == 0, found["verdict"]
        assert found["verdict"].startswith("Nothing found that contradicts epsilon 3.99")
        assert played(found) == {BOUND, AT_HOME, DRAWS} and GRADIENTS in found["not_tried"]
        bound = next(check for check in found["checks"] if check["name"] == BOUND)["facts"]
        assert bound["unit"] == "ROW" and bound["claimed"] == pytest.approx(found["claim"]["epsilon"], rel=0.05)
        assert "unit ROW, neighbours: absent, delta 1e-05, PLD accountant" in found["verdict"]
