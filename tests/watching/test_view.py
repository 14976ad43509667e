"""A run on the page: who is there, what each sent, and curves that fit into a picture."""

from __future__ import annotations

import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest

from colonnade.fit import fit
from colonnade.live import Event
from colonnade.service.versions import change_models
from colonnade.watching.overview import Overview, Status
from colonnade.watching.runs import LABEL_HOLDER, PARTY, RunReader, RunStatus
from colonnade.watching.source import FRESH, OneRun, Organisation
from colonnade.watching.stores import Described, Read
from colonnade.watching.view import MOST_POINTS, _parties, thinned, view_of
from tests.federations import small

NAMES = ("bank", "shop", "telco")


def test_who_is_there_as_the_label_holder_sees_it() -> None:
    read = Read(Described("churn", "vimadmm", 60, NAMES), absent=("telco",), up={"bank": 5}, down={"bank": 7})
    events: list[Event] = [
        {"time": "2026-11-18T09:00:00Z", "event": "absent", "parties": ["telco"]},
        {"time": "2026-11-18T09:01:00Z", "event": "waiting", "parties": ["shop"]},
    ]
    shown = RunStatus("churn", Path(), LABEL_HOLDER, "waiting", parties=NAMES, waits_for=("shop",), since="now")
    bank, shop, telco = _parties(shown, events, None, read)
    assert (bank["state"], bank["up"], bank["down"]) == ("present", 5, 7)
    assert (shop["state"], shop["since"]) == ("waited for", "now")
    assert (telco["state"], telco["since"]) == ("away", "2026-11-18T09:00:00Z")


def test_a_party_sees_only_what_it_sent_itself() -> None:
    read = Read(Described("churn", "vimadmm", 60, NAMES), sent={"telco": 9, "coordinator": 4})
    views = _parties(RunStatus("churn", Path(), PARTY, "training", parties=NAMES), [], None, read)
    assert [(one["state"], one["up"], one["down"]) for one in views] == [
        ("takes part", size, None) for size in (None, None, 9)
    ]


@pytest.mark.parametrize("count", [0, 1, MOST_POINTS, MOST_POINTS + 1, 10_000])
def test_a_curve_keeps_its_ends(count: int) -> None:
    points = thinned({at: at / 7 for at in range(count)})
    assert len(points) <= MOST_POINTS + 1
    assert not count or (points[0][0], points[-1][0]) == (0, count - 1)
    assert thinned({1: float("nan"), 2: 0.5}) == [(2, 0.5)]


def test_the_same_run_before_and_after_its_end(tmp_path: Path) -> None:
    run = fit(small(), "vimadmm", rounds=3, evaluate_every=1, checkpoint_every=1, out=tmp_path / "run", progress=False)
    after = view_of(RunReader(tmp_path / "run"))
    shutil.copytree(tmp_path / "run", tmp_path / "earlier")
    (tmp_path / "earlier" / "run.json").unlink()
    before = view_of(RunReader(tmp_path / "earlier"))
    assert after["curve"] == [(h["round"], h["score"]) for h in run.history if "score" in h] == before["curve"]
    assert after["primal"] == before["primal"] and len(after["dual"]) == 3
    assert (after["entries"], after["ledger"][-1]["entry"]) == (len(run.ledger), len(run.ledger))
    assert [one["up"] for one in after["parties"]] == [both["up"] for both in run.traffic.per_party().values()]
    last = list(run.ledger)[-1]
    assert (after["ledger"][-1]["owner"], after["ledger"][-1]["bytes"]) == (last.owner, last.size)


def test_a_training_that_has_not_begun_is_beginning(tmp_path: Path) -> None:
    shown = OneRun(tmp_path / "not yet", "Training").state("")["shown"]
    assert isinstance(shown, dict) and shown["status"]["state"] == "beginning"


def test_names_that_somebody_makes_up_cost_no_look_at_the_files(tmp_path: Path) -> None:
    """Each look reads every run, and those who watch wait for one another."""
    for name in ("first", "second"):
        fit(small(), "vimadmm", rounds=1, out=tmp_path / name, progress=False)
    overview = Overview([tmp_path])
    page, looks, look = Organisation("bank", overview, tmp_path), list[None](), overview.look

    def counted() -> Status:
        looks.append(None)
        return look()

    overview.look = counted  # type: ignore[method-assign]
    assert page.state("first")["shown"]["status"]["run"] == "first"  # type: ignore[index]
    before = len(looks)
    for number in range(200):
        assert page.state(f"made up {number}")["shown"] is not None
    assert len(looks) - before < 50, "as many as time has passed, and not one for each"
    fit(small(), "vimadmm", rounds=1, out=tmp_path / "third", progress=False)
    time.sleep(2 * FRESH)
    assert page.state("third")["shown"]["status"]["run"] == "third"  # type: ignore[index]


def test_a_version_that_was_given_up_is_not_one_that_goes_on(tmp_path: Path) -> None:
    """`not running` says that the command that began it would go on; this one has another number next time."""
    for name in ("v1", "v2"):
        fit(small(), "vimadmm", rounds=1, checkpoint_every=1, out=tmp_path / name, progress=False)
    (tmp_path / "v1" / "run.json").unlink()
    change_models(tmp_path, lambda models: replace(models.noted(1, "failed", "party 'telco' refuses"), failed=(1,)))
    shown = Organisation("churn", Overview([tmp_path]), tmp_path).state("v1")
    assert shown["shown"]["status"]["state"] == shown["runs"][0]["state"] == "failed"  # type: ignore[index]
    assert "party 'telco' refuses" in shown["shown"]["status"]["note"]  # type: ignore[index]
    assert shown["runs"][1]["state"] == "finished"  # type: ignore[index]
