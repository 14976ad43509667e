"""What `make check` leaves out is there, and what it takes is chosen by cost."""

import ast
from functools import cache

from tests.architecture.source import ROOT
from tests.measure import name_of, read_slow, slow_ones

CONTRACTS = "src/colonnade/testing/methods.py"  # whose classes the tests of the built-in methods inherit from


@cache
def classes(path: str) -> dict[str, ast.ClassDef]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}


def functions(body: list[ast.stmt]) -> set[str]:
    return {node.name for node in body if isinstance(node, ast.FunctionDef)}


@cache
def defined(path: str) -> set[str]:
    """The tests of a file, with their classes, which may inherit some from a contract."""
    contracts = classes(CONTRACTS)
    found = functions(ast.parse((ROOT / path).read_text(encoding="utf-8")).body)
    for group in classes(path).values():
        above = [contracts[base.id] for base in group.bases if isinstance(base, ast.Name) and base.id in contracts]
        found |= {f"{group.name}::{name}" for one in (group, *above) for name in functions(one.body)}
    return found


def test_every_slow_test_exists() -> None:
    named = [test.split("::", 1) for test in sorted(read_slow())]
    files = {path: defined(path) if (ROOT / path).exists() else set() for path, _ in named}
    gone = [f"{path}::{test}" for path, test in named if test not in files[path]]
    assert gone == [], "not there any more: take them out of tests/slow.txt, or run: make measure"


def test_the_cheapest_are_taken_until_the_budget_is_spent() -> None:
    seconds = {"a": 3.0, "b": 0.5, "c": 1.0, "d": 0.25}
    assert slow_ones(seconds, budget=2.0) == ["a"]
    assert slow_ones(seconds, budget=0.8) == ["a", "c"]
    assert slow_ones(seconds, budget=100.0) == []


def test_cases_of_one_test_belong_together() -> None:
    assert name_of("tests/a.py::T::test_b[x[1]]") == "tests/a.py::T::test_b"
    assert name_of("tests/a.py::test_b") == "tests/a.py::test_b"
