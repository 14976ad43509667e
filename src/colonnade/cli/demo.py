"""`colonnade demo`: real data, four methods, who contributed what, a table and a report; in seconds, offline."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from colonnade.cli.compare import Entry, plan, show, train_all
from colonnade.cli.options import AsJson
from colonnade.cli.screen import Screen
from colonnade.errors import RunError

if TYPE_CHECKING:
    from colonnade.federation import Federation

MARKER = ".colonnade-demo"
METHODS = ("vimadmm", "vimadmm_j", "local_only", "centralized")
ROUNDS = 40
EXPLAINED = ("vimadmm", "vimadmm_j")  # the references have no federation to explain, or no common model
LOCAL_STEPS = {"local_steps": 20}  # as many as VIMADMM takes in a round, so that the rounds compare


def demo(
    out: Annotated[Path, typer.Option(help="Folder; an older demo in it is replaced.")] = Path("demo-run"),
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of each method.")] = ROUNDS,
    as_json: AsJson = False,
) -> None:
    """Handwritten digits over 8 parties: VIMADMM, VIMADMM-J and two references side by side.

    Needs no files and no network. Says which party contributed what, as `colonnade explain` does. Writes a run
    folder per method and report.html, with report.md, report.json and pictures/ beside it.

    Example: colonnade demo --out demo-run
    """
    from colonnade.report.html import require_extra

    require_extra()
    screen = Screen(as_json)
    entries = [Entry(entry.job.method.name, entry.job) for entry in plan(_tables(rounds))]
    _clear(out, [entry.folder for entry in entries])
    federation = entries[0].job.federation()
    screen.say(f"{federation.name}: {federation.rows:,} handwritten digits, one strip of pixels per party")
    out.mkdir(parents=True, exist_ok=True)
    (out / MARKER).write_text("Written by `colonnade demo`, which may replace this folder.\n", encoding="utf-8")
    with _one_thread():
        records = train_all(screen, entries, federation, out)
        screen.aside("asking the parties what each of them contributed")
        told = [_explain(out / name, federation) for name in EXPLAINED]
    for line in told:
        screen.say(line)
    screen.aside("writing the report")
    show(screen, records, [out / entry.folder for entry in entries], out)


def _explain(folder: Path, federation: Federation) -> str:
    """Ask the parties of a run what the report shows of them; the most important ones in a sentence."""
    from colonnade.run import Run

    found = Run.load(folder).explain(federation, rank_by="shapley")  # norms need more rounds than a demo has
    found.save(folder)
    first, *_, last = found.ranked()
    return f"{found.method}: {first} contributed most to the score and {last} least (Shapley values)"


@contextmanager
def _one_thread() -> Iterator[None]:
    """Sum in the same order on every machine; and on a busy one, threads that wait for each other take minutes."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _tables(rounds: int) -> dict[str, Any]:
    return {
        "data": {"set": "digits", "parties": 8},
        "training": {"rounds": rounds, "seed": 0},
        "compare": {"methods": list(METHODS), "local_only": LOCAL_STEPS, "centralized": LOCAL_STEPS},
    }


def _clear(out: Path, folders: list[str]) -> None:
    """Remove an older demo, and only what a demo writes; anything else in the way is refused."""
    from colonnade.report.html import clear_report

    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    if not (out / MARKER).is_file():
        raise RunError(f"{out} already exists and is not a demo folder; choose another place with --out, or remove it")
    for folder in folders:
        if (out / folder).is_dir():
            shutil.rmtree(out / folder)
    clear_report(out)
