"""Numbers read without powers of ten, and lose no more than their last digits."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as some

from colonnade.numerals import fixed, measured, short

ORDINARY = some.floats(1e-6, 1e12) | some.floats(-1e12, -1e-6)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.8242, "0.824"), (999.4, "999.400"), (9379.139, "9,379"), (12345.6, "12,346"), (-2.5e6, "-2,500,000"),
     (-0.0001, "0.000"), (1e20, "1e+20"), (math.inf, "inf")],
)  # fmt: skip
def test_fixed(value: float, text: str) -> None:
    assert fixed(value, 3) == text


def test_a_difference_has_its_sign() -> None:
    assert [fixed(one, 2, "+") for one in (0.5, -0.5, 123456.7)] == ["+0.50", "-0.50", "+123,457"]


@pytest.mark.parametrize(("value", "text"), [(0.0, "0.000"), (0.00042, "0.000420"), (0.25, "0.250"), (54321, "54,321")])
def test_a_small_measure_does_not_read_as_zero(value: float, text: str) -> None:
    assert measured(value, 3) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (1.5, "1.5"), (9999.7, "10,000"), (123456.7, "123,457"), (0.00001234, "0.00001234"), (1e-5, "0.00001"),
     (0.00009999999, "0.0001"), (2e17, "2e+17")],
)  # fmt: skip
def test_short(value: float, text: str) -> None:
    assert short(value) == text


@given(ORDINARY)
def test_nothing_but_last_digits_is_lost(value: float) -> None:
    for text in (short(value), measured(value, 4)):
        assert "e" not in text
        assert float(text.replace(",", "")) == pytest.approx(value, rel=0.006)
