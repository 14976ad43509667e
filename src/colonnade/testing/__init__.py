"""Contract tests for methods, tasks and metrics of other packages: the code that walks the built-in ones.

class TestMyMethod(colonnade.testing.MethodContract):
    method = MyMethod
"""

from colonnade.testing.federations import small, trivial
from colonnade.testing.methods import MethodContract
from colonnade.testing.others import MetricContract, TaskContract

__all__ = ["MethodContract", "MetricContract", "TaskContract", "small", "trivial"]
