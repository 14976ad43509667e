"""All attacks on one recorded training, in one list: what a party learns, then what the coordinator learns."""

from __future__ import annotations

from collections.abc import Callable

from colonnade.audit.completion import complete_model
from colonnade.audit.gradients import read_replies
from colonnade.audit.labels import infer_labels
from colonnade.audit.membership import membership_of_a_party, membership_of_a_row
from colonnade.audit.reconstruction import reconstruct
from colonnade.audit.table import Finding
from colonnade.audit.transcript import Transcript
from colonnade.privacy.declared import Declared
from colonnade.privacy.mechanism import Unchanged
from colonnade.run import Run


def attack(transcript: Transcript, seed: int = 0, finished: Run | None = None) -> list[Finding]:
    """Every attack that the training gives an opening to; of the parties, the one that fares worst.

    Where the transcript is a short retraining, `finished` is the run it repeats: rows are members of that one's model.
    """
    findings: list[Finding | None] = []
    if not transcript.run.method.pools:  # a reference that puts all columns in one place has nothing to hide
        formula = infer_labels(transcript)  # exact where there is one
        findings.append(formula or _worst(transcript, lambda party: read_replies(transcript, party, seed=seed)))
        findings.append(_worst(transcript, lambda party: complete_model(transcript, party, seed=seed)))
        findings.append(_worst(transcript, lambda party: reconstruct(transcript, party, seed=seed)))
        findings += _parties(transcript)
    findings.append(membership_of_a_row(finished or transcript.run, transcript.federation))
    return [finding for finding in findings if finding is not None]


def _worst(transcript: Transcript, try_on: Callable[[str], Finding | None]) -> Finding | None:
    tried = [finding for party in transcript.federation.names if (finding := try_on(party)) is not None]
    return max(tried, key=lambda finding: finding.score, default=None)


def _parties(transcript: Transcript) -> list[Finding | None]:
    """The first party that uploaded, without and, where there is some, with the protection of the run."""
    found: list[Finding | None] = []
    for party, uploads in transcript.clean.items():
        found.append(membership_of_a_party(uploads, Unchanged(), party, games=10))
        if not transcript.mechanism.event.bare and not isinstance(transcript.mechanism, Declared):  # noise at the gate
            found.append(membership_of_a_party(uploads, transcript.mechanism, party))
        break
    return found
