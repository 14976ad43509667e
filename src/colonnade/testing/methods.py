"""What every method promises, as test classes: those that walk the built-in methods, for methods of other packages.

    from colonnade.testing import MethodContract
    from my_package import MyMethod

    class TestMyMethod(MethodContract):
        method = MyMethod

pytest finds the tests in it; nothing here imports pytest. A method's own claims (its update against a slow reference,
its theorem) need tests of their own.
"""

from __future__ import annotations

import ast
import inspect
import json
import textwrap
from collections.abc import Callable, Mapping
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, ClassVar, get_args

import torch
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from torch import Tensor

from colonnade.config import Settings
from colonnade.errors import ConfigError
from colonnade.evaluate.metrics import METRICS
from colonnade.federation import Federation
from colonnade.fit import fit, resume
from colonnade.methods import make_method
from colonnade.methods.base import Method, Traceable
from colonnade.methods.rounds import AddsIncrements
from colonnade.models.optimise import SGD, AdamW
from colonnade.models.stack import Mode
from colonnade.part import open_parts
from colonnade.privacy.events import LabelExposure
from colonnade.privacy.ledger import Ledger
from colonnade.privacy.mechanism import Protection
from colonnade.progress import Progress
from colonnade.run import Run
from colonnade.testing.federations import normed_encoder, small, trivial
from colonnade.testing.trainings import (
    ENGINES,
    TINY,
    Recorded,
    assert_same_tensors,
    events,
    open_trainer,
    record,
    unsigned,
    untimed,
)

Options = dict[str, Any]
SAVED: Options = {"rounds": 7, "evaluate_every": 2, "model": TINY, "checkpoint_every": 3}
AGREE_ROUNDS = 5  # 54 training rows in batches of 20: the second epoch is two rounds old
NOISY_LABELS = {"labels": {"mechanism": "alibi", "epsilon": 2.0}}  # some settings mean something only to them


class Tried:
    """What the test classes below are about; a subclass says `method`, and the rest where it matters."""

    method: ClassVar[type[Settings]]
    settings: ClassVar[Mapping[str, Any]] = {}  # to try it with, where the default ones would leave something out
    rounds: ClassVar[int] = 3  # until every setting has changed something
    engines: ClassVar[tuple[str, ...]] = ENGINES

    @property
    def name(self) -> str:
        """What users call it."""
        return str(self.method.name)  # type: ignore[attr-defined]

    def make(self, **settings: Any) -> Any:
        """The method, with those of the settings that it has."""
        known = {k: v for k, v in settings.items() if k in self.method.model_fields}
        return self.method(**{**self.settings, **known})

    def federation(self) -> Federation:
        """Random columns of four parties, or of as many as the method is for."""
        whole = small()
        wanted: int | None = getattr(self.method, "parties", None)
        return whole if wanted is None else whole.only(whole.names[:wanted])

    def columns(self, federation: Federation, rows: Tensor) -> dict[str, Tensor]:
        """What the method's parties hold of some rows."""
        held = federation.pooled() if self.make().pools else federation
        return {party.name: party.columns[rows] for party in held.parties}


class DescribedContract(Tried):
    """What a method says of itself."""

    def test_it_is_a_method(self) -> None:
        """It has all functions, and says what it needs and what it exposes."""
        method = self.make()
        assert isinstance(method, Method)
        assert method.needs_uploads in ("each", "total", "nothing")
        assert isinstance(method.exposes, LabelExposure)
        assert isinstance(method.pools, bool)

    def test_it_is_found_by_its_name(self) -> None:
        """A saved run names its method: without an entry point it could not be loaded."""
        assert type(make_method(self.name)) is self.method

    def test_it_is_described(self) -> None:
        """Class, module and every setting have a sentence."""
        assert self.method.__doc__
        assert self.method.__doc__ != self.method.__mro__[1].__doc__
        module = inspect.getmodule(self.method)
        assert module is not None
        assert module.__doc__
        assert all(field.description for field in self.method.model_fields.values())


