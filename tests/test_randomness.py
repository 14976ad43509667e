"""Initial weights come from torch's global generator, whoever else uses it at the same time."""

from __future__ import annotations

import threading

import torch
from torch import Tensor

from colonnade.randomness import seeded


def make() -> list[Tensor]:
    return [torch.randn(50) for _ in range(200)]


def test_parties_in_threads_of_one_process_get_the_weights_they_would_get_alone() -> None:
    names = [f"party_{number}" for number in range(4)]
    alone = {name: seeded(make, 0, "init", name) for name in names}
    together: dict[str, list[Tensor]] = {}
    start = threading.Barrier(len(names))

    def work(name: str) -> None:
        start.wait()
        together[name] = seeded(make, 0, "init", name)

    threads = [threading.Thread(target=work, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(a, b) for name in names for a, b in zip(alone[name], together[name], strict=True))


def test_the_global_generator_is_left_as_it_was() -> None:
    before = torch.get_rng_state()
    seeded(make, 0, "init", "party_0")
    assert torch.equal(torch.get_rng_state(), before)
