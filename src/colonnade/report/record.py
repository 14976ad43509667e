"""Run records: read, checked, grouped by what was trained, and turned into curves.

A record is what `run.json` holds. Everything a report shows comes from records, so a report can be written
years later, on another machine, without the data and without the model.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any

from colonnade.config import build
from colonnade.errors import ConfigError, RunError
from colonnade.evaluate.clock import ClockSettings, run_ends
from colonnade.evaluate.metrics import Metric, find_metric
from colonnade.evaluate.metrics import metric_of as metric_of_result
from colonnade.privacy.ledger import Entry, Ledger
from colonnade.privacy.tally import tally
from colonnade.record import RECORD, RunRecord, read_record
from colonnade.saved import LEDGER
from colonnade.tasks import task_about
from colonnade.withdrawn import read_mark

Record = RunRecord
MB = 1e6
EXPLANATION, EXPLANATION_FORMAT = "explain.json", 2  # what `colonnade explain` writes beside a run (docs/explain.md)
EXPLAINED = {  # its keys; a file of another version has others
    "format", "run", "method", "federation", "rows", "count", "score_name", "score", "parties", "ranked", "ranked_by",
    "rank_by", "norm", "norm_of", "noise", "noise_spread", "noise_std", "noise_draws", "mask", "silence", "additive",
    "shapley", "shapley_error", "shapley_orders", "class_names", "class_drop", "class_evidence", "agreement",
    "unavailable", "notes", "releases", "pictures", "tsne", "summary", "denoise", "fallen",
}  # fmt: skip

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
    return [with_files(check_record(read_record(folder), str(folder)), folder) for folder in places]


def with_files(record: Record, folder: Path) -> Record:
    """The record with what lies beside it: what the ledger lists, and the explanation if there is one.

    Raises:
        RunError: the ledger is damaged.
    """
    found, mark = with_explanation(with_ledger(record, folder), folder), read_mark(folder)
    return found if mark is None else {**found, "withdrawn": f"This model was {mark}; a retraining leaves them out."}


def with_ledger(record: Record, folder: Path) -> Record:
    """The record with what its ledger says of every party; as it is, where there is no ledger.

    The ledger goes on after the record was written: predictions and explanations are releases too. Whatever a page
    says of releases comes from here, so that no two places of it can differ.

    Raises:
        RunError: the ledger is damaged.
    """
    path = folder / LEDGER
    if not path.exists():
        return record
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        ledger = Ledger(Entry.from_json(json.loads(line)) for line in lines)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{path} is damaged ({error}); restore it from a copy") from None
    neighbours = record.get("privacy", {}).get("neighbours", "absent")
    return {
        **record,
        "tally": [party.to_json() for party in tally(ledger, neighbours)],
        "releases": [[owner, purpose.value, number] for (owner, purpose), number in ledger.counts().items()],
        "mechanisms": sorted({release.mechanism for release in ledger}),
    }


def released(record: Record) -> dict[str, dict[str, int]]:
    """How often each owner released something, by purpose."""
    found: dict[str, dict[str, int]] = {}
    for owner, purpose, number in record["releases"]:
        found.setdefault(owner, {})[purpose] = number
    return found


def with_explanation(record: Record, folder: Path) -> Record:
    """The record with what `colonnade explain` wrote; as it is, where there is nothing, or that of another run.

    A file that cannot be used does not cost the report: the record then holds the sentence that says why.
    """
    path = folder / EXPLANATION
    if not path.exists():
        return record
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        return {**record, "unexplained": f"{path} is damaged ({error}); run colonnade explain {folder} again"}
    if not isinstance(found, dict) or found.get("format") != EXPLANATION_FORMAT or set(found) != EXPLAINED:
        why = f"{path} was written by another version of Colonnade; run colonnade explain {folder} again"
        return {**record, "unexplained": why}
    return {**record, "explanation": found} if found["run"] == record["id"] else record


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
    missing += [key for key in LISTS if key in record and not isinstance(record.get(key), list)]
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
    simulated: tuple[float, ...] = ()  # seconds of the simulated clock


def score_curve(record: Record, clock: ClockSettings | None = None) -> Curve:
    """The validation score by round, by megabytes, by seconds, and by simulated seconds if there is a clock."""
    looks = [h for h in record["history"] if _finite(h.get("score"))]
    rounds = tuple(int(h["round"]) for h in looks)
    timed = all(_finite(h.get("seconds")) for h in looks)
    used = bytes_by_round(record)
    ends = simulated_ends(record, clock) if clock is not None else []
    return Curve(
        rounds,
        tuple(float(h["score"]) for h in looks),
        tuple(used[min(n, len(used) - 1)] / MB for n in rounds) if used else (),
        tuple(float(h["seconds"]) for h in looks) if timed else (),
        tuple(ends[min(n, len(ends) - 1)] for n in rounds) if ends else (),
    )


def simulated_ends(record: Record, clock: ClockSettings) -> list[float]:
    """Entry n: the simulated second at which the model after n rounds is ready."""
    return run_ends(clock, record)


@dataclass(frozen=True)
class Terms:
    """What a comparison asks of all runs alike."""

    clock: ClockSettings = field(default_factory=ClockSettings)
    target: float | None = None  # a validation score to reach: per cent of accuracy, or AUC or R2 itself
    metrics: tuple[str, ...] = ()  # on the test rows, a column each; empty: the one that chooses the round

    @classmethod
    def of(cls, record: Record) -> Terms:
        """The terms that a run was compared on, or the usual ones."""
        return cls.read((record["config"] or {}).get("compare", {}))

    @classmethod
    def read(cls, section: Mapping[str, Any]) -> Terms:
        """From a [compare] section.

        Raises:
            ConfigError: it asks for something that cannot be.
        """
        target = section.get("target")
        if target is not None and (isinstance(target, bool) or not _finite(target)):
            raise ConfigError(f"[compare] target = {target!r} is not valid: needed a number, e.g. 96 (per cent)")
        clock = section.get("clock", {})
        if not isinstance(clock, Mapping):
            raise ConfigError(f"[compare] clock = {clock!r} is not valid: needed settings, e.g. {{ latency = 50 }}")
        names = section.get("metrics", [])
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ConfigError(f'[compare] metrics = {names!r} is not valid: needed a list, e.g. ["auc", "f1"]')
        named = tuple(dict.fromkeys(find_metric(name).name for name in names))
        return cls(build(ClockSettings, clock, "compare.clock"), None if target is None else float(target), named)


@dataclass(frozen=True)
class Reached:
    """What it took until the validation score first was what was wanted."""

    rounds: int
    megabytes: float
    simulated: float


def reach(record: Record, score: float, clock: ClockSettings) -> Reached | None:
    """The first evaluation on the validation rows with at least this score; None if there was none."""
    curve, sign = score_curve(record, clock), metric_of(record).sign()
    for place, value in enumerate(curve.scores):
        if sign * (value - score) >= 0:
            megabytes = curve.megabytes[place] if curve.megabytes else 0.0
            return Reached(curve.rounds[place], megabytes, curve.simulated[place] if curve.simulated else 0.0)
    return None


def residual_curve(record: Record) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Rounds and primal residuals; empty for methods that have none."""
    found = [(int(h["round"]), float(h["primal"])) for h in record["history"] if _finite(h.get("primal"))]
    return tuple(n for n, _ in found), tuple(value for _, value in found)


