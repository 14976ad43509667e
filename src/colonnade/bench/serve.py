"""Predictions over HTTP: how long a call takes, and whether any gets lost. Three organisations, real processes, TLS.

steady     calls of one row at a steady rate
rows       1,000 rows in one call
restart    the same rate, while each party and the server are ended and started again, one after the other
training   the same rate, while a new version of the model is trained beside
"""

from __future__ import annotations

import json
import ssl
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from pydantic import Field

from colonnade.bench.catalogue import Bench
from colonnade.bench.open_loop import Answered, Target, body_of, run_calls
from colonnade.bench.serving_site import PARTIES, Site
from colonnade.bench.settings import Notify, Options
from colonnade.config import Settings, build
from colonnade.errors import RunError
from colonnade.service.versions import ask_for_training
from colonnade.web.callers import add_caller
from colonnade.wire.messages import COORDINATOR

PATIENCE = 60.0  # seconds until the model can be asked
WARM = 3.0  # seconds of calls that are not counted


class ServeSettings(Settings):
    """Sizes of the benchmark of predictions over HTTP."""

    seconds: float = Field(60.0, gt=0, description="of the steady phase")
    rate: float = Field(50.0, gt=0, description="calls per second")
    repeats: int = Field(20, ge=1, description="calls of 1,000 rows; the slowest but one in twenty counts")
    between: float = Field(8.0, gt=0, description="restart phase: seconds from one restart to the next")
    training: float = Field(30.0, gt=0, description="seconds of the phase with a training beside it")
    rounds: int = Field(5000, ge=2, description="rounds of that training, more than it has time for")


def run_serve(bench: Bench, options: Options, notify: Notify) -> dict[str, float | None]:
    """Times in milliseconds, and the number of calls of all phases that got no right answer."""
    s = build(ServeSettings, bench.tables.get("serve", {}), "serve")
    with tempfile.TemporaryDirectory(prefix="serve-") as text, Site(Path(text) / "site") as site:
        key = add_caller(site.place(COORDINATOR) / "callers.json", "bench", ["predict"])
        notify("three organisations train a first version")
        site.begin()
        tls = ssl.create_default_context(cafile=str(site.server.certificates / "ca.crt"))
        load = Load(site, Target(site.wait_for(COORDINATOR, "answering")["url"], key, tls), s.rate)
        load.wait_until_ready()
        load(WARM)
        notify(f"{s.rate:g} calls a second for {s.seconds:g} s")
        steady = load(s.seconds)
        notify(f"1,000 rows in one call, {s.repeats} times")
        many = load.rows(1000, s.repeats)
        notify("each party and the server end and start again, one after the other")
        restarted = load(s.between * (len(PARTIES) + 2), lambda: _restart(site, s.between))
        load(WARM)
        notify(f"a training beside {s.training:g} s of calls")
        trained = load(s.training, lambda: _train(site, s.rounds))
        _check_training(site)
        lost = [one for phase in (steady, many, restarted, trained) for one in phase.lost]
        for told in lost[:10]:
            notify(f"lost: {told}")
    return {
        "p50_ms": steady.percentile(0.5),
        "p99_ms": steady.percentile(0.99),
        "rows1000_ms": many.percentile(0.95),
        "lost": float(len(lost)),
        "p99_training_ms": trained.percentile(0.99),
        "p50_training_ms": trained.percentile(0.5),
        "restart_max_ms": max(restarted.milliseconds, default=None),
        "calls": float(sum(len(phase.milliseconds) for phase in (steady, many, restarted, trained)) + len(lost)),
    }


class Load:
    """Calls to a site, each held against the answer that its row had before."""

    def __init__(self, site: Site, target: Target, rate: float) -> None:
        self.site, self.target, self.rate = site, target, rate
        self._next = 0

    def wait_until_ready(self) -> None:
        """Come back when a call is answered."""
        deadline = time.monotonic() + PATIENCE
        while (found := run_calls(self.target, [self._body()], 1.0, self._wrong)).lost:
            if time.monotonic() > deadline:
                raise RunError(f"no call was answered within {PATIENCE:.0f} s: {found.lost[0]}")
            time.sleep(0.2)

    def __call__(self, seconds: float, meanwhile: Callable[[], None] | None = None) -> Answered:
        """Calls of one row for so many seconds, while something happens in another thread."""
        failed: list[BaseException] = []

        def work() -> None:
            try:
                if meanwhile is not None:
                    meanwhile()
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        found = run_calls(self.target, [self._body() for _ in range(int(seconds * self.rate))], self.rate, self._wrong)
        thread.join()
        if failed:
            raise failed[0]
        return found

    def rows(self, count: int, repeats: int) -> Answered:
        """Calls of many rows, one after the other."""
        found = Answered()
        for _ in range(repeats):
            one = run_calls(self.target, [body_of(self.site.ids[:count])], 1.0, lambda told: _lacks(told, count))
            found.milliseconds += one.milliseconds
            found.lost += one.lost
        return found

    def _body(self) -> bytes:
        self._next += 1
        return body_of([self.site.ids[self._next % len(self.site.ids)]])

    def _wrong(self, told: bytes) -> str:
        return _lacks(told, 1)


def _lacks(told: bytes, rows: int) -> str:
    """What is wrong with an answer: each row needs probabilities, of all parties."""
    try:
        answer = json.loads(told)
        sums = [sum(row["probabilities"]) for row in answer["predictions"]]
    except (ValueError, KeyError, TypeError):
        return f"no answer: {told[:200].decode(errors='replace')}"
    if len(sums) != rows or answer["left_out"] or answer["answered"] != list(PARTIES):
        return f"{len(sums)} rows, answered by {answer['answered']}"
    return "" if statistics.fmean(sums) > 0.999 else "probabilities that do not add up"


def _restart(site: Site, between: float) -> None:
    """Each party once, then the server; every one is up again before the next ends."""
    for name in PARTIES:
        began = time.monotonic()
        site.end(name)
        site.start(name)
        site.wait_for(name, "reopened")
        time.sleep(max(0.0, began + between - time.monotonic()))
    site.server.restart()
    time.sleep(between)


def _train(site: Site, rounds: int) -> None:
    """Ask for a version with so many rounds, and wait until it trains."""
    config = site.place(COORDINATOR) / "coordinator.toml"
    text = config.read_text(encoding="utf-8")
    config.write_text(text.replace(f"rounds = {site.rounds}\n", f"rounds = {rounds}\n"), encoding="utf-8")
    ask_for_training(site.place(COORDINATOR) / "run")
    site.wait_for(COORDINATOR, "training", version=2)


def _check_training(site: Site) -> None:
    """Refuse a phase in which the training ended, or never got to a round."""
    said = [event for event in site.events(COORDINATOR) if event.get("run") == "site-v2"]
    if any(event["event"] in ("promoted", "not promoted", "failed") for event in said):
        raise RunError("the training beside the calls ended before them; give it more [serve] rounds")
    if not any(event["event"] == "round" for event in said):
        raise RunError("the training beside the calls did not begin; give the phase more seconds ([serve] training)")
