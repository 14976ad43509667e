"""`colonnade forget`: a person withdraws. The rows are never used again, and the models that saw them are named."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from colonnade.cli.align import Config
from colonnade.cli.operating import Journal, operated
from colonnade.cli.options import AsJson, Overrides
from colonnade.cli.screen import Screen
from colonnade.errors import ColonnadeError, ConfigError

if TYPE_CHECKING:
    from colonnade.deploy.sections import CoordinatorFile, PartyFile
    from colonnade.deploy.withdrawal.marks import Marked
    from colonnade.deploy.withdrawal.side import Side
    from colonnade.engines.message import Notify

FILES = (
    "the table was not changed: it is its owner's; a line may be taken out once no model that was trained with it is "
    "needed any more",
    "what stays: the ids in the list and in the alignment, which keep the rows out; numbers computed from the rows in "
    "the stores of runs that trained with them, until their folders are deleted; releases cannot be called back",
)


def forget(
    config: Config,
    id: Annotated[
        list[str] | None, typer.Option(metavar="ID", help="A person's id; may be repeated.", show_default=False)
    ] = None,
    ids: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Ids: a table, or one per line.", show_default=False)
    ] = None,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Kept in the list here; it does not travel.")] = "",
    patience: Annotated[
        float, typer.Option(min=0, help="At the label holder: seconds to wait for the parties; 0: tell them later.")
    ] = 10,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """People withdraw: their rows are left out of all alignments, trainings and predictions from now on, everywhere.

    Their ids go to a list of this organisation, withdrawn.json. Other organisations are told the numbers of the aligned
    rows, signed and encrypted. Models that trained with the rows are marked, and the command says what a retraining
    changes. Without --id and --ids: who withdrew so far, and who has confirmed. There is no way back.

    Example: colonnade forget party.toml --id C1047 --reason "letter of 3 May"
    """
    from colonnade.deploy.sections import read_coordinator_file, read_party_file, role_of

    holder = role_of(config) == "coordinator"
    read = read_coordinator_file(config, overrides) if holder else read_party_file(config, overrides)
    screen = Screen(as_json)
    with operated(Journal("text", quiet=as_json)) as notify:
        from colonnade.deploy.withdrawal.start import side_of

        side = side_of(read)
        asked = _ids(read, id, ids)
        found = _enter(read, side, asked, reason)
        if holder and asked and patience:
            found.answers.update(_ask(read, notify, patience))
    _show(screen, found, side, holder)


@dataclass(frozen=True)
class Forgotten:
    """What became of a withdrawal."""

    asked: int
    new: int  # ids that were not in the list
    aligned: int  # of all ids in the list, those that have a row
    people: int  # in the list
    marked: list[Marked]
    answers: dict[str, str]  # by party "", or why it has not confirmed


def _ids(read: PartyFile | CoordinatorFile, id: list[str] | None, ids: Path | None) -> list[str]:
    from colonnade.cli.predict_ids import read_wanted

    section = read.party if hasattr(read, "party") else read.coordinator
    named = [*(id or ()), *(read_wanted(ids, section.id) if ids is not None else ())]
    if (id or ids is not None) and not [one for one in named if one]:
        raise ConfigError("there is no id to forget; say --id ID, or --ids with a file that has some")
    return named


def _enter(read: PartyFile | CoordinatorFile, side: Side, asked: list[str], reason: str) -> Forgotten:
    from colonnade.align.files import ABOUT
    from colonnade.align.ids import read_ids
    from colonnade.deploy.withdrawal.side import Aligned
    from colonnade.withdrawn import read_withdrawn, withdraw

    alignment = Aligned.at(side.alignment) if (side.alignment / ABOUT).exists() else None
    known = {*(alignment.whole.ids if alignment and asked else ()), *read_withdrawn(side.file).ids}
    if strange := [one for one in asked if one not in known]:
        section = read.party if hasattr(read, "party") else read.coordinator
        there = {*read_ids(section.table, section.id, text=section.text)}
        strange = [one for one in strange if one not in there]
    if strange:
        raise ConfigError(
            f"{len(strange)} of {len(asked)} ids are neither in the table nor aligned (first: {strange[0]!r}); nobody "
            "was forgotten: see how they are written there"
        )
    new = withdraw(side.file, asked, reason=reason) if asked else []
    people = read_withdrawn(side.file)
    marked = side.mark(alignment) if alignment is not None else []
    rows = len(alignment.rows_of(people.ids)) if alignment is not None else 0
    return Forgotten(len(asked), len(new), rows, len(people.people), marked, {})


def _ask(read: PartyFile | CoordinatorFile, notify: Notify, patience: float) -> Mapping[str, str]:
    """Ask the parties, for so long; a server that is not there must not keep the command."""
    from colonnade.align.files import ABOUT
    from colonnade.deploy.sections import CoordinatorFile
    from colonnade.deploy.withdrawal.start import ask_parties

    if not isinstance(read, CoordinatorFile) or not (read.coordinator.alignment / ABOUT).exists():
        return {}
    answers = dict.fromkeys(read.coordinator.parties, "the server does not answer; it is told later")

    def work() -> None:
        try:
            answers.update(ask_parties(read, notify, patience))
        except ColonnadeError as error:
            answers.update(dict.fromkeys(read.coordinator.parties, str(error)))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(patience + 5)
    return dict(answers)


def _show(screen: Screen, found: Forgotten, side: Side, holder: bool) -> None:
    from colonnade.deploy.withdrawal.waiting import read_waiting
    from colonnade.withdrawn import read_withdrawn

    waiting = read_waiting(side.file)
    confirmed = read_withdrawn(side.file).confirmed
    shown = {who: {**vars(told)} for who, told in confirmed.items()}
    facts = {name: getattr(found, name) for name in ("asked", "new", "aligned", "people", "answers")}
    lists = {"marked": [m.to_json() for m in found.marked], "waiting": [one.to_json() for one in waiting]}
    screen.emit({**facts, **lists, "confirmed": shown, "list": str(side.file)})
    if found.asked:
        before = found.asked - found.new
        there = f"; {before:,} were there" if before else ""
        screen.notify(f"entered in {side.file}: {_people(found.new)}{there}")
    screen.notify(f"withdrawn so far: {_people(found.people)}, {found.aligned:,} with an aligned row")
    for one in (*waiting, *found.marked):
        screen.notify(str(one))
    for line in _retraining(found.marked, holder) if found.marked else ():
        screen.notify(line)
    for who, why in found.answers.items():
        screen.notify(f"{who}: {why or 'has confirmed'}")
    for who in sorted({*confirmed} - {*found.answers}):
        told = confirmed[who]
        screen.notify(f"{who}: {told.note or f'confirmed {told.rows:,} rows on {told.time}'}")
    if not holder and found.asked:
        screen.notify("the label holder and the others are told when it asks; this party refuses these rows already")
    for line in FILES if found.asked else ():
        screen.notify(line)


def _people(number: int) -> str:
    return "1 person" if number == 1 else f"{number:,} people"


def _retraining(marked: list[Marked], holder: bool) -> list[str]:
    """What a retraining changes, and what does not change any more."""
    models = [one for one in marked if one.trained]
    if not models:
        return []
    how = "colonnade models --train" if holder else "the label holder decides when"
    told = f"a retraining leaves them out ({how}); it changes {len(models):,} of the models here: each is trained anew"
    bounded = sorted({one.promise for one in models if one.promise})
    lines = [told + ", without these rows"]
    lines += [f"what {_names(models, text)} says of one such row is bounded: {text}" for text in bounded]
    if bare := [one.run for one in models if not one.promise]:
        lines.append(f"nothing bounds what {', '.join(bare)} says of one such row: it has no promise of unit ROW")
    return lines


def _names(models: list[Marked], promise: str) -> str:
    return ", ".join(one.run for one in models if one.promise == promise)
