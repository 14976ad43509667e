"""Unit ROW between organisations: what a proposal would cost a row, computed at the party, and what stands there."""

from __future__ import annotations

from colonnade.deploy.agreement import Proposal
from colonnade.methods.by_row import check_by_row, local_steps_of
from colonnade.privacy.by_row import LocalSteps
from colonnade.privacy.events import Event
from colonnade.privacy.gaussian import SystemNoise
from colonnade.privacy.mechanism import Protection
from colonnade.privacy.sampled import SampledGaussianEvent
from colonnade.privacy.settings import PrivacySettings
from colonnade.tasks import find_task


def agreed_mechanism(privacy: PrivacySettings) -> str:
    """What the settings put between columns and readers, by name; only where they put anything there."""
    return SampledGaussianEvent.kind.name if privacy.by_row else privacy.mechanism


def steps_of(proposal: Proposal) -> LocalSteps:
    """How many steps, on how many rows, everybody is about to agree on."""
    return local_steps_of(proposal.method(), proposal.schedule(), proposal.training().rounds)


def row_event(proposal: Proposal) -> Event:
    """What training would do to a row at all parties: computed here, whatever the proposal says of it.

    Raises:
        ConfigError: the proposal cannot promise unit ROW, or its noise costs more than the epsilon it names.
    """
    privacy, body = proposal.privacy(), proposal.body
    task = find_task(body["task"])(int(body["outputs"]))
    check_by_row(proposal.method(), privacy, task, proposal.schedule(), proposal.training().computing, weighted=False)
    return privacy.row_noise(steps_of(proposal), SystemNoise()).event


def row_protection(proposal: Proposal) -> Protection:
    """Draws and noise of this party's own operating system; nobody else has their key, and no seed is used."""
    return proposal.privacy().row_protection(steps_of(proposal), SystemNoise())
