"""`colonnade init organisations` writes folders and a README.txt; whoever follows it has a trained model."""

from __future__ import annotations

import csv
import os
import re
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from colonnade import __version__
from colonnade.cli import init_organisations
from colonnade.deploy.settings import read_coordinator, read_party
from tests.cli.conftest import call_main
from tests.docs.pages import Terminal
from tests.docs.test_deployment import port as port  # noqa: PLC0414 - a fixture
from tests.forking import forked
from tests.nats_server import needs_nats

SECONDS = 600.0  # until the last line
SAID = ("--party", "bank", "--party", "telco", "--id", "customer", "--label", "churned", "--rounds", "6")
MOST_COMMANDS = 8  # from nothing to a joint model of three organisations, where all have one machine


def steps(text: str) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Title, and folder and command of each line that is typed."""
    for _, title, typed in re.findall(r"^(\d+)\. (.*)\n((?:   in .*\n)*)", text, re.MULTILINE):
        yield title, re.findall(r"^   in (\w+)\$ (.*)$", typed, re.MULTILINE)


def put_tables(folder: Path) -> None:
    rng, ids = np.random.default_rng(3), [f"K{row:04d}" for row in range(80)]
    values = rng.normal(size=(80, 4)).round(4)
    held = {
        "bank": (range(80), slice(0, 2)),
        "telco": (range(10, 80), slice(2, 4)),
        "hospital": (range(5, 80), slice(1, 3)),
    }
    for name, (rows, which) in held.items():
        table = [["customer", f"{name}_a", f"{name}_b"], *([ids[row], *values[row, which]] for row in rows)]
        with (folder / name / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows(table)
    churned = [
        ["customer", "churned"],
        *([ids[row], "yes" if values[row, ::2].sum() > 0 else "no"] for row in range(80)),
    ]
    with (folder / "bank" / "labels.csv").open("w", newline="") as file:
        csv.writer(file).writerows(churned)


@pytest.mark.parametrize(
    ("method", "more", "rounds"),
    [("vimadmm", (), 100), ("one_message", (), None), ("assisted_boosting", (), None), ("one_message", ("6",), 6)],
)
def test_methods_that_know_how_long_train_as_long(
    tmp_path: Path, method: str, more: tuple[str, ...], rounds: int | None
) -> None:
    """A hundred rounds of one_message sent the same scores a hundred times."""
    said = (*SAID[:-2], *(("--rounds", *more) if more else ()), "--method", method)
    assert call_main("init", "organisations", str(tmp_path / "new"), *said) == 0
    training = read_coordinator(tmp_path / "new" / "bank" / "coordinator.toml").training
    assert ("rounds" in training.model_fields_set) == (rounds is not None)
    assert rounds is None or training.rounds == rounds
    assert f"most_rounds = {rounds or 100}\n" in (tmp_path / "new" / "telco" / "policy.toml").read_text()


@needs_nats
@pytest.mark.slow
def test_its_readme_leads_to_a_trained_model(tmp_path: Path, port: int) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    wheel = f"./colonnade-{__version__}-py3-none-any.whl[all]"
    (tools / "pip").write_text(f'#!/bin/sh\n[ "$*" = "install {wheel}" ]\n')
    (tools / "pip").chmod(0o755)
    path = f"{tools}:{Path(sys.executable).parent}:{os.environ['PATH']}:/usr/sbin"
    environment = {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1"}
    folder, open_terminals, deadline = tmp_path / "organisations", list[Terminal](), time.monotonic() + SECONDS
    said = (*SAID, "--party", "hospital", "--server", f"localhost:{port}")
    assert call_main("init", "organisations", folder, *said) == 0
    put_tables(folder)
    done, typed_until_trained, trained = 0, {"colonnade init organisations"}, False
    with forked(tools):  # it ends when all that it started has ended: terminals are closed before
        try:
            for title, typed in steps((folder / "README.txt").read_text()):
                if not trained:  # one installation serves all folders of a machine
                    typed_until_trained |= {c if c.startswith("pip") else f"{where}$ {c}" for where, c in typed}
                trained = trained or title.startswith("Train")
                terminals = [Terminal(command, folder / where, environment) for where, command in typed]
                open_terminals += terminals
                if "Leave it running" not in title:
                    for terminal, (_, command) in zip(terminals, typed, strict=True):
                        assert terminal.end(deadline) == 0, f"{command}:\n{terminal.shown}"
                        done += 1
        finally:
            for terminal in open_terminals:
                terminal.close()
    assert done >= 9
    assert trained and len(typed_until_trained) <= MOST_COMMANDS
    assert "signed by bank for run first" in "\n".join(terminal.shown for terminal in open_terminals)
    assert "signed by coordinator for run first" in open_terminals[-1].shown
    assert (folder / "bank" / "run" / "report.html").exists()


def test_everybody_gets_its_own_keys_and_no_other(tmp_path: Path) -> None:
    folder = tmp_path / "organisations"
    said = ("--label-holder", "lab", "--table", "bank=b.parquet", "--server", "nats.example:4222", "--run", "churn")
    assert call_main("init", "organisations", folder, *SAID, *said) == 0
    keys = {path.relative_to(folder).as_posix() for path in folder.rglob("*.key")}
    assert keys == {
        "authority/ca.key", "server/certs/server.key", "lab/certs/coordinator.key", "bank/certs/bank.key",
        "telco/certs/telco.key",
    }  # fmt: skip
    assert all(stat.S_IMODE((folder / key).stat().st_mode) == 0o600 for key in keys)
    party, coordinator = (
        read_party(folder / "bank" / "party.toml"),
        read_coordinator(folder / "lab" / "coordinator.toml"),
    )
    assert party.party.table == folder / "bank" / "b.parquet" and party.connection.server == "tls://nats.example:4222"
    assert (coordinator.coordinator.own, coordinator.coordinator.run) == ((), "churn")
    assert "0.0.0.0:4222" in (folder / "server" / "nats.conf").read_text()
    mine = (folder / "telco" / "README.txt").read_text()
    assert "in telco$ colonnade serve party.toml" in mine and "in bank$" not in mine and "in lab$" not in mine


def test_the_label_holders_own_party_leaves_the_label_out(tmp_path: Path) -> None:
    """Its table often has it, and a model that learns from it has perfect scores and is of no use."""
    folder = tmp_path / "organisations"
    assert call_main("init", "organisations", folder, *SAID) == 0
    labels = {name: read_party(folder / name / "party.toml").party.label for name in ("bank", "telco")}
    assert labels == {"bank": read_coordinator(folder / "bank" / "coordinator.toml").coordinator.label, "telco": None}


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (("--party", "bank", "--id", "x", "--label", "y"), "is the only party"),
        (("--party", "bank"), "the column to predict: nobody is there to answer; say it with --label"),
        ((), "names of the parties: nobody is there to answer; say it with --party"),
        ((*SAID, "--server", "nats.example"), "needed HOST:PORT"),
        ((*SAID, "--table", "shop=a.csv"), "there is no such party"),
        ((*SAID, "--party", "authority"), "stands for another folder"),
        ((*SAID, "--method", "vimadm"), "vimadm"),
        ((*SAID, "--run", "Big Run"), "run"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_written(
    said: tuple[str, ...], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call_main("init", "organisations", tmp_path / "new", *said) == 2
    assert told in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_keys_that_are_there_are_never_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call_main("init", "organisations", tmp_path, *SAID) == 2
    assert "is there already" in capsys.readouterr().err


def test_a_dialogue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {
        "Names of the parties": "bank, telco",
        "Who has the labels": "telco",
        "The column to predict": "churned",
        "The id column of the tables": "customer",
        "Where all reach the server": "nats.example:4223",
    }
    monkeypatch.setattr(init_organisations.sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(init_organisations.typer, "prompt", lambda what, default=None: answers.pop(what))
    assert call_main("init", "organisations", tmp_path / "new") == 0
    assert not answers
    read = read_coordinator(tmp_path / "new" / "telco" / "coordinator.toml")
    assert (read.coordinator.parties, read.coordinator.own) == (("bank", "telco"), ("telco",))