class SettingsContract(Tried):
    """Settings are stored and read again, are checked, and all mean something."""

    def test_they_survive_json(self) -> None:
        """Every one of them, also where it is changed."""
        changed = (variant for field in self.method.model_fields for variant in self.changed(field))
        for method in [self.make(), *changed]:
            plain = json.loads(json.dumps(method.model_dump()))
            assert make_method(self.name, plain) == method

    def test_they_are_frozen(self) -> None:
        """A method is a value."""
        method = self.make()
        for field in self.method.model_fields:
            _raises(ValidationError, "frozen", setattr, method, field, getattr(method, field))

    def test_an_unknown_one_is_refused_with_the_nearest(self) -> None:
        """In one sentence."""
        for field in list(self.method.model_fields)[:1]:
            _raises(ConfigError, f"did you mean {field!r}", make_method, self.name, {f"{field}x": 1})

    def test_every_one_is_read(self) -> None:
        """The class uses each of its settings."""
        tree = ast.parse(textwrap.dedent(inspect.getsource(self.method)))
        read = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and _is_self(node.value)}
        unread = set(self.method.model_fields) - read
        assert not unread, f"{self.name} does not read {', '.join(sorted(unread))} as self.NAME in its own class"

    def test_every_one_changes_the_training(self) -> None:
        """Perhaps only beside other choices (a step of the heads means nothing to a joint solve), or noisy labels.

        Choices that refuse each other are no evidence.
        """
        fields, usual = self.method.model_fields, self.make()
        choices = {f: [usual, *self.changed(f)] for f in fields if _is_choice(fields[f], getattr(usual, f))}
        bases = [
            self.make(**{f: getattr(m, f) for f, m in zip(choices, combination, strict=True)})
            for combination in product(*choices.values())
        ]
        known: dict[tuple[str, bool], str | None] = {}

        def trained(method: Any, noisy: bool) -> str | None:
            key = method.model_dump_json(), noisy
            if key not in known:  # a choice that is changed is often another base
                known[key] = self._if_allowed(method, NOISY_LABELS if noisy else None)
            return known[key]

        def differ(one: Any, other: Any, noisy: bool = False) -> bool:
            found = trained(other, noisy)
            return found is not None and trained(one, noisy) not in (None, found)

        for field in fields:
            matters = any(
                differ(base, base.model_copy(update={field: getattr(variant, field)}))
                for base in bases
                for variant in self.changed(field)
            ) or any(differ(usual, variant, noisy=True) for variant in self.changed(field))
            assert matters, f"{self.name}.{field} changes nothing"

    def changed(self, field: str) -> list[Any]:
        """Copies of the method with another value of `field`; to be extended for values of another kind."""
        info, value = self.method.model_fields[field], getattr(self.make(), field)
        others = _others(info, value)
        assert others, f"the contract does not know how to change {self.name}.{field}; override `changed`"
        return [self.method(**{**self.settings, field: other}) for other in others]

    def _if_allowed(self, method: Any, privacy: Mapping[str, Any] | None) -> str | None:
        """What `weights` says; None: these settings refuse each other."""
        try:
            return self.weights(method, privacy)
        except ConfigError:
            if method == self.make():
                raise
            return None

    def weights(self, method: Any, privacy: Mapping[str, Any] | None = None) -> str:
        """What a few short rounds made of the networks."""
        trainer = open_trainer(small(widths=(3, 3)), method, rounds=self.rounds, evaluate_every=0, privacy=privacy)
        return trainer.train().fingerprint()


class LearningContract(Tried):
    """It learns, and the same way each time."""

    def test_the_trivial_federation_is_solved(self) -> None:
        """With default settings, in seconds: what each party knows is half of the label."""
        for engine in self.engines:
            run = fit(trivial(), self.make(), engine=engine, rounds=20, watch=solved)
            assert run.accuracy == 1.0
            assert run.result["validation_score"] == 1.0

    def test_same_seed_same_numbers(self) -> None:
        """To the bit, and other numbers with another seed."""
        some = {} if getattr(self.method, "once", False) else {"participation": 0.5}  # where all are asked once
        for engine in self.engines:
            options: Options = {"rounds": 4, "engine": engine, "schedule": {"batch": 16, **some}}
            first, again, other = (
                open_trainer(self.federation(), self.make(local_steps=2), seed=seed, **options).train()
                for seed in (1, 1, 2)
            )
            assert first.fingerprint() == again.fingerprint()
            assert untimed(first.history) == untimed(again.history)
            assert [r.digest for r in first.ledger] == [r.digest for r in again.ledger]
            assert first.fingerprint() != other.fingerprint()

    def test_the_global_generator_is_left_alone(self) -> None:
        """Random numbers come from `colonnade.randomness`."""
        for engine in self.engines:
            torch.manual_seed(0)
            before = torch.random.get_rng_state()
            open_trainer(self.federation(), self.make(local_steps=2), rounds=2, engine=engine).train()
            assert torch.equal(before, torch.random.get_rng_state())


