"""`colonnade keys`: add, list, remove, in the file that [http] names."""

from __future__ import annotations

from pathlib import Path

import pytest

from colonnade.web.callers import Callers
from tests.cli.conftest import Call
from tests.cli.organisations import COORDINATOR, PARTY

HTTP = '\n[http]\ncallers = "secrets/callers.json"\n'


def test_a_key_is_printed_once_and_may_be_taken_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Call
) -> None:
    monkeypatch.chdir(tmp_path)
    told = cli("keys", "list")
    assert told.code == 2 and "neither coordinator.toml nor party.toml" in told.err
    Path("party.toml").write_text(PARTY.format(name="telco", server="tls://localhost:4222"))
    told = cli("keys", "add", "shop", "--may", "predict")
    assert told.code == 2 and "party.toml has no [http] section" in told.err
    Path("secrets").mkdir()
    Path("coordinator.toml").write_text(COORDINATOR.format(server="tls://localhost:4222") + HTTP)
    key = cli("keys", "add", "shop", "--may", "predict", "--may", "watch").out.strip()
    found = Callers(tmp_path / "secrets" / "callers.json").who(key)
    assert found is not None and found.may == ("predict", "watch")
    listed = cli("keys", "list", "--json")
    assert key not in listed.out and found.hash not in listed.out
    assert listed.json["callers"] == [{"name": "shop", "may": ["predict", "watch"], "made": found.made}]
    assert cli("keys", "add", "till", "--json", "--may", "watch").json["key"].startswith("clk_")
    assert cli("keys", "remove", "shop").out == "shop may call no more\n"
    assert [line.partition(":")[0] for line in cli("keys", "list").out.splitlines()] == ["till"]
    told = cli("keys", "add", "desk", "--may", "all")
    assert told.code == 2 and "--may 'all': there is no such right" in told.err
