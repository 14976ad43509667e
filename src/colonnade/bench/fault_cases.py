"""Faults that are more than a kill, each against a run that was left in peace: the same commands, the same end.

coordinator_float32   the label holder's process is killed at random moments of a training in float32
predictions           another run of the same processes is asked for predictions all the time
full_disk             the label holder's disk is full in the middle, and has room again
clock                 a party's clock is wrong by ten days
flood                 garbage arrives at a party and at the label holder; how large logs become

There is no noise, because hashes of fresh noise could not be compared. Where a machine lacks the means for a case it is
named as not tried, has no result, and so fails its target.
"""

from __future__ import annotations

import logging
import resource
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from colonnade.bench.disturb import Ending
from colonnade.bench.garbage import send_garbage
from colonnade.bench.nats_server import NatsServer
from colonnade.bench.settings import Notify
from colonnade.bench.site import Plan, Site
from colonnade.deploy.predict import Wish, predict_rows
from colonnade.deploy.start import linked
from colonnade.errors import ColonnadeError, LinkError
from colonnade.folder import claimed
from colonnade.randomness import stream
from colonnade.record import STORE
from colonnade.wire.messages import COORDINATOR

WRONG = 10 * 86400  # seconds that the clock of a party is ahead
DISK = "16m"
FAKETIME = "/usr/lib/*/faketime/libfaketimeMT.so.1"


class NotTried(Exception):
    """This machine lacks the means for a case; which, and how to get them."""


@dataclass(frozen=True)
class Sizes:
    """How much is done in each case."""

    parties: tuple[str, ...]
    rounds: int
    kills: int
    messages: int
    local_steps: int = 20

    def plan(self, dtype: str = "float64") -> Plan:
        """The run that all cases train."""
        return Plan(self.parties, self.rounds, self.local_steps, dtype)


Found = dict[str, float | None]
Case = Callable[[Sizes, Ending, Notify], Found]


@contextmanager
def opened(plan: Plan) -> Iterator[Site]:
    """Organisations with a server of their own."""
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as text,
        NatsServer(Path(text) / "nats", plan.parties) as server,
        Site(Path(text) / "site", server, plan) as site,
    ):
        yield site


def in_peace(plan: Plan) -> Ending:
    """The run that nobody disturbs."""
    with opened(plan) as site:
        site.serve()
        site.train()
        site.ended_well()
        return site.ending()


def coordinator_float32(sizes: Sizes, peaceful: Ending, notify: Notify) -> Found:
    """Kill the label holder's process at random moments."""
    random = stream(0, "kills of the coordinator")
    with opened(sizes.plan("float32")) as site:
        site.serve()
        site.train()
        killed = 0
        for moment in np.sort(random.integers(1, sizes.rounds, sizes.kills)).tolist():
            if not site.wait_for_round(moment):
                break
            time.sleep(float(random.uniform(0, 0.05)))
            site.kill(COORDINATOR)
            killed += 1
            site.train()
        site.ended_well()
        notify(f"coordinator_float32: {killed} kills")
        return {"identical.coordinator_float32": float(site.ending() == peaceful), "coordinator_kills": float(killed)}


def predictions(sizes: Sizes, peaceful: Ending, notify: Notify) -> Found:
    """Ask a finished run about rows, again and again, while another one trains."""
    with opened(sizes.plan()) as site:
        site.serve()
        site.train("before")
        site.ended_well()
        asked, over, failed = [0], threading.Event(), list[str]()
        credentials, folder = site.server.credentials(COORDINATOR), site.run_folder("before")
        draw = stream(0, "predicted rows")

        def ask() -> None:
            while not over.is_set():
                rows = torch.from_numpy(draw.integers(0, 1797, 20))
                try:
                    with claimed(folder), linked(credentials, "before", _silent) as link:
                        predict_rows(folder, link, Wish(rows.unique(), patience=120.0), _silent)
                except ColonnadeError as error:
                    failed.append(str(error))
                    return
                asked[0] += 1

        site.train()
        asker = threading.Thread(target=ask, daemon=True)
        site.wait_for_round(1)
        asker.start()
        try:
            site.ended_well()
        finally:
            over.set()
            asker.join(130)
        if failed or not asked[0]:
            raise LinkError(f"predictions: {asked[0]} were answered; {failed[:1]}")
        notify(f"predictions: {asked[0]} questions of 20 rows beside the training")
        return {"identical.predictions": float(site.ending() == peaceful), "predictions": float(asked[0])}


