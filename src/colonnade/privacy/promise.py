"""What a run promises, as plain values: what `colonnade privacy explain --json` prints."""

from __future__ import annotations

from typing import TypedDict

from colonnade.privacy.accounting import Neighbours


class Figures(TypedDict):
    """What training cost one party, for machines; no figure is None."""

    releases: int
    epsilon: float | None
    epsilon_rdp: float | None


class Promise(TypedDict):
    """A statement for machines: no epsilon without what belongs to it."""

    unit: str
    neighbours: Neighbours
    delta: float
    accountant: str
    epsilon: float | None
    epsilon_rdp: float | None
    epsilon_row: float | None  # unit ROW, replaced at all parties; RDP
    parties: dict[str, Figures]
    label_exposure: str
    label_epsilon: float | None
    label_unit: str
    label_delta: float
    simulated: bool
    evaluation: str
    uncovered: dict[str, int]
    not_covered: list[str]
