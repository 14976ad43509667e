"""What every registered method promises: its names, its settings, its pages, and that it can learn at all."""

from __future__ import annotations

import ast
import inspect
import json
from itertools import product
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from colonnade.errors import ConfigError
from colonnade.fit import fit
from colonnade.methods import METHODS, make_method
from colonnade.methods.base import Method
from colonnade.models.optimise import SGD, AdamW
from colonnade.privacy.events import LabelExposure
from tests.contracts.registry import EVERY, LONGER, ONLY_TWO, TRIED_WITH, fitting, make
from tests.exchanges import ENGINES, open_trainer, untimed
from tests.federations import small, trivial

DOCS = Path(__file__).parents[2] / "docs" / "methods"


@pytest.mark.parametrize("name", EVERY)
class TestWhatItSaysOfItself:
    def test_it_is_a_method(self, name: str) -> None:
        assert isinstance(make(name), Method)
        assert make(name).hears in ("each", "total", "nothing")
        assert isinstance(make(name).exposes, LabelExposure)
        assert isinstance(make(name).pools, bool)

    def test_its_name_is_its_file_name(self, name: str) -> None:
        kind = METHODS[name]
        assert kind.name == name == Path(inspect.getfile(kind)).stem

    def test_it_is_described(self, name: str) -> None:
        kind = METHODS[name]
        assert kind.__doc__
        assert kind.__doc__ != kind.__mro__[1].__doc__
        assert inspect.getmodule(kind).__doc__
        assert all(field.description for field in kind.model_fields.values())

    def test_it_has_a_page(self, name: str) -> None:
        assert (DOCS / f"{name}.md").is_file(), f"docs/methods/{name}.md is missing"

    def test_it_does_not_inherit_from_another_method(self, name: str) -> None:
        others = [other for other in METHODS.values() if other is not METHODS[name]]
        assert not any(issubclass(METHODS[name], other) for other in others)


@pytest.mark.parametrize("name", EVERY)
class TestSettings:
    def test_they_survive_json(self, name: str) -> None:
        for method in [
            make(name),
            *(variant for field in METHODS[name].model_fields for variant in changed(name, field)),
        ]:
            plain = json.loads(json.dumps(method.model_dump()))
            assert make_method(name, plain) == method

    def test_published_settings_survive_json(self, name: str) -> None:
        if not hasattr(METHODS[name], "paper"):
            with pytest.raises(ConfigError, match="no published settings"):
                make_method(name, preset="paper")
            return
        for preset in ("paper", "paper:mnist", "paper:cifar10"):
            method = make_method(name, preset=preset)
            assert make_method(name, json.loads(json.dumps(method.model_dump()))) == method

    def test_they_are_frozen(self, name: str) -> None:
        method = make(name)
        field = next(iter(METHODS[name].model_fields))
        with pytest.raises(ValueError, match="frozen"):
            setattr(method, field, getattr(method, field))

    def test_an_unknown_one_is_refused_with_the_nearest(self, name: str) -> None:
        field = next(iter(METHODS[name].model_fields))
        with pytest.raises(ConfigError, match=f"did you mean '{field}'"):
            make_method(name, {f"{field}x": 1})

    def test_every_one_is_read(self, name: str) -> None:
        tree = ast.parse(inspect.getsource(METHODS[name]))
        read = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and is_self(node.value)}
        assert set(METHODS[name].model_fields) <= read

    def test_every_one_changes_the_training(self, name: str) -> None:
        """Perhaps only beside other choices: a step size of the heads means nothing to a joint solve."""
        fields = METHODS[name].model_fields
        choices = {f: [make(name), *changed(name, f)] for f in fields if is_choice(fields[f], getattr(make(name), f))}
        bases = [
            make(name, **{f: getattr(m, f) for f, m in zip(choices, combination, strict=True)})
            for combination in product(*choices.values())
        ]
        for field in fields:
            matters = any(
                weights(base) != weights(base.model_copy(update={field: getattr(variant, field)}))
                for base in bases
                for variant in changed(name, field)
            )
            assert matters, f"{name}.{field} changes nothing"


def is_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def is_choice(field: FieldInfo, value: Any) -> bool:
    """Whether a field selects what others mean: a switch, one of some words, an optimiser."""
    return isinstance(value, (bool, BaseModel)) or (
        bool(words := get_args(field.annotation)) and isinstance(words[0], str)
    )


def changed(name: str, field: str) -> list[Any]:
    """Copies of the default method with another value of `field`."""
    method, info = make(name), METHODS[name].model_fields[field]
    value = getattr(method, field)
    others: list[Any]
    if isinstance(value, bool):
        others = [not value]
    elif isinstance(value, int):
        others = [value + 1, max(1, value // 2)]  # a cache of 5 cannot be full after three rounds
    elif isinstance(value, float) or float in get_args(info.annotation):
        others = [value * 0.75 if value else 0.6]
    elif isinstance(value, BaseModel):
        others = [AdamW(lr=0.02), SGD(lr=0.02)]
    else:
        others = [choice for choice in get_args(info.annotation) if choice != value]
    assert others, f"the contract does not know how to change {name}.{field}; teach it"
    return [METHODS[name](**{**TRIED_WITH.get(name, {}), field: other}) for other in others]


def weights(method: Any) -> str:
    """What a few short rounds made of the networks."""
    trainer = open_trainer(small(widths=(3, 3)), method, rounds=LONGER.get(method.name, 3), evaluate_every=0)
    return trainer.train().fingerprint()


@pytest.mark.parametrize("parties", [1, 3, 4])
@pytest.mark.parametrize("name", sorted(ONLY_TWO))
def test_a_method_for_two_parties_refuses_other_numbers(name: str, parties: int) -> None:
    with pytest.raises(ConfigError, match=f"exactly two parties; this federation has {parties}"):
        open_trainer(small(widths=(3,) * parties), make(name), rounds=1)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", EVERY)
class TestLearning:
    def test_the_trivial_federation_is_solved(self, name: str, engine: str) -> None:
        """With default settings, in seconds: what each party knows is half of the label."""
        run = fit(trivial(), make(name), engine=engine, rounds=20)
        assert run.accuracy == 1.0
        assert run.result["validation_score"] == 1.0

    def test_same_seed_same_numbers(self, name: str, engine: str) -> None:
        options = {"rounds": 4, "engine": engine, "schedule": {"batch": 16, "participation": 0.5}}
        first, again, other = (
            open_trainer(fitting(name, small()), make(name, local_steps=2), seed=seed, **options).train()
            for seed in (1, 1, 2)
        )
        assert first.fingerprint() == again.fingerprint()
        assert untimed(first.history) == untimed(again.history)
        assert [r.digest for r in first.ledger] == [r.digest for r in again.ledger]
        assert first.fingerprint() != other.fingerprint()

    def test_the_global_generator_is_left_alone(self, name: str, engine: str) -> None:
        torch.manual_seed(0)
        before = torch.random.get_rng_state()
        open_trainer(fitting(name, small()), make(name), rounds=2, engine=engine).train()
        assert torch.equal(before, torch.random.get_rng_state())
