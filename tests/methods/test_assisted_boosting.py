"""assisted_boosting: against rounds that are written out, with any local model, and between organisations."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.neighbors import KNeighborsRegressor
from torch import Tensor

from colonnade import Federation, Run, fit
from colonnade.deploy.coordinator import CoordinatorProcess
from colonnade.deploy.party_setup import PartySetup
from colonnade.deploy.predict import Wish
from colonnade.errors import ConfigError, ModelError, ShortTraining, WireError
from colonnade.evaluate.metrics import METRICS
from colonnade.fit import resume
from colonnade.methods import AssistedBoosting
from colonnade.methods._residuals import checked, rounded
from colonnade.models.encoders import ModelSettings
from colonnade.report.privacy import statement_of_run
from colonnade.saved import fingerprint
from colonnade.tasks import TASKS
from colonnade.wire.messages import COORDINATOR, Purpose
from colonnade.wire.numbers import NumberFormat, Numbers
from tests.deploy.memory import Room, SmallTrial
from tests.federations import small
from tests.local_models import Stumps
from tests.reference.boosting import LEAF, written_out
from tests.trainers import open_trainer, rounds_of, untimed

ALL = list(TASKS)
TREES: dict[str, Any] = {
    "encoder": "trees", "scale_columns": "never", "trees": {"increment": 3, "smallest_leaf": LEAF, "columns": 1.0},
}  # fmt: skip
RIDGE: dict[str, Any] = {"encoder": "ridge"}
SUMMED: dict[str, Any] = {"secure_sum": {"use": True}}
NOISY: dict[str, Any] = {"labels": {"mechanism": "randomised_response", "epsilon": 2.0}}


def federation(task: str = "binary", **options: Any) -> Federation:
    """300 rows: 180 train, 60 validate, 60 test."""
    return small(**{"widths": (4, 3, 2), "rows": 300, "task": task, **options})


def columns(whole: Federation, rows: Tensor) -> dict[str, Tensor]:
    return {party.name: party.columns[rows] for party in whole.parties}


def score(run: Run, whole: Federation, metric: str) -> float:
    rows = whole.split.test
    return METRICS[metric](whole.task, run.logits(columns(whole, rows)), whole.labels[rows])


def after(whole: Federation, rounds: int, **options: Any) -> Run:
    """A training of so many rounds, the last of which is kept: nothing says that another is better."""
    trainer = open_trainer(
        whole, AssistedBoosting(), model=ModelSettings(**TREES), rounds=rounds, evaluate_every=rounds, **options
    )
    return trainer.train()


class TestWrittenOut:
    @pytest.mark.parametrize("task", ALL)
    def test_three_rounds_of_every_task(self, task: str) -> None:
        whole = federation(task)
        found = after(whole, 3).logits(columns(whole, torch.arange(whole.rows)))
        np.testing.assert_allclose(found.numpy(), written_out(whole, 3), rtol=0, atol=1e-6)

    @pytest.mark.parametrize("task", ["binary", "count"])
    def test_rows_that_count_differently(self, task: str) -> None:
        whole = federation(task, weighted=True)
        assert whole.weights is not None
        wanted = written_out(replace(whole, weights=None), 2, whole.weights.numpy())
        if task == "count":  # the scale of counts is that of plain rows
            assert np.isfinite(wanted).all()
        found = after(whole, 2).logits(columns(whole, torch.arange(whole.rows)))
        np.testing.assert_allclose(found.numpy(), wanted, rtol=0, atol=1e-6)

    def test_class_weights_are_weights_of_rows(self) -> None:
        whole = federation("binary")
        heavy = torch.where(whole.labels[:, 0] > 0, 3.0, 1.0).double()
        by_class = after(whole, 2, class_weights={"1": 3.0}).logits(columns(whole, whole.split.test))
        by_row = after(replace(whole, weights=heavy), 2).logits(columns(whole, whole.split.test))
        torch.testing.assert_close(by_class, by_row, rtol=0, atol=1e-9)


# -- messages -----------------------------------------------------------------------------------


class TestMessages:
    def told(self, task: str, **options: Any) -> list[set[str]]:
        """What every request tells all parties, but for the rows."""
        trainer = open_trainer(federation(task), AssistedBoosting(), model=ModelSettings(**RIDGE), rounds=2, **options)
        return [set(one.down.common) for one in rounds_of(trainer)]

    @pytest.mark.parametrize("task", [name for name in ALL if name != "count"])
    def test_residuals_tell_their_curvature(self, task: str) -> None:
        assert self.told(task)[:3] == [{"targets", "base"}, {"g"}, {"g"}]

    def test_those_of_counts_do_not(self) -> None:
        assert self.told("count")[:3] == [{"targets", "base"}, {"g", "h"}, {"g", "h"}]

    def test_nor_do_those_of_labels_that_are_beliefs(self) -> None:
        alibi = {"labels": {"mechanism": "alibi", "epsilon": 2.0}}
        assert self.told("binary", privacy=alibi)[:3] == [{"targets", "base"}, {"g", "h"}, {"g", "h"}]
        assert self.told("binary", privacy=NOISY)[:3] == [{"targets", "base"}, {"g"}, {"g"}]

    def test_weights_of_rows_go_down_once_and_the_ledger_says_so(self) -> None:
        run = after(federation("binary", weighted=True), 2)
        noted = [e.number for e in run.ledger if e.owner == COORDINATOR and dict(e.notes).get("weights")]
        assert noted == [1]

    def test_everybody_is_told_its_own_step_and_nobody_another(self) -> None:
        grown = ModelSettings(encoder="trees", trees={"increment": 40, "smallest_leaf": LEAF})
        trainer = open_trainer(federation(), AssistedBoosting(), model=grown, rounds=3)
        seen = [one.down for one in rounds_of(trainer)]
        assert all(set(down.own) == set(trainer.coordinator.schema.parties) for down in seen[1:4])
        steps = torch.cat([part["step"][:, 0] for part in seen[1].groups])
        assert not torch.equal(steps, steps[:1].expand_as(steps))
        assert torch.equal(rounded(steps), steps)
        assert bool(((steps >= 0) & (steps <= 1)).all())

    @pytest.mark.parametrize("numbers", ["float16", "int8"])
    def test_in_fewer_bits_both_sides_have_the_same_steps(self, numbers: str) -> None:
        """What the coordinator adds up about validation rows is what the parties' models then say, but for rounding."""
        whole = federation("multiclass")
        trainer = open_trainer(
            whole,
            AssistedBoosting(),
            model=ModelSettings(**TREES),
            wire={"numbers": numbers},
            rounds=6,
            evaluate_every=6,
        )
        run = trainer.train()
        told = run.model.logits(columns(whole, whole.split.validation))
        summed = trainer.coordinator.state["cache.validation"].sum(dim=0) + run.state["base"]
        assert float((told - summed).abs().max()) < 0.1
        weights = [part.tensors["local.weights"] for part in run.model.parts.values()]
        assert all(torch.equal(rounded(own), own) for own in weights)  # half of a step has as many digits

    def test_rows_of_one_number_take_little_more_than_a_byte(self) -> None:
        whole = small(widths=(4, 3), rows=4000, task="binary")
        used = {
            numbers: fit(whole, "assisted_boosting", model=RIDGE, wire={"numbers": numbers}, rounds=4).traffic.up
            for numbers in ("float32", "int8")
        }
        assert used["int8"] < 0.3 * used["float32"]


