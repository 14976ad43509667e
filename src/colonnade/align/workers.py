"""Workers: threads that blind one part at a time, and hand back what is finished when asked."""

from __future__ import annotations

import os
import queue
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any


class Workers:
    """A pool whose results are collected by the one thread that also sends and receives; 0 threads: one per core."""

    def __init__(self, count: int) -> None:
        self._pool = ThreadPoolExecutor(count or os.cpu_count(), thread_name_prefix="align")
        self._finished: queue.SimpleQueue[tuple[int, Any, Future[bytes]]] = queue.SimpleQueue()
        self._waiting: set[Future[bytes]] = set()
        self._generation = 0

    def give(self, tag: Any, work: Callable[..., bytes], *arguments: Any) -> None:
        """Do `work(*arguments)` after what was given before; `finished` brings the result with its tag."""
        generation = self._generation
        future = self._pool.submit(work, *arguments)
        self._waiting.add(future)
        future.add_done_callback(lambda done: self._finished.put((generation, tag, done)))

    def finished(self) -> list[tuple[Any, bytes]]:
        """Tags and results since the last call; raises what the work raised."""
        results = []
        while not self._finished.empty():
            generation, tag, future = self._finished.get()
            self._waiting.discard(future)
            if generation == self._generation:
                results.append((tag, future.result()))
        return results

    def forget(self) -> None:
        """Drop all work that was given, begun or not; its results never come."""
        self._generation += 1
        for future in self._waiting:
            future.cancel()
        self._waiting.clear()

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.forget()
        self._pool.shutdown(wait=False, cancel_futures=True)
