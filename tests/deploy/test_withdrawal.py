"""Rows of people who withdrew: refused in what has begun, left out of what begins."""

from __future__ import annotations

import logging
import shutil
import threading
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch

from colonnade.align.files import read_alignment
from colonnade.deploy.settings import read_coordinator
from colonnade.deploy.undertaking_files import check_split, left_out_by, read_undertaking
from colonnade.deploy.withdrawal import start
from colonnade.deploy.withdrawal.limits import check_request, check_rows, people_at
from colonnade.deploy.withdrawal.marks import mark_runs
from colonnade.deploy.withdrawal.side import Aligned
from colonnade.deploy.withdrawal.start import WithdrawalQuestions, side_of, stop_for
from colonnade.engines.message import Notify
from colonnade.errors import Refused
from colonnade.record import STORE
from colonnade.service.versions import list_versions
from colonnade.store import Store
from colonnade.wire.messages import Purpose, Query, Request
from colonnade.withdrawn import read_mark, read_withdrawn, withdraw
from tests.cli.organisations import align_by_hand, customers, furnish
from tests.processes import LONG


@pytest.fixture
def bank(tmp_path: Path) -> Path:
    certificates = tmp_path / "certs"
    certificates.mkdir()
    for name in ("ca", "bank", "telco", "coordinator"):
        for kind in ("crt", "key"):
            (certificates / f"{name}.{kind}").touch()
    furnish(tmp_path, certificates, "tls://localhost:4222")
    align_by_hand(tmp_path)
    return tmp_path / "bank"


def begin(folder: Path, train: list[int], alignment: str, privacy: dict[str, object] | None = None) -> None:
    body = {"run": "small", "alignment": alignment, "parties": ["bank", "telco"], "privacy": privacy or {}}
    folder.mkdir(parents=True, exist_ok=True)
    store = Store(folder / STORE)
    store.describe({"agreement": {"proposal": body, "train": train}, "withdrawn": [3]})
    store.close()


def test_rows_are_refused_by_number() -> None:
    check_rows(torch.arange(5), torch.tensor([7]), "it is about")
    with pytest.raises(Refused, match=r"it is about row 3 of a person who withdrew; leave out"):
        check_rows(torch.arange(5), torch.tensor([3, 7]), "it is about")
    with pytest.raises(Refused, match=r"it is about 7 rows \(0, 1, 2, 3, 4, ...\) of people"):
        check_rows(torch.arange(7), torch.arange(9), "it is about")
    for purpose in (Purpose.TRAIN, Purpose.EVALUATE, Purpose.PREDICT, Purpose.EXPLAIN):
        request = Request(4, (Query(purpose, ("telco",), torch.tensor([1, 2])),))
        check_request(request, "telco", torch.tensor([0]))
        with pytest.raises(Refused, match=rf"request 4 \({purpose.value}\) asks about row 2"):
            check_request(request, "telco", torch.tensor([2]))


def test_who_is_left_out_of_a_prediction_still_says_who_withdrew() -> None:
    """It may have been away when the others agreed; in a training that asks others it has nothing to say."""
    for purpose, refuses in ((Purpose.PREDICT, True), (Purpose.EXPLAIN, True), (Purpose.TRAIN, False)):
        request = Request(4, (Query(purpose, ("telco",), torch.tensor([1, 2])),))
        check_request(request, "shop", torch.tensor([0]))
        with pytest.raises(Refused, match="asks about row 2") if refuses else nullcontext():
            check_request(request, "shop", torch.tensor([2]))


def test_a_process_that_runs_notices_a_new_list(bank: Path) -> None:
    now = people_at(bank / "withdrawn.json", bank / "alignment")
    assert len(now()) == 0
    withdraw(bank / "withdrawn.json", [customers()[5], customers()[59]])  # the second has no row
    assert now().tolist() == [5]
    (bank / "withdrawn.json").write_text("{")
    with pytest.raises(Exception, match="nobody knows who withdrew"):
        now()


def test_row_numbers_are_of_the_alignment_that_a_run_began_with(bank: Path) -> None:
    """A new alignment without the person has other numbers: runs over the old one go on refusing."""
    began = read_alignment(bank / "alignment")
    now = people_at(bank / "withdrawn.json", bank / "alignment", began)
    withdraw(bank / "withdrawn.json", [customers()[5]])
    assert now().tolist() == [5]
    shutil.rmtree(bank / "alignment")
    assert now().tolist() == [5]


def test_a_run_that_has_begun_is_not_continued(bank: Path) -> None:
    read = read_coordinator(bank / "coordinator.toml")
    alignment = read_alignment(bank / "alignment")
    withdraw(bank / "withdrawn.json", [customers()[3]])
    undertaking = read_undertaking(read, alignment)
    used = torch.cat([undertaking.split.train, undertaking.split.validation, undertaking.split.test]).tolist()
    assert 3 not in used and undertaking.withdrawn == (3,)

    begin(bank / "run", undertaking.split.train.tolist(), alignment.digest)
    check = stop_for(side_of(read), lambda: check_split(undertaking.split, alignment, read))
    check()
    assert torch.equal(read_undertaking(read, alignment).split.train, undertaking.split.train), "as it began"
    withdraw(bank / "withdrawn.json", [customers()[8]])
    assert left_out_by(read, alignment) == {customers()[3]}
    with pytest.raises(Refused, match="run 'small' began with row 8 of a person who withdrew"):
        check()
    with pytest.raises(Refused, match="began with row 8"):
        read_undertaking(read, alignment)


