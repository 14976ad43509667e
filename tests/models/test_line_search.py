"""Steps that lower a loss, made shorter where they lead too far."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from colonnade.models.line_search import ENOUGH, lower


def cosh(place: Tensor) -> float:
    """Convex, flat in the middle and steep outside, where a Newton step is good; inf beyond 700."""
    return float(torch.cosh(place).sum())


def at(*numbers: float) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


@given(st.floats(-6, 6), st.floats(0.01, 1e6))
def test_where_it_leads_is_lower_by_what_the_slope_promises(start: float, length: float) -> None:
    place, slope = at(start), torch.sinh(at(start))
    there = lower(cosh, place, -length * slope, slope)
    if abs(start) < 1e-7:
        return  # as low as it gets, to rounding
    assert there is not None
    assert cosh(there) <= cosh(place) + ENOUGH * float((slope * (there - place)).sum())


def test_a_step_that_is_good_is_taken_whole_and_one_that_is_too_long_is_halved() -> None:
    place, slope = at(2.0), torch.sinh(at(2.0))
    assert lower(cosh, place, at(-1.0), slope) == at(1.0)
    assert lower(cosh, place, at(-8.0), slope) == at(0.0)  # -6 and -2 are not lower: the same height at best
    assert lower(cosh, place, at(-1e4), slope) is not None  # the first of them end where the loss is infinite


def test_uphill_there_is_none_and_none_that_stays() -> None:
    place, slope = at(2.0), torch.sinh(at(2.0))
    assert lower(cosh, place, at(1.0), slope) is None
    assert lower(cosh, place, at(0.0), slope) is None
    assert lower(cosh, place, at(-1e9), slope, halvings=3) is None


def test_it_ends_where_it_is_allowed_to() -> None:
    place = at(2.0, 0.5)
    there = lower(cosh, place, at(-4.0, -1.0), torch.sinh(place), lambda end: end.clamp(min=0.25))
    assert there is not None and there.tolist() == [0.25, 0.25]


def test_what_lies_within_rounding_counts_as_lower() -> None:
    def rounded(end: Tensor) -> float:
        return 1.0 if float(end) == 0 else 1.0 + 1e-15

    assert lower(rounded, at(0.0), at(1e-9), at(0.0)) is None
    assert lower(rounded, at(0.0), at(1e-9), at(0.0), rounding=1e-14) == at(1e-9)
