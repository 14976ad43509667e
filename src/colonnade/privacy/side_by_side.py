"""Work of several parties in one process, in threads: for calls that let go of the interpreter (hash, cipher, draws).

The calling thread works too, and takes the next piece whenever it has finished one: OpenMP's threads wait for their
next piece of work by spinning, so a pool's thread may get its core late, and nobody should wait for it.

Inside such work torch must not begin threads of its own, a team for each of these, so its calls get `PIECE` numbers at
most. These also stay in a processor's cache from one call to the next. NumPy's loops have no threads.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import wait as wait_for_all
from functools import cache
from typing import TypeVar

T = TypeVar("T")
BESIDE = 4  # threads that work beside their caller
PIECE = 2**15  # numbers; torch computes more than these in threads of its own


def side_by_side(work: Callable[[int], T], count: int) -> list[T]:
    """`work(0)` to `work(count - 1)`, in threads; results in order."""
    pool, helpers = _threads()
    done: dict[int, T] = {}
    numbers = iter(range(count))  # shared: taking the next one is a single step of the interpreter

    def take() -> None:
        for number in numbers:
            done[number] = work(number)

    others = [pool.submit(take) for _ in range(min(helpers, count - 1))]
    try:
        take()
    finally:
        waiting = [other for other in others if not other.cancel()]  # who has not begun need not
    for other in waiting:
        other.result()
    return [done[number] for number in range(count)]


def beside(work: Callable[[int], T], count: int) -> Callable[[], list[T]]:
    """Begin `work(0)` to `work(count - 1)` in threads, and go on; what is returned waits for the results, in order.

    A few threads only: all of them want the interpreter now and then, and so does the caller.
    """
    numbers = iter(range(count))

    def take() -> dict[int, T]:
        return {number: work(number) for number in numbers}

    pending = [_threads()[0].submit(take) for _ in range(min(BESIDE, count))]

    def wait() -> list[T]:
        wait_for_all(pending)  # before the first failure is told: what it left behind must not go on beside the caller
        done = {number: result for one in pending for number, result in one.result().items()}
        return [done[number] for number in range(count)]

    return wait


@cache
def _threads() -> tuple[ThreadPoolExecutor, int]:
    helpers = min(16, os.cpu_count() or 1) - 1
    return ThreadPoolExecutor(max_workers=max(1, helpers), thread_name_prefix="gate"), helpers
