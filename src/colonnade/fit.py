"""The training loop, on one page: request, uploads, reply, record. Everything else has its own file."""

from __future__ import annotations

import time
import uuid
import warnings
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from colonnade.callbacks import Callback, check_callbacks
from colonnade.checkpoint import commit, describe, fingerprint, restore, warn_of_another_machine, warn_of_other_bits
from colonnade.config import Settings, build
from colonnade.design import Arithmetic, Design
from colonnade.engines.base import Encoders, Engine, check_encoders, cohort_builder
from colonnade.engines.coordinator import CoordinatorSide
from colonnade.engines.lift_gain import lift_gain
from colonnade.engines.loop import Loop
from colonnade.engines.own_code import changed, own_code, shapes_of
from colonnade.engines.queries import remember
from colonnade.engines.stacked import Stacked
from colonnade.errors import ConfigError, Diverged, DoubtfulScore, RunError, ShortTraining
from colonnade.evaluate.answers import Answers, Evaluated
from colonnade.evaluate.binned import PROTECTED, binned, withheld
from colonnade.evaluate.chance import measured
from colonnade.evaluate.metrics import Metric, choose_metric
from colonnade.federation import Federation
from colonnade.folder import claimed
from colonnade.keywords import settings_of
from colonnade.methods import make_method
from colonnade.methods._combinations import settled
from colonnade.methods._convolutions import for_networks
from colonnade.methods._guest import shown_by, with_guest
from colonnade.methods.base import Extends, Method, check_bins, check_rows, is_model
from colonnade.methods.without import outputs
from colonnade.model import Model
from colonnade.models.encoders import ModelSettings
from colonnade.opening import Terms, one_protection, open_coordinator, simulated_protection
from colonnade.privacy.ledger import Ledger
from colonnade.privacy.mechanism import Mechanism, Protection
from colonnade.privacy.settings import PrivacySettings
from colonnade.privacy.so_far import SoFar
from colonnade.privacy.training_rows import TrainingRows, noised
from colonnade.progress import Progress, Telling, Watcher
from colonnade.record import OnTest, Result, Sections
from colonnade.run import DTYPES, STORE, Run, Training
from colonnade.store import Store
from colonnade.wire.messages import Request


def fit(  # noqa: PLR0913 - the front door: everything a user may want to say about a training
    federation: Federation,
    method: Method | type[Settings] | str,
    *,
    training: Training | None = None,
    model: ModelSettings | Mapping[str, Any] | None = None,
    encoders: Encoders = None,
    privacy: PrivacySettings | Mapping[str, Any] | None = None,
    mechanism: Mechanism | None = None,
    out: str | Path | None = None,
    watch: Watcher | None = None,
    callbacks: Iterable[Callback] = (),
    progress: bool | None = None,
    config: Sections | None = None,
    **settings: Any,
) -> Run:
    """Train `method` on `federation` and return the run, its best round kept.

    `method` is a name (`"vimadmm"`), or one of `colonnade.methods`, as a class or with its settings as an object.
    Keyword settings are those of `Training` (`rounds=50, seed=7, batch=256`) and, beside a name or a class, those of
    the method (`rho=0.5, lr=0.01`); a name that could mean two settings is refused. `model` shapes the built-in
    networks, of all parties or of one (`model={"hidden": 64, "telco": {"hidden": 16}}`); `encoders` brings your own
    (a module, a `Regressor` or an estimator of scikit-learn's kind by party, or a function of party and column shape):
    of all parties, or of some.
    `privacy` says what is promised to whom; `mechanism` puts one of your own before every release instead.
    With `out` the run is checkpointed there and can be resumed after a kill.

    `watch` is called after each round with a `Progress` (round, rounds, score, best, bytes, seconds); when it returns
    True, training stops after that round and the best one is kept. `callbacks` are objects with `on_round(progress)`,
    which is the same, `on_end(run)`, or both (`colonnade.callbacks`). Without a watcher, a line on stderr says how far
    a training of more than a few seconds is; `progress=False` or the environment variable COLONNADE_PROGRESS=0 switch
    it off, `progress=True` shows it beside a watcher.

    Examples:
        >>> import colonnade as cn
        >>> run = cn.fit(cn.sets.load_set("digits", parties=4), "vimadmm", rounds=10, lr=0.01)
        >>> run.score > 0.8, run.score_name
        (True, 'accuracy')
    """
    if not isinstance(federation, Federation):
        raise ConfigError(
            f"fit needs a Federation first, e.g. Federation.from_tables(...); got {type(federation).__name__}"
        )
    method, training = settings_of(method, training, settings)
    told = check_callbacks(callbacks)
    model = model if isinstance(model, ModelSettings) else build(ModelSettings, model or {}, "model")
    privacy = privacy if isinstance(privacy, PrivacySettings) else build(PrivacySettings, privacy or {}, "privacy")
    model.check_parties(federation.names)
    check_encoders(encoders, ("everyone",) if method.pools else federation.names)
    folder = _free_folder(Path(out)) if out is not None else None
    trainer = Trainer.open(federation, method, training, model, encoders, mechanism, privacy=privacy)
    trainer.config = config
    if short := trainer.coordinator.schedule.shortfall(trainer.training.rounds):
        warnings.warn(short, ShortTraining, stacklevel=2)
    if folder is None:
        with closing(Telling.of(method.name, watch, progress, told)) as telling:
            return telling.ended(trainer.train(telling=telling))
    # The folder is made only now: a bad setting leaves none behind.
    with claimed(folder, mode=0o777) as claim, closing(_new_store(folder)) as store:
        store.describe(describe(trainer))
        with closing(Telling.of(method.name, watch, progress, told, claim)) as telling:
            return telling.ended(trainer.train(store, telling=telling))


