"""Short trainings of every method, written down once: a change of the code must not change their numbers.

`python -m tests.golden.trajectories` writes them again; do that only where the mathematics changed on purpose, and say
so in the commit. float64 and one thread, so that other processors agree to many digits, but not to the last one.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from tests.contracts.registry import EVERY, fitting, make
from tests.federations import small
from tests.trainers import open_trainer

FILE = Path(__file__).with_name("trajectories.json")
DIGITS = 12


def trajectory(name: str) -> dict[str, Any]:
    """What a method's history said round by round, and its final outputs for the test rows."""
    federation, method = fitting(name, small()), make(name, local_steps=2, folds=10)
    options: dict[str, Any] = {"rounds": 7, "evaluate_every": 2, "schedule": {"batch": 20}, "engine": "loop", "seed": 3}
    run = open_trainer(federation, method, **options).train()
    rows = federation.split.test
    held = federation.pooled() if method.pools else federation
    outputs = run.logits({party.name: party.columns[rows] for party in held.parties})
    return {
        "history": [{k: _plain(v) for k, v in entry.items() if k != "seconds"} for entry in run.history],
        "test_score": run.result["test_score"],
        "bytes": [run.traffic.up, run.traffic.down],
        "outputs": [[_plain(value) for value in row] for row in outputs.tolist()],
    }


def _plain(value: Any) -> Any:
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


if __name__ == "__main__":
    torch.set_num_threads(1)
    FILE.write_text(json.dumps({name: trajectory(name) for name in EVERY}, indent=None, separators=(",", ":")) + "\n")
