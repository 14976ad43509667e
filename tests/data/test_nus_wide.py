"""NUS-WIDE from small files of the original layout."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from colonnade.data.sets.nus_wide import nus_wide
from colonnade.errors import ConfigError, DataError, MissingData, RowsDisagree
from tests.data.files import write_nus_wide

TAGS = "NUS_WID_Tags/Train_Tags1k.dat"
LABELS = "Groundtruth/TrainTestLabels/Labels_water_Train.txt"


@pytest.mark.parametrize(
    ("inner", "between"), [("", True), ("", False), ("NUS_WIDE", True), ("nus_wide/NUS_WIDE", False)]
)
def test_rows_with_exactly_one_concept_are_kept(tmp_path, inner, between):
    written = write_nus_wide(tmp_path / inner, between=between)
    federation = nus_wide(data_dir=tmp_path)
    assert federation.name == "nus_wide-4"
    assert federation.outputs == 5
    assert federation.rows == 25 + 13
    keep = {part: arrays["which"] < 5 for part, arrays in written.items()}
    assert federation.labels.tolist() == [w for p in written for w in written[p]["which"][keep[p]]]
    expected = np.concatenate(
        [np.concatenate([written[p]["image"], written[p]["tags"]], axis=1)[keep[p]] for p in written]
    )
    torch.testing.assert_close(federation.whole, torch.from_numpy(expected).float())
    assert federation.split.test.tolist() == list(range(25, 38))
    assert [len(federation.split.train), len(federation.split.validation)] == [23, 2]


def test_small_widths_are_halved(tmp_path):
    write_nus_wide(tmp_path)
    federation = nus_wide(data_dir=tmp_path)
    shapes = {p.name: p.columns.shape[1] for p in federation.parties}
    assert shapes == {"image_1": 8, "image_2": 8, "text_1": 3, "text_2": 4}
    torch.testing.assert_close(torch.cat([p.columns for p in federation.parties], dim=1), federation.whole)
    two = nus_wide(parties=2, data_dir=tmp_path)
    assert {p.name: p.columns.shape[1] for p in two.parties} == {"image": 16, "text": 7}


def test_the_real_widths_are_split_as_in_the_paper(tmp_path):
    write_nus_wide(tmp_path, rows=12, widths=(225, 64, 73, 144, 128), tags=1000)
    federation = nus_wide(data_dir=tmp_path)
    assert [p.columns.shape[1] for p in federation.parties] == [300, 334, 500, 500]


def test_limit_keeps_the_first_training_rows(tmp_path):
    write_nus_wide(tmp_path)
    whole, some = nus_wide(data_dir=tmp_path), nus_wide(data_dir=tmp_path, limit=10)
    assert some.rows == 10 + 13
    assert torch.equal(some.whole[:10], whole.whole[:10])
    assert torch.equal(some.whole[10:], whole.whole[25:])


def test_the_missing_layout_is_explained(tmp_path):
    with pytest.raises(MissingData, match=r"Groundtruth/TrainTestLabels was not found.*lms\.comp\.nus.*NUS_WID_Tags"):
        nus_wide(data_dir=tmp_path)
    write_nus_wide(tmp_path)
    (tmp_path / TAGS).unlink()
    with pytest.raises(MissingData, match=rf"file {TAGS} was not found in {tmp_path}"):
        nus_wide(data_dir=tmp_path)


def shorten(path):
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:-1]))


def test_files_of_different_length_are_named(tmp_path):
    write_nus_wide(tmp_path)
    shorten(tmp_path / TAGS)
    with pytest.raises(RowsDisagree, match=r"Train_Tags1k\.dat has 29 lines, the label files have 30; get it again"):
        nus_wide(data_dir=tmp_path)
    shorten(tmp_path / LABELS)
    with pytest.raises(RowsDisagree, match=r"Train label files differ in length.*animal: 30, water: 29"):
        nus_wide(data_dir=tmp_path)


@pytest.mark.parametrize(
    ("file", "content", "says"),
    [
        (TAGS, "x\t" * 7, r"Train_Tags1k\.dat cannot be read as numbers: .*; get it again"),
        (LABELS, "2\n", r"Labels_water_Train\.txt must have one 0 or 1 per line"),
        (LABELS, "a\n", r"Labels_water_Train\.txt cannot be read as one 0 or 1 per line"),
    ],
)
def test_damaged_files_are_named(tmp_path, file, content, says):
    write_nus_wide(tmp_path)
    lines = (tmp_path / file).read_text().splitlines(keepends=True)
    (tmp_path / file).write_text(content.rstrip("\n") + "\n" + "".join(lines[1:]))
    with pytest.raises(DataError, match=says):
        nus_wide(data_dir=tmp_path)


def test_training_and_test_files_must_fit(tmp_path):
    write_nus_wide(tmp_path)
    path = tmp_path / "NUS_WID_Tags" / "Test_Tags1k.dat"
    path.write_text("".join(line[2:] for line in path.read_text().splitlines(keepends=True)))
    with pytest.raises(DataError, match=r"\(16, 7\).*training files, \(16, 6\).*test files"):
        nus_wide(data_dir=tmp_path)


def test_no_usable_row_is_said(tmp_path):
    write_nus_wide(tmp_path)
    for path in (tmp_path / "Groundtruth" / "TrainTestLabels").glob("*_Train.txt"):
        path.write_text("0\n" * 30)
    with pytest.raises(DataError, match="no Train row has exactly one of the concepts buildings, grass"):
        nus_wide(data_dir=tmp_path)


def test_options_out_of_range_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="parties = 3: NUS-WIDE has 4 parties, or 2"):
        nus_wide(parties=3, data_dir=tmp_path)
    with pytest.raises(ConfigError, match="limit = 0"):
        nus_wide(data_dir=tmp_path, limit=0)
