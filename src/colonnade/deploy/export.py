"""What a party keeps for its people when training is over: its part of the model, and everything that left it.

party.json                   which run, what was agreed on, how it ended, counts of releases
model.safetensors            the party's part of the kept model
columns.skops                how its table became the columns that the model reads
training_rows.safetensors    after a training with noise: digests of its own training rows, which the part refuses
ledger.jsonl                 one line per release: time, purpose, rows, mechanism and the SHA-256 of the message
ledger.head.json             the end of its chain, signed

`Part.load` reads the part. The store stays what the process goes on from; these files are for reading.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from colonnade.deploy.signing import write_head
from colonnade.errors import Unwritable
from colonnade.part import Part
from colonnade.privacy.ledger import Ledger
from colonnade.saved import write_ledger


def export(
    folder: Path, about: Mapping[str, object], part: Part, ledger: Ledger, signed: Mapping[str, Any] | None = None
) -> None:
    """Write the files, each whole or not at all, party.json last; `about`: what it says besides of the run."""
    counts = [[owner, purpose.value, number] for (owner, purpose), number in ledger.counts().items()]
    try:
        write_ledger(folder, ledger)
        if signed is not None:
            write_head(folder, signed)
        part.save(folder, {**about, "releases": counts})
    except (OSError, Unwritable) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise Unwritable(
            f"the files of the party cannot be written to {folder} ({why}); "
            "nothing is lost: see to the disk and start again"
        ) from None
