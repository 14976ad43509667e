"""t-SNE of what one party says: two numbers per row, to see whether its classes lie apart. Needs scikit-learn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from colonnade.errors import ConfigError
from colonnade.explain.coalitions import Coalitions
from colonnade.explain.settings import ExplainSettings
from colonnade.extras import need
from colonnade.federation import Task
from colonnade.randomness import key, permutation

PERPLEXITY = 30.0


def tsne(
    game: Coalitions, party: str, which: str, settings: ExplainSettings, class_names: Sequence[str]
) -> dict[str, Any]:
    """Points of a party's embeddings (or logits, where embeddings stay at home), with the kinds of their rows."""
    values = _spoken(game, game.parties.index(party))
    rows = permutation(torch.arange(len(values)), settings.seed, "tsne")[: settings.tsne]
    if len(rows) < 5:
        raise ConfigError(f"a t-SNE of {len(rows)} rows shows nothing; wanted at least 5")
    manifold = need("sklearn.manifold", extra="all", purpose="A t-SNE")
    draw = manifold.TSNE(
        perplexity=min(PERPLEXITY, (len(rows) - 1) / 3), init="random", random_state=key(settings.seed, "tsne") % 2**32
    )
    points = draw.fit_transform(values[rows].double().cpu().numpy())
    labels, names = kinds(game.task, game.truth.cpu()[rows].reshape(len(rows), -1)[:, 0], class_names)
    return {"party": party, "which": which, "points": points.tolist(), "labels": labels, "names": names}


def kinds(task: Task, truth: Tensor, class_names: Sequence[str]) -> tuple[list[int], list[str]]:
    """Each row's place among named kinds: its class, whether it has the first label, or the third its number is in."""
    if task is Task.REGRESSION:
        low, high = torch.quantile(truth.double(), torch.tensor([1 / 3, 2 / 3], dtype=torch.double)).tolist()
        places = (truth > low).int() + (truth > high).int()
        return places.tolist(), [f"up to {low:.3g}", f"{low:.3g} to {high:.3g}", f"above {high:.3g}"]
    first = class_names[0]
    names = [f"without {first}", f"with {first}"] if task is Task.MULTILABEL else list(class_names)
    return truth.int().tolist(), names


def _spoken(game: Coalitions, party: int) -> Tensor:
    """Everything per row that a party said, side by side, (B, width)."""
    g, place = game.places[party]
    rows = len(game.truth)
    parts = [v[place] for v in game.heard.groups[g].values() if v.dim() == 3 and v.shape[1] == rows]
    return torch.cat([part.double() for part in parts], dim=1)
