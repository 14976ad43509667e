"""`colonnade privacy`: what noise costs, what a budget buys, and what a run promises."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple, cast

import typer

from colonnade.cli.options import AsJson, DataDir, Overrides, RunFolder
from colonnade.cli.screen import Screen
from colonnade.errors import ConfigError, RunError

if TYPE_CHECKING:
    from colonnade.privacy import accounting

app = typer.Typer(no_args_is_help=True, help="Epsilons: what noise costs, what a budget buys, what a run promises.")

NOT_COVERED = "labels, evaluation and predictions"
NOT_COVERED_ROWS = (
    "labels that are sent down, validation, test and predicted rows, scales taken from training rows, and other runs"
)
Rounds = Annotated[int, typer.Option(min=1, help="Releases, or steps at home, of one party.", show_default=False)]
Rate = Annotated[
    float | None,
    typer.Option(help="Unit ROW: the chance of a row to be drawn for a step at home, batch / training rows."),
]
Parties = Annotated[int, typer.Option(min=1, help="Unit ROW: parties that train; a row may be at all of them.")]
Delta = Annotated[float, typer.Option(help="Delta of the guarantee.")]
Neighbours = Annotated[str, typer.Option(metavar="absent|replaced", help="The other world: C or 2C.")]


@app.command()
def epsilon(
    sigma: Annotated[float, typer.Option(help="Noise per cell, in units of the clipping norm.", show_default=False)],
    rounds: Rounds,
    delta: Delta = 1e-5,
    neighbours: Neighbours = "absent",
    rate: Rate = None,
    parties: Parties = 1,
    as_json: AsJson = False,
) -> None:
    """What so many Gaussian releases of one party cost, by the exact accountant and by the paper's bound.

    With --rate: what so many steps of training at home cost a row at all parties (unit ROW).

    Example: colonnade privacy epsilon --sigma 30 --rounds 53
    Example: colonnade privacy epsilon --sigma 22.4 --rounds 200 --rate 0.3 --parties 14
    """
    from colonnade.privacy import accounting

    if not sigma > 0:
        raise ConfigError(f"--sigma {sigma:g}: needed a noise multiplier above 0")
    if rate is not None:
        return _of_rows(_Steps(rate, rounds, parties, delta), sigma, None, neighbours, as_json)
    mu = accounting.shift_of(sigma, rounds, _relation(neighbours))
    exact, rdp = accounting.exact_epsilon(mu, delta), accounting.rdp_epsilon(mu, delta)
    facts = {"unit": "PARTY", "neighbours": neighbours, "delta": delta, "sigma": sigma, "releases": rounds}
    screen = Screen(as_json)
    screen.emit({**facts, "epsilon": exact, "accountant": "exact", "epsilon_rdp": rdp, "not_covered": NOT_COVERED})
    figure = f"{exact:.3f}" if math.isfinite(exact) else f"above {accounting.LARGEST:,.0f}, which promises nothing"
    screen.notify(f"epsilon {figure} (exact accountant), {rdp:.3f} (the paper's RDP bound)")
    little = accounting.of_its_size(exact, delta) if math.isfinite(exact) else ""
    screen.notify(f"unit PARTY, neighbours: {neighbours}, delta {delta:g}; {NOT_COVERED} not covered.{little}")
    return None


@app.command()
def calibrate(
    epsilon: Annotated[float, typer.Option(help="The budget.", show_default=False)],
    rounds: Rounds,
    delta: Delta = 1e-5,
    neighbours: Neighbours = "absent",
    rate: Rate = None,
    parties: Parties = 1,
    as_json: AsJson = False,
) -> None:
    """The smallest noise with which so many releases of one party stay within a budget.

    With --rate: with which so many steps of training at home do, for a row at all parties (unit ROW).

    Example: colonnade privacy calibrate --epsilon 1 --rounds 53
    Example: colonnade privacy calibrate --epsilon 3 --rounds 200 --rate 0.3 --parties 14
    """
    from colonnade.privacy import accounting

    if rate is not None:
        return _of_rows(_Steps(rate, rounds, parties, delta), None, epsilon, neighbours, as_json)
    sigma = accounting.calibrate(epsilon, delta, rounds, _relation(neighbours))
    facts = {"unit": "PARTY", "neighbours": neighbours, "delta": delta, "releases": rounds, "epsilon": epsilon}
    screen = Screen(as_json)
    screen.emit({**facts, "accountant": "exact", "sigma": sigma, "not_covered": NOT_COVERED})
    screen.notify(f"sigma {sigma:.4f}, in units of the clipping norm")
    screen.notify(f"for epsilon {epsilon:g} (exact accountant), delta {delta:g}, unit PARTY, neighbours: {neighbours}")
    screen.notify(f"{NOT_COVERED} not covered.{accounting.of_its_size(epsilon, delta)}")
    return None


@app.command()
def explain(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="A run folder, or a party's own folder.", show_default=False)
    ],
    as_json: AsJson = False,
) -> None:
    """Whose privacy a run promises, against whom, by how much, and what is not covered.

    Of a run between organisations every party has the figures of its own releases, in its own folder.

    Example: colonnade privacy explain runs/20261115-120000-vimadmm
    """
    from colonnade.cli.privacy_explain import promise_of

    screen, told = Screen(as_json), promise_of(run)
    screen.emit({**told.statement.to_json(), "uploads": told.gain, "party": told.party})
    for line in told.lines():
        screen.notify(line)


@app.command()
def compare(
    run: RunFolder,
    seeds: Annotated[
        str | None, typer.Option(help="More seeds beside the run's own, e.g. 1,2 or 1-4.", show_default=False)
    ] = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """What the uploads of a simulation contributed: trains it again without their signal, and as local_only.

    The noise is kept, and every other draw is the same. All three models answer to the test rows once. The result is
    stored with the run. With --seeds the run itself is trained again, too, with each of them.

    Example: colonnade privacy compare runs/first --seeds 1,2
    """
    from colonnade.cli.compare import read_numbers
    from colonnade.cli.resume import data_of
    from colonnade.job import load_data
    from colonnade.report.uploads import sentences
    from colonnade.run import Run
    from colonnade.upload_gain import check_can_compare, upload_gain

    screen, loaded = Screen(as_json), Run.load(run)
    check_can_compare(loaded)
    more = [] if seeds is None else read_numbers(seeds)
    if loaded.config is None:
        raise RunError(
            f"{run} was started from Python, so its data are not known here; there: "
            f"Run.load({str(run)!r}).upload_gain(federation)"
        )
    federation = load_data(data_of(run, loaded.config, data_dir), loaded.about)
    with screen.progress() as bars:
        found = upload_gain(loaded, federation, seeds=more, watch=bars.watch)
    screen.emit({"run": str(run), **found})
    for line in sentences(found):
        screen.notify(line)


@app.command()
def page(
    what: Annotated[
        Path,
        typer.Argument(metavar="RUN", help="A run folder, a party's own folder, or CONFIG.toml.", show_default=False),
    ],
    party: Annotated[
        str | None,
        typer.Option(help="Whose page; coordinator: the label holder's.", show_default=False),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE.html", help="Default: privacy-PARTY.html here.", show_default=False)
    ] = None,
    overrides: Overrides = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Write a page for a data-protection officer: what leaves one party, to whom, how often, and what bounds it.

    Of a run, from its ledger; at a party of a run between organisations, from the party's own folder; of a
    configuration file, what would leave. One file to print, in plain language; contacts and periods are to fill in.

    Example: colonnade privacy page runs/first --party bank --out bank.html
    """
    from colonnade.cli.privacy_page import source_of
    from colonnade.report.html import require_extra
    from colonnade.report.officer import verdict, write_officer_page

    require_extra()
    screen, source = Screen(as_json), source_of(what, party, overrides, data_dir)
    file = Path(f"privacy-{source.party}.html") if out is None else out
    if file.suffix.lower() not in {".html", ".htm"}:
        raise ConfigError(f"--out {str(file)!r}: needed a file that ends in .html")
    written = write_officer_page(source, file)
    screen.emit({"page": str(written), "party": source.party, "from": source.origin, "verdict": verdict(source)})
    for line in (*verdict(source), str(written)):
        screen.notify(line)


