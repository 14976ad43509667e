"""docs/deployment.md does what it says: its how-to is typed on three machines, which are folders on this one.

What differs from the page is here, and nowhere else: `REPLACED`, `STANDINS`, and processes that are forked (`forked`).
"""

from __future__ import annotations

import os
import re
import runpy
import shlex
import shutil
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.main import get_command

from colonnade import __version__
from colonnade.cli.main import app
from colonnade.deploy.policy import read_policy
from colonnade.deploy.settings import read_coordinator, read_party
from tests.architecture.source import ROOT
from tests.cli import settings_doc
from tests.docs.pages import Stage, steps_of
from tests.forking import forked
from tests.nats_server import needs_nats

TEXT = settings_doc.DEPLOYMENT.read_text(encoding="utf-8")
EXAMPLE = ROOT / "examples" / "organisations"
UNITS = sorted((ROOT / "examples" / "systemd").glob("*.service"))
COMMANDS = dict(get_command(app).commands)  # type: ignore[attr-defined]
HOSTS = {"bank_a": "bank-a.example", "bank_b": "bank-b.example", "telco": "telco.example"}
REPLACED = {"nats.bank-a.example": "localhost", "0.0.0.0": "127.0.0.1", ":4222": ":{port}"}
STANDINS = {  # commands that would leave this machine, or change it
    "pip": f'[ "$*" = "install ../colonnade-{__version__}-py3-none-any.whl[all]" ]',
    "sudo": '[ "$*" = "apt-get install nats-server" ]',
    "scp": 'for to; do :; done; while [ $# -gt 1 ]; do cp "$1" "$MACHINES/${to%%:*}/${to#*:}"; shift; done',
}
SECONDS = 900.0  # until the last line


@pytest.fixture
def port() -> Iterator[int]:
    """A port that nobody else is given: bound, and free for a server that says SO_REUSEADDR."""
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        yield int(holder.getsockname()[1])


@pytest.fixture
def stage(tmp_path: Path, port: int) -> Iterator[Stage]:
    """Three machines, each with a copy of the example."""
    replaced = {there: here.format(port=port) for there, here in REPLACED.items()}
    folders = {name: tmp_path / host / "organisations" / name for name, host in HOSTS.items()}
    for folder in folders.values():
        shutil.copytree(EXAMPLE, folder.parent)
        for file in folder.glob("*.toml"):
            text = file.read_text(encoding="utf-8")
            for there, here in replaced.items():
                text = text.replace(there, here)
            file.write_text(text, encoding="utf-8")
    standins = tmp_path / "standins"
    standins.mkdir()
    for name, script in STANDINS.items():
        (standins / name).write_text(f"#!/bin/sh\n{script}\n")
        (standins / name).chmod(0o755)
    path = f"{standins}:{Path(sys.executable).parent}:{os.environ['PATH']}:/usr/sbin"
    environment = {**os.environ, "PATH": path, "MACHINES": str(tmp_path), "OMP_NUM_THREADS": "1"}
    with forked(standins):
        yield Stage(folders, environment, replaced, SECONDS)


@needs_nats
@pytest.mark.slow
def test_the_how_to_works_as_it_is_written(stage: Stage) -> None:
    stage.play(TEXT)
    found = (stage.folders["bank_a"] / "predictions.csv").read_text().splitlines()
    assert len(found) == 26
    assert found[0] == "row,prediction,proba_benign,proba_malignant"
    assert {p.name for p in (stage.folders["telco"]).iterdir()} >= {"alignment", "party", "telco.csv"}
    assert not list(stage.folders["telco"].parent.rglob("bank_a.csv")), "a machine holds another's table"
    said = "\n".join(terminal.shown for (_, name), terminal in stage.terminals.items() if name != "main")
    assert len(said.splitlines()) > 40
    assert re.findall(r"\bC\d{6}\b", said) == [], "an id is in a log"


WRONG = {
    "another word": "```bash machine=here\necho one\n```\n\n```text machine=here\ntwo\n```\n",
    "another number": "```bash machine=here\necho 427 rows\n```\n\n```text machine=here\n428 rows\n```\n",
    "another order": "```bash machine=here\nprintf 'a\\nb\\n'\n```\n\n```text machine=here\nb\na\n```\n",
    "another status": "```bash machine=here\nexit 2\n```\n",
    "a status that did not come": "```bash machine=here exit=2\ntrue\n```\n",
    "a failure on the way": "```bash machine=here\nfalse\ntrue\n```\n",
    "another file": "```toml machine=here file=some.toml\na = 2\n```\n",
    "a command nowhere": "```bash\ntrue\n```\n",
    "a terminal in use": "```bash machine=here terminal=a\nsleep 60\n```\n\n" * 2,
}
RIGHT = """```bash machine=here terminal=a
echo 11:12:13 digest 0123456789ab, 0.5 of 3; exec sleep 60
```

```text machine=here terminal=a
08:00:00 digest ba9876543210, 1.25 of 3
```

<!-- press machine=here terminal=a key=Ctrl-C -->

```bash machine=here terminal=a
echo prompt
```

```text machine=here terminal=a
pro...
```

```toml machine=here file=some.toml
a = 1
```
"""


