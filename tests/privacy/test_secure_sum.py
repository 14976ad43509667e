"""The secure sum: masks cancel exactly, one party's message is uniform, and nothing opens that should not."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import re
import time
from collections.abc import Callable, Mapping

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats

from colonnade.errors import ColonnadeError, ConfigError, GateError, IdentityError, Refused, WireError
from colonnade.identity.cipher import KeyPair
from colonnade.privacy.secure_sum.fixed_point import (
    EXACT_BITS,
    NOISE_BITS,
    PLAIN_BITS,
    TAIL,
    Cells,
    Floats,
    Grid,
    from_wire,
    to_wire,
)
from colonnade.privacy.secure_sum.masks import Masker
from colonnade.privacy.secure_sum.noise import (
    effective_sigma,
    noise_share,
    rounding_delta,
    rounding_distance,
    share_deviation,
)
from colonnade.privacy.secure_sum.roster import Address, Masked, Roster
from colonnade.privacy.secure_sum.total import missing, open_total
from colonnade.randomness import stream
from colonnade.wire.codec import decode, encode
from tests.architecture.source import ROOT

NAMES = tuple(f"p{number:02d}" for number in range(14))
PAIRS = {name: KeyPair.restore(hashlib.sha256(name.encode()).digest()) for name in NAMES}  # the same in every run
HERE = Address(1, 0, "logits")
ALMOST_NEVER = 1e-6  # a correct uniform view fails with this probability, but keys are fixed: it does not change


def roster_of(parties: int, run: str = "run", drops: int = 0) -> Roster:
    return Roster.of(run, {name: PAIRS[name].public for name in NAMES[:parties]}, drops)


def maskers(parties: int, run: str = "run") -> dict[str, Masker]:
    roster = roster_of(parties, run)
    return {name: Masker(name, PAIRS[name], roster) for name in roster.names}


def everybody(values: Floats, grid: Grid, address: Address = HERE) -> dict[str, Masked]:
    """What M parties send, with plain values (M, ...)."""
    return {
        name: masker.mask(grid.encode(mine), address)
        for (name, masker), mine in zip(maskers(len(values)).items(), values, strict=True)
    }


# --- the grid ---

SHAPES = st.sampled_from([(), (1,), (7,), (3, 2), (0, 4), (2, 1, 5)])
DRAWS = st.integers(0, 2**32)


def drawn(seed: int, shape: tuple[int, ...], largest: float) -> Floats:
    """Values of all sizes up to the largest, the largest itself among them."""
    rng = stream(seed, "test")
    values = largest * rng.uniform(-1, 1, shape) * 2.0 ** -rng.integers(0, 60, shape)
    values = np.where(rng.random(shape) < 0.1, math.copysign(largest, rng.normal()), values)
    return np.asarray(values, dtype=np.float64)


@given(parties=st.integers(1, 2000), largest=st.floats(1e-30, 1e30), seed=DRAWS)
def test_the_sum_on_the_grid_is_exact_and_cannot_wrap(parties: int, largest: float, seed: int) -> None:
    grid = Grid(parties, largest)
    assert math.frexp(grid.step)[0] == 0.5, "a step is a power of two"
    some = drawn(seed, (min(parties, 5), 6), largest)
    numbers = [[int(v) for v in grid.encode(row).view(np.int64)] for row in some]
    for row, steps in zip(some, numbers, strict=True):
        for value, step in zip(row, steps, strict=True):
            assert abs(step * grid.step) <= abs(value)
            assert abs(step * grid.step - value) < grid.step
    assert parties * abs(int(grid.encode(np.array(largest)).view(np.int64))) <= grid.most < 2**63

    on_grid = np.array(numbers, dtype=np.float64) * grid.step
    total = on_grid.sum(axis=0)
    summed = grid.encode(on_grid[0]).copy()
    for row in on_grid[1:]:
        summed += grid.encode(row)
    np.testing.assert_array_equal(grid.decode(summed), total)
    if np.all(abs(total) <= largest):
        np.testing.assert_array_equal(grid.encode(total), summed)


@given(parties=st.integers(1, 300), ratio=st.floats(1e-3, 1e6), clip=st.floats(1e-6, 1e6))
def test_with_noise_the_step_is_far_below_it(parties: int, ratio: float, clip: float) -> None:
    grid = Grid(parties, clip, ratio * clip)
    assert 2.0**NOISE_BITS <= grid.deviation / grid.step < 2.0 ** (NOISE_BITS + 1)
    worst = grid.encode(np.array([clip, -clip]), np.array([TAIL, -TAIL]) * grid.deviation).view(np.int64)
    assert all(abs(int(cell)) * parties <= grid.most <= 2**EXACT_BITS for cell in worst)


def test_decoding_the_largest_sum_is_exact_and_one_step_more_is_refused() -> None:
    for grid in (Grid(14, 1.0), Grid(3, 2.0, 0.5)):
        edge = np.array([grid.most, -grid.most]).view(np.uint64)
        assert [int(v / grid.step) for v in grid.decode(edge)] == [grid.most, -grid.most]
        for wrong in (grid.most + 1, -grid.most - 1, 2**63 - 1, -(2**63)):
            with pytest.raises(WireError, match="do not cancel"):
                grid.decode(np.array([0, wrong]).view(np.uint64))


@pytest.mark.parametrize("value", [1.001, -2.0, 1e300, math.inf, -math.inf, math.nan])
def test_a_value_out_of_range_is_refused_and_not_told(value: float) -> None:
    with pytest.raises(ConfigError, match="clip before") as told:
        Grid(4, 1.0).encode(np.array([0.0, value]))
    assert str(value) not in str(told.value)
    with pytest.raises(ConfigError, match="noise of a secure sum"):
        Grid(4, 1.0, 1.0).encode(np.zeros(2), np.array([0.0, value * TAIL]))


def test_a_hair_above_the_norm_is_cut_back() -> None:
    grid = Grid(4, 3.0)
    above = np.array([3.0 * (1 + 1e-15), -3.0 * (1 + 1e-15)])
    assert list(grid.decode(grid.encode(above))) == [3.0, -3.0]


@given(seed=DRAWS, cells=st.integers(1, 200), clip=st.floats(1e-3, 1e3))
def test_clipped_stays_clipped(seed: int, cells: int, clip: float) -> None:
    """Rounding to nearest would make the norm larger than C."""
    values = stream(seed, "test").normal(size=cells)
    values *= clip / np.linalg.norm(values)
    for grid in (Grid(2, clip), Grid(2, clip, clip * 0.1)):
        noise = None if grid.deviation == 0 else np.zeros(cells)
        steps = grid.encode(values, noise).view(np.int64)
        assert math.fsum(float(s * grid.step) ** 2 for s in steps) <= clip**2 * (1 + 1e-12)
        assert np.all(abs(steps * grid.step) <= abs(values))


@pytest.mark.parametrize(
    "make",
    [
        lambda: Grid(0, 1.0),
        lambda: Grid(2, 0.0),
        lambda: Grid(2, math.inf),
        lambda: Grid(2, math.nan),
        lambda: Grid(2, 1.0, -1.0),
        lambda: Grid(2, 1.0, math.nan),
        lambda: Grid(2, 1.0, 1e-12),  # a grid below this noise has no room for these values
        lambda: Grid(2**30, 1.0, 1.0),
        lambda: Grid(2, 1.0, 1.0).encode(np.zeros(3)),  # noise forgotten
        lambda: Grid(2, 1.0).encode(np.zeros(3), np.zeros(3)),
        lambda: Grid(2, 1.0, 1.0).encode(np.zeros(3), np.zeros((3, 1))),
    ],
)
def test_a_grid_without_room_or_sense_is_refused(make: Callable[[], object]) -> None:
    with pytest.raises(ConfigError):
        make()


def test_cells_travel_as_int64() -> None:
    cells = np.array([[0, 1, 2**63], [2**64 - 1, 2**63 - 1, 5]], dtype=np.uint64)
    _, arrays = decode(encode({}, {"logits": to_wire(cells)}))
    assert arrays["logits"].dtype == torch.int64
    np.testing.assert_array_equal(from_wire(arrays["logits"]), cells)
    with pytest.raises(WireError, match="int64"):
        from_wire(torch.zeros(2))


# --- masks cancel ---


@settings(max_examples=30, deadline=None)
@given(parties=st.integers(2, 6), shape=SHAPES, seed=DRAWS, largest=st.sampled_from([1e-3, 1.0, 50.0]))
def test_the_coordinator_opens_exactly_the_sum(parties: int, shape: tuple[int, ...], seed: int, largest: float) -> None:
    grid = Grid(parties, largest)
    values = drawn(seed, (parties, *shape), largest)
    total = open_total(roster_of(parties), grid, HERE, everybody(values, grid))

    steps = [[int(v) for v in np.trunc(row / grid.step).reshape(-1)] for row in values]
    slow = [sum(column) * grid.step for column in zip(*steps, strict=True)]  # Python's own whole numbers
    assert total.shape == shape
    assert [float(v) for v in total.reshape(-1)] == slow
    assert np.all(abs(total - values.sum(axis=0)) <= grid.error * (1 + 1e-6))


def test_the_order_of_messages_and_of_keys_does_not_matter() -> None:
    grid, values = Grid(4, 1.0), drawn(3, (4, 5, 2), 1.0)
    heard = everybody(values, grid)
    expected = open_total(roster_of(4), grid, HERE, heard)
    backwards = Roster.of("run", {name: PAIRS[name].public for name in reversed(NAMES[:4])})
    assert backwards == roster_of(4)
    again = open_total(backwards, grid, HERE, dict(reversed(heard.items())))
    np.testing.assert_array_equal(again, expected)


def test_messages_survive_the_wire() -> None:
    grid, values = Grid(3, 1.0), drawn(5, (3, 4, 2), 1.0)
    heard = everybody(values, grid)
    travelled = {
        name: dataclasses.replace(m, cells=from_wire(decode(encode({}, {"a": to_wire(m.cells)}))[1]["a"]))
        for name, m in heard.items()
    }
    np.testing.assert_array_equal(
        open_total(roster_of(3), grid, HERE, travelled), open_total(roster_of(3), grid, HERE, heard)
    )


# --- what the coordinator sees of one party ---

CELLS = 20_000


def p_values(cells: Cells) -> dict[str, float]:
    """Chi-squared tests that cells are uniform: each byte, and each of the lowest and highest bits."""
    flat = cells.reshape(-1)
    found = {}
    for place, column in enumerate(flat.astype("<u8").view(np.uint8).reshape(-1, 8).T):
        found[f"byte {place}"] = float(stats.chisquare(np.bincount(column, minlength=256)).pvalue)
    for bit in (0, 1, 62, 63):
        ones = int(((flat >> np.uint64(bit)) & np.uint64(1)).sum())
        found[f"bit {bit}"] = float(stats.chisquare([ones, len(flat) - ones]).pvalue)
    return found


def looks_uniform(cells: Cells) -> bool:
    return min(p_values(cells).values()) > ALMOST_NEVER


INPUTS: Mapping[str, Floats] = {
    "zeros": np.zeros(CELLS),
    "the largest": np.full(CELLS, 1.0),
    "the smallest": np.full(CELLS, -1.0),
    "logits": drawn(1, (CELLS,), 1.0),
}


@pytest.mark.parametrize("which", INPUTS)
@pytest.mark.parametrize("parties", [2, 3, 14])
def test_the_view_of_one_party_is_uniform(which: str, parties: int) -> None:
    clean = Grid(parties, 1.0).encode(INPUTS[which])
    assert not looks_uniform(clean), "the test must be able to fail"
    for name, masker in list(maskers(parties).items())[:2]:
        assert looks_uniform(masker.mask(clean, HERE).cells), name


@pytest.mark.parametrize("left_out", range(4))
def test_what_all_but_one_sent_is_uniform_too(left_out: int) -> None:
    heard = everybody(np.zeros((4, CELLS)), Grid(4, 1.0))
    cells = [m.cells for name, m in heard.items() if name != NAMES[left_out]]
    assert looks_uniform(np.add.reduce(cells))
    assert not np.any(np.add.reduce([m.cells for m in heard.values()]))


ELSEWHERE = [Address(2, 0, "logits"), Address(1, 1, "logits"), Address(1, 0, "h"), Address(10, 1, "logits")]


@pytest.mark.parametrize("other", ELSEWHERE, ids=str)
def test_two_messages_never_have_the_same_mask(other: Address) -> None:
    """The difference of two messages is uniform; under one mask it would be the difference of the values."""
    grid = Grid(3, 1.0)
    one, two = grid.encode(INPUTS["logits"]), grid.encode(INPUTS["zeros"])
    masker = maskers(3)[NAMES[1]]
    first = masker.mask(one, HERE).cells
    assert looks_uniform(first - masker.mask(two, other).cells)

    careless = maskers(3)[NAMES[1]]  # has forgotten what it sent: this is the mistake that the test must see
    reused = first - careless.mask(two, HERE).cells
    assert not looks_uniform(reused)
    np.testing.assert_array_equal(reused, one - two)


@pytest.mark.parametrize("change", ["run", "roster", "pair"])
def test_masks_depend_on_run_roster_and_pair(change: str) -> None:
    zeros = np.zeros(CELLS, np.uint64)
    first = maskers(2)[NAMES[0]].mask(zeros, HERE).cells
    if change == "run":
        other = maskers(2, run="another")[NAMES[0]].mask(zeros, HERE).cells
    elif change == "roster":  # minus the masks that the three parties have besides that of the first two
        third = maskers(3)
        other = third[NAMES[0]].mask(zeros, HERE).cells
        assert looks_uniform(first + third[NAMES[1]].mask(zeros, HERE).cells)
    else:
        roster = Roster.of("run", {name: PAIRS[name].public for name in (NAMES[0], NAMES[2])})
        other = Masker(NAMES[0], PAIRS[NAMES[0]], roster).mask(zeros, HERE).cells
    assert looks_uniform(first - other)


def test_streams_are_those_of_the_standard() -> None:
    """HKDF (RFC 5869) written out with hmac, and ChaCha20 of RFC 8439 in plain Python, make the same mask."""
    roster = roster_of(2)
    masked = Masker(NAMES[0], PAIRS[NAMES[0]], roster).mask(np.zeros(20, np.uint64), HERE)
    expected = by_hand(PAIRS[NAMES[0]], PAIRS[NAMES[1]].public, roster, HERE, 20)
    assert [int(v) for v in masked.cells] == expected


# --- one address, one message; restart ---


def test_the_same_message_again_is_the_same_bytes_also_after_a_restart() -> None:
    cells = Grid(3, 1.0).encode(drawn(1, (8, 3), 1.0))
    before = maskers(3)[NAMES[2]]
    first = before.mask(cells, HERE)
    restarted = Masker(NAMES[2], KeyPair.restore(PAIRS[NAMES[2]].private), roster_of(3), before.spent)
    for again in (before.mask(cells, HERE), restarted.mask(cells, HERE)):
        assert again.cells.tobytes() == first.cells.tobytes()
        assert (again.sender, again.address, again.roster) == (first.sender, first.address, first.roster)


def test_a_noisy_share_is_drawn_again_after_a_restart() -> None:
    shape, shares = (6, 2), []
    for _ in range(2):
        noise = noise_share(3.0, 1.0, 3, 1, stream(7, "noise", NAMES[0], 1), shape)
        grid = Grid(3, 1.0, share_deviation(3.0, 1.0, 3, 1))
        shares.append(maskers(3)[NAMES[0]].mask(grid.encode(np.zeros(shape), noise), HERE).cells.tobytes())
    assert shares[0] == shares[1]


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("change", ["a value", "the shape"])
def test_another_message_at_the_same_address_is_refused(restart: bool, change: str) -> None:
    cells = np.zeros((4, 2), np.uint64)
    masker = maskers(2)[NAMES[0]]
    masker.mask(cells, HERE)
    if restart:
        masker = Masker(NAMES[0], PAIRS[NAMES[0]], roster_of(2), masker.spent)
    other = cells.reshape(2, 4) if change == "the shape" else cells + np.uint64(1)
    with pytest.raises(GateError, match="masked before"):
        masker.mask(other, HERE)
    masker.mask(other, Address(2, 0, "logits"))
    masker.mask(cells, HERE)  # the first one may still be sent


# --- what must be noticed ---


def test_a_missing_party_is_named_and_nothing_is_lost() -> None:
    grid, values = Grid(4, 1.0), drawn(2, (4, 6), 1.0)
    heard = everybody(values, grid)
    late = {name: heard.pop(name) for name in (NAMES[1], NAMES[3])}
    assert missing(roster_of(4), heard) == (NAMES[1], NAMES[3])
    with pytest.raises(WireError, match=r"lacks p01, p03; nothing was opened"):
        open_total(roster_of(4), grid, HERE, heard)
    complete = heard | late
    assert missing(roster_of(4), complete) == ()
    total = open_total(roster_of(4), grid, HERE, complete)
    np.testing.assert_allclose(total, values.sum(axis=0), atol=grid.error)


def stranger(heard: dict[str, Masked]) -> dict[str, Masked]:
    return heard | {"p99": dataclasses.replace(heard["p00"], sender="p99")}


def swapped(heard: dict[str, Masked]) -> dict[str, Masked]:
    return heard | {"p00": heard["p01"], "p01": heard["p00"]}


def changed(**changes: object) -> Callable[[dict[str, Masked]], dict[str, Masked]]:
    return lambda heard: heard | {"p01": dataclasses.replace(heard["p01"], **changes)}  # type: ignore[arg-type]


def another_roster(heard: dict[str, Masked]) -> dict[str, Masked]:
    """The coordinator gave this party a key of its own in the place of p02's."""
    forged = Roster.of("run", dict(roster_of(3).public) | {"p02": KeyPair.new().public})
    return heard | {"p01": Masker("p01", PAIRS["p01"], forged).mask(np.zeros((5, 4), np.uint64), HERE)}


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (stranger, "does not know p99"),
        (swapped, "is from 'p01'"),
        (changed(address=Address(2, 0, "logits")), "is about"),
        (changed(cells=np.zeros((4, 5), np.uint64)), "shape"),
        (changed(cells=np.zeros((5, 4), np.int64)), "uint64"),
        (changed(roster="0" * 64), "other keys"),
        (another_roster, "party 'p01' was masked for other parties or with other keys"),
    ],
)
def test_a_message_that_does_not_fit_is_named(
    spoil: Callable[[dict[str, Masked]], dict[str, Masked]], told: str
) -> None:
    heard = everybody(np.zeros((3, 5, 4)), Grid(3, 1.0))
    with pytest.raises(WireError, match=told):
        open_total(roster_of(3), Grid(3, 1.0), HERE, spoil(heard))


