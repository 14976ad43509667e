"""A party joins or leaves a model of separate organisations: a run that takes over the parts of a finished one."""

from __future__ import annotations

import json
import math
import shutil
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from colonnade import Federation
from colonnade.deploy.agreement import Agreement
from colonnade.deploy.predict import Wish
from colonnade.deploy.taken_part import check_promise
from colonnade.deploy.taking_over import take_over
from colonnade.errors import ConfigError, Refused, RunError
from colonnade.part import Part
from colonnade.privacy.labels.settings import open_labels
from colonnade.record import STORE
from colonnade.report.officer import verdict
from colonnade.report.officer_source import of_party
from colonnade.report.privacy import statement_of_run
from colonnade.report.words import noise_of
from colonnade.run import Run
from colonnade.store import Store
from colonnade.wire.messages import COORDINATOR, Purpose
from tests.deploy.former import (
    EVERYBODY,
    NEW,
    NOISE,
    NOISY,
    OLD,
    ONE,
    TINY,
    TREES,
    Second,
    everybody,
    rooms,
    train_both,
    wanted_of,
)
from tests.deploy.memory import Room


def state_of(run: Run) -> dict[str, Tensor]:
    return {name: value for name, value in run.model.state.items() if value.is_floating_point()}


class TestJoining:
    @pytest.mark.parametrize("model", [TREES, TINY], ids=["trees", "networks"])
    def test_as_if_all_had_been_there_from_the_beginning(self, model: dict[str, Any], tmp_path: Path) -> None:
        """The same model to the last bit, although only the newcomer trained."""
        before, after = rooms(tmp_path, model=model)
        with before:
            before.train()
        old = {name: Part.load(before.trial.place(name)) for name in OLD}
        with after:
            run = after.train()
            rows = torch.arange(200, 250)
            told = after.predict(Wish(rows)).logits
        wanted = wanted_of(after.trial)
        assert run.metrics == wanted.metrics
        assert run.result["validation_score"] == wanted.result["validation_score"]
        for name, value in state_of(wanted).items():
            assert torch.equal(run.model.state[name], value), name
        for name in EVERYBODY:
            part = Part.load(after.trial.place(name))
            assert all(torch.equal(value, wanted.models[name][key]) for key, value in part.tensors.items())
            if name in old:
                assert part.fingerprint() == old[name].fingerprint()
        whole = everybody()
        torch.testing.assert_close(told, wanted.logits(whole.select(rows)), rtol=0, atol=1e-9)

    def test_only_the_newcomer_sends_and_gets_labels(self, tmp_path: Path) -> None:
        before, after = rooms(tmp_path)
        with before:
            first = before.train()
        with after:
            run = after.train()
        assert {(e.owner, e.audience) for e in run.ledger if e.rows} == {(COORDINATOR, NEW)}
        lines = [json.loads(line) for line in (after.trial.place(NEW) / "ledger.jsonl").read_text().splitlines()]
        assert {line["purpose"] for line in lines} == {Purpose.TRAIN.value, Purpose.EVALUATE.value}
        noted = run.about["joined"]
        assert [(one["party"], one["run"], one["present"], one["labels"], one["rows"]) for one in noted] == [
            (NEW, "test", list(OLD), "none", 150)
        ]
        assert "left" not in run.about
        assert run.traffic.up < first.traffic.up
        for name in OLD:
            assert (after.trial.place(name) / "ledger.jsonl").read_text() == ""

    def test_rows_are_found_again_by_their_people(self, tmp_path: Path) -> None:
        """An alignment with other parties numbers its rows anew: the same people train, and the model is the same."""
        order = torch.randperm(250, generator=torch.Generator().manual_seed(4))
        before, after = rooms(tmp_path, order=order)
        run, told = train_both(before, after, 60)
        wanted = wanted_of(after.trial)
        assert run.metrics["auc"]["test"] == pytest.approx(wanted.metrics["auc"]["test"], abs=1e-12)
        for name, value in state_of(wanted).items():
            torch.testing.assert_close(run.model.state[name], value, rtol=0, atol=1e-9)
        torch.testing.assert_close(told, wanted.logits(everybody().select(order[:60])), rtol=0, atol=1e-6)

    def test_several_one_after_the_other(self, tmp_path: Path) -> None:
        """Also with noisy labels: they are drawn once, for all runs."""
        before, between = rooms(tmp_path, first=OLD[:1], second=OLD, privacy=NOISY)
        with before:
            before.train()
        with between:
            between.train()
        plain = {name: getattr(between.trial, name) for name in between.trial.__dataclass_fields__}
        last = Second(
            **{**plain, "folder": tmp_path / "third", "run": "third", "who": EVERYBODY, "former": between.trial}
        )
        with Room(last) as after:
            run = after.train()
        assert [(one["party"], one["run"]) for one in run.about["joined"]] == [("party_1", "test"), (NEW, "second")]
        drawn = last.undertaking().taken
        assert drawn is not None and drawn.over.labels is not None
        with closing(Store(before.trial.place(COORDINATOR) / STORE)) as store:
            key = int(store.about()["label_key"], 16)
        u = before.trial.undertaking()
        first = open_labels(u.labels, u.task, u.split.train, u.privacy.labels, key, u.split.validation)
        assert torch.equal(drawn.over.labels.compact(u.split.train), first.compact(u.split.train))
        assert {e.mechanism for e in run.ledger if e.owner == COORDINATOR and e.rows} == {"randomised response"}

    def test_a_newcomer_that_lacks_rows(self, tmp_path: Path) -> None:
        before, after = rooms(tmp_path)

        @dataclass(frozen=True)
        class Lacking(Second):
            def federation(self) -> Federation:
                whole = super().federation()
                held = torch.ones(250, dtype=torch.bool)
                held[::3] = False
                return replace(whole, parties=(*whole.parties[:2], replace(whole.parties[2], held=held)))

        after.trial = Lacking(**{name: getattr(after.trial, name) for name in after.trial.__dataclass_fields__})
        with before:
            before.train()
        with after:
            run = after.train()
        kept, split = run.kept, after.trial.undertaking().split
        assert int(kept["cache.seen"][0].sum()) == 150 and 90 < int(kept["cache.seen"][2].sum()) < 110
        assert len(split.train) == 150 and 0 < len(split.test) < 60
        assert run.about["rows"]["test"] == len(split.test)


