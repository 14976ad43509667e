"""Callers: who may call over HTTP, and what. One file, written by `colonnade keys`, read by the process that serves.

A key is 32 random bytes, shown once. The file has a salted hash of it: who reads the file cannot call, and there is
nothing to guess that a slow hash would have to protect. It is read again when it changed, so a key that was
removed is refused from the next call on.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import secrets
import stat
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Literal, get_args

from colonnade.errors import ConfigError
from colonnade.folder import claimed
from colonnade.written import keep_file

Right = Literal["predict", "watch", "decide"]
RIGHTS: tuple[Right, ...] = get_args(Right)
MEANS: Mapping[Right, str] = {
    "predict": "ask for predictions, list the models",
    "watch": "see runs, presence, traffic and the ledger",
    "decide": "approve or refuse a run, as a person at this organisation",
}
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
FORMAT = 1
PREFIX = "clk_"  # by which a key is recognised where one should not be, e.g. in a log
MOST = 1000  # callers of one process: every call is held against all of them


@dataclass(frozen=True)
class Caller:
    """Somebody who may call."""

    name: str
    may: tuple[Right, ...]
    made: str  # when, in UTC
    salt: str
    hash: str

    def has(self, key: str) -> bool:
        """Whether the key is this caller's; takes as long for a wrong one."""
        return hmac.compare_digest(self.hash, _hashed(self.salt, key))


def _hashed(salt: str, key: str) -> str:
    return hashlib.sha256(f"{salt}:{key}".encode("utf-8", "surrogatepass")).hexdigest()


def read_callers(path: Path) -> tuple[Caller, ...]:
    """The callers in a file; none, where there is no file.

    Raises:
        ConfigError: it cannot be read, is not one, or others than its owner may write it.
    """
    try:
        with path.open("rb") as file:
            if os.name == "posix" and os.fstat(file.fileno()).st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                raise ConfigError(f"{str(path)!r}: others than its owner may write it; make it yours (chmod 600)")
            said = json.load(file)
        if said["format"] != FORMAT:
            raise ValueError(f"format {said['format']!r}")
        found = tuple(_caller(entry) for entry in said["callers"])
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise ConfigError(f"{str(path)!r} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{str(path)!r} is not a file of callers ({error!r}); put it back from a copy") from None
    return found


def _caller(entry: Mapping[str, object]) -> Caller:
    name, may = entry["name"], entry["may"]
    text = [entry[key] for key in ("made", "salt", "hash")]
    if not isinstance(name, str) or not NAME.fullmatch(name) or not isinstance(may, list):
        raise ValueError("a caller without a name or rights")
    if not all(isinstance(value, str) for value in text) or len(str(entry["hash"])) != 64:
        raise ValueError(f"the key of {name!r}")
    return Caller(name, tuple(_right(str(right)) for right in may), *map(str, text))


def _right(text: str) -> Right:
    for right in RIGHTS:
        if text == right:
            return right
    raise ValueError(f"a right {text!r}")


def add_caller(path: Path, name: str, may: Sequence[str]) -> str:
    """Let somebody call; the key, which is nowhere else.

    Raises:
        ConfigError: there is such a caller, the name or a right is not valid, or the file cannot be written.
    """
    if not NAME.fullmatch(name):
        raise ConfigError(
            f"caller {name[:80]!r}: a name has letters, digits, '_', '.' and '-', at most 64, and begins with one of "
            "the first two"
        )
    for right in may:
        if right not in RIGHTS:
            raise ConfigError(f"--may {right[:80]!r}: there is no such right; there are {', '.join(RIGHTS)}")
    if not may:
        raise ConfigError(f"caller {name!r} needs a right: --may with {', '.join(RIGHTS)}")
    rights, key, salt = tuple(r for r in RIGHTS if r in may), PREFIX + secrets.token_urlsafe(32), secrets.token_hex(16)
    made = datetime.now(timezone.utc).isoformat(timespec="seconds")
    new = Caller(name, rights, made, salt, _hashed(salt, key))

    def change(callers: tuple[Caller, ...]) -> tuple[Caller, ...]:
        if any(caller.name == name for caller in callers):
            raise ConfigError(f"there is a caller {name!r} already; remove it first, or choose another name")
        if len(callers) >= MOST:
            raise ConfigError(f"there are {MOST} callers already; remove one first")
        return (*callers, new)

    _change(path, change)
    return key


def remove_caller(path: Path, name: str) -> None:
    """Let somebody call no more; `ConfigError` if there is none of this name."""

    def change(callers: tuple[Caller, ...]) -> tuple[Caller, ...]:
        left = tuple(caller for caller in callers if caller.name != name)
        if len(left) == len(callers):
            known = ", ".join(caller.name for caller in callers) or "none"
            raise ConfigError(f"there is no caller {name[:80]!r}; there are: {known}")
        return left

    _change(path, change)


def _change(path: Path, change: Callable[[tuple[Caller, ...]], tuple[Caller, ...]]) -> None:
    """Nobody else changes the file meanwhile, and whoever reads it sees the old one or the new one."""
    with claimed(path.parent / f".{path.name}.changing"):
        callers = change(read_callers(path))
        text = json.dumps({"format": FORMAT, "callers": [asdict(caller) for caller in callers]}, indent=1) + "\n"
        try:
            keep_file(path, text.encode(), 0o600)
        except OSError as error:
            raise ConfigError(f"{str(path)!r} cannot be written: {error.strerror}") from None


class Callers:
    """The callers of a process that serves, as their file says now. Called from any thread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._seen: tuple[int, ...] | None = None
        self._known: tuple[Caller, ...] = ()
        self.known()

    def known(self) -> tuple[Caller, ...]:
        """All of them; `ConfigError` while the file cannot be read: then nobody may call."""
        with self._lock:
            seen = _state(self.path)
            if seen != self._seen:
                self._known, self._seen = (), None
                self._known = read_callers(self.path)
                self._seen = seen
            return self._known

    def who(self, key: str) -> Caller | None:
        """Whose key it is; as many comparisons whoever it is."""
        found = [caller for caller in self.known() if caller.has(key)]
        return found[0] if found else None

    def bearer(self, header: str | None) -> Caller | None:
        """Who sent an `Authorization: Bearer KEY` header."""
        kind, _, key = (header or "").partition(" ")
        return self.who(key.strip()) if kind.lower() == "bearer" and key.strip() else None


def _state(path: Path) -> tuple[int, ...]:
    """What changes when a file is replaced or written."""
    try:
        found = path.stat()
    except OSError:
        return ()
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_mode
