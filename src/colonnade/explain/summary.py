"""Client summarization: is part of the parties enough? Train again with the most and with the least important."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from colonnade.errors import ConfigError
from colonnade.explain.explanation import Subset, Summary
from colonnade.explain.retrain import Again
from colonnade.federation import Federation

ENOUGH = 0.01  # loss against all parties, on validation rows, with which a part of them is called enough


def subset(ranked: Sequence[str], share: float, which: Literal["most", "least"]) -> list[str]:
    """The most or least important share of the parties, rounded up."""
    if not 0 < share < 1:
        raise ConfigError(f"a share of {share:g} of the parties: needed more than 0 and less than 1")
    count = math.ceil(share * len(ranked) - 1e-9)  # 7 % of 100 are 7, though 0.07 * 100 > 7
    return list(ranked[:count] if which == "most" else ranked[-count:])


def summarise(again: Again, federation: Federation, ranked: Sequence[str], shares: Sequence[float]) -> Summary:
    """Scores with parts of the parties, and one sentence of advice.

    The part that is advised is chosen on validation rows; the score beside it is that on the rows asked for.
    """
    sets: list[Subset] = []
    for share in shares:
        for which in ("most", "least"):
            names = subset(ranked, share, which)
            done = again.train(federation.only(names), f"{which} important {100 * share:g} %")
            sets.append(
                {
                    "share": share,
                    "which": which,
                    "parties": [name for name in federation.names if name in names],
                    "score": again.score(done),
                    "validation": done.result["validation_score"],
                }
            )
    found: Summary = {
        "rows": again.rows,
        "all": again.score(again.run),
        "validation": again.run.result["validation_score"],
        "ranked": list(ranked),
        "sets": sets,
        "advice": "",
    }
    found["advice"] = advice(found, again.run.score_name)
    return found


def advice(found: Summary, score_name: str) -> str:
    """The smallest part that loses little, or that there is none."""
    whole, total = found["validation"], len(found["ranked"])
    known = [
        (s["validation"], s)
        for s in found["sets"]
        if s["which"] == "most" and s["validation"] is not None and s["score"] is not None
    ]
    enough = [s for value, s in known if whole is not None and value >= whole - ENOUGH]
    against = f"all {total}: {_told(found['all'], score_name)}, {found['rows']} rows"
    if not enough:
        best = max(known, key=lambda one: one[0], default=(0.0, None))[1]
        told = (
            ""
            if best is None
            else f"; the best part, {len(best['parties'])} of them: {_told(best['score'], score_name)}"
        )
        return f"no part that was tried comes within {ENOUGH:g} of the score of all parties ({against}){told}"
    least = min(enough, key=lambda s: len(s["parties"]))
    told = f"{_told(least['score'], score_name)} ({against})"
    return f"with these {len(least['parties'])} of {total} parties: {told}: {', '.join(least['parties'])}"


def _told(score: float | None, name: str) -> str:
    if score is None:
        return "no score"
    return f"{100 * score:.1f} %" if name == "accuracy" else f"{name} {score:.3f}"
