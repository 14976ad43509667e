"""Public data sets as federations: one file per data set, one function each.

`load_set` is the same by name, for configuration files: it also checks the options' names and types.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Any

from pydantic import ValidationError, validate_call

from colonnade.config import unknown_key
from colonnade.data.sets.cifar10 import cifar10
from colonnade.data.sets.digits import digits
from colonnade.data.sets.mnist import mnist
from colonnade.data.sets.modelnet40 import modelnet40
from colonnade.data.sets.nus_wide import nus_wide
from colonnade.errors import ConfigError
from colonnade.federation import Federation

__all__ = ["SETS", "cifar10", "digits", "load_set", "mnist", "modelnet40", "nus_wide"]

SETS: dict[str, Callable[..., Federation]] = {
    "digits": digits,
    "mnist": mnist,
    "cifar10": cifar10,
    "nus_wide": nus_wide,
    "modelnet40": modelnet40,
}


def load_set(name: str, **options: Any) -> Federation:
    """The data set of this name.

    Args:
        name: a key of SETS.
        **options: the parameters of that data set's function.

    Raises:
        ConfigError: there is no such data set or option, or an option has the wrong type.
    """
    if name not in SETS:
        close = difflib.get_close_matches(name, SETS, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(SETS)}"
        raise ConfigError(f"no data set called {name!r}; {hint}")
    load = SETS[name]
    try:
        return validate_call(load)(**options)
    except ValidationError as error:
        first = error.errors()[0]
    option = str(first["loc"][0])
    if first["type"] == "unexpected_keyword_argument":
        known = [key for key in load.__annotations__ if key != "return"]
        raise ConfigError(unknown_key(option, known, f"data set {name}"))
    wanted = first["msg"][0].lower() + first["msg"][1:]
    raise ConfigError(f"data set {name}: {option} = {first['input']!r} is not valid: {wanted}")
