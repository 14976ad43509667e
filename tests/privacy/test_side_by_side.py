"""Work in threads gives what one thread gives, and loses no error."""

from __future__ import annotations

import threading
import time

import pytest

from colonnade.privacy.side_by_side import beside, side_by_side
from tests.processes import LONG


@pytest.mark.parametrize("count", [0, 1, 2, 50])
def test_results_are_in_order(count: int) -> None:
    def work(number: int) -> int:
        time.sleep(0.001 * (number % 3))
        return number**2

    assert side_by_side(work, count) == [number**2 for number in range(count)]


def test_every_piece_is_done_once() -> None:
    taken: list[int] = []
    side_by_side(taken.append, 2000)
    assert sorted(taken) == list(range(2000))


@pytest.mark.parametrize("bad", [0, 7, 19])
def test_an_error_in_any_thread_is_raised(bad: int) -> None:
    def work(number: int) -> None:
        time.sleep(0.001)
        if number == bad:
            raise ValueError(f"piece {number}")

    with pytest.raises(ValueError, match=f"piece {bad}"):
        side_by_side(work, 20)


def test_nobody_waits_for_a_busy_pool() -> None:
    """The caller does all of it, when the helpers are taken."""
    free = threading.Event()
    blocked = threading.Thread(target=lambda: side_by_side(lambda _: free.wait(LONG), 2))
    blocked.start()
    try:
        assert side_by_side(lambda number: number, 5) == [0, 1, 2, 3, 4]
        assert not free.is_set()
    finally:
        free.set()
        blocked.join()


def test_work_beside_goes_on_without_its_caller() -> None:
    free = threading.Event()
    wait = beside(lambda number: (free.wait(LONG), number)[1], 20)
    free.set()
    assert wait() == list(range(20)) == wait()


def test_an_error_beside_is_raised_where_it_is_waited_for() -> None:
    wait = beside(lambda number: 1 // number, 3)
    with pytest.raises(ZeroDivisionError):
        wait()


def test_a_failure_is_told_when_nothing_of_it_goes_on() -> None:
    """What was begun beside the caller may still write where the caller's next work does."""
    finished: list[int] = []

    def work(number: int) -> None:
        if number == 0:
            raise OSError("no entropy")
        time.sleep(0.2)
        finished.append(number)

    with pytest.raises(OSError, match="no entropy"):
        beside(work, 2)()
    assert finished == [1]
