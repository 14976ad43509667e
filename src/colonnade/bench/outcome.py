"""What a benchmark showed: results beside their targets, on which machine, from which commit."""

from __future__ import annotations

import json
import math
import os
import platform
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from colonnade.bench.catalogue import CHECKOUT, Limit
from colonnade.config import build
from colonnade.errors import ConfigError

DIGITS = 6  # significant digits of a result
Curve = tuple[tuple[int, float], ...]  # rounds, and a figure after each


@dataclass(frozen=True)
class Findings:
    """What a benchmark found: figures, and curves where one figure is not enough."""

    results: Mapping[str, float | None]
    curves: Mapping[str, Curve] = field(default_factory=dict)


@dataclass(frozen=True)
class Line:
    """One result as people read it."""

    key: str
    result: float | None
    target: Limit | None

    @property
    def ok(self) -> bool | None:
        """Whether the target is met; None where there is none."""
        return None if self.target is None else self.target.holds(self.result)

    def words(self) -> tuple[str, str, str, str]:
        """Key, result, target and verdict, for a table."""
        result = "-" if self.result is None else f"{self.result:.4g}"
        verdict = "" if self.ok is None else ("yes" if self.ok else "NO")
        return self.key, result, str(self.target or ""), verdict


@dataclass(frozen=True)
class Outcome:
    """Results, targets and where they were measured."""

    bench: str
    results: Mapping[str, float]
    targets: Mapping[str, Limit]
    machine: Mapping[str, Any]
    commit: str
    curves: Mapping[str, Curve] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """Every target is met."""
        return all(limit.holds(self.results.get(key)) for key, limit in self.targets.items())

    def lines(self) -> list[Line]:
        """Every result and every target, those with a target first."""
        keys = [*self.targets, *(key for key in self.results if key not in self.targets)]
        return [Line(key, self.results.get(key), self.targets.get(key)) for key in keys]

    def to_json(self) -> dict[str, object]:
        """Plain values: what `--json` prints and `--out` writes."""
        return {
            "bench": self.bench,
            "results": dict(self.results),
            "targets": {key: limit.to_json() for key, limit in self.targets.items()},
            "passed": self.passed,
            "machine": dict(self.machine),
            "commit": self.commit,
            **(
                {"curves": {key: [list(point) for point in curve] for key, curve in self.curves.items()}}
                if self.curves
                else {}
            ),
        }


def tidy(results: Mapping[str, float | None]) -> dict[str, float]:
    """Results with a few digits; what could not be measured is left out (and fails its target)."""
    known = {key: value for key, value in results.items() if value is not None and math.isfinite(value)}
    return {key: float(f"{value:.{DIGITS}g}") for key, value in known.items()}


def check_out(path: Path) -> None:
    """Refuse a place that cannot be written before hours are spent on what should go there."""
    if path.is_dir() or not path.resolve().parent.is_dir():
        raise ConfigError(f"--out {str(path)!r}: needed a file in a folder that exists")


def check_part(path: Path, bench: str, device: str) -> None:
    """Refuse to add some cases to a file whose other cases were measured elsewhere, or from another commit."""
    check_same(Outcome(bench, {}, {}, machine(device), commit()), path)


def check_same(part: Outcome, path: Path) -> None:
    """Refuse a file of another benchmark, commit or machine than these results; none is as good as one of the same."""
    if not path.exists():
        return
    there, here = read(path), (part.bench, part.commit, place_of(part.machine))
    if (there.bench, there.commit, place_of(there.machine)) != here:
        raise ConfigError(
            f"{str(path)!r} holds {there.bench} of commit {there.commit}, {place_of(there.machine)}; cases of "
            f"{', '.join(here)} do not belong to it: name another file, or measure all cases anew"
        )


def place_of(machine: Mapping[str, Any]) -> str:
    """What figures of one file must have in common; of a machine with a GPU the processor does not matter."""
    return f"{machine['gpu'] or machine['cpu']}, torch {machine['torch']}"


def joined(part: Outcome, path: Path) -> Outcome:
    """The outcome of some cases together with those that the file holds; `check_part` says that they belong."""
    if not path.exists():
        return part
    there = read(path)
    results, curves = {**there.results, **part.results}, {**there.curves, **part.curves}
    return replace(part, results=results, curves=curves)


def write(outcome: Outcome, path: Path) -> None:
    """The outcome as a JSON file, whole or not at all."""
    beside = path.with_name(path.name + ".part")
    beside.write_text(json.dumps(outcome.to_json(), indent=2) + "\n", encoding="utf-8")
    beside.replace(path)


def read(path: Path) -> Outcome:
    """The outcome that a JSON file holds.

    Raises:
        ConfigError: it holds none.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        targets = {key: build(Limit, limit, f"{path.name}: target {key}") for key, limit in found["targets"].items()}
        curves = {key: tuple((int(n), float(v)) for n, v in c) for key, c in found.get("curves", {}).items()}
        return Outcome(found["bench"], found["results"], targets, found["machine"], found["commit"], curves)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path} is no result of a benchmark ({error!r}); measure it again") from None


def machine(device: str) -> dict[str, object]:
    """What was measured on; no names of hosts or folders."""
    gpu = torch.cuda.get_device_name(torch.device(device)) if device.startswith("cuda") else None
    return {
        "cpu": _cpu(),
        "cores": torch.get_num_threads(),  # those that were used
        "memory_gb": _memory_gb(),
        "gpu": gpu,
        "device": device,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
    }


def _cpu() -> str:
    for line in _read("/proc/cpuinfo").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _memory_gb() -> float | None:
    for line in _read("/proc/meminfo").splitlines():
        if line.startswith("MemTotal"):
            return round(int(line.split()[1]) * 1024 / 1e9, 1)
    return None


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError:  # not Linux
        return ""


def commit(root: Path = CHECKOUT) -> str:
    """The commit of the checkout, "-dirty" if sources or benchmarks differ from it.

    Outside git, what COLONNADE_COMMIT says (for a copy on a machine without git), else "unknown".
    """
    top = _git(root, "rev-parse", "--show-toplevel")
    head = _git(root, "rev-parse", "--verify", "HEAD")
    if not head or not top or Path(top).resolve() != root.resolve():  # an installed package inside another checkout
        return os.environ.get("COLONNADE_COMMIT", "unknown")
    # What is made from outcomes is no part of what was measured.
    made = [f":!benchmarks/{name}" for name in ("results", "unfinished", "README.md")]
    changed = _git(root, "status", "--porcelain", "--", "src", "benchmarks", *made)
    return head + ("-dirty" if changed else "")


def _git(root: Path, *words: str) -> str:
    try:
        done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()
