"""What a proposal would cost a party's table, together with all that was spent on it before; and whether it may.

A party computes this by itself, from the noise and the rounds of the proposal and from its table ledger, before it
joins. What a run was agreed to cost is charged at once; when the run is over, what it released takes its place.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from colonnade.deploy.agreement import Proposal
from colonnade.deploy.by_row import row_event
from colonnade.deploy.policy import Policy
from colonnade.deploy.spent_note import write_note
from colonnade.deploy.table_ledger import Entered, TableLedger
from colonnade.errors import ColonnadeError, Refused
from colonnade.methods.base import brings
from colonnade.privacy.accounting import Neighbours
from colonnade.privacy.events import Event, OtherEvent, Unit
from colonnade.privacy.ledger import Entry
from colonnade.privacy.together import NOT_COVERED, Cost, Together, costs_of, together

COLUMNS = ("run", "began", "state", "rows", "columns", "unit", "releases", "epsilon (accountant)")


def planned(proposal: Proposal, party: str, mine: Event) -> list[Cost]:
    """What training by a proposal would release of a party, as if it uploaded as often as any; at most.

    `mine` is what the party itself puts before its uploads, where the proposal asks for nothing. What a method brings
    itself depends on the parties' networks: before joining it is unknown, and no budget allows it.
    """
    if not proposal.trains(party):
        return []
    if proposal.privacy().by_row:
        return [Cost(row_event(proposal), int(proposal.body["rows"]))]
    schedule, own = proposal.schedule(), brings(proposal.method())
    releases = schedule.most_releases(proposal.training().rounds)
    if not releases:
        return []
    event, times = proposal.privacy().planned(releases, len(proposal.parties), OtherEvent(own) if own else mine)
    return [Cost(event, schedule.batch, times)]


def spent_by(proposal: Proposal, entries: Iterable[Entry], party: str, mine: Event) -> list[Cost]:
    """What a training that is over has cost a party: what it released.

    Of training at home (unit ROW) it stays what was agreed on: whatever the model says later would release all of it.
    """
    return planned(proposal, party, mine) if proposal.privacy().by_row else costs_of(entries, party)


def whole_cost(costs: Sequence[Cost], delta: float, neighbours: Neighbours) -> Together | None:
    """What one training would cost, in the unit that it hides; None: it releases nothing."""
    return next(iter(together(costs, delta, neighbours).values()), None)


def relation(policy: Policy) -> Neighbours:
    """The relation in which a table's epsilon of unit PARTY is counted: the stricter one, if the policy needs it."""
    return "replaced" if policy.neighbours == ("replaced",) else "absent"


def of_table(costs: Sequence[Cost], policy: Policy) -> dict[Unit, Together]:
    """What all trainings on a table cost together, by unit.

    What left without noise hides nothing. It counts as unit PARTY, and tells of rows, too: a training that hides rows
    cannot take that back.
    """
    found = together(costs, policy.most_delta, relation(policy))
    bare, rows = sum(cost.times for cost in costs if cost.event.bare), found.get(Unit.ROW)
    if bare and rows is not None:
        found[Unit.ROW] = replace(
            rows, epsilon=math.inf, accountant="no", why=f"{bare:,} releases about the same rows left without noise"
        )
    return found


def check_unit(policy: Policy, costs: Sequence[Cost]) -> None:
    """Refuse a training that hides nothing of the units that the policy names, or something else.

    Raises:
        Refused: with the rule, what was asked, what is allowed and which line to change.
    """
    if not policy.unit:
        return
    allowed = ", ".join(policy.unit)
    for cost in costs:
        unit = cost.event.unit.value
        if cost.event.bare:
            raise Refused(
                f"unit: training would hide nothing, the policy needs it to hide a unit of {allowed}; "
                + policy.where("unit", [])
            )
        if unit not in policy.unit:
            raise Refused(
                f"unit: training would hide the unit {unit}, the policy allows {allowed}; "
                + policy.where("unit", [*policy.unit, unit])
            )


def check_table(policy: Policy, table: str, others: Sequence[Entered], costs: Sequence[Cost]) -> None:
    """Refuse a training that would bring the table beyond what the policy allows.

    Raises:
        Refused: with the rule, what all trainings would cost together, what is allowed and which line to change.
    """
    if not policy.most_epsilon:
        return
    before = [cost for run in others for cost in run.costs]
    units = {cost.event.unit for cost in costs}
    figures = of_table([*before, *costs], policy)
    for unit, figure in figures.items():
        if unit in units and not figure.epsilon <= policy.most_epsilon:
            earlier = of_table(before, policy).get(unit)
            raise Refused(_too_much(policy, table, figure, earlier, len(others)))


