"""What every test stands on: one thread per process, the same examples everywhere, and no process left behind."""

import os
from collections.abc import Iterator

import pytest
import torch
from hypothesis import settings

from tests.processes import all_ended, as_in_a_terminal

os.environ.setdefault("COLONNADE_DEBUG", "1")  # layouts are checked; before anything imports colonnade
torch.set_num_threads(1)  # xdist runs one process per core already
as_in_a_terminal()
os.environ.setdefault("COLONNADE_PROGRESS", "0")  # what a test sees on stderr does not depend on the time it takes

settings.register_profile("ci", deadline=None, derandomize=True, database=None)
settings.load_profile("ci")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="no CUDA device on this machine"))


@pytest.fixture(autouse=True)
def no_process_is_left() -> Iterator[None]:
    """End what a test started, also where it failed; what a fixture of a module started is its own to end."""
    with all_ended():
        yield
