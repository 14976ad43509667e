"""Habits that a reader can rely on in every file of the package; each gate is shown to be able to fail."""

import ast
import re
from collections.abc import Callable
from pathlib import PurePosixPath

import pytest

from tests.architecture.source import Source, lines, package

MOST_LINES = 400  # one file
MOST_METHOD_LINES = 150  # code of one method, without docstrings, comments and blank lines
VAGUE = {"utils", "util", "common", "core", "helpers", "misc"}
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b|NotImplementedError")

# torch functions that draw from the global generator (or seed it).
TORCH_DRAWS = re.compile(
    r"torch[.](random[.]|cuda[.])?"
    r"(manual_seed|seed|set_rng_state|(rand|randn|randint)(_like)?|randperm|normal|bernoulli|multinomial|poisson)"
)
NUMPY_TYPES = {"numpy.random", "numpy.random.Generator"}  # naming the type is fine, making one is not


def loads_code(source: Source) -> list[str]:
    """torch.load and allow_pickle run what the file says."""
    complaints = [source.at(n.lineno, "torch.load unpickles") for name, n in source.uses if name == "torch.load"]
    for node in source.nodes:
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle" and ast.unparse(node.value) != "False":
            complaints.append(source.at(node.lineno, "allow_pickle unpickles"))
    return complaints


def prints(source: Source) -> list[str]:
    """Only the command line prints."""
    if source.unit == "cli":
        return []
    return [
        source.at(node.lineno, "print outside cli")
        for node in source.nodes
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]


def vague_name(source: Source) -> list[str]:
    """A name like utils says nothing about what is inside."""
    parts = {part.removesuffix(".py") for part in PurePosixPath(source.path).parts}
    return [source.at(1, f"{name!r} says nothing: name it for what it does") for name in parts & VAGUE]


def too_long(source: Source) -> list[str]:
    """Files fit in a head; methods fit on two screens."""
    complaints = []
    if (length := len(source.text.splitlines())) >= MOST_LINES:
        complaints.append(source.at(length, f"{length} lines; a file has fewer than {MOST_LINES}"))
    name = PurePosixPath(source.path)
    is_method = name.parent.name == "methods" and name.stem != "base" and not name.stem.startswith("_")
    if is_method and (code := source.code_lines) > MOST_METHOD_LINES:
        complaints.append(source.at(1, f"{code} lines of code; a method has at most {MOST_METHOD_LINES}"))
    return complaints


def unfinished(source: Source) -> list[str]:
    """What is in the package works; what does not exist yet has no place-holder."""
    numbered = enumerate(source.text.splitlines(), start=1)
    return [source.at(number, f"unfinished: {line.strip()}") for number, line in numbered if UNFINISHED.search(line)]


def global_randomness(source: Source) -> list[str]:
    """Random numbers come from the named streams of randomness.py and from nowhere else; tests draw their examples."""
    at_home = source.path == "randomness.py" or source.unit == "testing"
    made = {id(node.func) for node in source.nodes if isinstance(node, ast.Call)}
    complaints = []
    for found in source.imports:
        if found.target.split(".")[0] == "random":
            complaints.append(source.at(found.line, "the random module has one generator for everybody"))
    for name, node in source.uses:
        draws_numpy = name.startswith("numpy.random.") and (name not in NUMPY_TYPES or id(node) in made)
        draws = draws_numpy or TORCH_DRAWS.fullmatch(name)
        if name == "numpy.random.seed" or (draws and not at_home):
            complaints.append(source.at(node.lineno, f"{name} bypasses the named streams"))
    return complaints


Gate = Callable[[Source], list[str]]

