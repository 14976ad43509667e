"""The privacy page of a report: whose privacy, against whom, how much, what is not covered.

Words and figures are those of `privacy/statement.py`, from what a record keeps of the run's ledger. A record that
keeps nothing of it gets no figure, and the page says where to find one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from colonnade.config import build
from colonnade.engines.base import DEPLOYED
from colonnade.errors import ConfigError, DataError
from colonnade.methods import METHODS, make_method
from colonnade.methods._guest import guest_of, is_told, shown_by, what_is_shown
from colonnade.methods.base import FitsAtHome, Method, brings
from colonnade.privacy.events import Hides, LabelExposure
from colonnade.privacy.promise import Circumstances
from colonnade.privacy.registry import kind_of
from colonnade.privacy.repeats import Training, in_words
from colonnade.privacy.settings import PrivacySettings
from colonnade.privacy.spent import Spent
from colonnade.privacy.statement import Statement
from colonnade.privacy.tally import Tally
from colonnade.record import About, Sections
from colonnade.report import words
from colonnade.report.record import Group, Record, released
from colonnade.report.tables import Table
from colonnade.report.uploads import told_of_uploads
from colonnade.run import Run

NOT_COLUMNS = {Hides.NOTHING, Hides.LABELS, Hides.NEEDLESS}  # what mechanisms hide if no upload was noised


@dataclass(frozen=True)
class Page:
    """What the privacy section of a page shows."""

    verdict: str
    answers: list[tuple[str, list[str]]]
    table: Table | None
    exposure: str
    epsilon: float  # of training, exact; infinite: there is none
    unprotected: bool  # columns or labels have no bound: the verdict is a warning
    uploads: str = ""  # what they contributed, where the run promises privacy


def privacy_page(record: Record) -> Page:
    """The section about one run."""
    exposure = f"Label exposure {record['label_exposure']}: {words.exposure(record).removeprefix('Labels: ')}"
    uploads = told_of_uploads(record)
    try:
        statement = statement_of(record)
        if statement is not None:
            figures = statement.verdict(), statement.answers(), parties_table(statement)
            full = statement.about.exposure is LabelExposure.FULL
            return Page(*figures, exposure, statement.epsilon, full or statement.rules_nothing_out, uploads)
        reason = "this record keeps nothing of the run's ledger"
    except (DataError, ConfigError) as error:  # a library is missing, or the record is of another version
        reason = str(error)
    told = f"No epsilon is printed here: {reason}. The command colonnade privacy explain RUN reads the ledger itself."
    return Page(f"{told} {exposure}", [], None, exposure, math.inf, unprotected=True, uploads=uploads)


def statement_of(record: Record) -> Statement | None:
    """What the run promises; None if the record does not say enough."""
    tallies = _tallies(record)
    if tallies is None:
        return None
    settings = build(PrivacySettings, record.get("privacy", {}), "privacy")
    former = taken_over(record["about"])
    about = Circumstances(
        exposure=LabelExposure(record["label_exposure"]),
        uploaded=record["traffic"]["up"] > 0 or bool(former),
        deployed=record["about"]["engine"] == DEPLOYED,
        pooled=words.pools(record),
        own=own_noise(record),
        fits_at_home=record["method"]["name"] in METHODS and isinstance(_method(record), FitsAtHome),
        guest=guest_of(_method(record)) if record["method"]["name"] in METHODS else "",
        shown=shown(_method(record)) if record["method"]["name"] in METHODS else ("", ""),
        told=record["method"]["name"] in METHODS and is_told(_method(record)),
        parties=len(record["about"]["parties"]),
        label_holders=own_parties(record.get("config")),
        former=former,
    )
    return Statement.from_tally(tallies, settings, about)


def statement_of_run(run: Run) -> Statement:
    """What a run promises, from its ledger as it is now."""
    former = taken_over(run.about)
    about = Circumstances(
        exposure=run.label_exposure,
        uploaded=run.traffic.up > 0 or bool(former),
        deployed=run.about["engine"] == DEPLOYED,
        pooled=run.method.pools,
        own=brings(run.method),
        fits_at_home=isinstance(run.method, FitsAtHome),
        guest=guest_of(run.method),
        shown=shown(run.method),
        told=is_told(run.method),
        parties=len(run.about["parties"]),
        label_holders=own_parties(run.config),
        former=former,
    )
    return Statement.of(run.ledger, run.privacy, about)


def taken_over(about: About) -> str:
    """The run of separate organisations whose parts were taken over; empty: of a simulation all is in one ledger."""
    if about["engine"] != DEPLOYED:
        return ""
    return max(
        ((one["when"], one["run"]) for one in (*about.get("joined", []), *about.get("left", []))), default=("", "")
    )[1]


def shown(method: Method) -> tuple[str, str]:
    """The party whose uploads say something of its columns, and what; empty: there is none."""
    return shown_by(method), what_is_shown(method, shown_by(method))


def own_parties(config: Sections | None) -> tuple[str, ...]:
    """Parties of the label holder's organisation, as its configuration says."""
    return tuple(map(str, (config or {}).get("coordinator", {}).get("own", ())))