def bytes_by_round(record: Record) -> list[int]:
    """Entry n: training bytes, both directions, that the model after n rounds has used.

    That is rounds 1 to n, and of round n + 1 only what goes down: it carries the reply the model learned
    from. What the parties then upload belongs to the next round.
    """
    rounds = record["traffic"]["rounds"]
    down = list(accumulate(sum(x["down"]) for x in rounds))
    up = list(accumulate((sum(x["up"]) for x in rounds), initial=0))
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
    """Runs of equal settings on the same data together, in order of appearance, each group with a label of its own.

    A run that is named twice counts once.
    """
    groups: dict[str, dict[tuple[str, int], Record]] = {}
    for record in records:
        key = json.dumps(_identity(record), sort_keys=True, default=str)
        groups.setdefault(key, {})[record["id"], record["training"]["seed"]] = record
    members = [tuple(group.values()) for group in groups.values()]
    labels = _labels([group[0] for group in members])
    return [Group(label, group) for label, group in zip(labels, members, strict=True)]


def _identity(record: Record) -> dict[str, object]:
    """All settings but the seed and the place (a GPU run of the same settings is the same experiment), and the data."""
    training = {k: v for k, v in record["training"].items() if k not in ("seed", "device", "checkpoint_every")}
    settings = {"method": record["method"]["settings"], "model": record["model"], "training": training}
    settings["privacy"] = record.get("privacy", {})
    settings["result"] = {"metric": metric_of(record).name}
    return {"name": record["method"]["name"], "data": _data(record), **flat(settings), **_own_code(record)}


