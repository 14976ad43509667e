"""Search a method's settings from Python: `cn.tune`. The search itself is in `search.py`, also for the command line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from colonnade.checkpoint import fingerprint
from colonnade.compare import read_seeds
from colonnade.config import Settings, build
from colonnade.engines.base import Encoders
from colonnade.errors import ConfigError, RunError
from colonnade.evaluate.metrics import choose_metric
from colonnade.federation import Federation
from colonnade.job import Job
from colonnade.keywords import settings_of
from colonnade.many import of_rows
from colonnade.methods.base import Method
from colonnade.models.encoders import ModelSettings
from colonnade.privacy.settings import PrivacySettings
from colonnade.run import Run, Training
from colonnade.search import STUDY, Budget, Outcome, Watcher, price, search_settings
from colonnade.search_space import asked_space, declared_space, with_settings

Searched = Mapping[str, str | tuple[float, ...] | tuple[float, float, str] | list[Any]]


@dataclass(frozen=True)
class Tuned:
    """The best settings that a search has found, by their validation score, which promises no test score."""

    method: Method  # with these settings
    outcome: Outcome = field(repr=False)
    metric: str  # what the scores are, in words
    warning: str | None  # what the search itself cost in privacy; None: nothing was promised
    job: Job = field(repr=False)
    federation: Federation = field(repr=False)

    @property
    def settings(self) -> Mapping[str, Any]:
        """Those that were searched, by their dotted names, with the best values."""
        return self.outcome.chosen

    @property
    def score(self) -> float:
        """The mean validation score over the seeds with the best settings."""
        assert self.outcome.score is not None  # `tune` refuses a search without one
        return self.outcome.score

    @property
    def before(self) -> float | None:
        """The same with the settings as they were; None where they are outside of what was searched, or diverged."""
        return self.outcome.usual

    def __repr__(self) -> str:
        before = "" if self.before is None else f", {self.before:.4f} before"
        values = {k: f"{v:.4g}" if isinstance(v, float) else str(v) for k, v in self.settings.items()}
        chosen = ", ".join(f"{name} {value}" for name, value in values.items())
        return f"<Tuned {self.method.name}: validation {self.metric} {self.score:.4f}{before}; {chosen}>"

    def fit(self, **more: Any) -> Run:
        """Train with these settings on all rows, test rows included; `more` is for `fit`, e.g. `out` or `rounds`."""
        from colonnade.fit import fit

        job = self.job
        settings = more.keys() & Training.model_fields.keys()
        said = {k: more.pop(k) for k in settings}
        usual = job.training.model_dump(exclude={"rounds"} if "epochs" in said else {"epochs"})
        training = build(Training, usual | said, "training")
        parts = {"training": training, "model": job.model, "privacy": job.privacy, "encoders": job.encoders}
        return fit(self.federation, self.method, **{**parts, **more})


def tune(  # noqa: PLR0913 - the front door: everything a user may want to say about a search
    federation: Federation,
    method: Method | type[Settings] | str,
    *,
    trials: int = 20,
    search: Searched | None = None,
    seeds: int | Sequence[int] = 1,
    training: Training | None = None,
    model: ModelSettings | Mapping[str, Any] | None = None,
    encoders: Encoders = None,
    privacy: PrivacySettings | Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    progress: bool | None = None,
    **settings: Any,
) -> Tuned:
    """Search a method's settings on the validation rows; the test rows are not there while it searches.

    Args:
        federation: the data.
        method: a name, a class or an object; its settings are the first trial.
        trials: how many settings to try.
        search: values by setting: `{"rho": (0.1, 10, "log"), "local_steps": [5, 10, 20]}`, or texts as on the
            command line. None: step sizes, decays, penalties and local steps.
        seeds: every trial is the mean over so many, or over these.
        training: how each trial is trained; None: by keyword (`rounds=50`).
        model: shapes the built-in networks.
        encoders: brings networks of your own.
        privacy: what is promised to whom. A search is not covered by the epsilon of a run: `Tuned.warning` says so.
        out: a folder for the trials; the same call goes on after an interruption. None: nothing is kept.
        progress: as in `fit`.
        **settings: those of `Training` and of the method, as in `fit`.

    Examples:
        >>> import colonnade as cn
        >>> data = cn.sets.load_set("digits", parties=2)
        >>> best = cn.tune(data, "vimadmm", trials=2, rounds=5, search={"rho": (0.5, 2.0)})
        >>> list(best.settings), best.score >= best.before
        (['rho'], True)
        >>> run = best.fit(rounds=5)
    """
    if not isinstance(federation, Federation):
        raise ConfigError(f"tune needs a Federation first; got {type(federation).__name__}")
    if trials < 1:
        raise ConfigError(f"trials = {trials}: needed at least 1")
    made, chosen = settings_of(method, training, settings)
    shape = model if isinstance(model, ModelSettings) else build(ModelSettings, model or {}, "model")
    promise = privacy if isinstance(privacy, PrivacySettings) else build(PrivacySettings, privacy or {}, "privacy")
    data = of_rows(fingerprint(federation.pooled() if made.pools else federation))
    job = Job(data, made, shape, chosen, promise, {}, encoders).suited(federation)
    made = job.method
    space = declared_space(made) if search is None else asked_space({made.name: made}, _as_texts(search))[made.name]
    rounds = chosen.in_rounds(made, federation.split.train, federation.names).rounds
    budget = Budget(trials, rounds, tuple(read_seeds(seeds)))
    watch: Watcher | None = (lambda done, best, now: None) if progress is False else None
    warning = price(promise)
    with _folder(out) as folder:
        outcome = search_settings(job, federation, space, budget, folder / STUDY, watch)
    if outcome.score is None:
        smaller = "search={'optimiser.lr': (1e-5, 1e-2, 'log')}"
        raise RunError(f"every trial diverged; search smaller step sizes, e.g. {smaller}")
    title = choose_metric(federation.task, chosen.metric).title
    return Tuned(with_settings(made, outcome.chosen), outcome, title, warning, job, federation)


@contextmanager
def _folder(out: str | Path | None) -> Iterator[Path]:
    if out is not None:
        yield Path(out)
        return
    with TemporaryDirectory() as folder:
        yield Path(folder)


def _as_texts(search: Any) -> list[str]:
    """Values by setting as the command line has them: LOW:HIGH, LOW:HIGH:log or A,B,C."""
    if not isinstance(search, Mapping) or not search:
        raise ConfigError(f"search needs values by setting, e.g. {{'rho': (0.1, 10, 'log')}}; got {search!r}")
    return [f"{name}={_as_text(name, values)}" for name, values in search.items()]


def _as_text(name: str, values: Any) -> str:
    if isinstance(values, str):
        return values
    if isinstance(values, list) and values:
        return ",".join(map(str, values))
    if isinstance(values, tuple) and len(values) in (2, 3):
        return ":".join(map(str, values))
    raise ConfigError(f"search {name}: needed (low, high), (low, high, 'log') or a list of values; got {values!r}")
