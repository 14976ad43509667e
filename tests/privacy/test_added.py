"""Noise meets an upload: by party and at once, as the formula says; drawn ahead, every release has its own draw."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from scipy import stats
from torch import Tensor

from colonnade.privacy import added, normal
from colonnade.privacy.added import AddedNoise, Draw
from colonnade.privacy.bounded import BoundedGaussian
from colonnade.privacy.gaussian import Gaussian, SeededNoise, SystemNoise
from colonnade.privacy.grid import clip_factors, factors_at_once, step_of
from colonnade.privacy.normal import cipher_normals

PARTIES = ("bank", "telco", "clinic")
CLIP, SIGMA, BOUND, SEED = 1.0, 10.0, 0.7, 5
KEY = bytes(range(32))


def upload(dtype: torch.dtype, rows: int = 40) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(2)
    return {name: torch.randn(3, rows, width, generator=generator).to(dtype) for name, width in (("h", 5), ("o", 2))}


def slowly(values: dict[str, Tensor], number: int, bounded: bool) -> dict[str, np.ndarray]:
    """The formula of `grid.py`, one party and one array after the other."""
    deviation = SIGMA * CLIP
    step, out = step_of(deviation), {name: np.empty(value.shape) for name, value in values.items()}
    for place, party in enumerate(PARTIES):
        mine = {name: value[place].double().numpy() for name, value in values.items()}
        flat = np.concatenate([value.ravel() for value in mine.values()])
        noise = SeededNoise(SEED).generator(party, number, "TRAIN.0").standard_normal(flat.size)
        clipped = np.clip(flat, -BOUND, BOUND)
        if not bounded:
            clipped = flat * float(clip_factors(torch.from_numpy(flat[None]), CLIP)[0, 0])
        sums = step * (np.trunc(clipped / step) + np.round(noise * (deviation / step)))
        for name, part in zip(mine, np.split(sums, [mine["h"].size]), strict=True):
            out[name][place] = part.reshape(mine[name].shape)
    return out


@pytest.mark.parametrize("rows", [40, 6000], ids=["few", "in threads and pieces"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("bounded", [False, True], ids=["gaussian", "bounded"])
def test_both_ways_are_the_formula_to_the_last_bit(bounded: bool, dtype: torch.dtype, rows: int) -> None:
    values, source = upload(dtype, rows), SeededNoise(SEED)
    mechanism = BoundedGaussian(BOUND, SIGMA * CLIP, 7, source) if bounded else Gaussian(CLIP, SIGMA, source)
    expected = slowly(values, 3, bounded)
    by_party = mechanism(values, PARTIES, 3, "TRAIN.0")
    with pytest.MonkeyPatch.context() as patch:  # as if they were on a GPU
        patch.setattr(AddedNoise, "add_by_party", AddedNoise.add_at_once)
        at_once = mechanism(values, PARTIES, 3, "TRAIN.0")
    for name, value in values.items():
        wanted = torch.from_numpy(expected[name]).to(dtype)
        assert by_party[name].dtype == dtype and at_once[name].dtype == dtype
        assert torch.equal(by_party[name], wanted) and torch.equal(at_once[name], wanted)
        assert not torch.equal(value, wanted)


@pytest.mark.parametrize("scale", [1e-170, 1e-3, 1.0, 1e6, 1e160])
@pytest.mark.parametrize("clip", [1e-3, 3.7])
def test_norms_of_all_at_once_are_not_longer_than_promised_by_a_bit(clip: float, scale: float) -> None:
    x = scale * np.random.default_rng(0).standard_normal((8, 300))
    x[0] = 0
    factors = factors_at_once(torch.from_numpy(x), clip)
    assert torch.allclose(factors, clip_factors(torch.from_numpy(x), clip), rtol=1e-13, atol=0)
    for mine, factor in zip(x, factors[:, 0].tolist(), strict=True):
        assert sum((Fraction(float(v)) ** 2 for v in mine * factor), Fraction(0)) <= Fraction(clip) ** 2


class Counted:
    """Every draw is another whole number of steps, so that one that is used twice would be seen."""

    def __init__(self) -> None:
        self.numbers = itertools.count(1)  # taking the next one is a single step of the interpreter

    def normals(self, parties: Sequence[str], number: int, what: str, count: int, deviation: float) -> Tensor:
        return torch.full((1, count), float(next(self.numbers)), dtype=torch.float64)


def released(noise: AddedNoise, parties: Sequence[str], number: int, cells: int = 4) -> list[float]:
    nothing = {"h": torch.zeros(len(parties), 1, cells, dtype=torch.float64)}
    plain: Callable[[Tensor], Tensor] = lambda x: x.new_ones(len(x), 1)  # noqa: E731
    out = noise.add_at_once(nothing, Draw(tuple(parties), number, "TRAIN.0", cells), plain)["h"]
    return (out[:, 0, 0] / noise.step).tolist()


def test_drawn_ahead_every_release_has_a_draw_of_its_own() -> None:
    noise = AddedNoise(Counted(), 10.0)
    asked = [(PARTIES, 1), (PARTIES, 2), (PARTIES, 3), (PARTIES[:2], 4), (PARTIES[:2], 5), (PARTIES, 7), (PARTIES, 7)]
    seen = [value for parties, number in asked for value in released(noise, parties, number)]
    assert len(set(seen)) == len(seen)


def test_it_is_drawn_ahead_once_two_releases_were_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[int] = []
    begin = AddedNoise._begin
    monkeypatch.setattr(
        AddedNoise, "_begin", lambda self, draw, at: (begun.append(draw.number), begin(self, draw, at))[1]
    )
    noise = AddedNoise(Counted(), 10.0)
    for number, then in (
        (1, [1]),
        (2, [1, 2, 3]),
        (3, [1, 2, 3, 4]),
        (9, [1, 2, 3, 4, 9]),
        (10, [1, 2, 3, 4, 9, 10, 11]),
    ):
        released(noise, PARTIES, number)
        assert begun == then


def test_drawn_ahead_or_not_the_numbers_of_an_address_are_the_same() -> None:
    """As after a restart, which begins without anything drawn ahead."""
    kept = AddedNoise(SeededNoise(SEED), 10.0)
    for number in (1, 2, 3, 4):
        assert released(kept, PARTIES, number) == released(AddedNoise(SeededNoise(SEED), 10.0), PARTIES, number)
    assert kept._next[PARTIES][1] is not None, "nothing was drawn ahead, so nothing is compared"


def test_groups_that_release_in_turn_are_each_drawn_ahead() -> None:
    noise, groups = AddedNoise(Counted(), 10.0), (PARTIES[:1], PARTIES[1:])
    seen = [value for number in (1, 2, 3) for group in groups for value in released(noise, group, number)]
    assert len(set(seen)) == len(seen)
    assert all(noise._next[group][1] is not None for group in groups)


def test_what_is_kept_in_mind_does_not_grow_with_the_choices_of_parties() -> None:
    noise = AddedNoise(Counted(), 10.0)
    for number in range(1, 40):
        released(noise, (f"party{number}",), number)
    assert len(noise._next) == added.GROUPS


def test_a_draw_that_was_forgotten_does_not_arrive_in_place_of_a_later_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads are slow: a draw is made when it is waited for, and one that nobody waited for arrives last of all."""
    late: list[Callable[[], None]] = []

    def beside(work: Callable[[int], None], count: int) -> Callable[[], None]:
        def draw() -> None:
            if draw in late:
                late.remove(draw)
                for place in range(count):
                    work(place)

        late.append(draw)
        return draw

    monkeypatch.setattr(added, "beside", beside)
    noise = AddedNoise(SeededNoise(SEED), 10.0)
    for number in (1, 2):
        released(noise, PARTIES, number)
    assert len(late) == 1, "nothing was drawn ahead, so nothing can be forgotten"
    for group in range(added.GROUPS):
        released(noise, (f"group{group}",), 1)
    assert PARTIES not in noise._next
    coming = noise._begin(Draw(PARTIES, 9, "TRAIN.0", 4), torch.device("cpu"))
    coming.drawn()
    for draw in list(late):
        draw()
    fresh = AddedNoise(SeededNoise(SEED), 10.0)._begin(Draw(PARTIES, 9, "TRAIN.0", 4), torch.device("cpu"))
    assert torch.equal(coming.arrived(), fresh.arrived())


