"""`colonnade audit`: hold a run's ledger against a game and its traffic, and attack what it does not cover."""

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
    from colonnade.audit.examine import Claim, Examination
    from colonnade.federation import Federation
    from colonnade.run import Run

COLUMNS = ("check", "found", "against", "who could", "what it means")
BOUND, LABELS = "lower bound on epsilon", "labels from the downlink"
Out = Annotated[Path | None, typer.Option(metavar="FILE.json", help="Also write the JSON object.", show_default=False)]


def audit(
    run: RunFolder,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds to train again, at most the run's own.")] = 20,
    game: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Games in each world; default: what 20 seconds allow.", show_default=False
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of games and attackers; the retraining keeps the run's.")] = 0,
    data_dir: DataDir = None,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Check a run's ledger, and attack what it does not cover. Exit status 1: the ledger is contradicted or incomplete.

    Messages are not stored, so the first rounds are trained again from the run's own configuration, with everybody
    listening; the run itself is not touched.

    Example: colonnade audit runs/first --out audit.json
    """
    from colonnade.audit.examine import Wishes, examine, refuse
    from colonnade.run import Run, read_record

    if out is not None and (out.is_dir() or not out.resolve().parent.is_dir()):
        raise ConfigError(f"--out {str(out)!r}: needed a file in a folder that exists")
    record = read_record(run)
    if record["own_encoders"] or record["config"] is None:
        raise RunError(f"{run} was started from Python, so it cannot be trained again here; {_in_python(run)}")
    finished = Run.load(run)
    refuse(finished)
    federation = _data(run, finished, data_dir)
    screen = Screen(as_json)
    with screen.progress() as bars:
        watching = _watching(bars, finished, min(rounds, finished.result["rounds"]))
        found = examine(finished, federation, record, Wishes(rounds, seed, game), watching)
    facts = {"run": str(run), "method": finished.method.name, **found.to_json()}
    if out is not None:
        out.write_text(json.dumps(_plain(facts), indent=2) + "\n", encoding="utf-8")
    screen.emit(facts)
    if screen.talks:
        _show(screen, run, finished, found)
    raise typer.Exit(0 if found.passed else 1)


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


def _watching(bars: Bars, finished: Run, rounds: int) -> Any:
    from colonnade.audit.examine import Watching

    def game(steps: int) -> Callable[[], None]:
        task, done = bars.task("game", steps, "step"), itertools.count(1)
        return lambda: task(next(done))

    return Watching(bars.watch(f"{finished.method.name} again", rounds), game)


def _show(screen: Screen, run: Path, finished: Run, found: Examination) -> None:
    from colonnade.report.tables import Table

    again = found.retrained
    screen.notify(
        f"Messages are not stored: rounds 1 to {again.rounds} of {again.of} were trained again from the run's own "
        f"configuration ({again.rows:,} training rows)."
    )
    rows = tuple(_rows(found, finished))
    screen.table(Table(f"Audit of {run}, {finished.method.name}", COLUMNS, rows, frozenset({0, 3, 4})))
    for line in (*_about_the_game(found.claim), _about_the_ledger(found)):
        screen.notify(line)
    screen.notify(f"{'passed' if found.passed else 'FAILED'}: {_verdict(found)}")


def _rows(found: Examination, finished: Run) -> Iterator[tuple[str, ...]]:
    yield _claim_row(found.claim)
    if not any(finding.attack == LABELS for finding in found.findings):
        why = f"the downlink of {finished.method.name} carries nothing that this attack can read"
        yield LABELS, "not tried", "", "any party", why
    for f in found.findings:
        means = f"{_loudness(f.advantage)}: {f.what_it_means} ({f.rows:,} {'games' if f.is_game else 'rows'})"
        yield f.attack, f"{f.score:.3f} {f.measure}", f"{f.chance:.3f} chance", f.attacker, means
    wrong = found.books.problems
    means = "; ".join(wrong) or "complete: all that the traffic shows, nothing beyond the schedule"
    yield "ledger of the run", f"{len(wrong)} problems", f"{found.books.events:,} events", "", means


def _claim_row(claim: Claim) -> tuple[str, ...]:
    told = f"{claim.epsilon:.3f} ledger" if math.isfinite(claim.epsilon) else "no epsilon"
    if claim.bound is None:
        return BOUND, "-", told, "the coordinator", claim.sentence
    return BOUND, f"{claim.bound.epsilon:.3f} epsilon", f"{claim.played:.3f} ledger", "the coordinator", claim.sentence


def _about_the_game(claim: Claim) -> Iterator[str]:
    """What belongs to an epsilon."""
    if claim.bound is None:
        if claim.untried and math.isfinite(claim.epsilon):
            facts = f"unit {claim.unit}, neighbours: {claim.neighbours}, delta {claim.delta:g}"
            what = f"{claim.releases} training releases of {claim.party!r}"
            yield f"Epsilon: {facts}, {claim.accountant} accountant; of {what}, and of nothing else."
        return
    b = claim.bound
    yield (
        f"Epsilon: unit PARTY, neighbours: {claim.neighbours}, delta {claim.delta:g}, exact accountant. The bound "
        f"holds with {100 * b.confidence:.1f} % confidence: {b.runs:,} games in each world, with {b.releases} of the "
        f"{claim.releases} releases of {claim.party!r} (all of them: epsilon {claim.epsilon:.3f})."
    )


def _about_the_ledger(found: Examination) -> str:
    """How often everybody uploaded, and what the retraining adds."""
    by_purpose: dict[str, list[str]] = {}
    for (owner, purpose), count in found.books.counts.items():
        by_purpose.setdefault(purpose.value, []).append(f"{owner} {count}")
    told = "; ".join(f"{purpose}: {', '.join(owners)}" for purpose, owners in by_purpose.items())
    again = found.retrained
    same = f" {again.found} of the {again.uploads} retrained uploads stand in it bit by bit." * bool(again.uploads)
    return f"Ledger: {told}.{same}"


def _loudness(advantage: float) -> str:
    """How far from a guess to certainty, in a word."""
    if advantage < 0.05:
        return "near chance"
    return "leaks" if advantage < 0.5 else "leaks badly"


def _verdict(found: Examination) -> str:
    wrong = [*([found.claim.sentence] if found.claim.contradicted else []), *found.books.problems]
    tried = "the ledger is complete, but its figure was not tried" if found.claim.untried else "the ledger stands"
    return "; ".join(wrong) or f"{tried}; the attacks show what it does not cover"


def _plain(value: Any) -> Any:
    """JSON has no infinity."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
