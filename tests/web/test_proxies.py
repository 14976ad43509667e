"""Where a call came from: only the word of trusted proxies counts, read from the end."""

from __future__ import annotations

import pytest

from colonnade.web.proxies import Proxies

INSIDE, OUTSIDE = "10.0.0.5", "192.0.2.9"
TRUSTED = Proxies.of(["10.0.0.0/8", "fd00::/8"])


@pytest.mark.parametrize(
    ("peer", "headers", "wanted"),
    [
        (INSIDE, [OUTSIDE], OUTSIDE),
        (OUTSIDE, ["203.0.113.1"], OUTSIDE),  # whoever calls directly says what it likes
        (INSIDE, [], INSIDE),
        (INSIDE, [""], INSIDE),
        (INSIDE, [f"203.0.113.1, {OUTSIDE}"], OUTSIDE),  # the first was sent by the caller itself
        (INSIDE, ["203.0.113.1", OUTSIDE], OUTSIDE),  # also in a header of its own
        (INSIDE, [f"203.0.113.1, {OUTSIDE}, 10.9.9.9"], OUTSIDE),  # two proxies
        (INSIDE, [f"10.1.1.1, {OUTSIDE}"], OUTSIDE),  # it says it were a proxy
        (INSIDE, ["10.1.1.1, 10.2.2.2"], "10.1.1.1"),  # somebody inside
        (INSIDE, ["203.0.113.1, unknown"], INSIDE),
        (INSIDE, ["203.0.113.1, unknown, 10.9.9.9"], "10.9.9.9"),
        (INSIDE, [f"{OUTSIDE}:4711"], OUTSIDE),
        (INSIDE, ["[2001:db8::1]:4711"], "2001:db8::1"),
        ("::ffff:10.0.0.5", [f"::ffff:{OUTSIDE}"], OUTSIDE),
        ("fd00::1", ["2001:DB8::1"], "2001:db8::1"),
        ("", [OUTSIDE], ""),
    ],
)
def test_origin(peer: str, headers: list[str], wanted: str) -> None:
    assert TRUSTED.origin(peer, headers) == wanted
    assert Proxies().origin(peer, headers) == peer, "by default the header is ignored"
