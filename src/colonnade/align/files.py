"""Alignment files: what every side keeps, written whole or not at all.

    alignment.csv    row,id: the rows this side holds, in order of their numbers
    presence.csv     row and a column of 0 and 1 per party: who holds it (label holder, keep = "partial")
    alignment.json   everything else, with the digests of the files above; written last
    former/          alignments with other parties that this one replaced, each in a folder (label holder)

The digest in alignment.json is the same on all sides of one alignment, and different for any other. An alignment that
was extended (`more.py`) also says what was agreed on before, step by step: each names the digest of the one before.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from colonnade.align.match import Agreed, MatchReport
from colonnade.errors import DataError, MissingData, RowsDisagree

ABOUT, ROWS, PRESENCE = "alignment.json", "alignment.csv", "presence.csv"
FORMER = "former"
FORMAT = 1


@dataclass(frozen=True)
class Step:
    """An alignment that was extended: what was agreed on, what this side was told of it, and when."""

    agreed: Agreed
    report: MatchReport
    time: str


@dataclass(frozen=True)
class Alignment:
    """One side's view of agreed rows."""

    me: str  # "coordinator" at the label holder
    agreed: Agreed
    rows: np.ndarray = field(repr=False)  # (R,) row numbers, ascending; 0..R-1 at the label holder
    ids: tuple[str, ...] = field(repr=False)  # the id of each of them
    presence: Mapping[str, np.ndarray] | None = field(repr=False)  # per party, (R,) booleans; label holder only
    report: MatchReport  # of an extension: about the ids that had no row before
    former: tuple[Step, ...] = ()  # the alignments that it extends, the oldest first
    time: str = ""  # when it was written; empty: it was not

    @property
    def name(self) -> str:
        """The alignment's name."""
        return self.agreed.name

    @property
    def digest(self) -> str:
        """The same on all sides."""
        return self.agreed.digest

    @property
    def complete(self) -> int:
        """Rows 0..complete-1 are held by all."""
        return self.agreed.complete

    @property
    def extends(self) -> tuple[str, ...]:
        """The digests of all alignments whose rows are among these, with the numbers they had."""
        return tuple(step.agreed.digest for step in self.former)

    def rows_of(self, ids: Collection[str]) -> np.ndarray:
        """(K,) the row numbers of those of these ids that have one, ascending."""
        wanted = frozenset(ids)
        if not wanted:  # the usual case, and there may be millions of rows
            return np.empty(0, dtype=np.int64)
        chosen: np.ndarray = self.rows[np.fromiter((id in wanted for id in self.ids), dtype=bool, count=len(self.ids))]
        return chosen

    def as_of(self, digest: str) -> Alignment:
        """The alignment as it was under this digest: itself, or one that it extends.

        Raises:
            RowsDisagree: it is an extension of no such alignment.
        """
        if digest == self.digest:
            return self
        if digest not in self.extends:
            raise RowsDisagree(
                f"the alignment {self.digest[:12]} is no extension of {digest[:12]}: its row numbers are other ids"
            )
        at = self.extends.index(digest)
        step, kept = self.former[at], self.rows < self.former[at].agreed.rows
        held = {name: column[kept] for name, column in (self.presence or {}).items()}
        rows, presence = self.rows[kept], held if self.presence is not None else None
        ids = self.ids[: len(rows)]
        return Alignment(self.me, step.agreed, rows, ids, presence, step.report, self.former[:at], step.time)


@dataclass(frozen=True)
class Heading:
    """What an alignment is, without its rows."""

    agreed: Agreed
    former: tuple[Agreed, ...] = ()

    @property
    def name(self) -> str:
        """The alignment's name."""
        return self.agreed.name

    @property
    def digest(self) -> str:
        """The same on all sides."""
        return self.agreed.digest

    @property
    def extends(self) -> tuple[str, ...]:
        """The digests of all alignments whose rows are among these."""
        return tuple(step.digest for step in self.former)


