"""The coordinator's side: who is missing, whether all fits together, and then the sum. It needs no key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from colonnade.errors import ConfigError, WireError
from colonnade.privacy.secure_sum.fixed_point import Cells, Floats, Grid
from colonnade.privacy.secure_sum.roster import Address, Masked, Roster


def missing(roster: Roster, received: Iterable[str]) -> tuple[str, ...]:
    """The parties without which nothing can be opened; ask before `open_total`, and wait or go on without them."""
    there = set(received)
    return tuple(name for name in roster.names if name not in there)


def open_total(roster: Roster, grid: Grid, address: Address, received: Mapping[str, Masked]) -> Floats:
    """The sum of the parties' arrays, if every party of the roster sent one that fits.

    Args:
        roster: who adds.
        grid: as the parties used it.
        address: what was asked for.
        received: what came, by sender, as authenticated by whoever received it.

    Raises:
        WireError: a party is missing or unknown, or a message is about something else, of another roster or
            shape, or the masks did not cancel. Nothing was opened, and the same messages can be used again.
    """
    if grid.parties < len(roster.names):
        raise ConfigError(f"a grid for {grid.parties} parties cannot add {len(roster.names)}; make it for all of them")
    if absent := missing(roster, received):
        raise WireError(f"the secure sum of round {address.round} lacks {', '.join(absent)}; nothing was opened")
    if unknown := sorted(set(received) - set(roster.names)):
        raise WireError(f"the secure sum does not know {', '.join(unknown)}; nothing was opened")
    shape = received[roster.names[0]].cells.shape
    total: Cells = np.zeros(shape, np.uint64)
    for name in roster.names:
        _check(name, received[name], roster.digest, address, shape)
        np.add(total, received[name].cells, out=total)  # modulo 2^64
    return grid.decode(total)


def _check(name: str, message: Masked, roster: str, address: Address, shape: tuple[int, ...]) -> None:
    problem = ""
    if message.sender != name:
        problem = f"is from {message.sender!r}"
    elif message.roster != roster:
        problem = "was masked for other parties or with other keys"
    elif message.address != address:
        problem = f"is about {message.address}, asked was {address}"
    elif message.cells.dtype != np.uint64 or message.cells.shape != shape:
        problem = f"is {message.cells.dtype} of shape {message.cells.shape}, needed uint64 of shape {shape}"
    if problem:
        raise WireError(f"the masked message of party {name!r} {problem}; nothing was opened")
