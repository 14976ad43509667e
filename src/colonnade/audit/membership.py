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

from colonnade.audit.bound import ceiling
from colonnade.audit.bugs import clipped
from colonnade.audit.claims import Additive, claim_of
from colonnade.audit.game import Pairs
from colonnade.audit.table import Finding
from colonnade.federation import Federation
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
    """AUC of telling a party's real uploads (B, ...) from zero ones, after a mechanism; the player knows both.

    Where the ledger says a ceiling of it, games of both worlds are also compared in pairs: their wins are binomial.
    """
    played = uploads[:MOST_RELEASES]
    claim = claim_of(mechanism.event)
    norm = (claim.clip if isinstance(claim, Additive) else None) or math.inf
    short = [clipped({n: v[None] for n, v in upload.items()}, norm) for upload in played]
    worlds = []
    for world in (0, 1):
        scores = [_score(mechanism, played, short, party, 2 * game + world, world == 1) for game in range(games)]
        worlds.append(torch.tensor(scores, dtype=torch.float64))
    what, most, p = f"chance to tell {len(played)} uploads of {party!r} from none at all", None, None
    if isinstance(claim, Additive):
        cells = [sum(value.numel() for value in upload.values()) for upload in played]
        most = ceiling(math.sqrt(sum(claim.shift(count, 1, "absent") ** 2 for count in cells)))
        wins = float((worlds[1] > worlds[0]).sum() + 0.5 * (worlds[1] == worlds[0]).sum())
        p = Pairs(wins, games, most).p
        what += f"; the ledger allows {most:.3f} in the long run"
    name = f"membership of a party, {'without noise' if mechanism.event.bare else mechanism.event.name}"
    score = auc(worlds[1], worlds[0])
    return Finding(name, score, 0.5, 2 * games, what, "AUC", "the coordinator", most, p)


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
