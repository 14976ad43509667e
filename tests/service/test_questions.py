"""Which calls for predictions travel together; in place of the parties a function writes down what it is asked."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
import torch

from colonnade.deploy.predict import Wish
from colonnade.predict import Prediction
from colonnade.service.questions import TOGETHER, Call, Full, Most, Questions, TooManyOfOne
from tests.processes import LONG


@dataclass
class Parties:
    """Answers with the row numbers. The first question waits until it is let go, so that all others wait in line."""

    asked: list[Wish] = field(default_factory=list)
    begun: threading.Event = field(default_factory=threading.Event)
    let_go: threading.Event = field(default_factory=threading.Event)

    def ask(self, version: int, wish: Wish) -> Prediction:
        self.asked.append(wish)
        self.begun.set()
        assert self.let_go.wait(LONG)
        return Prediction(wish.rows[:, None].double())


@dataclass
class Line:
    """A line of calls behind a question that is under way."""

    parties: Parties
    questions: Questions
    calls: list[Call] = field(default_factory=list)

    def put(self, caller: str, *rows: int, served: bool = True) -> Call:
        return self.put_many(caller, torch.tensor(rows), served)

    def put_many(self, caller: str, rows: torch.Tensor, served: bool = True) -> Call:
        wish = Wish(rows, served=served)
        call = self.questions.put(Call(1, wish, caller, time.monotonic() + LONG))
        self.calls.append(call)
        return call

    def asked(self) -> list[Wish]:
        """What is asked after the first question, once all calls are answered, each with its own rows."""
        self.parties.let_go.set()
        for call in self.calls:
            assert torch.equal(call.answer.result(LONG).logits[:, 0], call.wish.rows.double())
        return self.parties.asked[1:]


@pytest.fixture
def line() -> Iterator[Line]:
    parties = Parties()
    found = Line(parties, Questions(parties.ask, Most(50, 20)).start())
    found.put("first", 0)
    assert parties.begun.wait(LONG)
    try:
        yield found
    finally:
        parties.let_go.set()
        assert found.questions.end(LONG)


def test_what_compares_models_does_not_travel_with_what_somebody_is_told(line: Line) -> None:
    """Only rows that somebody is told are counted for drift: of a joint question, all rows would be, or none."""
    line.put("", 1, 2, served=False)
    line.put("shop", 3)
    line.put("", 4, served=False)
    asked = line.asked()
    assert sorted((wish.served, wish.rows.tolist()) for wish in asked) == [(False, [1, 2, 4]), (True, [3])]


def test_a_caller_that_floods_delays_another_by_one_question(line: Line) -> None:
    """Each call of the flood fills a question; whoever comes last is served second, and again when it calls again."""
    for at in range(10):
        line.put_many("flood", torch.arange(TOGETHER) + at * TOGETHER)
    line.put("shop", -1)
    line.put("desk", -2)
    line.put("shop", -3)
    asked = [wish.callers for wish in line.asked()]
    mine = [[name for name, _ in callers] for callers in asked]
    assert mine[0] == ["flood"] and mine[1] == ["shop", "desk"] and dict(asked[1]) == {"shop": 2, "desk": 1}
    assert mine[2:] == [["flood"]] * 9


def test_who_calls_again_and_again_does_not_overtake_who_waits(line: Line) -> None:
    large = torch.arange(TOGETHER)
    for at in range(3):
        line.put_many("flood", large + at * TOGETHER)
    for name in ("shop", "desk"):
        line.put_many(name, large)
    again = 3
    ask = line.parties.ask

    def calling(version: int, wish: Wish) -> Prediction:
        nonlocal again
        found, (name, _) = ask(version, wish), wish.callers[0]
        if name != "flood" and again:  # it calls again before the next question is chosen
            again -= 1
            line.put_many(name, large)
        return found

    line.questions._ask = calling
    order = [wish.callers[0][0] for wish in line.asked()]
    assert order[:6] == ["flood", "shop", "desk", "flood", "shop", "desk"]


def test_a_question_takes_one_call_of_each_before_a_second_of_anybody(line: Line) -> None:
    half = torch.arange(TOGETHER // 2)
    for at in range(3):
        line.put_many("flood", half + at * TOGETHER)
    line.put_many("shop", half + 5 * TOGETHER)
    asked = [dict(wish.callers) for wish in line.asked()]
    assert asked == [{"flood": len(half), "shop": len(half)}, {"flood": 2 * len(half)}]


def test_one_caller_cannot_fill_the_line(line: Line) -> None:
    for row in range(20):
        line.put("flood", row)
    with pytest.raises(TooManyOfOne, match="20 calls of 'flood' wait already"):
        line.put("flood", 20)
    line.put("", 7, served=False)
    for row in range(28):
        line.put(f"other {row % 2}", row)
    with pytest.raises(Full, match="50 calls wait already"):
        line.put("another", 1)
    line.put("", 8, served=False)  # the process's own questions are not limited
    line.calls[1].answer.cancel()  # somebody hung up: its place is free
    line.calls.pop(1)
    with pytest.raises(Full):
        line.put("flood", 20)
    line.asked()
