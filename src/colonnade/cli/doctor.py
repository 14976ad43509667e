"""`colonnade doctor`: what is installed, what the machine has, which data sets are there."""

from __future__ import annotations

import shutil
from dataclasses import asdict, dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TypedDict

from colonnade.cli.options import AsJson, DataDir
from colonnade.cli.screen import Screen
from colonnade.cli.systems import limits_of

EXTRAS = {  # extra -> modules it brings
    "cli": ("typer", "rich"),
    "report": ("matplotlib", "jinja2"),
    "tables": ("pandas", "pyarrow"),
    "images": ("PIL",),
    "deploy": ("nats", "cryptography"),
    "align": ("private_set_intersection",),
    "privacy": ("dp_accounting", "scipy", "cryptography"),
    "tune": ("optuna",),
    "trees": ("lightgbm",),
    "serve": ("fastapi", "uvicorn", "prometheus_client"),
}
DISTRIBUTION = {
    "PIL": "pillow",
    "nats": "nats-py",
    "private_set_intersection": "openmined-psi",
    "dp_accounting": "dp-accounting",
    "prometheus_client": "prometheus-client",
}  # where the name to install is another


@dataclass(frozen=True)
class Found:
    """A data set: where it is, or what is missing."""

    name: str
    place: str | None
    missing: tuple[str, ...] = ()


