"""What every registered method promises: its names, its settings, its pages, and that it can learn at all."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import pytest

from colonnade.errors import ConfigError
from colonnade.methods import METHODS, make_method
from colonnade.testing.methods import DescribedContract, LearningContract, SettingsContract
from tests.contracts.registry import EVERY, ONLY_TWO, Walking, covering, make
from tests.federations import small
from tests.trainers import ENGINES, open_trainer

DOCS = Path(__file__).parents[2] / "docs" / "methods"


@pytest.mark.parametrize("name", EVERY)
class TestWhatItSaysOfItself(Walking, DescribedContract):
    def test_its_name_is_its_file_name(self, name: str) -> None:
        kind = METHODS[name]
        assert kind.name == name == Path(inspect.getfile(kind)).stem

    def test_it_has_a_page(self, name: str) -> None:
        assert (DOCS / f"{name}.md").is_file(), f"docs/methods/{name}.md is missing"

    def test_it_does_not_inherit_from_another_method(self, name: str) -> None:
        others = [other for other in METHODS.values() if other is not METHODS[name]]
        assert not any(issubclass(METHODS[name], other) for other in others)


@pytest.mark.parametrize("name", EVERY)
class TestSettings(Walking, SettingsContract):
    @pytest.fixture(autouse=True)
    def quickly(self, walked: None, name: str) -> None:
        """Settings that refuse each other are tried in many combinations; a guest means something with lifts only."""
        beside = {
            "one_message": {"folds": 4, "local_steps": 8},
            "vimadmm_j": {"lifts": 1, "guest": "party_1", "local_steps": 2},
        }
        self.settings = {**self.settings, **beside.get(name, {})}

    def test_published_settings_survive_json(self, name: str) -> None:
        if not hasattr(METHODS[name], "paper"):
            with pytest.raises(ConfigError, match="no published settings"):
                make_method(name, preset="paper")
            return
        for preset in ("paper", "paper:mnist", "paper:cifar10"):
            method = make_method(name, preset=preset)
            assert make_method(name, json.loads(json.dumps(method.model_dump()))) == method


@pytest.mark.parametrize("parties", [1, 3, 4])
@pytest.mark.parametrize("name", sorted(ONLY_TWO))
def test_a_method_for_two_parties_refuses_other_numbers(name: str, parties: int) -> None:
    with pytest.raises(ConfigError, match=f"exactly two parties; this federation has {parties}"):
        open_trainer(small(widths=(3,) * parties), make(name), rounds=1)


@pytest.mark.parametrize(("name", "engine"), covering(ENGINES))
class TestLearning(Walking, LearningContract):
    @pytest.fixture(autouse=True)
    def in_one_engine(self, engine: str) -> None:
        self.engines = (engine,)