def wrong_key(cells: Cells) -> Cells:
    other = Roster.of("run", dict(roster_of(3).public) | {"p02": KeyPair.new().public})
    return Masker("p01", PAIRS["p01"], other).mask(cells, HERE).cells


@pytest.mark.parametrize(
    "lie",
    [
        wrong_key,
        lambda cells: maskers(3)["p01"].mask(cells, Address(2, 0, "logits")).cells,
        lambda cells: maskers(3)["p01"].mask(cells, HERE).cells[::-1],  # rows in another order
        lambda cells: maskers(3)["p00"].mask(cells, HERE).cells,  # a copy of another's message
        lambda cells: cells,  # no mask at all
    ],
    ids=["wrong key", "wrong round", "changed order", "copied", "unmasked"],
)
def test_masks_that_do_not_cancel_are_noticed_though_the_message_claims_to_fit(lie: Callable[[Cells], Cells]) -> None:
    grid = Grid(3, 1.0)
    heard = everybody(drawn(1, (3, 6, 2), 1.0), grid)
    cells = lie(grid.encode(drawn(2, (6, 2), 1.0)))
    with pytest.raises(WireError, match="do not cancel"):
        open_total(roster_of(3), grid, HERE, changed(cells=cells)(heard))


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: roster_of(1), ConfigError),
        (lambda: Roster.of("run", {"a": b"short", "b": bytes(32)}), IdentityError),
        (lambda: Roster.of("run", {"a": PAIRS["p00"].public, "b": PAIRS["p00"].public}), IdentityError),
        (lambda: Roster("run", tuple(reversed(roster_of(3).public))), ConfigError),
        (lambda: Roster("run", roster_of(2).public + roster_of(2).public), ConfigError),
        (lambda: Masker("p00", PAIRS["p01"], roster_of(2)), IdentityError),
        (lambda: Masker("p05", PAIRS["p05"], roster_of(2)), IdentityError),
        (
            lambda: Masker("p00", PAIRS["p00"], Roster.of("run", {"p00": PAIRS["p00"].public, "q": bytes(32)})),
            IdentityError,  # a point of low order
        ),
        (lambda: open_total(roster_of(3), Grid(2, 1.0), HERE, {}), ConfigError),
        (lambda: roster_of(3, drops=1).without(["nobody"]), ConfigError),
    ],
)
def test_wrong_rosters_are_refused(make: Callable[[], object], error: type[ColonnadeError]) -> None:
    with pytest.raises(error):
        make()


