"""Headless Chromium and axe-core for the tests of a page; both are looked for, neither is required."""

from __future__ import annotations

import html
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
NPM = shutil.which("npm")
AXE = "axe-core@4"  # fetched into a temporary folder, never kept
OFFLINE = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')

# Continuous integration leaves nothing out: there a missing Chromium fails where it is first needed.
IN_CI = os.environ.get("CI", "").lower() in {"true", "1"}
needs_chromium = pytest.mark.skipif(
    CHROMIUM is None and not IN_CI, reason="Chromium is not installed; `make browser` installs it"
)


def axe_core(folder: Path) -> str:
    """The text of axe-core, or the reason why the test is skipped."""
    if NPM is None:
        pytest.skip("axe-core is fetched with npm, which is not installed")
    quickly = ("--fetch-retries=0", "--fetch-timeout=20000", "--no-audit", "--no-fund", "--ignore-scripts")
    command = [NPM, "install", *quickly, "--prefix", str(folder), AXE]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip("axe-core could not be fetched with npm within two minutes")
    script = folder / "node_modules" / "axe-core" / "axe.min.js"
    if not script.is_file():
        pytest.skip(f"axe-core could not be fetched with npm (status {done.returncode})")
    return script.read_text(encoding="utf-8")


def with_script(page: str, *scripts: str) -> str:
    """The page with scripts at its end, which its own policy would forbid."""
    tags = "".join("<script>" + text.replace("</script", r"<\/script") + "</script>" for text in scripts)
    return POLICY.sub("", page).replace("</body>", tags + "</body>")


def opened(page: str, folder: Path, *, dark: bool = False) -> str:
    """The document after Chromium has opened it without network and run its scripts."""
    assert CHROMIUM is not None
    file = folder / "opened.html"
    file.write_text(page, encoding="utf-8")
    command = [
        CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run",
        f"--user-data-dir={folder / 'profile'}", OFFLINE, f"--blink-settings=preferredColorScheme={0 if dark else 1}",
        "--virtual-time-budget=60000", "--dump-dom", file.as_uri(),
    ]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, timeout=180, check=True).stdout


def found(document: str) -> str:
    """What a script has written into `<pre id="found">`."""
    match = re.search(r'<pre id="found">(.*?)</pre>', document, re.DOTALL)
    assert match, "the script did not end"
    return html.unescape(match[1])
