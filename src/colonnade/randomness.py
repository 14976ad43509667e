"""Named random streams: no global generator anywhere.

A stream is addressed by (seed, purpose, party, number). The same address gives the same
numbers in every engine, on every device and after a resume, because no generator state
is ever kept. The generator is NumPy's Philox with a 128-bit key taken from SHA-256 of
the address: torch's own CPU generator uses only 32 bits of its seed, so its streams
collide from about 65,000 on, and noise drawn from it can be searched back.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import threading
from collections.abc import Callable
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

T = TypeVar("T")
_GLOBAL = threading.RLock()  # torch's global generator: parties may live in threads of one process


def key(seed: int, purpose: str, party: str = "", number: int = 0) -> int:
    """The 128-bit key of one stream; different addresses give unrelated keys."""
    address = json.dumps([int(seed), purpose, party, int(number)]).encode()
    return int.from_bytes(hashlib.sha256(address).digest()[:16], "little")


def stream(seed: int, purpose: str, party: str = "", number: int = 0) -> np.random.Generator:
    """The generator at one address."""
    return np.random.Generator(np.random.Philox(key=key(seed, purpose, party, number)))


def system_stream() -> np.random.Generator:
    """A generator that the operating system has keyed, and that nobody can repeat: for noise that protects."""
    return np.random.Generator(np.random.Philox(key=secrets.randbits(128)))


def permutation(rows: Tensor, seed: int, purpose: str, number: int = 0) -> Tensor:
    """`rows` in an order that depends only on the address."""
    order = stream(seed, purpose, number=number).permutation(len(rows))
    return rows[torch.from_numpy(order)]


def dropout_key(seed: int, party: str, number: int = 0) -> int:
    """A 62-bit key for `KeyedDropout`, which mixes it with element and draw numbers."""
    return key(seed, "dropout", party, number) >> 66


def seeded(make: Callable[[], T], seed: int, purpose: str, party: str = "") -> T:
    """Call a factory that draws from torch's global generator, without disturbing it.

    Only for the initial weights of modules that users bring: there torch's 32-bit seed
    is a nuisance, not a leak.
    """
    number = key(seed, purpose, party) >> 65
    with _GLOBAL, torch.random.fork_rng(devices=[]):
        if torch.accelerator.is_available():
            torch.manual_seed(number)
        else:  # without one torch would remember each call, with its traceback, for the day when there is one
            torch.default_generator.manual_seed(number)
        return make()


def draws(act: Callable[[], object]) -> bool:
    """Whether an act draws from torch's global generator, which is left as it was."""
    with _GLOBAL, torch.random.fork_rng(devices=[]):
        before = torch.random.get_rng_state()
        act()
        return not torch.equal(before, torch.random.get_rng_state())