class _Step(BaseModel):
    """What alignment.json says of an alignment that was extended."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    agreed: Agreed
    report: dict[str, object]
    time: str

    def read(self) -> Step:
        return Step(self.agreed, MatchReport.from_json(self.report), self.time)


class _About(BaseModel):
    """alignment.json."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[1]
    me: str
    digest: str
    agreed: Agreed
    rows: int = Field(ge=0)
    files: dict[str, str]
    report: dict[str, object]
    time: str
    former: tuple[_Step, ...] = ()

    def to_json(self) -> dict[str, object]:
        """Plain values; what extends nothing says nothing of it."""
        plain = {**self.model_dump(mode="json", exclude={"former"}), "agreed": self.agreed.to_json()}
        former = [{**s.model_dump(mode="json"), "agreed": s.agreed.to_json()} for s in self.former]
        return {**plain, **({"former": former} if former else {})}


def prepare(folder: Path) -> None:
    """Make the folder, and find out now rather than after minutes of work that it cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)  # it will hold ids
        probe = folder / f".{ABOUT}.part"
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        raise DataError(f"the alignment folder {str(folder)!r} cannot be written: {error.strerror}") from None


def write_alignment(folder: Path, alignment: Alignment) -> None:
    """The files of one side; `alignment.json` last, so that what is half-written is no alignment."""
    files = {ROWS: _csv(("row", "id"), zip(alignment.rows.tolist(), alignment.ids, strict=True))}
    if alignment.presence is not None:
        held = [column.astype(int).tolist() for column in alignment.presence.values()]
        files[PRESENCE] = _csv(("row", *alignment.presence), zip(alignment.rows.tolist(), *held, strict=True))
    about = _About(
        format=FORMAT,
        me=alignment.me,
        digest=alignment.digest,
        agreed=alignment.agreed,
        rows=len(alignment.ids),
        files={name: _sha256(content) for name, content in files.items()},
        report=alignment.report.to_json(),
        time=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        former=tuple(_Step(agreed=s.agreed, report=s.report.to_json(), time=s.time) for s in alignment.former),
    )
    files[ABOUT] = (json.dumps(about.to_json(), indent=1) + "\n").encode()
    try:
        _put(folder, files)
    except OSError as error:
        raise DataError(f"the alignment folder {str(folder)!r} cannot be written: {error.strerror}") from None


def set_aside(folder: Path, new: Alignment) -> None:
    """Keep the alignment of a folder that another one is to replace, unless that extends it.

    By it the label holder finds the rows of a finished run again, when a party joins it or leaves it.
    """
    try:
        old = read_alignment(folder)
    except DataError:  # there is none, or nobody can read it
        return
    if old.digest not in (new.digest, *new.extends):
        write_alignment(folder / FORMER / old.digest[:16], old)


def read_as_of(folder: Path, digest: str) -> Alignment:
    """The alignment of a folder as it was under this digest, also if others have replaced it since.

    Raises:
        RowsDisagree: there was none here under it.
        DataError: as for `read_alignment`.
    """
    former = sorted((folder / FORMER).iterdir()) if (folder / FORMER).is_dir() else []
    for place in (folder, *former):
        heading = read_heading(place)
        if digest in (heading.digest, *heading.extends):
            return read_alignment(place).as_of(digest)
    raise RowsDisagree(f"{str(folder)!r} has no alignment {digest[:12]}, nor had one; put its folder back")


def _put(folder: Path, files: Mapping[str, bytes]) -> None:
    """All contents safely on the disk first, then all names; `alignment.json` is the last of both."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        with _part(folder, name).open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    _rename(folder, files)
    if PRESENCE not in files:
        (folder / PRESENCE).unlink(missing_ok=True)  # of an earlier alignment here


def _rename(folder: Path, names: Iterable[str]) -> None:
    for name in names:
        with suppress(FileNotFoundError):  # somebody who reads has finished it meanwhile: `_finished`
            _part(folder, name).replace(folder / name)
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _part(folder: Path, name: str) -> Path:
    return folder / f".{name}.part"


def _finished(folder: Path) -> bool:
    """Finish what a process that died between its renames has begun; False, where nobody did.

    The rows are the new ones then, and everything else is beside, complete. Without that, whoever was killed while it
    extended an alignment would have left none, and all models that stand on it without rows.
    """
    try:
        begun = _About.model_validate_json(_part(folder, ABOUT).read_bytes())
        if _sha256((folder / ROWS).read_bytes()) != begun.files.get(ROWS) or not set(begun.files) <= {ROWS, PRESENCE}:
            return False
        _rename(folder, [*(name for name in begun.files if name != ROWS), ABOUT])
    except (OSError, ValidationError):
        return False
    return True


