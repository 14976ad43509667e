"""Budgets and masks over several runs of one organisation, and after an old copy was put back."""

from __future__ import annotations

import contextlib
import math
import shutil
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from colonnade import checkpoint
from colonnade.config import build
from colonnade.deploy import agreement, coordinator, encryption
from colonnade.deploy.agreement import Agreement
from colonnade.deploy.budget import TableBudget, check_table, ledger_beside, of_table
from colonnade.deploy.coordinator import CoordinatorProcess
from colonnade.deploy.party_setup import PartySetup
from colonnade.deploy.policy import Policy
from colonnade.deploy.predict import Wish
from colonnade.deploy.table_ledger import TableLedger
from colonnade.deploy.undertaking import Undertaking
from colonnade.engines.message import Outgoing
from colonnade.errors import ConfigError, Refused, RunError
from colonnade.privacy.events import Unit
from colonnade.privacy.gaussian import GaussianEvent
from colonnade.privacy.sampled import SampledGaussianEvent
from colonnade.privacy.together import Cost
from colonnade.store import Store
from colonnade.wire.codec import decode
from colonnade.wire.messages import COORDINATOR
from colonnade.wire.notice import Notice, notice_of
from tests.deploy.memory import Room, SmallTrial, Way
from tests.processes import LONG

PARTIES = ("party_0", "party_1", "party_2")
ROUNDS = 4
OPTIONS: dict[str, Any] = {
    "data": {"widths": (3, 2, 3), "rows": 60},
    "method": {"name": "vimadmm_j", "local_steps": 1},
    "model": {"hidden": 3, "embedding": 2},
    "training": {"rounds": ROUNDS, "dtype": "float64", "schedule": {"batch": 10}},
}
NOISE = {"mechanism": "gaussian", "clip": 1.0, "epsilon": 2.0}
SUMMED = {"secure_sum": {"use": True}}


@dataclass(frozen=True)
class OneTable(SmallTrial):
    """Every party has a policy, and one file for all its runs."""

    policy: Mapping[str, Any] = field(default_factory=dict)
    spent: Path | None = None
    own: tuple[str, ...] = ()

    def undertaking(self) -> Undertaking:
        return replace(super().undertaking(), own=self.own)

    def setup(self, name: str) -> PartySetup:
        usual = replace(super().setup(name), policy=build(Policy, self.policy, "policy"))
        return usual if self.spent is None else replace(usual, spent=self.spent / f"{name}.db", table="customers")


def room(folder: Path, carry: Any = None, **changes: Any) -> Room:
    more = {k: changes.pop(k) for k in ("policy", "spent", "own") if k in changes}
    made = Room.of(folder, PARTIES, **({"carry": carry} if carry else {}), **{**OPTIONS, **changes})
    values = {name: getattr(made.trial, name) for name in SmallTrial.__dataclass_fields__}
    made.trial = OneTable(**values, **more)
    return made


def budget(spent: Path, name: str = "party_1", **policy: Any) -> TableBudget:
    return TableBudget.read(TableLedger(spent / f"{name}.db"), "customers", Policy(**policy))


def test_a_table_has_one_budget_for_all_runs(tmp_path: Path) -> None:
    spent = tmp_path / "spent"
    for number in range(2):
        with room(tmp_path / str(number), privacy=NOISE, spent=spent, policy={"most_epsilon": 3.0}) as scene:
            scene.train()
        assert budget(spent).figures[Unit.PARTY].releases == ROUNDS * (number + 1)
    together = budget(spent).figures[Unit.PARTY]
    assert 2.0 < together.epsilon < 3.0 and together.accountant == "exact"  # not 4: noise of runs composes
    with room(tmp_path / "third", privacy=NOISE, spent=spent, policy={"most_epsilon": 3.0}) as scene:
        with pytest.raises(Refused, match="most_epsilon: this training would bring table 'customers' to epsilon 3"):
            scene.train()
        assert not any(scene.said(party, "joined") for party in PARTIES)
    assert len(budget(spent).runs) == 2  # it was refused before anybody joined
    other = {**OPTIONS["data"], "rows": 80, "seed": 5}
    again = room(tmp_path / "rows", data=other, privacy=NOISE, spent=spent, policy={"most_epsilon": 3.0})
    with again as scene, pytest.raises(Refused, match="2 earlier runs cost"):  # new rows do not begin a new count
        scene.train()
    assert len({run.columns for run in budget(spent).runs}) == 1


