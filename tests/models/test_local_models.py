"""Local models without gradients: ridge against central solvers, mixed parties in every engine, refusals by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn

from colonnade.config import build
from colonnade.deploy.party_setup import PartySetup
from colonnade.deploy.predict import Wish
from colonnade.errors import ConfigError, ModelError, Refused, RunError
from colonnade.federation import Federation, RowSplit
from colonnade.fit import fit, resume
from colonnade.methods import METHODS, VIMADMM, VIMADMMJ, SplitLearning
from colonnade.model import Model
from colonnade.models.approach import behind_head
from colonnade.models.encoders import REGRESSORS, ModelSettings, PartySettings
from colonnade.models.local import Regressors, tensor_text, text_tensor
from colonnade.models.ridge import Ridge, RidgeSettings
from colonnade.part import Part
from colonnade.run import Run
from tests.contracts.registry import EVERY, fitting, make
from tests.deploy.memory import Room, SmallTrial
from tests.federations import small, trivial
from tests.local_models import Stumps, assert_kept
from tests.mechanisms import Noise
from tests.trainers import ENGINES, TINY, assert_same_tensors, open_trainer, untimed

DATA: dict[str, Any] = {"widths": (5, 4, 5), "rows": 90}
PARTIES = ("party_0", "party_1", "party_2")
MIXED = build(ModelSettings, {"hidden": 6, "embedding": 4, "party_0": {"encoder": "ridge"}}, "model")
TRAINING: dict[str, Any] = {
    "rounds": 6, "dtype": "float64", "evaluate_every": 2, "schedule": {"batch": 20}, "stopping": {"drop": 1e9},
}  # fmt: skip
ADMM = [VIMADMMJ(local_steps=2), VIMADMM(local_steps=2)]


def own() -> dict[str, Stumps]:
    """One party has a model of its own, one ridge by settings, one the network of the settings."""
    return {"party_2": Stumps()}


def columns(federation: Federation) -> dict[str, Tensor]:
    return {party.name: party.columns[federation.split.test] for party in federation.parties}


def everything_trains(tables: list[np.ndarray], labels: np.ndarray, task: str) -> Federation:
    rows = torch.arange(len(labels))
    split = RowSplit(rows, rows[:0], rows[:0])
    return Federation.from_arrays({f"p{k}": x for k, x in enumerate(tables)}, labels, task=task, split=split)


class TestRidgeReachesTheCentralOptimum:
    """(1/N) sum loss + beta |W|^2, with no cut between the columns."""

    beta, count = 0.02, 4
    model = ModelSettings(
        encoder="ridge", ridge=RidgeSettings(beta=beta, kappa=0.0, intercept=False), scale_columns="never"
    )
    options: ClassVar[dict[str, Any]] = {"evaluate_every": 0, "dtype": "float64", "schedule": {"batch": 1000}}

    def tables(self, rows: int) -> list[np.ndarray]:
        rng = np.random.default_rng(0)
        base = rng.normal(size=(rows, 4))
        return [0.7 * base + 0.7 * rng.normal(size=base.shape) for _ in range(self.count)]

    def test_of_classes(self) -> None:
        tables, rng = self.tables(240), np.random.default_rng(1)
        y = (sum(tables) @ rng.normal(size=(4, 3)) / self.count + 0.5 * rng.gumbel(size=(240, 3))).argmax(axis=1)
        federation, whole = everything_trains(tables, y, "multiclass"), np.hstack(tables)
        method = VIMADMMJ(rho=0.1, damping=1 / self.count)
        run = fit(federation, method, model=self.model, rounds=150, **self.options)
        central = LogisticRegression(C=1 / (2 * 240 * self.beta), fit_intercept=False, tol=1e-10, max_iter=5000)
        wanted = whole @ central.fit(whole, y).coef_.T
        ours = run.logits({p.name: p.columns for p in federation.parties})
        np.testing.assert_allclose(ours.numpy(), wanted, rtol=0, atol=1e-4)

    def test_of_numbers(self) -> None:
        tables, rng = self.tables(120), np.random.default_rng(2)
        y = sum(tables) @ rng.normal(size=4) + 0.3 * rng.normal(size=120) + 5
        federation, x = everything_trains(tables, y, "regression"), np.hstack(tables)
        method = VIMADMMJ(rho=0.5, damping=1 / self.count)
        run = fit(federation, method, model=self.model, rounds=200, **self.options)
        standard = (y - y.mean()) / y.std()
        weight = np.linalg.solve(x.T @ x / 120 + 2 * self.beta * np.eye(x.shape[1]), x.T @ standard / 120)
        ours = run.predict({p.name: p.columns for p in federation.parties})
        np.testing.assert_allclose(ours, x @ weight * y.std() + y.mean(), rtol=0, atol=1e-6)


def test_one_solve_is_the_minimum_of_its_objective() -> None:
    rng = np.random.default_rng(3)
    x, target = torch.from_numpy(rng.normal(size=(30, 4))), torch.from_numpy(rng.normal(size=(30, 2)))
    ridge = Ridge(RidgeSettings(beta=0.1, kappa=0.3))
    ridge.open((4,), 2, seed=0)
    ridge.approach(x, target, 0.7, 1)  # so that there are last weights
    last = ridge.weight.clone()
    ridge.approach(x, 2 * target, 0.7, 1)
    weight = ridge.weight.clone().requires_grad_()
    design = torch.cat([x, torch.ones(30, 1).double()], dim=1)
    value = 0.7 / 60 * (design @ weight - 2 * target).square().sum()
    value = value + 0.1 * weight.square().sum() + 0.15 * (weight - last).square().sum()
    assert float(torch.autograd.grad(value, weight)[0].abs().max()) < 1e-12


@given(st.integers(0, 10**6), st.integers(1, 4))
def test_a_target_behind_a_head_never_raises_what_admm_minimises(seed: int, outputs: int) -> None:
    """The bound touches at the outputs of now and lies above everywhere: checked at random other outputs."""
    rng = np.random.default_rng(seed)
    h, other, target = (torch.from_numpy(rng.normal(size=(2, 7, outputs))) for _ in range(3))
    weight = torch.from_numpy(rng.normal(size=(2, outputs, outputs)))
    wanted, bounds = behind_head(h, target, {"weight.0": weight})

    def objective(outputs: Tensor) -> Tensor:
        return (outputs @ weight - target).square().sum(dim=(1, 2))

    def bound(outputs: Tensor) -> Tensor:
        return torch.tensor(bounds, dtype=torch.float64) * (outputs - wanted).square().sum(dim=(1, 2))

    gap = objective(h) - bound(h)
    assert bool((objective(other) <= bound(other) + gap + 1e-9).all())
    assert bool((objective(wanted) <= objective(h) + 1e-9).all())


@pytest.mark.parametrize("method", [VIMADMMJ(local_steps=1), VIMADMM(local_steps=1)], ids=lambda m: m.name)
@pytest.mark.parametrize("local", [*REGRESSORS, "own"])
def test_parties_without_networks_read_the_trivial_labels(method: Any, local: str) -> None:
    federation = trivial()
    encoders = {name: Stumps() for name in federation.names} if local == "own" else None
    model = {"encoder": local, "trees": {"leaves": 2, "rate": 0.5}} if local in REGRESSORS else None
    run = fit(federation, method, model=model, encoders=encoders, rounds=20, schedule={"batch": 1000})
    assert run.accuracy == 1.0


@pytest.mark.parametrize("local", [*REGRESSORS, "own"])
def test_a_restored_regressor_goes_on_as_if_nothing_had_been(local: str) -> None:
    rng = np.random.default_rng(4)
    x, target = torch.from_numpy(rng.normal(size=(40, 3))), torch.from_numpy(rng.normal(size=(40, 2)))
    one, other = (REGRESSORS[local](ModelSettings()) if local in REGRESSORS else Stumps() for _ in range(2))
    for model in (one, other):
        model.open((3,), 2, seed=5)
    assert torch.equal(one.output(x), other.output(x))
    one.approach(x, target, 1.0, 2)
    assert float((one.output(x) - target).square().sum()) < float(target.square().sum())
    other.restore({name: value.clone() for name, value in one.tensors().items()})
    for model in (one, other):
        model.approach(x[:20], target[:20] + 1, 1.0, 1)
    assert torch.equal(one.output(x), other.output(x))


class TestMixedParties:
    @pytest.mark.parametrize("method", ADMM, ids=lambda m: m.name)
    @pytest.mark.parametrize("schedule", [{"batch": 20}, {"batch": 20, "participation": 0.5}], ids=["all", "some"])
    def test_the_engines_agree(self, method: Any, schedule: Mapping[str, Any]) -> None:
        training, federation = {**TRAINING, "schedule": schedule}, small(**DATA)
        runs = [
            open_trainer(federation, method, model=MIXED, encoders=own(), engine=engine, **training).train()
            for engine in ENGINES
        ]
        one, other = (run.model.flat() for run in runs)
        assert any(name.startswith("party/party_0/local.") for name in one)
        assert any(name.startswith("party/party_1/parameter.") for name in one)
        texts = {name: tensor_text(one.pop(name)) for name in [n for n in one if n.endswith("local.stumps")]}
        assert len(texts) == 1 and "cut" in next(iter(texts.values()))
        assert_same_tensors(one, {name: value for name, value in other.items() if name not in texts}, atol=1e-9)
        new = columns(federation)
        torch.testing.assert_close(runs[0].logits(new), runs[1].logits(new), rtol=0, atol=1e-9)

    @pytest.mark.parametrize("engine", ENGINES)
    @pytest.mark.parametrize("method", ADMM, ids=lambda m: m.name)
    def test_a_resumed_run_is_the_uninterrupted_one(self, method: Any, engine: str, tmp_path: Path) -> None:
        federation = small(**DATA)
        options: dict[str, Any] = {"model": MIXED, "engine": engine, "checkpoint_every": 2, **TRAINING}
        wanted = fit(federation, method, encoders=own(), **options)

        def interrupt(now: Any) -> None:
            if now.round == 3:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            fit(federation, method, encoders=own(), out=tmp_path / "run", watch=interrupt, **options)
        run = resume(tmp_path / "run", federation, encoders=own())
        assert run.fingerprint() == wanted.fingerprint()
        assert untimed(run.history) == untimed(wanted.history)

    @pytest.mark.parametrize("method", ADMM, ids=lambda m: m.name)
    def test_a_loaded_run_predicts_the_same(self, method: Any, tmp_path: Path) -> None:
        federation = small(**DATA)
        run = fit(federation, method, model=MIXED, encoders=own(), **TRAINING)
        logits = run.logits(columns(federation))
        run.save(tmp_path / "run")
        loaded = Run.load(tmp_path / "run", encoders=own())
        assert torch.equal(loaded.logits(columns(federation)), logits)
        assert loaded.model_settings == MIXED
        assert loaded.model_settings.of("party_0").encoder == "ridge"

    @pytest.mark.parametrize("method", ADMM, ids=lambda m: m.name)
    def test_a_model_and_its_parts_are_saved_and_loaded(self, method: Any, tmp_path: Path) -> None:
        federation = small(**DATA)
        run = fit(federation, method, model=MIXED, encoders=own(), **TRAINING)
        new, logits = columns(federation), run.logits(columns(federation))
        run.model.save(tmp_path / "model")
        assert torch.equal(Model.load(tmp_path / "model", encoders=own()).logits(new), logits)
        for party in PARTIES:
            part = run.model.part(party)
            said = part.predict(new[party])
            part.save(tmp_path / party)
            loaded = Part.load(tmp_path / party, own().get(party))  # only who brought a model brings it again
            for name, value in loaded.predict(new[party]).items():
                assert torch.equal(value, said[name])
        with pytest.raises(RunError, match="pass it again as encoder="):
            Part.load(tmp_path / "party_2")

    def test_an_explanation_names_the_party_without_a_head(self) -> None:
        federation = small(**DATA)
        run = fit(federation, VIMADMMJ(local_steps=1), model=MIXED, encoders=own(), **TRAINING)
        found = run.explain(federation, draws=1)
        assert found.unavailable == {"norm": "the local model of 'party_0' has no head"}
        assert found.noise is not None and found.mask is not None

    def test_a_model_of_the_users_own_stays_as_it_was(self) -> None:
        mine = own()
        fit(small(**DATA), VIMADMMJ(local_steps=2), encoders=mine, model=MIXED, **TRAINING)
        assert mine["party_2"].stumps == []

    def test_alike_ridge_parties_are_one_group(self) -> None:
        trainer = open_trainer(small(**DATA), VIMADMMJ(), model=ModelSettings(encoder="ridge"), rounds=1)
        assert [g.parties for g in trainer.coordinator.schema.groups] == [("party_0", "party_2"), ("party_1",)]

    def test_who_takes_no_step_stays_as_it_is(self) -> None:
        models = [Ridge(RidgeSettings()) for _ in range(2)]
        for model in models:
            model.open((3,), 2, seed=0)
        both, ones = Regressors(("a", "b"), models, 2), torch.ones(2, 4, 3, dtype=torch.float64)
        part = both.pick([0, 1])
        part.approach(ones, ones[:, :, :2], [1.0, 1.0], [0, 3])
        assert float(both.tensors()["local.weight"].abs().max()) == 0  # a copy was moved
        both.put([0, 1], part)
        moved = both.tensors()["local.weight"].abs().amax(dim=(1, 2))
        assert moved[0] == 0 and moved[1] > 0


@dataclass(frozen=True)
class MixedTrial(SmallTrial):
    """Every party's process builds its own local model: one by the proposal, one by its own file, one by itself."""

    def setup(self, name: str) -> PartySetup:
        brings = {
            "party_1": {"model": PartySettings(hidden=3)},
            "party_2": {"encoders": own()},
        }
        return replace(super().setup(name), **brings.get(name, {}))