def test_a_draw_that_fails_releases_nothing() -> None:
    class Broken(Counted):
        def normals(self, *address: object, **_: object) -> Tensor:
            raise OSError("no entropy")

    noise = AddedNoise(Broken(), 10.0)
    for number in (1, 2, 3):
        with pytest.raises(OSError, match="no entropy"):
            released(noise, PARTIES, number)


# -- the cipher's numbers, under a key that is known -------------------------------------------------------------------


def by_the_book(count: int, deviation: float, pairs: int, before: int = 0) -> list[float]:
    """Box and Muller with `math`, from the cipher's bits in one piece behind so many words; so many pairs at once."""
    even = count + count % 2
    bits = Cipher(AES(KEY), CTR(bytes(16))).encryptor().update(bytes(8 * (before + even)))[8 * before :]
    words = [int.from_bytes(bits[place : place + 8], "little") % 2**52 for place in range(0, len(bits), 8)]
    out = []
    for start in range(0, even, 2 * pairs):
        some = words[start : start + 2 * pairs]
        half = len(some) // 2
        radii = [deviation * math.sqrt(-2 * math.log((word + 0.5) / 2**52)) for word in some[:half]]
        turns = [2 * math.pi * (1 + word / 2**52) for word in some[half:]]
        out += [r * math.cos(a) for r, a in zip(radii, turns, strict=True)]
        out += [r * math.sin(a) for r, a in zip(radii, turns, strict=True)]
    return out[:count]


