"""Explanations where all parts of a model are in one place: what `Model.contributions` and `Model.importance` do."""

from __future__ import annotations

from typing import Any

from colonnade.data.ids import Ids
from colonnade.data.new_columns import also_read
from colonnade.errors import ConfigError
from colonnade.explain.columns import DRAWS, explain_party
from colonnade.explain.contributions import Contributions, Importance
from colonnade.explain.parties import check_measured, explain_parties, measure
from colonnade.model import Model
from colonnade.predict import read_rows, read_truth, read_weights


def contributions(
    model: Model, rows: Any, party: str | None = None, *, id: Ids = None, reference: Any = None
) -> Contributions:
    """What makes up the score of each row.

    Args:
        model: with all its parts.
        rows: as for `Model.logits`; with `party`, that party's table is enough.
        party: None: one number per party and output, the terms of the sum, which the label holder gets in a prediction
            anyway: each party's answer is a release, as there. A name: one per column of this party's table, which is
            for its own people and is released to nobody.
        id: as for `Model.logits`.
        reference: rows to count from, given as `rows`. By party: each term less its mean over them, and the base is
            their mean score; None: terms as they are, in which a party's own constant is hidden, so that rows can be
            compared and parties cannot. With `party`: the mean of these rows; None: the mean training row.

    Raises:
        ConfigError: the score is no sum over the parties, or a secure sum hides its terms.
    """
    if party is None:
        return explain_parties(model, rows, id, reference)
    if id is not None:
        raise ConfigError("id matches the tables of several parties; one party's columns need its table alone")
    return explain_party(model, party, rows, reference)


def importance(  # noqa: PLR0913 - the front door: everything a user may want to say about a measure
    model: Model,
    rows: Any,
    labels: Any,
    metric: str | None = None,
    *,
    id: Ids = None,
    weights: Any = None,
    draws: int = DRAWS,
    seed: int = 0,
    uncovered: bool = False,
) -> Importance:
    """What the model loses, by a metric, when the values of one column are dealt out anew among the rows.

    Every column of every party's table, in one place. Each answer of a party is a release, in the ledger as EXPLAIN.

    Args:
        model: with all its parts.
        rows: as for `Model.logits`.
        labels: as for `Model.score`.
        metric: its name; None: the task's own.
        id: as for `Model.logits`.
        weights: as for `Model.score`.
        draws: how often values are dealt out; the spread is over these.
        seed: of the draws.
        uncovered: also where the training promised an epsilon, which does not cover what leaves for this.

    Raises:
        ConfigError: a secure sum hides what one party says, or an epsilon does not cover it.
    """
    check_measured(model, uncovered)
    with also_read(labels, weights):
        read = read_rows(model, rows, id)
    truth, heavy = read_truth(model, read, rows, labels, id), read_weights(model, read, rows, weights, id)
    return measure(model, read, truth, metric, weights=heavy, draws=draws, seed=seed)