# --- a party is lost ---


def test_no_more_parties_are_lost_than_were_declared() -> None:
    roster = roster_of(5, drops=2)
    left = roster.without(["p01"])
    assert (left.names, left.invited) == (("p00", "p02", "p03", "p04"), 5)
    assert left.digest != roster.digest
    assert left.without(["p04"]).invited == 5
    with pytest.raises(Refused, match="declared 2 dropped parties and would lose 3"):
        left.without(["p00", "p02"])
    with pytest.raises(Refused, match="declared 0"):
        roster_of(5).without(["p01"])


def test_the_rest_goes_on_with_a_new_round_but_never_with_the_same() -> None:
    """Two sums of one round, with and without a party, would tell that party's array."""
    grid, roster = Grid(3, 1.0), roster_of(3, drops=1)
    values = drawn(4, (3, 5), 1.0)
    before = {name: Masker(name, PAIRS[name], roster) for name in roster.names}
    for masker, mine in zip(before.values(), values, strict=True):
        masker.mask(grid.encode(mine), HERE)
    after = {name: before[name].without(["p01"]) for name in ("p00", "p02")}
    with pytest.raises(GateError, match="another roster"):
        after["p00"].mask(grid.encode(values[0]), HERE)
    there = Address(2, 0, "logits")
    heard = {name: after[name].mask(grid.encode(values[i]), there) for name, i in (("p00", 0), ("p02", 2))}
    total = open_total(roster.without(["p01"]), grid, there, heard)
    np.testing.assert_allclose(total, values[0] + values[2], atol=grid.error)


