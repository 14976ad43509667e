"""Models that were trained with rows of people who withdrew since: they are marked in their folders, and named."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from colonnade.align.files import Heading
from colonnade.config import build
from colonnade.errors import ColonnadeError
from colonnade.privacy.settings import PrivacySettings
from colonnade.store import peek
from colonnade.withdrawn import mark, read_mark


@dataclass(frozen=True)
class Marked:
    """A model that trained with such rows; or, `trained` is None, of which that is not known.

    That is so where its row numbers are of another alignment, or where its folder cannot be read or written.
    """

    run: str
    folder: Path
    trained: int | None
    of: int  # training rows
    finished: bool
    promise: str = ""  # what bounds what it says of one row; empty: nothing does
    damage: str = ""  # why its folder could not be looked at, or marked

    def to_json(self) -> dict[str, object]:
        """Plain values."""
        return {**vars(self), "folder": str(self.folder)}

    def __str__(self) -> str:
        if self.damage:
            return f"{self.folder} is not marked: {self.damage}; it is tried again once that is put right"
        if self.trained is None:
            return f"run {self.run} knows rows of another alignment: whether these people are among them is not known"
        told = f"run {self.run} trained with {self.trained:,} of its {self.of:,} rows from people who withdrew"
        return told if self.finished else f"{told}; it is not finished and will not go on"


def mark_runs(places: Iterable[Path], store: str, alignment: Heading, rows: np.ndarray) -> list[Marked]:
    """Mark the runs in these folders that trained with some of these rows, and say which.

    A damaged folder is passed over and named (`Marked.damage`): it must not keep the others from being marked, nor the
    withdrawal from travelling.
    """
    if not len(rows):
        return []
    found = (_tried(place, store, alignment, rows) for place in places)
    return [marked for marked in found if marked is not None]


def _tried(place: Path, store: str, alignment: Heading, rows: np.ndarray) -> Marked | None:
    try:
        return _mark(place, store, alignment, rows)
    except ColonnadeError as error:
        why = str(error)
    except OSError as error:
        why = f"it cannot be read ({error.strerror})"
    except (ValueError, KeyError, TypeError, AttributeError) as error:  # a store that holds no agreement of ours
        why = f"{place / store} is damaged ({error!r}); restore it from a copy"
    return Marked(place.name, place, None, 0, False, damage=why)


def _mark(place: Path, store: str, alignment: Heading, rows: np.ndarray) -> Marked | None:
    stored = peek(place / store, "$.agreement")
    if stored is None:
        return None
    agreement, state = stored
    body, train = agreement["proposal"], agreement["train"]
    finished = bool(state.get("finished")) or (place / "run.json").exists()
    known = read_mark(place)
    if body.get("alignment") not in (alignment.digest, *alignment.extends):
        trained = None if known is None else known.trained
        return Marked(str(body["run"]), place, trained, len(train), finished, _promise(body))
    seen = sorted({*train} & {*rows.tolist()})
    if seen:
        known = mark(place, seen)
    if known is None:
        return None
    return Marked(str(body["run"]), place, known.trained, len(train), finished, _promise(body))


def _promise(body: Mapping[str, Any]) -> str:
    """What bounds what a model says of one row, if it has a promise of unit ROW."""
    privacy = build(PrivacySettings, body["privacy"], "privacy")
    return privacy.in_words(len(body["parties"]), body.get("own", ())).partition(";")[0] if privacy.by_row else ""
