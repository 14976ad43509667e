"""Boosted trees as a local model: against plain LightGBM calls, restarts, mixed parties, explanations, refusals."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from colonnade.config import build
from colonnade.deploy.predict import Wish
from colonnade.errors import ConfigError, DataError, ModelError
from colonnade.federation import Federation, RowSplit
from colonnade.fit import fit, resume
from colonnade.methods import METHODS, VIMADMMJ
from colonnade.model import Model
from colonnade.models.encoders import ModelSettings
from colonnade.models.local import Explains, Regressor, Regressors, tensor_text
from colonnade.models.ridge import Ridge, RidgeSettings
from colonnade.models.trees import BETWEEN, REMEMBERED, Trees, TreeSettings
from colonnade.part import Part
from colonnade.run import Run
from tests.contracts.registry import EVERY, fitting, make
from tests.deploy.memory import Room, Way
from tests.explain.shoppers import shoppers
from tests.federations import small
from tests.local_models import assert_kept, bent_rows, columns_of_tests
from tests.trainers import ENGINES, open_trainer, untimed

lightgbm = pytest.importorskip("lightgbm")

DATA: dict[str, Any] = {"widths": (5, 4, 5), "rows": 120}
PARTIES = ("party_0", "party_1", "party_2")
MIXED = {
    "hidden": 6, "embedding": 4, "party_0": {"encoder": "trees", "trees": {"columns": 0.5}},
    "party_2": {"encoder": "ridge"},
}  # fmt: skip
TRAINING: dict[str, Any] = {
    "rounds": 6, "evaluate_every": 2, "schedule": {"batch": 60}, "stopping": {"drop": 1e9},
}  # fmt: skip
PLAIN = {  # LightGBM's own words for the settings of the tests below
    "objective": "regression", "boost_from_average": False, "num_leaves": 4, "learning_rate": 0.3, "lambda_l2": 2.0,
    "min_data_in_leaf": 3, "min_data_in_bin": 3, "deterministic": True, "force_row_wise": True, "num_threads": 1,
    "verbosity": -1,
}  # fmt: skip
SAME = TreeSettings(leaves=4, rate=0.3, l2=2.0, smallest_leaf=3, columns=1.0)


def opened(settings: TreeSettings = SAME, width: int = 4, outputs: int = 2, seed: int = 7) -> Trees:
    trees = Trees(settings)
    trees.open((width,), outputs, seed)
    return trees


class TestAgainstPlainCalls:
    def test_steps_add_trees_for_what_is_left(self) -> None:
        x, target = bent_rows()
        trees, slow = opened(), np.zeros((len(x), 2))
        for effort, part in ((3, slice(0, 150)), (1, slice(50, 200)), (4, slice(0, 200))):  # rounds are about some rows
            wanted = target[part] * effort
            trees.approach(x[part], wanted, 0.7, effort)
            for output in range(2):
                label, score = (one.copy() for one in (wanted.numpy()[:, output], slow[part, output]))
                data = lightgbm.Dataset(x[part].numpy(), label, init_score=score)
                slow[:, output] += lightgbm.train(PLAIN, data, effort).predict(x.numpy())
        np.testing.assert_allclose(trees.output(x).numpy(), slow, rtol=0, atol=1e-6)

    def test_a_whole_training(self) -> None:
        """VIMADMM-J for numbers with its steps written out: every party's trees, twelve rounds."""
        rng = np.random.default_rng(1)
        tables = {name: rng.normal(size=(160, 3)) for name in ("a", "b")}
        y = tables["a"][:, 0] * tables["a"][:, 1] + tables["b"][:, 0] ** 2
        everything = torch.arange(160)
        federation = Federation.from_arrays(
            tables, y, task="regression", split=RowSplit(everything, everything[:0], everything[:0])
        )
        rho, rounds, model = 0.25, 12, {"encoder": "trees", "trees": SAME.model_dump(), "scale_columns": "never"}
        run = fit(
            federation, VIMADMMJ(rho=rho, damping=0.5, local_steps=2), model=model, rounds=rounds, evaluate_every=0,
            dtype="float64", schedule={"batch": 160},
        )  # fmt: skip
        label, dual = (y - y.mean()) / y.std(), np.zeros(160)
        outputs = {name: np.zeros(160) for name in tables}
        for _ in range(rounds):
            total = sum(outputs.values())
            z = (label + dual + rho * total) / (1 + rho)
            dual = dual + rho * (total - z)
            for name, table in tables.items():
                target = outputs[name] + 0.5 * (z - total - dual / rho)
                data = lightgbm.Dataset(table.astype(np.float32), target, init_score=outputs[name])
                outputs[name] = outputs[name] + lightgbm.train(PLAIN, data, 2).predict(table.astype(np.float32))
        slow = sum(outputs.values()) * y.std() + y.mean()
        ours = run.predict({party.name: party.columns for party in federation.parties})
        assert np.corrcoef(ours, y)[0, 1] > 0.8
        np.testing.assert_allclose(ours, slow, rtol=0, atol=1e-4)

    def test_contributions_are_lightgbms_shap_values(self) -> None:
        x, target = bent_rows()
        trees = opened()
        assert isinstance(trees, Explains) and isinstance(trees, Regressor)
        before, nothing = trees.contributions(x, x[0])
        assert not before.any() and not nothing.any()
        trees.approach(x, target, 1.0, 10)
        values, base = trees.contributions(x, x[0])
        assert values.shape == (200, 4, 2) and base.shape == (2,)
        for output in range(2):
            told = lightgbm.Booster(model_str=trees.texts[output][0]).predict(x.numpy(), pred_contrib=True)
            np.testing.assert_array_equal(values[:, :, output].numpy(), told[:, :-1])
            np.testing.assert_array_equal(base[output].expand(200).numpy(), told[:, -1])
        torch.testing.assert_close(values.sum(dim=1) + base, trees.output(x), rtol=0, atol=1e-9)


