"""Questions: calls for predictions, put together so that whoever waits travels in one message to the parties.

Calls come from any thread and wait in a line that has an end. One thread takes whatever waits for the same version and
the same rule about absent parties, asks the parties once, and gives everybody its own rows. A row that two callers need
is asked about once.

Callers take turns: whoever was not served the longest comes first, and a question takes one call of each before it
takes a second of anybody. So a caller with many calls, or large ones, delays another by one question at most.

No call gets lost: each is answered, or refused with a reason, by its deadline. A call that must not leave anybody out
waits for a party that is away until then; meanwhile others, that may, are answered.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from colonnade.deploy.predict import NotThere, Wish
from colonnade.errors import ColonnadeError, Refused, RunError
from colonnade.predict import Prediction, WhenAbsent

PATIENCE = 2.0  # seconds that a party has to say whether it would answer; then others have their turn, or do without it
TOGETHER = 10_000  # rows of several calls in one question; one call may have more
EVERY = 1.0  # seconds between two looks at what else changed
PAUSE = 0.2  # seconds until calls that wait for somebody are asked about again

logger = logging.getLogger(__name__)


Ask = Callable[[int, Wish], Prediction]  # asks the parties of a version once


class Full(ColonnadeError):
    """More calls wait than may."""


class TooManyOfOne(ColonnadeError):
    """More calls of one caller wait than may."""


class Ending(ColonnadeError):
    """The process ends, and takes no more calls."""


class TooLate(ColonnadeError):
    """A call was not answered by its deadline; `parties` are those that were waited for, if that is why."""

    def __init__(self, told: str, parties: tuple[str, ...] = ()) -> None:
        super().__init__(told)
        self.parties = parties


@dataclass(eq=False)
class Call:
    """Some rows that somebody needs predictions of; `wish` says everything but for how long to wait."""

    version: int
    wish: Wish
    caller: str  # "": this process itself
    deadline: float  # by the monotonic clock
    answer: Future[Prediction] = field(default_factory=Future, repr=False)
    why: str = ""  # it has not been answered yet
    away: tuple[str, ...] = ()  # whom it waits for
    alone: bool = False  # with others it was refused
    not_before: float = 0.0

    @property
    def kind(self) -> tuple[int, WhenAbsent, str | None, bool]:
        """Calls of one kind may travel together; drift counts the rows of all of them, or none."""
        return self.version, self.wish.absent, self.wish.alignment, self.wish.served

    def refuse(self, error: Exception) -> None:
        """Say why there is no answer."""
        with suppress(InvalidStateError):  # nobody waits any more
            self.answer.set_exception(error)

    def tell(self, found: Prediction) -> None:
        """Give the answer."""
        with suppress(InvalidStateError):
            self.answer.set_result(found)


@dataclass(frozen=True)
class Most:
    """Calls that may wait at a time."""

    waiting: int
    of_one: int  # caller


class Questions:
    """The line of calls, and the thread that takes them.

    `ask` and `look` are called in that thread only; `look` every second.
    """

    def __init__(
        self,
        ask: Ask,
        most: Most,
        look: Callable[[], None] = lambda: None,
        patience: float = PATIENCE,
    ) -> None:
        self._ask, self._most, self._look, self._patience = ask, most, look, patience
        self._line: list[Call] = []
        self._asking: list[Call] = []  # those whose question is under way
        self._turns: dict[str, int] = {}  # by caller, the number of the question that it was last part of
        self._turn = 0
        self._news = threading.Condition()
        self._ending = False
        self._thread = threading.Thread(target=self._work, name="questions", daemon=True)
        self.asked, self.together = 0, 0  # questions so far, and calls in them

    def start(self) -> Questions:
        """Begin to take calls."""
        self._thread.start()
        return self

    @property
    def waiting(self) -> int:
        """Calls that are not answered yet."""
        return len(self._line) + len(self._asking)

    def put(self, call: Call) -> Call:
        """Take a call; `TooManyOfOne` or `Full` if too many wait, `Ending` if the process ends."""
        with self._news:
            if self._ending:
                raise Ending("this process ends")
            if call.caller:  # not the process's own questions
                self._check_room(call.caller)
            self._line.append(call)
            self._news.notify()
        return call

    def _check_room(self, caller: str) -> None:
        known = [*self._line, *self._asking]
        own = sum(call.caller == caller and not call.answer.done() for call in known)
        if own >= self._most.of_one:
            raise TooManyOfOne(f"{own:,} calls of {caller!r} wait already")
        if len(known) >= self._most.waiting:
            raise Full(f"{len(known):,} calls wait already")

    def end(self, seconds: float) -> bool:
        """Refuse what waits, and let the question under way end; whether it did."""
        with self._news:
            self._ending = True
            self._news.notify()
        if self._thread.ident is not None:
            self._thread.join(seconds)
        return not self._thread.is_alive()

    # -- in the thread ------------------------------------------------------------------------

    def _work(self) -> None:
        looked, batch = -EVERY, list[Call]()
        while True:
            try:
                batch = []
                with self._news:
                    found = self._next()
                if found is None:
                    break
                batch = found
                if batch:
                    self._answer(batch)
                if time.monotonic() >= looked + EVERY:
                    looked = time.monotonic()
                    self._look()
            except Exception as error:  # a fault of the program ends no thread that others rely on
                logger.exception("questions to the parties")
                for call in batch:
                    call.refuse(error)
            finally:
                self._asking = []
        for call in self._line:
            call.refuse(Ending("this process ends"))

    def _next(self) -> list[Call] | None:
        """The calls that travel together next, none if nothing happens, None at the end; the lock is held."""
        now = time.monotonic()
        for call in [call for call in self._line if call.deadline <= now or call.answer.done()]:
            self._line.remove(call)
            call.refuse(TooLate(call.why or "it waited for its turn too long", call.away))
        if self._ending:
            return None
        ready = [call for call in self._line if call.not_before <= now]
        if not ready:
            ends = [min(call.deadline, call.not_before) for call in self._line]
            self._news.wait(max(0.0, min([now + 1.0, *ends]) - now) if ends else 1.0)
            return []
        ready = self._in_turn(ready)
        batch, rows = ready[:1], len(ready[0].wish.rows)
        for call in ready[1:] if not ready[0].alone else ():
            if call.kind == ready[0].kind and not call.alone and rows + len(call.wish.rows) <= TOGETHER:
                batch.append(call)
                rows += len(call.wish.rows)
        self._turn += 1
        for call in batch:
            self._line.remove(call)
            self._turns[call.caller] = self._turn
        self._asking = batch
        return batch

    def _in_turn(self, ready: Sequence[Call]) -> list[Call]:
        """The first call of each caller, then the second of each, and so on; first whoever waits for its turn longest.

        A caller that has no call left keeps its place: else one that calls again and again would overtake all others.
        """
        seen: dict[str, int] = {}
        order: dict[int, tuple[int, int]] = {}
        for call in ready:
            seen[call.caller] = seen.get(call.caller, 0) + 1
            order[id(call)] = (seen[call.caller], self._turns.get(call.caller, 0))
        return sorted(ready, key=lambda call: order[id(call)])

    def _answer(self, batch: Sequence[Call]) -> None:
        rows, places = _joined([call.wish.rows for call in batch])
        left = max(call.deadline for call in batch) - time.monotonic()
        callers: dict[str, int] = {}
        for call in (call for call in batch if call.caller):
            callers[call.caller] = callers.get(call.caller, 0) + len(call.wish.rows)
        patience = min(self._patience, max(left, 0.1))
        # Where somebody may be left out, an answer that does not come either is not waited for longer than a consent.
        longer = max(left, 0.1) if batch[0].wish.absent == "refuse" else patience
        wish = replace(
            batch[0].wish, rows=rows, patience=patience, answer_patience=longer, callers=tuple(callers.items())
        )
        try:
            found = self._ask(batch[0].version, wish)
        except NotThere as error:
            return self._wait_for(batch, error)
        except (Refused, RunError) as error:
            return self._apart(batch, error)
        except ColonnadeError as error:
            for call in batch:
                call.refuse(error)
            return None
        self.asked, self.together = self.asked + 1, self.together + len(batch)
        for call, at in zip(batch, places, strict=True):
            call.tell(_part(found, at))
        return None

    def _wait_for(self, batch: Sequence[Call], error: NotThere) -> None:
        """Nothing was released: ask again, after whoever waits. What others have released is not asked for twice."""
        again = time.monotonic() + PAUSE
        for call in batch:
            if error.released:
                call.refuse(TooLate(str(error), error.parties))
            call.why, call.away, call.not_before = str(error), error.parties, again
        if not error.released:
            with self._news:
                self._line += batch

    def _apart(self, batch: Sequence[Call], error: ColonnadeError) -> None:
        """Somebody refuses: if several calls were together, each has to be refused for itself."""
        if len(batch) == 1:
            return batch[0].refuse(error)
        for call in batch:
            call.alone = True
        with self._news:
            self._line[:0] = batch
        return None


def _joined(each: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """All rows, each once and in the order in which they first come; and where those of each call are in it."""
    if len(each) == 1:
        return each[0], [torch.arange(len(each[0]))]
    at: dict[int, int] = {}
    places = [torch.tensor([at.setdefault(row, len(at)) for row in rows.tolist()]) for rows in each]
    return torch.tensor(list(at), dtype=torch.int64), places


def _part(found: Prediction, places: Tensor) -> Prediction:
    """The answer for some places of a larger one."""
    lacking: dict[tuple[str, ...], Tensor] = {}
    for who, at in found.lacking.items():
        if len(mine := torch.isin(places, at).nonzero().flatten()):
            lacking[who] = mine
    return Prediction(found.logits[places], lacking)
