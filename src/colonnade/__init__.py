"""Colonnade trains one model over columns that never leave their owners."""

from colonnade import methods
from colonnade.data import sets
from colonnade.errors import ColonnadeError
from colonnade.federation import Federation, RowSplit, Task
from colonnade.fit import fit, resume
from colonnade.models.encoders import ModelSettings
from colonnade.run import Run, Training

__version__ = "0.1.0"
__all__ = [
    "ColonnadeError",
    "Federation",
    "ModelSettings",
    "RowSplit",
    "Run",
    "Task",
    "Training",
    "__version__",
    "fit",
    "methods",
    "resume",
    "sets",
]
