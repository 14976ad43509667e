"""Keyed dropout: masks depend on key, draw and place, and on nothing else."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from colonnade.errors import ModelError
from colonnade.fit import fit
from colonnade.methods import VIMADMM
from colonnade.models.dropout import KeyedDropout, keyed_mask, keyed_uniform, with_keyed_dropout
from colonnade.models.heads import HeadSettings, apply_heads, dropout_keys, open_heads
from colonnade.models.stack import Mode, Stack
from colonnade.randomness import dropout_key
from tests.federations import small

LIKE = torch.zeros(400, 50)
RATES = [0.1, 0.25, 0.5, 0.9]


def mask(party: str, number: int = 1, draw: int = 0, p: float = 0.25, seed: int = 0) -> torch.Tensor:
    return keyed_mask(LIKE, p, torch.tensor(dropout_key(seed, party, number)), draw)


def agreement(one: torch.Tensor, other: torch.Tensor) -> float:
    """Share of places dropped in both or in neither."""
    return ((one > 0) == (other > 0)).double().mean().item()


@pytest.mark.parametrize("p", RATES)
def test_the_rate_is_right(p: float) -> None:
    kept = mask("bank", p=p)
    assert set(kept.unique().tolist()) == {0.0, torch.tensor(1 / (1 - p)).item()}
    standard_error = (p * (1 - p) / LIKE.numel()) ** 0.5
    assert abs((kept == 0).double().mean().item() - p) < 5 * standard_error
    for axis in (0, 1):  # no row and no column of the batch is treated differently
        share = (kept == 0).double().mean(axis)
        assert (share - p).abs().max() < 6 * (p * (1 - p) / LIKE.shape[axis]) ** 0.5


@pytest.mark.parametrize(
    "other",
    [
        {"party": "telco"},
        {"party": "bank", "number": 2},
        {"party": "bank", "draw": 1},
        {"party": "bank", "draw": 2},
        {"party": "bank", "seed": 1},
        {"party": "bank", "seed": 2**32},
    ],
    ids=str,
)
def test_other_parties_turns_and_draws_get_independent_masks(other: dict[str, object]) -> None:
    p = 0.25
    expected = p**2 + (1 - p) ** 2  # of two independent masks
    assert abs(agreement(mask("bank"), mask(**other)) - expected) < 0.02  # type: ignore[arg-type]


def test_the_same_address_gives_the_same_mask() -> None:
    assert torch.equal(mask("bank", 3, 2), mask("bank", 3, 2))


def test_uniform_numbers_look_uniform() -> None:
    u = keyed_uniform(torch.zeros(200_000), torch.tensor(dropout_key(0, "bank")), 0).double()
    assert 0 <= u.min() < u.max() < 1
    counts = torch.histc(u, bins=100, min=0, max=1)
    assert ((counts - 2000).square() / 2000).sum() < 160  # chi-square with 99 degrees of freedom, p < 1e-4
    assert abs(torch.corrcoef(torch.stack([u[:-1], u[1:]]))[0, 1]) < 0.01


def test_many_draws_of_one_element_are_uniform_too() -> None:
    key, draws = torch.tensor(dropout_key(0, "bank")), 5000
    first = torch.stack([keyed_uniform(torch.zeros(1), key, draw) for draw in range(draws)]).flatten().double()
    assert abs(first.mean() - 0.5) < 5 * (1 / 12 / draws) ** 0.5
    assert abs(torch.corrcoef(torch.stack([first[:-1], first[1:]]))[0, 1]) < 0.08


def test_stacked_masks_are_the_looped_ones() -> None:
    keys = dropout_keys([dropout_key(0, party, 5) for party in ("bank", "telco", "shop")], torch.device("cpu"))
    stacked = keyed_mask(torch.zeros(3, 7, 4), 0.3, keys, 2)
    for k in range(3):
        assert torch.equal(stacked[k], keyed_mask(torch.zeros(1, 7, 4), 0.3, keys[k : k + 1], 2)[0])
        assert torch.equal(stacked[k], keyed_mask(torch.zeros(7, 4), 0.3, keys[k, 0, 0], 2))


def test_the_layer_gives_the_same_masks_looped_and_under_vmap() -> None:
    layers = [with_keyed_dropout(nn.Dropout(0.5), dropout_key(0, party)) for party in ("bank", "telco")]
    parameters, buffers = stack_module_state(layers)
    x = torch.ones(2, 6, 5)
    together = vmap(lambda p, b, xi: functional_call(layers[0], (p, b), (xi,)))(parameters, buffers, x)
    apart = torch.stack([layer(x[k]) for k, layer in enumerate(layers)])
    assert torch.equal(together, apart)
    assert not torch.equal(together[0], together[1])


def test_every_call_is_a_new_draw_and_the_counter_is_part_of_the_model() -> None:
    layer = with_keyed_dropout(nn.Dropout(0.5), 7)
    x = torch.ones(20, 5)
    first, second = layer(x), layer(x)
    assert not torch.equal(first, second)
    again = with_keyed_dropout(nn.Dropout(0.5), 7)
    again.load_state_dict({**layer.state_dict(), "draws": torch.tensor(1)})
    assert torch.equal(again(x), second)


def test_evaluation_passes_and_counts_nothing() -> None:
    layer = with_keyed_dropout(nn.Dropout(0.5), 7).eval()
    assert torch.equal(layer(torch.ones(3, 2)), torch.ones(3, 2))
    assert int(layer.draws) == 0


def test_layers_of_one_network_draw_apart() -> None:
    net = with_keyed_dropout(nn.Sequential(nn.Dropout(0.5), nn.Sequential(nn.Dropout(0.5))), 7)
    x = torch.ones(200, 50)
    first, second = net[0](x), net[1][0](x)
    assert isinstance(net[1][0], KeyedDropout)
    assert abs(agreement(first, second) - 0.5) < 0.03


def test_the_original_network_is_left_alone() -> None:
    original = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5))
    with_keyed_dropout(original, 7)
    assert isinstance(original[1], nn.Dropout)


def test_a_network_that_already_has_keyed_layers_gets_the_partys_key() -> None:
    one, other = (with_keyed_dropout(nn.Sequential(KeyedDropout(0.5)), key) for key in (1, 2))
    assert int(one[0].key) != int(other[0].key)


def test_dropout_needs_learning() -> None:
    stack = Stack([with_keyed_dropout(nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5)), k) for k in range(2)])
    x = torch.ones(2, 4, 3)
    assert torch.equal(stack.forward(x, Mode.UPLOAD), stack.forward(x, Mode.PREDICT))
    assert not torch.equal(stack.forward(x, Mode.UPLOAD), stack.forward(x, Mode.LEARN))


def test_heads_drop_between_layers_only_with_a_key() -> None:
    head = open_heads(HeadSettings(layers=3, dropout=0.5), ("bank", "telco"), 4, 3, seed=0)
    h = torch.rand(2, 10, 4, dtype=torch.float64)
    keys = dropout_keys([1, 2], torch.device("cpu"))
    plain = apply_heads(head, h, drop=0.5)
    assert torch.equal(plain, apply_heads(head, h))
    assert not torch.equal(plain, apply_heads(head, h, 0.5, keys, 0))
    assert torch.equal(apply_heads(head, h, 0.5, keys, 0), apply_heads(head, h, 0.5, keys, torch.tensor(0)))
    alone = {name: value[1:] for name, value in head.items()}
    torch.testing.assert_close(apply_heads(alone, h[1:], 0.5, keys[1:], 3), apply_heads(head, h, 0.5, keys, 3)[1:])


class Draws(nn.Module):
    """Draws from torch's global generator in its forward pass, while it learns."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(5, 4)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(self.layer(x), 0.5, self.training)


@pytest.mark.parametrize("engine", ["loop", "stacked"])
@pytest.mark.parametrize("encoders", [lambda party, shape: Draws(), {"party_0": Draws()}], ids=["all", "one"])
def test_a_network_that_draws_in_its_forward_pass_is_refused(encoders: Any, engine: str) -> None:
    """Where vmap does not notice, equal seeds would give other numbers."""
    before = torch.random.get_rng_state()
    with pytest.raises(ModelError, match=r"encoder of party 'party_0' draws random numbers .* use nn\.Dropout layers"):
        fit(small(), VIMADMM(), encoders=encoders, rounds=1, engine=engine)
    assert torch.equal(before, torch.random.get_rng_state())
