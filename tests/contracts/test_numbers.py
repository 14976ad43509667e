"""Runs whose numbers travel in fewer bytes: every engine the same, both sides the same, and less to send."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
import torch

import colonnade
from colonnade.engines.base import numbers_of
from colonnade.errors import ConfigError, Diverged, GateError
from colonnade.estimate import estimate
from colonnade.evaluate.metrics import METRICS
from colonnade.federation import Federation
from colonnade.fit import Trainer
from colonnade.job import read_job
from colonnade.models.encoders import ModelSettings
from colonnade.privacy.gate import CoordinatorGate, Gate
from colonnade.privacy.gaussian import SeededNoise
from colonnade.privacy.ledger import Ledger
from colonnade.privacy.mechanism import Protection
from colonnade.privacy.pbm import PoissonBinomial
from colonnade.privacy.sealed import Array, Upload
from colonnade.wire.codec import decode
from colonnade.wire.messages import Purpose, Request
from colonnade.wire.numbers import LARGEST, Numbers
from tests.contracts.registry import EVERY, ONLY_TWO, covering, fitting, make
from tests.federations import digits, small
from tests.mechanisms import Rounding
from tests.trainers import ENGINES, assert_same_tensors, open_trainer, rounds_of, untimed

FORMATS = ("float32", "float16", "int8", "int8_blocks")
ROUNDED = [name for name in EVERY if not getattr(make(name), "packs", False)]
PACKED = [name for name in EVERY if name not in ROUNDED]


def wire(numbers: str) -> dict[str, str]:
    return {"numbers": numbers}


def opened(name: str, numbers: str, engine: str, **options: Any) -> Trainer:
    federation = options.pop("federation", None) or fitting(name, small(widths=(5, 3, 5, 3)))
    options = {"rounds": 5, "evaluate_every": 2, "schedule": {"batch": 20}, **options}
    return open_trainer(federation, make(name, local_steps=2), wire=wire(numbers), engine=engine, **options)


@pytest.mark.parametrize(("name", "numbers"), [(n, f) for n, f in covering(FORMATS) if n in ROUNDED])
def test_every_engine_sends_the_same_bytes_and_goes_on_with_the_same_numbers(name: str, numbers: str) -> None:
    """Uploads are on a grid first, which hides the last bits in which a batched product differs."""
    runs = {}
    for engine in ENGINES:
        trainer = opened(name, numbers, engine, mechanism=Rounding(2**-20))
        run = trainer.train()
        runs[engine] = (run.model.flat(), sorted((r.number, r.digest) for r in trainer.ledger), run.traffic.to_json())
    assert_same_tensors(runs["loop"][0], runs["stacked"][0], atol=1e-9)
    assert runs["loop"][1:] == runs["stacked"][1:]


@pytest.mark.parametrize("scenario", [{"schedule": {"batch": 20, "participation": 0.5}}, {"dtype": "float32"}])
@pytest.mark.parametrize("name", ["vimadmm", "vimadmm_j", "split_learning"])
def test_remembered_uploads_and_other_dtypes_agree_too(name: str, scenario: dict[str, Any]) -> None:
    digests = []
    for engine in ENGINES:
        trainer = opened(name, "int8", engine, mechanism=Rounding(2**-8), **scenario)
        for _ in rounds_of(trainer):
            pass
        digests.append(sorted((r.number, r.digest) for r in trainer.ledger if r.number <= 2))
        assert all(torch.isfinite(value).all() for value in trainer.engine.tensors().values())
    assert digests[0] == digests[1]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ["vimadmm", "vimadmm_j", "cafe"])
def test_a_party_remembers_its_upload_as_the_coordinator_reads_it(name: str, engine: str) -> None:
    trainer = opened(name, "int8", engine)
    numbers = numbers_of(trainer.coordinator.schema)
    for one_round in rounds_of(trainer):
        for query, releases in zip(one_round.request.queries, one_round.collected.releases, strict=True):
            if query.purpose is not Purpose.TRAIN:
                continue
            read = {r.sender: numbers.read(*decode(r.payload)) for r in releases}
            for side in trainer.engine.parties():
                for place, party in enumerate(side.cohort.names):
                    for key, value in read[party].items():
                        assert torch.equal(side.uploaded[key][place], value)


@pytest.mark.parametrize("name", ["vimadmm", "split_learning", "linear_admm"])
def test_a_reply_is_what_its_readers_decode(name: str) -> None:
    trainer = opened(name, "int8", "stacked")
    schema, seen = trainer.coordinator.schema, 0
    for one_round in rounds_of(trainer):
        numbers = numbers_of(schema).reply(one_round.request.number)
        common = numbers.read(*decode(one_round.down.everyone.payload))
        for key, value in one_round.down.common.items():
            assert torch.equal(common[f"common.{key}"], value)
            seen += 1
        for party, released in one_round.down.own.items():
            group, place = schema.position(party)
            for key, value in numbers.read(*decode(released.payload)).items():
                assert torch.equal(one_round.down.groups[group][key][place], value)
                seen += 1
    assert seen


@pytest.mark.parametrize("name", ["fdml", "local_only", "flex_vfl"])
def test_labels_given_to_the_parties_are_not_rounded(name: str) -> None:
    federation = small(task="regression")
    for one_round in rounds_of(opened(name, "int8", "loop", federation=federation)):
        header, arrays = decode(one_round.down.everyone.payload)
        if one_round.request.number == 1:
            assert "numbers" not in header
            assert arrays["common.targets"].is_floating_point()
        else:
            assert header["numbers"] == "int8"


@pytest.mark.parametrize(("name", "most"), [("vimadmm", 0.45), ("vimadmm_j", 0.5), ("split_learning", 0.4)])
def test_fewer_bytes_are_counted_and_estimated(name: str, most: float) -> None:
    federation = digits()
    sent = {}
    for numbers in ("full", "int8"):
        tables = {
            "method": {"name": name},
            "model": {"hidden": 8, "embedding": 16},
            "training": {"rounds": 4, "evaluate_every": 2, "schedule": {"batch": 300}, "wire": wire(numbers)},
        }
        job = read_job(tables)
        run, found = job.fit(federation), estimate(job, federation).traffic
        assert (found.up, found.evaluation) == (run.traffic.up, run.traffic.evaluation)
        assert found.down == pytest.approx(run.traffic.down, rel=1e-3)
        sent[numbers] = run.traffic
    assert sent["int8"].up < most * sent["full"].up
    assert sent["int8"].down < 0.6 * sent["full"].down


@pytest.mark.parametrize("name", ["vimadmm", "vimadmm_j", "split_learning", "fdml"])
def test_a_model_is_about_as_good_with_fewer_bytes(name: str) -> None:
    """Within two points over all 1,797 digits; 8 bits of 32."""
    federation = digits()
    columns = {party.name: party.columns for party in federation.parties}
    reached = {}
    for numbers in ("full", "float16", "int8"):
        run = open_trainer(
            federation, make(name, local_steps=5), model=ModelSettings(hidden=24, embedding=12), dtype="float32",
            rounds=25, evaluate_every=5, schedule={"batch": 256}, wire=wire(numbers),
        ).train()  # fmt: skip
        reached[numbers] = METRICS["accuracy"](federation.task, run.logits(columns), federation.labels)
    assert reached["full"] > 0.75
    assert abs(reached["float16"] - reached["full"]) < 0.01
    assert reached["int8"] > reached["full"] - 0.02


def test_a_row_is_predicted_alike_alone_and_among_others(tmp_path: Any) -> None:
    federation = digits()
    run = colonnade.fit(federation, "vimadmm", rounds=3, wire=wire("int8"), out=tmp_path / "run", progress=False)
    columns = {party.name: party.columns[:9] for party in federation.parties}
    loaded = colonnade.Run.load(tmp_path / "run")
    assert loaded.training.wire.numbers == "int8"
    together = loaded.logits(columns)
    alone = torch.cat([run.logits({name: value[row : row + 1] for name, value in columns.items()}) for row in range(9)])
    torch.testing.assert_close(alone, together, rtol=0, atol=1e-5)


def test_a_run_goes_on_after_a_kill_to_the_bit(tmp_path: Any) -> None:
    federation, settings = small(), {"rounds": 6, "checkpoint_every": 1, "schedule": {"batch": 20}, "progress": False}
    whole = colonnade.fit(federation, "vimadmm", wire=wire("int8"), **settings)

    class Killed(Exception):
        pass

    def kill(now: Any) -> None:
        if now.round == 3:
            raise Killed

    with pytest.raises(Killed):
        colonnade.fit(federation, "vimadmm", wire=wire("int8"), out=tmp_path / "run", watch=kill, **settings)
    resumed = colonnade.resume(tmp_path / "run", federation, progress=False)
    assert resumed.fingerprint() == whole.fingerprint()
    assert untimed(resumed.history) == untimed(whole.history)


class TestPrivacy:
    noise: ClassVar[dict[str, Any]] = {"mechanism": "gaussian", "clip": 1.0, "sigma": 5.0}

    def test_rounding_noised_uploads_costs_nothing(self) -> None:
        found = []
        for numbers in ("full", "int8"):
            run = opened("vimadmm", numbers, "stacked", privacy=self.noise).train()
            found.append([(r.owner, r.mechanism, r.number, r.parameters) for r in run.ledger])
        assert found[0] == found[1]

    def test_it_is_the_noised_upload_that_is_rounded(self) -> None:
        """The noise is drawn from the same stream: what left is what would have left, rounded."""
        left = {}
        for numbers in ("full", "int8"):
            trainer = opened("vimadmm", numbers, "loop", privacy=self.noise)
            request, down = trainer.coordinator.request()
            answers = trainer.engine.run_round(request, down)
            left[numbers] = [part.values["h"] for part in answers.uploaded[0]]
        assert len(left["full"]) == 2
        for plain, coded in zip(left["full"], left["int8"], strict=True):
            again = Numbers("int8", torch.float64)
            assert torch.equal(again.decode(again.encode({"h": plain}))["h"], coded)


class TestRefusals:
    def test_a_secure_sum(self) -> None:
        with pytest.raises(ConfigError, match=r"training.wire.numbers = 'int8' would round what a secure sum adds"):
            opened("vimadmm_j", "int8", "loop", privacy={"secure_sum": {"use": True}})

    @pytest.mark.parametrize("name", PACKED)
    def test_a_method_that_packs_its_uploads_itself(self, name: str) -> None:
        with pytest.raises(ConfigError, match=rf"training.wire.numbers = 'float16': {name} makes small whole numbers"):
            opened(name, "float16", "loop")

    def test_methods_with_numbers_of_their_own_say_so(self) -> None:
        """Whoever declares a dtype for an upload, or counts, must say `packs`."""
        assert PACKED == ["c_vfl", "vfl_pbm"]
        schema = opened("vimadmm", "full", "loop").coordinator.schema
        for name in ROUNDED:
            if name not in ONLY_TWO:
                says = make(name).upload_arrays(schema, schema.groups[0])
                assert all(array.dtype is None for array in says.values()), name

    def test_counts_of_a_mechanism_of_ones_own(self) -> None:
        mechanism = PoissonBinomial(16, 0.25, 3, SeededNoise(0))
        gate = Gate("run", Ledger(), {"h": Array(3)}, Protection.everywhere(mechanism), numbers=Numbers("int8"))
        with pytest.raises(GateError, match="poisson binomial sends whole numbers; nothing was released"):
            gate.release(Upload({"h": torch.zeros(1, 2, 3)}), ["bank"], 1, Purpose.TRAIN, 2)
        assert not len(gate.ledger)

    def test_an_unknown_format(self) -> None:
        with pytest.raises(ConfigError, match=r"wire\.numbers = 'int4' is not valid"):
            colonnade.fit(small(), "vimadmm", wire={"numbers": "int4"})

    def test_an_upload_that_is_too_large_counts_as_diverged(self) -> None:
        """Never a silent infinity: here beyond what a float32 holds."""
        gate = Gate("run", Ledger(), {"h": Array(1)}, numbers=Numbers("float32", torch.float64))
        values = torch.tensor([[[1.0]], [[1e300]]], dtype=torch.float64)
        with pytest.raises(Diverged) as error:
            gate.release(Upload({"h": values}), ["bank", "telco"], 1, Purpose.TRAIN, 1)
        assert error.value.party == "telco"
        assert not len(gate.ledger)

    def test_a_reply_that_is_too_large(self) -> None:
        gate = CoordinatorGate("run", Ledger(), ("a",), (("a",),), numbers=Numbers("int8", torch.float64))
        with pytest.raises(GateError, match="too large"):
            gate.release(Request(2), {"v": torch.tensor([2 * LARGEST], dtype=torch.float64)}, ())
        assert not len(gate.ledger)


def test_the_default_sends_what_was_always_sent() -> None:
    """No word in a header, and no other byte, unless somebody asks for it."""
    federation: Federation = small()
    trainer = open_trainer(federation, make("vimadmm"), rounds=2, schedule={"batch": 20}, engine="loop")
    for one_round in rounds_of(trainer):
        for payload in one_round.payloads:
            header, arrays = decode(payload)
            assert "numbers" not in header
            assert not any(":" in name for name in arrays)
