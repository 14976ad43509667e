"""The same on a GPU: engines agree, captured steps are the eager ones, runs repeat and resume to the last bit."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch

from colonnade import gpu
from colonnade.bench.made_up import local_work, make_federation, one_round
from colonnade.bench.made_up import open_trainer as bench_trainer
from colonnade.bench.settings import Shape
from colonnade.fit import Trainer, fit, resume
from colonnade.methods import METHODS
from colonnade.models import descend, pooled
from colonnade.models.computing import Computing
from colonnade.models.encoders import ModelSettings
from colonnade.models.graphs import Captured
from colonnade.models.heads import HeadSettings
from colonnade.models.optimise import SGD
from colonnade.models.stack import Mode
from colonnade.privacy import gate
from colonnade.privacy.bounded import BoundedGaussian
from colonnade.privacy.gaussian import Gaussian, SeededNoise
from colonnade.privacy.grid import step_of
from colonnade.privacy.ledger import Ledger
from colonnade.privacy.mechanism import Protection
from colonnade.privacy.sealed import Array, Upload
from colonnade.tasks import newton, newton_captured, prox
from colonnade.wire.messages import Purpose
from tests.contracts.registry import NAMES, WITHOUT_NETWORKS, for_heads, make
from tests.federations import images, mixed_encoder, normed_encoder, small
from tests.mechanisms import Noise
from tests.trainers import TINY, assert_same_tensors, open_trainer, party_tensors, record, rounds_of

pytestmark = pytest.mark.gpu

STEPS = 6  # enough for a step to be captured and replayed
# `local_only` ends with weights and biases fitted to validation rows, until the gradient is 1e-10 per row
# (models/blend.py). A last bit decides whether one more Newton step is taken, and that step is a few 1e-9 long.
AGREE = {"local_only": 1e-8}
COPIES = {"assisted_boosting", "one_message"}  # what learns are copies of a party's network, and so are their graphs
SEVERAL_STEPS = [name for name in NAMES if "local_steps" in METHODS[name].model_fields and name not in COPIES]
ONE_STEP = [name for name in NAMES if name not in WITHOUT_NETWORKS | COPIES]
SCENARIOS: dict[str, dict[str, Any]] = {
    "plain": {},
    "participation and noise": {"schedule": {"batch": 20, "participation": 0.5}, "mechanism": Noise()},
    "two architectures": {"encoders": mixed_encoder},
    "head dropout": {"model": ModelSettings(hidden=6, embedding=4, head=HeadSettings(layers=2))},
    "encoder dropout": {"model": ModelSettings(hidden=6, embedding=4, dropout=0.3)},
    "batch norm and dropout": {"encoders": normed_encoder},
}


def options(scenario: str, **training: Any) -> dict[str, Any]:
    return {"schedule": {"batch": 20}, "model": TINY, "device": "cuda", **SCENARIOS[scenario], **training}


def on_cpu(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {k: v.cpu() for k, v in tensors.items()}


@pytest.mark.parametrize(
    ("name", "scenario"),
    [pair for pair in itertools.product(NAMES, SCENARIOS) if pair != ("one_message", "participation and noise")],
)
def test_engines_and_devices_agree(name: str, scenario: str) -> None:
    chosen = options(scenario, rounds=20, evaluate_every=1, stopping={"drop": 1e9})
    method = for_heads(name, chosen["model"].head, local_steps=STEPS)
    reference = record(small(), method, **{**chosen, "device": "cpu", "engine": "loop"})
    for engine in ("loop", "stacked"):
        run = record(small(), method, engine=engine, **chosen)
        for number, (one, other) in enumerate(zip(run.logits, reference.logits, strict=True), start=1):
            torch.testing.assert_close(
                one.cpu(), other, rtol=0, atol=AGREE.get(name, 1e-9), msg=lambda m, n=number: f"round {n}: {m}"
            )
        assert run.run.traffic.to_json() == reference.run.traffic.to_json()


@pytest.mark.parametrize("network", ["mlp", "cnn", "resnet18"])
@pytest.mark.parametrize("name", ["vimadmm", "vimadmm_j"])
def test_one_step_in_float32_agrees(name: str, network: Any) -> None:
    method = make(name, local_steps=1, optimiser=SGD(lr=0.05))
    model = ModelSettings(encoder=network, embedding=8, hidden=20)
    chosen = {"model": model, "device": "cuda", "dtype": "float32", "rounds": 1, "evaluate_every": 1}
    after = [
        on_cpu(open_trainer(images(), method, engine=engine, **chosen).train().model.flat())
        for engine in ("loop", "stacked")
    ]
    assert_same_tensors(after[0], after[1], atol=1e-5 if network == "mlp" else 1e-3)


TOLERANCES = {("tf32", False): 3e-2, ("bfloat16", False): 0.1, ("float32", True): 1e-3, ("bfloat16", True): 0.1}


@pytest.mark.parametrize(("precision", "compiled"), TOLERANCES)
def test_embeddings_after_fast_steps_are_those_of_eager_float32(precision: Any, compiled: bool) -> None:
    """Six steps at the parties, captured where they are compiled; the distance in units of the embeddings' norm."""
    shape = Shape(parties=3, columns=(3, 10, 10), rows=256, batch=256, embedding=16, encoder="cnn", lr=1e-3)
    ends = []
    for computing in (Computing(), Computing(precision, compiled)):
        trainer = bench_trainer(shape, make_federation(shape), torch.device("cuda"), computing=computing)
        local_work(shape, trainer)(STEPS)
        cohort = trainer.engine.parties()[0].cohort
        assert any(isinstance(g, Captured) for g in cohort.graphs.values()) or not compiled
        with torch.no_grad():
            ends.append(cohort.encode(cohort.columns, Mode.UPLOAD))
    assert 0 < (ends[1] - ends[0]).norm() / ends[0].norm() < TOLERANCES[precision, compiled]


