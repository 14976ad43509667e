"""Where a call came from, also where proxies stand between; only those that the settings name are believed.

Each proxy adds to `X-Forwarded-For` whom it got the call from, at the end. So it is read from the end, as long as a
trusted proxy speaks. What stands before that, anybody may have written.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

HEADER = "x-forwarded-for"
PORT = re.compile(r"\[([0-9A-Fa-f:.]+)\](?::\d{1,5})?|([0-9.]+):\d{1,5}")  # some proxies add the port

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


def read_network(text: str) -> Network:
    """An address or a network; `ValueError` with what was needed and what came."""
    try:
        found = ipaddress.ip_network(text)
    except ValueError:
        try:
            meant = f"; is {str(ipaddress.ip_network(text, strict=False))!r} meant?"
        except ValueError:
            meant = ""
        raise ValueError(
            f"trusted_proxies: {text[:64]!r} is no network; needed addresses or networks such as '10.0.0.0/8'{meant}"
        ) from None
    if found.prefixlen == 0:
        raise ValueError(
            f"trusted_proxies: {text[:64]!r} is every address, so anybody could write where a call came from; name the "
            "proxies"
        )
    return found


@dataclass(frozen=True)
class Proxies:
    """The proxies whose word counts; (): nobody's, and the header is ignored."""

    networks: tuple[Network, ...] = ()

    @classmethod
    def of(cls, texts: Iterable[str]) -> Proxies:
        """From the settings; `ValueError` where one of them is no network."""
        return cls(tuple(read_network(text) for text in texts))

    def origin(self, peer: str, headers: Sequence[str]) -> str:
        """Where a call came from: `peer` is the other end of the connection, `headers` what proxies say."""
        known = _address(peer)
        if known is None or not self._trusts(known):
            return peer
        for said in reversed([one for header in headers for one in header.split(",")]):
            before = _address(said.strip())
            if before is None:
                break  # whoever wrote that is not to be understood: the last one that is known counts
            known = before
            if not self._trusts(known):
                break
        return str(known)

    def _trusts(self, address: IpAddress) -> bool:
        return any(address in network for network in self.networks)


def _address(text: str) -> IpAddress | None:
    with_port = PORT.fullmatch(text)
    try:
        found = ipaddress.ip_address((with_port[1] or with_port[2]) if with_port else text)
    except ValueError:
        return None
    plain = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None  # ::ffff:10.0.0.1 is 10.0.0.1
    return plain or found
