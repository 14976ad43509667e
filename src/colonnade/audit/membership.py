"""Membership: was this row trained on, and does this party take part?

A row: models fit the rows they were trained on better, so a threshold on the joint model's loss tells training rows
from test rows. A party: the game of the audit, played with the uploads of a real run instead of a canary.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from colonnade.audit.bugs import clipped
from colonnade.audit.table import Finding
from colonnade.federation import Federation
from colonnade.privacy.accounting import shift_of
from colonnade.privacy.ledger import Ledger
from colonnade.privacy.mechanism import Mechanism
from colonnade.run import Run
from colonnade.tasks import Task

GAMES = 200  # in each of the two worlds
MOST_RELEASES = 10  # of a party's uploads that one game plays: they are large
AFTER_THE_RUN = 2**24  # round numbers of the games: a seeded mechanism must not repeat the noise of the run


def membership_of_a_row(run: Run, federation: Federation) -> Finding | None:
    """AUC of the joint model's loss as a sign of a training row; None without test rows to compare with."""
    if run.method.pools and len(federation.parties) > 1:
        federation = federation.pooled()
    train, test = federation.split.train, federation.split.test
    if not len(test):
        return None
    rows = torch.cat([train, test])
    # The audit looks on: it must not write into the run's ledger.
    outside = replace(run.model, ledger=Ledger(), path=None)
    logits = outside.logits(federation.select(rows))
    losses = row_losses(federation.task, logits, federation.labels[rows])
    return Finding(
        "membership of a row",
        auc(-losses[: len(train)], -losses[len(train) :]),
        0.5,
        len(rows),
        "chance that a training row has a smaller loss than a test row",
        measure="AUC",
        attacker="whoever may ask for predictions and knows the label",
    )


def row_losses(task: Task, logits: Tensor, truth: Tensor) -> Tensor:
    """The task's loss of each row (B,), up to a constant."""
    return task.losses(logits.double(), task.expand(truth, torch.float64)).sum(dim=1)


def auc(members: Tensor, others: Tensor) -> float:
    """The chance that a member scores higher than another; ties count half."""
    ordered = others.sort().values
    below = torch.searchsorted(ordered, members, side="left")
    upto = torch.searchsorted(ordered, members, side="right")
    return float((below + upto).double().mean() / (2 * len(others)))


def membership_of_a_party(
    uploads: Sequence[Mapping[str, Tensor]], mechanism: Mechanism, party: str, games: int = GAMES
) -> Finding:
    """AUC of telling a party's real uploads (B, ...) from zero ones, after a mechanism; the player knows both."""
    played = uploads[:MOST_RELEASES]
    event = mechanism.event
    norm = event.clipped.clip if event.clipped else math.inf
    short = [clipped({n: v[None] for n, v in upload.items()}, norm) for upload in played]
    worlds = []
    for world in (0, 1):
        present = world == 1
        worlds.append([_score(mechanism, played, short, party, 2 * game + world, present) for game in range(games)])
    what = f"chance to tell {len(played)} uploads of {party!r} from none at all"
    if event.clipped:
        most = 0.5 * math.erfc(-shift_of(event.clipped.sigma, len(played)) / 2)  # Phi(mu / sqrt 2)
        what += f"; uploads of norm C or more would give {most:.3f} in the long run"
    name = f"membership of a party, {'without noise' if event.bare else event.name}"
    score = auc(torch.tensor(worlds[1]), torch.tensor(worlds[0]))
    return Finding(name, score, 0.5, 2 * games, what, measure="AUC", attacker="the coordinator")


def _score(
    mechanism: Mechanism,
    uploads: Sequence[Mapping[str, Tensor]],
    short: Sequence[Mapping[str, Tensor]],
    party: str,
    game: int,
    present: bool,
) -> float:
    """The likelihood-ratio score of one game, up to a constant."""
    total = 0.0
    for place, (upload, expected) in enumerate(zip(uploads, short, strict=True)):
        uploaded = {name: value[None] if present else torch.zeros_like(value)[None] for name, value in upload.items()}
        out = mechanism(uploaded, [party], AFTER_THE_RUN + game * len(uploads) + place, "TRAIN.0")
        total += sum(float((out[name].double() * expected[name].double()).sum()) for name in out)
    return total
