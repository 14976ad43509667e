"""Kinds of local models that an estimator chooses between on validation rows, and the training that suits each.

A new kind is a line in KINDS: which methods can train it, and how it is tried.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import Any

from colonnade.config import Settings
from colonnade.errors import EstimatorInput
from colonnade.methods import LinearADMM, find_kind
from colonnade.models.encoders import ModelSettings

AUTO = "auto"
GIVEN = "given"  # the name of a local model that was said by its settings
INSIDE = {
    "lr": "optimiser",
    "weight_decay": "optimiser",
    "batch": "schedule",
}  # settings that stand inside another, which may be said as a whole
SOLVES = 30  # rounds of all rows after which a linear model no longer changes what it ranks
GROWS = 30  # rounds of all rows after which more trees only cost time
LARGE = 65536  # rows a round that a solve takes at most
PIECES, MOST_CELLS = 8, 1 << 28  # pieces of a number; cells, of 4 bytes, of a table that is still cut
MANY = 5_000  # training rows from which on larger batches still make many rounds, and columns may be cut into pieces


# Of networks. Chosen on training rows of public tables: without so much weight decay, networks overfit within a few
# passes over some hundred rows.
STEPS = {"local_steps": 10, "lr": 3e-3, "weight_decay": 0.5}


@dataclass(frozen=True)
class Circumstances:
    """What a training has to suit."""

    method: Any  # a name, a class, or an object whose settings stand
    rows: int  # that train
    parties: int
    classes: bool  # the labels are
    cells: int | None = None  # of data frames: rows that train times columns; None: arrays, whose columns stay

    @property
    def kind(self) -> type[Settings]:
        """The class of the method."""
        return find_kind(self.method)

    def of_method(self, **settings: Any) -> dict[str, Any]:
        """Those that the method has, once; none where it was given with its settings."""
        if not isinstance(self.method, (str, type)):
            return {}
        return {name: value for name, value in settings.items() if self._fields(INSIDE.get(name, name)) == 1}

    def _fields(self, name: str) -> int:
        """How many settings of the method this may mean: `lr` may be that of optimiser and of server_optimiser."""
        return sum(field == name or field.endswith(f"_{name}") for field in self.kind.model_fields)


@dataclass(frozen=True)
class Try:
    """A local model, and how it is trained unless somebody says otherwise."""

    kind: str
    model: ModelSettings | Mapping[str, Any]
    batch: int
    settings: Mapping[str, Any] = field(default_factory=dict)  # of the method
    columns: Mapping[str, Any] = field(default_factory=dict)  # how columns become numbers
    epochs: int | None = None  # at most; None: as many as are asked for


@dataclass(frozen=True)
class Kind:
    """A kind of local model: in words, with which methods it goes, and how it is tried; the first one is the usual."""

    words: str
    goes_with: Callable[[type[Settings]], bool]
    tries: Callable[[Circumstances], Sequence[Try]]
    bends: int  # how much it can: of kinds that are about as good, the one that bends least is kept
    suits: Callable[[Circumstances], bool] = lambda now: True  # else it is tried only where it is named


def _small_batch(rows: int) -> int:
    """Many rounds for few rows: they overfit within a few rounds of all rows, before anybody has evaluated them."""
    return 128 if rows < MANY else 2048


def _stepped(kind: str, model: ModelSettings | Mapping[str, Any], now: Circumstances, **more: Any) -> Try:
    """Many rounds of few steps; the method's own steps, in a single pass, where that is a whole training."""
    if _learns_once(now.kind):
        return Try(kind, model, min(now.rows, LARGE), epochs=1, **more)
    steps = {} if kind == GIVEN else now.of_method(**STEPS)
    return Try(kind, model, _small_batch(now.rows), steps, **more)


def _network(now: Circumstances) -> Sequence[Try]:
    columns = {"pieces": PIECES} if _can_cut(now) else {}
    return (_stepped("network", {"encoder": "mlp"}, now, columns=columns),)


def _linear(now: Circumstances) -> Sequence[Try]:
    return (_stepped("linear", {"encoder": "linear"}, now),)


def _ridge(now: Circumstances) -> Sequence[Try]:
    return (_solved("ridge", 1e-3, now),)


def _shrunk(now: Circumstances) -> Sequence[Try]:
    """For few rows: many columns fit them by chance."""
    return (_solved("shrunk", 0.3, now),)


def _pieces(now: Circumstances) -> Sequence[Try]:
    """A linear model of pieces bends: much of what a network finds in single columns, in a fraction of the time."""
    if now.cells is None:
        raise EstimatorInput("model = 'pieces' cuts columns of data frames; X is an array; give a data frame")
    return (replace(_solved("pieces", 1e-3, now), columns={"pieces": PIECES}),)


