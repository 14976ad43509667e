"""Where temporary files go that may be larger than memory."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

ON_DISK, MOUNTS = Path("/var/tmp"), Path("/proc/self/mounts")
NAMED = ("TMPDIR", "TEMP", "TMP")  # how a user names a folder for temporary files


def temporary_folder() -> Path:
    """The folder for temporary files; /var/tmp where the usual one is kept in memory and the user named no other."""
    usual = Path(tempfile.gettempdir())
    if any(os.environ.get(name) for name in NAMED) or not _in_memory(usual):
        return usual
    return ON_DISK if os.access(ON_DISK, os.W_OK) and not _in_memory(ON_DISK) else usual


def _in_memory(folder: Path) -> bool:
    """Whether a folder is on a file system that takes memory; False where the system does not say."""
    try:
        mounts = [line.split()[1:3] for line in MOUNTS.read_text().splitlines()]
    except OSError:
        return False
    above = [(point, kind) for point, kind in mounts if folder.resolve().is_relative_to(point)]
    return bool(above) and max(above, key=lambda one: len(one[0]))[1] in ("tmpfs", "ramfs")
