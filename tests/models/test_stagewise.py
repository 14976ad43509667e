"""Estimators of scikit-learn's kind as local models: stage by stage, stored without pickle, refused where need be."""

from __future__ import annotations

import gc
import io
import sys
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import SplineTransformer
from torch import Tensor

from colonnade.config import build
from colonnade.deploy.party_setup import PartySetup
from colonnade.deploy.predict import Wish
from colonnade.errors import ModelError, Refused, RunError
from colonnade.federation import Federation, RowSplit
from colonnade.fit import fit, resume
from colonnade.methods import VIMADMMJ, OneMessage
from colonnade.models.encoders import ModelSettings
from colonnade.models.local import Regressor
from colonnade.models.stagewise import Stagewise, as_local
from colonnade.models.stored_estimator import _without_gaps, from_bytes, to_bytes, types_in
from colonnade.part import Part
from colonnade.run import Run
from tests.deploy.memory import Room, SmallTrial
from tests.federations import small
from tests.local_models import bent_rows, columns_of_tests
from tests.trainers import open_trainer, untimed

DATA: dict[str, Any] = {"widths": (5, 4, 5), "rows": 90}
TRAINING: dict[str, Any] = {
    "rounds": 4, "evaluate_every": 2, "schedule": {"batch": 40}, "stopping": {"drop": 1e9}, "checkpoint_every": 1,
    "model": {"hidden": 6, "embedding": 4, "party_1": {"encoder": "ridge"}},
}  # fmt: skip


def boosted() -> HistGradientBoostingRegressor:
    return HistGradientBoostingRegressor(random_state=0, max_iter=3, min_samples_leaf=5)


def own() -> dict[str, Any]:
    return {"party_2": boosted()}


class Unsteady(RegressorMixin, BaseEstimator):  # type: ignore[misc] # scikit-learn has no types
    """Predicts what nobody can repeat."""

    def fit(self, x: Any, y: Any) -> Unsteady:
        self.value_ = float(np.random.default_rng().normal())
        return self

    def predict(self, x: Any) -> Any:
        return np.full(len(x), self.value_)


class Locked(Unsteady):
    """Holds something that no file can hold."""

    def fit(self, x: Any, y: Any) -> Locked:
        self.value_, self.lock_ = 0.0, threading.Lock()
        return self


class Plain:
    """Has what the documentation asks for and nothing else: no class of scikit-learn, no parameters, no tags."""

    def fit(self, x: Any, y: Any) -> Plain:
        self.weights = np.linalg.lstsq(x, y, rcond=None)[0]
        return self

    def predict(self, x: Any) -> Any:
        return x @ self.weights


class PlainClassifier(Plain):
    """The same, of labels."""

    def fit(self, x: Any, y: Any) -> PlainClassifier:
        super().fit(x, 2.0 * y - 1)
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, x: Any) -> Any:
        yes = 1 / (1 + np.exp(-x @ self.weights))
        return np.stack([1 - yes, yes], axis=1)


def opened(estimator: Any, step: float = 0.5, outputs: int = 2) -> Stagewise:
    stages = Stagewise(estimator, step)
    assert isinstance(stages, Regressor)
    stages.open((4,), outputs, 3)
    return stages


