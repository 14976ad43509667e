"""`colonnade estimate`: what a run would send, before it is trained."""

from __future__ import annotations

from typing import TYPE_CHECKING

from colonnade.cli.options import AsJson, Config, DataDir, Overrides, read_config
from colonnade.cli.screen import Screen

if TYPE_CHECKING:
    from colonnade.estimate import Estimate

MOST_PARTIES = 30  # rows of the table; --json has all


def estimate(config: Config, overrides: Overrides = None, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Count the bytes of a run per round, party and direction without training it.

    Messages are encoded as in the run, with made-up numbers. A run that stops early sends less.

    Example: colonnade estimate examples/digits.toml --set training.schedule.batch=256
    """
    from colonnade.estimate import estimate as rehearse
    from colonnade.job import read_job

    job = read_job(read_config(config, overrides, data_dir))
    screen = Screen(as_json)
    found = rehearse(job, job.federation())
    screen.emit(found.to_json())
    if screen.talks:
        _show(screen, found)


def _show(screen: Screen, found: Estimate) -> None:
    from colonnade.report.tables import Table
    from colonnade.report.words import count, size

    facts = found.to_json()
    parties = list(facts["per_party"].items())
    screen.notify(f"{found.method} on {found.federation}: {count(found.rounds, 'round')} of {found.batch:,} rows")
    if found.colluders is not None:
        screen.notify(f"Only sums open.{found.colluders.used_up()} {found.colluders.tolerates()}")
    rows = tuple(
        (name, *(size(both[key]) for key in ("up_per_round", "down_per_round", "up", "down")))
        for name, both in parties[:MOST_PARTIES]
    )
    columns = ("party", "up per round", "down per round", "up in total", "down in total")
    screen.table(Table("Training bytes of each party", columns, rows))
    if len(parties) > MOST_PARTIES:
        screen.notify(f"... and {len(parties) - MOST_PARTIES} more parties; --json lists all")
    names = {"up": "up", "down": "down", "both": "both", "multicast": "both, common messages sent once (multicast)"}
    sums = [(text, size(facts["per_round"][key]), size(facts["total"][key])) for key, text in names.items()]
    looks = facts["total"]["evaluation"]
    sums.append(("evaluation on validation and test rows, not in the above", size(looks / found.rounds), size(looks)))
    screen.table(Table("All parties", ("bytes", "mean per round", "total"), tuple(sums)))
