"""The same alignment from plain ids, for one process that holds them all: simulation, and the truth in tests."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence

import numpy as np

from colonnade.align.files import Alignment
from colonnade.align.ids import check_ids
from colonnade.align.match import Agreed, MatchReport, PartyMatch, number_rows, report_of
from colonnade.align.settings import AlignSettings
from colonnade.errors import ConfigError
from colonnade.identity.names import COORDINATOR


def align_exactly(
    settings: AlignSettings, ids: Sequence[str], others: Mapping[str, Sequence[str]]
) -> dict[str, Alignment]:
    """What every side would write: "coordinator" and each of `settings.parties`.

    Args:
        settings: as the label holder has them.
        ids: the label holder's ids.
        others: the ids of each party.
    """
    if set(others) != set(settings.parties):
        raise ConfigError(f"ids are needed of {', '.join(settings.parties)}; got those of {', '.join(others)}")
    ids = check_ids(ids, settings.most_ids)
    sets = {name: set(check_ids(others[name], settings.most_ids)) for name in settings.parties}
    have = {name: np.array([id in held for id in ids]) for name, held in sets.items()}
    have |= {name: np.ones(len(ids), dtype=bool) for name in settings.own}
    numbered = number_rows(have, settings.keep)
    matches = [PartyMatch(name, len(sets[name]), int(have[name].sum())) for name in sets]
    own = [PartyMatch(name, len(ids), len(ids), own=True) for name in settings.own]
    report = report_of(len(ids), (*matches, *own), numbered)
    counts = (numbered.complete, numbered.partial)
    agreed = Agreed(settings.name, secrets.token_hex(16), settings.parties, settings.keep, *counts)
    by_row = tuple(ids[place] for place in numbered.order)
    presence = numbered.presence if settings.keep == "partial" else None
    sides = {COORDINATOR: Alignment(COORDINATOR, agreed, np.arange(len(by_row)), by_row, presence, report)}
    for match in matches:
        rows = np.flatnonzero(numbered.presence[match.party])
        own_report = MatchReport(len(ids), (match,), *counts, left_out=match.ids - len(rows))
        theirs = tuple(by_row[row] for row in rows)
        sides[match.party] = Alignment(match.party, agreed, rows, theirs, None, own_report)
    return sides
