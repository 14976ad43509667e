"""Versions of a label holder's model: each is a run with a folder of its own, and one of them is in use.

    run/v1/, run/v2/ ...    runs of the names NAME-v1, NAME-v2 ...
    run/models.json         which one is in use, what became of the others and why, and how many trainings wait

The file is changed by the process that serves and by `colonnade models`; a lock beside it keeps them apart, and a
change is the old file or the new one.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from colonnade.errors import ConfigError, RunError
from colonnade.folder import claimed, in_use
from colonnade.live import stamp
from colonnade.record import RECORD, read_record
from colonnade.withdrawn import read_mark
from colonnade.written import keep_file

FILE = "models.json"
KEPT = 200  # changes that the file remembers


@dataclass(frozen=True)
class Change:
    """Something that happened to a version, and why."""

    time: str
    version: int
    what: str  # "promoted", "not promoted", "failed", "put back"
    why: str = ""


@dataclass(frozen=True)
class Models:
    """What models.json says."""

    used: int = 0  # the version in use; 0: none yet
    before: tuple[int, ...] = ()  # the versions that were in use, the last one last
    failed: tuple[int, ...] = ()  # versions that will not be trained to the end
    waiting: int = 0  # trainings that somebody asked for
    changes: tuple[Change, ...] = ()

    @property
    def last(self) -> str:
        """When a training last ended, in whichever way; empty: never."""
        ends = [c.time for c in self.changes if c.what in ("promoted", "not promoted", "failed") and c.why != BY_HAND]
        return max(ends, default="")

    def noted(self, version: int, what: str, why: str) -> Models:
        """With one more change."""
        return replace(self, changes=(*self.changes, Change(stamp(), version, what, why))[-KEPT:])

    def promoted(self, version: int, why: str) -> Models:
        """With another version in use."""
        before = (*self.before, self.used)[-KEPT:] if self.used else self.before
        return replace(self.noted(version, "promoted", why), used=version, before=before)


BY_HAND = "by hand"


@dataclass(frozen=True)
class Version:
    """One version, for people."""

    version: int
    folder: Path
    state: str  # in use, finished, training, not finished, failed
    metric: str = ""
    validation: float | None = None
    test: float | None = None
    why: str = ""  # the last thing that happened to it
    withdrawn: int = 0  # training rows of people who withdrew since


def folder_of(folder: Path, version: int) -> Path:
    """Where a version is kept."""
    return folder / f"v{version}"


def numbers(folder: Path) -> list[int]:
    """The versions that have a folder."""
    found = folder.iterdir() if folder.is_dir() else ()
    return sorted(int(p.name[1:]) for p in found if p.is_dir() and p.name[:1] == "v" and p.name[1:].isdecimal())


def finished(folder: Path, version: int) -> bool:
    """Whether a version was trained to the end."""
    return (folder_of(folder, version) / RECORD).exists()


def read_models(folder: Path) -> Models:
    """What is known of the versions in a folder; nothing, where there is no file yet."""
    try:
        said = json.loads((folder / FILE).read_text(encoding="utf-8"))
        changes = tuple(Change(**change) for change in said["changes"])
        return Models(int(said["used"]), tuple(said["before"]), tuple(said["failed"]), int(said["waiting"]), changes)
    except FileNotFoundError:
        return Models()
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{folder / FILE} cannot be read ({error!r}); put it back from a copy") from None


def change_models(folder: Path, change: Callable[[Models], Models]) -> Models:
    """Change what is known of the versions; nobody else does meanwhile."""
    with claimed(folder / ".models"):
        models = change(read_models(folder))
        try:
            keep_file(folder / FILE, (json.dumps(asdict(models), indent=1) + "\n").encode())
        except OSError as error:
            raise RunError(f"{folder / FILE} cannot be written: {error.strerror}; see to the disk") from None
        return models


def promote(folder: Path, version: int) -> Models:
    """Put a finished version to use, because somebody says so."""
    if not finished(folder, version):
        known = ", ".join(str(n) for n in numbers(folder) if finished(folder, n)) or "none"
        raise ConfigError(f"there is no finished version {version} in {str(folder)!r}; finished: {known}")
    if read_models(folder).used == version:
        raise ConfigError(f"version {version} is in use already")
    return change_models(folder, lambda models: models.promoted(version, BY_HAND))


def go_back(folder: Path) -> Models:
    """Put the version to use that was in use before."""
    former = [n for n in read_models(folder).before if finished(folder, n)]
    if not former:
        raise ConfigError(f"no other version was in use in {str(folder)!r} before; choose one with --promote")

    def change(models: Models) -> Models:
        at = len(models.before) - 1 - models.before[::-1].index(former[-1])
        return replace(models.noted(former[-1], "put back", BY_HAND), used=former[-1], before=models.before[:at])

    return change_models(folder, change)


def ask_for_training(folder: Path) -> Models:
    """One more training in the queue."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return change_models(folder, lambda models: replace(models, waiting=models.waiting + 1))


def used_folder(folder: Path) -> Path:
    """The folder of the version in use, if these are versions; else the folder itself."""
    if not (folder / FILE).exists():
        return folder
    used = read_models(folder).used
    if not used:
        raise RunError(f"{folder} has no model in use yet; see `colonnade models`")
    return folder_of(folder, used)


def list_versions(folder: Path) -> list[Version]:
    """All versions, by number."""
    models = read_models(folder)
    return [_version(folder, number, models) for number in numbers(folder)]


def _version(folder: Path, number: int, models: Models) -> Version:
    place = folder_of(folder, number)
    last = next((c for c in reversed(models.changes) if c.version == number), None)
    why = f"{last.what}: {last.why}" if last else ""
    try:
        mark = read_mark(place)
    except RunError as error:  # it is said of this version, and the others are listed all the same
        mark, why = None, f"{why}; {error}" if why else str(error)
    gone = mark.trained if mark else 0
    if not finished(folder, number):
        state = "failed" if number in models.failed else "training" if in_use(place) else "not finished"
        return Version(number, place, state, why=why, withdrawn=gone)
    result = read_record(place)["result"]
    state = "in use" if number == models.used else "finished"
    metric = str(result.get("validation_metric", ""))
    return Version(number, place, state, metric, result["validation_score"], result["test_score"], why, gone)
