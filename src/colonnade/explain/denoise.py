"""Client denoising: one party's columns are noise, in training and after; does the model notice, and who does best?

And detection: against an earlier or a clean point, which party's weight fell by more than those of the others?
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import cast

from colonnade.data.corrupt import add_noise
from colonnade.errors import ConfigError
from colonnade.explain.explain import weigh
from colonnade.explain.explanation import Denoised, Fallen
from colonnade.explain.ranks import places
from colonnade.explain.retrain import Again
from colonnade.explain.settings import TRAINING_NOISE, ExplainSettings, published_noise
from colonnade.federation import Federation
from colonnade.methods import make_method
from colonnade.methods.base import Method

OTHERS = ("split_learning", "vafl")  # what the paper compares with
# When a fall is no accident; how often this is wrong was measured: docs/explain.md, "Detection".
CLEAR = 2.5  # robust deviations below the others' change
LEAST_FALL = 0.95  # and down to at most this share of what the others' change explains
LEAST_PLACES = 2  # and so many places lost: one is lost as soon as a neighbour gains


@dataclass(frozen=True)
class Fall:
    """A party that lost weight; places count from 1, the heaviest."""

    party: str
    place_before: int
    place_after: int
    ratio: float  # its weight now, relative to before and to how all weights changed


def fallen(parties: Sequence[str], before: Sequence[float], after: Sequence[float]) -> list[Fall]:
    """Parties whose weight fell clearly against the others', and with it their place; the worst first.

    Weights of two trainings differ by a common factor and a little by chance. The median over parties takes out the
    first, the median deviation measures the second. Of two parties neither can fall against the others.
    """
    if not len(parties) == len(before) == len(after):
        raise ConfigError(
            f"{len(parties)} parties, {len(before)} weights before and {len(after)} after; needed as many"
        )
    tiny = 1e-12 * max(*before, *after, 1e-300)
    change = [math.log(max(a, tiny) / max(b, tiny)) for b, a in zip(before, after, strict=True)]
    centre = median(change)
    spread = 1.4826 * median(abs(c - centre) for c in change)
    limit = -max(CLEAR * spread, -math.log(LEAST_FALL))
    was, now = places(before), places(after)
    found = [
        Fall(party, was[k], now[k], math.exp(change[k] - centre))
        for k, party in enumerate(parties)
        if change[k] - centre < limit and now[k] - was[k] >= LEAST_PLACES
    ]
    return sorted(found, key=lambda fall: fall.ratio)


def rivals(method: Method, federation: str) -> dict[str, Method]:
    """The run's own method and those the paper compares with, as published where the paper has the data set."""
    name = federation.partition("-")[0]
    preset = f"paper:{name}" if name in TRAINING_NOISE else None
    others = {other: make_method(other, preset=preset) for other in OTHERS if other != method.name}
    return {method.name: method, **others}


def denoise(
    again: Again,
    federation: Federation,
    party: str,
    *,
    norm: Sequence[float] | None,
    methods: Mapping[str, Method],
    std: float | None = None,
    lengths: Sequence[int] = (),
    seed: int = 0,
) -> Denoised:
    """Train every method with one noisy party; the first one's weights are compared with `norm`, the clean ones.

    Args:
        again: how to train, and which rows judge.
        federation: clean; noise is put on all rows of the party.
        party: whose columns become noisy.
        norm: the weights of the clean run, in federation order; None: no detection.
        methods: by name.
        std: of the noise, in units of the columns; None: the paper's, else 1.
        lengths: rounds after which scores are taken; each is a training. None given: a fifth, half and all of them.
        seed: of the noise.
    """
    if getattr(again.run.method, "reads_bins", False):
        raise ConfigError("columns are cut into bins: no noise can be added to the number of a bin")
    level = std if std is not None else published_noise(federation.name, TRAINING_NOISE) or 1.0
    noisy = add_noise(federation, party, level, seed)
    rounds = again.run.training.rounds
    lengths = sorted(set(lengths or (math.ceil(rounds / 5), math.ceil(rounds / 2), rounds)))
    found: Denoised = {
        "party": party, "std": level, "rows": again.rows, "lengths": list(lengths), "scores": {},
        "norm_before": None if norm is None else list(norm), "norm_after": None, "fallen": [],
    }  # fmt: skip
    first = next(iter(methods))
    for name, method in methods.items():
        runs = [again.train(noisy, f"{name}, noisy {party}", method=method, rounds=n) for n in lengths]
        found["scores"][name] = [again.score(run) for run in runs]
        if name == first and norm is not None:
            found["norm_after"] = weigh(runs[-1], noisy, ExplainSettings(uncovered=again.uncovered))
    if norm is not None and found["norm_after"] is not None:
        found["fallen"] = [cast(Fallen, asdict(fall)) for fall in fallen(federation.names, norm, found["norm_after"])]
    return found
