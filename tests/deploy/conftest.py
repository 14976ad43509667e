"""The undisturbed run that all disturbed ones are held against."""

from __future__ import annotations

import pytest

from tests.deploy.trials import Ending, Stage


@pytest.fixture(scope="session")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Ending:
    with Stage(tmp_path_factory.mktemp("calm")) as stage:
        ending = stage.play()
    assert stage.kills == 0
    return ending
