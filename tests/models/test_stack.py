"""Stacks: four ways of running the same forward pass, and which networks may go which way."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm, weight_norm

from colonnade.errors import ModelError
from colonnade.federation import Federation
from colonnade.fit import fit
from colonnade.methods import VIMADMM, VIMADMMJ
from colonnade.models.choose import choose_way
from colonnade.models.dropout import KeyedDropout, with_keyed_dropout
from colonnade.models.stack import Mode, Stack, architecture_key, why_not_vmap
from tests.federations import mixed_encoder, small
from tests.trainers import ENGINES, TINY, assert_same_tensors, open_trainer, party_tensors, rounds_of

P, B = 3, 6


def modules(make: Any, count: int = P) -> list[nn.Module]:
    out = []
    for k in range(count):
        with torch.random.fork_rng():
            torch.manual_seed(k)
            out.append(with_keyed_dropout(make(), key=1000 + k).double())
    return out


def mlp() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(8, 5), nn.ReLU(), nn.Linear(5, 4, bias=False), nn.Tanh(), nn.Identity()
    )


def normed() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Dropout(0.4), nn.Linear(5, 4))


class Tied(nn.Module):
    """One weight under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x).tanh())  # type: ignore[no-any-return]


@pytest.mark.parametrize("way", ["each", "vmap"])
def test_a_weight_under_two_names_stays_one(way: Any) -> None:
    made, x = modules(Tied), torch.randn(P, B, 8, dtype=torch.float64)
    out = Stack(made, way).forward(x, Mode.LEARN)
    torch.testing.assert_close(out, torch.stack([module(one) for module, one in zip(made, x, strict=True)]))


def repeated() -> nn.Module:
    """One activation and one layer that come again."""
    bend, same = nn.Tanh(), nn.Linear(8, 8)
    return nn.Sequential(same, bend, same, bend)


def bent_twice() -> nn.Module:
    bend = nn.Tanh()
    return nn.Sequential(nn.Linear(8, 8), bend, nn.Linear(8, 4), bend)


@pytest.mark.parametrize("make", [repeated, bent_twice])
@pytest.mark.parametrize("count", [1, P])
def test_a_layer_that_comes_again_is_not_left_out(make: Any, count: int) -> None:
    made, x = modules(make, count), columns(8)[:count]
    out = Stack(made).forward(x, Mode.LEARN)
    torch.testing.assert_close(out, torch.stack([module(one) for module, one in zip(made, x, strict=True)]))


@pytest.mark.parametrize("count", [1, P])
def test_a_layer_that_is_listened_to_is_called(count: int) -> None:
    made, x = modules(mlp, count), columns(8)[:count]
    for module in made:
        module[1].register_forward_hook(lambda layer, told, out: out + 1)  # type: ignore[operator,union-attr]
    out = Stack(made).forward(x, Mode.LEARN)
    torch.testing.assert_close(out, torch.stack([module(one) for module, one in zip(made, x, strict=True)]))


def conv() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(3 * 9, 4))


