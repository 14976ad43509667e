"""The first layer of a small CNN as one function: the same as convolution, ReLU and pooling one after the other."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from colonnade.models import pooled as module
from colonnade.models.computing import Computing, compiled
from colonnade.models.encoders import ConvNet
from colonnade.models.pooled import pooled, pooled_convolution, pooled_slope


def layer_of(channels: int, dtype: torch.dtype = torch.float64) -> nn.Conv2d:
    with torch.random.fork_rng():
        torch.manual_seed(channels)
        return nn.Conv2d(channels, 32, 3, padding=1).to(dtype)


def columns(rows: int, *shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(rows, *shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(dtype)


def one_by_one(layer: nn.Conv2d, x: Tensor) -> Tensor:
    return F.avg_pool2d(F.relu(layer(F.interpolate(x, (32, 32)))), 2)


@pytest.mark.parametrize("shape", [(3, 10, 10), (3, 12, 10), (1, 32, 32), (2, 9, 40)])
def test_values_and_derivatives_are_those_of_the_layers_one_by_one(shape: tuple[int, int, int]) -> None:
    layer, x = layer_of(shape[0]), columns(5, *shape)
    means, expected = pooled_convolution(layer, x, torch.float64), one_by_one(layer, x)
    torch.testing.assert_close(means, expected, rtol=0, atol=1e-12)
    slope = columns(5, 32, 16, 16)
    for one, other in zip(
        torch.autograd.grad(means, (layer.weight, layer.bias), slope),
        torch.autograd.grad(expected, (layer.weight, layer.bias), slope),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-10)


def test_in_bfloat16_it_is_near() -> None:
    layer, x = layer_of(3, torch.float32), columns(64, 3, 10, 11, dtype=torch.float32)
    means, expected = pooled_convolution(layer, x), one_by_one(layer, x)
    assert means.dtype == torch.bfloat16
    assert 0 < (means.float() - expected).norm() / expected.norm() < 1e-2


def test_compilers_know_shapes_and_derivatives() -> None:
    images, weight = columns(3, 35, 36, 4), columns(32, 64).T
    for operator, given in (
        (pooled, (images, weight.clone().requires_grad_())),
        (pooled_slope, (images, weight, columns(3, 16, 16, 32))),
    ):
        assert set(torch.library.opcheck(operator, given).values()) == {"SUCCESS"}


def test_a_compiled_network_takes_it_where_it_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    """On this CPU in place of a GPU: the same embeddings and derivatives, and the choice is a constant of the code."""
    asked: list[int] = []
    monkeypatch.setattr(module, "_tried", lambda index: asked.append(index) or True)

    def serves(_: nn.Conv2d, x: Tensor) -> bool:
        return torch.compiler.is_compiling() and module.kernels_serve(x.get_device())

    monkeypatch.setattr(module, "serves", serves)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = ConvNet(3, 8)
    x, parameters = columns(16, 3, 10, 10, dtype=torch.float32), dict(network.named_parameters())
    run, slopes = compiled(network, Computing("bfloat16", compile=True)), []
    for embeddings in (run(parameters, dict(network.named_buffers()), x), network(x)):
        slopes.append(torch.autograd.grad(embeddings.square().sum(), network.conv1.weight)[0])
    assert asked == [-1]
    assert 0 < (slopes[0] - slopes[1]).norm() / slopes[1].norm() < 0.2


@pytest.mark.parametrize("layer", [nn.Conv2d(3, 32, 3, padding=1), nn.Conv2d(8, 32, 3, padding=1)])
def test_elsewhere_layers_run_one_by_one(layer: nn.Conv2d) -> None:
    assert not module.serves(layer, columns(2, layer.in_channels, 10, 10))


def test_a_gpu_whose_kernels_fail_is_named_and_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    module._tried.cache_clear()
    with pytest.warns(UserWarning, match="do not serve on cuda:99"):
        assert not module._tried(99)
    module._tried.cache_clear()
