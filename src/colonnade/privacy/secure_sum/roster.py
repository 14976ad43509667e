"""Who adds: the names and verified keys behind one sum, and what one masked message says about itself."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from colonnade.errors import ConfigError, IdentityError, Refused
from colonnade.privacy.secure_sum.fixed_point import Cells

_KEY = 32  # bytes of an X25519 public key


@dataclass(frozen=True)
class Roster:
    """The parties of a sum; make one with `Roster.of`, from keys whose signatures were verified."""

    run: str
    public: tuple[tuple[str, bytes], ...]  # by name
    drops: int = 0  # how many parties may be lost before the run ends; their noise is provisioned
    dropped: tuple[str, ...] = ()

    @classmethod
    def of(cls, run: str, public: Mapping[str, bytes], drops: int = 0) -> Roster:
        """The roster of a run.

        Args:
            run: the run's name.
            public: each party's X25519 public key, as signed with that party's certificate. The caller has
                verified the signatures; nothing here can.
            drops: how many parties may be lost during the run.
        """
        return cls(run, tuple(sorted(public.items())), drops)

    def __post_init__(self) -> None:
        """Refuse what cannot hide anything."""
        if len(self.public) < 2:
            raise ConfigError(f"a secure sum needs at least 2 parties; this one has {len(self.public)}")
        for name, key in self.public:
            if not isinstance(key, bytes) or len(key) != _KEY:
                raise IdentityError(f"the mask key of party {name!r} is no public key: needed {_KEY} bytes")
        if list(self.public) != sorted(dict(self.public).items()):
            raise ConfigError("a roster names each party once, by name; make it with Roster.of")
        if len({key for _, key in self.public}) < len(self.public):
            raise IdentityError("two parties of a secure sum have the same mask key; each must make its own")
        if len(self.dropped) > self.drops:
            raise Refused(
                f"the run declared {self.drops} dropped parties and would lose {len(self.dropped)} "
                f"({', '.join(self.dropped)}): the noise left is less than promised; start a new run"
            )

    @property
    def names(self) -> tuple[str, ...]:
        """The parties that add, in the order that signs the masks."""
        return tuple(name for name, _ in self.public)

    @property
    def invited(self) -> int:
        """How many parties the run began with; noise shares stay sized for them."""
        return len(self.public) + len(self.dropped)

    @property
    def digest(self) -> str:
        """SHA-256 of all that the parties must agree on."""
        keys = [[name, key.hex()] for name, key in self.public]
        text = json.dumps(["colonnade roster 1", self.run, keys, self.drops, list(self.dropped)])
        return hashlib.sha256(text.encode()).hexdigest()

    def without(self, gone: Collection[str]) -> Roster:
        """The roster of the rounds *after* some parties were lost; `Refused` above the declared number."""
        unknown = sorted(set(gone) - set(self.names))
        if unknown:
            raise ConfigError(f"{', '.join(unknown)} cannot be dropped: not among {', '.join(self.names)}")
        left = tuple((name, key) for name, key in self.public if name not in gone)
        return Roster(self.run, left, self.drops, tuple(sorted({*self.dropped, *gone})))


@dataclass(frozen=True, order=True)
class Address:
    """Which message: its masks hide exactly one. Where rounds are numbered per purpose, `array` names it too."""

    round: int
    part: int
    array: str
    rows: str = ""  # digest of the rows it is about: masks of parties that were asked about others do not cancel


@dataclass(frozen=True, eq=False)
class Masked:
    """What one party sends for one address."""

    sender: str
    address: Address
    roster: str  # digest
    cells: Cells = field(repr=False)
