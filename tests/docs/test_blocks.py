"""Blocks on the pages that no test follows from top to bottom: Python runs on small data, TOML is read, commands exist.

Pages that are followed word by word are named here, with the test that does it. A new page is among the others until
somebody follows it.
"""

from __future__ import annotations

import functools
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import colonnade as cn
from colonnade.cli.main import command_line
from colonnade.deploy.policy import Policy
from colonnade.deploy.sections import CoordinatorSection
from colonnade.job import SECTIONS, read_job
from colonnade.web.settings import HttpSection
from tests.architecture.source import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DOCS = ROOT / "docs"
BLOCK = re.compile(r"^```(python|toml|bash)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FOLLOWED = {  # page or folder -> who follows it
    "examples": "tests/docs/test_examples.py",
    "tutorials": "tests/docs/test_tutorials.py",
    "deployment.md": "tests/docs/test_deployment.py",
    "estimators.md": "tests/docs/test_estimators.py",
    "explain.md": "tests/docs/test_explain.py",
    "local-models.md": "tests/docs/test_local_models.py",
    "python.md": "tests/docs/test_python.py",
    "scorecards.md": "tests/docs/test_scorecards.py",
    "secure-sum.md": "tests/privacy/test_secure_sum.py",
    "service.md": "tests/docs/test_service.py",
    "tables.md": "tests/docs/test_tables.py",
}
ROWS = 400
FEW = 3  # rounds: that it runs is tested here, not how good it gets


def blocks(kind: str) -> Iterator[Any]:
    for path in sorted(DOCS.rglob("*.md")):
        name = path.relative_to(DOCS).as_posix()
        if name in FOLLOWED or name.partition("/")[0] in FOLLOWED:
            continue
        text = path.read_text(encoding="utf-8")
        for found in BLOCK.finditer(text):
            if found[1] == kind:
                line = text.count("\n", 0, found.start()) + 1
                yield pytest.param(found[2], id=f"{name}-{line}")


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the blocks take for granted: three tables, a federation, a run, and a `fit` of few rounds."""
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(0)
    x = draw.normal(size=(ROWS, 15))
    tables = {
        name: pd.DataFrame(x[:, 5 * at : 5 * at + 5], columns=list("abcde")).assign(customer=np.arange(ROWS))
        for at, name in enumerate(("bank", "telco", "shop"))
    }
    answer = np.where(x.sum(axis=1) + draw.normal(size=ROWS) > 0, "yes", "no")
    told = tables["bank"].assign(default=answer)
    fit = functools.partial(_short, cn.fit)
    named = {**tables, "bank": told}
    federation = cn.Federation.from_tables(named, labels="default", id="customer", keep="all")
    run = fit(federation, "vimadmm_j", out=tmp_path / "runs/first")
    known: dict[str, Any] = {"cn": cn, "Federation": cn.Federation, "fit": fit, "federation": federation, "run": run}
    known |= {**tables, "bank": told, "tables": named}
    known |= {"df1": tables["bank"].assign(churn=answer)[:180], "df2": tables["telco"][60:]}
    known |= {"columns": {name: x[:, [at]] for at, name in enumerate("abc")}, "labels": answer, "array": np.ones(ROWS)}
    monkeypatch.setattr(cn, "fit", fit)
    return known


def _short(fit: Any, *given: Any, **settings: Any) -> Any:
    return fit(*given, **{**settings, "rounds": min(settings.get("rounds", FEW), FEW), "progress": False})


@pytest.mark.parametrize("text", list(blocks("python")))
@pytest.mark.filterwarnings("ignore")
def test_python_runs(text: str, world: dict[str, Any]) -> None:
    if "months" in text:  # another label and a weight beside it
        bank = world["bank"].rename(columns={"default": "churned"}).assign(months=1.0)
        world["tables"] = {**world["tables"], "bank": bank}
    if ".extend(" in text:  # the run has every party but the newcomer
        first = {name: world["tables"][name] for name in ("bank", "telco")}
        before = cn.Federation.from_tables(first, labels="default", id="customer")
        world["fit"](before, "one_message", model={"encoder": "ridge"}, out="runs/before")
        text = text.replace("runs/first", "runs/before")
    if ".leave(" in text:
        world["fit"](world["federation"], "one_message", model={"encoder": "ridge"}, out="runs/with-shop")
    exec(compile(text.replace("from colonnade.fit import fit\n", ""), "page", "exec"), world)  # noqa: S102


@pytest.mark.parametrize("text", list(blocks("toml")))
def test_toml_is_read(text: str) -> None:
    read = tomllib.loads(text)
    if read.keys() <= set(SECTIONS):
        read_job(read)
    elif read.keys() == {"http"}:
        HttpSection(**read["http"])
    elif read.keys() == {"coordinator"}:
        CoordinatorSection(**{"table": "labels.csv", "id": "customer", "label": "churned", **read["coordinator"]})
    elif read.keys() == {"withdrawal"} or all(not isinstance(value, dict) for value in read.values()):
        Policy(**read)
    else:
        pytest.fail(f"nobody reads the sections {sorted(read)}")


@pytest.mark.parametrize("text", list(blocks("bash")))
def test_commands_and_options_exist(text: str) -> None:
    known = command_line().commands  # type: ignore[attr-defined]
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words[:1] != ["colonnade"]:
            continue
        command = known[words[1]]
        command = getattr(command, "commands", {}).get(" ".join(words[2:3]), command)
        options = {option for parameter in command.params for option in parameter.opts}
        assert {word.partition("=")[0] for word in words if word.startswith("--")} <= options, line


def test_a_page_that_is_followed_has_its_test() -> None:
    for page, test in FOLLOWED.items():
        assert (DOCS / page).exists() and (ROOT / test).exists(), page