# --- noise ---


def epsilon(mu: float, delta: float = 1e-5) -> float:
    """The exact epsilon of a Gaussian mechanism with mu = sensitivity / deviation."""
    return float(optimize.brentq(lambda e: hockey_stick(e, mu) - delta, 0, 50))


def hockey_stick(e: float, mu: float) -> float:
    return float(stats.norm.cdf(mu / 2 - e / mu) - math.exp(e) * stats.norm.cdf(-mu / 2 - e / mu))


@pytest.mark.parametrize(("parties", "towards_party"), [(14, 0.934), (4, 1.050), (2, 1.313)])
def test_the_figures_of_the_specification(parties: int, towards_party: float) -> None:
    spent = effective_sigma(30.0, parties, colluders=0)
    assert epsilon(math.sqrt(53) / spent.coordinator) == pytest.approx(0.897, abs=5e-4)
    assert epsilon(math.sqrt(53) / spent.party) == pytest.approx(towards_party, abs=5e-4)
    assert effective_sigma(30.0, parties, colluders=1) == pytest.approx((30.0, 30.0))


@given(parties=st.integers(1, 50), colluders=st.integers(0, 49), dropped=st.integers(0, 49), drops=st.integers(0, 49))
def test_effective_noise_is_that_of_the_shares_nobody_knows(
    parties: int, colluders: int, dropped: int, drops: int
) -> None:
    if parties - colluders - drops < 1 or dropped > parties:
        with pytest.raises(ConfigError):
            effective_sigma(2.0, parties, colluders, dropped, drops)
        return
    found = effective_sigma(2.0, parties, colluders, dropped, drops)
    share = share_deviation(2.0, 3.0, parties, colluders, drops)
    for value, known in zip(found, (colluders, max(colluders, 1)), strict=True):
        honest = range(parties)[dropped:][known:]
        assert value == pytest.approx(math.sqrt(sum((share / 3.0) ** 2 for _ in honest)))
    if colluders >= 1 and dropped <= drops:
        assert min(found) >= 2.0 * (1 - 1e-12), "within what was declared, the promise holds"


