"""What one organisation's folder has of a run, for an audit: the label holder's or a party's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from colonnade.errors import RunError

if TYPE_CHECKING:
    from colonnade.audit.elsewhere import OwnView
    from colonnade.deploy.agreement import Agreement
    from colonnade.privacy.ledger import Entry
    from colonnade.run import Run


def is_party(folder: Path) -> bool:
    """Whether it is the folder of a party of separate organisations."""
    from colonnade.deploy.party import STORE
    from colonnade.run import RECORD

    return (folder / STORE).is_file() and not (folder / RECORD).is_file()


def place_of_party(folder: Path) -> OwnView:
    """What a party has: the agreement in its store, and its ledger."""
    from colonnade.audit.elsewhere import OwnView
    from colonnade.deploy.party import STORE
    from colonnade.privacy.ledger import Ledger
    from colonnade.wire.traffic import Traffic

    agreement, ledger = _stored(folder / STORE)
    proposal, schema = agreement.proposal, agreement.schema(torch.device("cpu"))
    owners = {entry.owner for entry in ledger}
    if len(owners) != 1:
        raise RunError(f"{folder} has releases of {len(owners)} parties; needed one that took part in a training")
    return OwnView(
        owners.pop(),
        proposal.method(),
        proposal.privacy(),
        schema,
        proposal.schedule(),
        Ledger(ledger),
        Traffic(()),
        {"rounds": proposal.training().rounds},
        len(proposal.train),
        planned=proposal.training().rounds,
    )


def place_of_holder(folder: Path, run: Run, releases: Sequence[Sequence[str | int]]) -> OwnView:
    """What the label holder has: the agreement in its store, its own ledger, and the bytes of everybody."""
    from colonnade.audit.elsewhere import OwnView
    from colonnade.audit.examine import counts_of
    from colonnade.run import STORE
    from colonnade.wire.messages import COORDINATOR

    agreement, _ = _stored(folder / STORE)
    proposal, rows = agreement.proposal, run.about["rows"]
    return OwnView(
        COORDINATOR,
        run.method,
        run.privacy,
        agreement.schema(torch.device("cpu")),
        proposal.schedule(),
        run.ledger,
        run.traffic,
        {"rounds": run.result["rounds"]},
        rows["train"] + rows["validation"],
        counts_of({"releases": releases}),
        proposal.training().rounds,
    )


def _stored(path: Path) -> tuple[Agreement, list[Entry]]:
    """The agreement and the ledger of a store."""
    from colonnade.deploy.agreement import Agreement
    from colonnade.store import Store

    if not path.is_file():
        raise RunError(f"{path} is not there; an audit needs it: what the organisations agreed on is kept in it")
    store = Store(path)
    try:
        if not store.begun:
            raise RunError(f"{path.parent} has agreed to nothing yet; audit it after the training")
        saved = store.snapshot()
        return Agreement.from_json(store.about()["agreement"]), saved.ledger if saved else []
    finally:
        store.close()