def columns(*shape: int) -> Tensor:
    return torch.randn(P, B, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def one_step(stack: Stack, x: Tensor, mode: Mode = Mode.LEARN) -> tuple[Tensor, list[Tensor]]:
    out = stack.forward(x, mode)
    return out.detach(), list(torch.autograd.grad(out.square().sum(), list(stack.parameters.values())))


class TestWays:
    @pytest.mark.parametrize("mode", Mode)
    @pytest.mark.parametrize("make", [mlp, normed, conv])
    def test_all_ways_agree(self, make: Any, mode: Mode) -> None:
        networks = modules(make)
        x = columns(1, 5, 5) if make is conv else columns(8)
        expected = [plain_call(net, x[k], mode) for k, net in enumerate(networks)]
        ways = ["vmap", "each"] + (["layers"] if make is mlp else [])
        for way in ways:
            stack = Stack(networks, way)
            out, gradients = one_step(stack, x, mode)
            for k, (value, grads, buffers) in enumerate(expected):
                torch.testing.assert_close(out[k], value, rtol=0, atol=1e-12)
                for g, wanted in zip(gradients, grads, strict=True):
                    torch.testing.assert_close(g[k], wanted, rtol=0, atol=1e-11)
                assert_same_tensors({n: v[k] for n, v in stack.buffers.items()}, buffers, atol=1e-12)

    @pytest.mark.parametrize("make", [mlp, normed, conv])
    def test_a_single_party_is_a_plain_call(self, make: Any) -> None:
        network = modules(make)[0]
        x = (columns(1, 5, 5) if make is conv else columns(8))[:1]
        stack = Stack([network])
        out, _ = one_step(stack, x)
        assert stack.way in ("single", "layers")
        torch.testing.assert_close(out[0], plain_call(network, x[0], Mode.LEARN)[0], rtol=0, atol=1e-12)

    def test_a_picked_part_is_put_back_in_its_places(self) -> None:
        stack = Stack(modules(normed))
        before = {k: v.clone() for k, v in {**stack.parameters, **stack.buffers}.items()}
        part = stack.pick([2, 0])
        assert torch.equal(part.parameters["0.weight"], before["0.weight"][[2, 0]])
        with torch.no_grad():
            part.parameters["0.weight"].add_(1)
            part.buffers["1.running_mean"].add_(1)
        assert torch.equal(stack.parameters["0.weight"], before["0.weight"])  # a copy until it is put back
        stack.put([2, 0], part)
        moved = torch.tensor([1.0, 0.0, 1.0], dtype=torch.float64)
        assert torch.equal(stack.parameters["0.weight"], before["0.weight"] + moved.view(3, 1, 1))
        assert torch.equal(stack.buffers["1.running_mean"], before["1.running_mean"] + moved.view(3, 1))

    def test_an_unknown_subclass_is_not_taken_for_its_parent(self) -> None:
        class Doubling(nn.Linear):
            def forward(self, x: Tensor) -> Tensor:
                return 2 * super().forward(x)

        networks = modules(lambda: nn.Sequential(Doubling(8, 4)))
        stack, x = Stack(networks), columns(8)
        assert stack.way == "vmap"
        torch.testing.assert_close(stack.forward(x, Mode.PREDICT)[1], networks[1](x[1]))


def plain_call(network: nn.Module, x: Tensor, mode: Mode) -> tuple[Tensor, list[Tensor], dict[str, Tensor]]:
    """Output, gradients and buffers of an ordinary call, with the buffers put back unless it was for learning."""
    net = copy.deepcopy(network).train(mode is not Mode.PREDICT)
    for layer in net.modules():
        if isinstance(layer, KeyedDropout):
            layer.train(mode is Mode.LEARN)
    held = {k: v.clone() for k, v in net.named_buffers()}
    out = net(x)
    gradients = list(torch.autograd.grad(out.square().sum(), list(net.parameters())))
    return out.detach(), gradients, dict(net.named_buffers()) if mode is Mode.LEARN else held


class TestBuffers:
    @pytest.mark.parametrize("way", ["vmap", "each"])
    @pytest.mark.parametrize("mode", [Mode.UPLOAD, Mode.PREDICT])
    def test_speaking_writes_none(self, way: Any, mode: Mode) -> None:
        stack = Stack(modules(normed), way)
        before = {k: v.clone() for k, v in stack.buffers.items()}
        stack.forward(columns(8), mode)
        assert_same_tensors(stack.buffers, before, atol=0)

    @pytest.mark.parametrize("way", ["vmap", "each"])
    def test_learning_writes_them_all(self, way: Any) -> None:
        stack = Stack(modules(normed), way)
        before = {k: v.clone() for k, v in stack.buffers.items()}
        stack.forward(columns(8), Mode.LEARN)
        changed = {k for k in before if not torch.equal(before[k], stack.buffers[k])}
        assert changed == {"1.running_mean", "1.running_var", "1.num_batches_tracked", "3.draws"}

    def test_speaking_uses_the_batch_like_learning_but_drops_nothing(self) -> None:
        networks = modules(lambda: nn.Sequential(nn.BatchNorm1d(8, affine=True), nn.Linear(8, 3)))
        stack, x = Stack(networks), columns(8) * 5 + 2
        passed = stack.forward(x, Mode.UPLOAD)
        assert (passed - stack.forward(x, Mode.PREDICT)).abs().max() > 0.1
        torch.testing.assert_close(stack.forward(x, Mode.LEARN), passed)

    @pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
    def test_only_floating_ones_are_cast(self, dtype: torch.dtype) -> None:
        stack = Stack(modules(normed)).to("cpu", dtype)
        kinds = {k: v.dtype for k, v in stack.buffers.items()}
        assert kinds == {
            "1.running_mean": dtype,
            "1.running_var": dtype,
            "1.num_batches_tracked": torch.int64,
            "3.key": torch.int64,
            "3.draws": torch.int64,
        }
        assert torch.equal(stack.buffers["3.key"], Stack(modules(normed)).buffers["3.key"])
        assert all(p.dtype is dtype and p.requires_grad for p in stack.parameters.values())


class TestGrouping:
    def test_shapes_alone_are_not_enough(self) -> None:
        relu, tanh = mixed_encoder("party_1", (5,)), mixed_encoder("party_2", (5,))
        assert {k: v.shape for k, v in relu.state_dict().items()} == {k: v.shape for k, v in tanh.state_dict().items()}
        assert architecture_key(relu) != architecture_key(tanh)

    def test_a_relu_and_a_tanh_party_run_their_own_code(self) -> None:
        trainer = open_trainer(small(), VIMADMM(), encoders=mixed_encoder)
        schema = trainer.coordinator.schema
        assert [g.parties for g in schema.groups] == [("party_0", "party_2"), ("party_1", "party_3")]

    @pytest.mark.parametrize(
        "other",
        [
            lambda: nn.Sequential(nn.Linear(8, 4, dtype=torch.float32), nn.ReLU()),
            lambda: nn.Sequential(nn.Linear(8, 4, bias=False), nn.ReLU()),
            lambda: nn.Sequential(nn.Linear(8, 4), nn.LeakyReLU(0.2)),
            lambda: nn.Sequential(nn.Linear(8, 4).requires_grad_(False), nn.ReLU()),
        ],
    )
    def test_what_separates_networks(self, other: Any) -> None:
        base = nn.Sequential(nn.Linear(8, 4), nn.ReLU()).double()
        assert architecture_key(base) == architecture_key(nn.Sequential(nn.Linear(8, 4), nn.ReLU()).double())
        assert architecture_key(base) != architecture_key(other())

    def test_the_slope_of_a_leaky_relu_separates(self) -> None:
        assert architecture_key(nn.LeakyReLU(0.1)) != architecture_key(nn.LeakyReLU(0.2))

    def test_two_classes_with_one_repr_are_told_apart(self) -> None:
        def local(sign: int) -> nn.Module:
            class Bend(nn.Module):
                def forward(self, x: Tensor) -> Tensor:
                    return sign * x

            return Bend()

        up, down = local(1), local(-1)
        assert repr(up) == repr(down)
        assert architecture_key(up) != architecture_key(down)

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            (1.0, 2.0),
            ([torch.tensor(1.0)], [torch.tensor(1.0 + 1e-6)]),  # printed alike
            (np.arange(3000), np.where(np.arange(3000) == 1500, 0, np.arange(3000))),  # printed without their middle
        ],
    )
    def test_a_choice_in_a_private_attribute_separates(self, one: Any, other: Any) -> None:
        class Bend(nn.Module):
            def __init__(self, by: Any) -> None:
                super().__init__()
                self._by = by

            def forward(self, x: Tensor) -> Tensor:
                return x * self._by

        assert repr(Bend(one)) == repr(Bend(other))
        assert architecture_key(Bend(one)) == architecture_key(Bend(one))
        assert architecture_key(Bend(one)) != architecture_key(Bend(other))

    def test_a_hook_separates(self) -> None:
        plain, hooked = nn.Sequential(nn.Linear(8, 4), nn.ReLU()), nn.Sequential(nn.Linear(8, 4), nn.ReLU())
        hooked[0].register_forward_hook(lambda layer, args, out: -out)
        assert architecture_key(plain) != architecture_key(hooked)

    def test_what_torch_keeps_in_a_layer_separates_nothing(self) -> None:
        assert architecture_key(nn.LSTM(4, 4)) == architecture_key(nn.LSTM(4, 4))
        assert architecture_key(nn.Conv2d(1, 2, 3)) == architecture_key(nn.Conv2d(1, 2, 3))

    def test_columns_of_another_shape_are_another_group(self) -> None:
        """An encoder that accepts any width still cannot be stacked over different widths."""
        trainer = open_trainer(small(widths=(5, 3)), VIMADMM(), encoders=lambda party, shape: nn.AdaptiveAvgPool1d(2))
        assert len(trainer.coordinator.schema.groups) == 2


