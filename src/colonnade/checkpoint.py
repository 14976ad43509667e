"""Checkpoints: what a run is, committed round by round, and put back after a kill."""

from __future__ import annotations

import hashlib
import platform
import warnings
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import metadata
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from colonnade.engines.own_code import own_code, shapes_of
from colonnade.federation import Federation, Party
from colonnade.models.crossfit import regressors_of
from colonnade.record import About, Described, Machine, Partial, PartyAbout
from colonnade.store import Store
from colonnade.wire.traffic import Traffic

if TYPE_CHECKING:
    from colonnade.fit import Trainer


def describe(trainer: Trainer) -> Described:
    """What the run is: enough to open it again."""
    f, s = trainer.federation, trainer.federation.split
    method = trainer.coordinator.method
    described = {
        "federation": f.name,
        "parties": [_about_party(p) for p in f.parties],
        "groups": [list(g.parties) for g in trainer.coordinator.schema.groups],
        **f.task.about(),
        "rows": {"train": len(s.train), "validation": len(s.validation), "test": len(s.test)},
        "data": fingerprint(f),
        "engine": trainer.engine.name,
        "ways": list(trainer.engine.ways),
        "machine": machine(trainer.coordinator.schema.device, _libraries(trainer)),
    }
    about = cast(About, described)  # a TypedDict cannot be made of another's keys
    if f.partial:
        about["partial"] = _partial(f)
    if f.weights is not None:
        about["row_weights"] = True
    if s.stratified:
        about["stratified"] = True
    here = {name for side in trainer.engine.parties() for name in side.cohort.names}
    shapes = {name: shape for name, shape in shapes_of(f).items() if name in here}
    if own := own_code(method, shapes, trainer.encoders, trainer.training.seed):
        about["own_code"] = own
    about.update(cast(About, trainer.regrouped))
    return {
        "id": trainer.id,
        "method": {"name": method.name, "settings": method.model_dump()},
        "training": trainer.training.model_dump(),
        "model": trainer.model.model_dump(),
        "privacy": trainer.privacy.model_dump(),
        "own_encoders": trainer.encoders is not None,
        "data": about["data"],
        "ways": list(trainer.engine.ways),
        "config": trainer.config,
        "about": about,
    }


def _about_party(party: Party) -> PartyAbout:
    """Name and shape; and whether its columns came as whole numbers, which a network that begins with tokens reads."""
    about: PartyAbout = {"name": party.name, "shape": list(party.columns.shape[1:])}
    if not party.columns.is_floating_point():
        about["integers"] = True
    return about


def machine(device: torch.device, libraries: Iterable[str] = ()) -> Machine:
    """What rounding depends on, besides the numbers; `libraries` are those that grow local models."""
    found: Machine = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "device": str(device),
        "threads": torch.get_num_threads(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
    }
    if versions := {library: _version(library) for library in sorted(libraries)}:
        found["libraries"] = versions
    return found


def _libraries(trainer: Trainer) -> set[str]:
    """What the local models of this process, or the coordinator's part, are grown by, besides torch."""
    encoders = [side.cohort.encoder for side in trainer.engine.parties()]
    members = [member for encoder in encoders for member in regressors_of(encoder)]
    growing = [trainer.coordinator.method, *members]
    return {str(library) for member in growing if (library := getattr(member, "library", None)) is not None}


def _version(library: str) -> str:
    """Of the package that brings a module, which may have another name; nothing is imported for what a file names."""
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        packages = _packages_by_module().get(library)
        return metadata.version(packages[0]) if packages else "not installed"


@cache
def _packages_by_module() -> Mapping[str, list[str]]:
    """From all that is installed, which takes a tenth of a second."""
    return metadata.packages_distributions()


def warn_of_another_machine(began: Machine, device: torch.device) -> None:
    """Say by name what differs from the machine that a run began on: a restart is only identical on the same one."""
    now, then = (_flat(one) for one in (machine(device, began.get("libraries", {})), began))
    changed = [
        f"{name} {value} there, {now[name]} here"
        for name, value in then.items()
        if name != "python" and value != now.get(name)
    ]
    if changed:
        warnings.warn(
            f"this run began elsewhere ({'; '.join(changed)}): it goes on correctly, but its last bits may differ from "
            "those of a run that was never interrupted",
            stacklevel=3,
        )