class PredictionContract(Tried):
    """A run predicts what the coordinator saw, before and after it was saved."""

    def test_a_run_predicts_what_the_coordinator_saw(self) -> None:
        """On the test rows, and on the validation rows in the kept round."""
        for engine in self.engines:
            federation, method = self.federation(), self.make(local_steps=2)
            options: Options = {"rounds": 6, "evaluate_every": 1, "encoders": normed_encoder}
            seen = record(federation, method, engine=engine, **options)
            test = seen.run.logits(self.columns(federation, federation.split.test))
            torch.testing.assert_close(test, seen.logits[-1], rtol=0, atol=1e-12)
            rows = federation.split.validation
            validation = seen.run.logits(self.columns(federation, rows))
            kept = seen.logits[(seen.run.result["best_round"] or 0) - 1]
            torch.testing.assert_close(validation, kept, rtol=0, atol=1e-12)
            places = method.judging(rows) if isinstance(method, AddsIncrements) else torch.arange(len(rows))
            truth = federation.labels[rows[places]]
            judged = METRICS["accuracy"](federation.task, validation[places], truth)
            assert judged == seen.run.result["validation_score"]

    def test_a_loaded_run_predicts_the_same(self, tmp_path: Path) -> None:
        """To the bit; and what it predicts is a release."""
        for engine in self.engines:
            federation, method, folder = self.federation(), self.make(local_steps=2), tmp_path / engine
            run = fit(federation, method, engine=engine, encoders=normed_encoder, **SAVED)
            run.releases_training_rows = True  # of methods that bring noise, too
            new = self.columns(federation, torch.arange(federation.rows))
            logits, releases = run.logits(new), len(run.ledger)
            run.save(folder)
            loaded = Run.load(folder, encoders=normed_encoder)
            loaded.releases_training_rows = True
            assert torch.equal(loaded.logits(new), logits)
            assert loaded.fingerprint() == run.fingerprint()
            assert len(loaded.ledger) == releases + len(new)  # prediction is a release, before and after
            assert loaded.result == run.result
            assert loaded.record()["history"] == run.record()["history"]
            assert loaded.traffic.to_json() == run.traffic.to_json()
            assert loaded.method == method

    def test_a_row_is_predicted_alike_alone(self) -> None:
        """Whatever else is asked at the same time: an upload that looks at its batch would make it another."""
        federation = self.federation()
        run, rows = fit(federation, self.make(), rounds=2, model=TINY, dtype="float64"), federation.split.test[:4]
        together = run.logits(self.columns(federation, rows))
        alone = torch.cat([run.logits(self.columns(federation, row)) for row in rows.split(1)])
        torch.testing.assert_close(alone, together, rtol=0, atol=1e-9)

    def test_what_explains_columns_is_what_is_uploaded(self) -> None:
        """`computed`, where a method has it, is computed beside the gate: it must be what passes the gate."""
        method, federation = self.make(), self.federation()
        if not isinstance(method, Traceable):
            return
        run = fit(federation, self.make(), rounds=2, model=TINY)
        for party, x in self.columns(federation, federation.split.test).items():
            part = run.model.part(party)
            cohort = open_parts(part.design, [part], Ledger(), Protection()).sides[0].cohort
            computed, uploaded = method.computed(cohort, cohort.read(x[None]), Mode.PREDICT), part.predict(x)
            assert computed.keys() == uploaded.keys()
            for name, value in uploaded.items():
                torch.testing.assert_close(computed[name][0].detach(), value, rtol=0, atol=1e-5)


class EnginesContract(Tried):
    """The same run in every engine, and after every interruption."""

    def test_engines_agree(self) -> None:
        """The reference, one party at a time, and all parties at once."""
        options: Options = {"schedule": {"batch": 20}, "encoders": normed_encoder}
        assert_engines_agree(self.federation(), self.make(local_steps=2), **options)

    def test_a_resumed_run_is_the_uninterrupted_one(self, tmp_path: Path) -> None:
        """Interrupted before and after the first checkpoint."""
        options: Options = {**SAVED, "schedule": {"batch": 20}, "encoders": normed_encoder}
        assert_resumes(self.federation(), self.make(local_steps=2), tmp_path, **options)