# -- judging ------------------------------------------------------------------------------------


class TestValidation:
    def test_the_rows_that_choose_steps_do_not_judge(self) -> None:
        """Other labels of the judging rows: the same steps, another score."""
        whole = federation()
        judging = whole.split.validation[1::2]
        other = whole.labels.clone()
        other[judging] = 1 - other[judging]
        runs = [after(replace(whole, labels=labels), 3) for labels in (whole.labels, other)]
        one, other_one = (
            {k: v for k, v in run.model.flat().items() if "subset." not in k} for run in runs
        )  # combinations of some parties are fitted when the rounds are over, on all validation rows
        assert fingerprint(one) == fingerprint(other_one)
        assert runs[0].result["validation_score"] != runs[1].result["validation_score"]

    def test_the_kept_round_has_the_lowest_loss_and_is_scored_as_usual(self) -> None:
        whole = small(widths=(4, 3, 2), rows=240, task="binary")
        run = fit(whole, "assisted_boosting", model=TREES, dtype="float64")
        rows = whole.split.validation[1::2]
        outputs, truth = run.logits(columns(whole, rows)), whole.labels[rows]
        found = run.result["validation_metrics"]
        assert found["log_loss"] == pytest.approx(METRICS["log_loss"](whole.task, outputs, truth), abs=1e-9)
        assert run.result["validation_metric"] == "auc"
        assert run.result["validation_score"] == found["auc"]
        best = run.result["best_round"]
        assert best is not None
        assert run.history[best]["score"] == found["auc"]  # the history begins with round 0, which has no score

    def test_it_stops_after_four_rounds_without_a_gain(self) -> None:
        run = fit(small(widths=(4, 3, 2), rows=240, task="binary"), "assisted_boosting", model=TREES)
        assert run.result["best_round"] is not None
        assert run.result["rounds"] in (20, run.result["best_round"] + 5)  # rounds are judged one round later
        assert run.training.rounds == 20

    def test_a_named_metric_keeps_and_stops(self) -> None:
        run = fit(federation(), "assisted_boosting", model=TREES, metric="auc", rounds=8, stopping={"patience": 8})
        scores = [entry["score"] for entry in run.history if "score" in entry]
        assert run.result["validation_score"] == max(scores)

    @pytest.mark.parametrize("options", [{"evaluate_every": 0}, {"privacy": SUMMED}], ids=["never", "secure sum"])
    def test_steps_are_alike_where_nobody_can_choose_them(self, options: dict[str, Any]) -> None:
        whole = federation("multiclass")
        run = fit(whole, "assisted_boosting", model=TREES, rounds=2, **options)
        for part in run.model.parts.values():
            assert part.tensors["local.weights"].tolist() == pytest.approx([0.5 / 3, 0.5 / 3], rel=1 / 128)

    def test_a_secure_sum_trains_what_plain_uploads_train_with_equal_steps(self) -> None:
        whole = federation()
        runs = [
            fit(whole, "assisted_boosting", model=TREES, rounds=3, evaluate_every=0, dtype="float64", privacy=privacy)
            for privacy in ({}, SUMMED)
        ]
        rows = columns(whole, whole.split.test)
        torch.testing.assert_close(runs[0].logits(rows), runs[1].logits(rows), rtol=0, atol=1e-4)

    def test_a_party_of_noise_gets_short_steps(self) -> None:
        whole = federation(rows=900)
        rng = np.random.default_rng(5)
        noise = replace(whole.parties[2], columns=torch.from_numpy(rng.normal(size=(900, 2))))
        run = after(replace(whole, parties=(*whole.parties[:2], noise)), 6)
        weights = {name: float(part.tensors["local.weights"].sum()) for name, part in run.model.parts.items()}
        assert weights["party_2"] < 0.5 * min(weights["party_0"], weights["party_1"])