def _too_much(policy: Policy, table: str, figure: Together, earlier: Together | None, runs: int) -> str:
    limit = policy.where("most_epsilon", math.ceil(figure.epsilon * 100) / 100) if math.isfinite(figure.epsilon) else ""
    told = f"most_epsilon: this training would bring table {table!r} to {figure}"
    if earlier is not None:
        told += f"; of that, {runs} earlier runs cost {earlier}"
    told += f"; the policy allows epsilon {policy.most_epsilon:g} for the table"
    return f"{told}; {limit or 'without noise there is no budget to keep to: ' + policy.where('most_epsilon', 0)}"


@dataclass(frozen=True)
class TableBudget:
    """What a table has cost up to now, by unit, and what its owner's policy allows."""

    table: str
    policy: Policy
    runs: tuple[Entered, ...]
    predictions: tuple[int, int, int]  # rows, predictions, those of the row that has most

    @classmethod
    def read(cls, ledger: TableLedger, table: str, policy: Policy) -> TableBudget:
        """From the organisation's file."""
        return cls(table, policy, tuple(ledger.runs(table)), ledger.predictions(table))

    @property
    def figures(self) -> dict[Unit, Together]:
        """What all runs cost together."""
        return of_table([cost for run in self.runs for cost in run.costs], self.policy)

    def of_run(self, run: Entered) -> dict[Unit, Together]:
        """What one run cost, or was agreed to cost."""
        return together(run.costs, self.policy.most_delta, relation(self.policy))

    @property
    def caption(self) -> str:
        """What belongs to the figures of `rows`."""
        relations = f"neighbours of unit PARTY: {relation(self.policy)}"
        return f"Runs on this table (delta {self.policy.most_delta:g}, {relations}; {NOT_COVERED})"

    def rows(self) -> list[tuple[str, ...]]:
        """A line per run and unit, in the order of `COLUMNS`."""
        return [
            (
                run.run,
                run.began[:10],
                "over" if run.ended else "agreed on",
                f"{run.rows:,}",
                run.columns[:8],
                unit.value,
                f"{figure.releases:,}",
                f"{figure.epsilon:.3f} ({figure.accountant})" if math.isfinite(figure.epsilon) else "no bound",
            )
            for run in self.runs
            for unit, figure in self.of_run(run).items()
        ]

    def lines(self) -> list[str]:
        """What the figures are, for people."""
        told = [f"table {self.table!r}: {len(self.runs)} runs"]
        told += [f"all together: {figure}" for figure in self.figures.values()] or ["nothing was spent on it"]
        limit = f"epsilon {self.policy.most_epsilon:g}, by unit" if self.policy.most_epsilon else "no limit"
        told.append(f"the policy allows: {limit} (most_epsilon), delta {self.policy.most_delta:g}")
        rows, times, most = self.predictions
        told.append(
            f"predicted, which no noise covers: {rows:,} rows, {times:,} times in all, one row {most:,} times at most"
        )
        return [*told, f"{NOT_COVERED}; new rows do not begin a new count"]

    def to_json(self) -> dict[str, object]:
        """Plain values; no epsilon without what belongs to it, None: there is no bound."""
        rows, times, most = self.predictions
        return {
            "table": self.table,
            "together": [_plain(figure) for figure in self.figures.values()],
            "most_epsilon": self.policy.most_epsilon or None,
            "most_delta": self.policy.most_delta,
            "runs": [
                {
                    "run": run.run,
                    "began": run.began,
                    "ended": run.ended or None,
                    "rows": run.rows,
                    "columns": run.columns,
                    "spent": [_plain(figure) for figure in self.of_run(run).values()],
                }
                for run in self.runs
            ],
            "predicted": {"rows": rows, "times": times, "most": most},
            "not_covered": NOT_COVERED,
        }


def _plain(figure: Together) -> dict[str, object]:
    facts = {name: getattr(figure, name) for name in ("delta", "neighbours", "accountant", "releases", "why")}
    epsilon = figure.epsilon if math.isfinite(figure.epsilon) else None
    return {"unit": figure.unit.value, "epsilon": epsilon, **facts}


def note_figures(ledger: TableLedger, table: str, policy: Policy) -> None:
    """Leave what a table has cost for those who watch; where no accountant can say it, nothing is left."""

    def computed() -> list[dict[str, object]]:
        found = TableBudget(table, policy, tuple(ledger.runs(table)), (0, 0, 0))
        return [_plain(figure) for figure in found.figures.values()]

    with suppress(ColonnadeError):
        write_note(ledger.path, table, f"delta {policy.most_delta:g}, {relation(policy)}", computed)


def ledger_beside(folder: Path) -> Path:
    """Where a table ledger is, if nobody says: beside the folder of the run, not in it."""
    return folder.with_name(f"{folder.name}.spent.db")