def metric_of(record: Record) -> Metric:
    """What the score on the test rows is; runs of version 0.1 do not say it, but their task does."""
    return metric_of_result(task_about(record["about"]), record["result"])


def _own_code(record: Record) -> dict[str, object]:
    """By which code of others it was trained; earlier versions say only whether local models were the user's."""
    own = record["about"].get("own_code", {})
    told: dict[str, object] = {"method.code": own["method"]} if "method" in own else {}
    if record.get("own_encoders"):
        codes = [f"{name}: {digests[0]}" for name, digests in own.get("local_models", {}).items()]
        told["model.own_encoders"] = hashlib.sha256(repr(codes).encode()).hexdigest()[:8] if codes else True
    return told


def _data(record: Record) -> dict[str, object]:
    """All that a record says about its data. Two that differ here are no two seeds of one experiment."""
    about = record["about"]
    said = {key: about.get(key) for key in ("federation", "rows", "task", "outputs", "class_names", "partial", "data")}
    return {**said, "parties": [[p["name"], p.get("shape")] for p in about["parties"]]}


def unknown_data(records: Iterable[Record]) -> bool:
    """Whether a record does not say by a fingerprint which data its run saw, as those of earlier versions do not."""
    return any("data" not in record["about"] for record in records)


def data_names(records: Sequence[Record]) -> list[str]:
    """What the data of each run are called; where one name stands for different data, with what they differ in."""
    return [_data_name(record, [r for r in records if _called(r) == _called(record)]) for record in records]


def _called(record: Record) -> str:
    return str(record["about"]["federation"])


def _data_name(record: Record, namesakes: Sequence[Record]) -> str:
    mine, others = _facts(record), [_facts(r) for r in namesakes]
    told = [text for place, text in enumerate(mine) if text and any(o[place] not in (text, "") for o in others)]
    twins = {_mark(r) for r in namesakes if _facts(r) == mine} - {""}
    told += [_mark(record)] if len(twins) > 1 and _mark(record) else []
    return f"{_called(record)} ({', '.join(told)})" if told else _called(record)


def _facts(record: Record) -> tuple[str, ...]:
    """What can tell data of one name apart."""
    about, rows = record["about"], record["about"]["rows"]
    outputs = f"{about['outputs']} outputs" if about.get("outputs") else ""
    return (str(about["task"]), f"{rows['train'] + rows['validation'] + rows['test']:,} rows", outputs)


def _mark(record: Record) -> str:
    """The beginning of the fingerprint; that of a reference in one place is of its own, and says nothing."""
    about = record["about"]
    return "" if len(about["parties"]) == 1 or not about.get("data") else f"data {about['data'][:6]}"


def _labels(firsts: Sequence[Record]) -> list[str]:
    """Method names; where two groups share one, with the settings they differ in."""
    names, data = [r["method"]["name"] for r in firsts], data_names(firsts)
    identities = [_identity(r) for r in firsts]
    labels = []
    for name, mine, where in zip(names, identities, data, strict=True):
        twins = [other for other, its in zip(identities, names, strict=True) if its == name]
        different = [k for k in mine if k not in ("name", "data") and any(t.get(k) != mine[k] for t in twins)]
        told = ", ".join(f"{k.partition('.')[2]} {mine[k]}" for k in different[:3])
        label = f"{name} on {where}" if len(set(data)) > 1 else name
        labels.append(f"{label} ({told})" if told else label)
    return [
        f"{label} #{labels[: n + 1].count(label)}" if labels.count(label) > 1 else label
        for n, label in enumerate(labels)
    ]


def flat(settings: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """Nested settings as dotted names."""
    out: dict[str, object] = {}
    for key, value in settings.items():
        out |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return out


def _finite(value: Any) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)
