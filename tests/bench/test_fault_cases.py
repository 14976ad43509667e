"""The cases of `bench faults` beyond kills: one small real one, and what is said of those that cannot be tried."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from colonnade.bench import fault_cases
from colonnade.bench.catalogue import find
from colonnade.bench.disturb import Ending
from colonnade.bench.fault_cases import CASES, NotTried, Sizes, run_cases
from colonnade.bench.faults import run_faults
from colonnade.bench.outcome import tidy
from colonnade.bench.settings import Options
from colonnade.errors import ConfigError, LinkError
from tests.nats_server import needs_nats

SIZES = Sizes(("party_1",), rounds=8, kills=1, messages=400, local_steps=2)
PEACEFUL = Ending(0.5, {"coordinator": "f"}, {})


@needs_nats
@pytest.mark.slow
def test_a_flooded_run_ends_like_one_left_in_peace() -> None:
    told: list[str] = []
    found = run_cases(("flood",), SIZES, told.append)
    assert found["identical.flood"] == 1, told
    assert found["refused.party"] == 400 and (found["refused.coordinator"] or 0) > 0
    assert 0 < (found["log_mb"] or 0) <= 1


def test_what_is_not_tried_has_no_figure_and_fails_its_target(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fault_cases, "in_peace", lambda plan: PEACEFUL)
    monkeypatch.setattr(fault_cases, "FAKETIME", "/nowhere/libfaketime*.so")
    told: list[str] = []
    found = run_cases(("clock",), SIZES, told.append)
    assert found == {} and "NOT TRIED: clock needs libfaketime: apt-get install faketime" in told
    limit = find("faults").targets["cpu"]["identical.clock"]
    assert not limit.holds(tidy(found).get("identical.clock"))


def test_a_case_that_fails_is_not_identical_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(sizes: Sizes, peaceful: Ending, notify: object) -> dict[str, float | None]:
        raise LinkError("it never ended")

    def lacks(sizes: Sizes, peaceful: Ending, notify: object) -> dict[str, float | None]:
        raise NotTried("no disk")

    monkeypatch.setattr(fault_cases, "in_peace", lambda plan: PEACEFUL)
    monkeypatch.setitem(CASES, "flood", breaks)
    monkeypatch.setitem(CASES, "full_disk", lacks)
    monkeypatch.setitem(CASES, "clock", lambda sizes, peaceful, notify: {"identical.clock": 1.0})
    assert run_cases(("flood", "full_disk", "clock"), SIZES, lambda text: None) == {
        "identical.flood": 0.0, "identical.clock": 1.0,
    }  # fmt: skip


def test_every_case_has_a_target_and_strange_ones_are_refused() -> None:
    bench = find("faults")
    assert {f"identical.{name}" for name in CASES} <= set(bench.targets["cpu"])
    with pytest.raises(ConfigError, match="cases names 'earthquake'"):
        run_faults(replace(bench, tables={"faults": {"cases": ["earthquake"]}}), Options(), lambda text: None)


def test_a_disk_without_a_mount_is_a_limit_on_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # there is no mount
    with fault_cases._small_disk(tmp_path / "disk") as disk:
        assert disk.means == "file size limit"
    monkeypatch.delattr(fault_cases.resource, "prlimit")
    with pytest.raises(NotTried, match="mount a tmpfs"), fault_cases._small_disk(tmp_path / "other"):
        pass
