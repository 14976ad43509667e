"""The restart benchmark, small: it counts what is identical, and sees what is not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from colonnade.bench import restart
from colonnade.bench.catalogue import find
from colonnade.bench.restart import run_restart
from colonnade.bench.settings import Options
from colonnade.errors import ConfigError
from tests.nats_server import needs_nats

SMALL = {"methods": ["vimadmm_j"], "rounds": 4, "kills": 1, "pause": 0.02, "batch": 128}


def results(**settings: object) -> dict[str, float | None]:
    bench = replace(find("restart"), tables={"restart": {**SMALL, **settings}})
    return run_restart(bench, Options(), lambda text: None)


def test_one_process_killed_and_resumed() -> None:
    found = results(places=["stacked"])
    assert (found["tried"], found["identical"], found["different"], found["kills"]) == (2, 2, 0, 2)


@needs_nats
def test_organisations_killed_and_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restart, "DTYPES", ("float32",))
    found = results(places=["organisations"])
    assert (found["tried"], found["identical"]) == (1, 1)


def test_a_run_that_ends_otherwise_counts_as_different(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restart, "DTYPES", ("float32",))
    monkeypatch.setattr(restart, "_facts", lambda folder: {"folder": folder.name})  # never alike
    found = results(places=["stacked"])
    assert (found["tried"], found["identical"], found["different"]) == (1, 0, 1)


def test_a_place_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigError, match="'cloud'; choose from loop, stacked, organisations"):
        results(places=["cloud"])
