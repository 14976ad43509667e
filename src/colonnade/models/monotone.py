"""Bins that have an order, merged until what labels say of them rises or falls throughout.

Pool adjacent violators: neighbours whose rates of events are out of order become one bin, until none are. Of the rising
and the falling order the one that keeps more of the information value is taken.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from colonnade.models.evidence import Evidence

Values = np.ndarray[Any, Any]


def merge(rows: Values, yes: Values, keep: float, ordered: int) -> Evidence:
    """The evidence of bins of which the first `ordered` have an order; those that were merged have it in common.

    Args:
        rows: (bins,) training rows.
        yes: (bins,) those of them whose released label says event.
        keep: how likely a label was kept.
        ordered: how many bins have an order; among these, empty ones are left alone.

    Returns:
        Of each bin its own rows, and of the bin that it became a part of the events, by its rows, and the weight of
        evidence; so that rows and events of merged bins add up.
    """
    places = np.flatnonzero(rows[:ordered])
    tried = [_blocks(rows, yes, places, sign) for sign in (1.0, -1.0)]
    merged = [
        Evidence.counted(np.bincount(one, rows, len(rows)), np.bincount(one, yes, len(rows)), keep) for one in tried
    ]
    blocks, whole = max(zip(tried, merged, strict=True), key=lambda one: one[1].iv)
    share = rows / np.maximum(whole.rows[blocks], 1.0)
    noise = Evidence.counted(rows, yes, keep).noise
    return Evidence(rows, whole.events[blocks] * share, noise, whole.woe[blocks])


def _blocks(rows: Values, yes: Values, places: Values, sign: float) -> Values:
    """(bins,) which block each bin belongs to, so that rates over the blocks rise (sign 1) or fall (-1)."""
    stack: list[tuple[float, float, list[int]]] = []  # rows, events and places of a block
    for at in places.tolist():
        stack.append((float(rows[at]), float(yes[at]), [at]))
        while len(stack) > 1 and sign * stack[-2][1] / stack[-2][0] >= sign * stack[-1][1] / stack[-1][0]:
            n, events, later = stack.pop()
            before, some, first = stack.pop()
            stack.append((before + n, some + events, first + later))
    blocks = np.arange(len(rows))
    for _, _, mine in stack:
        blocks[mine] = mine[0]
    return blocks