@pytest.mark.parametrize("rows", [1, 5, 1023])  # the last program of the backward pass takes what is left
def test_kernels_for_small_images_give_what_plain_torch_gives(rows: int) -> None:
    draw = torch.Generator().manual_seed(rows)
    shapes = (rows, 35, 36, 4), (64, 32), (rows, 16, 16, 32)
    images, weight, slope = (torch.randn(*shape, generator=draw).bfloat16() for shape in shapes)
    for operator, given in (
        (pooled.pooled, (images, weight.float())),
        (pooled.pooled_slope, (images, weight.float(), slope)),
    ):
        near, far = operator(*given), [operator(*(value.cuda() for value in given)).cpu() for _ in range(2)]
        assert torch.equal(far[0], far[1])
        assert float((far[0].float() - near.float()).norm() / near.float().norm()) < 5e-3
    assert pooled.kernels_serve(0)


def trained(name: str, chosen: dict[str, Any], local_steps: int) -> tuple[Trainer, dict[str, dict[str, torch.Tensor]]]:
    trainer = open_trainer(small(), for_heads(name, chosen["model"].head, local_steps=local_steps), **chosen)
    for _ in rounds_of(trainer):
        pass
    return trainer, party_tensors(trainer)


def captured_in(trainer: Trainer) -> list[Captured]:
    steps = [step for side in trainer.engine.parties() for step in side.cohort.graphs.values()]
    return [step for step in steps if isinstance(step, Captured)]


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("name", SEVERAL_STEPS)
def test_captured_steps_are_the_eager_ones(name: str, scenario: str, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = options(scenario, rounds=6, evaluate_every=0)
    trainer, replayed = trained(name, chosen, STEPS)
    assert captured_in(trainer), "nothing was captured, so nothing is compared"
    monkeypatch.setattr(descend, "worth_capturing", lambda *_: False)
    for party, tensors in trained(name, chosen, STEPS)[1].items():  # counters of dropout and BatchNorm among them
        assert_same_tensors(replayed[party], tensors, atol=1e-11)


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("name", ONE_STEP)
def test_one_step_per_round_is_captured_in_the_third(name: str, scenario: str, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = options(scenario, evaluate_every=0)
    assert not captured_in(trained(name, {**chosen, "rounds": 2}, 1)[0])
    trainer, replayed = trained(name, {**chosen, "rounds": 8}, 1)
    assert captured_in(trainer), "nothing was captured, so nothing is compared"
    monkeypatch.setattr(descend, "worth_capturing", lambda *_: False)
    for party, tensors in trained(name, {**chosen, "rounds": 8}, 1)[1].items():
        assert_same_tensors(replayed[party], tensors, atol=1e-11)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_captured_zsteps_are_the_eager_ones(kind: torch.dtype, weighted: bool) -> None:
    """Bit by bit; the first of a shape is solved step by step, the second captured, the third filled in."""
    drawn = torch.Generator().manual_seed(0)
    for rho in (0.05, 1.0, 20.0):
        for scale in (1, 5, 100, 1000):
            for _ in range(3):
                total, dual = (torch.randn(200, 10, generator=drawn, dtype=kind) for _ in range(2))
                targets = torch.rand(200, 10, generator=drawn, dtype=kind).softmax(1)
                problem = [value.cuda() for value in (scale * total, dual / 5, targets)]
                each = rho * (torch.rand(200, 1, generator=drawn).double() + 0.1).cuda() if weighted else rho
                solved = newton_captured.solve_captured(*problem, each)
                assert torch.equal(solved, newton.solve(newton.pose(*problem, each), each))


def test_rounds_of_graphs_are_the_eager_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit by bit: models, state, and the ledger of messages that were hashed beside the round."""
    shape = Shape(parties=3, columns=(2, 4), rows=4000, batch=1024, embedding=16, hidden=8, local_steps=STEPS)

    def after(rounds: int) -> tuple[dict[str, torch.Tensor], list[Any]]:
        trainer = bench_trainer(shape, make_federation(shape), torch.device("cuda"))
        trainer.coordinator.gate.run = trainer.engine.parties()[0].gate.run = "one"
        for _ in range(rounds):
            one_round(trainer)()
        lines = [{**entry.to_json(), "time": None} for entry in trainer.ledger]
        return trainer.engine.tensors() | trainer.coordinator.tensors(), lines

    tensors, entries = after(9)  # two epochs, whose last rounds are shorter
    monkeypatch.setattr(descend, "worth_capturing", lambda *_: False)
    monkeypatch.setattr(prox, "solve_captured", lambda t, d, y, rho: newton.solve(newton.pose(t, d, y, rho), rho))
    monkeypatch.setattr(gate, "WORTH_A_THREAD", 2**60)  # sealed at once, one after the other
    eager, said = after(9)
    assert entries == said
    assert tensors.keys() == eager.keys()
    assert all(torch.equal(value, eager[name]) for name, value in tensors.items())


@pytest.mark.parametrize("name", NAMES)
def test_same_seed_same_numbers(name: str) -> None:
    one, other = (open_trainer(small(), make(name), rounds=4, device="cuda").train().fingerprint() for _ in range(2))
    assert one == other


@pytest.mark.parametrize("name", NAMES)
def test_a_resumed_run_is_the_uninterrupted_one(name: str, tmp_path: Path) -> None:
    left = [5]

    def interrupt(progress: Any) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt

    chosen = {"device": "cuda", "rounds": 8, "checkpoint_every": 3, "model": TINY, "schedule": {"batch": 20}}
    method = make(name, local_steps=STEPS)
    whole = fit(small(), method, out=tmp_path / "whole", **chosen)
    with pytest.raises(KeyboardInterrupt):
        fit(small(), method, out=tmp_path / "part", watch=interrupt, **chosen)
    assert resume(tmp_path / "part", small()).fingerprint() == whole.fingerprint()


def test_a_run_from_a_gpu_predicts_alike() -> None:
    federation = small()
    run = fit(federation, make("vimadmm"), device="cuda", rounds=4, evaluate_every=1, dtype="float64", model=TINY)
    rows = federation.split.validation
    logits = run.logits({p.name: p.columns[rows] for p in federation.parties})
    assert logits.device.type == "cpu"
    assert (logits.argmax(1) == federation.labels[rows]).double().mean() == run.result["validation_score"]


def test_a_graph_goes_on_as_it_was_when_another_one_of_its_lane_is_gone() -> None:
    """torch frees a stream's cuBLAS workspaces with any graph recorded in it; a long sum is split up in one."""
    device = torch.device("cuda", torch.cuda.current_device())
    left, right = (torch.ones(shape, device=device) for shape in ((64, 2**17), (2**17, 64)))
    out = torch.empty(64, 64, device=device)

    def multiply() -> None:
        torch.mm(left, right, out=out)

    gpu.take_aside(multiply, device)
    kept, other = gpu.record(multiply, device), gpu.record(multiply, device)
    del other
    with torch.cuda.stream(gpu.own_lane(device).stream):  # to whom the memory of its workspaces would be given
        others = [torch.full((2**count,), 7.0, device=device) for count in range(16, 25) for _ in range(4)]
    torch.cuda.synchronize(device)
    out.zero_()
    for _ in range(3):
        kept.replay()
    assert bool((out == 2**17).all())
    assert all(bool((value == 7).all()) for value in others)


@pytest.mark.parametrize("bounded", [False, True], ids=["gaussian", "bounded"])
@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_noise_is_that_of_the_cpu(kind: torch.dtype, bounded: bool) -> None:
    """Number by number, drawn ahead from the third round on; and the ledger of what was hashed beside it."""
    drawn, parties, rows = torch.Generator().manual_seed(0), ("bank", "telco", "clinic"), 3000
    uploads = [torch.randn(3, rows, 20, generator=drawn, dtype=kind) for _ in range(5)]
    said = []
    for device in ("cpu", "cuda"):
        source = SeededNoise(1)
        mechanism = BoundedGaussian(0.7, 5.0, 20, source) if bounded else Gaussian(1e4, 0.1, source)  # nothing is cut
        g = gate.Gate("run", Ledger(), {"h": Array(20)}, Protection.everywhere(mechanism))
        passed = [
            g.release(Upload({"h": value.to(device)}), parties, number, Purpose.TRAIN, rows)
            for number, value in enumerate(uploads, start=1)
        ]
        assert all(p.values["h"].device.type == device for p in passed)
        said.append([r.payload for p in passed for r in p.releases])
        assert len(g.ledger) == 15
    assert said[0] == said[1]


def test_what_is_clipped_on_a_gpu_is_what_is_clipped_on_a_cpu() -> None:
    """To a step of the grid: norms are added up in another order."""
    value, parties = torch.randn(3, 500, 20, generator=torch.Generator().manual_seed(0)).double(), ("a", "b", "c")
    mechanism = Gaussian(1.0, 10.0, SeededNoise(1))
    near, far = (mechanism({"h": value.to(device)}, parties, 1, "TRAIN.0")["h"].cpu() for device in ("cpu", "cuda"))
    gap = (near - far).abs() / step_of(10.0)
    assert gap.max() <= 1 and gap.mean() < 1e-3


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_before_noise_numbers_that_are_not_finite_are_zero_on_a_gpu_too(bad: float) -> None:
    sent = []
    for value in (bad, 0.0):
        values = torch.ones(2, 50, 3, device="cuda")
        values[1, 0, 2] = value
        g = gate.Gate("run", Ledger(), {"h": Array(3)}, Protection.everywhere(Gaussian(1.0, 2.0, SeededNoise(0))))
        sent.append([r.payload for r in g.release(Upload({"h": values}), ("a", "b"), 1, Purpose.TRAIN, 50).releases])
    assert sent[0] == sent[1]


@pytest.mark.parametrize("engine", ["loop", "stacked"])
def test_a_noised_run_is_that_of_the_cpu_and_repeats(engine: str) -> None:
    privacy = {"mechanism": "gaussian", "clip": 1.0, "sigma": 2.0}
    chosen = {"rounds": 6, "evaluate_every": 0, "dtype": "float64", "model": TINY, "privacy": privacy}
    there, again, here = (
        fit(small(), make("vimadmm_j", local_steps=2), engine=engine, device=device, **chosen)
        for device in ("cuda", "cuda", "cpu")
    )
    assert there.fingerprint() == again.fingerprint()
    for name, model in here.models.items():
        for key, value in model.items():
            torch.testing.assert_close(there.models[name][key].cpu(), value, rtol=0, atol=1e-4)  # a step is 1e-6
