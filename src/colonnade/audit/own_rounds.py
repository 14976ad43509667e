"""The noise of the run's own parties in the run's own rounds: is it there each time, and another one each time?

Games and full shapes are played under names and round numbers of the audit's own, two parties at a time. A party that
gets no noise, a first round without any, the noise of one round again in a later one: such mistakes go by a name or a
number, and show only under these. So zeros are put into the mechanism as the run put uploads into it: all parties
together, round by round. What comes out is noise; it is tested by itself, and every two of them against each other.
Then a canary far longer than allowed, of every party, in the same rounds: none may leave longer than it may.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from colonnade.audit import noise
from colonnade.audit.checks import Check, judged, scipy, two_sided
from colonnade.audit.claims import Additive, Counts
from colonnade.audit.counts import BEYOND, too_even
from colonnade.audit.full_shape import LENGTHS, MOST_CELLS, TOLERANCE
from colonnade.audit.game import WHAT, directions
from colonnade.audit.noise import Seen
from colonnade.audit.shapes import Layout
from colonnade.privacy.mechanism import Mechanism
from colonnade.wire.numbers import Numbers

OWN_ROUNDS = "noise of each party and round"
MOST_DRAWS = 1000  # parties times rounds, every two of which are compared


def rounds_of(last: int, most: int) -> list[int]:
    """Of rounds 1 to `last` at most so many: the first ones, and others up to the last."""
    if last <= most:
        return list(range(1, last + 1))
    early = most // 2
    late = torch.linspace(early + 1, last, most - early).round().long().tolist() if most > early + 1 else [last]
    return sorted({*range(1, early + 1), *late})


def check_own_rounds(
    mechanism: Mechanism, layout: Layout, claim: Additive | Counts, numbers: Numbers, parties: Sequence[str], last: int
) -> Check:
    """Zeros of all parties in rounds of the run, which had `last` of them."""
    most = min(MOST_DRAWS, MOST_CELLS // layout.cells) // len(parties)
    rounds = rounds_of(last, max(2, most))
    middle = claim.trials / 2 if isinstance(claim, Counts) else 0.0

    def released(upload: Tensor) -> Tensor:
        every = layout.split(upload.expand(len(parties), -1))  # a row for each party, or one for all
        return torch.cat([layout.join(mechanism(every, parties, number, WHAT)) for number in rounds])

    zeros = torch.full((1, layout.cells), middle, dtype=torch.float64)
    along = directions(1, layout.cells, 0, signs=True)
    apart = 2.0 ** (-10 * (torch.arange(len(parties)) % 3)).double()[:, None]  # clipped together, one would show it
    seen, long = released(zeros), released(zeros + _far(claim, layout.cells) * apart * along)
    tests = [*_of_noise(seen, layout, claim, numbers), _of_length(long, layout, claim, numbers, along)]
    if isinstance(claim, Additive) and mechanism.event.repeatable:
        tests.append(_of_exact_length(Seen(long, claim, layout, numbers), Seen(seen, claim, layout, numbers)))
    several, each = f"{len(parties)} part{'y' if len(parties) == 1 else 'ies'}", f"{len(rounds):,} of {last:,} rounds"
    return judged(
        OWN_ROUNDS,
        tests,
        "a party of the run has LESS noise than the ledger says in one of its rounds, noise that was used before, or "
        "a LONGER upload than allowed",
        f"each of {several} has noise of its own in each round, and is cut to size there ({each})",
        parties=len(parties),
        rounds=len(rounds),
    )


def _of_noise(seen: Tensor, layout: Layout, claim: Additive | Counts, numbers: Numbers) -> Iterator[float]:
    """Each draw (K, D) by itself, the one that looks worst; then every two of them."""
    if isinstance(claim, Counts):
        yield too_even(seen, claim.trials)
        yield alike(seen - claim.trials / 2)
    else:
        yield from noise.too_small_each(Seen(seen, claim, layout, numbers))
        yield alike(seen)


def _far(claim: Additive | Counts, cells: int) -> float:
    """How long a canary is: far beyond anything allowed, and far from overflow in float32."""
    reach = BEYOND * claim.trials * cells if isinstance(claim, Counts) else LENGTHS[0] * claim.reach(cells)
    return min(reach, torch.finfo(torch.float32).max / 2**10)


def _of_length(seen: Tensor, layout: Layout, claim: Additive | Counts, numbers: Numbers, along: Tensor) -> float:
    """How far canaries (K, D) left along themselves, the one that went farthest."""
    if isinstance(claim, Counts):
        toward = (seen * along.sign()).sum(dim=1) + claim.trials * float((along < 0).sum())
        chance, trials = 0.5 + claim.theta, claim.trials * layout.cells
        return min(1.0, len(seen) * float(scipy("stats").binom.sf(float(toward.max()) - 1, trials, chance)))
    far = Seen(seen, claim, layout, numbers).far.norm(dim=1)
    excess = float(((seen @ along[0]) - far).max()) - claim.reach(layout.cells)
    return min(1.0, len(seen) * float(scipy("stats").norm.sf(excess / claim.deviation)))


def _of_exact_length(long: Seen, seen: Seen) -> float:
    """Noise that can be drawn again is taken off canaries: none may be longer than allowed, and chance has no part."""
    rest = (long.values - seen.values).norm(dim=1) - long.far.norm(dim=1) - seen.far.norm(dim=1)
    return 0.0 if float(rest.max()) > long.claim.reach(long.values.shape[1]) * (1 + TOLERANCE) else 1.0


def alike(draws: Tensor) -> float:
    """The p-value of the two draws (K, D) whose signs are most often the same, or most often opposite."""
    signs = draws.sign().float()
    tosses, product = signs.abs() @ signs.abs().T, signs @ signs.T
    far = (product.abs() / tosses.clamp(min=1).sqrt()).fill_diagonal_(0.0)
    count = len(draws)
    if count < 2 or not bool(far.any()):
        return 1.0
    one, other = divmod(int(far.argmax()), count)
    fair, same = int(tosses[one, other]), int((tosses[one, other] + product[one, other]) / 2)
    return min(1.0, count * (count - 1) / 2 * two_sided(same, fair))
