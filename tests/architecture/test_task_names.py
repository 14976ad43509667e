"""Names of tasks are compared in tasks/ only: everybody else asks the task. The names come from the registry."""

from __future__ import annotations

import ast

import pytest

from colonnade.tasks import TASKS
from tests.architecture.source import Source, lines, package

KINDS = {kind.__name__ for kind in TASKS.values()}


def compared_tasks(source: Source) -> list[str]:
    """Comparisons with the name or the class of a task, `isinstance` of one, and tables by task."""
    if source.unit in ("tasks", "testing"):  # contract tests make labels of every kind up
        return []
    found = [node for node in source.nodes if _asks(node)]
    return [source.at(node.lineno, f"asks which task it is: {ast.unparse(node)[:60]}") for node in found]


def _asks(node: ast.AST) -> bool:
    if isinstance(node, ast.Compare):
        return any(_is_task(part) for part in (node.left, *node.comparators))
    if isinstance(node, ast.MatchValue):
        return _is_task(node.value)
    if isinstance(node, ast.Dict):
        return any(_is_task(key) for key in node.keys if key is not None)
    if isinstance(node, ast.Call):
        return ast.unparse(node.func) in ("isinstance", "issubclass") and any(_is_task(part) for part in node.args[1:])
    return False


def _is_task(node: ast.expr) -> bool:
    if isinstance(node, ast.Constant):
        return node.value in TASKS
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return any(_is_task(part) for part in node.elts)
    if isinstance(node, ast.Attribute):
        return node.attr == "name" and _is_task(node.value)
    return isinstance(node, ast.Name) and node.id in KINDS


def test_nobody_outside_tasks_asks_which_task_it_has() -> None:
    found = [complaint for source in package() for complaint in compared_tasks(source)]
    assert not found, lines(found)


@pytest.mark.parametrize(
    "text",
    [
        'if about["task"] == "regression":\n    pass\n',
        'x = task.name in ("multiclass", "binary")\n',
        "x = isinstance(task, Multiclass)\n",
        'NAMES = {"binary": "accuracy"}\n',
        "x = task.name == Multiclass.name\n",
        'match task.name:\n    case "count":\n        pass\n',
    ],
)
def test_the_gate_can_fail(text: str) -> None:
    assert compared_tasks(Source("report/words.py", text))
    assert not compared_tasks(Source("tasks/guess.py", text))
