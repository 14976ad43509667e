"""What is kept in mind of work that is recorded on a GPU; `tests/engines/test_gpu.py` tests what is recorded."""

from __future__ import annotations

import gc
from types import SimpleNamespace
from typing import cast

import pytest
import torch
from torch import Tensor

from colonnade import gpu
from colonnade.gpu import KEPT, Recordings


def test_work_that_came_once_is_not_kept_in_mind_for_ever() -> None:
    """Parties that are drawn anew in every round have their noise in another place each time."""
    recordings, far = Recordings(), cast(Tensor, SimpleNamespace(is_cuda=True))
    for key in range(1000):
        assert recordings(key, lambda _: torch.ones(()), far) == 1
    assert len(recordings._known) == KEPT


def test_on_a_processor_work_is_done_and_nothing_is_kept_in_mind() -> None:
    recordings = Recordings()
    assert [float(recordings("key", lambda x: 2 * x, torch.tensor(float(k)))) for k in range(5)] == [0, 2, 4, 6, 8]
    assert not recordings._known


@pytest.mark.parametrize("collecting", [True, False])
def test_while_a_graph_is_recorded_none_is_collected_and_workspaces_are_its_own(
    collecting: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    cleared: list[bool] = []  # by whether cycles were collected at that time
    monkeypatch.setattr(torch._C, "_cuda_clearCublasWorkspaces", lambda: cleared.append(gc.isenabled()), raising=False)
    before = gc.isenabled()
    try:
        (gc.enable if collecting else gc.disable)()
        with pytest.raises(RuntimeError, match="cannot be recorded"), gpu._by_itself():
            assert cleared == [False] and not gc.isenabled()
            raise RuntimeError("cannot be recorded")
        assert cleared == [False, False] and gc.isenabled() is collecting
    finally:
        (gc.enable if before else gc.disable)()