class Lstm(nn.Module):
    """Reads its columns as a sequence."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.lstm = nn.LSTM(1, 4, num_layers=2, batch_first=True, dropout=dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.lstm(x.unsqueeze(-1))[0][:, -1]


AWKWARD = {
    "BatchNorm without momentum": lambda: nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4, momentum=None)),
    "LSTM": Lstm,
    "spectral norm": lambda: nn.Sequential(spectral_norm(nn.Linear(5, 4)), nn.ReLU()),
    "weight norm": lambda: nn.Sequential(weight_norm(nn.Linear(5, 4)), nn.ReLU()),
}


class TestAwkwardNetworks:
    @pytest.mark.parametrize("network", AWKWARD)
    def test_they_run_one_by_one(self, network: str) -> None:
        stack = Stack([with_keyed_dropout(AWKWARD[network](), k) for k in range(2)])
        assert stack.way == "each"
        assert why_not_vmap(AWKWARD[network]())

    @pytest.mark.parametrize("network", AWKWARD)
    @pytest.mark.parametrize("method", [VIMADMM(local_steps=2), VIMADMMJ(local_steps=2)])
    def test_they_train_alike_in_both_engines(self, network: str, method: Any) -> None:
        runs = [
            open_trainer(small(), method, encoders=lambda p, s: AWKWARD[network](), engine=engine, rounds=3).train()
            for engine in ("loop", "stacked")
        ]
        assert_same_tensors(runs[0].model.flat(), runs[1].model.flat(), atol=1e-9)

    def test_a_batch_of_one_row_is_refused_where_rows_matter_to_each_other(self) -> None:
        stack = Stack(modules(normed))
        for mode in (Mode.LEARN, Mode.UPLOAD):
            with pytest.raises(ModelError, match="BatchNorm"):
                stack.forward(columns(8)[:, :1], mode)
        assert stack.forward(columns(8)[:, :1], Mode.PREDICT).shape == (P, 1, 4)
        assert Stack(modules(mlp)).forward(columns(8)[:, :1], Mode.LEARN).shape == (P, 1, 4)

    @pytest.mark.parametrize(
        "layer",
        [
            nn.Dropout1d(),
            nn.Dropout2d(),
            nn.Dropout3d(),
            nn.AlphaDropout(),
            nn.FeatureAlphaDropout(),
            nn.RReLU(),
            nn.LSTM(2, 2, num_layers=2, dropout=0.5),
            nn.MultiheadAttention(2, 1, dropout=0.5),
        ],
        ids=lambda layer: type(layer).__name__,
    )
    def test_layers_that_draw_from_the_global_generator_are_refused_by_name(self, layer: nn.Module) -> None:
        with pytest.raises(ModelError, match=type(layer).__name__):
            fit(small(), VIMADMM(), encoders=lambda p, s: nn.Sequential(nn.Linear(5, 4), layer), model=TINY)

    def test_a_network_that_cannot_read_the_columns_is_named_by_party(self) -> None:
        with pytest.raises(ModelError, match="party 'party_0' cannot read columns of shape"):
            fit(small(), VIMADMM(), encoders=lambda p, s: nn.Linear(3, 2))
        with pytest.raises(ModelError, match=r"needed \(rows, width\)"):
            fit(small(), VIMADMM(), encoders=lambda p, s: nn.Unflatten(1, (5, 1)))


def frozen_first(party: str, shape: tuple[int, ...]) -> nn.Module:
    return nn.Sequential(nn.Linear(5, 4).requires_grad_(False), nn.ReLU(), nn.Linear(4, 4))


class TestFrozenNetworks:
    @pytest.mark.parametrize("engine", ENGINES)
    @pytest.mark.parametrize("method", [VIMADMM(local_steps=2), VIMADMMJ(local_steps=2, alternate=True)])
    def test_a_frozen_layer_stays_frozen(self, method: Any, engine: str) -> None:
        trainer = open_trainer(small(), method, encoders=frozen_first, engine=engine, rounds=3)
        before = party_tensors(trainer)
        for _ in rounds_of(trainer):
            pass
        for party, after in party_tensors(trainer).items():
            assert torch.equal(after["parameter.0.weight"], before[party]["parameter.0.weight"])
            assert not torch.equal(after["parameter.2.weight"], before[party]["parameter.2.weight"])

    @pytest.mark.parametrize("engine", ENGINES)
    @pytest.mark.parametrize("method", [VIMADMM(), VIMADMMJ(alternate=True)])
    @pytest.mark.parametrize("encoder", [nn.Identity(), nn.Linear(5, 3).requires_grad_(False)])
    def test_a_party_with_nothing_to_learn_takes_part(self, encoder: nn.Module, method: Any, engine: str) -> None:
        run = fit(small(), method, encoders=lambda p, s: encoder, engine=engine, rounds=3, evaluate_every=1)
        assert run.result["stop"] == "all rounds done"

    def test_frozen_convolutions_can_be_timed(self) -> None:
        stack = Stack([net.requires_grad_(False) for net in modules(conv)])
        assert choose_way(stack, columns(1, 5, 5)) in ("vmap", "each")


class TestChoosing:
    def conv_stack(self) -> Stack:
        return Stack(modules(conv))

    def test_a_convolutional_stack_is_timed_and_left_as_it_was(self) -> None:
        stack = self.conv_stack()
        before = {k: v.clone() for k, v in {**stack.parameters, **stack.buffers}.items()}
        assert choose_way(stack, columns(1, 5, 5)) in ("vmap", "each")
        assert stack.way == "vmap"
        assert_same_tensors({**stack.parameters, **stack.buffers}, before, atol=0)

    def test_others_are_not_timed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("colonnade.models.choose._seconds", lambda *_: pytest.fail("timed"))
        assert choose_way(Stack(modules(mlp)), columns(8)) == "layers"
        assert choose_way(Stack(modules(normed)), columns(8)) == "vmap"
        assert choose_way(Stack(modules(conv, 1)), columns(1, 5, 5)[:1]) == "single"

    @pytest.mark.parametrize("faster", ["vmap", "each"])
    def test_the_faster_way_wins(self, faster: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("colonnade.models.choose._seconds", lambda stack, x, way: 1.0 if way == faster else 2.0)
        assert choose_way(self.conv_stack(), columns(1, 5, 5)) == faster

    def test_the_choice_is_part_of_the_run(self, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("colonnade.models.choose._seconds", lambda stack, x, way: 1.0 if way == "each" else 2.0)
        federation = Federation.from_arrays(
            {f"camera_{k}": columns(1, 5, 5)[k].repeat(3, 1, 1, 1) for k in range(2)}, torch.arange(18) % 2
        )
        run = fit(federation, VIMADMM(local_steps=1), encoders=lambda p, s: conv(), rounds=2)
        assert run.about["ways"] == ["each"]
