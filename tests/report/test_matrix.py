"""The picture of a confusion matrix."""

from __future__ import annotations

from colonnade.report.figures import matrix

COUNTS = [[3, 1, 0], [1, 4, 1], [0, 2, 5]]


def test_long_names_of_classes_leave_room_for_the_matrix() -> None:
    """Warnings are errors here: without room matplotlib warns, and cuts the names off."""
    plain = matrix("confusion", COUNTS, ["a", "b", "short"])
    named = matrix("confusion", COUNTS, ["satisfactory after a further inspection", "x" * 200, "c"])
    assert named.size[0] > plain.size[0] + 1
    assert named.png() and plain.png()


def test_very_long_names_are_shortened() -> None:
    told = matrix("confusion", COUNTS, ["x" * 200, "b", "c"]).svg()
    assert "x" * 35 + "…" in told
    assert "x" * 36 not in told