@pytest.fixture
def small(tmp_path: Path) -> Stage:
    (tmp_path / "some.toml").write_text("a = 1\n")
    return Stage({"here": tmp_path}, os.environ, {}, 2.0)


@pytest.mark.parametrize("name", WRONG)
def test_a_page_that_is_wrong_fails(name: str, small: Stage) -> None:
    with pytest.raises(AssertionError, match="line "):
        small.play(WRONG[name])


def test_a_page_that_is_right_passes(small: Stage) -> None:
    small.seconds = 30.0
    small.play(RIGHT)


def test_the_how_to_has_every_step() -> None:
    typed = "\n".join(step.text for step in steps_of(TEXT) if step.kind == "bash")
    for command in ("certificates", "nats-config", "align", "party", "coordinator", "report", "predict"):
        assert f"colonnade {command} " in typed, command
    assert any(step.kind == "press" and step.options["key"] == "kill" for step in steps_of(TEXT))


@pytest.mark.parametrize("machine", HOSTS)
def test_the_files_of_the_example_are_valid(machine: str) -> None:
    party = read_party(EXAMPLE / machine / "party.toml").party
    assert party.name == machine
    read_policy(party.policy)
    if machine == "bank_a":
        coordinator = read_coordinator(EXAMPLE / machine / "coordinator.toml").coordinator
        assert set(coordinator.parties) == set(HOSTS)
        assert coordinator.folder != party.folder, "two processes of one machine in one folder"


def test_tables_of_three_machines_fit_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make = runpy.run_path(str(EXAMPLE / "make_tables.py"))["main"]
    ids = {}
    for machine in HOSTS:
        make(machine)
        ids[machine] = {line.partition(",")[0] for line in Path(f"{machine}.csv").read_text().splitlines()[1:]}
    labelled = [line.split(",") for line in Path("labels.csv").read_text().splitlines()[1:]]
    new = set(Path("new.csv").read_text().split()[1:])
    assert {customer for customer, _ in labelled} == ids["bank_a"]
    assert {customer for customer, label in labelled if not label} == new
    assert new <= ids["bank_a"] & ids["bank_b"] & ids["telco"]


def test_the_settings_tables_are_up_to_date() -> None:
    told = "docs/deployment.md is out of date; run: python -m tests.cli.settings_doc"
    assert settings_doc.page(settings_doc.DEPLOYMENT) == TEXT, told


def test_links_lead_somewhere() -> None:
    for target, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", TEXT):
        assert (settings_doc.DEPLOYMENT.parent / target).exists(), target
        if anchor and not target:
            assert anchor in anchors(TEXT), anchor


def anchors(page: str) -> set[str]:
    """The names that a page's headings have as targets of links."""
    headings = re.findall(r"^#+ (.*)$", page, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_event_is_explained() -> None:
    """Whatever a process says to its operator is in the table of events."""
    package = ROOT / "src" / "colonnade"
    files = [file for part in ("align", "cli", "deploy", "engines") for file in (package / part).glob("*.py")]
    code = "\n".join(file.read_text(encoding="utf-8") for file in files)
    said = set(
        re.findall(r"""\b(?:notify|_notify|journal)\(\s*"([a-z ]+)",? *(?:\)|\w+=|\*\*|$)""", code, re.MULTILINE)
    )
    assert len(said) > 15
    assert {event for event in said if f"`{event}`" not in TEXT} == set()


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.stem)
def test_the_units_start_what_there_is(unit: Path) -> None:
    text = unit.read_text(encoding="utf-8")
    (start,) = re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE)
    if start.startswith("colonnade"):
        check_command(shlex.split(start)[1:])
        assert re.search(r"^SuccessExitStatus=143$", text, re.MULTILINE), "a clean stop would count as a failure"
        assert re.search(r"^RestartPreventExitStatus=.*\b2$", text, re.MULTILINE), (
            "a refusal would be repeated for ever"
        )
    assert all(len(line) <= 120 for line in text.splitlines())


def test_the_compose_file_starts_what_there_is() -> None:
    text = (EXAMPLE / "compose.yaml").read_text(encoding="utf-8")
    commands = re.findall(r"command: \[colonnade, (.*)\]\n +volumes: \[\"./(\w+):", text)
    assert len(commands) == 7
    for command, folder in commands:
        words = command.split(", ")
        check_command(words)
        assert (EXAMPLE / folder / words[1]).exists()


def check_command(words: list[str]) -> None:
    known = {option for parameter in COMMANDS[words[0]].params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= known