class TestLeaving:
    def test_nobody_trains_and_the_stacks_are_fitted_again(self, tmp_path: Path) -> None:
        before, after = rooms(tmp_path, first=EVERYBODY, second=("party_0", NEW))
        run, told = train_both(before, after, 40)
        wanted = wanted_of(after.trial)
        assert run.metrics == wanted.metrics
        assert not [e for e in run.ledger if e.owner != COORDINATOR or e.rows]
        assert [(one["party"], one["present"]) for one in run.about["left"]] == [("party_1", ["party_0", NEW])]
        rows = everybody().only(after.trial.who).select(torch.arange(40))
        torch.testing.assert_close(told, wanted.logits(rows), rtol=0, atol=1e-9)


class TestWords:
    def test_what_was_sent_before_is_not_forgotten(self, tmp_path: Path) -> None:
        """Nobody sends anything in the run that a party leaves; that is no promise of epsilon 0."""
        before, after = rooms(tmp_path, first=EVERYBODY, second=OLD)
        with before:
            before.train()
        with after:
            run = after.train()
        told = " ".join(statement_of_run(run).lines())
        assert noise_of([run.record()]) == "No noise was used in this run."
        assert "Parts of the run 'test' are taken over" in told and "epsilon 0" not in told
        assert statement_of_run(run).epsilon == math.inf
        page = " ".join(verdict(of_party(after.trial.place("party_0"))))
        assert "leaves in this run, but what left in an earlier one is used" in page
        assert "The run takes over parts of the run 'test'" in page
        noted = json.loads((after.trial.place("party_0") / "proposal.json").read_text())
        assert noted["facts"]["takes_over"]["parties"] == list(EVERYBODY)
        assert noted["leaves"][0].startswith("training and evaluation: nothing; what left in the run 'test' is used")
        assert [line for line in noted["leaves"] if line.startswith("evaluation")] == []
        assert noted["leaves"][1].startswith("prediction, later: numbers computed from the columns of rows")


class TestRestarts:
    def test_a_party_comes_back_without_the_folder_of_the_former_run(self, tmp_path: Path) -> None:
        before, after = rooms(tmp_path)
        with before:
            before.train()
        with after:
            after.train()
            first = after.predict(Wish(torch.arange(30))).logits
            for name in EVERYBODY:
                after.leave(name)
            shutil.rmtree(before.trial.place("party_0"))
            for name in EVERYBODY:
                after.arrive(name)
            assert torch.equal(after.predict(Wish(torch.arange(30))).logits, first)


