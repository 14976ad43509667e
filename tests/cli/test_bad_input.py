"""Bad input through the command line: status 2, one sentence with the remedy, and nothing half-written."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.cli.conftest import Call, Result

TABLES = """
[data]
tables = { bank = "bank.csv", telco = "telco.csv" }
labels = "churn"
id = "customer"
[method]
name = "vimadmm_j"
local_steps = 1
[model]
hidden = 4
embedding = 2
[training]
rounds = 2
"""


def listing(folder: Path) -> dict[str, str]:
    """Every file below a folder with what is in it."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def folders(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_dir()}


def write_tables(rows: int = 60) -> None:
    """A bank and a telephone company that share customers."""
    rng = np.random.default_rng(0)
    bank = [f"{k},{x:.3f},{y:.3f}" for k, (x, y) in enumerate(rng.normal(size=(rows, 2)))]
    minutes = rng.normal(size=rows)
    score = minutes + 0.5 * rng.normal(size=rows)  # no column tells the label alone
    telco = [f"{k},{x:.3f},{int(s > np.median(score))}" for k, (x, s) in enumerate(zip(minutes, score, strict=True))]
    Path("bank.csv").write_text("\n".join(["customer,income,balance", *bank]) + "\n")
    Path("telco.csv").write_text("\n".join(["customer,minutes,churn", *telco]) + "\n")
    Path("tables.toml").write_text(TABLES)


def edit(file: str, old: str, new: str) -> None:
    path = Path(file)
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def refused(result: Result, *needles: str) -> None:
    assert result.code == 2, result
    assert result.out == ""
    assert result.err.startswith("error: ")
    assert result.err.count("\n") == 1, "more than one sentence"
    for needle in needles:
        assert needle in result.err


@pytest.fixture
def refuses(cli: Call, tmp_path: Path) -> Callable[..., None]:
    """Call, expect a refusal, and expect that no file or folder changed."""

    def check(arguments: list[object], *needles: str) -> None:
        before, there = listing(tmp_path), folders(tmp_path)
        refused(cli(*arguments), *needles)
        assert listing(tmp_path) == before
        assert folders(tmp_path) == there

    return check


