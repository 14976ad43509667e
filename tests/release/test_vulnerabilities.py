"""No version that is tested has a vulnerability that is known, as far as the database can be asked from here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.source import ROOT


def audited(requirements: Path) -> list[dict[str, object]]:
    """What pip-audit says of each package; a skip where it cannot ask."""
    command = [sys.executable, "-m", "pip_audit", "-r", str(requirements), "--no-deps", "--disable-pip", "-f", "json"]
    try:
        done = subprocess.run(
            [*command, "--timeout", "10"],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            cwd=requirements.parent,
        )
        told: list[dict[str, object]] = json.loads(done.stdout)["dependencies"]
    except (subprocess.TimeoutExpired, ValueError, KeyError):
        pytest.skip("the database of vulnerabilities cannot be reached from here")
    known = [one for one in told if "vulns" in one]
    if not known:
        pytest.skip("the database of vulnerabilities knows none of these packages from here")
    return known


def test_no_tested_version_is_known_to_be_vulnerable(tmp_path: Path) -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if "==" in line and not line.startswith("#") and '< "3.11"' not in line]
    requirements = tmp_path / "pins.txt"
    requirements.write_text("\n".join(pin.partition(";")[0].strip() for pin in pins), encoding="utf-8")
    assert [(one["name"], one["vulns"]) for one in audited(requirements) if one["vulns"]] == []
