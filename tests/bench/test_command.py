"""`colonnade bench` and `python -m colonnade.bench`: exit status, one object, a table, one clear sentence."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from colonnade.bench.__main__ import main
from colonnade.cli.main import main as command_line

JOB = """
[data]
set = "digits"
parties = 2
[model]
hidden = 8
embedding = 4
[training]
rounds = 1
evaluate_every = 1
schedule = { batch = 64 }
"""
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("colonnade.bench.perform.available_cores", lambda: 1)  # threads on busy cores spin
    files = tmp_path / "benchmarks"
    files.mkdir()
    for name, wanted in (("easy", "at_most = 100"), ("hard", "at_least = 101")):
        head = f'title = "an {name} one"\nkind = "accuracy"\n[targets]\ntest_accuracy = {{ {wanted} }}\n'
        (files / f"{name}.toml").write_text(head + JOB)
    missing = JOB.replace('set = "digits"', 'set = "mnist"\ndownload = false').replace("parties = 2", "parties = 14")
    (files / "gone.toml").write_text('title = "t"\nkind = "accuracy"\n' + missing)
    return tmp_path


@pytest.fixture(params=["python -m colonnade.bench", "colonnade bench"])
def run(request: pytest.FixtureRequest, folder: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Both doors to the same benchmarks; (exit status, standard output, standard error)."""

    def plain(*words: str) -> tuple[int, str, str]:
        status = main(words)
        return status, *capsys.readouterr()

    def through_typer(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as stop:
            command_line(["bench", *words])
        return int(stop.value.code or 0), *capsys.readouterr()

    return plain if request.param == "python -m colonnade.bench" else through_typer


def test_json_is_one_object_and_the_rest_goes_elsewhere(run: Run, folder: Path) -> None:
    status, out, err = run("easy", "--seeds", "1", "--json", "--out", "result.json")
    assert status == 0
    found = json.loads(out)
    assert list(found) == ["bench", "results", "targets", "passed", "machine", "commit"]
    assert (found["bench"], found["passed"]) == ("easy", True)
    assert found["targets"] == {"test_accuracy": {"at_most": 100.0}}
    assert all(isinstance(value, (int, float)) for value in found["results"].values())
    assert json.loads((folder / "result.json").read_text()) == found
    assert "seed 0: round 1 of 1" in err


def test_a_missed_target_is_exit_status_1(run: Run) -> None:
    status, out, _ = run("hard", "--seeds", "1", "--json")
    assert status == 1
    assert json.loads(out)["passed"] is False


def test_the_table_shows_result_target_and_verdict(run: Run) -> None:
    status, out, _ = run("hard", "--seeds", "1")
    assert status == 1
    line = next(line for line in out.splitlines() if "test_accuracy" in line and "std" not in line)
    assert ">= 101" in line and "no" in line.lower()
    assert "validation_accuracy" in out


def test_list_names_them_with_one_line_each(run: Run) -> None:
    status, out, _ = run("--list")
    assert status == 0
    assert [line.split()[0] for line in out.strip().splitlines()] == ["easy", "gone", "hard"]
    assert "an easy one" in out


def test_no_name_is_a_usage_error(run: Run) -> None:
    try:
        status, _, err = run()
    except SystemExit as stop:  # argparse ends by itself
        status, err = stop.code, "--list"
    assert status == 2 and "--list" in err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["esay"], "did you mean 'easy'?"),
        (["gone", "--data-dir", "nowhere"], "train-images-idx3-ubyte"),
        (["easy", "--device", "tpu9"], "is not a device"),
        (["easy", "--out", "nowhere/x.json"], "--out"),
        (["--write-pages"], "to write figures into; run this in a checkout"),
    ],
)
def test_what_cannot_be_run_is_one_sentence_and_exit_status_2(run: Run, words: list[str], sentence: str) -> None:
    status, out, err = run(*words)
    assert (status, out) == (2, "")
    assert sentence in err and len(err.strip().splitlines()) == 1


def test_the_plain_door_needs_no_library_that_the_gpu_machine_lacks(folder: Path) -> None:
    lacking = ("typer", "rich", "sklearn", "scipy", "pandas", "PIL", "matplotlib", "dp_accounting", "cryptography")
    block = (
        f"import sys; sys.modules.update(dict.fromkeys({lacking!r})); import colonnade.bench.explain;"
        "from colonnade.bench.__main__ import main; sys.exit(main(['--list']))"
    )
    done = subprocess.run([sys.executable, "-c", block], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "easy" in done.stdout