def doctor(data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Show versions, threads, GPU, optional parts, data sets, free disk, and what this system lacks. Changes nothing.

    Example: colonnade doctor --data-dir data
    """
    found = find_data(data_dir)
    facts: Facts = {
        **_versions(),
        "extras": _extras(),
        "data": [asdict(one) for one in found],
        "free_disk_bytes": shutil.disk_usage(Path.cwd()).free,
    }
    screen = Screen(as_json)
    screen.emit(facts)
    if screen.talks:
        _show(screen, facts, found)


class Versions(TypedDict):
    """What is installed, and on what."""

    colonnade: str
    python: str
    torch: str
    system: str
    threads: int
    gpus: list[str]
    limits: list[str]


class Extra(TypedDict):
    """Versions of the libraries of an extra, and those that are missing."""

    installed: dict[str, str]
    missing: list[str]


class LackingExtra(Extra, total=False):
    """The same with what gets them."""

    get: str


class Facts(Versions):
    """All that the doctor finds."""

    extras: dict[str, LackingExtra]
    data: list[dict[str, object]]
    free_disk_bytes: int


def _versions() -> Versions:
    import platform

    import torch

    from colonnade import __version__

    gpus = (
        [torch.cuda.get_device_name(n) for n in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
    )
    return {
        "colonnade": __version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "system": platform.platform(terse=True),
        "threads": torch.get_num_threads(),
        "gpus": gpus,
        "limits": list(limits_of(platform.system())),
    }


def _extras() -> dict[str, LackingExtra]:
    out: dict[str, LackingExtra] = {}
    for extra, modules in EXTRAS.items():
        names = {module: DISTRIBUTION.get(module, module) for module in modules}
        missing = [name for module, name in names.items() if find_spec(module) is None]
        versions = {name: metadata.version(name) for name in names.values() if name not in missing}
        out[extra] = {"installed": versions, "missing": missing}
        if missing:
            out[extra]["get"] = f"pip install 'colonnade[{extra}]'"
    return out


def find_data(data_dir: Path | None) -> list[Found]:
    """Every data set: the folder it was found in, or the files that are missing."""
    return [Found("digits", "comes with scikit-learn"), _mnist(data_dir), _cifar10(data_dir), _nus_wide(data_dir),
            _modelnet40(data_dir)]  # fmt: skip


def _mnist(data_dir: Path | None) -> Found:
    from colonnade.data.fetch import find, places
    from colonnade.data.sets.mnist import IMAGES, LABELS

    folders = places("mnist", data_dir)
    files = [file.name for kind in (IMAGES, LABELS) for file in kind.values()]
    at = {name: find(f"{name}.gz", folders) or find(name, folders) for name in files}
    missing = tuple(f"{name}.gz" for name, path in at.items() if path is None)
    some = next((path for path in at.values() if path), None)
    return Found("mnist", str(some.parent) if some and not missing else None, missing)


def _cifar10(data_dir: Path | None) -> Found:
    """The layouts of `cifar10_files`, in its order."""
    from colonnade.data.fetch import places
    from colonnade.data.sets.cifar10_files import ARCHIVE, BATCHES

    batches = [names[0] for names in BATCHES.values()]
    layouts = (
        ("", [*(f"{key}.webp" for key in BATCHES), "labels.npz"]),
        ("", batches), ("cifar-10-batches-py", batches),
        ("", [f"{name}.bin" for name in batches]), ("cifar-10-batches-bin", [f"{name}.bin" for name in batches]),
        ("", [ARCHIVE.name]),
    )  # fmt: skip
    begun: list[tuple[str, ...]] = []
    for folder in places("cifar10", data_dir):
        for inner, files in layouts:
            lacking = tuple(name for name in files if not (folder / inner / name).exists())
            if not lacking:
                return Found("cifar10", str(folder / inner))
            if len(lacking) < len(files):
                begun.append(lacking)
    return Found("cifar10", None, min(begun, key=len, default=(ARCHIVE.name,)))


def _nus_wide(data_dir: Path | None) -> Found:
    from colonnade.data.fetch import places
    from colonnade.data.sets.nus_wide import CONCEPTS, FEATURES, LABELS, MOST

    roots = [folder / inner for folder in places("nus_wide", data_dir) for inner in ("", "NUS_WIDE")]
    root = next((root for root in roots if (root / LABELS).is_dir()), None)
    if root is None:
        return Found("nus_wide", None, (LABELS,))
    low = "NUS_WID_Low_Level_Features/Low_Level_Features"
    low = low if (root / low).is_dir() else "Low_Level_Features"
    files = [
        name
        for part in MOST
        for name in (
            *(f"{LABELS}/Labels_{concept}_{part}.txt" for concept in CONCEPTS),
            *(f"{low}/{part}_Normalized_{kind}.dat" for kind in FEATURES),
            f"NUS_WID_Tags/{part}_Tags1k.dat",
        )
    ]
    missing = tuple(name for name in files if not (root / name).is_file())
    return Found("nus_wide", None if missing else str(root), missing)


def _modelnet40(data_dir: Path | None) -> Found:
    from colonnade.data.fetch import places
    from colonnade.data.sets.modelnet40 import BETWEEN

    for folder in places("modelnet40", data_dir):
        for root in (folder / inner for inner in BETWEEN):
            if any(root.glob("*/train")):
                return Found("modelnet40", str(root))
    return Found("modelnet40", None, ("<class>/train/<object>_<view>.png",))


def _show(screen: Screen, facts: Facts, sets: list[Found]) -> None:
    from colonnade.report.tables import Table
    from colonnade.report.words import size

    rows = [(name, str(facts.get(name))) for name in ("colonnade", "python", "torch", "system", "threads")]
    rows.append(("GPU", ", ".join(facts["gpus"]) or "none that torch can use"))
    rows.append(("free disk here", size(facts["free_disk_bytes"])))
    for extra, state in facts["extras"].items():
        versions = ", ".join(f"{name} {version}" for name, version in state["installed"].items())
        lacks = f"lacks {', '.join(state['missing'])}; get it: {state['get']}" if state["missing"] else ""
        rows.append((f"extra {extra!r}", "; ".join(text for text in (versions, lacks) if text)))
    screen.table(Table("This installation", ("what", "found"), tuple(rows), frozenset({0, 1})))
    for limit in facts["limits"]:
        screen.notify(f"on this system: {limit}")
    data = tuple((found.name, found.place or f"missing: {_some(found.missing)}") for found in sets)
    screen.table(Table("Data sets", ("name", "where"), data, frozenset({0, 1})))


def _some(names: tuple[str, ...] | list[str], most: int = 4) -> str:
    more = f" and {len(names) - most} more (--json lists all)" if len(names) > most else ""
    return ", ".join(names[:most]) + more
