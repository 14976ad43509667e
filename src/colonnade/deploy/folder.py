"""A folder that one process works in at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from colonnade.errors import RunError


@contextmanager
def claimed(folder: Path) -> Iterator[Path]:
    """Make the folder if need be, for its owner only, and hold it; after any death the system lets go of it."""
    import fcntl  # where there is none (Windows), separate organisations are not supported

    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = (folder / ".lock").open("a")
    except OSError as error:
        raise RunError(f"the folder {str(folder)!r} cannot be used: {error.strerror}; choose another") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise RunError(
                f"another process works in {str(folder)!r}; stop it first, or give this one its own"
            ) from None
        yield folder
