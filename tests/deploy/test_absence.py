"""Somebody is late, slow, away for a while, or gone: what the run does about it is in its configuration."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from colonnade.run import Run
from colonnade.wire.messages import COORDINATOR
from tests.deploy.trials import PARTIES, ROUNDS, TRAINING, Deed, Ending, Stage, orders, two_versions
from tests.nats_server import needs_nats

pytestmark = needs_nats
VICTIM = "party_1"
OTHERS = [party for party in PARTIES if party != VICTIM]
PATIENCE = 6.0  # long enough for a healthy party on a busy machine


def test_a_run_waits_for_a_party_that_starts_late(calm: Ending, tmp_path: Path) -> None:
    with Stage(tmp_path) as stage:
        stage.organisations.start(COORDINATOR, *OTHERS)
        stage.wait_for(COORDINATOR, "waiting", parties=[VICTIM])
        assert stage.play().differences(calm) == []


def test_a_run_waits_for_a_party_that_went_away(calm: Ending, tmp_path: Path) -> None:
    with Stage(tmp_path, Deed(VICTIM, "after a commit", 3)) as stage:
        stage.organisations.start()
        stage.wait_for(COORDINATOR, "waiting", round=3, parties=[VICTIM])
        assert stage.said(VICTIM, "reopened") == []
        assert stage.play().differences(calm) == []
    assert orders(stage.said(VICTIM, "reopened")) == [3]


def test_a_slow_party_computes_once(calm: Ending, tmp_path: Path) -> None:
    """One takes longer than the server waits for an acknowledgement (3 s), one is even asked again (after 5 s)."""
    deeds = [
        Deed(who, "before learning", 3, "dawdle", how_long) for who, how_long in (("party_1", 3.5), ("party_2", 6.0))
    ]
    with Stage(tmp_path, *deeds) as stage:
        assert stage.play().differences(calm) == []
    asked = [entry for entry in stage.said(COORDINATOR, "asking again") if entry["round"] == 3]
    assert any("party_2" in entry["parties"] for entry in asked)
    for party in ("party_1", "party_2"):
        (answered,) = [entry for entry in stage.said(party, "answered") if entry["round"] == 3]
        # Asked again before it had answered, once is enough; on a busy machine it may also be asked afterwards.
        later = [entry for entry in asked if party in entry["parties"] and entry["at"] > answered["at"] - 1]
        assert orders(stage.said(party, "repeating")).count(3) <= len(later)
        assert two_versions(stage.sent(party)) == []


# -- continue -----------------------------------------------------------------------------------

LONGER = {**TRAINING, "rounds": 10}
AWAY_FROM, HELD_AT = 3, 7  # the victim dies in one round; the coordinator pauses before another until it is back


def goes_on(folder: Path, *deeds: Deed, **changes: Any) -> Stage:
    absence = {"patience": PATIENCE, "then": "continue"}
    return Stage(folder, Deed(VICTIM, "before a commit", AWAY_FROM), *deeds, absence=absence, **changes)


def test_a_run_goes_on_and_takes_a_party_back(tmp_path: Path) -> None:
    with goes_on(tmp_path, Deed(COORDINATOR, "before a request is sent", HELD_AT, "wait"), training=LONGER) as stage:
        stage.organisations.start()
        absent = stage.wait_for(COORDINATOR, "absent")
        assert (absent["parties"], absent["round"]) == ([VICTIM], AWAY_FROM)
        stage.wait_for(OTHERS[0], "answered", round=HELD_AT - 1)  # without the victim
        stage.organisations.start(VICTIM)
        stage.wait_for(VICTIM, "answered", round=HELD_AT - 1)  # it has caught up
        stage.go()
        ending = stage.play()
    spoke = [m["number"] for m in stage.sent(VICTIM) if m["kind"] == "TRAIN"]
    assert spoke == [*range(1, AWAY_FROM + 1), *range(HELD_AT + 1, LONGER["rounds"] + 1)]  # it was not asked meanwhile
    away = {entry["round"] + 1 for entry in ending.history if entry.get("absent") == [VICTIM]}
    assert away == set(range(AWAY_FROM, HELD_AT))
    assert ending.result["rounds"] == LONGER["rounds"] and ending.result["test_score"] is not None
    assert len(stage.said(COORDINATOR, "absent")) == 1  # the patience was spent once
    assert two_versions(stage.sent(VICTIM)) == []


def test_a_run_ends_without_a_party_that_never_comes_back(tmp_path: Path) -> None:
    with goes_on(tmp_path) as stage:
        stage.organisations.start()
        assert stage.wait_until_gone(COORDINATOR, *OTHERS) == [0, 0, 0]
        result = ended(stage)
    assert result["rounds"] == ROUNDS and result["stop"] == "all rounds done"
    assert result["test_score"] is None and result["absent"] == [VICTIM]
    assert stage.said(COORDINATOR, "closed")[-1]["not_told"] == [VICTIM]


# -- stop ---------------------------------------------------------------------------------------


def test_a_run_stops_and_keeps_its_best_round(calm: Ending, tmp_path: Path) -> None:
    absence = {"patience": PATIENCE, "then": "stop"}
    with Stage(tmp_path, Deed(VICTIM, "before a commit", 5), absence=absence) as stage:
        stage.organisations.start()
        assert stage.wait_until_gone(COORDINATOR, *OTHERS) == [0, 0, 0]
        result = ended(stage)
    reason = result["stop"]
    assert re.fullmatch(rf"stopped: {VICTIM} did not answer within \d+ s in round 5", reason)
    scores = [entry["score"] for entry in calm.history if "score" in entry and entry["round"] < 4]
    assert result["validation_score"] == max(scores) and result["best_round"] is not None
    assert result["test_score"] is None and result["absent"] == [VICTIM]
    assert stage.said(COORDINATOR, "closed")[-1]["not_told"] == [VICTIM]
    for party in OTHERS:
        assert stage.said(party, "closed")[-1]["reason"] == reason


def ended(stage: Stage) -> dict[str, Any]:
    """The result of a run that one party did not see to its end."""
    return Run.load(stage.trial.place(COORDINATOR)).result