def _csv(heads: tuple[str, ...], lines: Iterable[tuple[Any, ...]]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(heads)
    writer.writerows(lines)
    return text.getvalue().encode()


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def read_alignment(folder: str | Path) -> Alignment:
    """What `write_alignment` wrote.

    Raises:
        MissingData: there is no alignment in this folder.
        DataError: the files were damaged, changed by hand, or are of another version.
    """
    folder = Path(folder)
    while True:
        about = _read_about(folder)
        try:
            return _assembled(about, _read_files(folder, about))
        except (ValueError, KeyError, TypeError) as error:
            why = str(error)
        if not _finished(folder) and _read_about(folder) == about:  # else it was written while it was read
            raise _damaged(folder, why)


def _read_files(folder: Path, about: _About) -> dict[str, bytes]:
    try:
        contents = {name: (folder / name).read_bytes() for name in about.files}
    except OSError as error:
        raise ValueError(f"{error.filename and Path(error.filename).name}: {error.strerror}") from None
    changed = [name for name, content in contents.items() if _sha256(content) != about.files[name]]
    if changed:
        raise ValueError(f"{changed[0]} is not the file that was written")
    return contents


def read_heading(folder: Path) -> Heading:
    """What an alignment is; its rows are neither read nor checked. Raises as `read_alignment` does."""
    about = _read_about(folder)
    return Heading(about.agreed, tuple(step.agreed for step in about.former))


def _read_about(folder: Path) -> _About:
    path = folder / ABOUT
    try:
        about = _About.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        raise MissingData(f"there is no alignment in {str(folder)!r}; run `colonnade align` first") from None
    except OSError as error:
        raise DataError(f"{str(path)!r} cannot be read: {error.strerror}") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "it"
        raise _damaged(folder, f"{ABOUT}: {where}: {first['msg'].lower()}") from None
    if about.digest != about.agreed.digest:
        raise _damaged(folder, f"{ABOUT} was changed: its digest does not fit")
    chain = [*(step.agreed for step in about.former), about.agreed]
    links = zip(("", *(link.digest for link in chain)), chain, strict=False)
    grow = all(one.rows < two.rows for one, two in pairwise(chain))
    if not grow or any(link.extends != before for before, link in links):
        raise _damaged(folder, f"{ABOUT} was changed: what it extends does not fit")
    if ROWS not in about.files or not set(about.files) <= {ROWS, PRESENCE}:
        raise _damaged(folder, f"{ABOUT} names other files than {ROWS} and {PRESENCE}")
    return about


def _assembled(about: _About, contents: Mapping[str, bytes]) -> Alignment:
    heads, lines = _read_csv(contents[ROWS])
    rows = np.array([int(line[0]) for line in lines], dtype=np.int64)
    ids = tuple(line[1] for line in lines)
    if heads != ["row", "id"] or len(ids) != about.rows or len(set(ids)) != len(ids):
        raise ValueError(f"{ROWS} does not hold the {about.rows} rows it should")
    if (np.diff(rows) <= 0).any() or (len(rows) and not 0 <= rows[0] <= rows[-1] < about.agreed.rows):
        raise ValueError(f"{ROWS}: row numbers are not ascending from 0 to {about.agreed.rows - 1}")
    presence = _read_presence(contents[PRESENCE], rows) if PRESENCE in contents else None
    report, former = MatchReport.from_json(about.report), tuple(step.read() for step in about.former)
    return Alignment(about.me, about.agreed, rows, ids, presence, report, former, about.time)


def _read_presence(content: bytes, rows: np.ndarray) -> dict[str, np.ndarray]:
    heads, lines = _read_csv(content)
    table = np.array(lines, dtype=np.int64).reshape(len(lines), len(heads))
    if heads[0] != "row" or not np.array_equal(table[:, 0], rows):
        raise ValueError(f"{PRESENCE} is about other rows than {ROWS}")
    return {party: table[:, at].astype(bool) for at, party in enumerate(heads) if at}


def _read_csv(content: bytes) -> tuple[list[str], list[list[str]]]:
    heads, *lines = csv.reader(io.StringIO(content.decode(), newline=""))
    return heads, lines


def _damaged(folder: Path, why: str) -> DataError:
    return DataError(f"the alignment in {str(folder)!r} is damaged ({why}); run `colonnade align` again on all sides")
