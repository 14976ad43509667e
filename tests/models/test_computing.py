"""Precision and compiled local steps: what is refused, what is recorded, and how far they end from eager float32."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from colonnade.errors import ConfigError, ModelError
from colonnade.fit import fit, resume
from colonnade.methods import VIMADMM
from colonnade.models import computing as computing_module
from colonnade.models import stack as stack_module
from colonnade.models.computing import Computing, SharedPasses
from colonnade.models.dropout import keyed_mask, with_keyed_dropout
from colonnade.models.encoders import ModelSettings, build_encoder
from colonnade.models.optimise import SGD
from colonnade.models.stack import Mode, Stack
from colonnade.run import Run, Training
from tests.federations import images, small
from tests.trainers import TINY

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
P, B = 2, 32


def dropping() -> nn.Module:
    """A small network with everything that has a state: BatchNorm buffers and dropout counters."""
    layers = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Dropout(0.4)
    return nn.Sequential(*layers, nn.Linear(4 * 36, 5))


def stack_of(make: Any, computing: Computing, way: Any = None) -> Stack:
    modules = []
    for k in range(P):
        with torch.random.fork_rng():
            torch.manual_seed(k)
            modules.append(with_keyed_dropout(make(), key=1000 + k))
    return Stack(modules, way, computing)


def columns(*shape: int) -> Tensor:
    return torch.randn(P, B, *shape, generator=torch.Generator().manual_seed(0))


def learnt(stack: Stack, x: Tensor, steps: int = 2) -> dict[str, Tensor]:
    """Output, gradients and buffers of the last of some steps, relative to nothing."""
    parameters = list(stack.parameters.values())
    for _ in range(steps):
        out = stack.forward(x, Mode.LEARN)
        gradients = torch.autograd.grad(out.square().sum() / B, parameters)
        with torch.no_grad():
            torch._foreach_add_(parameters, gradients, alpha=-0.01)
    found = {"output": out.detach(), "parameters": torch.cat([p.detach().flatten() for p in parameters])}
    return found | {f"buffer.{k}": v for k, v in stack.buffers.items()}


def gap(one: Tensor, other: Tensor) -> float:
    return float((one - other).norm() / other.norm())


class TestSettings:
    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"precision": "tf32"}, "'tf32' is a mode of NVIDIA GPUs, and the device is 'cpu'"),
            ({"precision": "bfloat16", "dtype": "float64"}, "training.dtype is 'float64'"),
            ({"precision": "half"}, "precision = 'half' is not valid"),
            ({"compile": "often"}, "compile = 'often' is not valid"),
        ],
    )
    def test_what_means_nothing_is_refused_by_name(self, options: dict[str, Any], words: str, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=words):
            fit(small(), "vimadmm", rounds=1, out=tmp_path / "run", **options)
        assert not (tmp_path / "run").exists()

    def test_float64_and_gpus_have_what_is_theirs(self) -> None:
        Computing().check(torch.float64, CPU)
        Computing("bfloat16").check(torch.float32, CPU)
        Computing("tf32").check(torch.float32, CUDA)
        with pytest.raises(ConfigError, match="'float64'"):
            Computing("tf32").check(torch.float64, CUDA)

    def test_the_default_is_the_eager_float32_reference(self) -> None:
        assert Training().computing == Computing("float32", compile=False)

    def test_both_are_recorded_and_repeated(self, tmp_path: Path) -> None:
        chosen = {"rounds": 2, "model": TINY, "precision": "bfloat16"}
        run = fit(small(), VIMADMM(local_steps=1), out=tmp_path / "run", **chosen)  # type: ignore[arg-type]
        loaded = Run.load(tmp_path / "run")
        assert loaded.training.computing == run.training.computing == Computing("bfloat16")
        rows = {p.name: p.columns[:7] for p in small().parties}
        assert torch.equal(loaded.logits(rows), run.logits(rows))


class TestSwitches:
    """They are global in torch, and can be set on a machine without a GPU."""

    def read(self) -> tuple[bool, bool, bool]:
        cudnn = torch.backends.cudnn
        return cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32, cudnn.benchmark

    def test_they_hold_inside_and_are_put_back(self) -> None:
        before = self.read()
        with Computing("tf32", compile=True).switches(CUDA):
            assert self.read() == (True, True, True)
            with Computing().switches(CUDA):
                assert self.read() == (False, False, False)
            assert self.read() == (True, True, True)
        assert self.read() == before

    def test_they_are_put_back_after_an_error(self) -> None:
        before = self.read()
        with pytest.raises(ZeroDivisionError), Computing("tf32").switches(CUDA):
            _ = 1 / 0
        assert self.read() == before


class TestBfloat16:
    def test_two_steps_are_within_a_hundredth(self) -> None:
        x = columns(3, 6, 6)
        exact = learnt(stack_of(dropping, Computing()), x)
        rounded = learnt(stack_of(dropping, Computing("bfloat16")), x)
        assert rounded["output"].dtype == rounded["parameters"].dtype == torch.float32
        assert 0 < gap(rounded["output"], exact["output"]) < 1e-2
        assert 0 < gap(rounded["parameters"], exact["parameters"]) < 1e-3
        for name in ("buffer.1.running_mean", "buffer.1.running_var"):
            assert gap(rounded[name], exact[name]) < 1e-2
        assert torch.equal(rounded["buffer.4.draws"], exact["buffer.4.draws"])

    def test_layers_are_rounded_too(self) -> None:
        def mlp() -> nn.Module:
            return nn.Sequential(nn.Flatten(), nn.Linear(9, 20), nn.ReLU(), nn.Linear(20, 5))

        x = columns(9)
        rounded = learnt(stack_of(mlp, Computing("bfloat16"), "layers"), x)
        assert 0 < gap(rounded["output"], learnt(stack_of(mlp, Computing(), "layers"), x)["output"]) < 1e-2

    def test_embeddings_of_the_convolutional_network_are_within_two_hundredths(self) -> None:
        """Its BatchNorm divides by the little that rows differ in: only what comes before the mean is rounded."""
        settings = ModelSettings(encoder="cnn", embedding=8)

        def make() -> nn.Module:
            return build_encoder(settings, (3, 10, 10), 0, "party")

        with torch.no_grad():
            exact = stack_of(make, Computing()).forward(columns(3, 10, 10), Mode.UPLOAD)
            rounded = stack_of(make, Computing("bfloat16")).forward(columns(3, 10, 10), Mode.UPLOAD)
        assert 0 < gap(rounded, exact) < 2e-2

    def test_dropout_masks_are_those_of_float32(self) -> None:
        """With numbers of 8 bits, one element in some hundred would fall on the other side of p."""
        like, key = torch.zeros(1000, 100), torch.tensor(7)
        mask = keyed_mask(like, 0.3, key, 5)
        assert torch.equal(keyed_mask(like.bfloat16(), 0.3, key, 5) == 0, mask == 0)

    @pytest.mark.parametrize("engine", ["loop", "stacked"])
    def test_a_training_ends_near_the_reference(self, engine: Any) -> None:
        method = VIMADMM(local_steps=2, optimiser=SGD(lr=0.02))
        chosen: dict[str, Any] = {"model": ModelSettings(encoder="cnn", embedding=8), "rounds": 4, "engine": engine}
        residuals = []
        for precision in ("float32", "bfloat16"):
            run = fit(images(rows=48), method, evaluate_every=0, precision=precision, **chosen)
            residuals.append([entry["primal"] for entry in run.history if "primal" in entry])
        exact, rounded = residuals
        assert exact[-1] < 0.5 * exact[0]  # it learns
        assert rounded != exact and rounded == pytest.approx(exact, rel=0.1)


@pytest.mark.skipif(shutil.which("c++") is None, reason="torch.compile needs a C++ compiler")
class TestCompiled:
    def test_a_compiled_step_is_the_eager_one(self) -> None:
        x = columns(3, 6, 6)
        eager = learnt(stack_of(dropping, Computing()), x)
        stack = stack_of(dropping, Computing(compile=True))
        assert stack.way == "compiled"
        compiled = learnt(stack, x)
        for name, value in eager.items():  # dropout masks and BatchNorm buffers among them
            torch.testing.assert_close(compiled[name], value, rtol=1e-5, atol=1e-5, msg=lambda m, n=name: f"{n}: {m}")
        picked = stack.pick([1])
        assert picked.way == "compiled" and picked.forward(x[1:], Mode.LEARN).shape == (1, B, 5)

    def test_a_compiled_upload_is_the_eager_one_and_teaches_nothing(self) -> None:
        x = columns(3, 6, 6)
        eager, stack = stack_of(dropping, Computing()), stack_of(dropping, Computing(compile=True))
        before = {name: value.clone() for name, value in stack.tensors().items()}
        with torch.no_grad():
            found = stack.forward(x, Mode.UPLOAD)
            torch.testing.assert_close(found, eager.forward(x, Mode.UPLOAD), rtol=1e-5, atol=1e-5)
            torch.testing.assert_close(stack.forward(x, Mode.PREDICT), eager.forward(x, Mode.PREDICT))
        assert all(torch.equal(value, before[name]) for name, value in stack.tensors().items())

    @pytest.mark.parametrize("rows", [8, 16, 19])
    def test_predictions_in_pieces_are_of_the_rows_that_were_asked_about(
        self, rows: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Of a network that looks at a batch, too: the last piece is filled up with rows of the one before."""
        monkeypatch.setattr(stack_module, "AT_ONCE", 8)
        x = torch.randn(P, rows, 3, generator=torch.Generator().manual_seed(0))

        def looking() -> nn.Module:
            return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4, track_running_stats=False), nn.ReLU())

        stack, eager = stack_of(looking, Computing(compile=True)), stack_of(looking, Computing())
        with torch.no_grad():
            found = stack._in_pieces(x)
            pieces = [eager.forward(x[:, at : at + 8], Mode.PREDICT) for at in (*range(0, rows - 8, 8), rows - 8)]
        assert found.shape[1] == rows
        torch.testing.assert_close(found, torch.cat([*pieces[:-1], pieces[-1][:, -((rows - 1) % 8 + 1) :]], dim=1))

    def test_a_network_like_one_before_is_not_compiled_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        x, compile_pass = columns(3, 6, 6), computing_module.compiled
        made: list[nn.Module] = []

        def counted(skeleton: nn.Module, how: Computing) -> Any:
            made.append(skeleton)
            return compile_pass(skeleton, how)

        monkeypatch.setattr(computing_module, "compiled", counted)
        monkeypatch.setattr(stack_module, "PASSES", SharedPasses())
        one, other = (stack_of(dropping, Computing(compile=True)).forward(x, Mode.UPLOAD) for _ in range(2))
        assert len(made) == 1 and torch.equal(one, other)
        rounded = stack_of(dropping, Computing("bfloat16", compile=True)).forward(x, Mode.UPLOAD)
        assert len(made) == 2 and not torch.equal(rounded, one)

    def test_networks_that_differ_in_a_plain_attribute_share_nothing(self) -> None:
        class Scaled(nn.Module):
            def __init__(self, by: float) -> None:
                super().__init__()
                self.weight, self.by = nn.Parameter(torch.ones(3)), torch.tensor(by)  # no buffer: nothing saves it

            def forward(self, x: Tensor) -> Tensor:
                return x * self.weight * self.by

        x = columns(3)
        for by in (1.0, 2.0, 3.0):
            found = stack_of(lambda by=by: Scaled(by), Computing(compile=True)).forward(x, Mode.LEARN)
            torch.testing.assert_close(found, x * by)

    def test_rounded_and_compiled_is_within_the_same_hundredth(self) -> None:
        x = columns(3, 6, 6)
        eager = learnt(stack_of(dropping, Computing()), x)
        both = learnt(stack_of(dropping, Computing("bfloat16", compile=True)), x)
        assert 0 < gap(both["output"], eager["output"]) < 1e-2
        assert 0 < gap(both["parameters"], eager["parameters"]) < 1e-3

    def test_networks_of_linear_layers_stay_as_they_are(self) -> None:
        assert stack_of(lambda: nn.Sequential(nn.Linear(3, 2)), Computing(compile=True)).way == "layers"

    def test_a_network_that_cannot_be_compiled_is_named(self) -> None:
        class Moody(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.weight = nn.Parameter(torch.ones(3))

            def forward(self, x: Tensor) -> Tensor:
                return x * self.weight if float(x.sum()) > 0 else x - self.weight

        with pytest.raises(ModelError, match=r"network Moody cannot be compiled here: .*training.compile = false"):
            stack_of(Moody, Computing(compile=True)).forward(columns(3), Mode.LEARN)

    def test_a_run_says_that_it_was_compiled_and_goes_on_with_a_warning(self, tmp_path: Path) -> None:
        def interrupt(progress: Any) -> None:
            if progress.round == 2:
                raise KeyboardInterrupt

        def encoder(party: str, shape: tuple[int, ...]) -> nn.Module:
            return nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4))

        chosen: dict[str, Any] = {"encoders": encoder, "rounds": 4, "checkpoint_every": 1, "compile": True}
        method = VIMADMM(local_steps=1, optimiser=SGD(lr=0.05))
        with pytest.raises(KeyboardInterrupt):
            fit(small(), method, out=tmp_path / "run", watch=interrupt, **chosen)
        with pytest.warns(UserWarning, match="last bits may differ .*training.compile"):
            run = resume(tmp_path / "run", small(), encoders=encoder)
        assert run.about["ways"] == ["compiled"] and run.training.compile
        whole = fit(small(), method, **{**chosen, "compile": False})
        for party, model in whole.models.items():
            for name, value in model.items():
                torch.testing.assert_close(run.models[party][name], value, rtol=1e-4, atol=1e-5)
