"""Chromium, driven over its own protocol (DevTools) through a pipe: for pages that change while they are looked at."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.processes import LONG
from tests.report.browser import CHROMIUM, OFFLINE

Message = dict[str, Any]
AXE = """axe.run().then(found => JSON.stringify({passed: found.passes.length, told: found.violations.map(
  v => ({id: v.id, impact: v.impact, at: v.nodes.map(n => n.html.slice(0, 200))}))}))"""


class Browser:
    """One page of a headless Chromium: what it said on its console, what it asked for, and what it shows."""

    def __init__(self, folder: Path, *, dark: bool = False, width: int = 1000, height: int = 900) -> None:
        assert CHROMIUM is not None
        told_read, self._write = os.pipe()
        self._read, told_write = os.pipe()
        command = [
            CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
            "--no-first-run", "--disable-dev-shm-usage", "--remote-debugging-pipe",
            f"--user-data-dir={folder / 'profile'}", OFFLINE,
            f"--blink-settings=preferredColorScheme={0 if dark else 1}", f"--window-size={width},{height}",
            "about:blank",
        ]  # fmt: skip
        # The protocol's pipes are file descriptors 3 and 4 of the process.
        shell = f'exec "$@" 3<&{told_read} 4>&{told_write}'
        self._process = subprocess.Popen(
            ["bash", "-c", shell, "bash", *command], pass_fds=(told_read, told_write), stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        os.close(told_read)
        os.close(told_write)
        self._number, self._session = 0, ""
        self._answers: dict[int, Message] = {}
        self._news = threading.Condition()
        self.console: list[str] = []  # errors and warnings
        self.asked: list[str] = []  # addresses
        self.failed: list[str] = []
        threading.Thread(target=self._listen, daemon=True).start()
        (target,) = [t for t in self("Target.getTargets")["targetInfos"] if t["type"] == "page"]
        self._session = self("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self(f"{domain}.enable")
        self.size(width, height)

    def size(self, width: int, height: int) -> None:
        self("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)

    def __call__(self, method: str, **parameters: object) -> Message:
        """One command of the protocol, and its answer."""
        self._number += 1
        number = self._number
        message = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        with self._news:
            assert self._news.wait_for(lambda: number in self._answers, LONG), f"no answer to {method}"
            answer = self._answers.pop(number)
        assert "error" not in answer, (method, answer)
        result: Message = answer["result"]
        return result

    def _listen(self) -> None:
        rest = b""
        while part := os.read(self._read, 2**16):
            *whole, rest = (rest + part).split(b"\0")
            for text in whole:
                message = json.loads(text)
                with self._news:
                    if "id" in message:
                        self._answers[message["id"]] = message
                    else:
                        self._take(message["method"], message.get("params", {}))
                    self._news.notify_all()

    def _take(self, event: str, facts: Message) -> None:
        if event == "Runtime.exceptionThrown":
            self.console.append(json.dumps(facts["exceptionDetails"])[:500])
        elif event == "Runtime.consoleAPICalled" and facts["type"] in ("error", "warning", "assert"):
            self.console.append(json.dumps(facts["args"])[:500])
        elif event == "Log.entryAdded" and facts["entry"]["level"] in ("error", "warning"):
            self.console.append(f"{facts['entry']['text']} {facts['entry'].get('url', '')}")
        elif event == "Network.requestWillBeSent":
            self.asked.append(facts["request"]["url"])

    def open(self, url: str) -> None:
        self("Page.navigate", url=url)

    def js(self, expression: str) -> Any:
        """What an expression is in the page; promises are waited for."""
        found = self("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def until(self, expression: str) -> None:
        """Wait until an expression is true; a page that is being replaced is asked again."""
        deadline = time.monotonic() + LONG
        while True:
            try:
                found = self.js(f"(() => {{ try {{ return Boolean({expression}) }} catch {{ return false }} }})()")
            except AssertionError:
                found = False
            if found:
                return
            assert time.monotonic() < deadline, (expression, self.js("document.body.innerText"), self.console)
            time.sleep(0.05)

    def text(self, selector: str) -> str:
        return str(self.js(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''"))

    def picture(self, path: Path, *, whole: bool = False) -> None:
        shot = self("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))

    def axe(self, script: str) -> list[Message]:
        """What axe-core finds that is more than minor."""
        self.js(f"{script};0")
        found = json.loads(self.js(AXE))
        assert found["passed"] > 10
        return [one for one in found["told"] if one["impact"] in ("moderate", "serious", "critical")]

    def close(self) -> None:
        """End the browser and whatever it started: it has a session of its own."""
        try:
            self("Browser.close")
            self._process.wait(LONG)
        finally:
            if self._process.poll() is None:
                os.killpg(self._process.pid, 9)
                self._process.wait()
            os.close(self._write)


@contextmanager
def browsing(folder: Path, **how: Any) -> Iterator[Browser]:
    browser = Browser(folder, **how)
    try:
        yield browser
    finally:
        browser.close()
