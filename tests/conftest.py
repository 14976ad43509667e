"""What every test stands on: one thread per process, and examples that are the same on every machine."""

import os

import pytest
import torch
from hypothesis import settings

os.environ.setdefault("COLONNADE_DEBUG", "1")  # layouts are checked; before anything imports colonnade
torch.set_num_threads(1)  # xdist runs one process per core already

settings.register_profile("ci", deadline=None, derandomize=True, database=None)
settings.load_profile("ci")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="no CUDA device on this machine"))
