"""What the page for a data-protection officer says of unit ROW: parties that train at home with noise.

Nothing about a training row is sent, so there is no message to bound. What is bounded is all that is ever computed from
the parties' models, for every row that trained, at all parties together.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from colonnade.privacy.accounting import LARGEST_DELTA
from colonnade.privacy.sampled import SampledGaussianEvent

if TYPE_CHECKING:
    from colonnade.privacy.spent import Spent
    from colonnade.report.officer_source import Source

PEOPLE = (
    "A person with several rows, all of them together: the figure is about one row, its columns at all parties and its "
    "label."
)


def weak(source: Source, spent: Spent, largest: float) -> bool:
    """Whether a figure promises next to nothing: by its size, or by a delta that lets anything be told too often."""
    return spent.epsilon > largest or source.privacy.delta > LARGEST_DELTA


def outcome(source: Source, largest: float) -> str:
    """What bounds what the model says, in one sentence; figures beyond `largest` promise nothing."""
    spent, whose = source.spent, f"{source.party}'s model"
    if spent is None or not math.isfinite(spent.epsilon):
        return f"{whose} is trained at home with noise; {source.party}'s own ledger has the figure."
    if weak(source, spent, largest):
        return f"{whose} is trained with noise, but so little that it promises next to nothing."
    end = "; messages about other rows have no bound." if source.flows else "."
    return f"Noise bounds what {whose}, and all that it ever says, reveals about any single row that trained{end}"


def training(source: Source, largest: float) -> list[str]:
    """What happens in training, and what the figure means."""
    verb = "trains" if source.origin == "plan" else "trained"
    told = [f"Nothing about a training row leaves in training: {source.party} {verb} its model at home, with noise."]
    spent = source.spent
    if spent is not None and math.isfinite(spent.epsilon):
        return [*told, in_plain_words(source, spent, largest)]
    budget = source.privacy.epsilon
    if source.origin != "label holder" or budget is None:
        return told
    facts = f"delta {source.privacy.delta:g}, unit ROW at all parties, a row added or removed, PLD accountant"
    return [*told, f"The run agreed on at most epsilon {budget:g} ({facts}); {source.party}'s own ledger has it."]


def in_plain_words(source: Source, spent: Spent, largest: float) -> str:
    """What an epsilon of unit ROW means, with everything that belongs to it."""
    delta = source.privacy.delta
    odds = f"raise or lower the odds that a row trained at most {math.exp(min(spent.epsilon, largest)):,.1f}-fold"
    means = f"Whoever gets the models of all parties, and all that they say, can {odds}, but for a chance of {delta:g}"
    if weak(source, spent, largest):
        means = "A figure of this size promises next to nothing"
    facts = (
        f"delta {delta:g}, unit ROW, compared with the same run without that row at any party, its label included, PLD "
        "accountant, training rows only"
    )
    return f"{means} (epsilon {spent.epsilon:.3f}: {facts}). This is about each single training row."


def leaves(source: Source) -> tuple[str, ...]:
    """The line of the training itself, which sends nothing."""
    known = source.spent is not None and math.isfinite(source.spent.epsilon)
    bound = f"{SampledGaussianEvent.kind.words}; {'the figure above' if known else 'no figure is known here'}"
    what = f"in training nothing about training rows; all that {source.party}'s model says later is computed from it"
    return what, "nobody", "never", "-", "what little the noise lets into the model; the bound says how much", bound
