"""The organisation's file: what was sent is not sent otherwise, what was spent is not forgotten."""

from __future__ import annotations

import sqlite3
import stat
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from colonnade.deploy.budget import TableBudget, check_table
from colonnade.deploy.policy import Policy, check_repeats
from colonnade.deploy.table_ledger import Entered, Sent, TableLedger
from colonnade.errors import Refused, RunError, Unwritable
from colonnade.privacy.events import PlainEvent, Unit
from colonnade.privacy.gaussian import GaussianEvent
from colonnade.privacy.sampled import SampledGaussianEvent
from colonnade.privacy.together import Cost

NOISE = Cost(GaussianEvent(1.0, 30.0), 100, 53)  # epsilon 0.897 at delta 1e-5


@pytest.fixture
def ledger(tmp_path: Path) -> TableLedger:
    return TableLedger(tmp_path / "spent.db")


def run(proposal: str, *costs: Cost, **facts: Any) -> Entered:
    usual = {"run": f"run-{proposal}", "party": "telco", "table": "customers", "columns": "c0", "rows": 100}
    return Entered(proposal, **{**usual, **facts}, costs=costs or (NOISE,))


def test_a_file_that_is_not_there_knows_nothing(ledger: TableLedger) -> None:
    assert ledger.runs() == [] and ledger.sent("a") is None
    assert ledger.most_predicted("t", ["1"]) == 0 and ledger.predictions("t") == (0, 0, 0)
    assert not ledger.path.exists()


def test_only_its_owner_reads_it(ledger: TableLedger) -> None:
    ledger.mask_keys("a", make=True)
    assert stat.S_IMODE(ledger.path.stat().st_mode) == 0o600


def test_runs_are_counted_by_the_name_of_the_table_whatever_rows_it_has(ledger: TableLedger) -> None:
    ledger.enter(run("a"))
    ledger.enter(run("b", columns="c1", rows=200))  # new rows
    ledger.enter(run("c", table="other"))
    found = ledger.runs("customers")
    assert [(r.proposal, r.columns, r.rows) for r in found] == [("a", "c0", 100), ("b", "c1", 200)]
    assert all(r.costs == (NOISE,) and r.began and not r.ended for r in found)
    assert TableBudget.read(ledger, "customers", Policy()).figures[Unit.PARTY].releases == 106


def test_a_run_that_is_over_costs_what_it_released(ledger: TableLedger) -> None:
    ledger.enter(run("a"))
    ledger.end("a", [Cost(NOISE.event, 100, 10)])
    ledger.end("a", [])  # once
    ledger.enter(run("a"))  # its party was started again
    (found,) = ledger.runs("customers")
    assert found.ended and found.costs[0].times == 10


def test_training_at_home_is_not_forgotten_although_it_sends_nothing(ledger: TableLedger) -> None:
    at_home = Cost(SampledGaussianEvent(0.1, 1.0, 2.0, 100, 3), 100)
    ledger.enter(run("a", at_home, run="same"))
    ledger.enter(run("b", at_home, run="same"))
    assert [r.proposal for r in ledger.runs("customers")] == ["a", "b"]


def test_a_proposal_that_came_to_nothing_costs_nothing_and_one_that_sent_does(ledger: TableLedger) -> None:
    ledger.enter(run("a", run="churn"))
    ledger.enter(run("b", run="churn"))
    assert [r.proposal for r in ledger.runs()] == ["b"]
    ledger.send("b", Sent(1, "x"))
    ledger.enter(run("c", run="churn"))
    assert [r.proposal for r in ledger.runs()] == ["b", "c"]


def test_the_budget_is_checked_with_what_all_others_cost(ledger: TableLedger) -> None:
    policy = Policy(most_epsilon=1.0)

    def enter(name: str) -> None:
        ledger.enter(run(name), lambda others: check_table(policy, "customers", others, [NOISE]))

    enter("a")
    words = (
        r"most_epsilon: this training would bring table 'customers' to epsilon 1\.\d+ \(exact accountant over 106 "
        r"releases, delta 1e-05, unit PARTY, neighbours: absent\); of that, 1 earlier runs cost epsilon 0\.8966 .*; "
        r"the policy allows epsilon 1 for the table; .*`most_epsilon = 1\.\d\d?`"
    )
    with pytest.raises(Refused, match=words):
        enter("b")
    assert [r.proposal for r in ledger.runs()] == ["a"]  # nothing of a refused one stays
    ledger.enter(run("c", Cost(PlainEvent(), 5, 1), table="bare"))
    with pytest.raises(Refused, match=r"no bound at all .*1 releases left without noise"):
        check_table(policy, "bare", ledger.runs("bare"), [NOISE])


