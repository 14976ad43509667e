"""Packages that are installed for one test: files in a folder on the path, as pip would have put them there."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from colonnade.config import read_toml

PLUGIN = Path(__file__).parent / "plugin"


def install(site: Path, name: str, entry_points: Mapping[str, Mapping[str, str]]) -> None:
    """The metadata of a package `name` that offers these entry points, by group."""
    info = site / f"{name.replace('-', '_')}-0.1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1\n", encoding="utf-8")
    lines = [
        f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in points.items()) for group, points in entry_points.items()
    ]
    (info / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")


def install_toy(site: Path) -> Path:
    """The toy package of tests/plugin, from its own pyproject.toml."""
    project = read_toml(PLUGIN / "pyproject.toml")["project"]
    install(site, project["name"], project["entry-points"])
    shutil.copytree(PLUGIN / "src", site, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    return site


def environment(site: Path) -> dict[str, str]:
    """For a process that finds the packages in `site`, and whatever this one finds."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), *filter(None, sys.path)])}