def test_rows_have_no_budget_left_where_a_run_uploaded_without_noise(tmp_path: Path) -> None:
    """Training at home hides rows; what another run sent bare about the same rows is not taken back by that."""
    spent, rows = tmp_path / "spent", [Cost(SampledGaussianEvent(0.1, 1.0, 2.0, 10, 3), 0)]
    policy = Policy(most_epsilon=50.0, unit=("ROW",))
    check_table(policy, "customers", [], rows)
    with room(tmp_path / "bare", spent=spent) as scene:
        scene.train()
    found = budget(spent)
    with pytest.raises(
        Refused, match=r"no bound at all \(unit ROW\): 4 releases about the same rows left without noise"
    ):
        check_table(policy, "customers", found.runs, rows)
    both = of_table([*(cost for run in found.runs for cost in run.costs), *rows], policy)
    assert all(math.isinf(both[unit].epsilon) for unit in (Unit.PARTY, Unit.ROW))
    noised = [Cost(GaussianEvent(1.0, 5.0), 10, 4), *rows]  # hides the party, and with it the row
    assert math.isfinite(of_table(noised, policy)[Unit.ROW].epsilon)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"training": {"metric": "rmse"}}, "rmse"),
        ({"training": {"decision": {"decide_by": "f1"}}}, "is for a yes/no task"),
    ],
)
def test_settings_that_do_not_fit_the_labels_cost_nobody_anything(
    tmp_path: Path, changes: dict[str, Any], told: str
) -> None:
    """Refused after all had agreed, the run would be charged in full and for ever, and its name be used up."""
    spent = tmp_path / "spent"
    training = {**OPTIONS["training"], **changes["training"]}
    with room(tmp_path / "run", training=training, privacy=NOISE, spent=spent) as scene:
        with pytest.raises(ConfigError, match=told):
            scene.train()
        assert not any(scene.said(party, "joined") for party in PARTIES)
    assert not (spent / "party_1.db").exists() or budget(spent).runs == []


def test_what_was_not_released_is_given_back(tmp_path: Path) -> None:
    """A run that is over costs what left, not what was agreed on."""
    spent = tmp_path / "spent"
    with room(tmp_path, privacy={"mechanism": "gaussian", "clip": 1.0, "sigma": 9.0}, spent=spent) as scene:
        scene.train()
    (run,) = budget(spent).runs
    assert run.ended and sum(cost.times for cost in run.costs) == ROUNDS
    lines = budget(spent, most_epsilon=3.0).lines()
    assert lines[0] == "table 'customers': 1 runs" and lines[1].startswith("all together: epsilon 0.")
    assert all("unit PARTY" in line for line in lines if "epsilon 0" in line)


def test_a_row_is_predicted_as_often_as_the_policy_allows(tmp_path: Path) -> None:
    with room(tmp_path, spent=tmp_path / "spent", policy={"most_predictions_per_row": 2}) as scene:
        scene.train()
        first, second = Wish(torch.tensor([50, 51])), Wish(torch.tensor([51, 52]))
        scene.predict(first)
        scene.predict(second)
        with pytest.raises(Refused, match=r"most_predictions_per_row: a row would be predicted for the 3\. time"):
            scene.predict(second)
        scene.predict(Wish(torch.tensor([50, 52])))
    assert budget(tmp_path / "spent").predictions == (3, 6, 2)


def test_the_label_holders_own_party_uses_up_a_colluder(tmp_path: Path) -> None:
    with room(tmp_path, privacy=NOISE | SUMMED, own=("party_0",)) as scene:
        scene.train()
        (told,) = scene.said("party_1", "proposal")
        assert "secure sum, tolerates 0 colluders besides party_0 of the label holder" in told["privacy"]
    two = room(tmp_path / "two", privacy=NOISE | SUMMED, own=("party_0", "party_2"))
    with pytest.raises(ConfigError, match="party_0, party_2 belong to the label holder"):
        two.train()