def resume(
    folder: str | Path,
    federation: Federation,
    *,
    encoders: Encoders = None,
    mechanism: Mechanism | None = None,
    watch: Watcher | None = None,
    callbacks: Iterable[Callback] = (),
    progress: bool | None = None,
) -> Run:
    """Continue an interrupted run; the result is bit-identical to one that was never interrupted.

    Runs with `training.compile` are continued within rounding, and a warning says so.
    `watch`, `callbacks` and `progress` are those of `fit`. A run that another process still trains is refused.
    """
    path, told = Path(folder), check_callbacks(callbacks)
    if not (path / STORE).exists():
        raise RunError(f"{str(folder)!r} has no {STORE}: it is not a run that can be resumed")
    with claimed(path) as claim, closing(Store(path / STORE)) as store:
        trainer = _reopened(path, store, federation, encoders, mechanism)
        about, device = store.about(), trainer.coordinator.schema.device
        warn_of_another_machine(about["about"]["machine"], device)
        warn_of_other_bits(about["training"], device)
        with closing(Telling.of(trainer.coordinator.method.name, watch, progress, told, claim)) as telling:
            return telling.ended(trainer.train(store, telling=telling))


def _reopened(
    folder: Path, store: Store, federation: Federation, encoders: Encoders, mechanism: Mechanism | None
) -> Trainer:
    """The trainer of a stored run, as it was when the run began."""
    about = store.about()
    if "agreement" in about:
        raise RunError(f"{folder} is a run of separate organisations; start `colonnade coordinator` again to go on")
    method = make_method(about["method"]["name"], about["method"]["settings"])
    training = build(Training, about["training"], "training")
    if about["data"] != fingerprint(federation.pooled() if method.pools else federation):
        raise RunError(f"{folder} was trained on other data than this federation; give it the same rows and columns")
    if about["own_encoders"] and encoders is None:
        raise RunError(f"{folder} was trained with local models of your own; pass them again as encoders=")
    now = own_code(method, shapes_of(federation, method.pools), encoders, training.seed)
    if told := changed(about, now, numbers=False):
        raise RunError(f"{folder} cannot go on: {told}; put it back as it was, or train in another folder")
    model = build(ModelSettings, about["model"], "model")
    privacy = build(PrivacySettings, about.get("privacy", {}), "privacy")
    return Trainer.open(federation, method, training, model, encoders, mechanism, about, privacy)


