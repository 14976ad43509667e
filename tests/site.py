"""Packages that are installed for one test: files in a folder on the path, as pip would have put them there."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from colonnade.config import read_toml
from colonnade.evaluate.metrics import METRICS
from colonnade.methods import METHODS
from colonnade.models.encoders import REGRESSORS
from colonnade.plugins import Table
from colonnade.privacy.registry import ALONE
from colonnade.tasks import TASKS
from tests.processes import warm

PLUGIN = Path(__file__).parent / "plugin"
TABLES: tuple[Table[Any], ...] = (METHODS, TASKS, METRICS, ALONE, REGRESSORS)


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


def inside(site: Path, folder: Path, code: str) -> str:
    """What Python code prints in a process that finds the packages in `site`, and whatever this one finds."""
    with warm().Pool(1) as pool:
        return str(pool.apply(_perform, (str(site), folder, code)))


def _perform(site: str, folder: Path, code: str) -> str:
    sys.path.insert(0, site)
    for table in TABLES:
        vars(table).pop("offered", None)  # as in a process that has not looked for packages yet
    os.chdir(folder)
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(code, {})  # noqa: S102 - of the test
    return out.getvalue()
