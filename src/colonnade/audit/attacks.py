"""All attacks on one recorded training, in one list: what a party learns, then what the coordinator learns."""

from __future__ import annotations

from collections.abc import Callable

from colonnade.audit.completion import complete_model
from colonnade.audit.labels import infer_labels
from colonnade.audit.membership import membership_of_a_party, membership_of_a_row
from colonnade.audit.reconstruction import reconstruct
from colonnade.audit.table import Finding
from colonnade.audit.transcript import Transcript
from colonnade.privacy.mechanism import Unchanged


def attack(transcript: Transcript, seed: int = 0) -> list[Finding]:
    """Every attack that the training gives an opening to; of the parties, the one that fares worst."""
    findings: list[Finding | None] = []
    if not transcript.run.method.pools:  # a reference that puts all columns in one place has nothing to hide
        findings.append(infer_labels(transcript))
        findings.append(_worst(transcript, lambda party: complete_model(transcript, party, seed=seed)))
        findings.append(_worst(transcript, lambda party: reconstruct(transcript, party, seed=seed)))
        findings += _parties(transcript)
    findings.append(membership_of_a_row(transcript.run, transcript.federation))
    return [finding for finding in findings if finding is not None]


def _worst(transcript: Transcript, try_on: Callable[[str], Finding | None]) -> Finding | None:
    tried = [finding for party in transcript.federation.names if (finding := try_on(party)) is not None]
    return max(tried, key=lambda finding: finding.score, default=None)


def _parties(transcript: Transcript) -> list[Finding | None]:
    """The first party that spoke, without and, where there is some, with the protection of the run."""
    found: list[Finding | None] = []
    for party, uploads in transcript.clean.items():
        found.append(membership_of_a_party(uploads, Unchanged(), party, games=10))
        if transcript.mechanism.name != "none":
            found.append(membership_of_a_party(uploads, transcript.mechanism, party))
        break
    return found