class TestStages:
    def test_a_stage_is_a_fit_of_what_is_left(self) -> None:
        x, target = bent_rows()
        stages, slow = opened(KNeighborsRegressor(3)), np.zeros((200, 2))
        for part in (slice(0, 150), slice(50, 200), slice(0, 200)):
            stages.approach(x[part], target[part], 1.0, 7)
            for output in range(2):
                rest = (target.numpy() - slow)[part, output]
                slow[:, output] += 0.5 * KNeighborsRegressor(3).fit(x[part], rest).predict(x)
        np.testing.assert_allclose(stages.output(x).numpy(), slow, rtol=0, atol=1e-12)

    def test_a_whole_training_with_numbers(self) -> None:
        """Least squares at both parties: steps written out."""
        rng = np.random.default_rng(1)
        tables = {name: rng.normal(size=(80, 3)) for name in ("a", "b")}
        y = tables["a"][:, 0] - 2 * tables["b"][:, 1] + 0.1 * rng.normal(size=80)
        everything = torch.arange(80)
        split = RowSplit(everything, everything[:0], everything[:0])
        federation = Federation.from_arrays(tables, y, task="regression", split=split)
        encoders: Any = {name: Stagewise(LinearRegression(), step=0.7) for name in tables}
        run = fit(
            federation, VIMADMMJ(rho=0.5, damping=0.5), encoders=encoders, rounds=5, evaluate_every=0,
            dtype="float64", schedule={"batch": 80}, model={"scale_columns": "never"},
        )  # fmt: skip
        label, dual = (y - y.mean()) / y.std(), np.zeros(80)
        outputs = {name: np.zeros(80) for name in tables}
        for _ in range(5):
            total = sum(outputs.values())
            z = (label + dual + 0.5 * total) / 1.5
            dual = dual + 0.5 * (total - z)
            v = z - total - dual / 0.5
            for name, table in tables.items():
                outputs[name] = outputs[name] + 0.7 * LinearRegression().fit(table, 0.5 * v).predict(table)
        ours = run.predict({party.name: party.columns for party in federation.parties})
        np.testing.assert_allclose(ours, sum(outputs.values()) * y.std() + y.mean(), rtol=0, atol=1e-5)

    def test_seeds_are_of_the_run_the_party_and_the_stage(self) -> None:
        x, target = bent_rows()

        def grown(estimator: Any, seed: int) -> Tensor:
            stages = Stagewise(estimator)
            stages.open((4,), 2, seed)
            stages.approach(x, target, 1.0, 1)
            stages.approach(x, target, 1.0, 1)
            return stages.output(x)

        forest = RandomForestRegressor(3, random_state=None)
        assert torch.equal(grown(forest, 1), grown(forest, 1))
        assert not torch.equal(grown(forest, 1), grown(forest, 2))
        assert not torch.equal(grown(forest, 1), grown(RandomForestRegressor(3, random_state=5), 1))

    @pytest.mark.parametrize(
        "estimator",
        [
            boosted(),
            RandomForestRegressor(3),
            KNeighborsRegressor(),
            MLPRegressor(hidden_layer_sizes=(3,), max_iter=3),
            make_pipeline(SplineTransformer(), Ridge()),
        ],
        ids=lambda estimator: type(estimator).__name__,
    )
    @pytest.mark.filterwarnings("ignore:Stochastic Optimizer")
    def test_a_restored_model_goes_on_as_if_nothing_had_been(self, estimator: Any) -> None:
        x, target = bent_rows(80)
        one, other = (opened(estimator) for _ in range(2))
        one.approach(x, target, 1.0, 1)
        other.restore({name: value.clone() for name, value in one.tensors().items()})
        for stages in (one, other):
            stages.approach(x[:50], target[:50] + 1, 1.0, 1)
        assert torch.equal(one.output(x), other.output(x))
        assert float(one.output(x).abs().max()) > 0

    def test_a_step_that_cannot_be(self) -> None:
        with pytest.raises(ModelError, match="step of a stage must be above 0 and at most 1; it is 0"):
            Stagewise(Ridge(), step=0)


class TestFiles:
    def test_equal_fits_are_equal_bytes(self) -> None:
        x, target = bent_rows(60)
        fits = [boosted().fit(x.numpy(), target[:, 0].numpy()) for _ in range(2)]
        one, two = (to_bytes(fitted) for fitted in fits)
        assert one == two == to_bytes(from_bytes(one, types_in(one)))

    def test_types_of_another_estimator_are_not_read(self) -> None:
        x, target = bent_rows(60)
        stages, other = opened(Ridge()), opened(KNeighborsRegressor())
        other.approach(x, target, 1.0, 1)
        with pytest.raises(ModelError, match=r"holds a .*EuclideanDistance64.*pass the same encoders= as in training"):
            stages.restore(other.tensors())


class TestRuns:
    def test_a_resumed_run_is_the_uninterrupted_one(self, tmp_path: Path) -> None:
        federation = small(**DATA)
        wanted = fit(federation, VIMADMMJ(local_steps=2), encoders=own(), **TRAINING)
        assert "stage.0.0" in next(name for name in wanted.model.part("party_2").tensors if "stage" in name)

        def interrupt(now: Any) -> None:
            if now.round == 2:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            fit(federation, VIMADMMJ(local_steps=2), encoders=own(), out=tmp_path / "run", watch=interrupt, **TRAINING)
        run = resume(tmp_path / "run", federation, encoders=own())
        assert run.fingerprint() == wanted.fingerprint()
        assert untimed(run.history) == untimed(wanted.history)
        assert set(run.about["machine"]["libraries"]) == {"sklearn"}
        loaded = Run.load(tmp_path / "run", encoders=own())
        assert torch.equal(loaded.logits(columns_of_tests(federation)), run.logits(columns_of_tests(federation)))
        part = run.model.part("party_2")
        part.save(tmp_path / "part")
        new = columns_of_tests(federation)["party_2"]
        assert torch.equal(Part.load(tmp_path / "part", boosted()).predict(new)["o"], part.predict(new)["o"])
        with pytest.raises(RunError, match="pass it again as encoder="):
            Part.load(tmp_path / "part")

    @pytest.mark.parametrize(
        ("estimator", "says"),
        [
            (LogisticRegression(), "party 'party_0' is LogisticRegression, a classifier; .*pass a regressor"),
            (Unsteady(), "party 'party_0' cannot be opened.*two equal fits of Unsteady predict differently"),
            (Locked(), "party 'party_0' cannot be opened.*Locked cannot be kept in a file without pickle"),
        ],
        ids=["classifier", "unsteady", "locked"],
    )
    def test_refused_before_training(self, estimator: Any, says: str) -> None:
        with pytest.raises(ModelError, match=says):
            fit(small(), VIMADMMJ(), encoders={"party_0": estimator}, rounds=1)

    def test_an_estimator_needs_no_class_of_scikit_learn(self, tmp_path: Path) -> None:
        federation = small(task="binary")
        method, rows = OneMessage(folds=2), columns_of_tests(federation)
        own: dict[str, Any] = {"party_0": Plain(), "party_1": PlainClassifier()}
        ridge: Any = {"encoder": "ridge"}
        run = fit(federation, method, encoders=own, model=ridge, out=tmp_path / "run", progress=False)
        assert torch.equal(Run.load(tmp_path / "run", own).logits(rows), run.logits(rows))
        with pytest.raises(ModelError, match="PlainClassifier, a classifier; vimadmm_j asks"):
            fit(federation, VIMADMMJ(), encoders=own, rounds=1)

    def test_networks_and_regressors_stay_what_they_are(self) -> None:
        mine = Stagewise(Ridge())
        assert as_local("a", mine) is mine


