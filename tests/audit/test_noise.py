"""Tests with a known null distribution: their p-values are right for correct code, and small for what is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from colonnade.audit import noise
from colonnade.audit.checks import FALSE_ALARM, judged, together, two_sided
from colonnade.audit.claims import Additive, claim_of, share_of
from colonnade.audit.noise import Seen
from colonnade.audit.shapes import Layout
from colonnade.privacy.events import PlainEvent
from colonnade.privacy.gaussian import GaussianEvent
from colonnade.privacy.pbm import PoissonBinomialEvent
from colonnade.privacy.secure_sum.event import SumEvent
from colonnade.randomness import stream
from colonnade.wire.numbers import Numbers

LAYOUT = Layout.of({"h": (30, 4), "b": (7,)}, torch.float64)
GRID = 2.0**-21
CLAIM = Additive(1.0, 2.0, 2.0, GRID)
NUMBERS = Numbers(dtype=torch.float64)


def fresh(seed: int, *shape: int, deviation: float = 1.0) -> Tensor:
    drawn = torch.from_numpy(stream(seed, "test").normal(0, deviation, shape))
    return (drawn / GRID).round() * GRID


def seen(values: Tensor) -> Seen:
    return Seen(values, CLAIM, LAYOUT, NUMBERS)


def along(count: int) -> Tensor:
    c = torch.from_numpy(stream(9, "along").normal(size=(count, LAYOUT.cells)))
    return c / c.norm(dim=1, keepdim=True)


TESTS: dict[str, Callable[[int], Iterator[float]]] = {
    "too long": lambda seed: noise.too_long(seen(fresh(seed, 2, LAYOUT.cells) + 2 * along(2)), along(2)),
    "too small": lambda seed: noise.too_small(seen(fresh(seed, 2, LAYOUT.cells))),
    "too small beside a canary": lambda seed: noise.too_small(seen(fresh(seed, 2, LAYOUT.cells) + along(2)), along(2)),
    "dependent": lambda seed: noise.dependent(fresh(seed, 2, 2, LAYOUT.cells), LAYOUT),
    "bits": lambda seed: noise.uneven_bits(seen(fresh(seed, 2, LAYOUT.cells))),
}


@pytest.mark.parametrize("name", TESTS)
def test_correct_code_is_accused_as_rarely_as_promised(name: str) -> None:
    """Of 200 p-values for the whole check, not many more are below 5 % and below 0.5 % than so many per cent."""
    found = [together(TESTS[name](seed)) for seed in range(10_000, 10_200)]
    assert sum(p < 0.05 for p in found) <= 10 + 4 * 3.1
    assert sum(p < 0.005 for p in found) <= 1 + 4 * 1.0


def test_each_single_test_is_right_too() -> None:
    """The p-value of every test by itself, at the edge of what is claimed: not more than its share is small."""
    parts = [list(TESTS["too small"](seed)) for seed in range(10_000, 10_200)]
    for place in range(len(parts[0])):
        assert sum(p[place] < 0.1 for p in parts) <= 20 + 4 * 4.3


@pytest.mark.parametrize("length", [3.5, 50.0])
def test_a_long_upload_is_seen_along_its_canary(length: float) -> None:
    values = fresh(1, 40, LAYOUT.cells) + length * along(40)
    assert together(noise.too_long(seen(values), along(40))) < (FALSE_ALARM if length > 4 else 0.2)


def test_a_single_long_row_and_a_single_large_number_are_seen() -> None:
    values = fresh(1, 1, LAYOUT.cells)
    row, cell = values.clone(), values.clone()
    row[0, 8:12] += 6.0
    cell[0, -1] -= 12.0
    assert together(noise.too_long(seen(row), along(1))) < FALSE_ALARM
    assert together(noise.too_long(seen(cell), along(1))) < FALSE_ALARM


def test_noise_at_0_8_is_seen_in_a_thousand_numbers() -> None:
    assert together(noise.too_small(seen(fresh(1, 20, LAYOUT.cells, deviation=0.8)))) < FALSE_ALARM


@pytest.mark.parametrize("where", [slice(8, 12), slice(1, 120, 4), slice(120, 127)], ids=["row", "column", "array"])
def test_a_part_without_noise_is_seen(where: slice) -> None:
    values = fresh(1, 40, LAYOUT.cells)
    values[3 if where == slice(8, 12) else slice(None), where] = 0
    assert together(noise.too_small(seen(values))) < FALSE_ALARM


def test_noise_that_is_used_twice_is_seen_wherever() -> None:
    for again in ("parties", "releases", "rows", "numbers"):
        values = fresh(2, 8, 2, LAYOUT.cells)
        if again == "parties":
            values[:, 1] = values[:, 0]
        elif again == "releases":
            values[1::2] = values[::2]
        else:
            table = values[..., :120].view(8, 2, 30, 4)
            table[:] = table[:, :, :1] if again == "rows" else table[..., :1]
        assert together(noise.dependent(values, LAYOUT)) < FALSE_ALARM, again


def test_low_bits() -> None:
    values = fresh(3, 20, LAYOUT.cells)
    assert noise.off_grid(seen(values)) == 0
    assert noise.off_grid(seen(values + GRID / 4)) == values.numel()
    coarse = (values / (4 * GRID)).round() * 4 * GRID  # noise with fewer bits than the grid: the rest is the upload's
    assert noise.off_grid(seen(coarse)) == 0
    assert together(noise.uneven_bits(seen(coarse))) < FALSE_ALARM


@pytest.mark.parametrize("name", ["float32", "float16", "int8"])
def test_rounding_is_bounded_by_what_is_allowed_for_it(name: str) -> None:
    numbers = Numbers(name, torch.float64)  # type: ignore[arg-type]
    values = torch.from_numpy(stream(5, "rounding").normal(0, 1, (6, 40, 20)))
    read = numbers.decode(numbers.encode({"h": values}, 1))["h"]
    far = CLAIM.rounded(read.flatten(1), numbers)
    assert bool(((read - values).abs().flatten(1) <= far).all())


def test_what_an_event_claims() -> None:
    noise_event = GaussianEvent(2.0, 3.0, grid=0.5)
    assert claim_of(noise_event) == Additive(6.0, 2.0, 2.0, 0.5)
    summed = claim_of(SumEvent(noise_event, 5.0, 1.0))
    assert isinstance(summed, Additive) and summed.parts == 4
    assert share_of(summed).deviation == pytest.approx(3.0)
    assert claim_of(SumEvent(PoissonBinomialEvent(16, 0.1, 4), 5.0, 1.0)) is not None
    assert claim_of(PlainEvent()) is None


def test_p_values_together() -> None:
    assert together([]) == 1.0
    assert together([0.01, float("nan"), 0.5]) == pytest.approx(0.03)
    assert two_sided(0, 20) == pytest.approx(2 / 2**20)
    assert judged("x", [1e-9], "wrong", "right").means == "wrong"
    assert not judged("x", [1e-3], "wrong", "right").failed