def room(folder: Path, method: Mapping[str, Any]) -> Room:
    made = Room.of(
        folder, PARTIES, data=DATA, method=method, model=MIXED.model_dump(), training=TRAINING, absence={"patience": 2}
    )
    trial = {name: getattr(made.trial, name) for name in made.trial.__dataclass_fields__}
    made.trial = MixedTrial(**trial)
    return made


class TestOrganisations:
    @pytest.mark.parametrize("name", ["vimadmm_j", "vimadmm"])
    def test_they_compute_what_one_process_computes(self, name: str, tmp_path: Path) -> None:
        """The whole training, and predictions by parties that have been started again since."""
        rows = small(**DATA).split.test
        with room(tmp_path, {"name": name, "local_steps": 2}) as scene:
            run = scene.train()
            for party in PARTIES:
                scene.leave(party)
                scene.arrive(party)
            found = scene.predict(Wish(rows))
        together = build(ModelSettings, {**MIXED.model_dump(), "party_1": {"hidden": 3}}, "model")
        loop = open_trainer(
            small(**DATA), make(name, local_steps=2), model=together, encoders=own(), engine="loop", **TRAINING
        ).train()
        assert untimed(run.history) == untimed(loop.history)
        assert run.traffic.to_json() == loop.traffic.to_json()
        torch.testing.assert_close(found.logits, loop.logits(columns(small(**DATA))), rtol=0, atol=1e-9)
        for party in PARTIES:
            assert_kept(scene.trial.place(party), loop.models[party])
            part = Part.load(scene.trial.place(party), own().get(party))  # what its process left for it
            said, there = part.predict(columns(small(**DATA))[party]), loop.model.part(party)
            for key, value in there.predict(columns(small(**DATA))[party]).items():
                assert torch.equal(said[key], value)

    def test_a_party_whose_model_changed_between_lives_is_told(self, tmp_path: Path) -> None:
        with room(tmp_path, {"name": "vimadmm_j", "local_steps": 2}) as scene:
            scene.train()
            scene.leave("party_1")
            scene.trial = SmallTrial(**{n: getattr(scene.trial, n) for n in scene.trial.__dataclass_fields__})
            scene.arrive("party_1")
            scene.leave("party_1")
            told, scene.failures = [str(error) for error in scene.failures], []
        assert told == [
            "the local model of 'party_1' is not the one that run 'test' began with; put it back, or begin a new run "
            "under another name"
        ]

    def test_a_method_that_needs_gradients_is_refused_by_the_label_holder(self, tmp_path: Path) -> None:
        says = r"split_learning.*needs the gradients.*'party_0'"
        with room(tmp_path, {"name": "split_learning"}) as scene, pytest.raises(ConfigError, match=says):
            scene.train()

    def test_a_method_that_needs_gradients_is_refused_by_a_party(self, tmp_path: Path) -> None:
        scene = room(tmp_path, {"name": "split_learning"})
        trial = {name: getattr(scene.trial, name) for name in scene.trial.__dataclass_fields__}
        scene.trial = MixedTrial(**{**trial, "model": {"hidden": 6}})
        says = r"'split_learning' needs the gradients .* party 'party_2' has none"
        with scene, pytest.raises(Refused, match=says):
            scene.train()


