"""What a party keeps for its people when training is over: its part of the model, and everything that left it.

party.json                   which run, what was agreed on, how it ended, counts of releases
model.safetensors            the party's part of the kept model
columns.skops                how its table became the columns that the model reads
training_rows.safetensors    after a training with noise: digests of its own training rows, which the part refuses
ledger.jsonl                 one line per release: time, purpose, rows, mechanism and the SHA-256 of the message
ledger.head.json             the end of its chain, signed
drift.json                   how its training rows were distributed, as counts in bins, for `colonnade drift`

`Part.load` reads the part. The store stays what the process goes on from; these files are for reading.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from colonnade.data.drift import Reference
from colonnade.deploy.signing import write_head
from colonnade.errors import RunError, Unwritable
from colonnade.part import PARTY, Part
from colonnade.privacy.chain import LEDGER
from colonnade.privacy.ledger import Ledger
from colonnade.saved import append_lines, last_hash, write_ledger
from colonnade.store import Store
from colonnade.written import replace_file

DRIFT = "drift.json"


def export_ledger(store: Store, ledger: Ledger) -> bool:
    """Bring the files up to date with what left since they were written: the model is the same, the ledger longer.

    Whether that could be: not if the files are not as they were left.
    """
    folder = store.path.parent
    try:
        new = store.lines_after(last_hash(folder / LEDGER))
        about = json.loads((folder / PARTY).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError, RunError):
        return False
    if new is None:
        return False
    try:
        append_lines(folder / LEDGER, new)
        signed = store.signed_head()
        if signed is not None:
            write_head(folder, signed)
        text = json.dumps({**about, "releases": _counts(ledger)}, indent=1) + "\n"
        replace_file(folder / PARTY, text.encode())
    except OSError as error:
        raise _unwritable(folder, error) from None
    return True


def export(
    folder: Path,
    about: Mapping[str, object],
    part: Part,
    ledger: Ledger,
    signed: Mapping[str, Any] | None = None,
    reference: Reference | None = None,
) -> None:
    """Write the files, each whole or not at all, party.json last; `about`: what it says besides of the run."""
    try:
        write_ledger(folder, ledger)
        if signed is not None:
            write_head(folder, signed)
        if reference is not None and not (folder / DRIFT).exists():  # the training rows do not change any more
            replace_file(folder / DRIFT, (json.dumps(reference.to_json()) + "\n").encode(), mode=0o600)
        part.save(folder, {**about, "releases": _counts(ledger)})
    except (OSError, Unwritable) as error:
        raise _unwritable(folder, error) from None


def _counts(ledger: Ledger) -> list[list[object]]:
    return [[owner, purpose.value, number] for (owner, purpose), number in ledger.counts().items()]


def _unwritable(folder: Path, error: Exception) -> Unwritable:
    why = error.strerror if isinstance(error, OSError) else str(error)
    return Unwritable(
        f"the files of the party cannot be written to {folder} ({why}); "
        "nothing is lost: see to the disk and start again"
    )
