"""`colonnade audit`: try to contradict what a run's ledger says, and attack what it does not cover."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from colonnade.cli.options import AsJson, DataDir, RunFolder, with_data_dir
from colonnade.cli.screen import Bars, Screen
from colonnade.errors import ConfigError, RunError

if TYPE_CHECKING:
    from colonnade.audit.examine import Watching, Wishes
    from colonnade.audit.verdict import Examination
    from colonnade.federation import Federation
    from colonnade.progress import Watcher
    from colonnade.run import Run

COLUMNS = ("check", "found", "against", "who could", "what it means")
LABELS = "labels from the downlink"
Out = Annotated[Path | None, typer.Option(metavar="FILE.json", help="Also write the JSON object.", show_default=False)]


def audit(
    run: RunFolder,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds to train again, at most the run's own.")] = 20,
    game: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Games in each world; default: until 0.8 of the noise would show, for ten seconds at most.",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of games and attackers; the retraining keeps the run's.")] = 0,
    data_dir: DataDir = None,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Try to contradict what a run's ledger says, and attack what it does not cover. Exit status 1: it is contradicted.

    Messages are not stored, so the first rounds are trained again from the run's own configuration, with everybody
    listening; the run itself is not touched. Of a run between organisations give the folder of the label holder or of a
    party: what can be played there is played.

    Example: colonnade audit runs/first --out audit.json
    """
    from colonnade.audit.examine import Wishes

    if out is not None and (out.is_dir() or not out.resolve().parent.is_dir()):
        raise ConfigError(f"--out {str(out)!r}: needed a file in a folder that exists")
    screen = Screen(as_json)
    method, found = _examined(screen, run, Wishes(rounds, seed, game), data_dir)
    facts = {"run": str(run), "method": method, **found.to_json()}
    if out is not None:
        out.write_text(json.dumps(_plain(facts), indent=2) + "\n", encoding="utf-8")
    screen.emit(facts)
    if screen.talks:
        _show(screen, run, method, found)
    raise typer.Exit(0 if found.passed else 1)


def _examined(screen: Screen, run: Path, wishes: Wishes, data_dir: Path | None) -> tuple[str, Examination]:
    """The name of the method, and what was found."""
    from colonnade.audit.elsewhere import examine_place
    from colonnade.audit.examine import examine, refuse
    from colonnade.cli.audit_place import is_party, place_of_holder, place_of_party
    from colonnade.engines.base import DEPLOYED
    from colonnade.run import Run, read_record

    if is_party(run):
        with screen.progress() as bars:
            place = place_of_party(run)
            return place.method.name, examine_place(place, wishes, _watching(bars))
    record = read_record(run)
    if record["about"]["engine"] == DEPLOYED:
        with screen.progress() as bars:
            place = place_of_holder(run, Run.load(run), record["releases"])
            return place.method.name, examine_place(place, wishes, _watching(bars))
    if record["own_encoders"] or record["config"] is None:
        raise RunError(f"{run} was started from Python, so it cannot be trained again here; {_in_python(run)}")
    finished = Run.load(run)
    refuse(finished)
    federation = _data(run, finished, data_dir)
    with screen.progress() as bars:
        watch = bars.watch(f"{finished.method.name} again", min(wishes.rounds, finished.result["rounds"]))
        return finished.method.name, examine(finished, federation, record, wishes, _watching(bars, watch))


def _in_python(run: Path) -> str:
    return f"there: colonnade.audit.examine.examine(Run.load({str(run)!r}), federation, read_record(...))"


def _data(run: Path, finished: Run, data_dir: Path | None) -> Federation:
    """The data of the run's own configuration, if they are still the same."""
    from colonnade.checkpoint import fingerprint
    from colonnade.cli.resume import read_about
    from colonnade.job import load_data
    from colonnade.run import STORE

    config = finished.config or {}
    federation = load_data(with_data_dir(config.get("data", {"set": "digits"}), data_dir), finished.about)
    if (run / STORE).is_file() and read_about(run)["data"] != fingerprint(federation):
        raise RunError(f"{run} was trained on other data than its configuration finds now; say where with --data-dir")
    return federation


def _watching(bars: Bars, training: Watcher | None = None) -> Watching:
    from colonnade.audit.examine import Watching

    def game(steps: int) -> Callable[[], None]:
        task, done = bars.task("game", steps, "step"), itertools.count(1)
        return lambda: task(next(done))

    return Watching(training, game)


def _show(screen: Screen, run: Path, method: str, found: Examination) -> None:
    """The verdict first, then what was not tried, then everything else."""
    from colonnade.report.tables import Table

    screen.notify(found.verdict)
    if not found.passed:
        screen.notify("What the ledger claims: " + (" and ".join(found.figure.words()) or "no epsilon") + ".")
    if found.not_tried:
        screen.notify("Not tried: " + "; ".join(f"{name} ({why})" for name, why in found.not_tried.items()) + ".")
    screen.table(Table(f"Audit of {run}, {method}", COLUMNS, tuple(_rows(found, method)), frozenset({0, 3, 4})))
    if again := found.retrained:
        screen.notify(
            f"Messages are not stored: rounds 1 to {again.rounds} of {again.of} were trained again from the run's own "
            f"configuration ({again.rows:,} training rows)."
        )
    screen.notify(_about_the_ledger(found))
    screen.notify(
        "Each check accuses correct code in at most 1 of 10,000 audits. That nothing was found is no proof of privacy: "
        'documentation, page "Audit".'
    )


def _rows(found: Examination, method: str) -> Iterator[tuple[str, ...]]:
    for check in found.checks:
        if check.tried:
            yield check.name, check.found, check.against, "", check.means
    if found.retrained and not found.checks:
        why = "no noise, so there is no epsilon to check: every upload leaves as it is, and everything in it leaks"
        yield "lower bound on epsilon", "-", "no epsilon", "the coordinator", why
    if found.retrained and not any(finding.attack == LABELS for finding in found.findings):
        why = f"the downlink of {method} carries nothing that this attack can read"
        yield LABELS, "not tried", "", "any party", why
    for f in found.findings:
        means = f"{_loudness(f.advantage)}: {f.what_it_means} ({f.rows:,} {'games' if f.is_game else 'rows'})"
        yield f.attack, f"{f.score:.3f} {f.measure}", f"{f.chance:.3f} chance", f.attacker, means
    wrong = found.books.problems
    means = "; ".join(wrong) or "in order: all that can be seen from here, nothing beyond the schedule"
    yield "ledger", f"{len(wrong)} problems", f"{found.books.events:,} events", "", means


def _about_the_ledger(found: Examination) -> str:
    """How often everybody uploaded, and what the retraining adds."""
    by_purpose: dict[str, list[str]] = {}
    for (owner, purpose), count in found.books.counts.items():
        by_purpose.setdefault(purpose.value, []).append(f"{owner} {count}")
    told = "; ".join(f"{purpose}: {', '.join(owners)}" for purpose, owners in by_purpose.items())
    again = found.retrained
    same = ""
    if again and again.uploads:
        same = f" {again.found} of the {again.uploads} retrained uploads stand in it bit by bit."
    return f"Ledger: {told}.{same}"


def _loudness(advantage: float) -> str:
    """How far from a guess to certainty, in a word."""
    if advantage < 0.05:
        return "near chance"
    return "leaks" if advantage < 0.5 else "leaks badly"


def _plain(value: Any) -> Any:
    """JSON has no infinity."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