def own_noise(record: Record) -> str:
    """The noise that the run's method brings itself."""
    return brings(_method(record)) if record["method"]["name"] in METHODS else ""


def _method(record: Record) -> Method:
    method: Method = make_method(record["method"]["name"], record["method"]["settings"])
    return method


def _tallies(record: Record) -> list[Tally] | None:
    """From the record's tally; without one, from its counts, if nothing at all was noised."""
    if "tally" in record:
        return [Tally.from_json(values) for values in record["tally"]]
    if "mechanisms" not in record or {kind_of(name).hides for name in record["mechanisms"]} - NOT_COLUMNS:
        return None
    counts = released(record)
    held = [p["name"] for p in record["about"]["parties"] if p["name"] in counts]
    return [_bare(name, counts[name]) for name in sorted(held)]


def _bare(party: str, counts: dict[str, int]) -> Tally:
    """A party whose releases all left as they were."""
    train = counts.get("TRAIN", 0)
    return Tally(party, train, math.inf if train else 0.0, tuple(sorted(counts.items())), (), simulated=False)


def parties_table(statement: Statement) -> Table | None:
    """What training cost each party; None if nothing is known of any."""
    if statement.about.pooled or not statement.spent:
        return None
    if statement.by_row:
        return _rows_table(statement)
    s = statement.settings
    figures = "RDP accountant of counts" if statement.counted else "exact accountant and the paper's RDP bound"
    caption = (
        f"What training cost each party (unit PARTY, neighbours: {statement.neighbours}, delta {s.delta:g}, {figures}; "
        "labels, evaluation and predictions are not covered)"
    )
    columns = ("party", "releases in training", "exact epsilon", "RDP epsilon", "releases without noise")
    rows = tuple(_row(spent) for spent in statement.spent)
    return Table(caption, columns, rows, frozenset({0, 4}))


def _rows_table(statement: Statement) -> Table:
    """What the training of all parties cost one row; the figure is the same at each, because it counts them all."""
    caption = (
        "What the training of all parties cost one row (unit ROW, neighbours: absent, delta "
        f"{statement.settings.delta:g}, PLD and RDP accountants; labels that are sent down, validation, test and "
        "predicted rows are not covered)"
    )
    columns = (
        "party",
        "steps at home",
        "PLD epsilon, all parties",
        "RDP epsilon, all parties",
        "releases without noise",
    )
    rows = tuple(_at_home(spent) for spent in statement.spent)
    return Table(caption, columns, rows, frozenset({0, 4}))


def _at_home(spent: Spent) -> tuple[str, ...]:
    steps = "none" if spent.sampled is None else f"{spent.sampled.steps:,}"
    party, _, exact, rdp, bare = _row(spent)
    return party, steps, exact, rdp, bare


def _row(spent: Spent) -> tuple[str, ...]:
    bare = ", ".join(f"{number:,} {purpose.lower()}" for purpose, number in spent.bare)
    exact = "not known" if math.isinf(spent.exact) and math.isfinite(spent.rdp) else _figure(spent.exact)  # counts
    return (spent.party, f"{spent.releases:,}", exact, _figure(spent.rdp), bare or "none")


def _figure(epsilon: float) -> str:
    return "no bound" if math.isinf(epsilon) else f"{epsilon:,.3f}"


def notes(groups: Sequence[Group]) -> list[tuple[str, str]]:
    """What each method of a comparison promises, said once for all of which the same is true."""
    said: dict[str, list[str]] = {}
    for group in groups:
        said.setdefault(_least(group), []).append(group.label)
    told = [(words.listing(labels), text) for text, labels in said.items()]
    records = [record for group in groups for record in group.records]
    together = together_of(records) if len(records) > 1 else ""
    return [*told, ("all of them", together)] if together else told


def together_of(records: Sequence[Record]) -> str:
    """What trainings on the same rows cost together; empty, where nothing was promised, or records say too little."""
    trainings = trainings_of(records)
    if trainings is None:
        return ""
    try:
        return in_words(trainings)
    except DataError:  # the library that accounts is not installed
        return ""


def trainings_of(records: Sequence[Record]) -> list[Training] | None:
    """What they cost, one by one, without those that have all columns in one place; None: a record says too little."""
    trainings = []
    for record in records:
        tallies = _tallies(record)
        if words.pools(record):
            continue
        if tallies is None:
            return None
        settings, exposure = build(PrivacySettings, record.get("privacy", {}), "privacy"), record["label_exposure"]
        noisy, plain = exposure == LabelExposure.EPS.value, exposure == LabelExposure.FULL.value
        trainings.append(Training(tallies, settings, noisy, plain))
    return trainings


def _least(group: Group) -> str:
    """The weakest promise among the seeds, what happened to the releases, and what they contributed."""
    pages = [privacy_page(record) for record in group.records]
    weakest = max(pages, key=lambda page: (page.unprotected, page.epsilon))
    if weakest.verdict.startswith("No noise was used"):
        return weakest.verdict
    return " ".join(filter(None, [weakest.verdict, words.noise_of(group.records), weakest.uploads]))