SETTINGS = {
    "unknown key": ("training.round=3", "unknown key 'round' in [training]", "did you mean 'rounds'?"),
    "unknown key of the method": ("method.local_step=3", "did you mean 'local_steps'?"),
    "unknown inner key": ("training.schedule.batsh=3", "did you mean 'batch'?"),
    "unknown key of one of several": ("method.optimiser={kind='sgd',momentun=0.5}", "did you mean 'momentum'?"),
    "unknown key of the data": ("data.partys=3", "did you mean 'parties'?"),
    "unknown section": ("trainig.rounds=3", "did you mean 'training'?"),
    "unknown method": ("method.name=vimadm", "did you mean 'vimadmm'?"),
    "unknown data set": ("data.set=digit", "did you mean 'digits'?"),
    "wrong type": ("training.rounds=many", "rounds = 'many' is not valid", "integer"),
    "wrong type of the data": ("data.parties=many", "parties = 'many' is not valid"),
    "out of range": ("method.rho=-1", "rho = -1 is not valid", "greater than 0"),
    "too many parties": ("data.parties=9", "at most that many strips"),
    "too little damping": ("method.damping=0.1", "damping = 0.1 is below 1/M", "to 1"),
    "no such device": ("training.device=gpu0", "use cpu, cuda or cuda:0"),
    "not an override": ("rounds=3", "needed section.key=value"),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_is_refused(name: str, refuses: Callable[..., None], config: Path) -> None:
    change, *needles = SETTINGS[name]
    refuses(["train", config, "--out", "here", "--set", change], *needles)


@pytest.mark.parametrize("command", ["train", "compare", "estimate"])
def test_every_command_refuses_alike(command: str, refuses: Callable[..., None], config: Path) -> None:
    refuses([command, config, "--set", "training.round=3"], "did you mean 'rounds'?")


def test_a_comparison_is_checked_before_it_begins(refuses: Callable[..., None], config: Path) -> None:
    refuses(["compare", config, "--seeds", "0,x"], "needed whole numbers")
    refuses(["compare", config, "--seeds", "0,0"], "without repetitions")
    refuses(["compare", config, "--methods", "vimadmm,vimadm"], "did you mean 'vimadmm'?")
    refuses(["compare", config, "--set", "compare.method=1"], "did you mean 'methods'?")
    refuses(["compare", config, "--set", "compare.vimadmm_j.rh=1"], "did you mean 'rho'?")
    refuses(["compare", config, "--set", "compare.vimadmm_j.damping=0.1"], "below 1/M")  # the first method is fine


def test_a_missing_configuration(refuses: Callable[..., None]) -> None:
    refuses(["train", "gone.toml"], "'gone.toml' does not exist")


def test_a_configuration_that_is_not_toml(refuses: Callable[..., None], tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("[data\n")
    refuses(["train", "bad.toml"], "not valid TOML")


def test_an_infinite_number_in_a_table(refuses: Callable[..., None]) -> None:
    write_tables()
    lines = Path("bank.csv").read_text().splitlines()
    lines[4] = "3,inf,1.0"
    Path("bank.csv").write_text("\n".join(lines) + "\n")
    refuses(["train", "tables.toml"], "party 'bank', column 'income': 1 of 60 values are infinite", "replace them")


def test_rows_that_do_not_match(refuses: Callable[..., None]) -> None:
    write_tables()
    lines = Path("bank.csv").read_text().splitlines()
    Path("bank.csv").write_text("\n".join([lines[0], *(f"x{line}" for line in lines[1:])]) + "\n")
    refuses(["train", "tables.toml"], "no id in column 'customer' is in all tables", "check that it is the same kind")


def test_rows_of_different_number_without_an_id(refuses: Callable[..., None]) -> None:
    write_tables()
    edit("tables.toml", 'id = "customer"\n', "")
    with Path("bank.csv").open("a") as file:
        file.write("999,0.0,0.0\n")
    refuses(["train", "tables.toml"], "same rows in the same order", "name the column to join on")


def test_labels_that_could_be_classes_or_a_quantity(refuses: Callable[..., None]) -> None:
    write_tables()
    edit("telco.csv", ",1\n", ",-1\n")
    told = "label column 'churn': the labels are 3 different whole numbers from -1 to 1"
    refuses(["train", "tables.toml"], told, 'task="multiclass" (classes) or task="regression" (a number)')


def test_labels_that_do_not_fit_the_task(refuses: Callable[..., None]) -> None:
    write_tables()
    edit("telco.csv", ",1\n", ",2\n")
    edit("tables.toml", 'id = "customer"', 'id = "customer"\ntask = "binary"')
    refuses(["train", "tables.toml"], "a yes/no task needs two different labels; got 3 (0, 1, 2)")


def test_a_missing_table(refuses: Callable[..., None]) -> None:
    write_tables()
    Path("telco.csv").unlink()
    refuses(["train", "tables.toml"], "table file 'telco.csv' does not exist", "check the path")


def test_a_missing_data_set(refuses: Callable[..., None], config: Path) -> None:
    changes = ["--set", "data.set=mnist", "--set", "data.download=false", "--data-dir", "nowhere"]
    refuses(["train", config, *changes], "train-images-idx3-ubyte.gz was not found in nowhere", "--data-dir FOLDER")


def cut(path: Path, keep: float) -> None:
    raw = path.read_bytes()
    path.write_bytes(raw[: int(len(raw) * keep)])


@pytest.fixture
def copy(finished: Path, cli: Call, tmp_path: Path) -> Path:
    """A finished run to damage, in the current folder."""
    shutil.copytree(finished, tmp_path / "run")
    return Path("run")


@pytest.mark.parametrize("keep", [0.0, 0.5, 0.99])
@pytest.mark.parametrize("command", [["report"], ["resume"], ["predict", "--rows", "test"]], ids=lambda c: c[0])
def test_a_truncated_record(command: list[str], keep: float, copy: Path, refuses: Callable[..., None]) -> None:
    cut(copy / "run.json", keep)
    refuses([command[0], copy, *command[1:]], "run.json is damaged", "restore it from a copy")


@pytest.mark.parametrize("file", ["model.safetensors", "ledger.jsonl"])
@pytest.mark.parametrize("keep", [0.0, 0.5, 0.99])
def test_a_truncated_model_or_ledger(file: str, keep: float, copy: Path, refuses: Callable[..., None]) -> None:
    if file == "ledger.jsonl" and keep == 0.0:
        (copy / file).unlink()  # an empty ledger is a ledger; a missing one is not
    else:
        cut(copy / file, keep)
    refuses(["predict", copy, "--rows", "test", "--output", "out.csv"], "restore")


@pytest.mark.parametrize("keep", [0.01, 0.3, 0.9])
def test_a_truncated_store(keep: float, copy: Path, refuses: Callable[..., None]) -> None:
    (copy / "run.json").unlink()  # as if it had been interrupted
    cut(copy / "run.db", keep)
    refuses(["resume", copy], "run.db", "restore it from a copy or start anew")


def test_a_folder_that_is_no_run(refuses: Callable[..., None], tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    refuses(["report", "gone"], "'gone' is not a run folder", "colonnade train")
    refuses(["report", "empty"], "is not a run folder")
    refuses(["resume", "empty"], "has no run.db", "colonnade train")
    refuses(["predict", "empty", "--rows", "test"], "is not a run folder")


@pytest.mark.parametrize("command", ["train", "compare"])
def test_an_existing_out_folder(command: str, refuses: Callable[..., None], config: Path, copy: Path) -> None:
    refuses([command, config, "--out", copy], "run already exists", "--out")


def test_a_demo_replaces_only_demos(refuses: Callable[..., None], copy: Path) -> None:
    refuses(["demo", "--out", copy], "is not a demo folder", "--out")


def test_the_real_process_says_the_same(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "colonnade", "train", "gone.toml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    refused(Result(done.returncode, done.stdout, done.stderr), "'gone.toml' does not exist")


def test_labels_of_one_class_a_wrong_task_and_an_infinite_setting(cli: Call) -> None:
    write_tables()
    refused(cli("train", "tables.toml", "--set", "data.task=multi"), "task = 'multi': needed one of multiclass, binary")
    refused(cli("train", "tables.toml", "--set", "method.rho=inf"), "rho = inf is not valid: input should be a finite")
    lines = Path("telco.csv").read_text().splitlines()
    Path("telco.csv").write_text(
        "\n".join([lines[0], *(f"{line.rpartition(',')[0]},yes" for line in lines[1:])]) + "\n"
    )
    refused(cli("train", "tables.toml"), "label column 'churn': all 60 labels are 'yes'; there is nothing to learn")


def test_a_folder_with_a_run_can_be_resumed(cli: Call, finished: Path, config: Path) -> None:
    refused(cli("train", config, "--out", finished), f"to go on with the run in it: colonnade resume {finished}")


def test_a_run_without_a_model_does_not_predict(cli: Call, finished: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(finished, tmp_path / "diverged"))
    record = json.loads((copy / "run.json").read_text())
    record["result"] |= {"diverged": True, "best_round": None}
    (copy / "run.json").write_text(json.dumps(record))
    refused(cli("predict", copy, "--rows", "test"), "diverged before any round was kept: there is no model")