@dataclass(frozen=True)
class OwnTrial(SmallTrial):
    """One party's process brings an estimator of its own."""

    def setup(self, name: str) -> PartySetup:
        return replace(super().setup(name), encoders=own() if name in own() else None)


def test_organisations_compute_what_one_process_computes(tmp_path: Path) -> None:
    """The whole training, and predictions by a party that has been started again since."""
    model = build(ModelSettings, TRAINING["model"], "model")
    training = {**{name: value for name, value in TRAINING.items() if name != "model"}, "dtype": "float64"}
    scene = Room.of(
        tmp_path, ("party_0", "party_1", "party_2"), data=DATA, method={"name": "vimadmm_j", "local_steps": 2},
        model=model.model_dump(), training=training, absence={"patience": 2},
    )  # fmt: skip
    scene.trial = OwnTrial(**{name: getattr(scene.trial, name) for name in scene.trial.__dataclass_fields__})
    with scene:
        run = scene.train()
        scene.leave("party_2")
        scene.arrive("party_2")
        found = scene.predict(Wish(small(**DATA).split.test))
    loop = open_trainer(
        small(**DATA), VIMADMMJ(local_steps=2), model=model, encoders=own(), engine="loop", **training
    ).train()
    assert untimed(run.history) == untimed(loop.history)
    assert torch.equal(found.logits, loop.logits(columns_of_tests(small(**DATA))))


@dataclass(frozen=True)
class ClassifierTrial(SmallTrial):
    """One party's process brings a classifier."""

    def setup(self, name: str) -> PartySetup:
        return replace(super().setup(name), encoders={"party_2": PlainClassifier()} if name == "party_2" else None)


@pytest.mark.parametrize(("method", "task"), [("vimadmm_j", "binary"), ("one_message", "regression")])
def test_a_classifier_that_cannot_be_trained_is_refused_before_organisations_agree(
    method: str, task: str, tmp_path: Path
) -> None:
    """Found after that, the others would wait for a party whose process is gone."""
    said: dict[str, Any] = {"data": {**DATA, "task": task}, "method": {"name": method}, "model": {"encoder": "ridge"}}
    scene = Room.of(tmp_path, ("party_0", "party_1", "party_2"), training={"rounds": 1}, **said)
    scene.trial = ClassifierTrial(**{name: getattr(scene.trial, name) for name in scene.trial.__dataclass_fields__})
    with scene, pytest.raises(Refused, match="'party_2' has a problem of its own; its operator sees which"):
        scene.train()
    assert any("PlainClassifier" in str(event) for event in scene.events["party_2"])


def test_several_threads_write_and_read_estimators() -> None:
    """A process of an organisation has a thread for each run; Python 3.11 fails when two read arrays at a time."""
    values = np.random.default_rng(0).normal(size=(80, 3))
    fitted = HistGradientBoostingRegressor(max_iter=4, random_state=0).fit(values, values[:, 0])
    told, failed = to_bytes(fitted), list[BaseException]()

    def work() -> None:
        try:
            for _ in range(3):
                assert to_bytes(fitted) == told
                from_bytes(told, types_in(told))
        except BaseException as error:
            failed.append(error)

    before = gc.get_threshold(), sys.getswitchinterval()
    gc.callbacks.append(_let_others_run)
    gc.set_threshold(20)
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        gc.set_threshold(*before[0])
        sys.setswitchinterval(before[1])
        gc.callbacks.remove(_let_others_run)
    assert not failed


def _let_others_run(phase: str, info: dict[str, int]) -> None:
    time.sleep(0)


def test_what_lay_in_memory_between_the_fields_of_a_record_is_not_kept() -> None:
    """Nodes of a forest are records with gaps, which scikit-learn leaves as it finds them."""
    kind = np.dtype({"names": ["a", "b"], "formats": ["<i8", "u1"], "offsets": [0, 8], "itemsize": 16})
    files = []
    for filler in (0, 255):
        values = np.full(16 * 40, filler, dtype=np.uint8).view(kind)
        values["a"], values["b"] = np.arange(40), 1
        out = io.BytesIO()
        np.save(out, values)
        junk = [np.full(16 * 40, filler, dtype=np.uint8) for _ in range(50)]  # memory that the next array may get
        del junk
        files.append(_without_gaps(out.getvalue()))
    assert files[0] == files[1]
