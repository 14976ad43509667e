"""Several methods with several seeds on the same rows: one training each, and what they give side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from colonnade.beside import Question, read_beside, trials
from colonnade.checkpoint import fingerprint
from colonnade.config import Settings, build, unknown_key
from colonnade.engines.base import Encoders
from colonnade.errors import ConfigError, RunError
from colonnade.evaluate.metrics import choose_metric
from colonnade.extras import need
from colonnade.federation import Federation
from colonnade.job import Job, read_job
from colonnade.keywords import Owner, sorted_out
from colonnade.many import Done, Entry, of_rows, train_all
from colonnade.methods import METHODS, as_method
from colonnade.methods.base import Method
from colonnade.models.encoders import ModelSettings
from colonnade.privacy.settings import PrivacySettings
from colonnade.progress import Watcher
from colonnade.record import RunRecord, Worth
from colonnade.report.compared import best_in_words, reached, simulated_seconds, spread
from colonnade.report.metrics import compared, mean_metrics
from colonnade.report.privacy import together_of
from colonnade.report.record import Group, Terms, grouped, with_files
from colonnade.report.tables import Table
from colonnade.report.words import score_name
from colonnade.report.worth import joint_groups, verdict
from colonnade.run import Run, Training

if TYPE_CHECKING:
    from pandas import DataFrame

MARKER = ".colonnade-compare"  # a folder that has it belongs to a comparison, which may go on there
SETTINGS = (
    "methods",
    "seeds",
    "target",
    "clock",
    "metrics",
    "beside",
)  # of [compare]; all else there is a method's name


@dataclass(frozen=True)
class Comparison:
    """Methods side by side, each with every seed."""

    runs: tuple[Run, ...] = field(repr=False)  # method by method, seed by seed
    terms: Terms = field(default_factory=Terms, repr=False)
    worth: Worth | None = field(default=None, repr=False)  # where parties alone or one central model were asked for

    @property
    def verdict(self) -> str:
        """Whether it is worth joining; without parties alone or one central model, which method was best."""
        return " ".join(best_in_words(self.groups) if self.worth is None else verdict(self.worth))

    @cached_property
    def groups(self) -> list[Group]:
        """The runs of each method, as records."""
        return grouped([_whole(run) for run in self.runs])

    @property
    def table(self) -> list[dict[str, Any]]:
        """A line per method: mean and standard deviation (`std`) of the test score over the seeds, bytes, time."""
        return [summary(group, self.terms) for group in self.groups]

    @property
    def together(self) -> str:
        """What all of these trainings cost the parties and the labels together; empty, where nothing was promised.

        Of a party alone and of one central model nothing leaves anybody: they are put beside, and cost nothing.
        """
        groups = self.groups if self.worth is None else joint_groups(self.groups, self.worth)
        return together_of([record for group in groups for record in group.records])

    def to_frame(self) -> DataFrame:
        """The same as a data frame, one row per method; the mean of each metric in a column of its own.

        Raises:
            DataError: pandas is not installed.
        """
        pandas: Any = need("pandas", extra="tables", purpose="data frames")
        lines = [{**line, **{name: metric["mean"] for name, metric in line["metrics"].items()}} for line in self.table]
        frame: DataFrame = pandas.DataFrame(lines).set_index("method").drop(columns="metrics")
        return frame

    def report(self, folder: str | Path) -> Path:
        """Write report.html and the files beside it; the path of the page."""
        from colonnade.report.html import write_report  # pictures are an optional extra

        return write_report([_whole(run) for run in self.runs], Path(folder), self.terms, worth=self.worth)

    def words(self) -> Table:
        """The table for people, as the command line shows it."""
        return compared(self.groups, self.terms)

    def __repr__(self) -> str:
        told = [f"{line['method']} {_told(line)}" for line in self.table]
        return f"<Comparison on {self.runs[0].about['federation']}: {'; '.join(told)}>"

    def _repr_html_(self) -> str:
        from colonnade.report.notebook import of_comparison

        return of_comparison(self.words())


def _whole(run: Run) -> RunRecord:
    return with_files(run.record(), run.path) if run.path is not None else run.record()


def _told(line: Mapping[str, Any]) -> str:
    if line["test_score"] is None:
        return "not measured on test rows"
    deviation = f" +- {line['std']:.4f}" if line["std"] is not None else ""
    return f"{line['score']} {line['test_score']:.4f}{deviation}"


def compare(  # noqa: PLR0913 - the front door: everything a user may want to say about a comparison
    federation: Federation,
    methods: Iterable[Method | type[Settings] | str],
    *,
    seeds: int | Sequence[int] = 3,
    training: Training | None = None,
    model: ModelSettings | Mapping[str, Any] | None = None,
    encoders: Encoders = None,
    privacy: PrivacySettings | Mapping[str, Any] | None = None,
    beside: Sequence[str] = (),
    out: str | Path | None = None,
    progress: bool | None = None,
    **settings: Any,
) -> Comparison:
    """Train every method with every seed on the same rows, one after the other.

    Args:
        federation: the data.
        methods: names, classes, or objects with their settings: `["vimadmm", VAFL(weight_lr=0.1)]`.
        seeds: how many (3: the seeds 0, 1 and 2), or which.
        training: for all alike; None: by keyword (`rounds=50`).
        model: shapes the built-in networks.
        encoders: brings networks of your own.
        privacy: what is promised to whom.
        beside: "alone", "central" or both: trains each party alone, and one model over all columns in one place, on the
            same rows as one method; `worth` and `verdict` then say what joining is worth.
        out: a folder for the runs, each saved in a folder of its own. The same call goes on after an interruption,
            and does not repeat finished runs. None: nothing is written.
        progress: as in `fit`.
        **settings: those of `Training`, but for the seed.

    Examples:
        >>> import colonnade as cn
        >>> found = cn.compare(cn.sets.load_set("digits", parties=2), ["vimadmm", "local_only"], seeds=2, rounds=5)
        >>> [(line["method"], line["seeds"]) for line in found.table]
        [('vimadmm', 2), ('local_only', 2)]
        >>> found.table[0]["test_score"] > found.table[1]["test_score"]
        True
    """
    if not isinstance(federation, Federation):
        raise ConfigError(f"compare needs a Federation first; got {type(federation).__name__}")
    jobs = _jobs(federation, _as_methods(methods), training, settings)
    shape = model if isinstance(model, ModelSettings) else build(ModelSettings, model or {}, "model")
    promise = privacy if isinstance(privacy, PrivacySettings) else build(PrivacySettings, privacy or {}, "privacy")
    entries = [
        Entry(f"{name}-{chosen.seed}", Job(data, method, shape, chosen, promise, {}, encoders))
        for name, (data, method, usual) in jobs.items()
        for chosen in (usual.model_copy(update={"seed": seed}) for seed in read_seeds(seeds))
    ]
    question = worth_question(entries, federation, read_beside(beside))
    quiet: Watcher | None = (lambda now: None) if progress is False else None
    if question is None:
        return Comparison(tuple(_trained(entries, federation, encoders, out, quiet)))
    runs = _trained(question.entries, federation, encoders, out, quiet, question.done)
    records = [run.record() for run in runs]
    found = question.weigh(federation, records) if out is None else question.settle(federation, records, Path(out))
    return Comparison(tuple(runs), worth=found)


def _trained(
    entries: Sequence[Entry],
    federation: Federation,
    encoders: Encoders,
    out: str | Path | None,
    quiet: Watcher | None,
    done: Done = lambda name, run: None,
) -> list[Run]:
    """The runs, from a folder if there is one."""
    if out is not None:
        folder = marked(Path(out))
        train_all(entries, federation, folder, watching=lambda name, rounds: quiet, done=done)
        return [Run.load(folder / entry.folder, entry.job.encoders) for entry in entries]
    runs = []
    for entry in entries:
        runs.append(entry.job.fit(entry.job.part_of(federation), None, quiet))
        done(entry.folder, runs[-1])
    return runs


def worth_question(entries: Sequence[Entry], federation: Federation, beside: Sequence[str]) -> Question | None:
    """What else to train where it was asked what joining is worth; None: it was not.

    Raises:
        ConfigError: there are several methods.
    """
    if not beside:
        return None
    methods = list(dict.fromkeys(entry.job.method.name for entry in entries))
    seeds = list(dict.fromkeys(entry.job.training.seed for entry in entries))
    if len(entries) > len(seeds):
        raise ConfigError(f"what joining is worth is asked of one method; got {', '.join(methods)}; name one")
    return Question(trials(entries[0].job, federation, beside), seeds)


Prepared = dict[str, tuple[dict[str, Any], Method, Training]]


def _jobs(
    federation: Federation, methods: Sequence[Method], training: Training | None, settings: Mapping[str, Any]
) -> Prepared:
    """By a name of its own: what each method is trained on, and how."""
    if "seed" in settings:
        raise ConfigError("compare trains with several seeds: say seeds=[...] instead of seed=")
    others = {method.name: type(method) for method in methods}
    found = sorted_out(settings, [Owner("the training", Training, "training=Training({}=...)")], others)  # type: ignore[arg-type]
    if training is not None and settings:
        raise ConfigError("give either training=Training(...) or its settings as keywords, not both")
    if training is not None and "seed" in training.model_fields_set:
        raise ConfigError(
            f"compare trains with several seeds: leave seed = {training.seed} out of training=, and say seeds=[...]"
        )
    chosen = training if training is not None else build(Training, found["the training"], "training")
    jobs: Prepared = {}
    for method in methods:
        again = sum(name == method.name or name.startswith(f"{method.name}.") for name in jobs)
        data = of_rows(fingerprint(federation.pooled() if method.pools else federation))
        jobs[f"{method.name}.{again + 1}" if again else method.name] = (data, method, chosen)
    return jobs


def _as_methods(methods: Any) -> list[Method]:
    if isinstance(methods, (str, type)) or not isinstance(methods, Iterable):
        raise ConfigError(f'compare needs a list of methods, e.g. ["vimadmm", "local_only"]; got {methods!r}')
    made = [as_method(method) for method in methods]
    if not made:
        raise ConfigError('compare needs at least one method, e.g. ["vimadmm", "local_only"]')
    twice = [one for place, one in enumerate(made) if one in made[:place]]
    if twice:
        raise ConfigError(f"{twice[0].name} is named twice with the same settings; name it once")
    return made


def read_seeds(seeds: int | Sequence[int]) -> list[int]:
    """3: the seeds 0, 1 and 2; or a list without repetitions."""
    if isinstance(seeds, int) and not isinstance(seeds, bool):
        if seeds < 1:
            raise ConfigError(f"seeds = {seeds}: needed how many (at least 1), or a list, e.g. [0, 1, 2]")
        return list(range(seeds))
    return distinct(list(seeds) if isinstance(seeds, Sequence) else seeds, int, "seeds", "[0, 1, 2]")


def marked(folder: Path) -> Path:
    """A folder for a comparison: a new one, an empty one, or that of one which goes on.

    Raises:
        RunError: something else is there.
    """
    if folder.exists() and not (folder / MARKER).is_file() and not (folder.is_dir() and not any(folder.iterdir())):
        raise RunError(f"{folder} already exists and is no comparison; choose another folder, or remove it")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARKER).write_text("Written by a comparison of Colonnade, which may go on here.\n", encoding="utf-8")
    return folder


# -- from a configuration file ----------------------------------------------------------------


def plan(tables: Mapping[str, Any]) -> list[Entry]:
    """Every method of a [compare] section with every seed, all settings checked."""
    read_job(tables)  # first, so that whatever is wrong outside [compare] is said plainly
    section = tables.get("compare", {})
    known = [*SETTINGS, *METHODS]
    for key in section:
        if key not in known:
            raise ConfigError(unknown_key(key, known, "compare"))
    usual = _usual(lambda method: not _special(method))
    if read_beside(section.get("beside", [])):
        usual = [read_job(tables).method.name]
    methods = distinct(section.get("methods", usual), str, "methods", '["vimadmm", "local_only"]')
    seeds = distinct(section.get("seeds", [tables.get("training", {}).get("seed", 0)]), int, "seeds", "[0, 1, 2]")
    return [Entry(f"{m}-{s}", read_job(tables, method=m, seed=s)) for m in methods for s in seeds]


def left_out(tables: Mapping[str, Any]) -> list[str]:
    """The methods that are not tried unless they are named: not for all parties and columns."""
    section = tables.get("compare", {})
    return [] if "methods" in section or section.get("beside") else _usual(_special)


def _special(method: type[Settings]) -> bool:
    """Whether a method is for so many parties only, or for columns that are cut into bins."""
    return hasattr(method, "parties") or getattr(method, "reads_bins", False)


def _usual(keep: Callable[[type[Settings]], bool]) -> list[str]:
    """Built-in methods: what another package brings is tried where it is named."""
    return [name for name, method in METHODS.builtin.items() if keep(method)]


def distinct(values: Any, kind: type, name: str, example: str) -> list[Any]:
    """A list of distinct values of one type, or the sentence that says so."""
    good = isinstance(values, list) and values and all(type(v) is kind for v in values)
    if not good or len(set(values)) < len(values):
        raise ConfigError(
            f"[compare] {name} = {values!r} is not valid: needed a list without repetitions, e.g. {example}"
        )
    return list(values)


def check_target(terms: Terms, federation: Federation, name: str | None) -> None:
    """Refuse a target that the metric of these runs cannot reach."""
    metric, target = choose_metric(federation.task, name), terms.target
    if target is not None and metric.share and not 1 < target <= 100:
        raise ConfigError(f"target {target:g}: needed per cent of {metric.title}, above 1 and up to 100, e.g. 96")
    if target is not None and not metric.share and metric.better == "higher" and target > 1:
        raise ConfigError(f"target {target:g}: runs are judged by {metric.title}, which is at most 1")


def check_metrics(terms: Terms, federation: Federation) -> None:
    """Refuse metrics that the task does not have."""
    for name in terms.metrics:
        choose_metric(federation.task, name)


# -- what came out ----------------------------------------------------------------------------


def summary(group: Group, terms: Terms) -> dict[str, Any]:
    """A method for machines; mean and standard deviation over seeds."""
    mean, deviation = spread([r["result"]["test_score"] for r in group.records])
    traffic = [r["traffic"] for r in group.records]
    told = {
        "method": group.label,
        "seeds": len(group.records),
        "score": score_name(group.records[0]),
        "test_score": mean,
        "std": deviation,
        "metrics": mean_metrics(group),
        "megabytes": spread([(t["up"] + t["down"]) / 1e6 for t in traffic])[0],
        "simulated_seconds": spread(simulated_seconds(group, terms))[0],
    }
    if terms.target is None:
        return told
    found = reached(group, terms)
    means = {key: spread([getattr(one, key) for one in found]) for key in ("rounds", "megabytes", "simulated")}
    to_target = {key: {"mean": mean, "std": deviation} for key, (mean, deviation) in means.items()}
    return {**told, "target": terms.target, "reached": len(found), "to_target": to_target}
