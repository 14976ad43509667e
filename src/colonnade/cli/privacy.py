"""`colonnade privacy`: what noise costs, what a budget buys, and what a run promises."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from colonnade.cli.options import AsJson, DataDir, Overrides, RunFolder
from colonnade.cli.screen import Screen
from colonnade.errors import ConfigError, RunError

if TYPE_CHECKING:
    from colonnade.privacy import accounting

app = typer.Typer(no_args_is_help=True, help="Epsilons: what noise costs, what a budget buys, what a run promises.")

NOT_COVERED = "labels, evaluation and predictions"
Rounds = Annotated[int, typer.Option(min=1, help="Releases of one party.", show_default=False)]
Delta = Annotated[float, typer.Option(help="Delta of the guarantee.")]
Neighbours = Annotated[str, typer.Option(metavar="absent|replaced", help="The other world: C or 2C.")]


@app.command()
def epsilon(
    sigma: Annotated[float, typer.Option(help="Noise per cell, in units of the clipping norm.", show_default=False)],
    rounds: Rounds,
    delta: Delta = 1e-5,
    neighbours: Neighbours = "absent",
    as_json: AsJson = False,
) -> None:
    """What so many Gaussian releases of one party cost, by the exact accountant and by the paper's bound.

    Example: colonnade privacy epsilon --sigma 30 --rounds 53
    """
    from colonnade.privacy import accounting

    if not sigma > 0:
        raise ConfigError(f"--sigma {sigma:g}: needed a noise multiplier above 0")
    mu = accounting.shift_of(sigma, rounds, _relation(neighbours))
    exact, rdp = accounting.exact_epsilon(mu, delta), accounting.rdp_epsilon(mu, delta)
    facts = {"unit": "PARTY", "neighbours": neighbours, "delta": delta, "sigma": sigma, "releases": rounds}
    screen = Screen(as_json)
    screen.emit({**facts, "epsilon": exact, "accountant": "exact", "epsilon_rdp": rdp, "not_covered": NOT_COVERED})
    figure = f"{exact:.3f}" if math.isfinite(exact) else f"above {accounting.LARGEST:,.0f}, which promises nothing"
    screen.notify(f"epsilon {figure} (exact accountant), {rdp:.3f} (the paper's RDP bound)")
    screen.notify(f"unit PARTY, neighbours: {neighbours}, delta {delta:g}; {NOT_COVERED} not covered")


@app.command()
def calibrate(
    epsilon: Annotated[float, typer.Option(help="The budget.", show_default=False)],
    rounds: Rounds,
    delta: Delta = 1e-5,
    neighbours: Neighbours = "absent",
    as_json: AsJson = False,
) -> None:
    """The smallest noise with which so many releases of one party stay within a budget.

    Example: colonnade privacy calibrate --epsilon 1 --rounds 53
    """
    from colonnade.privacy import accounting

    sigma = accounting.calibrate(epsilon, delta, rounds, _relation(neighbours))
    facts = {"unit": "PARTY", "neighbours": neighbours, "delta": delta, "releases": rounds, "epsilon": epsilon}
    screen = Screen(as_json)
    screen.emit({**facts, "accountant": "exact", "sigma": sigma, "not_covered": NOT_COVERED})
    screen.notify(f"sigma {sigma:.4f}, in units of the clipping norm")
    screen.notify(f"for epsilon {epsilon:g} (exact accountant), delta {delta:g}, unit PARTY, neighbours: {neighbours}")
    screen.notify(f"{NOT_COVERED} not covered")


@app.command()
def explain(run: RunFolder, as_json: AsJson = False) -> None:
    """Whose privacy a run promises, against whom, by how much, and what is not covered.

    Example: colonnade privacy explain runs/20261115-120000-vimadmm
    """
    from colonnade.report.privacy import statement_of_run
    from colonnade.report.uploads import told_of_uploads
    from colonnade.run import Run

    loaded = Run.load(run)
    statement, record = statement_of_run(loaded), loaded.record()
    screen = Screen(as_json)
    screen.emit({**statement.to_json(), "uploads": record["result"].get("uploads")})
    for line in filter(None, (*statement.lines(), told_of_uploads(record).replace("RUN", str(run)))):
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


def _relation(neighbours: str) -> accounting.Neighbours:
    if neighbours not in ("absent", "replaced"):
        raise ConfigError(f"--neighbours {neighbours!r}: needed absent or replaced")
    return cast("accounting.Neighbours", neighbours)
