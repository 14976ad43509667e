"""A folder that one process works in at a time, and what others are told about it meanwhile.

The lock is the operating system's: after any death of the process, also a kill, it is free. The file of the lock stays
and says nothing; only a lock on it does.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from colonnade.errors import RunError

LOCK = ".lock"
TRIES, PAUSE = 20, 0.01  # somebody who only asks whether the folder is in use holds the lock for a moment, too
BUSY = {errno.EAGAIN, errno.EACCES, errno.EDEADLK}  # somebody else holds it; any other error: no locks on this disk
LONGEST = 80  # bytes of a note

if sys.platform == "win32":
    import msvcrt

    def _take(file: int) -> None:
        os.lseek(file, 1 << 30, os.SEEK_SET)  # far behind the note, which others must be able to read
        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _take(file: int) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


@dataclass(frozen=True)
class Claim:
    """A folder that this process holds."""

    folder: Path
    file: int

    def note(self, text: str) -> None:
        """What others are told who find the folder in use: `still training, round 78 of 2000`, or nothing."""
        told = f"{text} (process {os.getpid()})".strip()
        with suppress(OSError):  # a full disk is told by whoever has something to lose on it
            os.lseek(self.file, 0, os.SEEK_SET)
            os.write(self.file, told.encode()[:LONGEST].ljust(LONGEST))


@contextmanager
def claimed(folder: Path, mode: int = 0o700, patience: float = TRIES * PAUSE) -> Iterator[Claim]:
    """Make the folder if need be, for its owner only unless `mode` says otherwise, and hold it.

    `patience`: seconds to wait for another process that holds it.

    Raises:
        RunError: another process holds it, or it cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=mode)
        file = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise RunError(f"the folder {str(folder)!r} cannot be used: {error.strerror}; choose another") from None
    try:
        if not _taken(file, max(1, round(patience / PAUSE))):
            raise RunError(f"{_told(folder, file)}; wait until it is done, stop it first, or choose another folder")
        claim = Claim(folder, file)
        claim.note("")
        yield claim
    finally:
        os.close(file)


def in_use(folder: Path) -> str | None:
    """A sentence about the process that works in a folder; None if there is none."""
    try:
        file = os.open(folder / LOCK, os.O_RDWR)
    except OSError:
        return None
    try:
        return None if _taken(file) else _told(folder, file)
    finally:
        os.close(file)  # which also frees the lock, if it was taken


def _taken(file: int, tries: int = 1) -> bool:
    """Whether the lock could be taken. Where the disk knows no locks, nobody can be kept out."""
    for left in reversed(range(tries)):
        try:
            _take(file)
            return True
        except OSError as error:
            if error.errno not in BUSY:
                return True
        if left:
            time.sleep(PAUSE)
    return False


def _told(folder: Path, file: int) -> str:
    os.lseek(file, 0, os.SEEK_SET)
    note = os.read(file, LONGEST).decode(errors="replace").strip()
    if note.startswith("still"):
        return f"{str(folder)!r} is {note}"
    return f"another process works in {str(folder)!r} {note}".rstrip()
