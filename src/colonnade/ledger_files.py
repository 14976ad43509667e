"""Ledgers as files, for auditors: what is in one, whether its chain holds, and whose signature is under it.

    party.db                            at a party: the ledger and its signed end, in one transaction
    ledger.jsonl, ledger.head.json      of a finished run, a model, a party's export: lines, and the signed end
    run.db                              of a run that has not ended yet

Nothing here loads a model, and nothing is written: files are read as they are, whatever somebody made of them.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from colonnade.errors import ConfigError, IdentityError, RunError
from colonnade.identity.credentials import check_signature, read_authority
from colonnade.privacy.chain import HEAD, LEDGER, Head, Walk, walk
from colonnade.privacy.chain import StoredLine as Line
from colonnade.record import RECORD, STORE

PARTY_STORE, PARTY_RECORD = "party.db", "party.json"


@dataclass(frozen=True)
class LedgerFile:
    """The lines of one ledger, as somebody finds them."""

    path: Path  # of the file that they stand in
    lines: list[Line] = field(repr=False)
    signed: Mapping[str, Any] | None = field(repr=False)
    deployed: bool  # between organisations, where the end is signed
    damaged: str = ""  # what is wrong with the line after the last one here


@dataclass(frozen=True)
class Verdict:
    """What was found about a ledger."""

    path: Path
    entries: int
    unlinked: int  # entries at the beginning that an earlier version wrote without a hash
    head: str
    head_signed: Head | None  # its signature holds, and covers every entry; None: unsigned, or nothing is proved
    authority: Path | None  # against which the signature was held
    place: int | None = None  # of the first entry that does not fit
    problem: str = ""  # "": all fits

    def to_json(self) -> dict[str, object]:
        """Plain values."""
        signed = self.head_signed
        return {
            "file": str(self.path),
            "entries": self.entries,
            "without_hash": self.unlinked,
            "head": self.head,
            "signed_by": signed.signer if signed else None,
            "signed_at": signed.time if signed else None,
            "run": signed.run if signed else None,
            "authority": str(self.authority) if self.authority else None,
            "fits": not self.problem,
            "entry": self.place,
            "problem": self.problem or None,
        }


# -- reading ------------------------------------------------------------------------------------


def open_ledger(place: Path) -> LedgerFile:
    """The ledger of a folder (or the one in a file).

    Raises:
        RunError: there is none, or its file cannot be read at all.
    """
    if place.is_file():
        return _from_file(place, signed_beside(place), deployed=False) if place.suffix != ".db" else _from_store(place)
    if (place / PARTY_STORE).exists():
        return _from_store(place / PARTY_STORE)
    if (place / LEDGER).exists():
        deployed = (place / PARTY_RECORD).exists() or _engine(place) == "nats"
        return _from_file(place / LEDGER, signed_beside(place / LEDGER), deployed)
    if (place / STORE).exists():
        return _from_store(place / STORE)
    raise RunError(f"{place} has no ledger; needed the folder of a run, a model or a party")


def signed_beside(path: Path) -> Mapping[str, Any] | None:
    """The signed end in the folder of a ledger; None, where there is none."""
    try:
        found = json.loads((path.parent / HEAD).read_text(encoding="utf-8")) if path.name == LEDGER else None
    except FileNotFoundError:
        return None
    except ValueError:
        return {}  # which no signature is under
    return found if found is None or isinstance(found, dict) else {}


def decisions_beside(path: Path) -> list[Mapping[str, Any]]:
    """What people decided about the run of a ledger, as their organisation signed it; by file."""
    found: list[Mapping[str, Any]] = []
    for kept in sorted(path.parent.glob("decision-*.json")):
        try:
            said = json.loads(kept.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            said = None
        found.append(said if isinstance(said, dict) else {"file": kept.name, "problem": "it cannot be read"})
    return found


def _from_file(path: Path, signed: Mapping[str, Any] | None, deployed: bool) -> LedgerFile:
    lines: list[Line] = []
    try:
        with path.open("rb") as file:
            for text in file:
                line = json.loads(text)
                if not isinstance(line, dict):
                    raise ValueError("it is no object")
                lines.append(line)
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:  # UnicodeDecodeError is one
        return LedgerFile(path, lines, signed, deployed, f"it cannot be read ({error})")
    return LedgerFile(path, lines, signed, deployed)


def _from_store(path: Path) -> LedgerFile:
    """From a database that somebody else may be writing: nothing is locked, and nothing is made."""
    db = sqlite3.connect(f"file:{quote(str(path.resolve()))}?mode=ro", uri=True)
    lines: list[Line] = []
    try:
        tables = {name for (name,) in db.execute("select name from sqlite_master where type = 'table'")}
        if not {"ledger", "about"} <= tables:
            raise RunError(f"{path} is no store of a run; needed {STORE} or {PARTY_STORE}")
        (about,) = db.execute("select body from about").fetchone() or ("{}",)
        head = db.execute("select body from head").fetchone() if "head" in tables else None
        deployed = path.name == PARTY_STORE or "agreement" in json.loads(about)
        signed = json.loads(head[0]) if head else None
        for number, (place, body) in enumerate(db.execute("select id, body from ledger order by id"), 1):
            line = json.loads(body)
            if place != number or not isinstance(line, dict):
                told = "its number is not that of its place" if place != number else "it is no object"
                return LedgerFile(path, lines, signed, deployed, told)
            lines.append(line)
        return LedgerFile(path, lines, signed, deployed)
    except ValueError as error:
        return LedgerFile(path, lines, {}, True, f"it cannot be read ({error})")
    except sqlite3.Error as error:
        raise RunError(f"{path} cannot be read ({error}); restore it from a copy") from None
    finally:
        db.close()


def _engine(folder: Path) -> object:
    try:
        return json.loads((folder / RECORD).read_text(encoding="utf-8"))["about"]["engine"]
    except (OSError, ValueError, KeyError, TypeError):
        return None


# -- verifying ----------------------------------------------------------------------------------


def verify(ledger: LedgerFile, authority: Path | None = None, noted: str = "") -> Verdict:
    """Follow the chain and check the signature; the first entry that does not fit is named.

    Args:
        ledger: as it was found.
        authority: the certificate of the authority that signers are held against. With it a signature is needed.
        noted: a hash that somebody noted earlier (`head`, or the first letters of it): it must be in the chain.

    Raises:
        ConfigError: there is a signature, and no authority to hold it against.
    """
    found = walk(ledger.lines)
    place, problem = _in_the_chain(ledger, found, noted)
    head, proved = None, None
    if not problem and (ledger.signed is not None or ledger.deployed or authority is not None):
        head, place, problem = _signature(ledger, found, authority)
        proved = authority
    return Verdict(
        ledger.path,
        len(ledger.lines),
        found.unlinked,
        found.head,
        head if not problem else None,
        proved,
        place,
        problem,
    )


def _in_the_chain(ledger: LedgerFile, found: Walk, noted: str) -> tuple[int | None, str]:
    lines = ledger.lines
    if found.misfit is not None:
        return found.misfit, found.reason
    if ledger.damaged:
        return len(lines) + 1, ledger.damaged
    if lines and found.unlinked == len(lines) and ledger.signed is None:
        return (
            1,
            "no entry has a hash: an earlier version wrote them, or somebody took the hashes out; nothing is proved",
        )
    if noted and not any(one.startswith(noted) for one in found.hashes):
        return (
            None,
            f"the hash {noted[:16]} that was noted earlier is not in the chain: entries were changed or removed",
        )
    other = _store_beside(ledger)
    return (None, "") if other is None else _held_together(found, other)


def _held_together(found: Walk, other: LedgerFile) -> tuple[int | None, str]:
    """The first entry of two files of one ledger that is not the same in both, or does not fit in the other one."""
    beside = walk(other.lines)
    for number, (here, there) in enumerate(zip(found.hashes, beside.hashes, strict=False), 1):
        if here != there:
            return number, f"{other.path.name} has another one in its place"
    if beside.misfit is not None:
        return beside.misfit, f"in {other.path.name}, {beside.reason}"
    if other.damaged:
        return len(other.lines) + 1, f"in {other.path.name}, {other.damaged}"
    return None, ""


def _store_beside(ledger: LedgerFile) -> LedgerFile | None:
    """What else a folder says of the same entries; the longer one is read first."""
    folder, name = ledger.path.parent, ledger.path.name
    if name == PARTY_STORE and (folder / LEDGER).exists():
        return _from_file(folder / LEDGER, None, False)
    if name == LEDGER and (folder / STORE).exists():
        return _from_store(folder / STORE)
    return None


def _signature(ledger: LedgerFile, found: Walk, authority: Path | None) -> tuple[Head | None, int | None, str]:
    lines, signed = ledger.lines, ledger.signed
    if signed is None:
        missing = "between organisations the end of a ledger is signed, and the signature is missing"
        return None, None, missing if lines else ""
    if authority is None:
        raise ConfigError(
            "the ledger is signed, and a signature proves nothing without the authority that knows the signer; "
            "name its certificate with --authority ca.crt"
        )
    try:
        head = Head.from_json(signed)
        moment = datetime.fromisoformat(head.time.replace("Z", "+00:00"))
        check_signature(head.payload, signed, head.signer, read_authority(authority), moment)
    except (IdentityError, ValueError) as error:
        return None, None, f"the signature of the end does not hold: {error}"
    return head, *_covers(head, found, lines)


def _covers(head: Head, found: Walk, lines: Sequence[Line]) -> tuple[int | None, str]:
    stranger = next((n for n, line in enumerate(lines, 1) if line.get("owner") != head.signer), None)
    if stranger is not None:
        return (
            stranger,
            f"it is of {str(lines[stranger - 1].get('owner'))[:64]!r}, and {head.signer!r} signed the ledger",
        )
    if head.entries > len(lines):
        return len(lines) + 1, f"it is missing: {head.entries} entries were signed, and {len(lines)} are there"
    if head.entries and found.hashes[head.entries - 1] != head.head:
        return head.entries, "it is not the one that was signed"
    if head.entries < len(lines):
        return (
            head.entries + 1,
            "the signature does not cover it: a process died before it signed, or somebody added it",
        )
    return None, ""


# -- showing ------------------------------------------------------------------------------------


@dataclass
class Group:
    """Entries that say the same of what left."""

    owner: str
    purpose: str
    mechanism: str
    audience: str
    releases: int = 0
    rows: int = 0
    bytes: int | None = None  # of those that say so; None: no entry does
    first: str = ""  # times; "": no entry says one
    last: str = ""

    def add(self, line: Mapping[str, Any]) -> None:
        """Count one more."""
        self.releases += 1
        self.rows += _whole(line.get("rows"))
        if "size" in line:
            self.bytes = (self.bytes or 0) + _whole(line["size"])
        if time := str(line.get("time") or ""):
            self.first, self.last = min(self.first or time, time), max(self.last, time)


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0


def groups(lines: Sequence[Line]) -> list[Group]:
    """A ledger in short: by owner, purpose, mechanism and audience, in the order in which they first occur."""
    found: dict[tuple[str, str, str, str], Group] = {}
    for line in lines:
        owner, purpose, mechanism, audience = (str(line.get(n)) for n in ("owner", "purpose", "mechanism", "audience"))
        key = (owner, purpose, mechanism, audience)
        found.setdefault(key, Group(*key)).add(line)
    return list(found.values())


def of_party(lines: Sequence[Line], party: str) -> list[tuple[int, Line]]:
    """Entries with their numbers; with a party's name those that it sent, and those that it could read."""
    numbered = list(enumerate(lines, 1))
    if not party:
        return numbered
    known = {str(line.get(end)) for line in lines for end in ("owner", "audience")} - {"*"}
    if party not in known:
        raise ConfigError(f"no entry is of or for {party!r}; there are {', '.join(sorted(known)) or 'no entries'}")
    return [(n, line) for n, line in numbered if party == line.get("owner") or line.get("audience") in (party, "*")]


FIELDS = (
    "entry", "time", "owner", "audience", "purpose", "round", "rows", "mechanism", "unit", "parameters", "bytes",
    "callers",
)  # fmt: skip


def flat(number: int, line: Mapping[str, Any]) -> dict[str, object]:
    """An entry as one row of a table, under `FIELDS`, `digest` and `chain`."""
    told = " ".join(f"{name}={value:g}" for name, value in _pairs(line.get("parameters")))
    names = {"round": "number", "bytes": "size"}
    cells = {name: line.get(names.get(name, name), "") for name in (*FIELDS, "digest", "chain")}
    callers = " ".join(f"{name}={rows:g}" for name, rows in _pairs(line.get("callers")))
    return cells | {"entry": number, "parameters": told, "callers": callers}


def _pairs(parameters: object) -> Iterator[tuple[str, float]]:
    for pair in parameters if isinstance(parameters, list) else ():
        if isinstance(pair, list) and len(pair) == 2 and isinstance(pair[1], (int, float)):
            yield str(pair[0]), pair[1]
