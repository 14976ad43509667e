"""Local steps of convolutional parties: the eager float32 reference, and the faster ways to compute them."""

from __future__ import annotations

import torch
from torch import Tensor

from colonnade.bench.clock import medians
from colonnade.bench.made_up import local_work, make_federation, open_trainer
from colonnade.bench.settings import Notify, SpeedSettings
from colonnade.models.computing import Computing

EAGER, FAST = Computing(), Computing("bfloat16", compile=True)
OTHERS = {"tf32": Computing("tf32"), "compiled_tf32": Computing("tf32", compile=True)}


def compare_cnn_steps(
    settings: SpeedSettings, device: torch.device, notify: Notify, fast: Computing = FAST
) -> dict[str, float | None]:
    """Milliseconds of one local step of all parties, and how far one step of the fast way ends from the reference.

    `cnn_step_gap` is the distance between the two ends in units of the way that the reference went.
    """
    notify("local steps of convolutional parties")
    shape, federation = settings.cnn, make_federation(settings.cnn)
    ways = {"eager": EAGER, "fast": fast} | (OTHERS if device.type == "cuda" else {})
    works, ends = {}, {}
    for name, computing in ways.items():
        trainer = open_trainer(shape, federation, device, computing=computing)
        encoder, work = trainer.engine.parties()[0].cohort.encoder, local_work(shape, trainer)
        start = _flat(encoder.parameters)
        work(1)
        ends[name] = _flat(encoder.parameters)
        works[name] = lambda work=work: work(shape.local_steps)
    gap = (ends["fast"] - ends["eager"]).norm() / (ends["eager"] - start).norm()
    taken = medians(works, settings.steps, device)
    step = {name: 1e3 * value / shape.local_steps for name, value in taken.items()}
    others = {f"{name}_cnn_step_ms": value for name, value in step.items() if name not in ("eager", "fast")}
    return {
        "cnn_step_ratio": step["eager"] / step["fast"],
        "cnn_step_ms": step["fast"],
        "eager_cnn_step_ms": step["eager"],
        **others,
        "cnn_step_gap": float(gap),
    }


def _flat(parameters: dict[str, Tensor]) -> Tensor:
    return torch.cat([value.detach().flatten() for value in parameters.values()])
