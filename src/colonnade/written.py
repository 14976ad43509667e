"""Files that are written whole or not at all, whatever kills the process or the machine."""

from __future__ import annotations

import os
from pathlib import Path


def replace_file(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Write beside, flush to disk, rename: a reader sees the old file or the new one. `mode`, less the umask."""
    beside = path.with_name(path.name + ".part")
    beside.unlink(missing_ok=True)  # of an interrupted writing, perhaps with another mode
    with open(beside, "wb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


def keep_file(path: Path, content: bytes, mode: int = 0o666) -> None:
    """The same, and it is still the new one after a power cut: for what a person decided or asked for."""
    replace_file(path, content, mode)
    if os.name == "posix":  # elsewhere no folder can be opened
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