class TestGrowing:
    def test_seeds_are_of_the_party_and_the_round(self) -> None:
        x, target = bent_rows()
        few = TreeSettings(columns=0.5, smallest_leaf=5)
        grown = [opened(few, seed=seed) for seed in (1, 1, 2)]
        for trees in grown:
            for _ in range(6):
                trees.approach(x, target, 1.0, 1)
        assert grown[0].texts == grown[1].texts != grown[2].texts
        used = [set(tree["split_feature"]) for tree in _splits("".join(grown[0].texts[0]))]
        assert len(set().union(*used)) == 4 and all(len(columns) <= 2 for columns in used)

    def test_sums_that_are_remembered_are_those_of_all_trees(self) -> None:
        x, target = bent_rows()
        trees, parts = opened(), [slice(first, first + 40) for first in range(0, 200, 40)]
        for number, part in enumerate([*parts, *parts[::-1], *parts[:2]]):
            trees.approach(x[part], target[part], 1.0, 2)
            again = opened()
            again.restore(trees.tensors())
            assert torch.equal(trees.output(x), again.output(x))
            assert torch.equal(trees.output(x[part]), again.output(x[part]))
            assert len(trees._sums) <= REMEMBERED <= number + 3

    def test_sums_that_lightgbm_kept_are_those_of_the_trees_read_again(self) -> None:
        x, generator = torch.randn(300, 4), torch.Generator().manual_seed(1)
        x[::7, 1], x[:, 2] = torch.nan, x[:, 2].round()
        target, weights = torch.randn(300, 2, generator=generator), torch.rand(300, 2, generator=generator)
        grown, read = opened(), opened()
        grown.fit_weighted(x, target, weights, 12)
        read.restore(grown.tensors())
        assert torch.equal(grown.output(x), read.output(x))  # to the bit: of one of them, nothing was predicted
        assert torch.equal(grown.output(x[50:]), read.output(x)[50:])

    def test_rows_that_are_changed_in_place_are_other_rows(self) -> None:
        trees, x = opened(), torch.randn(60, 4)
        trees.approach(x, x[:, :2], 1.0, 3)
        before = trees.output(x)
        x[:] = x.flip(0)
        assert torch.equal(trees.output(x), before.flip(0))

    def test_the_order_of_rows_does_not_matter(self) -> None:
        x, target = bent_rows()
        trees, mixed = opened(), opened()
        for number in range(4):
            order = torch.randperm(len(x), generator=torch.Generator().manual_seed(number))
            trees.approach(x, target, 1.0, 2)
            mixed.approach(x[order], target[order], 1.0, 2)
            assert torch.equal(trees.output(x)[order], mixed.output(x[order]))
        assert len(mixed._sums) == 1

    def test_a_sum_that_was_given_away_may_be_changed(self) -> None:
        x, target = bent_rows()
        trees = opened()
        trees.approach(x, target, 1.0, 2)
        before = trees.output(x).clone()
        trees.output(x).zero_()
        assert torch.equal(trees.output(x), before)

    def test_threads_change_no_tree(self) -> None:
        x, target = bent_rows()
        alone, together = (opened(TreeSettings(threads=threads)) for threads in (1, 2))
        for trees in (alone, together):
            trees.approach(x, target, 1.0, 3)
        assert torch.equal(alone.output(x), together.output(x))

    def test_steps_of_several_trees(self) -> None:
        x, target = bent_rows()
        one, several = opened(TreeSettings(columns=1.0)), opened(TreeSettings(columns=1.0, per_step=3))
        one.approach(x, target, 1.0, 6)
        several.approach(x, target, 1.0, 2)
        assert torch.equal(one.output(x), several.output(x))

    def test_few_rows_have_smaller_leaves(self) -> None:
        x, target = bent_rows(24)
        trees = opened(TreeSettings(columns=1.0))
        trees.approach(x, target, 1.0, 30)
        assert float((trees.output(x) - target).square().mean()) < 0.5 * float(target.square().mean())

    @pytest.mark.parametrize("count", [1, 2, 50])
    def test_rows_that_cannot_be_split(self, count: int) -> None:
        trees = opened()
        for _ in range(2):
            trees.approach(torch.zeros(count, 4), torch.ones(count, 2), 1.0, 2)
        assert not trees.output(torch.ones(3, 4)).any()  # no average, of which every party would add the whole
        assert not trees.contributions(torch.ones(3, 4), torch.zeros(4))[1].any()
        assert trees.output(torch.ones(0, 4)).shape == (0, 2)