# Every gate with files it must refuse: (path, text).
BAD: dict[Gate, list[tuple[str, str]]] = {
    loads_code: [
        ("store.py", "import torch\ntorch.load('x')"),
        ("store.py", "from torch import load\nload('x', weights_only=True)"),
        ("data/table.py", "import numpy as np\nnp.load('x', allow_pickle=True)"),
    ],
    prints: [("fit.py", "print('round 1')"), ("report/html.py", "def f():\n    print(1)")],
    vague_name: [("utils/text.py", ""), ("methods/common.py", ""), ("data/core/x.py", "")],
    too_long: [("fit.py", "x = 1\n" * MOST_LINES), ("methods/long.py", "x = 1\n" * (MOST_METHOD_LINES + 1))],
    unfinished: [("fit.py", "x = 1  # TODO"), ("fit.py", "raise NotImplementedError"), ("fit.py", '"""FIXME"""')],
    global_randomness: [
        ("fit.py", "import torch\ntorch.manual_seed(1)"),
        ("fit.py", "import torch as t\nt.randn(3)"),
        ("fit.py", "from torch import randperm\nrandperm(3)"),
        ("fit.py", "import numpy as np\nnp.random.seed(1)"),
        ("fit.py", "import numpy as np\nrng = np.random.default_rng(1)"),
        ("fit.py", "import numpy as np\nrng = np.random.Generator(bits)"),
        ("fit.py", "from numpy.random import default_rng\ndefault_rng(1)"),
        ("fit.py", "import random\nrandom.random()"),
        ("randomness.py", "import numpy as np\nnp.random.seed(1)"),
    ],
}

# And files it must leave alone.
GOOD: dict[Gate, list[tuple[str, str]]] = {
    loads_code: [("store.py", "import numpy as np\nnp.load('x', allow_pickle=False)\njson.load(x)")],
    prints: [("cli/train.py", "print('done')"), ("fit.py", "self.print()")],
    vague_name: [("methods/vimadmm.py", "")],
    too_long: [
        ("fit.py", "x = 1\n" * (MOST_LINES - 1)),
        ("methods/vimadmm.py", '"""Many\nlines\n"""\n# why\n\n' * 30 + "x = 1\n" * MOST_METHOD_LINES),
        ("methods/base.py", "x = 1\n" * (MOST_METHOD_LINES + 1)),
    ],
    unfinished: [("fit.py", "todo = []\nreturn NotImplemented")],
    global_randomness: [
        ("randomness.py", "import torch\ntorch.manual_seed(1)"),
        ("fit.py", "import numpy as np\ndef f(rng: np.random.Generator): return rng.normal()"),
        ("fit.py", "import torch\nwith torch.random.fork_rng(): pass"),
    ],
}


def name_of(gate: Gate) -> str:
    return gate.__name__


def cases(table: dict[Gate, list[tuple[str, str]]]) -> list[object]:
    pairs = [(gate, file) for gate, files in table.items() for file in files]
    return [pytest.param(gate, *file, id=f"{name_of(gate)}-{number}") for number, (gate, file) in enumerate(pairs)]


@pytest.mark.parametrize("gate", BAD, ids=name_of)
def test_the_package_keeps_the_habit(gate: Gate) -> None:
    found = [complaint for source in package() for complaint in gate(source)]
    assert not found, lines(found)


@pytest.mark.parametrize(("gate", "path", "text"), cases(BAD))
def test_the_gate_can_fail(gate: Gate, path: str, text: str) -> None:
    assert gate(Source(path, text))


@pytest.mark.parametrize(("gate", "path", "text"), cases(GOOD))
def test_the_gate_leaves_good_code_alone(gate: Gate, path: str, text: str) -> None:
    assert gate(Source(path, text)) == []


def test_code_lines_count_code_only() -> None:
    head = '"""Doc.\n\nMore.\n"""\n\nimport math  # counts\n\n\n# does not\n'
    body = 'def f(\n    x,\n):\n    """Doc."""\n    # does not\n    return (\n        x\n    )\n'
    assert Source("methods/x.py", head + body).code_lines == 7


def test_dictionaries_of_anything_are_few() -> None:
    """A record has names and types (`record.py`); `dict[str, Any]` is for what really may be anything."""
    where = [source.path for source in package() for _ in range(source.text.count("dict[str, Any]"))]
    assert len(where) < 40, where
