"""The chain of a ledger: every line is hashed together with the hash of the line before.

    chain(n) = SHA-256( chain(n - 1), newline, line n as JSON, keys in order, without its own chain )
    chain(0) = 64 zeros

So whoever changes, removes, inserts or moves a line, or the time in it, has to write every later hash anew. The chain
alone stops nobody who does that: between organisations the last hash is signed (`Head`) with the certificate's key.

What a chain says is a function of the lines from the first one on. Lines that an earlier version wrote have no hash;
the first line after them covers them, too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

LEDGER = "ledger.jsonl"
HEAD = "ledger.head.json"  # beside it: the signed end of its chain, between organisations
GENESIS = "0" * 64
CHAIN = "chain"  # what a line calls its hash
_HEAD = b"colonnade ledger head 1\n"  # so that nothing else that is signed can pass for a head

StoredLine = dict[str, Any]  # of a ledger, as it lies in a file, whatever somebody made of it
SignHead = Callable[[int, str], Mapping[str, Any]]  # number of lines and last hash -> a signed head, for JSON


def now() -> str:
    """This moment by this machine's clock, in UTC, as ledgers have it."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def link(before: str, line: Mapping[str, Any]) -> str:
    """The hash of a line that comes after the line with the hash `before`."""
    told = {name: value for name, value in line.items() if name != CHAIN}
    if isinstance(told.get("parameters"), (list, tuple)):  # 3 and 3.0 are the same when a ledger is written again
        told["parameters"] = [[name, float(value)] for name, value in told["parameters"]]
    plain = json.dumps(told, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(f"{before}\n{plain}".encode()).hexdigest()


def linked(lines: Iterable[Mapping[str, Any]], before: str = GENESIS) -> Iterator[StoredLine]:
    """Lines with their hashes; one that has a hash keeps it, so that nothing is put right that was changed."""
    for line in lines:
        before = str(line.get(CHAIN) or link(before, line))
        yield {**line, CHAIN: before}


def last(lines: Iterable[Mapping[str, Any]]) -> str:
    """The hash of the last line, whether or not the lines have theirs."""
    before = GENESIS
    for line in linked(lines):
        before = line[CHAIN]
    return before


@dataclass(frozen=True)
class Head:
    """What is signed: how many lines there are, and the hash of the last of them, by the clock of whoever signs."""

    run: str
    signer: str
    entries: int
    head: str
    time: str

    @property
    def payload(self) -> bytes:
        """The bytes to sign."""
        return _HEAD + json.dumps(vars(self), sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Head:
        """From a signed head as it is stored; `ValueError` if it is none."""
        texts = {name: values.get(name) for name in ("run", "signer", "head", "time")}
        entries = values.get("entries")
        if type(entries) is not int or not all(isinstance(text, str) for text in texts.values()):
            raise ValueError("it does not say how many entries it covers, and whose it is")
        return cls(str(texts["run"]), str(texts["signer"]), entries, str(texts["head"]), str(texts["time"]))


@dataclass(frozen=True)
class Walk:
    """A chain, followed from the first line to the last."""

    hashes: tuple[str, ...]  # of every line, as they should be
    unlinked: int  # lines at the beginning without a hash: an earlier version wrote them
    misfit: int | None = None  # the first line (from 1) that does not fit
    reason: str = ""

    @property
    def head(self) -> str:
        """The hash of the last line."""
        return self.hashes[-1] if self.hashes else GENESIS


def walk(lines: Iterable[Mapping[str, Any]]) -> Walk:
    """Follow the chain; the first line that does not fit is named, and what comes after it is not looked at."""
    before, hashes, unlinked = GENESIS, list[str](), 0
    for number, line in enumerate(lines, 1):
        found = line.get(CHAIN)
        try:
            before = link(before, line)
        except (TypeError, ValueError):
            return Walk(tuple(hashes), unlinked, number, "its parameters are no list of names and numbers")
        if found is None and unlinked == number - 1:
            unlinked = number
        elif found is None:
            return Walk(tuple(hashes), unlinked, number, "it has no hash, and lines before it do")
        elif found != before:
            told = "its hash does not follow from its content and the lines before it: one of them was changed, "
            return Walk(tuple(hashes), unlinked, number, told + "added, removed or moved")
        hashes.append(before)
    return Walk(tuple(hashes), unlinked)
