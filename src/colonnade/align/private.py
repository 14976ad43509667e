r"""Blinding ids with openmined-psi: the elliptic-curve Diffie-Hellman private set intersection.

    label holder, key a                     party, key b
    H(x)^a          ------------------>
                    <------------------     H(x)^(a b), H(y)^b
    H(y)^(b a)
    x = y exactly where H(x)^(a b) = H(y)^(b a)

H maps a text to a point of the curve P-256 and `^` multiplies it by a secret number. Without a, H(x)^a tells
nothing about x (decisional Diffie-Hellman). The library's client and server classes do exactly these two
steps: `CreateRequest` blinds texts, `ProcessRequest` blinds points again. Their own last step, which removes
the client's key from the answer, is not used: it says which of the client's ids are shared, but not which of
the server's, so ids would have to travel afterwards. It also costs as much for each of the client's ids as
this costs for each of the server's.

The library lets go of Python's interpreter lock while it computes, so threads use all cores.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from colonnade.errors import WireError
from colonnade.extras import need

POINT = 33  # bytes of a blinded id: a point of P-256, compressed


def new_key() -> bytes:
    """A secret number for one attempt of one side; never stored, never sent."""
    return bytes(_psi().client.CreateWithNewKey(True).GetPrivateKeyBytes())


def blind(ids: Sequence[str], name: str, key: bytes) -> bytes:
    """H(id)^key of each id, in order, one after the other; `name` keeps alignments apart."""
    client = _psi().client.CreateFromKey(key, True)  # one per call: the library's objects are not for two threads
    request = client.CreateRequest([f"colonnade align\0{name}\0{id}" for id in ids])
    return b"".join(request.encrypted_elements)


def blind_again(points: bytes, key: bytes, whose: str) -> bytes:
    """point^key of each point; `WireError` if one is no point of the curve. `whose` names its sender."""
    psi = _psi()
    elements = [points[at : at + POINT] for at in range(0, len(points), POINT)]
    request = psi.Request(reveal_intersection=True, encrypted_elements=elements)
    try:
        response = psi.server.CreateFromKey(key, True).ProcessRequest(request)
    except RuntimeError:  # the library's own check of every point; its sentence would show the point
        raise WireError(f"{whose} sent a blinded id that is no point of the curve") from None
    return b"".join(response.encrypted_elements)


def _psi() -> Any:
    return need("private_set_intersection.python", extra="align", purpose="private alignment")