class TestRefusals:
    def test_a_batch_is_not_used_and_a_warning_says_so(self) -> None:
        with pytest.warns(ShortTraining, match=r"schedule\.batch = 40 is not used: .* all 180 training rows"):
            run = fit(federation(), "assisted_boosting", model=RIDGE, schedule={"batch": 40}, rounds=2)
        sent = [e.rows for e in run.ledger if e.purpose is Purpose.TRAIN and e.owner != COORDINATOR]
        assert set(sent) == {180}

    def test_nobody_goes_on_without_a_party(self, tmp_path: Path) -> None:
        options: dict[str, Any] = {"data": {"widths": (2, 2)}, "method": {"name": "assisted_boosting"}, "model": RIDGE}
        scene = Room.of(tmp_path, ("party_0", "party_1"), absence={"then": "continue"}, training={}, **options)
        with pytest.raises(ConfigError, match="a party that misses a round no longer has the model"), scene:
            scene.train()

    def test_a_classifier_cannot_fit_what_is_left(self) -> None:
        with pytest.raises(ModelError, match=r"LogisticRegression, a classifier; assisted_boosting asks"):
            fit(federation(), "assisted_boosting", encoders={"party_0": LogisticRegression()}, rounds=1)


def test_steps_travel_exactly_in_every_number_format() -> None:
    every = rounded(torch.from_numpy(np.random.default_rng(0).uniform(size=500)).clamp(min=1e-6))
    every = torch.cat([every, rounded(1 / torch.arange(1, 500, dtype=torch.float64)), torch.tensor([0.0, 1.0])])
    for name in NumberFormat.__args__:  # type: ignore[attr-defined]
        numbers = Numbers(name)
        read = [numbers.decode(numbers.encode({"step": step.float()[None]}))["step"] for step in every]
        assert torch.equal(torch.cat(read).double(), every)
    assert float((rounded(torch.tensor([1 / 3])) - 1 / 3).abs()) < 1 / 384


@pytest.mark.parametrize("step", [-0.1, 1.1, float("nan")])
def test_a_step_that_nobody_chooses_is_refused(step: float) -> None:
    with pytest.raises(WireError, match=r"a step size of .* came; needed one from 0 to 1"):
        checked(step)


def test_noisy_labels_are_all_that_goes_down() -> None:
    whole = federation(rows=600)
    run = fit(whole, "assisted_boosting", model=TREES, privacy=NOISY)
    told = {e.event.name for e in run.ledger if e.owner == COORDINATOR and e.event.name != "empty"}
    assert told == {"randomised response"}
    assert "(exposure EPS)" in " ".join(statement_of_run(run).lines())
    plain = fit(whole, "assisted_boosting", model=TREES, rounds=2)
    assert "(exposure FULL)" in " ".join(statement_of_run(plain).lines())
    assert run.score is not None
    assert run.score > 0.7


# -- local models -------------------------------------------------------------------------------


def mixed() -> Any:
    """party_0 has trees and party_1 a network, by settings."""
    return {
        "party_2": LinearRegression(),
        "party_3": KNeighborsRegressor(5),
        "party_4": Stumps(),
    }