def test_models_are_marked(bank: Path) -> None:
    alignment = read_alignment(bank / "alignment")
    begin(bank / "one", [1, 2, 3], alignment.digest)
    row = {"unit": "row", "epsilon": 1.0, "clip": 1.0, "evaluation": "none"}
    begin(bank / "two", [4, 5], alignment.digest, row)
    begin(bank / "other", [1], "f" * 64)
    (bank / "empty").mkdir()
    places = [bank / name for name in ("one", "two", "other", "empty")]
    assert mark_runs(places, STORE, alignment, torch.empty(0).numpy()) == []
    found = mark_runs(places, STORE, alignment, torch.tensor([2, 3, 5, 40]).numpy())
    assert [(one.folder.name, one.trained, one.of) for one in found] == [
        ("one", 2, 3),
        ("two", 1, 2),
        ("other", None, 1),
    ]
    assert found[0].promise == "" and "unit ROW" in found[1].promise and "PLD accountant" in found[1].promise
    assert str(read_mark(bank / "one")) == "trained with 2 rows of people who withdrew since"
    assert read_mark(bank / "other") is None and "is not known" in str(found[2])


def test_a_damaged_run_is_named_and_keeps_nobody_else_from_being_marked(bank: Path) -> None:
    """Each in its own way: the mark, the store, what the store holds. Repaired, they are marked."""
    alignment = read_alignment(bank / "alignment")
    names = ("a-mark", "b-store", "c-body", "d-whole")
    for name in names:
        begin(bank / "run" / name, [1, 2], alignment.digest)
    good = {name: (bank / "run" / name / STORE).read_bytes() for name in names}
    (bank / "run/a-mark/withdrawn.json").write_text("{")
    (bank / "run/b-store" / STORE).write_bytes(b"no database " * 500)
    (bank / "run/c-body" / STORE).unlink()
    store = Store(bank / "run/c-body" / STORE)
    store.describe({"agreement": {"proposal": "none", "train": 3}})
    store.close()
    side, told = side_of(read_coordinator(bank / "coordinator.toml")), list[tuple[str, object]]()
    new = side.adopt(torch.tensor([2]).numpy(), "telco", Aligned.at(bank / "alignment"), tells(told))
    assert new == 1 and read_withdrawn(bank / "withdrawn.json").ids == {customers()[2]}
    assert read_mark(bank / "run/d-whole") is not None
    assert told == [("forgotten", None), *(("not marked", name) for name in names[:3])]

    marked = {one.run: one for one in side.mark()}
    assert all("is not marked" in str(marked[name]) and marked[name].trained is None for name in names[:3])
    (bank / "run/a-mark/withdrawn.json").unlink()
    for name in names[1:3]:
        (bank / "run" / name / STORE).write_bytes(good[name])
    assert [(one.folder.name, one.trained, one.damage) for one in side.mark()] == [(name, 1, "") for name in names]


def tells(told: list[tuple[str, object]]) -> Notify:
    return lambda event, **facts: told.append((event, facts.get("run")))


def test_a_thread_names_a_damaged_run_once_and_marks_it_later(bank: Path) -> None:
    alignment, told = read_alignment(bank / "alignment"), list[tuple[str, object]]()
    begin(bank / "run" / "one", [1, 2], alignment.digest)
    (bank / "run/one/withdrawn.json").write_text("{")
    withdraw(bank / "withdrawn.json", [customers()[2]])
    read = read_coordinator(bank / "coordinator.toml")
    thread, side = WithdrawalQuestions(read, tells(told)), side_of(read)
    for _ in range(3):
        thread._mark(side)
    assert told == [("not marked", "one")]
    (bank / "run/one/withdrawn.json").unlink()
    thread._mark(side)
    assert read_mark(bank / "run/one") is not None and len(told) == 1


def test_a_fault_of_the_program_does_not_end_the_thread_that_hears_who_withdrew(
    bank: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard, faults = threading.Event(), [ValueError("a bug")]
    logged: list[logging.LogRecord] = []
    listener = logging.Handler()
    monkeypatch.setattr(listener, "emit", logged.append)
    monkeypatch.setattr(start.logger, "handlers", [listener])

    def step(self: WithdrawalQuestions) -> None:
        if faults:
            raise faults.pop()
        heard.set()
        self._ending.wait(LONG)

    monkeypatch.setattr(WithdrawalQuestions, "_step", step)
    monkeypatch.setattr(start, "AGAIN", 0.01)
    with WithdrawalQuestions(read_coordinator(bank / "coordinator.toml"), tells([])):
        assert heard.wait(LONG)
    assert [str(one.exc_info[1]) for one in logged if one.exc_info] == ["a bug"]


def test_versions_are_listed_although_a_mark_is_damaged(tmp_path: Path) -> None:
    for name in ("v1", "v2"):
        (tmp_path / name).mkdir()
    (tmp_path / "v1" / "withdrawn.json").write_text("{")
    one, two = list_versions(tmp_path)
    assert "withdrawn.json cannot be read" in one.why and not two.why
