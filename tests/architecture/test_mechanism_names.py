"""Stored names of mechanisms are compared in privacy/ only: everybody else asks the event, its kind or the settings.

The names come from the registry, so a new mechanism is guarded without being listed here.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import get_args

import pytest

from colonnade.privacy.labels.settings import LabelSettings
from colonnade.privacy.registry import EVENTS
from colonnade.privacy.secure_sum.event import kind_of_sum
from colonnade.privacy.settings import PrivacySettings
from tests.architecture.source import Source, lines, package

SETTINGS = {
    name
    for settings in (PrivacySettings, LabelSettings)
    for name in get_args(settings.model_fields["mechanism"].annotation)
}
NAMES = SETTINGS | {name for kind in EVENTS for name in (kind.name, kind_of_sum(kind).name)}
HOLDERS = {"mechanism", "event", "kind"}  # an attribute or key of this name is, or has, a mechanism's name
CALLS = {"startswith", "endswith", "removeprefix", "removesuffix", "set", "frozenset"}
NO_TEST = (ast.Is, ast.IsNot, ast.Lt, ast.LtE, ast.Gt, ast.GtE)  # `is None`, and numbers

# Words that happen to be stored names and mean something else there.
ANOTHER_MEANING = {
    ("bench/audit.py", "none"): "the wrapper without a planted bug",
    ("explain/explain.py", "none"): "no Shapley values",
    ("data/kinds.py", "empty"): "what pandas calls a column without values",
}


def compared_names(source: Source) -> list[str]:
    """Comparisons, membership tests, match cases and tables that use the name of a mechanism."""
    return [source.at(node.lineno, f"compares the name of a mechanism: {what}") for node, what in _found(source)]


def _found(source: Source) -> Iterator[tuple[ast.expr, str]]:
    if source.unit == "privacy":
        return
    for node in source.nodes:
        for operand in _operands(node):
            if _holds_a_name(operand):
                yield operand, ast.unparse(operand)
            for word in sorted(_words(operand) & NAMES):
                if (source.path, word) not in ANOTHER_MEANING:
                    yield operand, repr(word)


def _operands(node: ast.AST) -> list[ast.expr]:
    """What a node tests: operands, cases, members of a set, keys of a table, ends of a text."""
    if isinstance(node, ast.Compare):
        return [] if all(isinstance(op, NO_TEST) for op in node.ops) else [node.left, *node.comparators]
    if isinstance(node, ast.MatchValue):
        return [node.value]
    if isinstance(node, ast.Set):
        return node.elts
    if isinstance(node, ast.Dict):
        return [key for key in node.keys if key is not None and _words(key) - {"none", "empty", "sum"}]
    if isinstance(node, ast.Call):
        called = ast.unparse(node.func).rpartition(".")[2]
        return node.args if called in CALLS else []
    return []


def _words(operand: ast.expr) -> set[str]:
    """The texts that an operand is, or is made of."""
    if isinstance(operand, ast.Constant):
        return {operand.value.strip()} if isinstance(operand.value, str) else set()
    if isinstance(operand, (ast.Tuple, ast.List, ast.Set)):
        return {word for part in operand.elts for word in _words(part)}
    return set()


def _holds_a_name(operand: ast.expr) -> bool:
    """`release.mechanism`, `event.name`, `x.mechanism.name`, `body["mechanism"]`, `body.get("mechanism")`."""
    if isinstance(operand, ast.Call):
        named = isinstance(operand.func, ast.Attribute) and operand.func.attr == "get" and bool(operand.args)
        return named and _words(operand.args[0]) == {"mechanism"}
    if isinstance(operand, ast.Subscript):
        return _words(operand.slice) == {"mechanism"}
    if not isinstance(operand, ast.Attribute):
        return False
    if operand.attr == "name":
        holder = operand.value
        return (isinstance(holder, ast.Attribute) and holder.attr in HOLDERS) or (
            isinstance(holder, ast.Name) and holder.id in HOLDERS
        )
    return operand.attr == "mechanism"


def test_no_name_of_a_mechanism_is_compared_outside_privacy() -> None:
    found = [complaint for source in package() for complaint in compared_names(source)]
    assert not found, lines(found)


@pytest.mark.parametrize(
    "text",
    [  # each stood in the package before events were classes
        'if r.mechanism == "none":\n    pass\n',
        'x = privacy.labels.mechanism != "none"\n',
        'x = labels.get("mechanism", "none") != "none"\n',
        'UNCHANGED = {"none", "empty"}\n',
        'SIMPLE = {*BARE, "empty", "alibi", "randomised response"}\n',
        'x = "none" in mechanisms\n',
        "x = release.mechanism == plan.mechanism.name\n",
        "x = release.mechanism in COUNTED\n",
        'x = u.body(run)["mechanism"] not in BARE\n',
        'x = proposal.body.get("mechanism") != stands\n',
        "x = mechanism.name not in BARE | {GAUSSIAN}\n",
        'kind = Alibi if chosen == "alibi" else RandomisedResponse\n',
        'NOISED = frozenset(("gaussian", "gaussian sum"))\n',
        'MADE = {"alibi": Alibi}\n',
        'x = name.endswith(" sum")\n',
        'match name:\n    case "poisson binomial":\n        pass\n',
    ],
)
def test_the_gate_can_fail(text: str) -> None:
    assert compared_names(Source("report/words.py", text))
    assert not compared_names(Source("privacy/tally.py", text))


@pytest.mark.parametrize(
    "text",
    [
        "x = release.event.bare\n",
        "x = kind_of(body['mechanism']).bare\n",
        "x = kind_of(name) == other.event.kind\n",
        "x = isinstance(release.event, PlainEvent)\n",
        "x = mechanism is None or run.mechanism is not None\n",
        'loss(x, reduction="none")\n',
        'x = privacy.labels.get("mechanism", "none")\n',
        'x = {"mechanism": event.name}\n',
    ],
)
def test_the_gate_leaves_good_code_alone(text: str) -> None:
    assert compared_names(Source("report/words.py", text)) == []


def test_every_exception_is_needed() -> None:
    used = {
        (source.path, word)
        for source in package()
        for node in source.nodes
        for operand in _operands(node)
        for word in _words(operand) & NAMES
        if source.unit != "privacy"
    }
    assert used == set(ANOTHER_MEANING)