class MethodContract(DescribedContract, SettingsContract, LearningContract, PredictionContract, EnginesContract):
    """All of it: what a test of a method of another package inherits from."""


def assert_engines_agree(federation: Federation, method: Method, **options: Any) -> tuple[Recorded, Recorded]:
    """Whole trajectories to 1e-9 in float64: predictions of every round, models, bytes and ledger."""
    options = {"rounds": AGREE_ROUNDS, "evaluate_every": 1, "seed": 3, "stopping": {"drop": 1e9}, **options}
    loop, stacked = (record(federation, method, engine=engine, **options) for engine in ("loop", "stacked"))
    assert len(loop.logits) == len(stacked.logits) == options["rounds"] + 1  # each round, and the test rows
    for number, (one, other) in enumerate(zip(loop.logits, stacked.logits, strict=True), start=1):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-9, msg=partial("round {}: {}".format, number))
    assert_same_tensors(loop.run.model.flat(), stacked.run.model.flat(), atol=1e-9)
    assert loop.run.traffic.to_json() == stacked.run.traffic.to_json()
    assert events(loop.run.ledger) == events(stacked.run.ledger)
    return loop, stacked


def assert_engines_end_alike(federation: Federation, method: Method, **options: Any) -> None:
    """The models, bytes and ledger of the two engines; for trainings whose predictions are more than the method's."""
    loop, stacked = (open_trainer(federation, method, engine=engine, **options).train() for engine in ENGINES[:2])
    assert_same_tensors(loop.model.flat(), stacked.model.flat(), atol=1e-8)
    assert loop.traffic.to_json() == stacked.traffic.to_json()
    assert events(loop.ledger) == events(stacked.ledger)


def assert_resumes(federation: Federation, method: Method, place: Path, **options: Any) -> None:
    """A run that an exception interrupts, losing what was not committed, ends as one that was never interrupted."""
    extra = {k: options[k] for k in ("mechanism", "encoders") if k in options}
    whole = fit(federation, method, out=place / "whole", **options)
    for stop in (2, 4):
        folder = place / str(stop)
        _raises(KeyboardInterrupt, "", fit, federation, method, out=folder, watch=interrupt(stop), **options)
        again = resume(folder, federation, **extra)
        assert again.fingerprint() == whole.fingerprint()
        assert untimed(again.history) == untimed(whole.history)
        assert again.traffic.to_json() == whole.traffic.to_json()
        assert [unsigned(r) for r in again.ledger] == [unsigned(r) for r in whole.ledger]
        assert untimed([again.result]) == untimed([whole.result])
        assert Run.load(folder, encoders=extra.get("encoders")).fingerprint() == whole.fingerprint()


def solved(progress: Progress) -> bool:
    """A watcher that has seen enough when every validation row was decided right."""
    return progress.best == 1.0


def interrupt(after: int) -> Callable[[Progress], None]:
    """A watcher that ends a training at its so-many-eth call, as Ctrl-C would."""
    left = [after]

    def watch(progress: Progress) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt

    return watch


def _raises(kind: type[BaseException], told: str, call: Callable[..., Any], *given: Any, **named: Any) -> None:
    try:
        call(*given, **named)
    except kind as error:
        assert told in str(error), f"{told!r} was expected in {str(error)!r}"
        return
    raise AssertionError(f"{kind.__name__} was expected")


def _is_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def _is_choice(field: FieldInfo, value: Any) -> bool:
    """Whether a field selects what others mean: a switch, one of some words, an optimiser, the name of a party."""
    words = get_args(field.annotation)
    return isinstance(value, (bool, BaseModel)) or (bool(words) and (isinstance(words[0], str) or str in words))


def _others(info: FieldInfo, value: Any) -> list[Any]:
    """Other values of a setting."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, max(1, value // 2)]  # a cache of 5 cannot be full after three rounds
    if {int, str} & set(get_args(info.annotation)):  # unset by default; a name can only be a party's
        return [1 if int in get_args(info.annotation) else "party_0"]
    if isinstance(value, float) or float in get_args(info.annotation):
        return [value * 0.75 if value else 0.6]
    if isinstance(value, BaseModel):
        return [AdamW(lr=0.02), SGD(lr=0.02)]
    return [choice for choice in get_args(info.annotation) if choice != value]
