"""All commands: help with an example, one JSON object, and what each is for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import colonnade
from colonnade.__main__ import main
from colonnade.cli import doctor
from colonnade.config import read_toml
from colonnade.data.sets.cifar10_files import BATCHES
from colonnade.job import read_job
from colonnade.run import read_record
from tests.architecture.source import ROOT
from tests.cli.conftest import Call
from tests.cli.test_bad_input import write_tables
from tests.processes import HEAVY, TELLING

COMMANDS = (
    "demo", "init tables", "train", "compare", "resume", "predict", "report", "estimate", "audit", "doctor",
    "certificates", "nats-config", "align", "party", "coordinator",
)  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example_and_json(command: str, cli: Call) -> None:
    done = cli(*command.split(), "--help")
    assert done.code == 0
    assert f"Example: colonnade {command}" in " ".join(done.out.split())
    assert "--json" in done.out


def test_the_version(cli: Call) -> None:
    done = cli("--version")
    assert (done.code, done.out) == (0, f"colonnade {colonnade.__version__}\n")


HEAVIER = (*HEAVY, "numpy", "nats")
EVERY_HELP = f"""
import sys
from typer.main import get_command
from colonnade.__main__ import main
from colonnade.cli.main import app
def ask(*words):
    sys.argv = ["colonnade", *words, "--help"]
    try:
        main()
    except SystemExit as end:
        assert not end.code, words
def every(command, *words):
    ask(*words)
    for name, part in getattr(command, "commands", {{}}).items():
        every(part, *words, name)
