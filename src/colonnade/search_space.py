"""Which settings of a method are searched, and which values each may take."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from colonnade.config import unknown_key, with_overrides
from colonnade.errors import ConfigError
from colonnade.methods import make_method
from colonnade.methods.base import Method

STEP_SIZES = {"sgd": (1e-3, 1.0), "adamw": (1e-4, 1e-1)}  # by kind of optimiser, so that all methods get the same
DECAYS = (1e-6, 1e-1)  # where it is above, up to FACTOR times what it is
FACTOR = 10.0  # other settings are searched from a tenth to ten times what they are
STEPS_FACTOR = 4
SEARCHED = ("rho", "beta", "kappa", "local_steps")  # and all step sizes: what changes neither bytes nor promises


@dataclass(frozen=True)
class Dimension:
    """The values that one setting may take."""

    low: float = 0.0
    high: float = 0.0
    log: bool = False
    whole: bool = False
    choices: tuple[Any, ...] = ()

    def holds(self, value: Any) -> bool:
        """Whether a value is one of them."""
        if self.choices:
            return value in self.choices
        return isinstance(value, (int, float)) and self.low <= value <= self.high

    def draw(self, name: str, trial: Any) -> Any:
        """What Optuna proposes."""
        if self.choices:
            return trial.suggest_categorical(name, list(self.choices))
        if self.whole:
            return trial.suggest_int(name, int(self.low), int(self.high), log=self.log)
        return trial.suggest_float(name, self.low, self.high, log=self.log)


Space = dict[str, Dimension]


def declared_space(method: Method) -> Space:
    """What is searched if nobody says otherwise: step sizes, decays, penalties and local steps.

    A method may say itself, `search: ClassVar = {"rho": "0.1:10:log"}`. Settings that change what is sent or what is
    promised (bits, noise) are never searched by themselves: more accuracy for less privacy is no improvement.
    """
    values = flat(method.model_dump())
    own: Mapping[str, str] | None = getattr(type(method), "search", None)
    if own is not None:
        return {name: read_dimension(name, text, values[name]) for name, text in own.items()}
    return {name: found for name, value in values.items() if (found := _usual(name, value, values)) is not None}


def _usual(name: str, value: Any, values: Mapping[str, Any]) -> Dimension | None:
    section, _, last = name.rpartition(".")
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    kind = values.get(f"{section}.kind")
    if last == "lr" and kind in STEP_SIZES:
        return Dimension(*STEP_SIZES[kind], log=True)
    if last == "weight_decay":
        return Dimension(DECAYS[0], DECAYS[1] if value <= DECAYS[1] else FACTOR * value, log=True)
    if value <= 0 or not (last in SEARCHED or last.endswith("lr")):
        return None  # zero means: switched off
    if isinstance(value, int):
        return Dimension(max(1, value // STEPS_FACTOR), STEPS_FACTOR * value, log=True, whole=True)
    return Dimension(value / FACTOR, value * FACTOR, log=True)


def asked_space(methods: Mapping[str, Method], searches: list[str]) -> dict[str, Space]:
    """What `KEY=LOW:HIGH[:log]` and `KEY=A,B,C` ask to search, for each method that has the setting.

    Raises:
        ConfigError: a text cannot be read, no method has the setting, or a method has none of them.
    """
    values = {name: flat(method.model_dump()) for name, method in methods.items()}
    spaces: dict[str, Space] = {name: {} for name in methods}
    for item in searches:
        setting, equals, text = (part.strip() for part in item.partition("="))
        if not equals or not text:
            raise ConfigError(f"--search {item!r}: needed KEY=LOW:HIGH, KEY=LOW:HIGH:log or KEY=A,B,C")
        owners = [name for name in methods if setting in values[name]]
        if not owners:
            known = sorted({known for found in values.values() for known in found})
            raise ConfigError(unknown_key(setting, known, "--search"))
        for name in owners:
            spaces[name][setting] = read_dimension(setting, text, values[name][setting])
    for name, space in spaces.items():
        if not space:
            raise ConfigError(f"method {name!r} has none of the settings that --search names; leave it out")
    return spaces


def read_dimension(name: str, text: str, value: Any) -> Dimension:
    """A range or a list of choices; `value` is what the setting is now, and says whether it counts something."""
    low, colon, rest = text.partition(":")
    if not colon:
        chosen = tuple(with_overrides({}, [f"a.b={part.strip()}"])["a"]["b"] for part in text.split(","))
        return Dimension(choices=chosen)
    high, _, how = rest.partition(":")
    try:
        ends = float(low), float(high)
    except ValueError:
        ends = math.nan, math.nan
    log, whole = how == "log", isinstance(value, int) and not isinstance(value, bool)
    if how not in ("", "log") or not ends[0] < ends[1] < math.inf or ends[0] <= (0 if log else -math.inf):
        above = ", both above 0" if log else ""
        raise ConfigError(f"--search {name}={text}: needed LOW:HIGH or LOW:HIGH:log with LOW below HIGH{above}")
    if whole and any(end != round(end) for end in ends):
        raise ConfigError(f"--search {name}={text}: {name} counts something; needed whole numbers")
    return Dimension(*ends, log=log, whole=whole)


def flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings as dotted names."""
    out: dict[str, Any] = {}
    for name, value in settings.items():
        out |= flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return out


def with_settings(method: Method, chosen: Mapping[str, Any]) -> Method:
    """The method with some settings, named by dots, changed."""
    settings = json.loads(json.dumps(method.model_dump()))
    for name, value in chosen.items():
        table, (*path, last) = settings, name.split(".")
        for part in path:
            table = table[part]
        table[last] = value
    changed: Method = make_method(method.name, settings)
    return changed
