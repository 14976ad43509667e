"""Weights of evidence: how the rows of a bin speak for or against the event.

    woe_b = ln( (non-events in b / all non-events) / (events in b / all events) )
    iv    = sum_b (share of non-events in b - share of events in b) woe_b

A bin with less than half a row of one class gets half a row more of both; one without rows has woe 0. Where labels were
replaced at random, each kept with probability p, the events of n rows of which r say event are estimated by
(r - (1 - p) n) / (2p - 1), which is right on average and has a deviation of sqrt(n p (1 - p)) / (2p - 1).
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

Values = np.ndarray[Any, Any]
HALF = 0.5


@dataclass(frozen=True)
class Evidence:
    """Of the bins of one column: training rows, (estimated) events, and what they say."""

    rows: Values = field(repr=False)  # (bins,)
    events: Values = field(repr=False)  # (bins,)
    noise: Values = field(repr=False)  # (bins,) the deviation of `events`; 0: they are counted
    woe: Values = field(repr=False)  # (bins,)

    @classmethod
    def of(cls, codes: Values, said: Values, bins: int, keep: float = 1.0) -> Evidence:
        """Count what labels say.

        Args:
            codes: (N,) the bin of each training row.
            said: (N,) zeros and ones: what the label says, as it was released.
            bins: how many there are.
            keep: how likely a label was kept; 1: all labels are true.
        """
        rows = np.bincount(codes, minlength=bins).astype(np.float64)
        return cls.counted(rows, np.bincount(codes, weights=said, minlength=bins), keep)

    @classmethod
    def counted(cls, rows: Values, yes: Values, keep: float = 1.0) -> Evidence:
        """From counts (bins,): training rows, and those of them whose released label says event."""
        events = np.clip((yes - (1 - keep) * rows) / (2 * keep - 1), 0, rows)
        noise = np.sqrt(rows * keep * (1 - keep)) / (2 * keep - 1)
        good, bad = _shares(rows, events)
        woe = np.zeros(len(rows))
        woe[rows > 0] = np.log(good[rows > 0] / bad[rows > 0])
        return cls(rows, events, noise, woe)

    @property
    def iv(self) -> float:
        """The information value of the column."""
        good, bad = _shares(self.rows, self.events)
        return float(((good - bad) * self.woe).sum())


COUNTS = tuple(one.name for one in fields(Evidence))  # what is kept of a column, by name


def _shares(rows: Values, events: Values) -> tuple[Values, Values]:
    """(bins,) which share of all non-events, and of all events, a bin has."""
    few = (np.minimum(events, rows - events) < HALF) & (rows > 0)
    bad, good = events + HALF * few, rows - events + HALF * few
    return good / max(good.sum(), HALF), bad / max(bad.sum(), HALF)