def test_a_run_that_an_earlier_version_began_is_charged_when_it_goes_on(tmp_path: Path) -> None:
    with room(tmp_path, privacy=NOISE) as scene:
        scene.train()
        scene.leave("party_1")
        with contextlib.closing(sqlite3.connect(tmp_path / LEDGER)) as db:  # it knew nothing of the run
            db.execute("delete from run")
            db.commit()
        scene.arrive("party_1")
    (run,) = TableLedger(tmp_path / LEDGER).runs("party_1")
    assert run.ended and sum(cost.times for cost in run.costs) == ROUNDS


# -- an old copy is put back ------------------------------------------------------------------------

LEDGER = ledger_beside(Path("party_1")).name
MINE = ("party_1", LEDGER)


class Copying:
    """Copies what party_1 and the coordinator have when party_1 answers a round, before anybody reads it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, way: Way) -> Sequence[float]:
        if (way.sender, way.kind) == ("party_1", "TRAIN"):
            copies = self.folder / f"round-{way.number}"
            for name in (*MINE, COORDINATOR):
                source = self.folder / name
                copies.mkdir(exist_ok=True)
                if not (copies / name).exists():
                    shutil.copytree(source, copies / name) if source.is_dir() else shutil.copy(source, copies / name)
        return (0.0,)

    def put_back(self, number: int, *names: str) -> None:
        for name in names:
            place, copy = self.folder / name, self.folder / f"round-{number}" / name
            if copy.is_dir():
                shutil.rmtree(place)
                shutil.copytree(copy, place)
            else:
                shutil.copy(copy, place)

    def payload(self, place: Path) -> bytes:
        """What party_1 sent last, by its store."""
        store = Store(place / "party_1" / "party.db")
        try:
            return next(payload for _, kind, payload in store.sent(3) if kind == "TRAIN")
        finally:
            store.close()


def ask_for_round_3(scene: Room, factor: float) -> Notice | None:
    """The coordinator as it was in round 3, with other numbers in its reply; what party_1 answers, if it refuses."""
    link, place = scene.link(COORDINATOR), scene.trial.place(COORDINATOR)
    process = CoordinatorProcess(place, link, link.credentials, scene.trial.undertaking(), lambda *_, **__: None)
    try:
        trainer = process._trainer(process._agreement())
        checkpoint.restore(trainer, process.store)
        side = trainer.coordinator
        side.reply = replace(side.reply, common={name: factor * value for name, value in side.reply.common.items()})
        request, down = side.request()
        assert request.number == 3
        scene.office._boxes[COORDINATOR].clear()  # what was said in another life
        link.send(Outgoing("*", down.everyone))
        while (incoming := link.next(LONG)) is not None:
            header, _ = decode(incoming.data)
            if incoming.sender == "party_1":
                return notice_of(header, {}) if "facts" in header else None
        raise AssertionError("party_1 did not answer")
    finally:
        process.store.close()


@pytest.mark.parametrize("privacy", [SUMMED, NOISE, NOISE | SUMMED], ids=["sum", "noise", "noisy sum"])
def test_an_old_copy_of_a_store_answers_nothing_twice(privacy: dict[str, Any], tmp_path: Path) -> None:
    copying = Copying(tmp_path)
    with room(tmp_path, copying, privacy=privacy) as scene:
        scene.train()
        scene.leave("party_1")
        copying.put_back(2, "party_1")
        copying.put_back(3, COORDINATOR)
        scene.arrive("party_1")
        answer = ask_for_round_3(scene, 2.0)
        assert answer is not None and answer.kind == "REFUSED"
        assert "request 3 is not answered: party_1.spent.db knows that request" in answer.facts["reason"]
        assert "the store is an old copy" in answer.facts["reason"]
        assert scene.office.count("TRAIN", 3, "party_1") == 1


def test_a_store_put_back_with_its_ledger_has_masks_for_no_other_question(tmp_path: Path) -> None:
    """Nothing on this machine can notice it. The same question gets the same bytes, another one other masks."""
    copying, payloads = Copying(tmp_path), {}
    with room(tmp_path, copying, privacy=SUMMED) as scene:
        scene.train()
        for factor in (1.0, 2.0):
            scene.leave("party_1")
            copying.put_back(2, *MINE)
            copying.put_back(3, COORDINATOR)
            scene.arrive("party_1")
            assert ask_for_round_3(scene, factor) is None
            payloads[factor] = copying.payload(tmp_path)
    first = copying.payload(tmp_path / "round-3")
    assert payloads[1.0] == first
    ours, others = (next(iter(decode(payload)[1].values())) for payload in (first, payloads[2.0]))
    assert ours.dtype == torch.int64 and float((others - ours).abs().double().mean()) > 2.0**60  # of 2^62: random


def test_an_old_copy_of_the_ledger_is_refused_too(tmp_path: Path) -> None:
    copying = Copying(tmp_path)
    with room(tmp_path, copying, privacy=NOISE | SUMMED) as scene:
        scene.train()
        scene.leave("party_1")
        copying.put_back(2, LEDGER)
        scene.arrive("party_1")
        with pytest.raises(Refused, match="does not know the last messages of this run; it is an old copy"):
            scene.predict(Wish(torch.tensor([50])))


def test_without_the_ledger_there_are_no_masks(tmp_path: Path) -> None:
    scene = room(tmp_path, privacy=SUMMED)
    with scene:
        scene.train()
        scene.leave("party_1")
        (tmp_path / LEDGER).unlink()
        scene.arrive("party_1")
        scene.leave("party_1")
        (failure,) = scene.failures
        scene.failures.clear()
    assert isinstance(failure, RunError) and "does not have the mask key of this run; it is an old copy" in str(failure)


def test_keys_for_masks_are_not_those_for_envelopes(tmp_path: Path) -> None:
    with room(tmp_path, privacy=SUMMED) as scene:
        scene.train()
    store = Store(tmp_path / COORDINATOR / "run.db")
    agreed = Agreement.from_json(store.about()["agreement"])
    store.close()
    keys = [key for joined in agreed.joined.values() for key in (joined.key, joined.mask)]
    assert len(set(keys)) == 2 * len(PARTIES) and all(len(key) == 32 for key in keys)
    adders = agreed.adders({})
    assert adders is not None
    assert {key for _, key in adders.roster.public} == {joined.mask for joined in agreed.joined.values()}


def test_a_label_holder_of_an_earlier_version_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator, "propose", partial(agreement.propose, number=3))
    words = "the proposal has format 3, this version joins format 4 only; all sides need the same version of Colonnade"
    with room(tmp_path) as scene, pytest.raises(Refused, match=words):
        scene.train()


def test_a_run_that_began_with_an_earlier_format_goes_on_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One key for envelopes and masks, and a bare hash for the run's key: as it began, and in no new run."""
    secret = encryption.run_secret
    with room(tmp_path, privacy=SUMMED) as scene:
        with monkeypatch.context() as earlier:
            earlier.setattr(coordinator, "propose", partial(agreement.propose, number=3))
            earlier.setattr(encryption, "run_secret", lambda keys, proposal, hkdf=True: secret(keys, proposal, False))
            earlier.setattr(agreement, "READABLE", (3,))
            scene.train()
        scene.leave("party_1")
        scene.arrive("party_1")
        assert len(scene.predict(Wish(torch.tensor([50, 51]))).logits) == 2
    store = Store(tmp_path / COORDINATOR / "run.db")
    began = Agreement.from_json(store.about()["agreement"])
    store.close()
    assert began.proposal.format == 3 and not any(joined.mask for joined in began.joined.values())
    adders = began.adders({})
    assert adders is not None and dict(adders.roster.public) == {p: j.key for p, j in began.joined.items()}