@pytest.fixture
def known_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(normal.secrets, "token_bytes", lambda count: KEY[:count])


@pytest.mark.usefixtures("known_key")
@pytest.mark.parametrize("count", [1, 2, 16, 17, 47, 1000])
def test_the_ciphers_numbers_are_those_of_the_book(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(normal, "PAIRS", 8)
    drawn = cipher_normals(2, count, 3.0)
    assert torch.allclose(drawn[0], torch.tensor(by_the_book(count, 3.0, 8), dtype=torch.float64), rtol=0, atol=1e-13)
    assert torch.equal(drawn[0], drawn[1])  # the same key, so the same numbers, wherever they lie in memory


@pytest.mark.usefixtures("known_key")
def test_the_ciphers_numbers_have_the_law_of_normal_numbers_across_pieces() -> None:
    """The same numbers in every run of this test: neighbours, halves of pairs, tails and the whole law."""
    many = 4 * normal.PAIRS + 1000
    drawn = cipher_normals(1, many)[0].numpy()
    assert stats.kstest(drawn, "norm").pvalue > 0.01
    assert all(stats.kstest(part, "norm").pvalue > 0.001 for part in np.array_split(drawn, 8))
    for far in (2.0, 3.0, 4.0):
        expected = 2 * stats.norm.sf(far) * many
        assert abs((np.abs(drawn) > far).sum() - expected) < 4 * np.sqrt(expected) + 1
    for lag in (1, normal.PAIRS, 2 * normal.PAIRS):
        for power in (1, 2):
            one, other = drawn[:-lag] ** power, drawn[lag:] ** power
            assert abs(np.corrcoef(one, other)[0, 1]) < 4 / np.sqrt(len(one))
    steps = np.rint(drawn * 2**20).astype(np.int64)  # on the grid: low bits are fair
    for bit in range(8):
        assert abs((steps >> bit & 1).mean() - 0.5) < 2 / np.sqrt(many)


@pytest.mark.usefixtures("known_key")
@pytest.mark.parametrize("cells", [1, 2, 17, 1000])
def test_bits_that_a_device_turns_are_the_same_noise(cells: int) -> None:
    """The way of a GPU, on this processor: bits drawn in a thread, all turned at once, rounded to whole steps."""
    noise, source = AddedNoise(SystemNoise(), 10.0), SystemNoise()
    draw = Draw(PARTIES, 1, "TRAIN.0", cells)
    steps = noise._steps_of(noise.begin_words(source, draw, torch.device("cpu")).arrived(), draw)
    even = cells + cells % 2
    rows = [by_the_book(cells, noise.in_steps, cells, before=place * even) for place in range(3)]
    assert torch.equal(steps, torch.tensor(rows, dtype=torch.float64).round())


def test_bits_come_under_a_new_key_for_every_release_and_differ_between_parties() -> None:
    noise, source = AddedNoise(SystemNoise(), 10.0), SystemNoise()
    draw, nowhere = Draw(PARTIES, 1, "TRAIN.0", 5000), torch.device("cpu")
    rows = torch.cat([noise._steps_of(noise.begin_words(source, draw, nowhere).arrived(), draw) for _ in range(2)])
    assert len(set(rows.flatten().tolist())) > 0.99 * rows.numel()
    assert 0.9 < float(rows.std()) / noise.in_steps < 1.1


def test_threads_begin_at_a_size_that_the_tests_reach() -> None:
    assert added.WORTH_A_THREAD <= 6000 * 7 and added.PIECE < 6000 * 7
