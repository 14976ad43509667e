"""Ledger: everything ever released in a run. Append-only; saved, replayed, continued by resume."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from colonnade.privacy.events import NOISED, Release
from colonnade.wire.messages import Purpose


class Ledger:
    """An append-only list of releases; there is no way to take one back."""

    def __init__(self, releases: Iterable[Release] = ()) -> None:
        self._releases: list[Release] = []
        self._digests: set[str] = set()
        self._precision: dict[str, float] = {}
        for release in releases:
            self.record(release)

    def record(self, release: Release) -> None:
        """Add one release. Called by the gate, before anything can travel."""
        self._releases.append(release)
        self._digests.add(release.digest)
        if release.mechanism in NOISED:
            self._precision[release.owner] = self._precision.get(release.owner, 0.0) + release.precision

    def __iter__(self) -> Iterator[Release]:
        return iter(self._releases)

    def __len__(self) -> int:
        return len(self._releases)

    def since(self, count: int) -> tuple[Release, ...]:
        """The releases recorded after the first `count`."""
        return tuple(self._releases[count:])

    def holds(self, digest: str) -> bool:
        """Whether a payload with this digest was released."""
        return digest in self._digests

    def precision(self, owner: str) -> float:
        """The sum of 1/sigma^2 over an owner's Gaussian releases: what a budget is compared with."""
        return self._precision.get(owner, 0.0)

    def counts(self) -> dict[tuple[str, Purpose], int]:
        """How often each owner released something, by purpose."""
        return dict(Counter((r.owner, r.purpose) for r in self._releases))
