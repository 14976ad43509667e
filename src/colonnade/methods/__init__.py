"""Training methods, one readable file each. A method's name everywhere is its file name."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, cast

from colonnade.config import Settings, build
from colonnade.errors import ConfigError
from colonnade.methods.adavfl import AdaVFL
from colonnade.methods.assisted_boosting import AssistedBoosting
from colonnade.methods.base import FACTS, FUNCTIONS, Method
from colonnade.methods.c_vfl import CVFL
from colonnade.methods.cafe import CAFE
from colonnade.methods.celu_vfl import CELUVFL
from colonnade.methods.centralized import Centralized
from colonnade.methods.fdml import FDML
from colonnade.methods.fedbcd import FedBCD
from colonnade.methods.fedmvt import FedMVT
from colonnade.methods.flex_vfl import FlexVFL
from colonnade.methods.fu import Fu
from colonnade.methods.linear_admm import LinearADMM
from colonnade.methods.local_only import LocalOnly
from colonnade.methods.one_message import OneMessage
from colonnade.methods.scorecard import ScorecardADMM
from colonnade.methods.split_learning import SplitLearning
from colonnade.methods.vafl import VAFL
from colonnade.methods.vfl_pbm import VFLPBM
from colonnade.methods.vimadmm import VIMADMM
from colonnade.methods.vimadmm_j import VIMADMMJ
from colonnade.plugins import Table

BUILT_IN: dict[str, type[Settings]] = {
    VIMADMM.name: VIMADMM,
    VIMADMMJ.name: VIMADMMJ,
    SplitLearning.name: SplitLearning,
    VAFL.name: VAFL,
    FedBCD.name: FedBCD,
    CELUVFL.name: CELUVFL,
    FlexVFL.name: FlexVFL,
    CVFL.name: CVFL,
    VFLPBM.name: VFLPBM,
    FDML.name: FDML,
    Fu.name: Fu,
    AdaVFL.name: AdaVFL,
    LinearADMM.name: LinearADMM,
    ScorecardADMM.name: ScorecardADMM,
    CAFE.name: CAFE,
    FedMVT.name: FedMVT,
    OneMessage.name: OneMessage,
    AssistedBoosting.name: AssistedBoosting,
    LocalOnly.name: LocalOnly,
    Centralized.name: Centralized,
}


def _wrong(name: str, kind: Any) -> str:
    """What is wrong with a method of another package; empty: nothing."""
    if not isinstance(kind, type) or not issubclass(kind, Settings):
        return f"needs to be a class of settings (colonnade.config.Settings); it is {kind!r}"
    lacking = [part for part in (*FACTS, *FUNCTIONS) if not hasattr(kind, part)]
    if lacking:
        return f"lacks {', '.join(lacking)}, which every method has"
    called = getattr(kind, "name", None)
    return "" if called == name else f"calls itself {called!r}; the name of its entry point must be the same"


METHODS: Table[type[Settings]] = Table("colonnade.methods", BUILT_IN, _wrong)

__all__ = [
    "CAFE",
    "CELUVFL",
    "CVFL",
    "FDML",
    "METHODS",
    "VAFL",
    "VFLPBM",
    "VIMADMM",
    "VIMADMMJ",
    "AdaVFL",
    "AssistedBoosting",
    "Centralized",
    "FedBCD",
    "FedMVT",
    "FlexVFL",
    "Fu",
    "LinearADMM",
    "LocalOnly",
    "Method",
    "OneMessage",
    "ScorecardADMM",
    "SplitLearning",
    "as_method",
    "find_kind",
    "find_method",
    "make_method",
]


def make_method(name: str, settings: Mapping[str, Any] | None = None, preset: str | None = None) -> Any:
    """A method by name; `preset` = "paper" or "paper:cifar10" starts from the published settings."""
    cls = find_method(name)
    values: Any = settings or {}
    if preset:
        values = {**_preset(cls, name, preset), **values}
    return build(cls, values, f"method {name}")


def find_method(name: str) -> type[Settings]:
    """The class of that name, built in or of another installed package.

    Raises:
        ConfigError: there is none, or it cannot be loaded.
    """
    if not isinstance(name, str):
        raise ConfigError(f"a method is named by a text, e.g. 'vimadmm'; got {name!r}")
    if name not in METHODS:
        close = difflib.get_close_matches(name, METHODS, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(METHODS)}"
        raise ConfigError(f"unknown method {name!r}; {hint}")
    return METHODS[name]


def find_kind(method: Method | type[Settings] | str) -> type[Settings]:
    """The class of a method that was given as a name, a class or an object."""
    if isinstance(method, str):
        return find_method(method)
    made = as_method(method)
    return cast(type[Settings], type(made))


def as_method(method: Method | type[Settings] | str) -> Method:
    """A method as it is, by its name, or by its class: the latter two with their default settings.

    Raises:
        ConfigError: there is no such method.
    """
    if isinstance(method, str):
        return cast(Method, make_method(method))
    made = method() if isinstance(method, type) and issubclass(method, Settings) else method
    if isinstance(made, type) or not isinstance(made, Method):
        raise ConfigError(
            f"a method is needed, e.g. 'vimadmm' or VIMADMM(rho=1.0); got {made!r}; there are {', '.join(METHODS)}"
        )
    return made


def _preset(cls: type[Settings], name: str, preset: str) -> dict[str, object]:
    kind, _, dataset = preset.partition(":")
    if kind != "paper":
        raise ConfigError(f"unknown preset {preset!r}; known: 'paper', 'paper:cifar10', ...")
    published = getattr(cls, "paper", None)
    if published is None:
        raise ConfigError(f"method {name!r} has no published settings; leave preset out")
    chosen = published(dataset) if dataset else published()
    return {field: getattr(chosen, field) for field in type(chosen).model_fields}