def _splits(text: str) -> Sequence[dict[str, list[int]]]:
    found = [line.split("=")[1].split() for line in text.splitlines() if line.startswith("split_feature=")]
    return [{"split_feature": [int(number) for number in numbers]} for numbers in found]


class TestMixedParties:
    """One party has trees, one a network, one ridge."""

    @pytest.mark.parametrize("name", ["vimadmm_j", "vimadmm"])
    def test_the_engines_agree_to_the_last_bit(self, name: str) -> None:
        federation = small(**DATA)
        runs = [
            open_trainer(
                federation, make(name, local_steps=2), model=build(ModelSettings, MIXED, "model"), engine=engine,
                **TRAINING, dtype="float64",
            ).train()
            for engine in ENGINES
        ]  # fmt: skip
        texts = tensor_text(runs[0].model.part("party_0").tensors["local.trees.0"]).split(BETWEEN)
        assert sum(lightgbm.Booster(model_str=text).num_trees() for text in texts) > 2
        new = columns_of_tests(federation)
        torch.testing.assert_close(runs[0].logits(new), runs[1].logits(new), rtol=0, atol=1e-9)

    @pytest.mark.parametrize("engine", ENGINES)
    def test_a_resumed_run_is_the_uninterrupted_one(self, engine: str, tmp_path: Path) -> None:
        federation = small(**DATA)
        schedule = {"batch": 60, "participation": 0.7}
        options: dict[str, Any] = {**TRAINING, "model": MIXED, "engine": engine, "schedule": schedule}
        wanted = fit(federation, VIMADMMJ(local_steps=2), **options)

        def interrupt(now: Any) -> None:
            if now.round in (3, 5):
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            fit(federation, VIMADMMJ(local_steps=2), out=tmp_path / "run", watch=interrupt, **options)
        with pytest.raises(KeyboardInterrupt):
            resume(tmp_path / "run", federation, watch=interrupt)
        run = resume(tmp_path / "run", federation)
        assert run.fingerprint() == wanted.fingerprint()
        assert untimed(run.history) == untimed(wanted.history)
        assert run.about["machine"]["libraries"] == {"lightgbm": lightgbm.__version__}

    def test_another_version_of_the_library_is_told(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        federation = small(**DATA)

        def interrupt(now: Any) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            fit(federation, VIMADMMJ(local_steps=1), out=tmp_path / "run", watch=interrupt, model=MIXED, **TRAINING)
        monkeypatch.setattr("colonnade.checkpoint._version", lambda library: "0.0.1")
        with pytest.warns(UserWarning, match=rf"lightgbm {lightgbm.__version__} there, 0\.0\.1 here"):
            resume(tmp_path / "run", federation)

    def test_saved_loaded_and_taken_apart(self, tmp_path: Path) -> None:
        federation = small(**DATA)
        run = fit(federation, VIMADMMJ(local_steps=2), model=MIXED, **TRAINING)
        new, logits = columns_of_tests(federation), run.logits(columns_of_tests(federation))
        run.save(tmp_path / "run")
        assert torch.equal(Run.load(tmp_path / "run").logits(new), logits)
        run.model.save(tmp_path / "model")
        assert torch.equal(Model.load(tmp_path / "model").logits(new), logits)
        part = run.model.part("party_0")
        part.save(tmp_path / "part")
        assert torch.equal(Part.load(tmp_path / "part").predict(new["party_0"])["o"], part.predict(new["party_0"])["o"])


def test_organisations_train_the_same_trees_although_one_is_started_again(tmp_path: Path) -> None:
    """A party ends in the middle of a round and begins again; in the end everybody has what one process has."""
    moment = threading.Event()

    def carry(way: Way) -> Sequence[float]:
        if way.sender == "party_0" and way.number == 3:
            moment.set()
        return (0.0,)

    model, training = build(ModelSettings, MIXED, "model"), {**TRAINING, "dtype": "float64"}
    method = {"name": "vimadmm_j", "local_steps": 2}
    with Room.of(
        tmp_path, PARTIES, carry=carry, data=DATA, method=method, model=model.model_dump(), training=training,
        absence={"patience": 2},
    ) as scene:  # fmt: skip

        def start_again() -> None:
            assert moment.wait(60)
            scene.leave("party_0")
            scene.arrive("party_0")

        thread = threading.Thread(target=start_again)
        thread.start()
        run = scene.train()
        thread.join()
        found = scene.predict(Wish(small(**DATA).split.test))
    loop = open_trainer(small(**DATA), make("vimadmm_j", local_steps=2), model=model, engine="loop", **training).train()
    assert untimed(run.history) == untimed(loop.history)
    assert torch.equal(found.logits, loop.logits(columns_of_tests(small(**DATA))))
    for party in PARTIES:
        assert_kept(scene.trial.place(party), loop.models[party])


class TestColumnsOfATable:
    def test_contributions_and_importance(self) -> None:
        federation = Federation.from_tables(shoppers(), labels="churn", id="customer")
        run = fit(
            federation, VIMADMMJ(local_steps=5), model={"encoder": "trees"}, rounds=6, schedule={"batch": 200},
        )  # fmt: skip
        table = shoppers(rows=30, seed=5)["telco"]
        part = run.model.part("telco")
        found = part.contributions(table)
        assert found.way == "as the local model says itself, counted from the mean of the rows that grew the trees"
        assert found.names == ("minutes", "city")
        rounds = tensor_text(part.tensors["local.trees.0"]).split(BETWEEN)
        boosters = [lightgbm.Booster(model_str=text) for text in rounds]
        told = sum(booster.predict(part.read(table).numpy(), pred_contrib=True) for booster in boosters)
        np.testing.assert_allclose(found.values[:, 0, 0], told[:, 0], rtol=0, atol=1e-12)
        np.testing.assert_allclose(found.values[:, 1, 0], told[:, 1:-1].sum(axis=1), rtol=0, atol=1e-12)
        assert found.gap < 1e-9
        assert part.importance(table).columns == ("minutes", "city")
        with pytest.raises(ConfigError, match=r"party 'telco' counts from the mean of the rows.*leave background out"):
            part.contributions(table, background=table)


class TestRefusals:
    @pytest.mark.parametrize("name", [n for n in EVERY if getattr(METHODS[n], "needs_gradients", True)])
    def test_a_method_that_needs_gradients(self, name: str) -> None:
        with pytest.raises(ConfigError, match=f"{name!r} needs the gradients of every local model"):
            fit(fitting(name, small()), make(name), model={"encoder": "trees"}, rounds=1)

    def test_without_the_library(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "lightgbm", None)
        with pytest.raises(DataError, match=r"encoder = 'trees' needs lightgbm.*pip install colonnade\[trees\]"):
            fit(small(), VIMADMMJ(), model={"encoder": "trees"}, rounds=1)

    def test_what_another_local_model_learned(self) -> None:
        ridge = Ridge(RidgeSettings())
        ridge.open((4,), 2, seed=0)
        saved = Regressors(["bank"], [ridge], 2).tensors()
        with pytest.raises(ModelError, match=r"party 'bank': the saved local model has no 'trees\.0'.*settings of"):
            Regressors(["bank"], [opened()], 2).restore(saved)

    def test_settings_that_cannot_be(self) -> None:
        with pytest.raises(ConfigError, match=r"trees\.leafs.*leaves"):
            build(ModelSettings, {"trees": {"leafs": 7}}, "model")
        with pytest.raises(ConfigError, match=r"trees\.rate"):
            build(ModelSettings, {"telco": {"trees": {"rate": 0}}}, "model")
