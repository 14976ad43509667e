"""t-SNE of what one party uploads: two numbers per row, to see whether its classes lie apart. Needs scikit-learn."""

from __future__ import annotations

import torch
from torch import Tensor

from colonnade.errors import ConfigError
from colonnade.explain.coalitions import Coalitions
from colonnade.explain.explanation import Points
from colonnade.explain.settings import ExplainSettings
from colonnade.extras import need
from colonnade.randomness import key, permutation

PERPLEXITY = 30.0


def tsne(game: Coalitions, party: str, which: str, settings: ExplainSettings) -> Points:
    """Points of a party's embeddings (or logits, where embeddings stay at home), with the kinds of their rows."""
    values = _passed(game, game.parties.index(party))
    rows = permutation(torch.arange(len(values)), settings.seed, "tsne")[: settings.tsne]
    if len(rows) < 5:
        raise ConfigError(f"a t-SNE of {len(rows)} rows shows nothing; needed at least 5")
    manifold = need("sklearn.manifold", extra="all", purpose="A t-SNE")
    draw = manifold.TSNE(
        perplexity=min(PERPLEXITY, (len(rows) - 1) / 3), init="random", random_state=key(settings.seed, "tsne") % 2**32
    )
    points = draw.fit_transform(values[rows].double().cpu().numpy())
    labels, names = game.task.kinds(game.truth.cpu()[rows].reshape(len(rows), -1)[:, 0])
    return {"party": party, "which": which, "points": points.tolist(), "labels": labels, "names": names}


def _passed(game: Coalitions, party: int) -> Tensor:
    """Everything per row that a party uploaded, side by side, (B, width)."""
    g, place = game.places[party]
    rows = len(game.truth)
    parts = [v[place] for v in game.uploads.groups[g].values() if v.dim() == 3 and v.shape[1] == rows]
    return torch.cat([part.double() for part in parts], dim=1)
