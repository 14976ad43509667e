"""`colonnade privacy explain`: the statement of a run, or of one party of a run between organisations."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from colonnade.errors import RunError

if TYPE_CHECKING:
    from colonnade.privacy.statement import Statement

OWN_LEDGER = (
    "From the ledger of {party}, one party of the run {run} between {count} parties. What the others released is in "
    "their ledgers."
)


@dataclass(frozen=True)
class Promise:
    """What is printed: a statement, and what stands beside it."""

    statement: Statement
    uploads: str  # what they contributed, in words; empty: there is nothing to say
    gain: Any = None  # the same as plain values
    party: str | None = None  # whose ledger it is from; None: that of the run folder
    whose: str = ""  # the same in words

    def lines(self) -> list[str]:
        """For the screen."""
        return [line for line in (self.whose, *self.statement.lines(), self.uploads) if line]


def promise_of(folder: Path) -> Promise:
    """What the ledger in a folder promises: of a whole run, or of one party.

    Raises:
        RunError: it is neither, its training is not over, or it is damaged.
    """
    from colonnade.cli.audit_place import is_party
    from colonnade.part import PARTY
    from colonnade.report.officer_source import is_party_folder, of_party
    from colonnade.report.privacy import statement_of_run
    from colonnade.report.uploads import told_of_uploads
    from colonnade.run import RECORD, Run

    if is_party_folder(folder) and not (folder / RECORD).is_file():
        found = of_party(folder)
        whose = OWN_LEDGER.format(party=found.party, run=found.name, count=len(found.parties))
        return Promise(found.statement, found.uploads, None, found.party, whose)
    if is_party(folder):
        raise RunError(
            f"{folder} is the folder of a party whose training is not over, so its ledger is not written out yet; "
            "needed that of a finished one. What is spent so far: colonnade status, colonnade privacy budget PARTY.TOML"
        )
    if folder.is_dir() and not (folder / RECORD).is_file():
        raise RunError(
            f"{folder} has neither {RECORD} nor {PARTY}; needed the folder of a run, or a party's own folder after "
            "training (`folder` in party.toml)"
        )
    run = Run.load(folder)
    record = run.record()
    told = told_of_uploads(record).replace("RUN", str(folder))
    return Promise(statement_of_run(run), told, record["result"].get("uploads"))
