"""Colonnade trains one model over columns that never leave their owners."""

import sys as _sys
from importlib import import_module as _import_module
from types import ModuleType as _ModuleType
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

if _TYPE_CHECKING:
    from colonnade import methods
    from colonnade.check import check
    from colonnade.compare import compare
    from colonnade.cross_validate import cross_validate
    from colonnade.data import sets
    from colonnade.errors import ColonnadeError
    from colonnade.estimators import VerticalClassifier, VerticalCountRegressor, VerticalRegressor
    from colonnade.federation import Federation, RowSplit, Task
    from colonnade.fit import fit, resume
    from colonnade.model import Model
    from colonnade.models.encoders import ModelSettings
    from colonnade.part import Part
    from colonnade.report import report
    from colonnade.run import Run, Training
    from colonnade.scorecards.make import scorecard
    from colonnade.tune import tune
    from colonnade.worth import worth

__version__ = "0.1.0"
__all__ = [
    "ColonnadeError",
    "Federation",
    "Model",
    "ModelSettings",
    "Part",
    "RowSplit",
    "Run",
    "Task",
    "Training",
    "VerticalClassifier",
    "VerticalCountRegressor",
    "VerticalRegressor",
    "__version__",
    "check",
    "compare",
    "cross_validate",
    "fit",
    "methods",
    "report",
    "resume",
    "scorecard",
    "sets",
    "tune",
    "worth",
]
# Where each name lives. They are loaded when they are asked for, because torch takes seconds that `--help` has not.
_HOMES = {
    "ColonnadeError": "colonnade.errors",
    "Federation": "colonnade.federation",
    "Model": "colonnade.model",
    "ModelSettings": "colonnade.models.encoders",
    "Part": "colonnade.part",
    "RowSplit": "colonnade.federation",
    "Run": "colonnade.run",
    "Task": "colonnade.federation",
    "Training": "colonnade.run",
    "VerticalClassifier": "colonnade.estimators",
    "VerticalCountRegressor": "colonnade.estimators",
    "VerticalRegressor": "colonnade.estimators",
    "check": "colonnade.check",
    "compare": "colonnade.compare",
    "cross_validate": "colonnade.cross_validate",
    "fit": "colonnade.fit",
    "methods": "colonnade.methods",
    "report": "colonnade.report",
    "resume": "colonnade.fit",
    "scorecard": "colonnade.scorecards.make",
    "sets": "colonnade.data.sets",
    "tune": "colonnade.tune",
    "worth": "colonnade.worth",
}
_FUNCTIONS = (
    "check",
    "compare",
    "cross_validate",
    "fit",
    "report",
    "tune",
    "worth",
)  # the module that a function is in has its name, too


class _FrontDoor(_ModuleType):
    """This module, with names that are loaded on first use."""

    def __getattr__(self, name: str) -> _Any:
        if name not in _HOMES:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        home = _import_module(_HOMES[name])
        value = getattr(home, name, home)  # `methods` and `sets` are modules themselves
        setattr(self, name, value)
        return value

    def __setattr__(self, name: str, value: _Any) -> None:
        # Whoever imports the module `colonnade.fit` makes Python bind it to the name that is the function's.
        if name in _FUNCTIONS and isinstance(value, _ModuleType):
            value = getattr(value, name)
        super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *__all__})


_sys.modules[__name__].__class__ = _FrontDoor
