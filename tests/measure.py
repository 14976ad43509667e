"""Measure every test and write tests/slow.txt, which says what the quick suite leaves out: `make measure`.

The quick suite takes the tests that need least CPU time, all their cases together and the processes that they start
included, until `BUDGET` is spent. CPU time, because the time on the clock depends on what else the machine does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import accumulate
from pathlib import Path

import pytest

from tests.processes import cpu_seconds

BUDGET = 75.0  # CPU seconds: a third of what `make check` has on two cores; the rest is imports, ruff and mypy
SLOW = Path(__file__).with_name("slow.txt")
HEAD = (
    f"# Tests beyond the {BUDGET:.0f} CPU seconds of the quick suite. Written by `make measure`; add others by hand.\n"
)


def name_of(nodeid: str) -> str:
    """`tests/a.py::T::test_b[case]` -> `tests/a.py::T::test_b`."""
    return nodeid.partition("[")[0]


def read_slow() -> set[str]:
    """The tests that the quick suite leaves out."""
    return {line.split()[0] for line in SLOW.read_text(encoding="utf-8").splitlines() if line[:1] not in ("", "#")}


def slow_ones(seconds: Mapping[str, float], budget: float = BUDGET) -> list[str]:
    """The tests that do not fit into the budget when the cheapest are taken first."""
    cheapest = sorted(seconds, key=lambda test: (seconds[test], test))
    spent = accumulate(seconds[test] for test in cheapest)
    return sorted(test for test, total in zip(cheapest, spent, strict=True) if total > budget)


class Measured:
    """The plugin: adds up the CPU time of each test's cases; the first one pays for the fixtures that others share."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        before = cpu_seconds()
        done = yield
        self.seconds[name_of(item.nodeid)] += cpu_seconds() - before  # type: ignore[assignment]
        return done

    def pytest_sessionfinish(self) -> None:
        lines = [f"{test} {self.seconds[test]:.1f}\n" for test in slow_ones(self.seconds)]
        SLOW.write_text(HEAD + "".join(lines), encoding="utf-8")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Measured())
