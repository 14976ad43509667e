"""From the configuration files to a question or an answer: what `colonnade worth` calls between organisations."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from colonnade.align.files import Alignment, read_alignment
from colonnade.data.beside import Beside
from colonnade.deploy.label_beside import labels_beside
from colonnade.deploy.line import open_line
from colonnade.deploy.policy import read_policy
from colonnade.deploy.sections import CoordinatorSection
from colonnade.deploy.settings import PartyConfig, read_coordinator, read_party, split_of
from colonnade.deploy.tables import LabelTable, PartyTable
from colonnade.deploy.withdrawal.limits import people_at
from colonnade.deploy.worth.candidate import Candidate, Told, answer_question
from colonnade.deploy.worth.folder import Kept
from colonnade.deploy.worth.label_holder import ask_candidates
from colonnade.engines.message import Notify
from colonnade.errors import ConfigError
from colonnade.folder import claimed
from colonnade.joining.judge import Judge
from colonnade.joining.prospect import Prospect, Prospects, released_sentence
from colonnade.joining.question import EPSILON, ROWS, Labelled, ask, draw_sample
from colonnade.joining.sides import sides_of
from colonnade.withdrawn import read_withdrawn


@dataclass(frozen=True)
class Wanted:
    """What the label holder asks for."""

    candidates: tuple[str, ...] = ()  # empty: every party that is not of its own organisation
    own: Path | None = None  # party.toml of its own columns
    alone: bool = False  # it has no columns of its own, or leaves them out
    epsilon: float = EPSILON
    rows: int = ROWS
    interactions: int = 0  # columns of its own that interactions are asked about
    patience: float = 600.0


def ask_from(config: Path, overrides: list[str] | None, wanted: Wanted, notify: Notify) -> Prospects:
    """Ask the candidates of coordinator.toml, and judge their answers."""
    read = read_coordinator(config, overrides)
    c, credentials = read.coordinator, read.credentials()
    candidates, own = _candidates(c, wanted), _own(c, wanted)
    alignment = read_alignment(c.alignment)
    beside = Beside(c.weights, split_of(c, protected=True), c.by)
    gone = read_withdrawn(c.withdrawn).ids
    table = LabelTable.read(c.table, c.id, c.label, c.task, alignment, beside, c.classes, c.text, withdrawn=gone)
    split = table.split
    labelled = Labelled(table.labels, table.task, split.train, table.weights, split.stratified)
    columns = None if own is None else _columns(own, alignment, split.train, alignment.complete)
    sides = _sides(columns, split.train, wanted.interactions)
    with claimed(c.worth):
        kept, sample = Kept.read(c.worth), draw_sample(split.train, wanted.rows, 0)
        key = kept.key(labelled, sample, wanted.epsilon, candidates, sides)
        question = ask(c.run, candidates, labelled, sample, wanted.epsilon, key, kept.ledger, sides)
        with open_line(credentials, c.run, notify, candidates, "worth") as line:
            kept.write()  # before anything leaves
            found = ask_candidates(
                line, credentials, c.run, candidates, question, alignment.digest, wanted.patience, notify
            )
        judge, down = Judge.of(labelled, columns, sample, sides=sides), len(question.release.payload)
        prospects = tuple(
            Prospect(name, judge.gain(levels), down, found.sizes[name], judge.interaction(levels))
            for name, levels in found.levels.items()
        )
        said = released_sentence(len(sample.told), candidates, question, simulated=False)
        holder = own.party.name if own is not None else "the label holder"
        rows = len(sample.told), len(sample.judged)
        told = Prospects(holder, prospects, wanted.epsilon, kept.spent, *rows, said, kept.ledger, found.failed)
        kept.keep(told)
        return told


def answer_from(config: Path, overrides: list[str] | None, patience: float, notify: Notify) -> Told:
    """Answer one question as the party of party.toml."""
    read = read_party(config, overrides)
    p, credentials = read.party, read.credentials()
    alignment, policy = read_alignment(p.alignment), read_policy(p.policy)

    def columns(train: Tensor, rows: int) -> Tensor:
        return _columns(read, alignment, train, rows)

    withdrawn = people_at(p.withdrawn, p.alignment)
    candidate = Candidate(columns, alignment.complete, alignment.digest, policy, withdrawn)
    with claimed(p.worth), open_line(credentials, p.one_run, notify, what="worth") as line:
        return answer_question(line, credentials, p.one_run, candidate, Kept.read(p.worth), patience, notify)


def _candidates(c: CoordinatorSection, wanted: Wanted) -> tuple[str, ...]:
    others = tuple(name for name in c.parties if name not in c.own)
    chosen = wanted.candidates or others
    strange = next((name for name in chosen if name not in others), None)
    if strange is not None:
        raise ConfigError(
            f"--candidate {strange}: needed a party of [coordinator] that is not own: {', '.join(others)}"
        )
    if not chosen:
        raise ConfigError("[coordinator] own names every party; there is no candidate to ask")
    return chosen


def _own(c: CoordinatorSection, wanted: Wanted) -> PartyConfig | None:
    """The files of the label holder's own columns; whether it has any must be said where it may."""
    if wanted.own is not None and wanted.alone:
        raise ConfigError("say either --own, the party.toml of the label holder's own columns, or --without-own")
    if wanted.own is None:
        if c.own and not wanted.alone:
            raise ConfigError(
                f"what a candidate adds depends on the columns the label holder has: say --own with the party.toml "
                f"of {' or '.join(c.own)}, or --without-own to leave them out"
            )
        return None
    read = read_party(wanted.own)
    if read.party.name not in c.own:
        raise ConfigError(f"--own {wanted.own}: {read.party.name!r} is not among own of [coordinator]")
    return read


def _columns(read: PartyConfig, alignment: Alignment, train: Tensor, rows: int) -> Tensor:
    gone = torch.from_numpy(alignment.rows_of(read_withdrawn(read.party.withdrawn).ids))
    return _table(read, alignment).columns(train, rows, gone).values


def _sides(columns: Tensor | None, train: Tensor, interactions: int) -> Tensor | None:
    if not interactions:
        return None
    if columns is None:
        raise ConfigError("--interactions asks about columns of the label holder: say --own with its party.toml")
    return sides_of(columns, train, interactions)


def _table(read: PartyConfig, alignment: Alignment) -> PartyTable:
    p = read.party
    return PartyTable(
        p.name,
        p.table,
        p.id,
        alignment,
        p.categories,
        read.columns,
        p.text,
        label=p.label,
        predicted=labels_beside(read),
    )
