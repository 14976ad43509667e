"""By which code a run was made, where it is not ours: its method and its local models, as digests beside the settings.

Settings are stored with a run, code is not. Another network of equal shapes, or a method that was edited since, would
be taken for that of the run: a comparison would show an old score for new code. What a digest covers:

method        the source of its module, or of its class where that is in the script or notebook itself
local model   the source of the classes of its layers, their choices, and the shapes of their tensors; apart from that
              the numbers it begins with, where the user gives an object and not a function that makes one

Comments, docstrings and layout are left out, and so is what torch, NumPy, SciPy, scikit-learn and Python bring. Code
that cannot be read (typed at a prompt) counts as unchanged.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import sys
import textwrap
import types
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

import numpy as np
from torch import Tensor, nn

from colonnade.engines.base import Encoders
from colonnade.federation import Federation
from colonnade.methods.base import Method
from colonnade.models.stagewise import as_local
from colonnade.randomness import seeded

OTHERS = {"colonnade", "torch", "numpy", "scipy", "sklearn", "builtins", "typing", "abc", *sys.stdlib_module_names}
DEEPEST = 8  # objects inside objects: a choice that stands deeper is none


Shapes = Mapping[str, Sequence[int]]


class OwnCode(TypedDict, total=False):
    """Digests of what is not ours."""

    method: str
    local_models: dict[str, list[str]]  # by party: code, and the first numbers where there are some


def own_code(method: Method, shapes: Shapes, encoders: Encoders, seed: int) -> OwnCode:
    """The digests of all that is not ours; `shapes` of a row of columns, by party whose local model is here."""
    found: OwnCode = {}
    if _foreign(type(method)):
        found["method"] = _digest(_module_source(type(method)))
    models = {name: _local(encoders, name, tuple(shape), seed) for name, shape in shapes.items()}
    if known := {name: digests for name, digests in models.items() if digests}:
        found["local_models"] = known
    return found


def shapes_of(federation: Federation, pooled: bool = False) -> dict[str, tuple[int, ...]]:
    """Of a row of columns, by party."""
    held = federation.pooled() if pooled else federation
    return {party.name: tuple(party.columns.shape[1:]) for party in held.parties}


def changed(stored: Mapping[str, Any], now: OwnCode, numbers: bool = True) -> str:
    """What is not as a stored run has it, in words; empty: nothing, as far as the run says it.

    `numbers`: also those that a local model starts with.
    """
    then: OwnCode = stored["about"].get("own_code", {})
    if "method" in then and then["method"] != now.get("method"):
        return "the code of its method has changed"
    if "local_models" not in then and stored["own_encoders"]:
        return ""  # of an earlier version, which did not say it
    old, new = then.get("local_models", {}), now.get("local_models", {})
    for name in sorted(old.keys() | new.keys()):
        before, after = old.get(name, [""]), new.get(name, [""])
        if before[0] != after[0]:
            return f"the local model of party {name!r} was another one, or its code has changed"
        if numbers and before != after:
            return (
                f"the local model of party {name!r} began with other numbers; a function encoders(party, shape) makes "
                "the same ones for every seed"
            )
    return ""


def warn_of_other_code(stored: Mapping[str, Any], method: Method, shapes: Shapes, encoders: Encoders) -> None:
    """Say that a run which is read may predict otherwise than it did."""
    now = own_code(method, shapes, encoders, stored["training"]["seed"])
    if told := changed(stored, now, numbers=False):
        warnings.warn(f"run {stored['id']} may predict otherwise than it did: {told}", stacklevel=4)


def _local(encoders: Encoders, party: str, shape: tuple[int, ...], seed: int) -> list[str]:
    """Digests of a user's local model: its code and choices, and its first numbers if it is an object; empty: none."""
    if isinstance(encoders, Mapping):
        given, own = True, encoders.get(party)
    else:
        make = encoders
        given, own = False, None if make is None else seeded(lambda: make(party, shape), seed, "encoder", party)
    if own is None:
        return []
    model = as_local(party, own)
    code = _digest(_said(model))
    if not given or not isinstance(model, nn.Module):
        return [code]
    return [code, _digest(_said({name: value.detach().cpu().numpy() for name, value in model.state_dict().items()}))]


def _said(value: Any, depth: int = 0) -> str:
    """A value in words that are the same in every process."""
    if depth > DEEPEST:
        return type(value).__qualname__
    if isinstance(value, Mapping):
        return f"{{{', '.join(sorted(f'{k!r}: {_said(v, depth + 1)}' for k, v in value.items()))}}}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_said(one, depth + 1) for one in value)}]"
    if isinstance(value, nn.Module):
        return _network(value, depth)
    return _alone(value) or f"{_class_source(type(value))}{_said(getattr(value, '__dict__', {}), depth + 1)}"


def _alone(value: Any) -> str:
    """Of a value that holds no other; empty: it may."""
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
        return repr(value)
    if isinstance(value, (Tensor, np.ndarray)):
        numbers = np.asarray(value.detach().cpu() if isinstance(value, Tensor) else value)
        return f"{numbers.dtype}{numbers.shape}{_digest(numbers.tobytes())}"
    if isinstance(value, type):
        return _class_source(value)
    return f"{value.__qualname__}: {_source(value)}" if isinstance(value, types.FunctionType) else ""


def _network(module: nn.Module, depth: int) -> str:
    """Its layers with their code and choices, and the shapes of its tensors; not their numbers, which are learned."""
    shapes = [
        f"{name}:{tuple(t.shape)}:{t.requires_grad}"
        for name, t in [*module.named_parameters(), *module.named_buffers()]
    ]
    layers = []
    for name, layer in module.named_modules():
        choices = {k: v for k, v in vars(layer).items() if k not in _OF_TORCH and not isinstance(v, nn.Module)}
        layers.append(f"{name}:{_class_source(type(layer))}{_said(choices, depth + 1)}")
    return "|".join([*shapes, *layers])


# What torch keeps in a layer: tensors and layers, which are looked at elsewhere, hooks, and whether it is training.
_OF_TORCH = {*vars(nn.Module()), "_flat_weights", "_flat_weight_refs"}


def _class_source(kind: type) -> str:
    """Its name, and the source of its class and of those it inherits from, but for what others bring."""
    mine = [one for one in kind.__mro__ if _foreign(one)]
    return f"{kind.__qualname__}({'; '.join(_source(one) for one in mine)})"


def _foreign(kind: type) -> bool:
    return kind.__module__.partition(".")[0] not in OTHERS


def _module_source(kind: type) -> str:
    """Of the module of a class, whose functions it may call; a script or a notebook has much besides."""
    module = sys.modules.get(kind.__module__)
    return _class_source(kind) if module is None or kind.__module__ == "__main__" else _source(module)


def _source(thing: Any) -> str:
    """Source without comments, docstrings and layout; empty where it cannot be read."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(thing)))
    except (OSError, TypeError, SyntaxError):  # a lambda is cut out of the middle of a line
        code = getattr(thing, "__code__", None)
        return "" if code is None else f"{code.co_names}{code.co_varnames}"
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and ast.get_docstring(
            node
        ):
            node.body = [*node.body[1:], ast.Pass()]
    return ast.unparse(tree)


def _digest(said: str | bytes) -> str:
    return hashlib.sha256(said if isinstance(said, bytes) else said.encode()).hexdigest()[:16]
