"""`colonnade runs`, `approve` and `refuse`: what a party is asked for, and what its people decide about it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from colonnade.cli.options import AsJson, Overrides
from colonnade.cli.screen import Screen
from colonnade.withdrawn import Mark

if TYPE_CHECKING:
    from colonnade.deploy.decision import Decision
    from colonnade.service.listing import Listed

Config = Annotated[Path, typer.Argument(metavar="PARTY.toml", help="Whose runs.")]
Run = Annotated[str, typer.Argument(metavar="RUN", help="A run's name, or withdrawal:WHO, as colonnade runs shows it.")]
Whose = Annotated[
    Path, typer.Option("--config", metavar="PARTY.toml", help="Who decides; about a withdrawal also COORDINATOR.toml.")
]


def runs(config: Config = Path("party.toml"), overrides: Overrides = None, as_json: AsJson = False) -> None:
    """List the runs of a party: what is proposed to it, what waits for a person, what trains, what is finished.

    Example: colonnade runs party.toml
    """
    from colonnade.deploy.sections import read_party_file
    from colonnade.deploy.withdrawal.waiting import read_waiting
    from colonnade.service.listing import list_runs

    read, screen = read_party_file(config, overrides), Screen(as_json)
    found = list_runs(read.party.folder, read.credentials())
    waiting, runs = read_waiting(read.party.withdrawn), [listed.to_json() for listed in found]
    screen.emit({"party": read.party.name, "runs": runs, "withdrawals": [one.to_json() for one in waiting]})
    if not found:
        screen.notify(f"no run has been proposed to {read.party.name}")
    for listed in found:
        for line in _lines(listed):
            screen.notify(line)
    for one in waiting:
        screen.notify(str(one))


def approve(run: Run, config: Whose = Path("party.toml"), overrides: Overrides = None, as_json: AsJson = False) -> None:
    """Approve the proposal of a run that waits for a person; signed with the party's key and kept.

    Example: colonnade approve churn
    """
    _decide(run, config, overrides, Screen(as_json), None)


def refuse(
    run: Run,
    because: Annotated[str, typer.Option(metavar="TEXT", help="Why; the label holder reads it.", show_default=False)],
    config: Whose = Path("party.toml"),
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Refuse the proposal of a run; signed with the party's key and kept. The label holder reads the reason.

    Example: colonnade refuse churn --because "ask again after the audit"
    """
    _decide(run, config, overrides, Screen(as_json), because)


def _decide(run: str, config: Path, overrides: list[str] | None, screen: Screen, because: str | None) -> None:
    from colonnade.deploy.decision import Decision, person
    from colonnade.deploy.sections import read_party_file
    from colonnade.deploy.withdrawal.waiting import PREFIX
    from colonnade.service.listing import decide_about

    decision = Decision(run, "", because is None, because or "", by=person())
    if run.startswith(PREFIX):
        return _decide_withdrawal(decision, config, overrides, screen)
    read = read_party_file(config, overrides)
    found = decide_about(read.party.folder, read.credentials(), decision)
    told = "approved" if decision.approved else "refused"
    screen.emit({"run": run, "proposal": found.digest, "decision": told, "because": because or "", "by": decision.by})
    screen.notify(f"{told}: run {run}, proposal {found.digest[:12]}; signed by {read.party.name}")
    return screen.notify(
        "the process of the party reads it when the label holder asks again, within seconds if it waits"
    )


def _decide_withdrawal(decision: Decision, config: Path, overrides: list[str] | None, screen: Screen) -> None:
    """People whom another organisation withdrew, more than may be unasked: here, also at the label holder."""
    from colonnade.deploy.sections import read_coordinator_file, read_party_file, role_of
    from colonnade.deploy.withdrawal.side import decide_withdrawal
    from colonnade.deploy.withdrawal.start import side_of

    holder = role_of(config) == "coordinator"
    read = read_coordinator_file(config, overrides) if holder else read_party_file(config, overrides)
    found = decide_withdrawal(side_of(read), decision.run, decision, read.credentials())
    told = "approved" if decision.approved else "refused"
    screen.emit({**found.to_json(), "decision": told, "because": decision.because, "by": decision.by})
    screen.notify(f"{told}: {found.name}, {len(found.ids):,} of the people here; signed")
    if decision.approved:
        screen.notify("their rows are not used here any more; other organisations are told as ever")


def _lines(listed: Listed) -> list[str]:
    facts = listed.facts
    rounds = f"round {listed.round} of {facts.get('rounds')}" if listed.state == "training" else ""
    told = ", ".join(text for text in (rounds, listed.reason) if text)
    lines = [f"{listed.run}: {listed.state}" + (f" ({told})" if told else "")]
    if listed.decided:
        lines.append(f"  {listed.decided}")
    if listed.withdrawn:
        lines.append(f"  {Mark(listed.withdrawn, '')}: see colonnade forget")
    if facts:
        who = f"with {', '.join(facts.get('parties') or ())}"
        lines.append(f"  {facts.get('method')}, {facts.get('rounds'):,} rounds, {facts.get('rows'):,} rows, {who}")
    if facts.get("privacy"):
        lines.append(f"  protection: {facts['privacy']}")
        lines.append(f"  labels: {facts.get('labels') or 'exposure ' + str(facts.get('label_exposure'))}")
    lines += [f"  leaves: {text}" for text in listed.leaves]
    if listed.state == "waits for approval":
        lines.append(f"  decide: colonnade approve {listed.run}, or colonnade refuse {listed.run} --because TEXT")
    return lines
