"""What a proposal puts between a party's columns and the wire, held against what would really stand there."""

from __future__ import annotations

from colonnade.deploy.agreement import Proposal
from colonnade.deploy.by_row import agreed_mechanism, row_protection
from colonnade.errors import Refused
from colonnade.methods.base import BringsNoise, brings
from colonnade.models.schema import Schema
from colonnade.privacy.events import Kind
from colonnade.privacy.gaussian import SystemNoise
from colonnade.privacy.mechanism import Mechanism, Protection
from colonnade.privacy.registry import kind_of
from colonnade.privacy.secure_sum.adders import Adders
from colonnade.wire.messages import Purpose


def protection(proposal: Proposal, schema: Schema, adders: Adders | None, mine: Mechanism) -> Protection:
    """What stands before every upload: as proposed, with noise that nobody can repeat; or this party's own."""
    privacy, method = proposal.privacy(), proposal.method()
    if privacy.by_row:
        return row_protection(proposal)
    own = method.mechanism(SystemNoise(), schema) if isinstance(method, BringsNoise) else None
    if adders is None and own is None and not privacy.protects:
        return Protection.everywhere(mine)
    releases = proposal.schedule().most_releases(proposal.training().rounds)  # of the party that uploads most
    return privacy.protection(releases, SystemNoise(), adders, own, may_evaluate=own is None)


def check_mechanism(proposal: Proposal, mine: Kind) -> None:
    """The proposal names what will really stand at this party's gate, and leaves out nothing of the party's own.

    Raises:
        Refused: with what was proposed and what the party is set to.
    """
    privacy, own = proposal.privacy(), brings(proposal.method())
    stands = kind_of(agreed_mechanism(privacy) if privacy.noised else own or mine.name)
    if kind_of(str(proposal.body.get("mechanism"))) != stands:
        raise Refused(
            f"the proposal asks for mechanism {proposal.body.get('mechanism')!r} between columns and wire; "
            f"this party is set to {stands.name!r}"
        )
    if not mine.bare and (privacy.noised or own or privacy.secure_sum.use):
        raise Refused(
            f"this party is set to {mine.name!r} between columns and wire, which the proposal's own protection "
            "would replace; take it away, or ask for a proposal without"
        )
    if own and Purpose.EVALUATE.value in proposal.body["purposes"]:
        raise Refused(
            f"the proposal asks for evaluation on validation rows without the method's noise ({own}), which would "
            "undo it"
        )
