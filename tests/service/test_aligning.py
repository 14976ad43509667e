"""From nothing to a joint model with parties that serve: they align by themselves, as often as their policy allows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from colonnade.align.files import read_alignment
from colonnade.align.messages import Proposal
from colonnade.deploy.policy import Policy
from colonnade.deploy.sections import read_party_file
from colonnade.errors import Refused, RunError
from colonnade.service.aligning import A_DAY, COUNT, Aligner
from tests.cli.organisations import PARTIES, SHARED, Process, furnish
from tests.cli.test_bad_input import edit
from tests.nats_server import NatsServer, needs_nats
from tests.service.test_party_daemon import SHORT, serve


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """The organisations with a server; nothing is aligned, and no party.toml names a run."""
    with NatsServer(tmp_path / "nats", PARTIES) as server:
        furnish(tmp_path / "here", server.certificates, server.url)
        for name in PARTIES:
            edit(tmp_path / "here" / name / "party.toml", 'run = "small"\n', "")
        (tmp_path / "here/telco/policy.toml").write_text("alignments_per_day = 1\n")
        yield tmp_path / "here"


@needs_nats
@pytest.mark.slow
def test_everybody_serves_and_a_model_comes_of_it(folder: Path) -> None:
    bank, telco = serve(folder, "bank"), serve(folder, "telco")
    holder = Process(folder / "bank", "serve", "coordinator.toml", *SHORT, "--log", "json")
    try:
        holder.wait_for('"event": "promoted"')
        found = read_alignment(folder / "telco/alignment")
        assert found.complete == SHARED and found.digest == read_alignment(folder / "bank/alignment").digest
        assert '"event": "aligned"' in telco.err and '"event": "aligned"' in holder.err

        again = Process(folder / "bank", "align", "coordinator.toml")
        assert again.end() == 2
        assert "1 alignments were agreed to in the last 24 hours, the policy allows 1" in again.err
        assert "Traceback" not in bank.err + telco.err + holder.err
    finally:
        for process in (holder, bank, telco):
            process.kill()


def proposal(**facts: object) -> Proposal:
    said = {"name": "small", "attempt": "0" * 32, "parties": ("telco",), "keep": "all", "ids": 5, "key": "00" * 32}
    return Proposal.model_validate({**said, **facts})


def test_alignments_are_counted_before_anything_is_said(tmp_path: Path) -> None:
    (tmp_path / "certs").mkdir()
    config = tmp_path / "party.toml"
    places = 'authority = "certs/a"\ncertificate = "certs/b"\nkey = "certs/c"\n'
    config.write_text(
        '[party]\nname = "telco"\ntable = "t.csv"\nid = "id"\n\n[connection]\nserver = "tls://localhost:1"\n' + places
    )
    (tmp_path / "party").mkdir()
    told: list[tuple[str, object]] = []
    policy = Policy(alignments_per_day=2)
    aligner = Aligner(read_party_file(config), lambda: policy, lambda e, **f: told.append((e, f)), lambda: None)
    aligner._agree(proposal())
    aligner._agree(proposal(extends="1" * 64))
    with pytest.raises(Refused, match="2 alignments were agreed to in the last 24 hours, the policy allows 2"):
        aligner._agree(proposal())
    count = tmp_path / "party" / COUNT
    first, second = (json.loads(line) for line in count.read_text().splitlines())
    assert first["extends"] is None and second["ids"] == 5
    count.write_text(json.dumps({**first, "at": first["at"] - A_DAY}) + "\n" + json.dumps(second) + "\n")
    aligner._agree(proposal())
    count.write_text("{}\n")
    with pytest.raises(RunError, match="nobody knows how many"):
        aligner._agree(proposal())

    policy = Policy()
    aligner.invited("small", True, None)
    assert "colonnade align party.toml --set party.run=small --more" in str(told[-1])