@pytest.mark.parametrize(("colluders", "drops"), [(0, 0), (1, 0), (2, 1)])
def test_the_variance_of_the_opened_sum(colluders: int, drops: int) -> None:
    sigma, clip, parties, cells = 5.0, 2.0, 5, 40_000
    deviation = share_deviation(sigma, clip, parties, colluders, drops)
    grid, roster = Grid(parties, clip, deviation), roster_of(parties)
    heard, drawn_noise = {}, []
    for name in roster.names:
        noise = noise_share(sigma, clip, parties, colluders, stream(1, "noise", name), (cells,), drops)
        drawn_noise.append(noise)
        heard[name] = Masker(name, PAIRS[name], roster).mask(grid.encode(np.full(cells, 0.5), noise), HERE)
    total = open_total(roster, grid, HERE, heard)
    assert np.all(abs(total - 0.5 * parties - sum(drawn_noise)) <= grid.error)

    wanted = (sigma * clip) ** 2 * parties / (parties - colluders - drops)
    low, high = stats.chi2.interval(1 - ALMOST_NEVER, cells - 1)
    assert low < total.var(ddof=1) * (cells - 1) / wanted < high
    assert not low < total.var(ddof=1) * (cells - 1) / (1.1 * wanted) < high, "the test must be able to fail"
    assert abs(np.asarray(np.corrcoef(drawn_noise))[np.triu_indices(parties, 1)]).max() < 0.03
    assert stats.kstest(total - 0.5 * parties, "norm", (0, math.sqrt(wanted))).pvalue > ALMOST_NEVER


