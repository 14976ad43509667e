"""Decisions of people, signed with the key of their organisation and kept: about proposals, and about withdrawals."""

from __future__ import annotations

import getpass
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from colonnade.errors import ColonnadeError, IdentityError, RunError, Unwritable
from colonnade.identity.credentials import Credentials
from colonnade.wire.notice import canonical
from colonnade.written import keep_file

MOST_WORDS = 300  # letters of a reason
MOST_NAME = 64  # letters of the name of who decided


@dataclass(frozen=True)
class Decision:
    """What a person decided about one proposal."""

    run: str
    proposal: str  # its digest
    approved: bool
    because: str = ""
    time: str = ""
    by: str = ""  # the person: who is logged in, or whose key was used on the page; empty: before that was kept

    def __str__(self) -> str:
        told = "approved" if self.approved else "refused"
        return f"{told} by {self.by or 'a person'}" + (f" at {self.time}" if self.time else "")

    def kept(self) -> dict[str, object]:
        """What the record of a run says of it."""
        return {"approved": self.approved, "by": self.by, "time": self.time, "because": self.because}

    def body(self, party: str) -> dict[str, object]:
        """What is signed."""
        facts = {"run": self.run, "proposal": self.proposal, "approved": self.approved, "because": self.because}
        return {"what": "DECISION", "party": party, **facts, "time": self.time, **({"by": self.by} if self.by else {})}


def decide(folder: Path, decision: Decision, me: Credentials) -> None:
    """Sign and keep a decision, in place of an earlier one about the same proposal."""
    body = decision.body(me.name)
    write_kept(folder / _name(decision.proposal), {"body": body, "signature": me.sign(canonical(body))})


def decided(folder: Path, proposal: str, me: Credentials) -> Decision | None:
    """What was decided about a proposal; None: nothing yet.

    Raises:
        IdentityError: there is a decision, and this party's key did not sign it.
    """
    found = read_kept(folder / _name(proposal))
    if found is None:
        return None
    body, signature = found.get("body"), found.get("signature")
    if not isinstance(body, dict) or not isinstance(signature, dict):
        raise IdentityError(f"{_name(proposal)} is no signed decision; approve or refuse the run again")
    me.verify(canonical(body), signature, me.name)
    if body.get("proposal") != proposal or body.get("what") != "DECISION" or body.get("party") != me.name:
        raise IdentityError(f"{_name(proposal)} is a decision about something else; approve or refuse the run again")
    because, time, by = (str(body.get(key, "")) for key in ("because", "time", "by"))
    return Decision(str(body["run"]), proposal, body["approved"] is True, because, time, by)


def for_record(folder: Path, proposal: str, me: Credentials) -> dict[str, object]:
    """Who decided about a run, for its record; nothing, where nobody had to, or where the file is damaged."""
    try:
        found = decided(folder, proposal, me)
    except ColonnadeError:
        return {}
    return {} if found is None else {"decision": found.kept()}


def now() -> str:
    """The time, as it is written into files."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def _name(proposal: str) -> str:
    return f"decision-{proposal[:16]}.json"


def person() -> str:
    """Who is logged in: the person who decides by a command."""
    try:
        return getpass.getuser()[:MOST_NAME]
    except (OSError, KeyError):  # nobody has this number here
        return ""


def read_kept(path: Path) -> Mapping[str, Any] | None:
    """A file that was written so; None: there is none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise RunError(f"{path} cannot be read ({error}); put it back, or remove it") from None
    return found if isinstance(found, dict) else None


def write_kept(path: Path, content: Mapping[str, Any]) -> None:
    """The old file or the new one, never half of one; for its owner, as all that an organisation keeps."""
    try:
        keep_file(path, (json.dumps(content, indent=1) + "\n").encode(), 0o600)
    except OSError as error:
        raise Unwritable(f"{path} cannot be written: {error.strerror}; see to the disk") from None
