"""The command line, called in this process; and one run that several tests look at."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from colonnade.cli.main import main
from colonnade.report import figures

SMALL = """
[data]
set = "digits"
parties = 2
[method]
name = "vimadmm"
local_steps = 2
[model]
hidden = 12
embedding = 6
[training]
rounds = 6
evaluate_every = 2
checkpoint_every = 2
schedule = { batch = 512 }
"""


@dataclass(frozen=True)
class Result:
    """What a call of the command line left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one object on stdout."""
        (line,) = self.out.splitlines()
        return json.loads(line)


Call = Callable[..., Result]


def call_main(*arguments: object) -> int:
    try:
        main([str(argument) for argument in arguments])
    except SystemExit as end:
        return int(end.code or 0)
    return 0


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Call the command line in an empty folder, as `colonnade ARGUMENTS`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLONNADE_DATA", str(tmp_path / "no-cache"))
    monkeypatch.setattr(figures, "LAYOUT", None)  # half the time of a report; tests/report see how it looks

    def call(*arguments: object) -> Result:
        capsys.readouterr()
        code = call_main(*arguments)
        return Result(code, *capsys.readouterr())

    return call


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A small configuration: one run takes a fraction of a second."""
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    return path


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of the small configuration; read it, or copy it."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "small.toml").write_text(SMALL)
    with contextlib.redirect_stdout(io.StringIO()):
        assert call_main("train", folder / "small.toml", "--out", folder / "run") == 0
    return folder / "run"