def _can_cut(now: Circumstances) -> bool:
    return now.cells is not None and now.rows >= MANY and now.cells * PIECES <= MOST_CELLS


def _solved(kind: str, penalty: float, now: Circumstances) -> Try:
    """All rows a round and damping 1/M: then rounds lead to the optimum of the central problem.

    They do so fastest where rho is about the curvature of the loss: a tenth for classes, one for numbers and counts.
    """
    batch = min(now.rows, LARGE)
    calm = 0.0 if batch == now.rows else 0.1
    settings = now.of_method(damping=1 / now.parties, rho=0.1 if now.classes else 1.0)
    ridge = {"encoder": "ridge", "ridge": {"beta": penalty, "kappa": calm}}
    return Try(kind, ridge, batch, settings, epochs=SOLVES)


def _trees(now: Circumstances) -> Sequence[Try]:
    """All rows a round, ten trees of every party: 10 to 30 rounds were best on validation rows of public tables."""
    if _learns_once(now.kind):
        return (_stepped("trees", {"encoder": "trees"}, now),)
    settings = now.of_method(damping=1 / now.parties, rho=0.25 if now.classes else 1.0, local_steps=10)
    return (Try("trees", {"encoder": "trees"}, min(now.rows, LARGE), settings, epochs=GROWS),)


def _has_lightgbm() -> bool:
    return find_spec("lightgbm") is not None


def _own(now: Circumstances) -> Sequence[Try]:
    return (Try("own", {}, min(now.rows, LARGE)),)


def _has_own(method: type[Settings]) -> bool:
    """Whether the local models are the method's own, so that there is nothing to choose."""
    return issubclass(method, LinearADMM)


def _learns_once(method: type[Settings]) -> bool:
    """Whether one pass over the training rows is a whole training."""
    return bool(getattr(method, "once", False))


def _grows(method: type[Settings]) -> bool:
    """Whether boosted trees are among its kinds."""
    return _solves(method) or (_learns_once(method) and not getattr(method, "needs_gradients", True))


def _solves(method: type[Settings]) -> bool:
    """Whether solves at the parties lead to the optimum: VIMADMM-J's do, heads at the coordinator stand in the way."""
    exact = not getattr(method, "needs_gradients", True) and getattr(method, "needs_uploads", "") == "total"
    return exact and not _has_own(method)


def _steps(method: type[Settings]) -> bool:
    """Whether linear models are trained by gradient steps."""
    return not _has_own(method) and not _solves(method)


KINDS: dict[str, Kind] = {
    "network": Kind("networks", lambda method: not _has_own(method), _network, 3),
    "ridge": Kind("ridge regressions", _solves, _ridge, 1, lambda now: not _can_cut(now)),
    "shrunk": Kind("ridge regressions with a larger penalty", _solves, _shrunk, 0, lambda now: now.rows < MANY),
    "pieces": Kind("ridge regressions of numbers in pieces", _solves, _pieces, 2, _can_cut),
    "trees": Kind("boosted trees", _grows, _trees, 4, lambda now: now.rows >= MANY and _has_lightgbm()),
    "linear": Kind("linear networks", _steps, _linear, 1),
    "own": Kind("the method's own local models", _has_own, _own, 0),
}


def tries_of(model: Any, now: Circumstances) -> list[Try]:
    """What is to be tried.

    Args:
        model: "auto": all kinds that the method can train and that suit the table; the name of a kind, or
            several; or settings of a local model (`ModelSettings`, or a dict of them).
        now: what the training has to suit.

    Raises:
        EstimatorInput: there is no such kind, or the method cannot train it.
    """
    if isinstance(model, (Mapping, ModelSettings)):
        return [_stepped(GIVEN, model, now)]
    if isinstance(model, str) and model == AUTO:
        kinds = [kind for kind in KINDS.values() if kind.goes_with(now.kind) and kind.suits(now)]
        return [one for kind in kinds for one in kind.tries(now)]
    names = [model] if isinstance(model, str) else list(model) if isinstance(model, Sequence) else []
    if not names:
        raise EstimatorInput(
            f"model = {model!r}: needed 'auto', {', '.join(map(repr, KINDS))}, a list of these, or settings of a local "
            "model such as {'hidden': 64}"
        )
    return [one for name in names for one in _named(name, now).tries(now)]


def _named(name: Any, now: Circumstances) -> Kind:
    if name not in KINDS:
        close = difflib.get_close_matches(str(name), KINDS, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(KINDS)}"
        raise EstimatorInput(f"model: there is no kind {name!r}; {hint}")
    kind = KINDS[name]
    if not kind.goes_with(now.kind):
        having = [other for other, one in KINDS.items() if one.goes_with(now.kind)]
        raise EstimatorInput(
            f"model: method {now.kind.__name__} is not used with kind {name!r} here; choose from {', '.join(having)}"
        )
    return kind