def test_the_other_relation_is_counted_where_the_policy_needs_it(ledger: TableLedger) -> None:
    ledger.enter(run("a"))
    for allowed, most in (((), 1.0), (("replaced", "absent"), 1.0), (("replaced",), 2.0)):
        figure = TableBudget.read(ledger, "customers", Policy(neighbours=allowed)).figures[Unit.PARTY]
        assert most - 1 < figure.epsilon < most


def test_the_same_message_again_and_the_next_but_no_other(ledger: TableLedger) -> None:
    ledger.send("a", Sent(5, "x"))
    ledger.send("a", Sent(5, "x"))
    ledger.send("b", Sent(1, "y"))
    for message in (Sent(5, "other"), Sent(4, "x"), Sent(4, "y")):
        with pytest.raises(RunError, match=r"spent\.db knows that request 5 was.*the store is an old copy"):
            ledger.send("a", message)
    ledger.send("a", Sent(9, "z"))
    assert ledger.sent("a") == Sent(9, "z") and ledger.sent("b") == Sent(1, "y")


def test_nobody_takes_back_by_hand_what_was_sent(ledger: TableLedger) -> None:
    ledger.send("a", Sent(5, "x"))
    with closing(sqlite3.connect(ledger.path)) as db:
        for change in ("update sent set number = 4", "update sent set digest = 'y'", "delete from sent"):
            with pytest.raises(sqlite3.IntegrityError, match="what was sent is not taken back"):
                db.execute(change)


def test_a_mask_key_is_made_once_and_found_again(ledger: TableLedger) -> None:
    made = ledger.mask_keys("a", make=True)
    assert ledger.mask_keys("a", make=True) == ledger.mask_keys("a", make=False) == made
    assert ledger.mask_keys("b", make=True) != made
    with pytest.raises(RunError, match="does not have the mask key of this run; it is an old copy"):
        ledger.mask_keys("c", make=False)


def test_predictions_of_a_row_are_counted_over_all_runs(ledger: TableLedger) -> None:
    ledger.send("a", Sent(7, "x"), "customers", ["C1", "C2"])
    ledger.send("a", Sent(7, "x"), "customers", ["C1", "C2"])  # sent again: no further prediction
    ledger.send("b", Sent(2, "y"), "customers", ["C2", "C3", "C2"])
    assert ledger.predictions("customers") == (3, 5, 3)
    assert ledger.most_predicted("customers", ["C1", "C9"]) == 1 and ledger.most_predicted("customers", ["C2"]) == 3
    assert ledger.predictions("other") == (0, 0, 0)
    assert b"C2" not in ledger.path.read_bytes()
    check_repeats(Policy(most_predictions_per_row=4), 3)
    with pytest.raises(Refused, match=r"most_predictions_per_row: a row would be predicted for the 4\. time.*allows 3"):
        check_repeats(Policy(most_predictions_per_row=3), 3)


def test_several_runs_write_at_the_same_time(ledger: TableLedger) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: TableLedger(ledger.path).enter(run(str(n))), range(16)))
    assert len(ledger.runs("customers")) == 16


def test_a_file_of_another_format_or_none_is_refused(ledger: TableLedger, tmp_path: Path) -> None:
    ledger.enter(run("a"))
    with closing(sqlite3.connect(ledger.path)) as db:
        db.execute("update about set format = 7")
        db.commit()
    with pytest.raises(RunError, match="has format 7; this version reads format 1"):
        ledger.runs()
    (tmp_path / "text.db").write_text("no database, but long enough to be looked at" * 99)
    with pytest.raises(RunError, match="cannot be read"):
        TableLedger(tmp_path / "text.db").runs()
    with pytest.raises(Unwritable, match="cannot be written"):
        TableLedger(tmp_path / "text.db").send("a", Sent(1, "x"))
    with pytest.raises(Unwritable, match="cannot be written"):
        TableLedger(tmp_path / "text.db" / "spent.db").send("a", Sent(1, "x"))


def test_a_file_that_was_made_and_not_written_knows_nothing(ledger: TableLedger) -> None:
    ledger.path.touch()
    assert ledger.runs() == [] and ledger.sent("a") is None and ledger.predictions("t") == (0, 0, 0)