def _flat(machine: Machine) -> dict[str, object]:
    """A machine with its libraries by name."""
    return {name: value for name, value in machine.items() if name != "libraries"} | machine.get("libraries", {})


def warn_of_other_bits(training: Mapping[str, Any], device: torch.device) -> None:
    """Say why a restart on the same machine may still end in other bits: `training` as it was stored."""
    if training.get("compile"):
        why = "its local steps are compiled (training.compile)"
    elif "precision" not in training and device.type == "cuda":
        why = "it began before training.precision, when convolutions on a GPU were tf32; now they are float32"
    else:
        return
    warnings.warn(
        f"this run goes on correctly, but its last bits may differ from those of one that was never interrupted: {why}",
        stacklevel=3,
    )


def _partial(federation: Federation) -> Partial:
    """How many training rows are complete, have a label, and are held by each party."""
    train, known = federation.split.train, federation.labelled
    return {
        "complete": int(federation.complete[train].sum()),
        "labelled": len(train) if known is None else int(known[train].sum()),
        "held": {p.name: len(train) if p.held is None else int(p.held[train].sum()) for p in federation.parties},
    }


def commit(trainer: Trainer, store: Store) -> None:
    """Write the state after the last round, and what it added, in one transaction."""
    c, written = trainer.coordinator, trainer.written
    tensors = {f"coordinator/{k}": v for k, v in c.tensors().items()}
    tensors |= {f"engine/{k}": v for k, v in trainer.engine.tensors().items()}
    store.commit(
        {**c.facts(), "seconds": trainer.seconds, "diverged": trainer.diverged},
        tensors,
        history=c.history[written["history"] :],
        traffic=c.traffic.to_json(written["traffic"], until=c.number),
        ledger=trainer.ledger.since(written["ledger"]),
    )
    _mark_written(trainer)


def restore(trainer: Trainer, store: Store) -> None:
    """Go on from the last commit, if there is one."""
    saved = store.snapshot()
    if saved is None:
        return

    def part(prefix: str) -> dict[str, Tensor]:
        return {k.removeprefix(prefix): v for k, v in saved.tensors.items() if k.startswith(prefix)}

    c = trainer.coordinator
    c.restore(part("coordinator/"), saved.facts)
    c.history = saved.history
    c.traffic = Traffic.from_json(c.schema.parties, saved.traffic)
    trainer.engine.restore(part("engine/"))
    trainer.ledger.put_back(saved.ledger)
    trainer.seconds, trainer.diverged = saved.facts["seconds"], saved.facts["diverged"]
    _mark_written(trainer)


def _mark_written(trainer: Trainer) -> None:
    c = trainer.coordinator
    done = sum(r.number <= c.number for r in c.traffic.rounds)  # the next request is sealed, but not answered yet
    trainer.written = {"history": len(c.history), "traffic": done, "ledger": len(trainer.ledger)}


def _columns(party: Party) -> Tensor:
    """Whole numbers as the float32 that they once were kept as, so that a run on them can still be resumed."""
    values = party.columns
    if values.is_floating_point() or (values.numel() and int(values.abs().max()) >= 2**24):
        return values
    return values.to(torch.float32)


def fingerprint(federation: Federation) -> str:
    """SHA-256 over all columns, labels, weights, split and who holds what: resuming on other data is refused."""
    digest = hashlib.sha256()
    split = federation.split
    for name, tensor in [
        *((p.name, _columns(p)) for p in federation.parties),
        ("labels", federation.labels),
        ("train", split.train),
        ("validation", split.validation),
        ("test", split.test),
        *(
            (name, mask)
            for name, mask in (
                ("held", federation.held),
                ("labelled", federation.labelled),
                ("weights", federation.weights),
            )
            if mask is not None
        ),
    ]:
        digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().data)
    return digest.hexdigest()
