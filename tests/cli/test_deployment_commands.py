"""`align`, `party`, `coordinator` and `predict --ids` as an operator meets them: what is refused, and how they stop.

Whatever is wrong is one sentence and status 2, and no file changes. The real processes at the end are stopped and
started again in the middle of a run; everything they log is searched for what must never be in a log.
"""

from __future__ import annotations

import csv
import io
import json
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from colonnade.cli.operating import Journal
from colonnade.folder import claimed
from colonnade.identity.certificates import make_trial
from tests.cli.conftest import Call, Result
from tests.cli.organisations import PARTIES, SHARED, Process, align_by_hand, customers, furnish
from tests.cli.test_bad_input import cut, edit, folders, listing, refused
from tests.identity.issuing import Issued, authority, issue, loaded
from tests.nats_server import NatsServer, needs_nats
from tests.processes import LONG

NOWHERE = "tls://localhost:9"  # the discard port: nobody listens


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trial") / "certs"
    make_trial(folder, (*PARTIES, "stranger"))
    return folder


@pytest.fixture
def here(cli: Call, tmp_path: Path, certificates: Path) -> Path:
    """The current folder: bank/ and telco/, aligned; no server is reached."""
    furnish(tmp_path, certificates, NOWHERE)
    align_by_hand(tmp_path)
    return tmp_path


