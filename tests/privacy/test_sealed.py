"""No way out of an Upload, no way to forge a Release, and nobody but the gate touches the seal."""

from __future__ import annotations

import ast
import copy
import json
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from colonnade.errors import GateError
from colonnade.privacy.gate import Gate
from colonnade.privacy.ledger import Ledger
from colonnade.privacy.sealed import Array, Release, Upload
from colonnade.wire.messages import Purpose
from tests.architecture.source import Source, lines, package

SECRET = 1234.5678


def upload() -> Upload:
    return Upload({"h": torch.full((1, 2, 3), SECRET)})


def released() -> Release:
    return Gate("run", Ledger(), {"h": Array(3)}).release(upload(), ["bank"], 1, Purpose.TRAIN, 2).releases[0]


WAYS_OUT: dict[str, Callable[[Any], Any]] = {
    "bytes": bytes,
    "iteration": iter,
    "list": list,
    "dict": dict,
    "tuple": lambda u: (*u,),
    "index": lambda u: u["h"],
    "slice": lambda u: u[:1],
    "numpy.array": np.array,
    "numpy.asarray": np.asarray,
    "numpy.save": lambda u: np.asanyarray(u, dtype=float),
    "torch.tensor": torch.tensor,
    "torch.as_tensor": torch.as_tensor,
    "memoryview": memoryview,
    "bytearray": bytearray,
    "pickle": pickle.dumps,
    "old pickle": lambda u: pickle.dumps(u, protocol=0),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "vars": vars,
    "json": json.dumps,
    "float": float,
    "len": len,
    "sum": sum,
    "getstate": lambda u: u.__getstate__(),
    "reduce": lambda u: u.__reduce__(),
    "attribute": lambda u: u.values,
    "contains": lambda u: SECRET in u,
}


@pytest.mark.parametrize("way", WAYS_OUT)
def test_there_is_no_way_out_of_an_upload(way: str) -> None:
    with pytest.raises((GateError, TypeError, AttributeError, RuntimeError)) as refusal:
        WAYS_OUT[way](upload())
    assert str(SECRET) not in str(refusal.value)


@pytest.mark.parametrize("shown", [repr, str, "{}".format, "{!r}".format])
def test_what_is_shown_of_an_upload_are_shapes(shown: Callable[[Any], str]) -> None:
    assert shown(upload()) == "Upload(h: (1, 2, 3))"


def test_an_upload_holds_no_gradient() -> None:
    w = torch.ones(1, 2, 3, requires_grad=True)
    gate = Gate("run", Ledger(), {"h": Array(3)})
    assert not gate.release(Upload({"h": w * 2}), ["bank"], 1, Purpose.TRAIN, 2).values["h"].requires_grad


class TestReleased:
    def test_only_the_gate_makes_one(self) -> None:
        for seal in (None, object(), "seal", True):
            with pytest.raises(GateError, match="only the gate"):
                Release(seal, "bank", "TRAIN", 1, b"x")

    def test_it_has_no_children(self) -> None:
        with pytest.raises(GateError, match="final"):
            type("Forged", (Release,), {})

    @pytest.mark.parametrize("name", ["payload", "digest", "sender", "kind", "number", "anything"])
    def test_it_is_frozen(self, name: str) -> None:
        message = released()
        with pytest.raises(GateError, match="frozen"):
            setattr(message, name, b"y")
        with pytest.raises(GateError, match="frozen"):
            delattr(message, name)

    @pytest.mark.parametrize("copier", [copy.copy, copy.deepcopy, lambda r: pickle.loads(pickle.dumps(r))])  # noqa: S301 - our own
    def test_it_is_not_copied_into_another(self, copier: Callable[[Any], Any]) -> None:
        with pytest.raises(GateError):
            copier(released())

    def test_an_empty_shell_cannot_be_filled(self) -> None:
        shell = Release.__new__(Release)
        with pytest.raises(GateError):
            shell.payload = b"x"  # type: ignore[misc]
        with pytest.raises(AttributeError):
            _ = shell.payload

    def test_what_is_shown_are_no_values(self) -> None:
        message = released()
        assert repr(message) == f"Release(bank, TRAIN, 1, {len(message.payload)} bytes)"


SEAL = {"seal", "unwrap", "_SEAL"}
HOMES = {"privacy/gate.py", "privacy/sealed.py"}


def breaches(source: Source) -> list[str]:
    """Uses of the seal outside the gate, by import, by module attribute or by the mangled name."""
    if source.path in HOMES:
        return []
    found = []
    for imported in source.imports:
        *home, name = imported.target.split(".")
        if home[:2] == ["colonnade", "privacy"] and (name in SEAL or name == "sealed"):
            found.append(source.at(imported.line, f"imports {imported.target}"))
    for node in ast.walk(source.tree):
        text = getattr(node, "attr", None) or (node.value if isinstance(node, ast.Constant) else None)
        if isinstance(text, str) and "_Upload__" in text:
            found.append(source.at(node.lineno, "reaches into an Upload"))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Release":
            found.append(source.at(node.lineno, "makes a Release"))
    return found


# Notices travel without passing the gate, and `repeat` seals stored bytes: who may make them is part of the promise.
MAKERS = {"colonnade.wire.notice.Notice": ("align/", "deploy/"), "colonnade.privacy.gate.repeat": ("deploy/party.py",)}
KNOWERS = (
    "wire/notice.py",
    "privacy/gate.py",
    "engines/message.py",
    "engines/nats.py",
)  # where they are defined, or sent


def makers(source: Source) -> list[str]:
    """Files that could make a notice or repeat stored bytes, and should not."""
    return [
        source.at(found.line, f"{found.target} is for {' and '.join(MAKERS[found.target])} only")
        for found in source.imports
        if found.target in MAKERS and not source.path.startswith(MAKERS[found.target]) and source.path not in KNOWERS
    ]


def test_notices_are_no_way_around_the_gate() -> None:
    assert [complaint for source in package() for complaint in makers(source)] == []
    assert makers(Source("methods/x.py", "from colonnade.wire.notice import Notice"))
    assert makers(Source("engines/remote.py", "from colonnade.privacy.gate import repeat"))


def test_only_the_gate_touches_the_seal() -> None:
    found = [breach for source in package() for breach in breaches(source)]
    assert not found, lines(found)


def test_the_gate_does() -> None:
    gate = next(s for s in package() if s.path == "privacy/gate.py")
    assert {i.target.split(".")[-1] for i in gate.imports} >= {"seal", "unwrap"}


@pytest.mark.parametrize(
    "text",
    [
        "from colonnade.privacy.sealed import unwrap",
        "from colonnade.privacy.sealed import Release, seal as s",
        "from ..privacy.sealed import _SEAL",
        "from colonnade.privacy import sealed\nsealed.unwrap(u)",
        "import colonnade.privacy.sealed as s",
        "from colonnade.privacy.gate import unwrap",
        "def f():\n    from colonnade.privacy.sealed import seal",
        "u._Upload__values",
        "getattr(u, '_Upload__values')",
        "Release(x, 'bank', 'TRAIN', 1, b'')",
    ],
)
def test_a_breach_is_seen(text: str) -> None:
    assert breaches(Source("engines/loop.py", text))


def test_types_may_be_named() -> None:
    assert breaches(Source("engines/loop.py", "from colonnade.privacy.sealed import Release, Upload")) == []
