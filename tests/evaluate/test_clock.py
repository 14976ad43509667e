"""The simulated clock, against times worked out by hand, and what must hold for any run."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colonnade.evaluate.clock import ClockSettings, Work, round_ends

MBIT = 125_000  # bytes: one second at 1 Mbit/s
SLOW_LINE = ClockSettings(up=1, down=1, latency=500, step=1, coordinate=0.25)


def test_a_round_of_two_parties_waits_for_the_slower_one() -> None:
    work = Work(("a", "b"), steps=2, speeds={"b": 0.5})
    up = [[MBIT, 2 * MBIT], [MBIT, 2 * MBIT], [0, 0]]
    down = [[0, 0], [MBIT, MBIT], [MBIT, MBIT]]
    # The opening arrives at 0.5. Uploads: a at 0.5 + 0.5 + 1, b at 0.5 + 0.5 + 2 = 3; answered at 3.25.
    # Replies arrive at 4.75. a learns for 2 s, b for 4 s: 8.75.
    # b's upload arrives at 8.75 + 2.5 = 11.25, answered 11.5, replies 13, learnt at 17.
    assert round_ends(SLOW_LINE, work, up, down) == pytest.approx([0.5, 8.75, 17.0])


def test_in_sequence_one_learns_while_the_next_one_talks() -> None:
    work = Work(("a", "b"), order="sequential", steps=3)
    up = [[MBIT, 0], [0, MBIT], [MBIT, 0], [0, 0]]
    down = [[0, 0], [MBIT, 0], [0, MBIT], [MBIT, 0]]
    # Opening 0.5. a's upload arrives at 2, answered 2.25; a has the reply at 3.75 and learns until 6.75.
    # b is asked at 2.75, its upload arrives at 4.25 (a is still learning), answered 4.5, reply 6, learnt at 9.
    # a is asked at 5, but learns until 6.75: its upload arrives at 8.25, answered 8.5, reply 10, learnt at 13.
    assert round_ends(SLOW_LINE, work, up, down) == pytest.approx([0.5, 6.75, 9.0, 13.0])


def test_asynchronous_parties_do_not_wait_to_be_asked() -> None:
    work = Work(("a", "b"), order="asynchronous", speeds={"a": 2.0}, special={"b": 4})
    up = [[MBIT, 0], [0, MBIT], [MBIT, 0], [0, 0]]
    down = [[0, 0], [MBIT, 0], [0, MBIT], [MBIT, 0]]
    # Both uploads arrive at 0.5 + 1.5 = 2; a is answered at 2.25, b at 2.5.
    # a has the reply at 3.75 and has learnt at 4.25; b has it at 4 and learns until 8.
    # a's second upload arrives at 5.75, answered 6, reply 7.5, learnt at 8: as late as b.
    assert round_ends(SLOW_LINE, work, up, down) == pytest.approx([0.5, 4.25, 8.0, 8.0])


def test_replies_to_others_take_their_time_on_a_party_s_line() -> None:
    """As the run above, but everybody gets all replies: one common message of 1 s each."""
    work = Work(("a", "b"), order="asynchronous", speeds={"a": 2.0}, special={"b": 4})
    up, down = [[MBIT, 0], [0, MBIT], [MBIT, 0], [0, 0]], [[0, 0], *[[MBIT, MBIT]] * 3]
    # a is answered at 2.25, has the reply at 3.75 and has learnt at 4.25. b is answered at 2.5, but its line carries
    # a's reply until 3.25, and its own until 4.25: it arrives at 4.75, learnt at 8.75.
    # a's line is busy until 4.25; its second upload arrives at 5.75, answered 6, reply 7.5, learnt at 8.
    assert round_ends(SLOW_LINE, work, up, down) == pytest.approx([0.5, 4.25, 8.75, 8.75])


def test_steps_that_a_round_names_are_those_of_that_round_only() -> None:
    work = Work(("a", "b"), steps=2, special={"b": 3}, taken={2: {"a": 7}})
    quick = ClockSettings(latency=0, step=1, coordinate=0)
    ends = round_ends(quick, work, [[1, 1]] * 3 + [[0, 0]], [[0, 0]] * 4)
    assert ends == pytest.approx([0, 3, 10, 13], abs=1e-3)


def test_a_silent_party_learns_or_does_not() -> None:
    up, down = [[MBIT, 0], [0, 0]], [[0, 0], [0, 0]]
    slow = {"b": 0.1}
    both = round_ends(SLOW_LINE, Work(("a", "b"), speeds=slow), up, down)
    one = round_ends(SLOW_LINE, Work(("a", "b"), speeds=slow, silent_learn=False), up, down)
    assert (both[1], one[1]) == pytest.approx((2.25 + 0.5 + 10, 2.25 + 0.5 + 1))


def test_without_an_uplink_all_learn_by_themselves() -> None:
    work = Work(("a", "b"), order="asynchronous", speeds={"b": 0.5})
    ends = round_ends(ClockSettings(latency=0, step=1, coordinate=0), work, [[0, 0]] * 4, [[0, 0]] * 4)
    assert ends == pytest.approx([0, 2, 4, 6])


COUNTS = st.lists(st.integers(1, 10**6), min_size=3, max_size=3)
SECONDS = st.floats(0, 2)


@st.composite
def clocks(draw: st.DrawFn) -> ClockSettings:
    return ClockSettings(
        up=draw(st.floats(0.1, 1000)), down=draw(st.floats(0.1, 1000)), latency=draw(st.floats(0, 500)),
        step=draw(SECONDS), coordinate=draw(SECONDS),
    )  # fmt: skip


@st.composite
def runs(draw: st.DrawFn) -> tuple[Work, list[list[int]], list[list[int]]]:
    order = draw(st.sampled_from(["together", "sequential", "asynchronous"]))
    rounds = draw(st.integers(1, 8))
    up = [draw(COUNTS) for _ in range(rounds)]
    if order != "together":
        awake = [draw(st.integers(0, 2)) if order == "asynchronous" else n % 3 for n in range(rounds)]
        up = [[count * (k == who) for k, count in enumerate(sent)] for who, sent in zip(awake, up, strict=True)]
    work = Work(("a", "b", "c"), order, draw(st.integers(1, 5)), speeds={"b": draw(st.floats(0.1, 10))})
    return work, [*up, [0, 0, 0]], [draw(COUNTS) for _ in range(rounds + 1)]


@given(clock=clocks(), run=runs(), factor=st.floats(1, 10))
@settings(max_examples=60, deadline=None)
def test_time_goes_on_and_nothing_that_gets_faster_makes_it_later(
    clock: ClockSettings, run: tuple[Work, list[list[int]], list[list[int]]], factor: float
) -> None:
    ends = round_ends(clock, *run)
    assert len(ends) == len(run[1])
    assert all(before <= after for before, after in pairwise(ends))
    faster = {"up": clock.up * factor, "down": clock.down * factor}
    sooner = {name: getattr(clock, name) / factor for name in ("latency", "step", "coordinate")}
    for change in (*faster.items(), *sooner.items()):
        changed = round_ends(clock.model_copy(update=dict([change])), *run)
        assert all(new <= old + 1e-9 for new, old in zip(changed, ends, strict=True))


@given(clock=clocks(), rounds=st.integers(1, 6), count=st.integers(1, 10**6))
@settings(max_examples=40, deadline=None)
def test_with_equal_parties_and_no_queue_asynchronous_turns_are_rounds_in_disguise(
    clock: ClockSettings, rounds: int, count: int
) -> None:
    clock = clock.model_copy(update={"coordinate": 0.0})
    names = ("a", "b", "c")
    together = round_ends(clock, Work(names), [[count] * 3] * rounds + [[0] * 3], [[count] * 3] * (rounds + 1))
    turns = [[count * (k == n % 3) for k in range(3)] for n in range(3 * rounds)]  # and to each its own reply
    alone = round_ends(clock, Work(names, "asynchronous"), [*turns, [0] * 3], [[count] * 3, *turns])
    assert alone[::3] == pytest.approx(together)


@given(run=runs(), clock=clocks())
@settings(max_examples=40, deadline=None)
def test_waiting_for_nobody_is_never_slower(
    run: tuple[Work, list[list[int]], list[list[int]]], clock: ClockSettings
) -> None:
    work, up, down = run
    if work.order == "together":
        return
    asked = round_ends(clock, Work(work.parties, "sequential", work.steps, speeds=work.speeds), up, down)
    unasked = round_ends(clock, Work(work.parties, "asynchronous", work.steps, speeds=work.speeds), up, down)
    assert all(free <= waits + 1e-9 for free, waits in zip(unasked, asked, strict=True))