class TestRefusals:
    def test_a_party_without_its_part(self, tmp_path: Path) -> None:
        before, after = rooms(tmp_path)
        with before:
            before.train()
        shutil.rmtree(before.trial.place("party_1"))
        with (
            after,
            pytest.raises(Refused, match="'party_1' refuses: the proposal takes over the part of 'party_1' in run"),
        ):
            after.train()

    def test_a_part_of_another_run_of_that_name(self, tmp_path: Path) -> None:
        before, after = rooms(tmp_path / "a")
        other, _ = rooms(tmp_path / "b", model={**TREES, "trees": {"most": 5, "smallest_leaf": 3}})
        for room in (before, other):
            with room:
                room.train()
        shutil.rmtree(before.trial.place("party_1"))
        shutil.copytree(other.trial.place("party_1"), before.trial.folder / "party_1")
        with after, pytest.raises(Refused, match="no finished one is here"):
            after.train()

    @pytest.mark.parametrize(
        ("changed", "told"),
        [
            ({"method": {**ONE, "folds": 4}}, "method of the proposal would be other than in run 'test'"),
            ({"training": {"seed": 3}}, "training of the proposal would be other"),
            ({"privacy": NOISY}, "label_exposure, privacy of the proposal would be other"),
            ({"model": TINY}, r"\[model\] is not that of run 'test'"),
            ({"who": OLD}, "nobody joins or leaves"),
            ({"who": (NEW,)}, "none of party_2 was in run 'test'"),
            ({"absence": {"then": "continue"}}, "needed absence.then = 'wait' or 'stop'"),
        ],
        ids=["method", "training", "privacy", "model", "same parties", "other parties", "absence"],
    )
    def test_what_does_not_fit(self, changed: dict[str, Any], told: str, tmp_path: Path) -> None:
        before, after = rooms(tmp_path)
        with before:
            before.train()
        with pytest.raises(ConfigError, match=told):
            replace(after.trial, **changed).undertaking()

    def test_labels_and_rows_that_are_not_those_of_then(self, tmp_path: Path) -> None:
        before, _ = rooms(tmp_path)
        with before:
            before.train()
        place = before.trial.place(COORDINATOR)
        with closing(Store(place / STORE)) as store:
            about = store.about()
        run, then = Run.load(place), before.trial.undertaking()
        now, places = replace(then, parties=EVERYBODY), torch.arange(250)
        flipped = then.labels.clone()
        flipped[then.split.train[0]] = 1 - flipped[then.split.train[0]]
        with pytest.raises(RunError, match="labels of rows of run 'test' are not what they were"):
            take_over(run, about, then, replace(now, labels=flipped), places)
        with pytest.raises(RunError, match="split of run 'test' are not those that it was trained with"):
            take_over(run, about, replace(then, labels=flipped), now, places)
        lost = places.clone()
        lost[then.split.train[:7]] = -1
        with pytest.raises(RunError, match="7 of 250 rows of the former run are not among those that are aligned now"):
            take_over(run, about, then, now, lost)
        with pytest.raises(RunError, match="2 of the people of run 'test' withdrew, and its parts learned with them"):
            take_over(run, about, then, replace(now, withdrawn=tuple(then.split.test[:2].tolist())), places)
        run.kept = {}
        with pytest.raises(RunError, match="kept no scores"):
            take_over(run, about, then, now, places)

    def test_methods_whose_parties_were_trained_together(self, tmp_path: Path) -> None:
        before, after = rooms(
            tmp_path, method={"name": "vimadmm", "local_steps": 1}, model=TINY, training={"rounds": 2}
        )
        with before:
            before.train()
        with pytest.raises(ConfigError, match="a model of vimadmm was trained by all parties together"):
            after.trial.undertaking()

    def test_a_proposal_that_would_undo_what_was_promised(self, tmp_path: Path) -> None:
        """A party asks its own part, whatever the label holder's files say of the run in which it was trained."""
        before, _ = rooms(tmp_path, model=TINY, privacy=NOISE, training={"evaluate_every": 0})
        with before:
            before.train()
        with closing(Store(before.trial.place(COORDINATOR) / STORE)) as store:
            proposal = Agreement.from_json(store.about()["agreement"]).proposal
        part, columns = Part.load(before.trial.place("party_0")), everybody().parties[0].columns
        check_promise(part, proposal, columns)
        fewer = replace(proposal, train=proposal.train[5:])
        with pytest.raises(Refused, match="5 of its training rows would count as new ones"):
            check_promise(part, fewer, columns)
        for key, value in (("privacy", {}), ("method", {"name": "one_message", "settings": {"folds": 3}})):
            with pytest.raises(Refused, match="has another method or promises another privacy than there"):
                check_promise(part, replace(proposal, body={**proposal.body, key: value}), columns)
        with pytest.raises(Refused, match="was trained with noise, and proposes none"):
            check_promise(part, replace(proposal, body={**proposal.body, "mechanism": "none"}), columns)
        with pytest.raises(Refused, match="does not know its training rows"):
            check_promise(replace(part, trained=None), proposal, columns)

    def test_a_proposal_that_does_not_say_whose_parts(self, tmp_path: Path) -> None:
        before, _ = rooms(tmp_path)
        with before:
            before.train()
        with closing(Store(before.trial.place(COORDINATOR) / STORE)) as store:
            proposal = Agreement.from_json(store.about()["agreement"]).proposal
        sound = {"run": "test", "proposal": "x", "parties": ["bank"]}
        for told in (
            {},
            {**sound, "parties": []},
            {**sound, "run": "../test"},
            {**sound, "parties": [1]},
            "test",
            None,
        ):
            with pytest.raises(Refused.__mro__[1], match="whose parts it takes over"):
                _ = replace(proposal, body={**proposal.body, "takes_over": told}).former
