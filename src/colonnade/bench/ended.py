"""Which trainings of a result were over before their last round: the stopping rule ended them, or they diverged.

Their figures are those of a shorter training, which a reader must know who compares methods. How many rounds there
would have been is what the file of the benchmark says today.
"""

from __future__ import annotations

from colonnade.bench.cases import Case, read_cases
from colonnade.bench.catalogue import Bench
from colonnade.bench.outcome import Outcome
from colonnade.bench.zoo import SweepSettings, swept
from colonnade.config import build


def ended_early(bench: Bench, outcome: Outcome) -> str:
    """A sentence that names them; empty if there are none, or if the benchmark does not count rounds."""
    told = []
    for key, rounds in _planned(bench, outcome).items():
        taken = outcome.results.get(key)
        if taken is not None and taken < rounds:
            case = key.partition(".")[2]
            told.append(f"{f'`{case}` ' if case else ''}after {round(taken, 1):,g} of {rounds:,}")
    if not told:
        return ""
    return f"Ended early, by the stopping rule or since they diverged, in rounds, mean over seeds: {', '.join(told)}."


def _planned(bench: Bench, outcome: Outcome) -> dict[str, int]:
    """The rounds of every training, by the key of the result that says how many it took."""
    shared = bench.tables.get("training", {})
    if bench.kind == "accuracy":
        return {"rounds": int(shared["rounds"])} if "rounds" in shared else {}
    if bench.kind not in ("zoo", "sweep"):
        return {}
    cases = read_cases(bench, Case)
    if bench.kind == "sweep":
        cases = swept(
            cases, build(SweepSettings, bench.tables["sweep"], f"benchmark {bench.name}: sweep"), bench.tables
        )
    planned = {}
    for case in cases:
        chosen = outcome.results.get(f"chosen.{case.name}") or 0
        training = {**shared, **case.sections(min(int(chosen), len(case.tries) - 1)).get("training", {})}
        if "rounds" in training:
            planned[f"rounds.{case.name}"] = int(training["rounds"])
    return planned
