"""Fitting a copy of an estimator of scikit-learn's kind: with seeds of the run, and tried before a training.

Every parameter called `random_state` is set from the run's seed, the party and the number of the fit, also one that is
None. What cannot be kept without pickle, or cannot be repeated, is refused on made-up rows.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from torch import Tensor

from colonnade.errors import ModelError
from colonnade.models.stored_estimator import from_bytes, to_bytes, types_in
from colonnade.randomness import key, stream

MADE_UP = 48  # rows on which an estimator is tried: enough for trees that want 20 in a leaf
STATE = "random_state"

Values = np.ndarray[Any, Any]


def table_of(x: Tensor) -> Values:
    """(B, F) as scikit-learn reads it."""
    found: Values = x.flatten(1).cpu().numpy()
    return found


def fitted(
    estimator: Any, table: Values, y: Values, seed: int, number: int, output: int, weights: Values | None = None
) -> Any:
    """A fitted copy; `number` and `output` tell apart the copies of one party.

    Raises:
        ModelError: rows count differently, and the estimator has no `sample_weight`.
    """
    from sklearn.base import clone
    from sklearn.utils.validation import has_fit_parameter

    made = clone(estimator, safe=False)
    seeds = {
        name: key(seed, f"{name} {value if isinstance(value, int) else ''}", str(output), number) % 2**31
        for name, value in (made.get_params() if hasattr(made, "get_params") else {}).items()
        if name == STATE or name.endswith(f"__{STATE}")
    }
    if seeds:
        made.set_params(**seeds)
    if weights is None:
        made.fit(table, y)
    elif has_fit_parameter(made, "sample_weight"):
        made.fit(table, y, sample_weight=weights)
    else:
        raise ModelError(
            f"rows count differently, and fit of {type(made).__name__} takes no sample_weight; use an estimator that "
            "does, or leave the weights out"
        )
    return made


def tried(
    estimator: Any, width: int, fit: Callable[[Values, Values], Any], tell: Callable[[Any, Values], Values]
) -> set[str]:
    """The types that a fitted copy consists of.

    Args:
        estimator: that a user brought.
        width: columns.
        fit: a fitted copy, of rows (B, F) and normal numbers (B,).
        tell: what a fitted copy says of rows.

    Raises:
        ValueError: it cannot be kept, or two equal fits predict differently.
    """
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped] # scikit-learn brings it

    drawn = stream(0, "made-up rows").normal(size=(MADE_UP, width + 1))
    x, y, name = drawn[:, :-1], drawn[:, -1], type(estimator).__name__
    with warnings.catch_warnings(), threadpool_limits(1):  # made-up rows tell nothing about convergence
        warnings.simplefilter("ignore")
        one, two = (fit(x, y) for _ in range(2))
        try:
            content = to_bytes(one)
            kept = from_bytes(content, types_in(content))
        except Exception as error:  # skops has no common base of what it raises
            raise ValueError(
                f"{name} cannot be kept in a file without pickle ({type(error).__name__}: {error}); use one that "
                "skops can write"
            ) from None
        if not all(np.array_equal(tell(other, x), tell(one, x)) for other in (two, kept)):
            raise ValueError(
                f"two equal fits of {name} predict differently, so that no run with it could be repeated; give "
                "whatever it draws from a parameter called random_state"
            )
    return types_in(content)