every(get_command(app))
print([name for name in {HEAVIER!r} if name in sys.modules])
"""


def test_an_unknown_option_is_status_2(cli: Call) -> None:
    done = cli("train", "--roundz")
    assert done.code == 2
    assert "No such option" in done.err


def test_no_help_loads_what_it_does_not_show() -> None:
    """The page of every command in one process: none of it needs torch, tables or drawing, which take seconds."""
    done = subprocess.run([sys.executable, "-c", EVERY_HELP], capture_output=True, text=True, check=True)
    *pages, loaded = done.stdout.splitlines()
    assert loaded == "[]"
    assert sum("Usage: " in line for line in pages) > 20, "not every command was asked"


@pytest.mark.parametrize(
    "words",
    [
        ["certificates", "--party", "bank_a", "--folder", "made"],
        ["nats-config", "--party", "bank_a", "--certificates", "certs"],
        ["align", "coordinator.toml"],  # here as far as its configuration; tests/align has it to the end
        ["party", "no.toml"],
        ["coordinator", "no.toml"],
    ],
    ids=lambda words: words[0],
)
def test_what_does_not_train_loads_no_training_code(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "certs").mkdir()
    for name in ("ca.crt", "server.crt", "server.key"):
        (tmp_path / "certs" / name).touch()
    (tmp_path / "coordinator.toml").write_text("[coordinator]\nlabels = 1\n")
    done = subprocess.run([*TELLING, *words], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == (0 if words[0] in ("certificates", "nats-config") else 2), done.stderr
    assert done.stderr.splitlines()[-1] == "loaded:"


def test_the_report_goes_where_it_is_told(cli: Call, finished: Path) -> None:
    done = cli("report", finished, "--out", "page.html", "--json")
    files = {"markdown": "page.md", "data": "page.json", "pictures": "page-pictures"}
    assert done.json == {"report": "page.html", **files, "runs": 1, "bytes": Path("page.html").stat().st_size}
    assert all(Path(place).exists() for place in files.values())
    alone = cli("report", finished, "--out", "alone/report.html", "--page-only", "--json").json
    assert (alone["markdown"], [path.name for path in Path("alone").iterdir()]) == (None, ["report.html"])
    assert cli("report", finished, "--out", "folder", "--page-only").out.strip() == "folder/report.html"
    assert cli("report", finished, finished, "--page-only").out.strip() == "report.html"
    assert cli("report", finished.parent, "--out", "parent.html", "--page-only").code == 0  # a folder of runs


def test_a_report_that_cannot_be_written(cli: Call, finished: Path, config: Path) -> None:
    done = cli("report", finished, "--out", config / "page.html")
    assert done.code == 2
    assert "choose another place" in done.err


def test_the_estimate_is_what_the_run_sends(cli: Call, config: Path, finished: Path) -> None:
    before = sorted(Path().iterdir())
    facts = cli("estimate", config, "--json").json
    record = read_record(finished)
    assert (facts["total"]["up"], facts["total"]["down"]) == (record["traffic"]["up"], record["traffic"]["down"])
    assert facts["total"]["multicast"] == record["traffic"]["multicast"]
    assert facts["total"]["evaluation"] == record["traffic"]["evaluation"]
    assert facts["per_party"]["party_2"]["up"] == record["traffic"]["per_party"]["party_2"]["up"]
    text = cli("estimate", config).out
    assert "party_2" in text
    assert "multicast" in text
    assert sorted(Path().iterdir()) == before


def test_the_doctor_names_versions_and_data(cli: Call, tmp_path: Path) -> None:
    facts = cli("doctor", "--json").json
    assert facts["colonnade"] == colonnade.__version__
    assert facts["extras"]["report"]["missing"] == []
    data = {found["name"]: found for found in facts["data"]}
    assert data["digits"]["place"] == "comes with scikit-learn"
    assert "train-images-idx3-ubyte.gz" in data["mnist"]["missing"]
    assert data["cifar10"]["missing"] == ["cifar-10-python.tar.gz"]
    text = cli("doctor").out
    for word in ("python", "torch", "threads", "GPU", "free disk", "missing: "):
        assert word in text


def test_the_doctor_finds_files_and_names_those_that_lack(cli: Call, tmp_path: Path) -> None:
    mnist, cifar, nus = tmp_path / "mnist", tmp_path / "cifar10", tmp_path / "nus_wide/Groundtruth/TrainTestLabels"
    for folder in (mnist, cifar, nus, tmp_path / "modelnet40/chair/train"):
        folder.mkdir(parents=True)
    for name in ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz", "t10k-images-idx3-ubyte"):
        (mnist / name).touch()
    for name in [f"{key}.webp" for key in BATCHES][:-1]:
        (cifar / name).touch()
    found = {f.name: f for f in doctor.find_data(tmp_path)}
    assert found["mnist"].missing == ("t10k-labels-idx1-ubyte.gz",)
    assert found["cifar10"].missing == ("test.webp", "labels.npz")
    assert "Groundtruth/TrainTestLabels/Labels_buildings_Train.txt" in found["nus_wide"].missing
    assert found["modelnet40"].place == str(tmp_path / "modelnet40")
    (mnist / "t10k-labels-idx1-ubyte.gz").touch()
    (cifar / "test.webp").touch()
    (cifar / "labels.npz").touch()
    found = {f.name: f for f in doctor.find_data(tmp_path)}
    assert found["mnist"].place == str(mnist)
    assert found["cifar10"].place == str(cifar)


def test_the_doctor_says_how_to_get_what_is_missing(cli: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "find_spec", lambda name: None if name == "pyarrow" else object())
    assert cli("doctor", "--json").json["extras"]["tables"]["get"] == "pip install 'colonnade[tables]'"
    assert "lacks pyarrow; get it: pip install 'colonnade[tables]'" in cli("doctor").out


@pytest.mark.parametrize(("system", "named"), [("Windows", "WSL 2"), ("Darwin", "CUDA"), ("Plan 9", "Plan 9")])
def test_the_doctor_names_what_assumes_linux(
    system: str, named: str, cli: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli("doctor", "--json").json["limits"] == []
    monkeypatch.setattr("platform.system", lambda: system)
    done = cli("doctor")
    assert "nothing is tested on" in done.out + done.err
    assert named in done.out + done.err


@pytest.mark.parametrize("extra", ["matplotlib", "jinja2"])
def test_without_the_report_extra_nothing_is_trained_in_vain(
    extra: str, cli: Call, config: Path, finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, extra, None)
    for arguments in (["compare", config], ["demo"], ["report", finished]):
        done = cli(*arguments)
        assert done.code == 2
        assert f"a report needs {extra}" in done.err
        assert "pip install colonnade[report]" in done.err


def test_not_a_number_is_null_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    from colonnade.cli.screen import Screen

    Screen(as_json=True).emit({"a": float("nan"), "b": [float("inf"), 1.5], "c": {"d": None}})
    assert json.loads(capsys.readouterr().out) == {"a": None, "b": [None, 1.5], "c": {"d": None}}


EXAMPLES = sorted((ROOT / "examples").glob("*.toml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_examples_are_valid(path: Path) -> None:
    assert path.read_text().startswith("#"), "an example says what it shows"
    read_job(read_toml(path))


def test_the_examples_run(cli: Call) -> None:
    short = ["--set", "training.rounds=1"]
    write_tables()
    assert cli("train", ROOT / "examples/digits.toml", *short, "--quiet").code == 0
    assert cli("train", ROOT / "examples/tables.toml", *short, "--quiet").code == 0
    assert cli("compare", ROOT / "examples/compare.toml", *short).code == 0


@pytest.mark.parametrize(
    ("own", "seen"), [({}, "1000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "ACTIVE"}, None)]
)
def test_threads_do_not_spin_unless_the_user_says_so(
    own: dict[str, str], seen: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spinning threads take the cores of a busy machine; the library reads this when torch is loaded, so before it."""
    others = {name: value for name, value in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    monkeypatch.setattr(os, "environ", {**others, **own})
    found: list[str | None] = []
    monkeypatch.setattr("colonnade.cli.main.main", lambda: found.append(os.environ.get("GOMP_SPINCOUNT")))
    main()
    assert found == [seen]
