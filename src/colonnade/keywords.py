"""Which setting a keyword of `fit` means: one of the training, one of the method, or one inside either of them.

`fit(federation, "vimadmm", rounds=50, rho=2.0, lr=0.01)` says `training.rounds`, `method.rho` and
`method.optimiser.lr`. A name with two meanings is refused with the ways to say it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from colonnade.config import Settings, build, inner_models
from colonnade.errors import ConfigError
from colonnade.methods import as_method, find_kind
from colonnade.methods.base import Method
from colonnade.models.encoders import ModelSettings
from colonnade.privacy.settings import PrivacySettings
from colonnade.run import Training

Values = dict[str, Any]
ENCODERS = ("local", "locals", "local_model", "local_models", "models")  # what `encoders` may be called by others


@dataclass(frozen=True)
class DeclaredIn:
    """Where a setting is declared: in `owner`, or further in, in its field `outer`."""

    owner: str
    outer: str = ""


@dataclass(frozen=True)
class Owner:
    """Settings that keywords may be of."""

    title: str  # for people: "the training", "vimadmm"
    kind: type[BaseModel]
    example: str  # of how else to say a setting: "training=Training({}=...)"

    def places(self, key: str) -> list[DeclaredIn]:
        """Where it declares a setting of that name; an own field hides those further in."""
        if key in self.kind.model_fields:
            return [DeclaredIn(self.title)]
        return [DeclaredIn(self.title, name) for name, inside in self.inside() if key in inside]

    def inside(self) -> list[tuple[str, set[str]]]:
        """The names that are declared one level further in, by field."""
        fields = self.kind.model_fields.items()
        found = [(name, inner_models(field.annotation)) for name, field in fields]
        return [(name, {key for model in models for key in model.model_fields}) for name, models in found if models]

    def names(self) -> set[str]:
        """Everything a keyword could mean here."""
        return set(self.kind.model_fields).union(*(names for _, names in self.inside()))


def sorted_out(
    keywords: Mapping[str, Any], owners: Iterable[Owner], elsewhere: Mapping[str, type[BaseModel]]
) -> dict[str, Values]:
    """The keywords as settings of each owner, by its title.

    Args:
        keywords: as they were given.
        owners: whose settings they may be.
        elsewhere: other arguments that take settings by name, which an unknown keyword may have been meant for.

    Raises:
        ConfigError: a keyword is unknown, or could mean two things.
    """
    everyone = list(owners)
    found: dict[str, Values] = {owner.title: {} for owner in everyone}
    for key, value in keywords.items():
        having = [(owner, place) for owner in everyone for place in owner.places(key)]
        if not having:
            raise ConfigError(_unknown(key, everyone, elsewhere))
        if len(having) > 1:
            raise ConfigError(_two_meanings(key, having))
        ((owner, place),) = having
        if not place.outer:
            found[owner.title][key] = value
            continue
        if place.outer in keywords:
            raise ConfigError(f"{key} is said twice, by itself and in {place.outer}; say it in {place.outer} only")
        outer = found[owner.title].setdefault(place.outer, _default(owner.kind, place.outer))
        outer[key] = value
    return found


def _default(kind: type[BaseModel], field: str) -> Values:
    """The inner settings that apply if nobody says otherwise, to change some of them."""
    usual = kind.model_fields[field].get_default(call_default_factory=True)
    return dict(usual.model_dump()) if isinstance(usual, BaseModel) else {}


def _two_meanings(key: str, having: list[tuple[Owner, DeclaredIn]]) -> str:
    told = " or ".join(f"{place.outer}.{key} of {place.owner}" if place.outer else place.owner for _, place in having)
    ways = [_inner(owner, place, key) if place.outer else owner.example.format(key) for owner, place in having]
    return f"{key!r} may mean a setting of {told}; say which: {' or '.join(dict.fromkeys(ways))}"


def _inner(owner: Owner, place: DeclaredIn, key: str) -> str:
    kind = _default(owner.kind, place.outer).get("kind")  # where there is a choice of kinds, it must be said
    settings = {**({"kind": kind} if kind else {}), key: ...}
    return f"{place.outer}={settings!r}".replace("Ellipsis", "...")


def _unknown(key: str, owners: list[Owner], elsewhere: Mapping[str, type[BaseModel]]) -> str:
    for argument, kind in elsewhere.items():
        if key in kind.model_fields:
            return f"{key!r} is a setting of {argument}: say {argument}={{'{key}': ...}}"
    if key in ENCODERS:
        return f"{key!r} is no setting: say encoders={{'PARTY': ...}} for local models of your own"
    known = {name for owner in owners for name in owner.names()}
    close = difflib.get_close_matches(key, sorted(known), n=1, cutoff=0.7)
    titles = " nor of ".join(owner.title for owner in owners)
    own = sorted({name for owner in owners for name in owner.kind.model_fields})
    hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(own)}"
    return f"{key!r} is no setting of {titles}; {hint}"


def settings_of(
    method: Method | type[Settings] | str, training: Training | None, keywords: Mapping[str, Any]
) -> tuple[Method, Training]:
    """The method and the training that `fit` was asked for.

    Args:
        method: an object, a class or a name; the latter two take settings by keyword.
        training: as an object; None: by keyword.
        keywords: settings of either.

    Raises:
        ConfigError: there is no such method or setting, one is out of range, or has two meanings.
    """
    if not keywords:
        return as_method(method), training if training is not None else Training()
    kind = find_kind(method)
    mine, theirs = "the training", kind.__name__
    owners = [
        Owner(mine, Training, "training=Training({}=...)"),
        Owner(theirs, kind, f"{kind.__name__}({{}}=...)"),
    ]
    found = sorted_out(keywords, owners, {"model": ModelSettings, "privacy": PrivacySettings})
    if found[theirs] and not isinstance(method, (str, type)):
        key = next(key for key in keywords if owners[1].places(key))
        raise ConfigError(
            f"{key!r} is a setting of the method, which was given as an object; say it there, "
            f"{kind.__name__}({key}=...), or give the method's name"
        )
    if found[mine] and training is not None:
        raise ConfigError("give either training=Training(...) or its settings as keywords, not both")
    made: Any = build(kind, found[theirs], f"method {kind.__name__}") if found[theirs] else as_method(method)
    return made, training if training is not None else build(Training, found[mine], "training")