@pytest.mark.parametrize(
    "make",
    [
        lambda: share_deviation(-1.0, 1.0, 3, 0),
        lambda: share_deviation(math.nan, 1.0, 3, 0),
        lambda: share_deviation(1.0, 0.0, 3, 0),
        lambda: share_deviation(1.0, 1.0, 3, 3),
        lambda: share_deviation(1.0, 1.0, 3, 2, 1),
        lambda: share_deviation(1.0, 1.0, 3, -1),
        lambda: effective_sigma(1.0, 3, 1, dropped=4),
        lambda: effective_sigma(1.0, 3, 1, dropped=-1),
        lambda: rounding_distance(0.0, 1.0, 2),
    ],
)
def test_noise_that_makes_no_sense_is_refused(make: Callable[[], object]) -> None:
    with pytest.raises(ConfigError):
        make()


# --- what rounding costs ---

REACH = 60  # steps; far beyond the tails used here


def rounded_sum(deviation: float, honest: int) -> Floats:
    """Exact law of a sum of Gaussians that were rounded one by one, on -REACH .. REACH, by convolution."""
    edges = np.arange(-REACH, REACH + 2) - 0.5
    one = np.diff(stats.norm.cdf(edges, scale=deviation))
    law = one
    for _ in range(honest - 1):
        law = np.convolve(law, one)
    middle = len(law) // 2
    return np.asarray(law[middle - REACH : middle + REACH + 1], dtype=np.float64)