class TestRefusals:
    @pytest.mark.parametrize("name", [n for n in EVERY if getattr(METHODS[n], "needs_gradients", True)])
    def test_a_method_that_needs_gradients_names_itself_and_the_party(self, name: str) -> None:
        federation = fitting(name, small())
        party = "everyone" if make(name).pools else "party_0"
        with pytest.raises(ConfigError, match=f"{name!r} needs the gradients of every local model.*{party}"):
            fit(federation, make(name), model={"encoder": "ridge"}, rounds=1)

    def test_exactly_these_methods_need_none(self) -> None:
        assert {n for n in EVERY if not getattr(METHODS[n], "needs_gradients", True)} == {
            "vimadmm", "vimadmm_j", "linear_admm", "one_message", "assisted_boosting",
        }  # fmt: skip

    def test_linear_admm_has_a_ridge_of_its_own(self) -> None:
        with pytest.raises(ConfigError, match=r"linear_admm.*would not use.*'party_2'"):
            fit(small(**DATA), "linear_admm", encoders=own(), rounds=1)

    def test_vimadmm_goes_through_linear_heads_only(self) -> None:
        with pytest.raises(ConfigError, match=r"'party_2' has no gradients.*linear heads only"):
            fit(small(**DATA), "vimadmm", encoders=own(), model={"head": {"layers": 2}}, rounds=1)

    def test_an_object_that_is_no_local_model(self) -> None:
        with pytest.raises(ModelError, match=r"party 'party_0'.*StandardScaler lacks open, output, approach"):
            fit(small(), VIMADMMJ(), encoders={"party_0": StandardScaler()}, rounds=1)

    def test_outputs_of_another_shape(self) -> None:
        class Narrow(Stumps):
            def output(self, x: Tensor) -> Tensor:
                return super().output(x)[:, :1]

        with pytest.raises(ModelError, match=r"party 'party_0' gave shape \(2, 1\) for 2 rows.*\(2, 3\)"):
            fit(small(), VIMADMMJ(), encoders={"party_0": Narrow()}, rounds=1)

    def test_a_model_for_nobody(self) -> None:
        with pytest.raises(
            ConfigError, match="encoders has a model for 'fisrt', who is not a party; did you mean 'first'"
        ):
            fit(trivial(), VIMADMMJ(), encoders={"fisrt": Stumps()}, rounds=1)

    def test_another_network_than_that_of_the_run(self, tmp_path: Path) -> None:
        """Its weights would otherwise be left as they were drawn, and the predictions be nobody's."""
        federation = small()

        def network(bias: bool) -> nn.Module:
            return nn.Sequential(nn.Linear(5, 4, bias=bias), nn.Tanh())

        for saved, given_, says in ((True, False, "no such tensor"), (False, True, "has no 'parameter.0.bias'")):
            folder = tmp_path / str(saved)
            run = fit(federation, SplitLearning(), encoders={"party_0": network(saved)}, model=TINY, rounds=1)
            run.save(folder)
            with pytest.warns(UserWarning, match="may predict otherwise"):
                loaded = Run.load(folder, encoders={"party_0": network(given_)})
            with pytest.raises(ModelError, match=says):
                loaded.logits(columns(federation))


def test_a_regressor_that_fails_on_its_own_numbers_is_left_out_quietly_with_noise() -> None:
    """With noise nobody may learn that a party's own numbers failed; what fails on no numbers, too, is told."""

    class Fragile(Stumps):
        def approach(self, x: Tensor, target: Tensor, weight: float, effort: int) -> None:
            if float(x.abs().max()) > 0:
                raise OverflowError

    trainer = open_trainer(
        small(**DATA), VIMADMMJ(local_steps=1), model=TINY, encoders={"party_2": Fragile()},
        mechanism=Noise(0.1), engine="loop", **{**TRAINING, "evaluate_every": 0},
    )  # fmt: skip
    told: list[str] = []
    for side in trainer.engine.parties():
        side.tell = told.append
    trainer.train()
    assert told and all("party_2: local steps were left out (OverflowError)" in line for line in told)


def test_a_text_survives_as_a_tensor() -> None:
    for text in ("", "zwölf Bäume\n"):
        assert tensor_text(text_tensor(text)) == text
