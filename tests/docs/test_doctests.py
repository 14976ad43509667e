"""The examples in the docstrings of the front door, and of what it gives, say what happens."""

from __future__ import annotations

import doctest
from importlib import import_module
from types import ModuleType

import pytest

MODULES = (
    "fit", "federation", "run", "outward", "compare", "tune", "callbacks", "report",
    "estimators.classifier", "estimators.regressors",
)  # fmt: skip
SHOWN = {  # whoever takes an example away must say so here
    "fit.fit", "federation.Federation.from_arrays", "federation.Federation.from_tables", "run.Run.predict",
    "outward.Outward.epsilon", "compare.compare", "tune.tune", "callbacks", "report.report",
    "estimators.classifier.VerticalClassifier", "estimators.regressors.VerticalRegressor",
    "estimators.regressors.VerticalCountRegressor",
}  # fmt: skip


def examples(module: ModuleType) -> list[doctest.DocTest]:
    return [test for test in doctest.DocTestFinder().find(module) if test.examples]


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.filterwarnings("ignore")
def test_examples_in_docstrings_run(name: str) -> None:
    for test in examples(import_module(f"colonnade.{name}")):
        said: list[str] = []
        doctest.DocTestRunner().run(test, out=said.append)
        assert not said, "".join(said)


def test_the_names_that_people_call_have_examples() -> None:
    found = {
        test.name.removeprefix("colonnade.")
        for name in MODULES
        for test in examples(import_module(f"colonnade.{name}"))
    }
    assert found >= SHOWN