@contextmanager
def bounded(seconds: int = int(LONG)) -> Iterator[None]:
    """A command that does not refuse would wait for a server that never comes."""

    def give_up(number: int, frame: FrameType | None) -> None:
        raise AssertionError(f"nothing was refused within {seconds} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture
def refuses(cli: Call, here: Path) -> Callable[..., None]:
    """Call, expect a refusal, and expect that no file or folder changed."""

    def check(arguments: list[object], *needles: str) -> None:
        before, there = listing(here), folders(here)
        with bounded():
            result = cli(*arguments)
        refused(result, *needles)
        assert listing(here) == before
        assert folders(here) == there

    return check


def refused_at_last(result: Result, *needles: str) -> None:
    """As `refused`, of a command that has talked to a server: events of the connection may stand before it."""
    *_, last = result.err.splitlines()
    refused(Result(result.code, result.out, f"{last}\n"), *needles)
    assert "Traceback" not in result.err


Refuses = Callable[..., None]
ALIGN_PARTY, ALIGN_BANK = ["align", "telco/party.toml"], ["align", "bank/coordinator.toml"]
PARTY, COORDINATOR = ["party", "telco/party.toml"], ["coordinator", "bank/coordinator.toml"]
EVERY = {"align (party)": ALIGN_PARTY, "align (bank)": ALIGN_BANK, "party": PARTY, "coordinator": COORDINATOR}
OF_PARTIES = {"align": ALIGN_PARTY, "party": PARTY}
OF_ALL = {"align": ALIGN_PARTY, "party": PARTY, "coordinator": COORDINATOR}


# -- configuration files ----------------------------------------------------------------------


@pytest.mark.parametrize("command", ["align", "party", "coordinator"])
def test_a_missing_file(command: str, refuses: Refuses) -> None:
    refuses([command, "gone.toml"], "'gone.toml' does not exist")


@pytest.mark.parametrize("command", ["align", "party", "coordinator"])
def test_a_file_that_is_not_toml(command: str, refuses: Refuses) -> None:
    Path("bad.toml").write_text("[party\n")
    refuses([command, "bad.toml"], "bad.toml is not valid TOML")


def test_a_file_of_another_kind(refuses: Refuses) -> None:
    Path("other.toml").write_text('[data]\nset = "digits"\n')
    refuses(["align", "other.toml"], "neither a [party] nor a [coordinator] section")
    refuses(["party", "bank/coordinator.toml"], "unknown key 'coordinator' in [coordinator.toml]")
    Path("empty.toml").write_text("")
    refuses(["party", "empty.toml"], "no [party] section", 'documentation, page "Separate organisations"')
    refuses(["coordinator", "empty.toml"], "no [coordinator] section", 'documentation, page "Separate organisations"')


SETTINGS = {
    "unknown key of a party": (PARTY, "party.polcy=x.toml", "unknown key 'polcy' in [party]", "'policy'?"),
    "unknown section of a party": (PARTY, "conection.key=x", "unknown key 'conection'", "'connection'?"),
    "training belongs to the coordinator": (PARTY, "training.rounds=3", "unknown key 'training'"),
    "unknown key of the connection": (PARTY, "connection.sever=x", "unknown key 'sever' in [connection]", "'server'?"),
    "a server without TLS": (
        PARTY,
        "connection.server=nats://localhost:4222",
        "server = 'nats://localhost:4222'",
        "tls",
    ),
    "a run's name": (PARTY, "party.run=Two Words", "run = 'Two Words' is not valid"),
    "a party's name": (PARTY, "party.name=bank-a", "name = 'bank-a' is not valid"),
    "a device": (PARTY, "party.device=gpu0", "cpu, cuda or cuda:0"),
    "unknown key of the coordinator": (COORDINATOR, "coordinator.labels=x", "in [coordinator]", "'label'?"),
    "unknown key of absence": (COORDINATOR, "absence.patiance=3", "in [absence]", "'patience'?"),
    "a choice": (COORDINATOR, "absence.then=leave", "then = 'leave' is not valid", "'wait', 'continue' or 'stop'"),
    "unknown key of training": (COORDINATOR, "training.round=3", "'rounds'?"),
    "unknown method": (COORDINATOR, "method.name=vimadm", "did you mean 'vimadmm'?"),
    "own who is no party": (COORDINATOR, 'coordinator.own=["bnak"]', "own names 'bnak', who is not among parties"),
    "a party twice": (COORDINATOR, 'coordinator.parties=["bank","bank"]', "names somebody twice"),
    "shares": (COORDINATOR, "coordinator.test=1.5", "test = 1.5 is not valid", "less than 1"),
    "not an override": (COORDINATOR, "rounds=3", "needed section.key=value"),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_is_refused(name: str, refuses: Refuses) -> None:
    command, change, *needles = SETTINGS[name]
    refuses([*command, "--set", change], *needles)


@pytest.mark.parametrize("key", ["name", "run", "table", "id"])
@pytest.mark.parametrize("command", OF_PARTIES)
def test_a_missing_key(command: str, key: str, refuses: Refuses) -> None:
    lines = Path("telco/party.toml").read_text().splitlines()
    Path("telco/party.toml").write_text("\n".join(line for line in lines if not line.startswith(f"{key} = ")))
    remedy = ["--set party.run=NAME"] if key == "run" else []
    refuses(OF_PARTIES[command], f"[party] needs {key!r}: ", *remedy)


# -- tables -----------------------------------------------------------------------------------


@pytest.mark.parametrize("command", OF_PARTIES)
def test_a_missing_table(command: str, refuses: Refuses) -> None:
    Path("telco/telco.csv").unlink()
    refuses(OF_PARTIES[command], "telco.csv' does not exist", "check the path")


@pytest.mark.parametrize("command", OF_PARTIES)
def test_a_missing_id_column(command: str, refuses: Refuses) -> None:
    edit("telco/telco.csv", "customer,", "client,")
    refuses(OF_PARTIES[command], "no id column 'customer'", "columns: ", "'client'")


@pytest.mark.parametrize("command", OF_PARTIES)
def test_an_id_twice(command: str, refuses: Refuses) -> None:
    lines = Path("telco/telco.csv").read_text().splitlines()
    Path("telco/telco.csv").write_text("\n".join([*lines, lines[3]]))
    refuses(OF_PARTIES[command], "id column 'customer': 1 ids occur more than once", "keep one row per id")


@pytest.mark.parametrize("command", OF_PARTIES)
def test_an_empty_id(command: str, refuses: Refuses) -> None:
    edit("telco/telco.csv", customers()[2], "")
    refuses(OF_PARTIES[command], "1 ids are empty", "give those rows an id or drop them")


@pytest.mark.parametrize("side", ["telco/party.toml", "bank/coordinator.toml"])
def test_align_reads_ids_as_the_file_says(side: str, refuses: Refuses) -> None:
    """What is left open is refused; once it is said, the ids are read so far that one of them is found twice."""
    section = "party" if side.startswith("telco") else "coordinator"
    table = Path(side).parent / "open.csv"
    table.write_text("branch,account;x\n" + "".join(f"{k % 3},{k % 50};1\n" for k in range(50)) + "0,0;1\n")
    said = ["--set", f"{section}.table=open.csv", "--set", f"{section}.id=['branch','account;x']"]
    refuses(["align", side, *said], "separated by commas (2 columns) or semicolons (2 columns)", "say separator")
    twice = "id column 'branch' + 'account;x': 1 ids occur more than once"
    refuses(["align", side, *said, "--set", f"{section}.separator=','"], twice)


def test_a_table_that_lost_aligned_rows(refuses: Refuses) -> None:
    edit("telco/telco.csv", customers()[2], "somebody-else")
    refuses(PARTY, f"1 of {SHARED} aligned ids are not in 'telco.csv' any more", "or align again")


def test_a_table_that_cannot_be_used(refuses: Refuses) -> None:
    lines = Path("telco/telco.csv").read_text().splitlines()
    at = next(n for n, line in enumerate(lines) if line.startswith(customers()[0]))
    lines[at] = f"{customers()[0]},inf,1.5"
    Path("telco/telco.csv").write_text("\n".join(lines))
    refuses(PARTY, "party 'telco', column 'minutes_zq': 1 of 58 values are infinite", "replace them")


def test_a_table_without_columns(refuses: Refuses) -> None:
    Path("telco/telco.csv").write_text("\n".join(["customer", *customers()]))
    refuses(PARTY, "no columns besides the id 'customer'")


def test_labels(refuses: Refuses) -> None:
    refuses([*COORDINATOR, "--set", "coordinator.label=churn"], "no label column 'churn'", "columns: churned")
    refuses([*COORDINATOR, "--set", "coordinator.id=client"], "no id column 'client'")
    refuses([*COORDINATOR, "--set", "coordinator.table=gone.csv"], "gone.csv' does not exist")
    edit("bank/labels.csv", ",yes", ",perhaps")
    refuses([*COORDINATOR, "--set", "coordinator.task=binary"], "two different labels; got 3 (no, perhaps, yes)")
    Path("bank/labels.csv").write_text("\n".join(["customer,churned", *(f"{name}," for name in customers())]))
    refuses(COORDINATOR, f"none of the {SHARED} aligned rows has a label in 'churned'")


# -- alignments -------------------------------------------------------------------------------

TRAINING = {"party": (PARTY, "telco"), "coordinator": (COORDINATOR, "bank")}


@pytest.mark.parametrize("command", TRAINING)
def test_a_missing_alignment(command: str, refuses: Refuses) -> None:
    arguments, folder = TRAINING[command]
    shutil.rmtree(f"{folder}/alignment")
    refuses(arguments, "there is no alignment in", "run `colonnade align` first")


@pytest.mark.parametrize("file", ["alignment.csv", "alignment.json"])
@pytest.mark.parametrize("command", TRAINING)
def test_a_damaged_alignment(command: str, file: str, refuses: Refuses) -> None:
    arguments, folder = TRAINING[command]
    cut(Path(folder, "alignment", file), 0.7)
    refuses(arguments, "is damaged", "run `colonnade align` again on all sides")


def test_an_alignment_whose_row_was_changed(refuses: Refuses) -> None:
    edit("telco/alignment/alignment.csv", customers()[1], customers()[-1])
    refuses(PARTY, "alignment.csv is not the file that was written")


# -- certificates -----------------------------------------------------------------------------


@pytest.mark.parametrize("file", ["ca.crt", "telco.crt", "telco.key"])
def test_a_missing_certificate(file: str, refuses: Refuses) -> None:
    Path("telco/certs", file).unlink()
    for command in (ALIGN_PARTY, PARTY):
        refuses(command, f"{file}' does not exist", "`colonnade certificates`")


def test_a_certificate_that_is_none(refuses: Refuses) -> None:
    Path("telco/certs/telco.crt").write_text("not a certificate")
    refuses(PARTY, "telco.crt' is not a usable certificate in PEM form")


def test_an_expired_certificate(refuses: Refuses, certificates: Path) -> None:
    put("telco", issue("telco", by=loaded(certificates, "ca"), days=(-3, -1)))
    refuses(PARTY, "telco.crt' expired on ")
    put("telco", issue("telco", by=loaded(certificates, "ca"), days=(1, 3)))
    refuses(PARTY, "telco.crt' is valid only from ", "check this machine's clock")


def test_a_foreign_certificate(refuses: Refuses) -> None:
    put("telco", issue("telco", by=authority()))
    refuses(PARTY, "telco.crt' is not one of the authority's")


def test_a_key_of_another(refuses: Refuses, certificates: Path) -> None:
    shutil.copy(certificates / "bank.key", "telco/certs/telco.key")
    refuses(PARTY, "telco.key' does not fit", "give the pair made together")


def test_a_name_of_another(refuses: Refuses, certificates: Path) -> None:
    for part in ("crt", "key"):
        shutil.copy(certificates / f"bank.{part}", f"telco/certs/telco.{part}")
        shutil.copy(certificates / f"bank.{part}", f"bank/certs/coordinator.{part}")
    refuses(PARTY, "telco.crt is 'bank''s; this process is 'telco'", "give it its own certificate")
    refuses(COORDINATOR, "coordinator.crt is 'bank''s; this process is 'coordinator'")


def put(name: str, issued: Issued) -> None:
    Path(name, "certs", f"{name}.crt").write_bytes(issued.pem)
    Path(name, "certs", f"{name}.key").write_bytes(issued.key_pem)


# -- policy, folder ---------------------------------------------------------------------------


def test_a_policy_that_cannot_be_read(refuses: Refuses) -> None:
    refuses([*PARTY, "--set", "party.policy=gone.toml"], "gone.toml' does not exist")
    Path("telco/policy.toml").write_text("most_round = 3\n")
    refuses(PARTY, "unknown key 'most_round' in [policy, policy.toml]", "did you mean 'most_rounds'?")
    Path("telco/policy.toml").write_text('methods = ["vimadm"]\n')
    refuses(PARTY, "the method 'vimadm', which does not exist", "did you mean 'vimadmm'?")


def test_two_processes_in_one_folder(refuses: Refuses, here: Path) -> None:
    for command, folder in ((PARTY, "telco/party"), (COORDINATOR, "bank/run"), (ALIGN_PARTY, "telco/alignment")):
        with claimed(here / folder):
            refuses(command, f"another process works in '{here / folder}'", "stop it first")


def test_a_folder_that_cannot_be_made(refuses: Refuses) -> None:
    Path("telco/file").write_text("")
    refuses([*PARTY, "--set", "party.folder=file/run"], "cannot be used", "choose another")


# -- what an operator sees --------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_one_line_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    journal = Journal("text")
    for number in (1, 2, 3):
        journal("round", number=number, rounds=3, validation=None, best=None, bytes=10)
    journal("waiting", round=-1, parties=["bank", "telco"])
    journal("closed", run="small", reason="all rounds done")
    shown = sys.stderr.getvalue()
    assert "round 3 of 3: bytes 10" in shown
    assert "\rwaiting for bank, telco" in shown
    assert shown.count("\n") == 1, "only what matters has a line of its own"
    assert shown.endswith("closed: run small, all rounds done\n")


def test_progress_is_a_line_now_and_then_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.setattr("time.monotonic", lambda: now)
    journal = Journal("text")
    for number in range(1, 23):
        journal("round", number=number, rounds=30, validation=None, best=None, bytes=10)
        now += 1.0
    journal("waiting", parties=["telco"])
    journal("waiting", parties=["bank"])
    journal("waiting", parties=["bank"])
    told = [line.split(" ", 1)[1] for line in sys.stderr.getvalue().splitlines()]
    rounds = [f"round {number} of 30: bytes 10" for number in (1, 11, 21)]
    assert told == [*rounds, "waiting for telco", "waiting for bank"]


def test_a_quiet_process_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    for event in ("agreed", "round", "server"):
        Journal("text", quiet=True)(event, number=1, rounds=2)
    assert capsys.readouterr().err == ""


# -- the server -------------------------------------------------------------------------------


def test_a_server_that_is_not_there_is_waited_for(here: Path) -> None:
    waiting = Process(here / "telco", "party", "party.toml")
    waiting.wait_for("waiting for the server")
    assert waiting.terminate() == 143
    assert waiting.lines[-1].endswith("stopped: by SIGTERM, nothing is lost: start the same command again to go on")
    assert "Traceback" not in waiting.err


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    with NatsServer(tmp_path_factory.mktemp("nats"), PARTIES) as running:
        make_trial(running.certificates, ["stranger"])
        yield running


@needs_nats
def test_a_server_that_does_not_let_one_in(here: Path, server: NatsServer) -> None:
    edit("telco/party.toml", NOWHERE, server.url)
    foreign = Process(here / "telco", "party", "party.toml")  # its authority is not the server's
    shutil.copytree("telco", "stranger")
    shutil.rmtree("stranger/certs")
    shutil.copytree(server.certificates, "stranger/certs")
    text = Path("stranger/party.toml").read_text()
    Path("stranger/party.toml").write_text(
        text.replace('name = "telco"', 'name = "stranger"').replace("certs/telco.", "certs/stranger.")
    )
    unknown = Process(here / "stranger", "party", "party.toml")  # the server's configuration does not list it
    for process, name, why in ((foreign, "telco", "our authority"), (unknown, "stranger", "`colonnade nats-config`")):
        result = Result(process.end(), process.out, process.err)
        refused_at_last(result, f"the server {server.url} does not let '{name}' in", why)


# -- a run that is refused, stopped, continued and finished --------------------------------------------


@dataclass
class Story:
    """Real processes of one run, with what they said and how they ended."""

    folder: Path
    processes: dict[str, Process] = field(default_factory=dict)
    statuses: dict[str, int] = field(default_factory=dict)

    def start(self, name: str, organisation: str, *arguments: str) -> Process:
        self.processes[name] = Process(self.folder / organisation, *arguments, "--log", "json")
        return self.processes[name]

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()


@needs_nats
@pytest.mark.slow
def test_a_run_is_refused_and_stopped_and_goes_on_and_ends(cli: Call, tmp_path: Path, server: NatsServer) -> None:
    """One test, because its processes take their time: two workers must not play it twice."""
    story = Story(tmp_path / "story")
    furnish(story.folder, server.certificates, server.url)
    align_by_hand(story.folder)
    try:
        parties = [story.start(name, name, "party", "party.toml", "--once") for name in PARTIES]
        with bounded():
            result = cli("coordinator", story.folder / "bank/coordinator.toml", "--set", "training.rounds=1000")
        _train(story, *parties)
    finally:
        story.close()
    both_sides_show_why(result, story)
    with bounded():
        again = cli("coordinator", story.folder / "bank/coordinator.toml", "--set", "training.rounds=50")
    refused_at_last(again, "holds run 'small' with other settings", "give the new run another name and folder")
    a_stop_in_the_middle_says_how_to_go_on(story, "first")
    a_stop_in_the_middle_says_how_to_go_on(story, "telco")
    the_same_command_goes_on(story)
    it_ends_for_everybody(story)
    logs_are_json_and_say_nothing_they_must_not(story)
    predictions_are_refused_in_one_sentence(story, cli)


def _train(story: Story, bank: Process, telco: Process) -> None:
    """Stopped at the coordinator, then at a party; each is started again with the same command."""
    first = story.start("first", "bank", "coordinator", "coordinator.toml")
    first.wait_for('"event": "round"')
    story.statuses["first"] = first.terminate()
    second = story.start("second", "bank", "coordinator", "coordinator.toml", "--json")
    second.wait_for('"event": "round"')
    story.statuses["telco"] = telco.terminate()
    again = story.start("telco again", "telco", "party", "party.toml", "--once")
    story.statuses |= {"second": second.end(), "bank": bank.end(), "telco again": again.end()}


def both_sides_show_why(result: Result, story: Story) -> None:
    rule = "most_rounds: 1,000 rounds were asked for, the policy allows 500"
    refused_at_last(result, f"error: party 'telco' refuses: {rule}", "line 1 of policy.toml")
    told = [event for event in story.processes["telco"].events() if event["event"] == "refusing"]
    assert told[0]["reason"].startswith(rule)


def a_stop_in_the_middle_says_how_to_go_on(story: Story, name: str) -> None:
    assert story.statuses[name] == 143
    stopped = story.processes[name].events()[-1]
    assert (stopped["event"], stopped["by"]) == ("stopped", "SIGTERM")
    assert "start the same command again" in stopped["note"]


def the_same_command_goes_on(story: Story) -> None:
    before, after = ([e["number"] for e in rounds_of(story.processes[name])] for name in ("first", "second"))
    assert before == list(range(1, len(before) + 1))
    assert sorted(set(after)) == list(range(after[0], 101))
    assert after[0] in (len(before), len(before) + 1), "rounds were lost or trained again"
    reopened = [event for event in story.processes["telco again"].events() if event["event"] == "reopened"]
    assert 0 < reopened[0]["round"] < 101


def rounds_of(process: Process) -> list[dict[str, Any]]:
    return [event for event in process.events() if event["event"] == "round"]


def it_ends_for_everybody(story: Story) -> None:
    assert (story.statuses["second"], story.statuses["bank"], story.statuses["telco again"]) == (0, 0, 0)
    facts = json.loads(story.processes["second"].out)
    assert (facts["rounds"], facts["stop"], facts["method"]) == (100, "all rounds done", "vimadmm")
    assert facts["run"] == str(story.folder / "bank" / "run")
    assert story.processes["bank"].events()[-1]["event"] in ("closed", "disconnected")
    assert story.processes["bank"].out == ""


def logs_are_json_and_say_nothing_they_must_not(story: Story) -> None:
    for process in story.processes.values():
        assert all({"time", "event"} <= set(event) for event in process.events())
    said = "\n".join(process.err + process.out for process in story.processes.values())
    secrets = must_not_be_said(story.folder)
    assert len(secrets) > 200
    assert [secret for secret in secrets if secret in said] == []
    assert "Traceback" not in said


def must_not_be_said(folder: Path) -> set[str]:
    """Every id, column name and value of the tables, and every line of a key."""
    found = set()
    for table in ("bank/bank.csv", "telco/telco.csv"):
        header, *lines = csv.reader((folder / table).read_text().splitlines())
        found |= {*header[1:], *(cell.lstrip("-") for line in lines for cell in line)}
    for key in folder.rglob("certs/*.key"):
        found |= {line for line in key.read_text().splitlines() if "KEY" not in line}
    return found | {key.read_bytes().hex() for key in folder.rglob("key")}


# -- prediction -------------------------------------------------------------------------------


def predictions_are_refused_in_one_sentence(story: Story, cli: Call) -> None:
    run = story.folder / "bank" / "run"
    Path("good.txt").write_text(f"{customers()[0]}\n")
    Path("unknown.txt").write_text(f"{customers()[0]}\nnobody\n")
    Path("small.txt").write_text(f"{customers()[0].lower()}\n")
    Path("twice.txt").write_text(f"{customers()[0]}\n" * 2)
    Path("empty.txt").write_text("\n")
    Path("other.csv").write_text(f"client\n{customers()[0]}\n")
    before = {name: digest for name, digest in listing(story.folder).items() if "run.db" not in name}
    for file, needle in {
        "gone.txt": "the ids in 'gone.txt' cannot be read",
        "unknown.txt": "1 of 2 ids are not among the aligned rows (first: 'nobody')",
        "small.txt": "1 ids of this file and the alignment differ only in capitals; leave them out",
        "twice.txt": "listed more than once",
        "empty.txt": "no rows to predict",
        "other.csv": "no id column 'customer'",
    }.items():
        with bounded():
            refused_at_last(cli("predict", run, "--ids", file, "--output", "out.csv"), needle)
    refused(cli("predict", run, "--rows", "test"), "--ids FILE")
    refused(cli("predict", run, "--rows", "test", "--ids", "good.txt"), "say one thing to predict")
    refused(cli("predict", run, "--ids", "good.txt", "--config", "gone.toml"), "'gone.toml' does not exist")
    assert listing(story.folder).items() >= before.items()  # SQLite tidies up after itself whenever it likes
    assert not Path("out.csv").exists()


def test_a_run_of_one_process_has_no_ids_to_ask_about(finished: Path, cli: Call) -> None:
    Path("some.txt").write_text("C1\n")
    refused(cli("predict", finished, "--ids", "some.txt"), "is a simulated run", "--rows or --tables")
