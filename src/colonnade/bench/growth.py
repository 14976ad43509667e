"""How cost grows with the number of parties, and memory with the number of rounds."""

from __future__ import annotations

import torch

from colonnade.bench.clock import medians, resident_mb
from colonnade.bench.made_up import make_federation, one_round, open_trainer
from colonnade.bench.settings import Notify, SpeedSettings


def cost_growth(settings: SpeedSettings, device: torch.device, notify: Notify) -> dict[str, float | None]:
    """Microseconds per party and row at several numbers of parties, and the worst growth from fewer to more."""
    rounds = {}
    for parties in settings.growth:
        notify(f"a round with {parties} parties")
        shape = settings.growth_shape.model_copy(update={"parties": parties})
        rounds[str(parties)] = one_round(open_trainer(shape, make_federation(shape), device))
    taken = medians(rounds, settings.growth_rounds, device)
    rows = settings.growth_shape.batch
    cost = [1e6 * taken[str(parties)] / (parties * rows) for parties in settings.growth]
    worst = max(later / earlier for i, earlier in enumerate(cost) for later in cost[i + 1 :])
    named = {f"us_per_party_row_{parties}": c for parties, c in zip(settings.growth, cost, strict=True)}
    return {"cost_growth": worst, **named}


def memory_growth(settings: SpeedSettings, device: torch.device, notify: Notify) -> dict[str, float | None]:
    """Resident memory gained between two rounds of one training. Ledger, history and byte counter do grow."""
    first, last = settings.memory_rounds
    notify(f"memory from round {first} to round {last}")
    shape = settings.memory_shape
    step = one_round(open_trainer(shape, make_federation(shape), device))
    for _ in range(first):
        step()
    before = resident_mb()
    for _ in range(last - first):
        step()
    after = resident_mb()
    return {"memory_growth_mb": None if before is None or after is None else after - before}
