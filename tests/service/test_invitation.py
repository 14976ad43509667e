"""Invitations: what a party that serves listens to, and what it does not."""

from __future__ import annotations

from typing import Any

import pytest

from colonnade.deploy.invitation import ALIGNMENT, EXTENSION, INVITATION, RUN, RUNS, Invited, read_invitation
from colonnade.engines.message import Incoming
from colonnade.errors import ColonnadeError
from colonnade.identity.certificates import make_trial
from colonnade.identity.credentials import Credentials
from colonnade.wire.messages import COORDINATOR
from colonnade.wire.notice import Notice, canonical
from tests.deploy.memory import connection

BODY = {"what": INVITATION, "run": "churn", "parties": ["bank", "telco"]}


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Credentials]:
    folder = tmp_path_factory.mktemp("certs") / "certs"
    make_trial(folder, ("bank", "telco"))
    return {name: Credentials.load(connection(folder, name)) for name in (COORDINATOR, "bank", "telco")}


def invitation(signer: Credentials, body: Any, signed: Any = None, kind: str = INVITATION) -> Incoming:
    facts = {"body": body, "signature": signer.sign(canonical(signed or body))}
    return Incoming(f"run.{RUNS}.down.telco", Notice(RUNS, 0, kind, COORDINATOR, facts).payload)


def test_the_run_of_an_invitation(people: dict[str, Credentials]) -> None:
    for what in (INVITATION, ALIGNMENT, EXTENSION):
        read = read_invitation(invitation(people[COORDINATOR], {**BODY, "what": what}), people["telco"])
        assert read == Invited(what, "churn")


@pytest.mark.parametrize(
    ("change", "needle"),
    [
        ({"run": "../churn"}, "no name of a run"),
        ({"run": "churn\n"}, "no name of a run"),
        ({"run": 3}, "no name of a run"),
        ({"what": "JOIN"}, "no name of a run"),
        ({"parties": ["bank"]}, "is not among"),
        ({"parties": "telco"}, "is not among"),
    ],
)
def test_what_is_no_invitation(people: dict[str, Credentials], change: dict[str, Any], needle: str) -> None:
    with pytest.raises(ColonnadeError, match=needle):
        read_invitation(invitation(people[COORDINATOR], {**BODY, **change}), people["telco"])


def test_only_the_coordinator_invites(people: dict[str, Credentials]) -> None:
    with pytest.raises(ColonnadeError, match="only 'coordinator' may sign this"):
        read_invitation(invitation(people["bank"], BODY), people["telco"])
    with pytest.raises(ColonnadeError, match="does not hold"):
        read_invitation(invitation(people[COORDINATOR], BODY, {**BODY, "run": "other"}), people["telco"])
    with pytest.raises(ColonnadeError, match="no invitation"):
        read_invitation(invitation(people[COORDINATOR], BODY, kind="CLOSE"), people["telco"])


def test_no_run_can_be_called_as_the_link_of_invitations() -> None:
    assert not RUN.fullmatch(RUNS)