def full_disk(sizes: Sizes, peaceful: Ending, notify: Notify) -> Found:
    """Fill the label holder's disk in the middle; when its command has ended with a reason, make room and go on."""
    with opened(sizes.plan()) as site, _small_disk(site.run_folder("faults")) as disk:
        site.serve()
        site.train()
        if not site.wait_for_round(sizes.rounds // 3):
            raise LinkError(f"full_disk: the run was over too early; {site.last_words()}")
        disk.fill(site.pid(COORDINATOR))
        status = site.wait_for_end()
        said = site.text(COORDINATOR)
        if status != 2 or "cannot be written" not in said:
            raise LinkError(f"full_disk: status {status} without a reason; {site.last_words()}")
        notify(f"full_disk ({disk.means}): it ended with a reason; there is room again")
        disk.make_room()
        site.train()
        site.ended_well()
        return {"identical.full_disk": float(site.ending() == peaceful)}


@dataclass
class _Disk:
    """A disk that can be full: a small one of its own, or a limit on the size of a process's files."""

    place: Path
    means: str

    def fill(self, pid: int) -> None:
        """From now on nothing more can be written."""
        if self.means == "tmpfs":
            with suppress(OSError), (self.place / "ballast").open("wb", buffering=0) as file:
                while True:
                    file.write(b"\0" * 4096)
        else:
            most = (self.place / STORE).stat().st_size
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (most, most))

    def make_room(self) -> None:
        """As somebody does who sees to the disk."""
        (self.place / "ballast").unlink(missing_ok=True)


@contextmanager
def _small_disk(place: Path) -> Iterator[_Disk]:
    place.mkdir(parents=True, mode=0o700)
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK},mode=700", "tmpfs", str(place)]
    try:
        mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        mounted = False
    if not mounted and not hasattr(resource, "prlimit"):
        raise NotTried("full_disk needs the right to mount a tmpfs, or Linux's prlimit")
    try:
        yield _Disk(place, "tmpfs" if mounted else "file size limit")
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(place)], capture_output=True, check=False)


def clock(sizes: Sizes, peaceful: Ending, notify: Notify) -> Found:
    """The first party's clock is ten days ahead, before, during and after the run."""
    libraries = sorted(Path("/").glob(FAKETIME.lstrip("/")))
    if not libraries:
        raise NotTried("clock needs libfaketime: apt-get install faketime")
    wrong = {"LD_PRELOAD": str(libraries[0]), "FAKETIME": f"+{WRONG}", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    with opened(sizes.plan()) as site:
        first, *others = sizes.parties
        site.serve(first, environment=wrong)
        site.serve(*others)
        ahead = time.strftime("%Y-%m-%d", time.gmtime(time.time() + WRONG))
        if f'"time": "{ahead}' not in site.text(first):
            raise NotTried(f"clock: {libraries[0].name} does not change the clock of a Python process here")
        site.train()
        site.ended_well()
        notify(f"clock: {first} wrote {ahead} into its log")
        return {"identical.clock": float(site.ending() == peaceful)}


def flood(sizes: Sizes, peaceful: Ending, notify: Notify) -> Found:
    """Garbage at a party, in the label holder's name, and at the label holder, in a party's: each so many messages."""
    with opened(sizes.plan()) as site:
        site.serve()
        site.train()
        if not site.wait_for_round(2):
            raise LinkError(f"flood: the run was over too early; {site.last_words()}")
        first = sizes.parties[0]
        started = time.monotonic()
        senders = [
            threading.Thread(target=send_garbage, args=(site.server.credentials(who), subject, sizes.messages))
            for who, subject in ((COORDINATOR, f"run.faults.down.{first}"), (first, f"run.faults.up.{first}"))
        ]
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join()
        sent = time.monotonic() - started
        site.ended_well()
        site.stop(first)
        refused = {"party": site.counted(first, "refused"), "coordinator": site.counted(COORDINATOR, "refused")}
        sizes_of_logs = {name: site.log(name).stat().st_size / 2**20 for name in (COORDINATOR, *sizes.parties)}
        told = ", ".join(f"{name} {size:.3f} MB" for name, size in sizes_of_logs.items())
        counts = " and ".join(f"{number:,} at the {who}" for who, number in refused.items())
        notify(f"flood: 2 x {sizes.messages:,} messages in {sent:.0f} s; refused: {counts}; logs: {told}")
        if not all(refused.values()):
            raise LinkError(f"flood: not refused everywhere: {refused}")
        same = float(site.ending() == peaceful)
        figures: Found = {f"refused.{who}": float(number) for who, number in refused.items()}
        return {"identical.flood": same, "log_mb": max(sizes_of_logs.values()), **figures}


CASES: dict[str, Case] = {
    "coordinator_float32": coordinator_float32,
    "predictions": predictions,
    "full_disk": full_disk,
    "clock": clock,
    "flood": flood,
}


def run_cases(names: tuple[str, ...], sizes: Sizes, notify: Notify) -> Found:
    """What came of each case; one that failed or was not tried has no result, and the reason is told."""
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # it warns of every TLS connection that is closed
    results: Found = {}
    peaceful: dict[str, Ending] = {}
    for name in names:
        dtype = "float32" if name == "coordinator_float32" else "float64"
        try:
            if dtype not in peaceful:
                notify(f"a run in {dtype} that is left in peace")
                peaceful[dtype] = in_peace(sizes.plan(dtype))
            found = CASES[name](sizes, peaceful[dtype], notify)
        except NotTried as error:
            notify(f"NOT TRIED: {error}")
            continue
        except LinkError as error:
            notify(f"{name}: {error}")
            found = {f"identical.{name}": 0.0}
        results |= found
        notify(f"{name}: {'identical' if found[f'identical.{name}'] else 'NOT identical'}")
    return results


def _silent(event: str, **facts: object) -> None:
    """Nobody listens."""
