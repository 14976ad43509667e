"""Work that threads do ahead of whoever needs its results, in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

S = TypeVar("S")
T = TypeVar("T")


def in_order(act: Callable[[S], T], items: Iterable[S], threads: int) -> Iterator[T]:
    """What becomes of each item, in their order; items are taken one by one, at most `threads` + 1 ahead."""
    with ThreadPoolExecutor(threads) as pool:
        ahead: deque[Future[T]] = deque()
        for item in items:
            ahead.append(pool.submit(act, item))
            if len(ahead) > threads:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()
