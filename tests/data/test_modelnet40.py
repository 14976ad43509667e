"""ModelNet40 from small images in the published folders."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from colonnade.data.sets.modelnet40 import Thing, _split, modelnet40
from colonnade.errors import ConfigError, DataError, MissingData
from tests.data.files import write_modelnet


@pytest.mark.parametrize("inner", ["", "modelnet40_images_new_12x", "modelnet40/shaded_images"])
def test_views_become_parties(tmp_path, inner):
    write_modelnet(tmp_path / inner)
    federation = modelnet40(data_dir=tmp_path, size=4)
    assert federation.name == "modelnet40-4"
    assert federation.names == ("party_1", "party_2", "party_3", "party_4")
    assert federation.labels.tolist() == [0] * 11 + [1] * 11 + [0] * 2 + [1] * 2  # airplane, vase
    for view, party in enumerate(federation.parties, start=1):
        colours = party.columns * 255
        assert tuple(colours.shape) == (26, 3, 4, 4)
        assert torch.allclose(colours[:, 0, 0, 0], federation.labels * 100.0)
        assert torch.allclose(colours[:, 2], torch.tensor(view * 20.0))  # the same view in every row
    things = federation.parties[0].columns[:, 1, 0, 0] * 25.5
    assert things.round().tolist() == [*range(1, 12), *range(1, 12), 12, 13, 12, 13]


def test_the_first_tenth_of_each_class_validates(tmp_path):
    write_modelnet(tmp_path, train=20)
    split = modelnet40(parties=1, data_dir=tmp_path, size=2).split
    assert sorted(split.validation.tolist()) == [0, 1, 20, 21]
    assert sorted(split.train.tolist()) == [*range(2, 20), *range(22, 40)]
    assert split.train.tolist() != sorted(split.train.tolist())
    assert split.test.tolist() == [40, 41, 42, 43]


def test_the_split_has_the_paper_s_sizes():
    counts = [
        *[626, 106, 515, 173, 572, 335, 64, 197, 889, 167, 79, 138, 200, 109, 200, 149, 171, 155, 145, 124],
        *[149, 284, 465, 200, 88, 231, 240, 104, 115, 128, 680, 124, 90, 392, 163, 344, 267, 475, 87, 103],
    ]
    things = [Thing(number, "train", ()) for number, count in enumerate(counts) for _ in range(count)]
    split = _split([*things, *[Thing(0, "test", ())] * 2468], seed=0)
    assert [len(split.train), len(split.validation), len(split.test)] == [8877, 966, 2468]


@pytest.mark.parametrize("form", ["{}.obj.shaded_v{:03d}", "{}.{}"])
def test_other_ways_to_write_the_view(tmp_path, form):
    write_modelnet(tmp_path, train=1, test=1, form=form)
    federation = modelnet40(parties=12, data_dir=tmp_path, size=1)
    blue = [round(float(p.columns[0, 2, 0, 0]) * 255) for p in federation.parties]
    assert blue == [20 * view for view in range(1, 13)]  # by number: 2 comes before 10


def test_default_size_is_the_paper_s(tmp_path):
    write_modelnet(tmp_path, train=1, test=1)
    assert tuple(modelnet40(data_dir=tmp_path).parties[0].columns.shape) == (4, 3, 56, 56)


def test_objects_that_lack_views_are_named(tmp_path):
    write_modelnet(tmp_path, train=3)
    (tmp_path / "vase" / "train" / "vase_0002_005.png").unlink()
    (tmp_path / "vase" / "test" / "vase_0004_001.png").unlink()
    with pytest.raises(DataError, match=r"2 objects lack views: vase_0002 \(no view 5\), vase_0004 \(no view 1\); get"):
        modelnet40(data_dir=tmp_path)


def test_another_number_of_views_is_refused(tmp_path):
    write_modelnet(tmp_path, train=1, test=1)
    for path in Path(tmp_path).rglob("*_012.png"):
        path.unlink()
    with pytest.raises(DataError, match=r"needed 12 views per object, found view numbers \[1, 2, .*11\]"):
        modelnet40(data_dir=tmp_path)


def test_strange_and_broken_images_are_named(tmp_path):
    write_modelnet(tmp_path, train=1, test=1)
    (tmp_path / "vase" / "train" / "vase_0001_001.png").write_bytes(b"no picture")
    with pytest.raises(DataError, match=r"image .*vase_0001_001\.png cannot be read"):
        modelnet40(data_dir=tmp_path)
    (tmp_path / "vase" / "train" / "readme.png").write_bytes(b"")
    with pytest.raises(DataError, match=r"readme\.png is not named <object>_<view>\.png; rename or remove it"):
        modelnet40(data_dir=tmp_path)


def test_a_missing_test_part_is_said(tmp_path):
    write_modelnet(tmp_path, train=1, test=0)
    with pytest.raises(DataError, match="no images in <class>/test"):
        modelnet40(data_dir=tmp_path)


def test_the_missing_layout_is_explained(tmp_path):
    with pytest.raises(MissingData, match=r"<class>/train was not found.*mvcnn_pytorch.*<object>_<view>\.png"):
        modelnet40(data_dir=tmp_path)


def test_missing_pillow_says_what_to_install(tmp_path, monkeypatch):
    write_modelnet(tmp_path, train=1, test=1)
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(DataError, match=r"reading ModelNet40 needs PIL.*pip install colonnade\[images\]"):
        modelnet40(data_dir=tmp_path)


def test_options_out_of_range_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="parties = 13: needed 1 to 12"):
        modelnet40(parties=13, data_dir=tmp_path)
    with pytest.raises(ConfigError, match="size = 0"):
        modelnet40(data_dir=tmp_path, size=0)
