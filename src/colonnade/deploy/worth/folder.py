"""What a side of a question keeps: its ledger, and at the label holder the keys of the noise that it drew.

    ledger.jsonl       what left this side, one line per release, written before it leaves
    estimate.json      label holder: what the last question told of its candidates
    questions.json     label holder: of each draw of noise a stamp of labels and rows, epsilon, key, who was asked

The same labels, rows and epsilon are asked about with the same noise again, so that asking twice, or asking another
candidate later, costs no second epsilon. Anything else draws anew, and the epsilons add up.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from torch import Tensor

from colonnade.errors import RunError
from colonnade.joining.prospect import Prospects
from colonnade.joining.question import Labelled, Sample
from colonnade.privacy.ledger import Ledger
from colonnade.saved import LEDGER, read_ledger, write_ledger
from colonnade.written import replace_file

QUESTIONS, ESTIMATE = "questions.json", "estimate.json"


class Draw(BaseModel):
    """Noise that was drawn once."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    stamp: str
    epsilon: Annotated[float, Field(gt=0)]
    key: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$", repr=False)]  # whoever has it can take the noise away
    candidates: Annotated[tuple[str, ...], Field(strict=False)]


_DRAWS = TypeAdapter(list[Draw])


@dataclass
class Kept:
    """The folder of one side, and what is in it."""

    folder: Path
    ledger: Ledger
    draws: list[Draw] = field(default_factory=list)

    @classmethod
    def read(cls, folder: Path) -> Kept:
        """What is there; nothing, the first time.

        Raises:
            RunError: a file is damaged.
        """
        ledger = read_ledger(folder) if (folder / LEDGER).exists() else Ledger()
        path = folder / QUESTIONS
        if not path.exists():
            return cls(folder, ledger)
        try:
            return cls(folder, ledger, _DRAWS.validate_json(path.read_bytes()))
        except ValidationError:
            raise RunError(
                f"{path} is damaged; restore it from a copy: it says which noise was drawn and what epsilon was spent"
            ) from None

    @property
    def spent(self) -> float:
        """The epsilons of all draws together: what one row's label has cost at most."""
        return sum(draw.epsilon for draw in self.draws)

    def key(
        self,
        labelled: Labelled,
        sample: Sample,
        epsilon: float,
        candidates: tuple[str, ...],
        sides: Tensor | None = None,
    ) -> int:
        """The key of the noise for these labels, sides and rows: the one that was drawn before, or a new one."""
        stamp = _stamp(labelled, sample, sides)
        for place, draw in enumerate(self.draws):
            if (draw.stamp, draw.epsilon) == (stamp, epsilon):
                asked = tuple(dict.fromkeys((*draw.candidates, *candidates)))
                self.draws[place] = draw.model_copy(update={"candidates": asked})
                return int(draw.key, 16)
        key = secrets.randbits(128) or 1
        self.draws.append(Draw(stamp=stamp, epsilon=epsilon, key=f"{key:032x}", candidates=candidates))
        return key

    def keep(self, found: Prospects) -> None:
        """What a question told, for people and machines that come later."""
        replace_file(self.folder / ESTIMATE, (json.dumps(dict(found.to_json()), indent=1) + "\n").encode())

    def write(self) -> None:
        """Everything, before anything leaves."""
        if self.draws:
            content = json.dumps([draw.model_dump(mode="json") for draw in self.draws], indent=1)
            replace_file(self.folder / QUESTIONS, content.encode(), mode=0o600)
        write_ledger(self.folder, self.ledger)


def _stamp(labelled: Labelled, sample: Sample, sides: Tensor | None) -> str:
    """Changes with any label or row that the question is about."""
    digest = hashlib.sha256(repr(labelled.task.about()).encode())
    wide = labelled.values.reshape(len(labelled.values), -1)
    for part in (sample.told, sample.judged, wide, *(() if sides is None else (sides,))):
        digest.update(part.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