@dataclass
class Trainer:
    """A coordinator and an engine that talk until one of them has reason to stop."""

    federation: Federation
    coordinator: CoordinatorSide
    engine: Engine
    training: Training
    model: ModelSettings
    encoders: Encoders
    ledger: Ledger
    id: str
    privacy: PrivacySettings = field(default_factory=PrivacySettings)
    seconds: float = 0.0
    diverged: bool = False
    config: Sections | None = None
    written: dict[str, int] = field(default_factory=lambda: {"history": 0, "traffic": 0, "ledger": 0})
    may_evaluate: bool = True  # something may leave for an evaluation on the test rows, if the settings allow it
    tested: Evaluated | None = None
    regrouped: Mapping[str, Any] = field(
        default_factory=dict
    )  # who joined or left since an earlier run, for the record

    @classmethod
    def open(  # the one place where all parts meet
        cls,
        federation: Federation,
        method: Method,
        training: Training,
        model: ModelSettings,
        encoders: Encoders,
        mechanism: Mechanism | None,
        about: Mapping[str, Any] | None = None,
        privacy: PrivacySettings | None = None,
    ) -> Trainer:
        """Open both sides; `about` repeats the choices of a run that is being resumed."""
        method = with_guest(method, federation)
        check_rows(method, federation)
        for party in federation.names:
            check_bins(method, party, party in federation.plans and federation.plans[party].cut)
        if method.pools:
            federation = federation.pooled()
        training = training.in_rounds(method, federation.split.train, federation.names)
        device, dtype, computing = find_device(training.device), DTYPES[training.dtype], training.computing
        computing.check(dtype, device)
        numbers = training.wire.numbers
        how = (dtype, device, computing, numbers, shown_by(method), training.augment)
        builder = cohort_builder(federation, model, encoders, training.seed, *how)
        method = for_networks(method, builder.modules.values())
        run, ledger, privacy = about["id"] if about else uuid.uuid4().hex[:12], Ledger(), privacy or PrivacySettings()
        privacy = one_protection(privacy, mechanism, method)
        schema, builder = builder.schema, replace(builder, spares_training=privacy.by_row)
        coordinator = open_coordinator(federation, schema, method, training, ledger, run, Terms(privacy))
        silent = coordinator.schedule.someone_may_be_silent
        protection = (
            Protection.everywhere(mechanism)
            if mechanism is not None
            else simulated_protection(coordinator, run, privacy)
        )
        coordinator.noised = protection.noised
        engine: Engine
        if training.engine == "loop":
            engine = Loop.open(builder, method, ledger, run, silent, protection)
        else:
            ways = about["ways"] if about else ()
            engine = Stacked.open(builder, method, ledger, run, silent, protection, ways)
        config = about["config"] if about else None
        return cls(federation, coordinator, engine, training, model, encoders, ledger, run, privacy, config=config)

    def train(self, store: Store | None = None, watch: Watcher | None = None, telling: Telling | None = None) -> Run:
        """Round after round, until a request says stop; then evaluate the test rows, once."""
        telling = telling or Telling(watch)
        if store is not None:
            restore(self, store)
        asked = False  # somebody asked to stop, which a resumed run could not know by itself
        while True:
            start = time.perf_counter()
            request, down = self.coordinator.request()
            if store is not None and (asked or self.coordinator.number % self.training.checkpoint_every == 0):
                commit(self, store)  # with the request's own release: it is in the ledger before anybody can read it
            if request.stop is not None:
                break
            try:
                self.coordinator.receive(request, self.engine.run_round(request, down))
            except Diverged as error:
                self._give_up(request, error)
            self.seconds += time.perf_counter() - start
            if self.coordinator.history:
                self.coordinator.history[-1].setdefault("seconds", round(self.seconds, 4))
            asked = telling.asks_to_stop(self._progress) and self.coordinator.stop is None
            if asked:
                self.coordinator.end(self.coordinator.number, "stopped by the watcher")
        self.engine.run_round(request, down)
        return self._finish(request.stop, store)

    def _give_up(self, request: Request, error: Diverged) -> None:
        """A party left the finite numbers, perhaps before others got the request: keep what it calls best, and stop."""
        for side in self.engine.parties():
            side.keep(request)
        self.coordinator.keep = False  # delivered just now; the models have moved on since
        self.coordinator.give_up(request.number, error)

    def _progress(self) -> Progress:
        c = self.coordinator
        evaluated = next((h for h in reversed(c.history) if "score" in h), None)
        best = c.best_score if evaluated else None
        last, after = (evaluated["score"], evaluated["round"]) if evaluated else (None, None)
        done = min(c.number, c.training_plan.rounds)
        moved, spent = c.traffic.up + c.traffic.down, SoFar.of(self.ledger, self.privacy, c.schema.parties)
        noisy = c.labels.epsilon is not None
        rounds, metric = c.training_plan.rounds, c.metric.title
        return Progress(done, rounds, last, best, moved, self.seconds, spent, noisy, metric, after)

    # -- the end ------------------------------------------------------------------------------

    def _finish(self, reason: str, store: Store | None) -> Run:
        c = self.coordinator
        for side in self.engine.parties():
            side.use_best()
        state = settled(c.schema.task, c.best_state or {k: v for k, v in c.state.items() if is_model(k)})
        self.diverged = self.diverged or reason.startswith("diverged")
        found: OnTest = {"metric": self._metric.name, "test_score": None}
        scored = c.watch.best_round >= 0
        may_evaluate = self.privacy.evaluates() and self.may_evaluate and len(self.federation.split.test)
        if may_evaluate and (scored or not self.diverged):
            found.update(self._test(state))
        result: Result = {
            "rounds": min(c.number, c.training_plan.rounds),
            "stop": reason,
            "diverged": self.diverged,
            "best_round": c.watch.best_round if scored else None,
            "validation_score": c.best_score,
            "validation_metric": c.metric.name,
            "validation_metrics": c.best_scores,
            **found,
            "warnings": [*(c.judge.warnings if scored else ()), *found.get("warnings", ())],
            "seconds": self.seconds,
        }
        for warning in result["warnings"]:
            warnings.warn(warning, DoubtfulScore, stacklevel=4)  # where fit was called
        c.traffic.settle()  # what is still to be counted holds the coordinator, which a run must not
        self.ledger.settle()
        run = Run(self._model(state), self.training, describe(self)["about"], c.history, c.traffic, result, self.config)
        run.tested = self.tested
        if isinstance(c.method, Extends):
            run.kept = {name: value for name, value in c.state.items() if not is_model(name)}
        if store is not None:
            run.save(store.path.parent)
            store.close()
        return run

    def _model(self, state: Mapping[str, Tensor]) -> Model:
        """What was trained; parts of parties in other processes stay there."""
        c, f = self.coordinator, self.federation
        design = Design(
            self.id, c.method, self.model, f.task, f.names, Arithmetic.among(self.training.model_dump()), self.privacy,
            tuple(party.name for party in f.parties if not party.columns.is_floating_point()),
        )  # fmt: skip
        models = {party: model for side in self.engine.parties() for party, model in side.models().items()}
        shapes = {party.name: tuple(party.columns.shape[1:]) for party in f.parties}
        model = Model.assemble(design, state, models, shapes, f.plans, self.encoders, self.ledger)
        model.rounds, model.from_tables = min(c.number, c.training_plan.rounds), bool(f.plans)
        model.decision = c.decision
        model.trained = TrainingRows.of(f) if noised(self.ledger) else None
        return model

    @property
    def _metric(self) -> Metric:
        return choose_metric(self.coordinator.schema.task, self.training.metric)

    def _test(self, state: dict[str, Tensor]) -> OnTest:
        c, rows = self.coordinator, self.federation.split.test
        request, down = c.test_request(rows)
        answers = self.engine.run_round(request, down)
        c.count_up(request, answers.releases)
        if answers.absent:
            return {"test_score": None, "absent": list(answers.absent)}
        with torch.no_grad():
            uploads = [c.uploads(request, place, uploaded) for place, uploaded in enumerate(answers.uploaded)]
            remember(c.method, c.state, rows.to(c.schema.device), uploads)
            found = self.measured(torch.cat([outputs(c.method, state, h) for h in uploads]))
            gain = lift_gain(c.method, state, uploads, self.tested, self._metric) if self.tested else None
        return found if gain is None else {**found, "lifts": gain}

    def measured(self, logits: Tensor) -> OnTest:
        """What logits (B, K) of the test rows say of the model."""
        c, rows = self.coordinator, self.federation.split.test
        known, train = self.federation.labelled, self.federation.split.train
        shares = c.shares(train if known is None else train[known[train]])
        truth, weights = c.truth[rows.to(c.truth.device)], c.weights_of(rows)
        groups = None if self.federation.by is None else self.federation.by.take(rows)
        task = c.schema.task
        found = measured(task, logits, truth, shares, self._metric, weights, c.decision, groups)
        said = Answers.of_outputs(task, logits.cpu(), c.decision)  # kept with the run: not on the device
        self.tested = Evaluated(task, said, truth.cpu(), weights)
        found["binned"] = withheld(PROTECTED) if self.privacy.labels.protects else binned(self.tested)
        return found


def _free_folder(folder: Path) -> Path:
    """Refuse a folder that holds a run; one that was killed before it began holds none."""
    if (folder / STORE).exists():
        with closing(Store(folder / STORE)) as store:
            taken = store.begun
        if taken:
            raise RunError(f"{folder} already holds a run; resume it, or choose another folder")
    return folder


def _new_store(folder: Path) -> Store:
    """The store of a run that begins; another process may have begun one since this was last asked."""
    return Store(_free_folder(folder) / STORE)


def find_device(name: str, setting: str = "training.device") -> torch.device:
    """The device of that name, if it is there; `setting` is where the name was given."""
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError(f"{setting} = {name!r} is not a device; use cpu, cuda or cuda:0") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"{setting} = {name!r} but no GPU is available here; use device = 'cpu'")
    return device
