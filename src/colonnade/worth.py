"""Is a candidate worth joining? The question, before any training, where all tables are in one place.

The label holder sends randomised labels of some rows, once; every candidate answers with one score for each of as many
other rows; the label holder says what these scores add to its own. `deploy/worth/` does the same between
organisations, with the same messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from colonnade.errors import ConfigError
from colonnade.federation import Federation
from colonnade.joining.answer import answer, read_answer
from colonnade.joining.judge import Judge
from colonnade.joining.prospect import Prospect, Prospects, released_sentence
from colonnade.joining.question import EPSILON, ROWS, Labelled, ask, draw_sample
from colonnade.joining.sides import sides_of
from colonnade.privacy.ledger import Ledger
from colonnade.randomness import key
from colonnade.row_split import RowSplit


def worth(
    tables: Mapping[str, Any] | Federation,
    *,
    labels: Any = None,
    id: Any = None,
    holder: str | None = None,
    epsilon: float = EPSILON,
    rows: int = ROWS,
    interactions: int = 0,
    seed: int = 0,
    **meaning: Any,
) -> Prospects:
    """What each candidate would add to the label holder's own model, estimated before any training.

    Args:
        tables: as for `Federation.from_tables`, or a federation.
        labels: as there; the party whose table has the column is the label holder.
        id: as there.
        holder: the label holder, where the labels are in no party's table. All other parties are candidates.
        epsilon: label privacy of what is sent, unit LABEL, delta 0; it covers all candidates together.
        rows: of which noisy labels are sent, and as many others judge; of training rows only, half of them at most.
        interactions: of so many columns of the label holder also ask for what they and the candidate's say only
            together: one more bit per row goes down and one more byte comes up for each, all under the same epsilon.
        seed: of the sample, the noise and the models.
        meaning: further arguments of `Federation.from_tables`: split, classes, positive, task, columns, ...

    Raises:
        ConfigError: nobody said who holds the labels, or there is no candidate.
        DataError: there are too few labelled training rows.

    Examples:
        >>> import colonnade as cn
        >>> import pandas as pd
        >>> people = range(1200)
        >>> bank = pd.DataFrame({"customer": people, "income": [i * 37 % 100 for i in people]})
        >>> shop = pd.DataFrame({"customer": people, "visits": [i * 53 % 90 for i in people]})
        >>> bank["default"] = ["yes" if i * 37 % 100 + 2 * (i * 53 % 90) < 120 else "no" for i in people]
        >>> found = cn.worth({"bank": bank, "shop": shop}, labels="default", id="customer", epsilon=2.0)
        >>> found["shop"].gain.value > 0.1, found["shop"].gain.sure
        (True, True)
    """
    federation = tables if isinstance(tables, Federation) else _joined(tables, labels, id, meaning)
    if isinstance(tables, Federation) and (labels is not None or id is not None or meaning):
        raise ConfigError("a federation has its labels already: leave out labels, id and what says how to read tables")
    federation = federation.matched()
    owner = _holder(federation, holder)
    candidates = tuple(party for party in federation.parties if party.name != owner)
    if not candidates:
        raise ConfigError(f"{owner} holds the labels, and nobody else is there to be asked; name another party's table")
    split, ledger = federation.split, Ledger()
    labelled = Labelled(federation.labels, federation.task, split.train, federation.weights, split.stratified)
    sample = draw_sample(split.train, rows, seed)
    names = tuple(party.name for party in candidates)
    columns = next(party.columns for party in federation.parties if party.name == owner)
    sides = sides_of(columns, split.train, interactions) if interactions else None
    question = ask(federation.name, names, labelled, sample, epsilon, key(seed, "worth noise"), ledger, sides)
    judge = Judge.of(labelled, columns, sample, seed, sides)
    prospects = []
    for party in candidates:
        released = answer(
            federation.name, party.name, party.columns, question.release.payload, question.task, ledger, seed
        )
        up = released.payload
        levels = read_answer(up, federation.name, party.name, len(sample.judged), question.task.outputs)
        down = len(question.release.payload)
        prospects.append(Prospect(party.name, judge.gain(levels), down, len(up), judge.interaction(levels)))
    said = released_sentence(len(sample.told), names, question, simulated=True)
    return Prospects(owner, tuple(prospects), epsilon, epsilon, len(sample.told), len(sample.judged), said, ledger)


def _joined(tables: Mapping[str, Any], labels: Any, id: Any, meaning: Mapping[str, Any]) -> Federation:
    """The tables as a federation whose split counts no labels."""
    split = meaning.get("split")
    if not isinstance(split, RowSplit):
        split = {"stratify": False, **dict(split or {})}
    return Federation.from_tables(tables, labels=labels, id=id, **{**meaning, "split": split})


def _holder(federation: Federation, said: str | None) -> str:
    """Who has the labels: said, or found in its table."""
    found = [name for name, plan in federation.plans.items() if plan.label is not None]
    if said is not None and said not in federation.names:
        raise ConfigError(f"holder = {said!r} is no party; parties: {', '.join(federation.names)}")
    if said is not None and found and found != [said]:
        raise ConfigError(f"holder = {said!r}, but the labels are a column of the table of {found[0]!r}; say which")
    if said is None and not found:
        raise ConfigError(f"the labels are in no party's table; say who holds them: holder={federation.names[0]!r}")
    return said if said is not None else found[0]
