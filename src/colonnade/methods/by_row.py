"""Unit ROW: which trainings can promise it, and how many local steps a promise is counted for."""

from __future__ import annotations

from colonnade.errors import ConfigError
from colonnade.methods.base import Method
from colonnade.models.computing import Computing
from colonnade.privacy.by_row import LocalSteps
from colonnade.privacy.settings import PrivacySettings
from colonnade.schedule import Schedule
from colonnade.tasks import Task

CLASSES = ("multinomial", "bernoulli")  # families of labels that are not put on a scale of the training rows


def local_steps_of(method: Method, schedule: Schedule, rounds: int) -> LocalSteps:
    """What a run of so many rounds asks of every party; a method says `by_row: ClassVar[bool] = True`."""
    steps = rounds * int(getattr(method, "local_steps", 1))
    return LocalSteps(len(schedule.train), schedule.batch, steps, len(schedule.parties))


def check_by_row(
    method: Method, privacy: PrivacySettings, task: Task, schedule: Schedule, computing: Computing, weighted: bool
) -> None:
    """Refuse a run that asks for unit ROW and cannot promise it.

    Raises:
        ConfigError: with what was asked for and what to change.
    """
    if not privacy.by_row:
        return
    if not getattr(method, "by_row", False):
        raise ConfigError(
            f"privacy.unit = 'row' needs parties that train at home and upload nothing about training rows; "
            f"{method.name} uploads: use local_only, or unit = 'party'"
        )
    if task.family not in CLASSES:
        raise ConfigError(
            f"privacy.unit = 'row': labels of a {task.words} task are put on a scale by the mean and deviation of the "
            "training labels, which no noise covers; it is for classes and yes/no labels"
        )
    if weighted:
        raise ConfigError(
            "privacy.unit = 'row': weights of rows or classes (weights, training.class_weights) are not covered: they "
            "are sent without noise, and 'balanced' counts the labels; leave them out"
        )
    if schedule.settings.steps:
        raise ConfigError(
            "privacy.unit = 'row' counts the same local steps at every party; leave training.schedule.steps out"
        )
    if computing.compile or computing.precision != "float32":
        raise ConfigError(
            "privacy.unit = 'row' clips the gradient of each row in full numbers; leave training.compile and "
            "training.precision out"
        )


def check_columns(privacy: PrivacySettings, from_training: bool) -> None:
    """Refuse unit ROW where means, deviations and categories of training rows say how columns become numbers.

    Raises:
        ConfigError: with what to change.
    """
    if privacy.by_row and from_training:
        raise ConfigError(
            "privacy.unit = 'row': these tables were encoded by means and categories of the training rows, which no "
            "noise covers; needed columns_from = 'others' (Federation.from_tables), so that other rows say it"
        )
