"""Ledger: everything ever released in a run. Append-only; saved, replayed, continued by resume."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from colonnade.privacy.events import Release
from colonnade.wire.messages import Purpose


class Ledger:
    """An append-only list of releases; there is no way to take one back."""

    def __init__(self, releases: Iterable[Release] = ()) -> None:
        self._releases: list[Release] = list(releases)
        self._digests = {release.digest for release in self._releases}

    def record(self, release: Release) -> None:
        """Add one release. Called by the gate, before anything can travel."""
        self._releases.append(release)
        self._digests.add(release.digest)

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

    def counts(self) -> dict[tuple[str, Purpose], int]:
        """How often each owner released something, by purpose."""
        return dict(Counter((r.owner, r.purpose) for r in self._releases))
