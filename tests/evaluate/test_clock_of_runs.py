"""The simulated clock on real runs of the methods whose order or steps it once could not see, against times by hand.

Who spoke, who learnt and with how many steps comes from the run; only the bytes are made round: every message that was
sent counts one Mbit. So an upload takes 0.5 + 1 s, a message down 0.5 s on the line and 0.5 s of latency.
"""

from __future__ import annotations

from typing import Any

import pytest

from colonnade.evaluate.clock import ClockSettings, run_ends
from colonnade.methods import FDML, AdaVFL, FedBCD, FlexVFL
from colonnade.methods.base import Method
from tests.federations import small
from tests.trainers import open_trainer

MBIT = 125_000  # bytes
CLOCK = ClockSettings(up=1, down=2, latency=500, step=1, coordinate=0.25)


def ends(method: Method, rounds: int, **schedule: Any) -> list[float]:
    """Of three parties: the opening, and rounds 1 to `rounds`."""
    federation = small(widths=(5, 5, 5))
    run = open_trainer(federation, method, rounds=rounds, evaluate_every=0, schedule=schedule).train()
    record = run.record()
    for one_round in record["traffic"]["rounds"]:
        for way in ("up", "down"):
            one_round[way] = [MBIT * bool(count) for count in one_round[way]]
    return run_ends(CLOCK, record)[: rounds + 1]


def test_fedbcd_in_sequence() -> None:
    """Two steps: party 0 learns for 2 s, party 1 for 4 s, party 2 for 1 s.

    The opening arrives at 1. Party 0's upload arrives at 2.5 and is answered at 2.75; that message reaches everybody at
    3.75, and party 0 has learnt at 5.75. Party 1 was asked by it: heard 5.25, answered 5.5, arrives 6.5, learnt 10.5.
    Party 2: heard 8, answered 8.25, arrives 9.25, learnt 10.25, while party 1 still learns. Party 0 again, asked at
    9.25: heard 10.75, answered 11, arrives 12, learnt 14.
    """
    found = ends(FedBCD(local_steps=2), 4, order="sequential", speeds={"party_1": 0.5, "party_2": 2.0})
    assert found == pytest.approx([1, 5.75, 10.5, 10.5, 14])


def test_flex_vfl_takes_the_steps_that_fit() -> None:
    """Four steps at speed 1; speeds 0.3, 0.6 and 2.2 make it 1, 2 and 8, which take 10/3, 10/3 and 40/11 s.

    Everybody is heard at 2.5 and answered at 2.75, has the reply at 3.75, and party 2 is the last to have learnt. Then
    upload, answer and reply again: 1.5 + 0.25 + 1.
    """
    found = ends(FlexVFL(local_steps=4), 2, speeds={"party_0": 0.3, "party_1": 0.6, "party_2": 2.2})
    first = 3.75 + 40 / 11
    assert found == pytest.approx([1, first, first + 2.75 + 40 / 11])


def test_adavfl_takes_the_steps_it_chose() -> None:
    """Four steps for all in round 1: 4, 8 and 2 s. From round 2 on it has chosen 2, 1 and 4: 2 s for everybody.

    (0.5 + 2) (1/2 + 1 + 1/4) / 3 = 1.46 is the least: (0.5 + 4) (1/4 + 1/2 + 1/4) / 3 = 1.5 is next.
    """
    method = AdaVFL(local_steps=4, overhead=0.5, drift=0.0, reestimate_every=2)
    found = ends(method, 3, speeds={"party_1": 0.5, "party_2": 2.0})
    assert found == pytest.approx([1, 3.75 + 8, 11.75 + 2.75 + 2, 16.5 + 2.75 + 2])


def test_fdml_with_bounded_delay() -> None:
    """Party 2 has two turns, waits for the others, and has a third: 2, 2, 0, 1, 2. A step takes 1, 20/11 and 5/13 s.

    Party 2 is heard at 2.5, answered 2.75, has the reply at 3.75 and has learnt at 3.75 + 5/13. Again: answered at
    5.5 + 5/13, learnt at 6.5 + 10/13. Party 0 spoke long ago, and is answered at 5.75 + 5/13; but its line carries
    the reply to party 2 until 6 + 5/13, its own until 6.5 + 5/13: arrives 7 + 5/13, learnt 8 + 5/13. Party 1 likewise:
    answered 6 + 5/13, on the line from 6.5 + 5/13, arrives 7.5 + 5/13, learns for 20/11. Party 2 spoke again at
    6.5 + 10/13: heard 8 + 10/13, answered 8.25 + 10/13, arrives 9.25 + 10/13.
    """
    speeds = {"party_1": 0.55, "party_2": 2.6}
    found = ends(FDML(), 5, order="asynchronous", staleness=2, speeds=speeds)
    by_hand = [1, 3.75 + 5 / 13, 6.5 + 10 / 13, 8 + 5 / 13, 7.5 + 5 / 13 + 20 / 11, 9.25 + 15 / 13]
    assert found == pytest.approx(by_hand)


def test_steps_that_the_schedule_names() -> None:
    """Party 1 takes one step of 2 s, the others three: 3 and 1.5 s."""
    found = ends(FedBCD(local_steps=3), 1, steps={"party_1": 1}, speeds={"party_1": 0.5, "party_2": 2.0})
    assert found == pytest.approx([1, 3.75 + 3])
