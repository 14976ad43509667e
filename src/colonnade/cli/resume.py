"""`colonnade resume`: go on with a run that was interrupted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

from colonnade.cli.options import AsJson, DataDir, Quiet, RunFolder, Track, with_data_dir
from colonnade.cli.screen import Screen
from colonnade.cli.training import facts, finish, resumable, tell
from colonnade.cli.upload_gain import Compare, measure
from colonnade.errors import RunError

if TYPE_CHECKING:
    from colonnade.record import Described, Section, Sections


def resume(
    run: RunFolder,
    data_dir: DataDir = None,
    compare: Compare = True,
    track: Track = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Continue an interrupted run; the result is the same as if it had never stopped.

    Example: colonnade resume runs/first
    """
    from colonnade.fit import resume as go_on
    from colonnade.job import load_data
    from colonnade.run import RECORD
    from colonnade.trackers import tracker

    screen = Screen(as_json, quiet)
    if (run / RECORD).exists():
        _already_finished(screen, run)
        return
    about = read_about(run)
    federation = load_data(data_of(run, about["config"], data_dir), about["about"])
    trackers = [tracker(text) for text in track or ()]
    with screen.progress() as bars, resumable(run):
        watch = bars.watch(about["method"]["name"], about["training"]["rounds"])
        done = go_on(run, federation, watch=watch, callbacks=trackers)
    if compare:
        measure(screen, done, federation, run)
    finish(screen, done, run)


def read_about(run: Path) -> Described:
    """What the store of a run that nobody trains any more says it is."""
    from colonnade.folder import in_use
    from colonnade.run import STORE
    from colonnade.store import Store

    if not (run / STORE).is_file():
        raise RunError(f"{str(run)!r} has no {STORE}: it is not a run that can be resumed; colonnade train starts one")
    if busy := in_use(run):
        raise RunError(f"{busy}; wait until it is done")
    store = Store(run / STORE)
    try:
        return cast("Described", store.about())
    finally:
        store.close()


def data_of(run: Path, config: Sections | None, data_dir: Path | None) -> Section:
    """The [data] section a run was started with."""
    if config is None:
        raise RunError(
            f"{run} was started from Python, so its data are not known here; go on there: "
            f"colonnade.resume({str(run)!r}, federation), or Run.load({str(run)!r}).predict(rows)"
        )
    section: Section = with_data_dir(config.get("data", {"set": "digits"}), data_dir)
    return section


def _already_finished(screen: Screen, run: Path) -> None:
    from colonnade.report.record import check_record
    from colonnade.run import read_record

    record = check_record(read_record(run), str(run))
    screen.emit({**facts(record, run), "resumed": False})
    screen.notify(f"{run} is already finished ({record['result']['stop']}); there is nothing to resume")
    tell(screen, record, run)
