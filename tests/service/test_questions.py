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
from colonnade.service.questions import Call, Questions
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
        wish = Wish(torch.tensor(rows), served=served)
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
    found = Line(parties, Questions(parties.ask, 50).start())
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
