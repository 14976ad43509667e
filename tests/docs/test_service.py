"""docs/service.md: its settings are valid, its links lead somewhere, and every event of the processes is in it."""

from __future__ import annotations

import re

from colonnade.config import build
from colonnade.deploy.policy import Policy
from colonnade.deploy.sections import PartySection, Retraining
from colonnade.web.settings import HttpSection
from tests.architecture.source import ROOT
from tests.cli.settings_doc import DEPLOYMENT, tomllib
from tests.docs.test_deployment import anchors

PAGE = ROOT / "docs" / "service.md"
TEXT = PAGE.read_text(encoding="utf-8")


def test_the_settings_are_valid() -> None:
    party, policy, schedule, http = (tomllib.loads(text) for text in re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL))
    assert build(PartySection, party["party"], "party").run is None
    assert build(Policy, policy, "policy").approval_above_epsilon == 2.0
    assert build(Retraining, schedule["schedule"], "schedule").seconds == 7 * 86400
    assert build(HttpSection, http["http"], "http").address.scheme == "https"


def test_links_lead_somewhere() -> None:
    pages = {"": TEXT, "deployment.md": DEPLOYMENT.read_text(encoding="utf-8")}
    for target, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", TEXT):
        assert (PAGE.parent / target).exists(), target
        if anchor and target in pages:
            assert anchor in anchors(pages[target]), anchor


def test_every_event_is_explained() -> None:
    files = (ROOT / "src" / "colonnade" / "service").glob("*.py")
    code = "\n".join(file.read_text(encoding="utf-8") for file in files)
    said = set(re.findall(r"""(?:_notify|tell)\(\s*"([a-z ]+)",? *(?:\)|\w+=|\*\*|$)""", code, re.MULTILINE))
    assert len(said) > 7
    known = TEXT + DEPLOYMENT.read_text(encoding="utf-8")
    assert {event for event in said if f"`{event}`" not in known} == set()
