"""What a party keeps for its people when training is over: its part of the model, and everything that left it.

party.json           which run, what was agreed on, how it ended, counts of releases
model.safetensors    the party's part of the kept model
columns.skops        how its table became the columns that the model reads
ledger.jsonl         one line per release: purpose, rows, mechanism and the SHA-256 of the message

The store stays what the process goes on from; these files are for reading.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import save
from torch import Tensor

from colonnade.data.columns import ColumnPlan
from colonnade.data.stored import to_bytes
from colonnade.errors import Unwritable
from colonnade.privacy.ledger import Ledger
from colonnade.run import COLUMNS, replace_file

ABOUT, MODEL, LEDGER = "party.json", "model.safetensors", "ledger.jsonl"


def export(
    folder: Path, about: Mapping[str, Any], model: Mapping[str, Tensor], ledger: Ledger, plan: ColumnPlan | None = None
) -> None:
    """Write the files, each whole or not at all, party.json last."""
    flat = {name: value.detach().cpu().contiguous() for name, value in model.items()}
    counts = [[owner, purpose.value, number] for (owner, purpose), number in ledger.counts().items()]
    facts = {**about, "fingerprint": fingerprint(flat), "releases": counts}
    try:
        if plan is not None and not (folder / COLUMNS).exists():  # it never changes
            replace_file(folder / COLUMNS, to_bytes({plan.party: plan}))
        replace_file(folder / MODEL, save(flat))
        replace_file(folder / LEDGER, "".join(json.dumps(release.to_json()) + "\n" for release in ledger).encode())
        replace_file(folder / ABOUT, (json.dumps(facts, indent=1) + "\n").encode())
    except OSError as error:
        raise Unwritable(
            f"the files of the party cannot be written to {folder} ({error.strerror}); "
            "nothing is lost: see to the disk and start again"
        ) from None


def fingerprint(model: Mapping[str, Tensor]) -> str:
    """SHA-256 over every number of a party's part of the model."""
    digest = hashlib.sha256()
    for name, value in sorted(model.items()):
        digest.update(name.encode())
        digest.update(value.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