@app.command()
def budget(
    config: Annotated[Path, typer.Argument(metavar="PARTY.TOML", help="The party's file.", show_default=False)],
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """What all runs have cost a party's table together, by unit, and what its policy allows.

    Example: colonnade privacy budget party.toml
    """
    from colonnade.deploy.budget import COLUMNS, TableBudget, note_figures
    from colonnade.deploy.policy import read_policy
    from colonnade.deploy.sections import read_party_file
    from colonnade.deploy.table_ledger import TableLedger
    from colonnade.report.tables import Table

    party = read_party_file(config, overrides).party
    ledger, policy = TableLedger(party.spent), read_policy(party.policy)
    found = TableBudget.read(ledger, party.called, policy)
    note_figures(ledger, party.called, policy)  # `colonnade status` shows it
    screen = Screen(as_json)
    screen.emit(found.to_json())
    if screen.talks and found.runs:
        screen.table(Table(found.caption, COLUMNS, tuple(found.rows()), frozenset({0, 1, 2, 4, 5})))
    for line in found.lines():
        screen.notify(line)


class _Steps(NamedTuple):
    """Training at home, as it was asked about."""

    rate: float
    rounds: int
    parties: int
    delta: float


def _of_rows(steps: _Steps, sigma: float | None, epsilon: float | None, neighbours: str, as_json: bool) -> None:
    """Noise and cost of training at home, one from the other; without sigma it is calibrated for epsilon."""
    from colonnade.privacy.accounting import of_its_size
    from colonnade.privacy.sampled import calibrate_steps, epsilon_of_steps

    if neighbours != "absent":
        raise ConfigError(f"--neighbours {neighbours!r}: with --rate a row is added or removed, which is absent")
    rate, rounds, parties, delta = steps
    releases = rounds * parties
    noise = calibrate_steps(epsilon or 0.0, delta, rate, releases) if sigma is None else sigma
    pld, rdp = epsilon_of_steps(rate, noise, releases, delta)
    facts = {"unit": "ROW", "neighbours": neighbours, "delta": delta, "rate": rate, "steps": rounds, "parties": parties}
    screen = Screen(as_json)
    figures = {"sigma": noise, "epsilon": pld, "accountant": "PLD", "epsilon_rdp": rdp}
    screen.emit({**facts, **figures, "not_covered": NOT_COVERED_ROWS})
    if sigma is None:
        screen.notify(f"sigma {noise:.4f}, in units of the clipping norm")
    screen.notify(f"epsilon {pld:.3f} (PLD accountant), {rdp:.3f} (RDP)")
    screen.notify(
        f"unit ROW, neighbours: absent (a row added or removed at all {parties} parties, {rounds:,} steps each), delta "
        f"{delta:g}; only as long as nobody else knows which rows a step drew"
    )
    screen.notify(f"{NOT_COVERED_ROWS} not covered.{of_its_size(pld, delta)}")


def _relation(neighbours: str) -> accounting.Neighbours:
    if neighbours not in ("absent", "replaced"):
        raise ConfigError(f"--neighbours {neighbours!r}: needed absent or replaced")
    return cast("accounting.Neighbours", neighbours)
