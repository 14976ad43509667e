"""From who has which id to numbered rows, and the report about it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from colonnade.align.parts import random_order
from colonnade.align.settings import Keep
from colonnade.errors import RowsDisagree

HINT = (
    "check that both sides mean the same kind of id, written the same way (leading zeros, capitals, spaces, "
    "country codes)"
)


@dataclass(frozen=True)
class Agreed:
    """What every side knows of an alignment; its digest says whether two files belong together."""

    name: str
    attempt: str
    parties: tuple[str, ...]  # those that brought their own ids
    keep: Keep
    complete: int  # rows 0..complete-1 are held by all
    partial: int  # the rows after them, held by some; of an extension with keep = "partial" also by all
    extends: str = ""  # digest of the alignment whose rows come first, with the numbers they had; empty: none

    @property
    def rows(self) -> int:
        """All rows there are."""
        return self.complete + self.partial

    @property
    def digest(self) -> str:
        """SHA-256 of all of it."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()

    def to_json(self) -> dict[str, object]:
        """Plain values; what extends nothing says nothing of it, as before there were extensions."""
        return {name: value for name, value in asdict(self).items() if name != "extends" or value}


@dataclass(frozen=True)
class PartyMatch:
    """One party against the label holder."""

    party: str
    ids: int
    matched: int
    own: bool = False  # of the label holder's own organisation: has all ids, without asking


@dataclass(frozen=True)
class MatchReport:
    """Counts and rates: at the label holder of all parties, at a party of itself only."""

    label_ids: int
    matches: tuple[PartyMatch, ...]
    complete: int
    partial: int
    left_out: int  # ids of the side whose report this is that have no row

    def lines(self) -> list[str]:
        """A table for people."""
        heads = ("party", "ids", "matched", "of the label holder's", "of its own")
        table = [heads, *(self._line(match) for match in self.matches)]
        widths = [max(len(row[at]) for row in table) for at in range(len(heads))]
        text = [_aligned(row, widths) for row in table]
        some = f", {self.partial:,} of some" if self.partial else ""
        return [*text, f"{self.complete:,} rows of all{some}; {self.left_out:,} ids here are in no row"]

    def _line(self, match: PartyMatch) -> tuple[str, ...]:
        rates = (_rate(match.matched, self.label_ids), _rate(match.matched, match.ids))
        name = f"{match.party} (own)" if match.own else match.party
        return (name, f"{match.ids:,}", f"{match.matched:,}", *rates)

    def to_json(self) -> dict[str, object]:
        """Plain values, with the rates worked out."""
        matches = [
            {**asdict(m), "rate_of_label_ids": m.matched / self.label_ids, "rate_of_its_ids": m.matched / m.ids}
            for m in self.matches
        ]
        return {**asdict(self), "matches": matches}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> MatchReport:
        """The inverse of `to_json`; ValueError, KeyError or TypeError if it is not one."""
        matches = tuple(PartyMatch(m["party"], m["ids"], m["matched"], m["own"]) for m in values["matches"])
        return cls(values["label_ids"], matches, values["complete"], values["partial"], values["left_out"])


def _aligned(cells: tuple[str, ...], widths: list[int]) -> str:
    """The first cell to the left, numbers to the right."""
    first, *others = zip(cells, widths, strict=True)
    return "  ".join([f"{first[0]:<{first[1]}}", *(f"{cell:>{width}}" for cell, width in others)])


def _rate(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %"


@dataclass(frozen=True)
class Numbered:
    """Rows with their numbers, as the label holder knows them."""

    order: np.ndarray  # (R,) the place in the label holder's list of the id of each row
    complete: int
    presence: Mapping[str, np.ndarray]  # per party (R,) booleans: does it hold the row?

    @property
    def partial(self) -> int:
        """Rows that only some hold."""
        return len(self.order) - self.complete


def number_rows(have: Mapping[str, np.ndarray], keep: Keep) -> Numbered:
    """Opaque row numbers: rows of all parties first, each group in an order nobody can foresee.

    Args:
        have: per party, for every id of the label holder, whether the party has it.
        keep: "all" or "partial".
    """
    table = np.stack(list(have.values()))  # (M, n)
    everyone, someone = table.all(axis=0), table.any(axis=0)
    complete = _shuffled(np.flatnonzero(everyone))
    partial = _shuffled(np.flatnonzero(someone & ~everyone)) if keep == "partial" else complete[:0]
    order = np.concatenate([complete, partial])
    return Numbered(order, len(complete), {party: held[order] for party, held in have.items()})


def _shuffled(places: np.ndarray) -> np.ndarray:
    shuffled: np.ndarray = places[random_order(len(places))]
    return shuffled


def report_of(label_ids: int, matches: tuple[PartyMatch, ...], numbered: Numbered, more: bool = False) -> MatchReport:
    """The label holder's report; `RowsDisagree` if a party shares nothing, or all together share nothing.

    `more`: these are the new ids of an extension, of which a party may well have none.
    """
    if more and not len(numbered.order):
        told = ", ".join(f"{match.party} {match.matched:,}" for match in matches)
        raise RowsDisagree(
            f"none of the {label_ids:,} new ids has a row (matched: {told}); the alignment stays as it is"
        )
    for match in matches:
        if not match.matched and not more:
            raise RowsDisagree(
                f"party {match.party!r} has none of the {label_ids:,} ids of the label holder among its "
                f"{match.ids:,}; {HINT}"
            )
    if not len(numbered.order):
        told = ", ".join(f"{match.party} {match.matched:,}" for match in matches)
        raise RowsDisagree(
            f'no id is held by all parties (matched with the label holder: {told}); keep = "partial" keeps rows '
            "of some, or align with fewer parties"
        )
    return MatchReport(
        label_ids, matches, numbered.complete, numbered.partial, left_out=label_ids - len(numbered.order)
    )
