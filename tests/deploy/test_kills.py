"""SIGKILL at each step of the message sequence, and at random moments: started again, everything ends the same.

The same: the coordinator's and every party's model to the last bit, every ledger event with its digest, the
scores, the history and the counted bytes. And nobody ever means to send two versions of one release.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from colonnade.wire.messages import COORDINATOR
from tests.deploy.trials import (
    DATA,
    EVALUATION,
    PARTIES,
    ROUNDS,
    STOP,
    TEST,
    TRAINING,
    Deed,
    Ending,
    Stage,
    play_all,
    play_cases,
    two_versions,
)
from tests.nats_server import needs_nats
from tests.processes import LONG

pytestmark = needs_nats

# What a party is about to do, or has just done, when it dies. Round 3 trains and evaluates: two messages.
PARTY = {
    "before it sends its consent": ("before sending", "JOIN -1"),
    "after it sent its consent": ("after sending", "JOIN -1"),
    "before it stores the agreement": ("before the agreement is stored", None),
    "between storing the agreement and its first state": ("after the agreement is stored", None),
    "before it says that it agreed": ("before sending", "DONE 0"),
    "after it said that it agreed": ("after sending", "DONE 0"),
    "before learning": ("before learning", 3),
    "after speaking, before the commit": ("before a commit", 3),
    "after the commit, before publishing": ("after a commit", 3),
    "after publishing, before the acknowledgement": ("after sending", "EVALUATE 3"),
    "with the last look committed": ("after a commit", EVALUATION),
    "before it keeps the best model": ("before a commit", STOP),
    "with the best model kept": ("after a commit", STOP),
    "with the test rows answered": ("after sending", f"EVALUATE {TEST}"),
    "when the run is closed": ("before sending", "DONE -3"),
}
LABEL_HOLDER = {
    "after the proposal": ("after sending", "PROPOSAL -1"),
    "when all have joined": ("all have joined", None),
    "before the agreement leaves": ("before sending", "AGREED 0"),
    "after the agreement left": ("after sending", "AGREED 0"),
    "when all have agreed": ("before the agreement is stored", None),
    "with the agreement stored": ("after the agreement is stored", None),
    "before the first commit": ("before a commit", 0),
    "with the request committed, not sent": ("before a request is sent", 3),
    "with the request sent": ("after a request is sent", 3),
    "with all answers, not committed": ("after all answers", 3),
    "with the answers committed": ("after a commit", 3),
    "before the request to stop": ("before a request is sent", STOP),
    "after the request to stop": ("after a request is sent", STOP),
    "when all have stopped": ("after the stop", None),
    "before the test": ("before the test", None),
    "with the test rows asked for": ("after a request is sent", TEST),
    "after the test": ("after the test", None),
    "before the run is saved": ("before saving", None),
    "after the run is saved": ("after saving", None),
    "before closing": ("before closing", None),
    "after closing": ("after sending", "CLOSE -3"),
}


APART = 11  # steps of the coordinator between its two deaths: rounds are done in between


def cases() -> dict[str, list[Deed]]:
    """Every step once. In a run each party dies at most once and the coordinator twice, far apart.

    So no death is followed so soon by another of the same process that it would hide what the first one broke.
    """
    steps: dict[int, dict[str, Deed]] = {run: {} for run in range(APART)}
    for place, (name, (point, about)) in enumerate(LABEL_HOLDER.items()):
        steps[place % APART][f"coordinator {name}"] = Deed(COORDINATOR, point, about)
    share = len(PARTY) // len(PARTIES)
    for place, (name, (point, about)) in enumerate(PARTY.items()):
        party = PARTIES[place // share]
        steps[place % share][f"{party} {name}"] = Deed(party, point, about)
    return {", ".join(deeds): list(deeds.values()) for deeds in steps.values()}


def test_every_step_is_somebodys_last() -> None:
    deeds = [deed for case in cases().values() for deed in case]
    assert len(deeds) == len(PARTY) + len(LABEL_HOLDER)
    assert all(len({d.who for d in case if d.who != COORDINATOR}) == sum(d.who != COORDINATOR for d in case)
               for case in cases().values())  # fmt: skip


@pytest.mark.parametrize("half", range(2), ids=["odd", "even"])  # so that two workers share them
def test_somebody_dies_at_each_step(half: int, calm: Ending, tmp_path: Path) -> None:
    assert play_cases(tmp_path, dict(list(cases().items())[half::2]), calm) == {}


# -- float32 ---------------------------------------------------------------------------------------

# Wide batches and narrow layers in float32: where the layout of a restored tensor once changed the last bits.
FLOAT32 = {
    "data": {"widths": (32, 32, 32), "rows": 900, "classes": 10},
    "model": {"hidden": 12, "embedding": 6},
    "training": {**TRAINING, "dtype": "float32", "schedule": {"batch": 512}},
}
MOMENTS = (("after a commit", 3), ("after all answers", 5))


@pytest.mark.parametrize("method", ["vimadmm", "vimadmm_j"])
def test_the_coordinator_dies_in_float32(method: str, tmp_path: Path) -> None:
    changes = {**FLOAT32, "method": {"name": method}}
    with Stage(tmp_path / "calm", **changes) as stage:
        calm = stage.play()
    deeds = [Deed(COORDINATOR, point, about) for point, about in MOMENTS]
    assert play_cases(tmp_path, {"both moments": deeds}, calm, **changes) == {}


# -- one message ------------------------------------------------------------------------------------

# Three requests for scores of trees. All learning is in the first: who dies before it is stored learns again.
ONE_MESSAGE = {
    "data": {**DATA, "task": "binary"},
    "method": {"name": "one_message", "folds": 2},
    "model": {"encoder": "trees", "trees": {"most": 8, "smallest_leaf": 3}},
    "training": {**TRAINING, "rounds": 3, "dtype": "float32", "wire": {"numbers": "int8"}},
    "noise": 0.0,
}
LAST_WORDS = (
    Deed("party_0", "before a commit", 1),
    Deed("party_1", "after a commit", 1),
    Deed("party_2", "before learning", 2),
    Deed(COORDINATOR, "after a request is sent", 1),
    Deed(COORDINATOR, "after all answers", 3),
)


def test_trees_are_grown_again_to_the_same_bits(tmp_path: Path) -> None:
    with Stage(tmp_path / "calm", **ONE_MESSAGE) as stage:
        calm = stage.play()
    assert play_cases(tmp_path, {"everybody dies": list(LAST_WORDS)}, calm, **ONE_MESSAGE) == {}


def test_whoever_takes_parts_over_does_so_again(tmp_path: Path) -> None:
    """A run in which one party trains and two bring what they have: each of them dies where it matters."""
    with Stage(tmp_path / "first", who=PARTIES[:2], **ONE_MESSAGE) as stage:
        stage.organisations.start()
        play_all({"first": stage})
    changes = {**ONE_MESSAGE, "former": stage.trial}
    with Stage(tmp_path / "calm", **changes) as stage:
        calm = stage.play()
    deeds = [
        Deed("party_0", "after the agreement is stored", None),
        Deed("party_1", "before a commit", 1),
        Deed("party_2", "after a commit", 1),
        Deed(COORDINATOR, "after the agreement is stored", None),
        Deed(COORDINATOR, "after all answers", 3),
    ]
    assert play_cases(tmp_path, {"everybody dies": deeds}, calm, **changes) == {}


# Trees at one party, ridge at another and a network at the third: each learns in every round.
KINDS = {"party_1": {"encoder": "ridge"}, "party_2": {"encoder": "mlp", "hidden": 6, "embedding": 4}}


@pytest.mark.parametrize("method", ["assisted_boosting", "vimadmm_j"])
def test_local_models_of_three_kinds_go_on_to_the_same_bits(method: str, tmp_path: Path) -> None:
    changes = {
        **ONE_MESSAGE,
        "method": {"name": method, "local_steps": 2},
        "model": {**ONE_MESSAGE["model"], **KINDS},
        "training": {**TRAINING, "dtype": "float32", "wire": {"numbers": "int8"}},
    }
    with Stage(tmp_path / "calm", **changes) as stage:
        calm = stage.play()
    assert play_cases(tmp_path, {"everybody dies": list(LAST_WORDS)}, calm, **changes) == {}


# -- random moments -------------------------------------------------------------------------------

SERVER, KILLS = "nats-server", 4
PAUSE = 0.1  # seconds per round, so that the kills are spread over the training


@pytest.mark.parametrize("seed", range(2))
def test_anybody_dies_at_random_moments(seed: int, calm: Ending, tmp_path: Path) -> None:
    moments = random.Random(f"kills {seed}")
    turns = sorted(moments.sample(range(ROUNDS), KILLS))
    with Stage(tmp_path, pause={"party_0": PAUSE}) as stage:
        stage.organisations.start()
        for plan in turns:
            wait_for_round(stage, plan)
            time.sleep(moments.uniform(0, 2 * PAUSE))
            victim = moments.choice([SERVER, COORDINATOR, *PARTIES])
            if victim == SERVER:
                stage.server.restart(kill=True)
            else:
                stage.kill(victim)
        assert stage.play().differences(calm) == []
    assert [m for who in (COORDINATOR, *PARTIES) for m in two_versions(stage.sent(who))] == []


def wait_for_round(stage: Stage, number: int) -> None:
    """Until the coordinator has got so far; whoever was killed is started again meanwhile."""
    deadline = time.monotonic() + LONG
    while max((entry["round"] for entry in stage.said(COORDINATOR, "round")), default=0) < number:
        stage.revive()
        assert time.monotonic() < deadline
        time.sleep(0.02)
