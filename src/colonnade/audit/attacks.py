"""All attacks on one recorded training, in one list: what a party learns, then what the coordinator learns."""

from __future__ import annotations

from collections.abc import Callable

from colonnade.audit.claims import Additive, claim_of
from colonnade.audit.completion import complete_model
from colonnade.audit.gradients import read_replies
from colonnade.audit.labels import infer_labels
from colonnade.audit.membership import membership_of_a_party, membership_of_a_row
from colonnade.audit.reconstruction import reconstruct
from colonnade.audit.sums import HonestSum
from colonnade.audit.table import Finding
from colonnade.audit.transcript import Transcript
from colonnade.privacy.declared import Declared
from colonnade.privacy.mechanism import Hiding, Mechanism, Unchanged
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
        if not isinstance(transcript.mechanism, Hiding):  # of a sum nobody reads one party's upload
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
        seen = _as_seen(transcript)
        if not seen.event.bare and not isinstance(seen, Declared):  # noise at the gate
            found.append(membership_of_a_party(uploads, seen, party))
        break
    return found


def _as_seen(transcript: Transcript) -> Mechanism:
    """What stands between a party's uploads and the coordinator; of a sum, the noise of all honest parties."""
    mechanism = transcript.mechanism
    if not isinstance(mechanism, Hiding):
        return mechanism
    claim = claim_of(mechanism.event)
    return HonestSum(mechanism, transcript.federation.names[: claim.parts if isinstance(claim, Additive) else 1])
