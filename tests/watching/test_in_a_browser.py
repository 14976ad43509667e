"""The live page in a real Chromium: a training from its first round to its last, and a person who decides."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from colonnade.deploy.decision import decided
from colonnade.errors import ConfigError
from colonnade.fit import fit
from colonnade.progress import Progress
from colonnade.service.versions import change_models
from colonnade.watching.overview import Overview
from colonnade.watching.serving import page_of, page_of_training
from colonnade.watching.source import Organisation
from colonnade.web.background import Address, HttpServer
from colonnade.web.callers import add_caller
from colonnade.web.settings import HttpSection
from colonnade.withdrawn import mark
from tests.cli.conftest import SMALL
from tests.driven import Browser, browsing
from tests.federations import small
from tests.processes import LONG, start
from tests.report.browser import axe_core, needs_chromium
from tests.service.test_approval import ASKED, Story, party_file, story, until

__all__ = ["story"]  # the fixture
pytestmark = [needs_chromium, pytest.mark.xdist_group("axe")]


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    return axe_core(tmp_path_factory.mktemp("axe"))


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    with browsing(tmp_path / "browser") as found:
        yield found
        assert found.console == []
        assert all(url.startswith(("http://127.0.0.1:", "about:")) for url in found.asked), found.asked


def cannot_say(run: str) -> dict[str, object]:
    raise ConfigError("for a moment")


def kept_picture(browser: Browser, name: str) -> None:
    """For the documentation: COLONNADE_PICTURES=docs/images pytest tests/watching/test_in_a_browser.py."""
    if folder := os.environ.get("COLONNADE_PICTURES"):
        browser.js("document.documentElement.style.scrollbarWidth = 'none'")
        browser.picture(Path(folder) / f"{name}.png")


def test_a_training_is_followed_to_its_end(browser: Browser, axe: str, tmp_path: Path) -> None:
    """It is long enough to be ended by hand, so nothing depends on how fast it or the browser is."""
    config = tmp_path / "small.toml"
    rounds = 2_000 if os.environ.get("COLONNADE_PICTURES") else 100_000  # fewer, and the bar of a picture shows some
    config.write_text(
        SMALL.replace("rounds = 6", f"rounds = {rounds}").replace("evaluate_every = 2", "evaluate_every = 5")
    )
    command = [sys.executable, "-m", "colonnade", "train", str(config), "--out", str(tmp_path / "run"), "--live"]
    process = start([*command, "--no-compare"], stderr=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stderr is not None
    told = ""
    while not (found := re.search(r"live page, until the training ends: (http://127\.0\.0\.1:\d+/\?key=\S+)", told)):
        line = process.stderr.readline()
        assert line, told
        told += line
    browser.open(found[1])
    browser.until("document.querySelector('#score svg') && document.querySelector('progress').value >= 5")
    assert browser.js("location.search") == ""  # the key is not in the address any more
    assert re.search(rf"training, round [\d,]+ of {rounds:,}", browser.text("#state"))
    assert browser.text("#connection") == "live"
    assert "party_1" in browser.text("#parties") and "in this process" in browser.text("#parties")
    assert browser.text("#ledger-title").startswith("Ledger: ") and "TRAIN" in browser.text("#ledger")
    assert "validation accuracy" in browser.text("#facts") and "no figure" in browser.text("#facts")
    assert browser.axe(axe) == []
    kept_picture(browser, "live-training")
    browser("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    assert browser.js("getComputedStyle(document.body).backgroundColor") == "rgb(20, 25, 31)"
    assert browser.axe(axe) == []
    browser.size(360, 800)
    assert browser.js("document.documentElement.scrollWidth") <= 360
    before = browser.js("document.querySelector('progress').value")
    browser.until(f"document.querySelector('progress').value > {before}")
    process.terminate()  # the training ends, and says so on the page
    browser.until("document.querySelector('#connection').textContent.startsWith('The process has ended')")
    out, err = process.communicate()
    assert process.returncode == 143 and "Traceback" not in err and "and its live page with it" not in out


def test_from_the_first_round_to_the_last(browser: Browser, tmp_path: Path) -> None:
    """The training waits in the middle until the page has shown it."""
    opened, seen = threading.Event(), threading.Event()

    def wait(now: Progress) -> None:
        assert now.round < 3 or seen.wait(LONG)

    def train() -> None:
        assert opened.wait(LONG)
        noise = {"mechanism": "gaussian", "clip": 1.0, "sigma": 5.0, "evaluation": "simulated"}
        fit(small(), "vimadmm", rounds=6, checkpoint_every=1, privacy=noise, out=tmp_path / "run", watch=wait)

    training = threading.Thread(target=train)
    training.start()
    with page_of_training(tmp_path / "run", "Training", "127.0.0.1:0") as url:
        browser.open(url)
        browser.until("document.querySelector('#state').textContent.includes('beginning')")
        opened.set()
        browser.until("document.querySelector('#state').textContent.includes('training, round ')")
        assert "exact accountant, unit PARTY" in browser.text("#facts")
        seen.set()
        training.join(LONG)
        browser.until("document.querySelector('#state').textContent.includes('finished, round 6 of 6')")
        assert "exact accountant, unit PARTY" in browser.text("#facts")
        assert "test accuracy" in browser.text("#facts") and "took part" in browser.text("#parties")
    browser.until("document.querySelector('#connection').textContent.startsWith('The process has ended')")


def test_a_person_decides_on_the_page(story: Story, browser: Browser, axe: str, tmp_path: Path) -> None:
    training, config = story.begin(), party_file(story)
    key = add_caller(tmp_path / "callers.json", "desk", ["decide"])
    told: list[dict[str, object]] = []
    source = Organisation(
        ASKED, Overview([config]), story.place, story.me, lambda event, **facts: told.append({"event": event, **facts})
    )
    page = page_of(HttpSection(callers=tmp_path / "callers.json"), source)
    until(source.proposals)
    digest = str(source.proposals()[0]["digest"])
    with HttpServer(page.app(), HttpSection(listen="127.0.0.1:0").address) as server, closing(page):
        browser.open(server.url)
        browser.until("document.querySelector('#key')")
        assert browser.axe(axe) == []
        browser.js(f"document.querySelector('#key').value = '{key}'; document.querySelector('form').submit()")
        browser.until("document.querySelector('.proposal')")
        shown = browser.text(".proposal")
        assert "training: numbers computed from the columns" in shown and "6 rounds" in shown
        assert "waits for approval" in browser.text("#runs") and browser.axe(axe) == []
        kept_picture(browser, "live-approval")
        with pytest.MonkeyPatch.context() as patch:  # the stream ends, and the browser connects again by itself
            patch.setattr(source, "state", cannot_say)
            browser.until("document.querySelector('#connection').textContent === 'not connected; trying again'")
        browser.until("document.querySelector('#connection').textContent === 'live'")
        browser.js("document.querySelector('.proposal button.other').click()")  # without a reason
        browser.until("document.querySelector('.proposal .told').textContent.includes('needs a reason')")
        (refused,) = [text for text in browser.console if "400" in text]  # the browser tells of every such answer
        browser.console.remove(refused)
        browser.js("document.querySelector('.proposal button').click()")
        browser.until("document.querySelector('#proposals').hidden")
        training.join(60)
        browser.until("document.querySelector('#state').textContent.includes('finished, round 6 of 6')")
        page.close()
        browser.until("document.querySelector('#connection').textContent.startsWith('The process has ended')")
    assert story.run is not None
    kept = decided(story.place, digest, story.me)
    assert kept is not None and kept.approved
    assert [(one["event"], one["decision"], one["by"]) for one in told] == [("decided", "approved", "desk")]


def test_a_version_says_whose_rows_trained_it_and_texts_of_others_stay_texts(browser: Browser, tmp_path: Path) -> None:
    told = "failed: party 'telco' refuses: <img src=x onerror=alert(1)><script>alert(2)</script>"
    (tmp_path / "run").mkdir()
    for number in (1, 2):
        fit(small(), "vimadmm", rounds=1, checkpoint_every=1, out=tmp_path / f"run/v{number}", progress=False)
    (tmp_path / "run/v1/run.json").unlink()
    change_models(tmp_path / "run", lambda models: replace(models.noted(1, "failed", told), failed=(1,)))
    mark(tmp_path / "run/v2", [3, 4])
    http = HttpSection(page=True, page_without_key=True, callers=tmp_path / "callers.json")
    source = Organisation("churn", Overview([tmp_path / "run"]), tmp_path / "run")
    page = page_of(http, source)
    with HttpServer(page.app(), Address()) as server, closing(page):
        browser.open(server.url)
        browser.until("document.querySelector('#models table')")
        assert told in browser.text("#models")
        assert browser.js("document.querySelectorAll('#models img, #models script').length") == 0
        assert "trained with 2 rows of people who withdrew since" in browser.text("#models")
        assert "failed" in browser.text("#runs")
