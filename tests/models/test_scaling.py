"""Columns of any scale reach the networks on a common one, with statistics of training rows only."""

from __future__ import annotations

import torch

from colonnade.federation import Federation, RowSplit
from colonnade.fit import fit
from colonnade.methods import VIMADMM
from colonnade.models.scaling import LIMIT, apply_scaling, statistics


def scaled(columns: torch.Tensor, train: torch.Tensor) -> torch.Tensor:
    shift, scale = statistics(columns, train)
    return apply_scaling(columns.unsqueeze(0), shift.unsqueeze(0), scale.unsqueeze(0))[0]


def test_tables_are_scaled_column_by_column() -> None:
    columns = torch.randn(400, 3, dtype=torch.float64) * torch.tensor([1e-3, 1.0, 1e6]) + torch.tensor([5.0, 0.0, -2e6])
    out = scaled(columns, torch.arange(300))
    torch.testing.assert_close(out[:300].mean(0), torch.zeros(3, dtype=torch.float64), rtol=0, atol=1e-9)
    torch.testing.assert_close(out[:300].std(0, unbiased=False), torch.ones(3, dtype=torch.float64))


def test_images_keep_one_scale_per_party() -> None:
    images = torch.rand(50, 2, 4) * 255
    images[:, 0, 0] = 0
    out = scaled(images, torch.arange(50))
    ratio = (out[0] - out[1]) / (images[0] - images[1])
    torch.testing.assert_close(ratio[1], ratio[1, :1].expand(4))  # the same factor everywhere


def test_constant_columns_become_zero_and_outliers_are_bounded() -> None:
    columns = torch.randn(100, 2)
    columns[:, 0] = 7.0
    columns[99] = 1e9
    out = scaled(columns, torch.arange(99))
    assert (out[:, 0] == 0).all()
    assert out[99, 1] == LIMIT


def test_test_rows_do_not_change_the_scale() -> None:
    columns = torch.randn(60, 2)
    changed = columns.clone()
    changed[40:] += 100
    assert torch.equal(scaled(columns, torch.arange(40))[:40], scaled(changed, torch.arange(40))[:40])


def test_the_scale_is_part_of_the_party_s_model() -> None:
    columns = torch.randn(120, 3) * 1e4
    labels = (columns[:, 0] > 0).long()
    split = RowSplit(torch.arange(80), torch.arange(80, 100), torch.arange(100, 120))
    run = fit(Federation.from_arrays({"a": columns}, labels, split=split), VIMADMM(local_steps=5), rounds=4)
    assert {"scaling.shift", "scaling.scale"} <= set(run.models["a"])
    one_by_one = torch.cat([run.logits({"a": columns[i : i + 1]}) for i in range(3)])
    torch.testing.assert_close(one_by_one, run.logits({"a": columns[:3]}))
