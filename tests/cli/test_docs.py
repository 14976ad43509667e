"""The pages say what the program does: every command, every option, every setting."""

from __future__ import annotations

import re
import shlex

import pytest
from typer.main import get_command

from colonnade.cli.main import app
from colonnade.job import read_job
from tests.architecture.source import ROOT
from tests.cli import settings_doc
from tests.cli.settings_doc import tomllib

CLI = (ROOT / "docs" / "cli.md").read_text()
COMMANDS = dict(get_command(app).commands)  # type: ignore[attr-defined]


def test_the_settings_page_is_up_to_date() -> None:
    told = "docs/configuration.md is out of date; run: python -m tests.cli.settings_doc"
    assert settings_doc.page() == settings_doc.PAGE.read_text(), told


@pytest.mark.parametrize("text", re.findall(r"```toml\n(.*?)```", settings_doc.PAGE.read_text(), re.DOTALL))
def test_the_examples_of_the_settings_page_are_valid(text: str) -> None:
    read_job(tomllib.loads(text))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_option_is_on_the_page(name: str) -> None:
    found = re.search(rf"^## `colonnade {name}.*?(?=^## |\Z)", CLI, re.DOTALL | re.MULTILINE)
    assert found, f"docs/cli.md has no section for {name}"
    leaves = getattr(COMMANDS[name], "commands", {name: COMMANDS[name]}).values()  # of a group: each of its commands
    options = {o for leaf in leaves for parameter in leaf.params for o in parameter.opts if o.startswith("--")}
    for option in options - {"--help"}:
        assert option in found[0], f"docs/cli.md does not say {option} of {name}"


@pytest.mark.parametrize("line", re.findall(r"^colonnade .*$", CLI, re.MULTILINE))
def test_the_examples_of_the_page_name_real_options(line: str) -> None:
    words = shlex.split(line.partition(" #")[0])[1:]
    command = COMMANDS[words[0]]
    command = getattr(command, "commands", {}).get(" ".join(words[1:2]), command)
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= known


@pytest.mark.parametrize("name", ["cli.md", "configuration.md"])
def test_links_lead_somewhere(name: str) -> None:
    page = ROOT / "docs" / name
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target
