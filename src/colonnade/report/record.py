"""Run records: read, checked, grouped by what was trained, and turned into curves.

A record is what `run.json` holds. Everything a report shows comes from records, so a report can be written
years later, on another machine, without the data and without the model.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from colonnade.errors import RunError
from colonnade.privacy.events import Release
from colonnade.privacy.tally import tally
from colonnade.run import LEDGER, RECORD, read_record

Record = dict[str, Any]
MB = 1e6

# Everything the report reads, so that a damaged record is refused before a page is begun.
NEEDED: dict[str, tuple[str, ...]] = {
    "about": ("federation", "parties", "task", "rows", "engine", "machine"),
    "method": ("name", "settings"),
    "training": ("rounds", "seed"),
    "result": ("rounds", "stop", "diverged", "best_round", "validation_score", "test_score", "seconds"),
    "traffic": ("up", "down", "multicast", "evaluation", "per_party", "rounds"),
}
LISTS = ("history", "releases")
PLAIN = ("id", "model", "fingerprint", "label_exposure", "config")


def read_records(folders: Iterable[Path]) -> list[Record]:
    """The checked records of run folders; a folder that holds runs (a comparison, a demo) stands for all of them.

    Raises:
        RunError: a folder is not a run, was interrupted or is damaged.
    """
    places = [folder for named in folders for folder in run_folders(named)]
    return [with_tally(check_record(read_record(folder), str(folder)), folder) for folder in places]


def with_tally(record: Record, folder: Path) -> Record:
    """The record with what its ledger says of every party; as it is, where it says so itself or has no ledger.

    Raises:
        RunError: the ledger is damaged.
    """
    path = folder / LEDGER
    if "tally" in record or not path.exists():
        return record
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        releases = [Release.from_json(json.loads(line)) for line in lines]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{path} is damaged ({error}); restore it from a copy") from None
    neighbours = record.get("privacy", {}).get("neighbours", "absent")
    return {**record, "tally": [party.to_json() for party in tally(releases, neighbours)]}


def run_folders(folder: Path) -> list[Path]:
    """The run folders that a name on the command line means: itself, or the runs inside it."""
    if folder.is_dir() and not (folder / RECORD).exists():
        inside = sorted(path.parent for path in folder.glob(f"*/{RECORD}"))
        if inside:
            return inside
    return [folder]


def check_record(record: Record, where: str) -> Record:
    """The record itself, if it holds all that a report needs.

    Raises:
        RunError: something is missing; the message names it.
    """
    missing = [key for key in (*NEEDED, *LISTS, *PLAIN) if key not in record]
    for key, inner in NEEDED.items():
        part = record.get(key)
        missing += [f"{key}.{name}" for name in inner if not isinstance(part, Mapping) or name not in part]
    missing += [key for key in LISTS if key in record and not isinstance(record[key], list)]
    if missing:
        raise RunError(f"the record of {where} lacks {missing[0]}; restore it from a copy, or train again")
    return record


@dataclass(frozen=True)
class Curve:
    """Validation scores of a run, and what each had cost by then."""

    rounds: tuple[int, ...]
    scores: tuple[float, ...]
    megabytes: tuple[float, ...]  # training bytes that the model after so many rounds has used
    seconds: tuple[float, ...]  # empty where the record has no times


def score_curve(record: Record) -> Curve:
    """The validation score by round, by megabytes and by seconds."""
    looks = [h for h in record["history"] if _finite(h.get("score"))]
    rounds = tuple(int(h["round"]) for h in looks)
    timed = all(_finite(h.get("seconds")) for h in looks)
    used = bytes_by_round(record)
    return Curve(
        rounds,
        tuple(float(h["score"]) for h in looks),
        tuple(used[min(n, len(used) - 1)] / MB for n in rounds) if used else (),
        tuple(float(h["seconds"]) for h in looks) if timed else (),
    )


def residual_curve(record: Record) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Rounds and primal residuals; empty for methods that have none."""
    found = [(int(h["round"]), float(h["primal"])) for h in record["history"] if _finite(h.get("primal"))]
    return tuple(n for n, _ in found), tuple(value for _, value in found)


def bytes_by_round(record: Record) -> list[int]:
    """Entry n: training bytes, both directions, that the model after n rounds has used.

    That is exchanges 1 to n, and of exchange n + 1 only what goes down: it carries the reply the model learned
    from. What the parties then upload belongs to the next round.
    """
    exchanges = record["traffic"]["rounds"]
    down = list(accumulate(sum(x["down"]) for x in exchanges))
    up = list(accumulate((sum(x["up"]) for x in exchanges), initial=0))
    return [d + u for d, u in zip(down, up, strict=False)]


@dataclass(frozen=True)
class Group:
    """Runs that differ in nothing but their seed."""

    label: str
    records: tuple[Record, ...]

    @property
    def first(self) -> Record:
        """A run that stands for all where they agree."""
        return self.records[0]


def grouped(records: Sequence[Record]) -> list[Group]:
    """Runs of equal settings together, in order of appearance, each group with a label of its own."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(json.dumps(_identity(record), sort_keys=True, default=str), []).append(record)
    members = list(groups.values())
    labels = _labels([group[0] for group in members])
    return [Group(label, tuple(group)) for label, group in zip(labels, members, strict=True)]


def _identity(record: Record) -> dict[str, Any]:
    """All settings but the seed, and the place: a GPU run of the same settings is the same experiment."""
    training = {k: v for k, v in record["training"].items() if k not in ("seed", "device", "checkpoint_every")}
    settings = {"method": record["method"]["settings"], "model": record["model"], "training": training}
    settings["privacy"] = record.get("privacy", {})
    where = {"parties": [p["name"] for p in record["about"]["parties"]], "rows": record["about"]["rows"]}
    name = {"name": record["method"]["name"], "federation": record["about"]["federation"]}
    return {**name, **where, **flat(settings)}


def _labels(firsts: Sequence[Record]) -> list[str]:
    """Method names; where two groups share one, with the settings they differ in."""
    names = [r["method"]["name"] for r in firsts]
    federations = {r["about"]["federation"] for r in firsts}
    labels = []
    for place, record in enumerate(firsts):
        label = names[place]
        if len(federations) > 1:
            label += f" on {record['about']['federation']}"
        twins = [_identity(r) for r, name in zip(firsts, names, strict=True) if name == names[place]]
        mine = _identity(record)
        different = [k for k in mine if k not in ("name", "federation", "parties", "rows")]
        different = [k for k in different if any(twin.get(k) != mine[k] for twin in twins)]
        told = ", ".join(f"{k.partition('.')[2]} {mine[k]}" for k in different[:3])
        labels.append(f"{label} ({told})" if told else label)
    return [
        f"{label} #{labels[: n + 1].count(label)}" if labels.count(label) > 1 else label
        for n, label in enumerate(labels)
    ]


def flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings as dotted names."""
    out: dict[str, Any] = {}
    for key, value in settings.items():
        out |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return out


def _finite(value: Any) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)