def rounded_once(deviation: float, honest: int) -> Floats:
    """Law of round(N + U_1 + ... + U_{H-1}), which is a function of the exact sum N, by its Fourier integral."""
    w = np.linspace(-60, 60, 48_001)
    smooth = np.exp(-honest * (deviation * w) ** 2 / 2) * np.sinc(w / (2 * np.pi)) ** honest
    steps = np.arange(-REACH, REACH + 1)
    return np.array([float(np.sum(smooth * np.cos(w * j)) * (w[1] - w[0])) / (2 * math.pi) for j in steps])


@pytest.mark.parametrize("honest", [1, 2, 3, 6])
@pytest.mark.parametrize("deviation", [0.25, 0.4, 0.6, 1.0])
def test_the_rounded_sum_is_as_near_a_post_processing_as_stated(deviation: float, honest: int) -> None:
    distance = 0.5 * abs(rounded_sum(deviation, honest) - rounded_once(deviation, honest)).sum()
    assert distance <= rounding_distance(deviation, 1.0, honest) + 1e-9
    if honest == 2 and deviation == 0.25:
        assert distance > 0.05, "on a coarse grid rounding does cost something, and the test sees it"


@pytest.mark.parametrize("honest", [2, 4])
@pytest.mark.parametrize("deviation", [0.7, 1.5])
@pytest.mark.parametrize("shift", [1, 2, 5])
def test_rounding_costs_at_most_the_stated_delta(deviation: float, honest: int, shift: int) -> None:
    """The true delta of the whole-number mechanism, from its exact law, against the Gaussian one's plus the bound."""
    law = rounded_sum(deviation, honest)
    here, there = law[shift:], law[:-shift]
    mu = shift / (deviation * math.sqrt(honest))
    for e in (0.1, 0.5, 1.0, 2.0, 4.0):
        true = np.maximum(there - math.exp(e) * here, 0).sum()
        allowed = hockey_stick(e, mu) + rounding_delta(rounding_distance(deviation, 1.0, honest), 1, e)
        assert true <= allowed + 1e-12