MIXED: dict[str, Any] = {"hidden": 6, "embedding": 4, "party_0": TREES, "party_5": RIDGE}
SIX: dict[str, Any] = {"widths": (4, 3, 2, 3, 2, 2), "rows": 100, "task": "binary"}


class TestLocalModels:
    @pytest.mark.parametrize("task", ALL)
    @pytest.mark.parametrize("model", [RIDGE, {"hidden": 16, "embedding": 8}], ids=["ridge", "network"])
    def test_every_task(self, task: str, model: dict[str, Any]) -> None:
        """Better than a constant guess, which has AUC 1/2, R2 0 and the worst deviance."""
        whole = federation(task, rows=400)
        run = fit(whole, AssistedBoosting(local_steps=20), model=model, rounds=5)
        metric = {"binary": "auc", "regression": "r2", "count": "r2"}.get(task, "accuracy")
        least = {"binary": 0.75, "multiclass": 0.5, "multilabel": 0.65, "regression": 0.4, "count": 0.1}[task]
        assert score(run, whole, metric) > least

    def test_all_kinds_together_and_again_after_an_interruption(self, tmp_path: Path) -> None:
        whole = small(**SIX)
        settings: dict[str, Any] = {"model": MIXED, "encoders": mixed(), "rounds": 3, "checkpoint_every": 1}
        method = AssistedBoosting(local_steps=5)
        wanted = fit(whole, method, out=tmp_path / "whole", **settings)

        def interrupt(now: Any) -> None:
            if now.round == 2:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            fit(whole, method, out=tmp_path / "run", watch=interrupt, **settings)
        again = resume(tmp_path / "run", whole, encoders=mixed())
        assert again.fingerprint() == wanted.fingerprint()
        assert untimed(again.history) == untimed(wanted.history)
        loaded, rows = Run.load(tmp_path / "run", encoders=mixed()), columns(whole, whole.split.test)
        assert torch.equal(loaded.logits(rows), wanted.logits(rows))

    @pytest.mark.parametrize("task", ["binary", "multiclass", "count"])
    @pytest.mark.parametrize("model", [TREES, RIDGE], ids=["trees", "ridge"])
    def test_they_explain_the_columns_of_their_sums(self, task: str, model: dict[str, Any]) -> None:
        whole = federation(task)
        run = fit(whole, "assisted_boosting", model=model, dtype="float64", rounds=3)
        part, x = run.model.part("party_0"), whole.parties[0].columns[:9]
        told = part.contributions(x)
        torch.testing.assert_close(told.base + told.values.sum(dim=1), part.predict(x)["o"], rtol=0, atol=1e-6)
        assert told.way.startswith("as the local model says itself")


@dataclass(frozen=True)
class MixedTrial(SmallTrial):
    """Three organisations bring models of their own."""

    def setup(self, name: str) -> PartySetup:
        return replace(super().setup(name), encoders=mixed() if name in mixed() else None)


class Killed(Exception):
    """The label holder's process ended."""


class Restless(Room):
    """A party ends and begins again after the second round, the label holder after the third."""

    def train(self) -> Run:
        def watch(now: Any) -> None:
            if now.round == 2:
                self.leave("party_0")
                self.arrive("party_0")
            if now.round == 3:
                raise Killed

        link, place = self.link(COORDINATOR), self.trial.place(COORDINATOR)
        process = CoordinatorProcess(place, link, link.credentials, self.trial.undertaking(), self._notify(COORDINATOR))
        with contextlib.closing(process.store), pytest.raises(Killed):
            process.serve(watch)
        return super().train()


def test_organisations_compute_what_one_process_computes(tmp_path: Path) -> None:
    """With every kind of local model, a party and a label holder that were killed, and a prediction afterwards."""
    whole = small(**SIX)
    training: dict[str, Any] = {
        "rounds": 4,
        "dtype": "float64",
        "wire": {"numbers": "int8"},
        "evaluate_every": 1,
    }
    scene = Restless.of(
        tmp_path, whole.names, data=SIX, method={"name": "assisted_boosting", "local_steps": 4}, model=MIXED,
        training=training, absence={"patience": 2},
    )  # fmt: skip
    scene.trial = MixedTrial(**{name: getattr(scene.trial, name) for name in scene.trial.__dataclass_fields__})
    with scene:
        run = scene.train()
        found = scene.predict(Wish(whole.split.test))
    loop = open_trainer(
        whole,
        AssistedBoosting(local_steps=4),
        encoders=mixed(),
        model=ModelSettings(**MIXED),
        engine="loop",
        **training,
    ).train()
    assert untimed(run.history) == untimed(loop.history)
    assert run.traffic.to_json() == loop.traffic.to_json()
    assert torch.equal(found.logits, loop.logits(columns(whole, whole.split.test)))
