"""Local models that grow by whole models: what is pending is no part of the model; weighted fits fit with weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LinearRegression
from sklearn.linear_model import Ridge as SklearnRidge
from sklearn.neighbors import KNeighborsRegressor
from torch import Tensor

from colonnade.methods import AssistedBoosting
from colonnade.models.encoders import ModelSettings
from colonnade.models.increments import Increments
from colonnade.models.local import FitsWeighted, StartsAgain, shortened
from colonnade.models.ridge import Ridge, RidgeSettings
from colonnade.models.stack import Mode
from colonnade.models.stagewise import Stagewise
from colonnade.models.trees import Trees, TreeSettings
from tests.federations import small
from tests.local_models import bent_rows
from tests.trainers import open_trainer, rounds_of


def weights_for(x: Tensor) -> Tensor:
    return torch.from_numpy(np.random.default_rng(3).uniform(0.05, 0.25, size=(len(x), 2)))


def opened(model: Any) -> Any:
    model.open((4,), 2, 7)
    return model


class TestWeightedFits:
    def test_ridge(self) -> None:
        x, target = bent_rows()
        weights = weights_for(x)
        model = opened(Ridge(RidgeSettings(beta=0.01)))
        model.fit_weighted(x, target, weights, None)
        design = np.concatenate([x.numpy(), np.ones((len(x), 1))], axis=1)
        for k in range(2):
            slow = SklearnRidge(alpha=2 * 0.01 * len(x), fit_intercept=False)
            slow.fit(design, target[:, k], sample_weight=weights[:, k])
            np.testing.assert_allclose(model.output(x)[:, k], slow.predict(design), atol=1e-9)

    def test_an_estimator(self) -> None:
        x, target = bent_rows()
        weights = weights_for(x)
        model = opened(Stagewise(LinearRegression()))
        model.fit_weighted(x, target, weights, None)
        for k in range(2):
            slow = LinearRegression().fit(x, target[:, k], sample_weight=weights[:, k])
            np.testing.assert_allclose(model.output(x)[:, k], slow.predict(x), atol=1e-9)

    def test_an_estimator_without_weights_gets_shorter_targets(self) -> None:
        x, target = bent_rows()
        weights = weights_for(x)
        model = opened(Stagewise(KNeighborsRegressor(3)))
        model.fit_weighted(x, target, weights, None)
        slow = KNeighborsRegressor(3).fit(x, shortened(target, weights))
        np.testing.assert_allclose(model.output(x), slow.predict(x), atol=1e-12)

    def test_rows_without_weight_grow_no_tree(self) -> None:
        x, target = bent_rows()
        weights = torch.ones_like(target)
        weights[100:] = 1e-12
        grown = [opened(Trees(TreeSettings(columns=1.0, smallest_leaf=3))) for _ in range(2)]
        other = target.clone()
        other[100:] = 5 - other[100:]
        for model, wanted in zip(grown, (target, other), strict=True):
            model.fit_weighted(x, wanted, weights, 1)  # further trees break ties by rows without weight
        torch.testing.assert_close(grown[0].output(x[:100]), grown[1].output(x[:100]), rtol=0, atol=1e-6)

    def test_weights_of_an_increment_are_forgotten_by_the_next_approach(self) -> None:
        """Both use the rows as LightGBM prepared them."""
        x, target = bent_rows()
        plain = opened(Trees(TreeSettings(columns=1.0)))
        plain.approach(x, target, 1.0, 3)
        first = opened(Trees(TreeSettings(columns=1.0)))
        first.fit_weighted(x, target, weights_for(x) ** 4, None)
        again = first.again(0)
        again.approach(x, target, 1.0, 3)
        assert torch.equal(again.output(x), plain.output(x))

    def test_shorter_targets_lower_the_weighted_squares(self) -> None:
        x, target = bent_rows()
        weights, short = weights_for(x), shortened(target, weights_for(x))
        assert float((weights * (short - target).square()).sum()) < float((weights * target.square()).sum())
        f = 0.7 * short + 0.1
        most = weights.amax(dim=0)
        above = (most * (f - short).square()).sum() - (most * short.square()).sum() + (weights * target.square()).sum()
        assert float((weights * (f - target).square()).sum()) <= float(above) + 1e-9

    @pytest.mark.parametrize("model", [Ridge(RidgeSettings()), Trees(TreeSettings()), Stagewise(LinearRegression())])
    def test_another_begins_from_nothing(self, model: Any) -> None:
        x, target = bent_rows()
        opened(model)
        assert all(isinstance(model, kind) for kind in (FitsWeighted, StartsAgain))
        model.fit_weighted(x, target, weights_for(x), None)
        told = model.output(x)
        other = model.again(2)
        assert not bool(other.output(x).any())
        other.fit_weighted(x, -target, weights_for(x), None)
        assert torch.equal(model.output(x), told)

    def test_trees_draw_other_columns_for_another_increment(self) -> None:
        x, target = bent_rows()
        first = opened(Trees(TreeSettings(columns=0.5)))
        texts = []
        for number in (1, 2, 1):
            one = first.again(number)
            one.fit_weighted(x, target, weights_for(x), None)
            texts.append(one.texts)
        assert texts[0] == texts[2]
        assert texts[0] != texts[1]


class TestPending:
    def trained(self, rounds: int = 3, **options: Any) -> Any:
        trainer = open_trainer(
            small(),
            AssistedBoosting(local_steps=2),
            model=ModelSettings(hidden=4, embedding=3),
            rounds=rounds,
            **options,
        )
        for _ in rounds_of(trainer):
            pass
        return trainer.engine.parties()[0]

    def test_it_survives_a_restart_and_is_no_part_of_the_model(self) -> None:
        side = self.trained()
        grown = Increments.within(side.cohort)
        x = side.cohort.whole
        newest, total = grown.newest(x), grown.output(x, Mode.PREDICT)
        assert newest is not None and bool(newest.any())
        other = Increments.of(self.trained(1).cohort.pick(range(4)))
        for own, first in zip(other.parties, grown.parties, strict=True):
            own.first = first.first
        other.restore(grown.tensors())
        assert torch.equal(other.newest(x), newest)  # type: ignore[arg-type]
        assert torch.equal(other.output(x, Mode.PREDICT), total)
        other.restore({name: value for name, value in side.cohort.model().items() if name.startswith("local.")})
        assert other.newest(x) is None
        assert torch.equal(other.output(x, Mode.PREDICT), total)

    def test_parties_of_a_cohort_may_have_more_than_others(self) -> None:
        side = self.trained(7, schedule={"participation": 0.5, "silent_learn": False})
        counts = [len(own.models) for own in Increments.within(side.cohort).parties]
        assert len(set(counts)) > 1
        x, models = side.cohort.whole, side.models()
        assert [int(models[name]["local.count"]) for name in side.cohort.names] == counts
        told = side.cohort.encode(x, Mode.PREDICT)
        side.cohort.encoder = Increments([type(own)(own.first) for own in Increments.within(side.cohort).parties])
        side.load_models(models)
        assert torch.equal(side.cohort.encode(x, Mode.PREDICT), told)