def test_on_the_grid_that_is_used_rounding_costs_nothing_that_a_float_can_hold() -> None:
    for parties in (2, 14, 1000):
        grid = Grid(parties, 1.0, share_deviation(0.1, 1.0, parties, 1))
        distance = rounding_distance(grid.deviation, grid.step, parties)
        assert rounding_delta(distance, 10**9, epsilon=10.0) == 0.0
    assert rounding_distance(1.0, 1.0, 14) > 0.01, "a grid as coarse as the noise is told apart"
    assert rounding_distance(1.0, 100.0, 2) == 1.0
    assert rounding_distance(1.0, 100.0, 1) == 0.0


# --- time ---


def test_masking_a_batch_for_fourteen_parties_takes_little_time() -> None:
    """1024 x 10 logits: noise, encoding and 13 masks, well under 10 ms."""
    shape, grid = (1024, 10), Grid(14, 1.0, share_deviation(30.0, 1.0, 14, 1))
    masker, values = maskers(14)[NAMES[6]], np.zeros((1024, 10))
    taken = []
    for one_round in range(15):
        begin = time.perf_counter()
        noise = noise_share(30.0, 1.0, 14, 1, stream(1, "noise", number=one_round), shape)
        masker.mask(grid.encode(values, noise), Address(one_round, 0, "logits"))
        taken.append(time.perf_counter() - begin)
    assert min(taken) < 0.01


# --- the same stream, slowly ---


def by_hand(mine: KeyPair, theirs: bytes, roster: Roster, address: Address, cells: int) -> list[int]:
    import hmac
    import json

    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

    def mac(key: bytes, text: bytes) -> bytes:
        return hmac.new(key, text, hashlib.sha256).digest()

    shared = X25519PrivateKey.from_private_bytes(mine.private).exchange(X25519PublicKey.from_public_bytes(theirs))
    context = json.dumps(["colonnade secure sum 1", roster.run, roster.digest, *roster.names]).encode()
    secret = mac(mac(bytes(32), shared), context + b"\x01")
    at = [address.round, address.part, address.array, address.rows]
    about = ["colonnade secure sum 1", *at, [cells]]
    key = mac(secret, json.dumps(about).encode() + b"\x01")
    text = b"".join(chacha_block(key, number) for number in range(cells // 8 + 1))
    return [int.from_bytes(text[8 * i : 8 * i + 8], "little") for i in range(cells)]


def chacha_block(key: bytes, counter: int) -> bytes:
    """RFC 8439, section 2.3, with a nonce of zeros."""
    words = [int.from_bytes(b"expand 32-byte k"[i : i + 4], "little") for i in range(0, 16, 4)]
    words += [int.from_bytes(key[i : i + 4], "little") for i in range(0, 32, 4)]
    words += [counter, 0, 0, 0]
    x = list(words)

    def quarter(a: int, b: int, c: int, d: int) -> None:
        for one, two, three, plan in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
            x[one] = (x[one] + x[two]) % 2**32
            mixed = x[three] ^ x[one]
            x[three] = (mixed << plan | mixed >> (32 - plan)) % 2**32

    for _ in range(10):
        for column in range(4):
            quarter(column, 4 + column, 8 + column, 12 + column)
        for diagonal in range(4):
            quarter(diagonal, 4 + (diagonal + 1) % 4, 8 + (diagonal + 2) % 4, 12 + (diagonal + 3) % 4)
    return b"".join(((a + b) % 2**32).to_bytes(4, "little") for a, b in zip(x, words, strict=True))


def test_the_precision_without_noise_is_beyond_float32() -> None:
    assert Grid(14, 100.0).step < 100.0 * torch.finfo(torch.float32).eps / 14
    assert PLAIN_BITS < EXACT_BITS < 63


def test_the_page_does_what_it_says() -> None:
    page = (ROOT / "docs" / "secure-sum.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names: dict[str, object] = {}
    exec(compile(code, "secure-sum.md", "exec"), names)  # noqa: S102 - the page's own example
    total = names["total"]
    assert isinstance(total, np.ndarray)
    noise = sum(noise_share(30.0, 1.0, 3, 1, stream(0, "noise", name, 1), (4, 2)) for name in ("bank", "shop", "telco"))
    np.testing.assert_allclose(total, 3 / 8**0.5 + noise, atol=1e-3)
    for parties, shown in re.findall(r"^\| (\d+) \| 0 \| 0\.897 \| ([\d.]+) \|$", page, re.MULTILINE):
        assert f"{epsilon(math.sqrt(53) / effective_sigma(30.0, int(parties), 0).party):.3f}" == shown
