"""The signed end of a ledger: between organisations each one vouches for its own with the key of its certificate.

Signed are the number of entries and the last hash of their chain (`privacy/chain.py`), with the time. A store has the
signature in the transaction that adds the entries; beside `ledger.jsonl` it stands in `ledger.head.json`.

A process that is started again follows the chain, and does not go on with (and sign) a ledger that is not as it left
it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from colonnade.errors import IdentityError, RunError, Unwritable
from colonnade.identity.credentials import Credentials, check_signature
from colonnade.privacy.chain import HEAD, LEDGER, Head, SignHead, now, walk
from colonnade.saved import last_hash, read_lines, read_signed
from colonnade.written import replace_file

NEW_AUTHORITY = "if the authority is a new one since, put the old one's certificate into its file, too"


def head_signer(credentials: Credentials, run: str) -> SignHead:
    """Signs heads of the ledger of this process."""

    def sign(entries: int, head: str) -> Mapping[str, Any]:
        told = Head(run, credentials.name, entries, head, now())
        return {**vars(told), **credentials.sign(told.payload)}

    return sign


def write_head(folder: Path, signed: Mapping[str, Any]) -> None:
    """Put a signed head beside the ledger of a folder."""
    try:
        replace_file(folder / HEAD, (json.dumps(dict(signed), indent=1) + "\n").encode())
    except OSError as error:
        raise Unwritable(
            f"{folder / HEAD} cannot be written ({error.strerror}); see to the disk and start again"
        ) from None


def sign_file(folder: Path, entries: int, sign: SignHead) -> None:
    """Sign the ledger of a folder as it is now, with so many entries."""
    write_head(folder, sign(entries, last_hash(folder / LEDGER)))


def check_own(
    lines: Sequence[Mapping[str, Any]], signed: Mapping[str, Any] | None, credentials: Credentials, where: Path
) -> None:
    """Refuse a ledger that is not as this organisation's process left it; one without any hash is from before chains.

    Entries after the signed end are those of a process that died before it could sign them; it had sent nothing.

    Raises:
        RunError: an entry was changed, removed, added or moved, or the signature is not this process's.
    """
    found = walk(lines)
    if found.misfit is not None:
        raise _changed(where, f"entry {found.misfit}: {found.reason}")
    if signed is None:
        if found.unlinked < len(lines):
            died = "if the coordinator's process died at the end of training, start it again first"
            raise _changed(where, f"the signature of its end is missing; {died}")
        return
    try:
        head = Head.from_json(signed)
        moment = datetime.fromisoformat(head.time.replace("Z", "+00:00"))
        check_signature(head.payload, signed, credentials.name, credentials.authority, moment)
    except ValueError as error:
        raise _changed(where, f"the signature of its end: {error}") from None
    except IdentityError as error:
        raise _changed(where, f"the signature of its end: {error}; {NEW_AUTHORITY}") from None
    if head.entries > len(lines):
        raise _changed(where, f"{head.entries} entries were signed, and {len(lines)} are there")
    if head.entries and found.hashes[head.entries - 1] != head.head:
        raise _changed(where, f"entry {head.entries} is not the one that was signed")


def check_own_file(folder: Path, credentials: Credentials, run: str) -> int:
    """The same of the ledger in the file of a folder; how many entries at its end are not signed yet.

    One of an earlier version is signed now: from here on a missing signature is somebody's doing.
    """
    lines, signed = read_lines(folder / LEDGER), read_signed(folder)
    check_own(lines, signed, credentials, folder / LEDGER)
    if signed is None:
        sign_file(folder, len(lines), head_signer(credentials, run))
        return 0
    return len(lines) - Head.from_json(signed).entries


def _changed(where: Path, what: str) -> RunError:
    return RunError(
        f"the ledger in {where} is not as this process left it ({what}); nothing was done; put the newest copy back, "
        "and find out who changed it: `colonnade ledger verify`"
    )
