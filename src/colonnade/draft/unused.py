"""Columns from which a model would learn nothing."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from colonnade.data.column_settings import OneColumn
from colonnade.data.dates import is_date
from colonnade.data.frames import Key, names_of
from colonnade.data.inspect import are_written_dates, column_facts, is_identifier, some_rows
from colonnade.data.kinds import check_text, kind_of
from colonnade.data.rare import Different
from colonnade.errors import DataError


def ignored_columns(frames: Mapping[str, Any], keys: Mapping[str, Key], label: str) -> dict[str, tuple[str, ...]]:
    """The columns of each party that have another value in every row, or another text in nearly every one."""
    return {
        party: tuple(
            str(name)
            for name in frame.columns
            if name != label and name not in names_of(keys.get(party)) and _is_identifier(frame, name)
        )
        for party, frame in frames.items()
    }


def _is_identifier(frame: Any, name: Any) -> bool:
    """Numbers with a stray text among them, and dates that were not recognised, are no ids: `check` tells of them."""
    some = frame[name].iloc[some_rows(len(frame))]
    if not is_identifier(some, column_facts(frame, name, some)) and not _nearly_unique(frame[name].dropna()):
        return False
    with suppress(DataError):
        check_text("", some, some.dropna().map(str).unique())
        return not are_written_dates(some)
    return False


def _nearly_unique(known: Any) -> bool:
    if is_date(known):
        return False
    return Different("", str(known.name), kind_of(known) or "", False, known.nunique(), len(known)).left_out(
        OneColumn()
    )
