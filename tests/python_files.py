"""Python files that are no part of a package: tools, and what the site is made with."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType


def as_module(path: Path) -> ModuleType:
    """A file as a module, made anew by every call."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
