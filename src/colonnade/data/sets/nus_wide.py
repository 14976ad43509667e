"""NUS-WIDE: photographs described by 634 low-level image features and 1,000 tags, two parties each.

Read from the original text files. As in the paper: five concepts, only photographs with exactly one of
them, the first 60,000 of the training and 10,000 of the test files, values as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from colonnade.data.fetch import missing, places
from colonnade.data.split import blocks, holdout
from colonnade.errors import ConfigError, DataError, RowsDisagree
from colonnade.federation import Federation

CONCEPTS = ("buildings", "grass", "animal", "water", "person")
FEATURES = ("CM55", "CH", "EDH", "CORR", "WT")  # 225 + 64 + 73 + 144 + 128 = 634 columns
MOST = {"Train": 60_000, "Test": 10_000}
LABELS = "Groundtruth/TrainTestLabels"
PAGE = "https://lms.comp.nus.edu.sg/wp-content/uploads/2019/research/nuswide/NUS-WIDE.html"
LAYOUT = (
    f"there is no address to download it from; ask for it at {PAGE} (ground truth, low level features, tags) "
    "and unpack it as NUS_WIDE/{Groundtruth/TrainTestLabels/Labels_<concept>_Train.txt, "
    "NUS_WID_Low_Level_Features/Low_Level_Features/Train_Normalized_<CM55|CH|EDH|CORR|WT>.dat, "
    "NUS_WID_Tags/Train_Tags1k.dat}, and the same for Test"
)


def nus_wide(
    parties: int = 4, data_dir: str | Path | None = None, seed: int = 0, limit: int | None = None
) -> Federation:
    """NUS-WIDE with 4 parties: image features 300 + 334, tags 500 + 500.

    Args:
        parties: 4, or 2: all image features, all tags.
        data_dir: a folder with the original text files, or one that holds it as `nus_wide`; with or without the
            folders NUS_WIDE and NUS_WID_Low_Level_Features around them.
        seed: shuffles the split.
        limit: use only the first so many training rows.

    Raises:
        MissingData: the files are not there.
        DataError: a file is damaged or does not fit the others.
        ConfigError: an option is out of range.
    """
    if parties not in (2, 4):
        raise ConfigError(f"parties = {parties}: NUS-WIDE has 4 parties, or 2 (image features, tags)")
    if limit is not None and limit < 1:
        raise ConfigError(f"limit = {limit}: needed at least one training row")
    root = _root(places("nus_wide", data_dir))
    parts = {part: _read_part(root, part, limit if part == "Train" else None) for part in MOST}
    shapes = {part: (image.shape[1], tags.shape[1]) for part, (image, tags, _) in parts.items()}
    if shapes["Train"] != shapes["Test"]:
        raise DataError(
            f"NUS-WIDE in {root}: {shapes['Train']} image features and tags in the training files, {shapes['Test']} "
            "in the test files; they must be equal; get the files again"
        )
    whole = torch.from_numpy(np.concatenate([np.concatenate(parts[part][:2], axis=1) for part in MOST]))
    widths = _widths(*shapes["Train"], parties)
    return Federation.from_arrays(
        dict(zip(widths, blocks(whole, list(widths.values())).values(), strict=True)),
        np.concatenate([parts[part][2] for part in MOST]),
        task="multiclass",
        classes=len(CONCEPTS),
        split=holdout(len(parts["Train"][2]), len(parts["Test"][2]), seed=seed),
        name=f"nus_wide-{parties}",
        scaled=True,
        whole=whole,
    )


def _widths(image: int, tags: int, parties: int) -> dict[str, int]:
    if parties == 2:
        return {"image": image, "text": tags}
    first = 300 if image == 634 else image // 2  # 300 + 334 is the paper's
    return {"image_1": first, "image_2": image - first, "text_1": tags // 2, "text_2": tags - tags // 2}


def _root(folders: Sequence[Path]) -> Path:
    tried = [folder / inner for folder in folders for inner in ("", "NUS_WIDE")]
    for root in tried:
        if (root / LABELS).is_dir():
            return root
    raise missing(f"NUS-WIDE's folder {LABELS}", tried, LAYOUT)


def _read_part(
    root: Path, part: str, limit: int | None
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.int64]]:
    """Image features, tags and classes of the wanted rows of the "Train" or "Test" files."""
    marks = [_read_labels(_file(root, f"{LABELS}/Labels_{concept}_{part}.txt")) for concept in CONCEPTS]
    if len({len(column) for column in marks}) > 1:
        counts = ", ".join(f"{c}: {len(column)}" for c, column in zip(CONCEPTS, marks, strict=True))
        raise RowsDisagree(f"NUS-WIDE in {root}: the {part} label files differ in length ({counts}); get them again")
    table = np.stack(marks, axis=1)  # (rows, 5)
    wanted = table.sum(axis=1) == 1
    wanted &= np.cumsum(wanted) <= min(MOST[part], limit or MOST[part])
    if not wanted.any():
        raise DataError(f"NUS-WIDE in {root}: no {part} row has exactly one of the concepts {', '.join(CONCEPTS)}")
    folder = "Low_Level_Features"
    if (root / "NUS_WID_Low_Level_Features").is_dir():
        folder = f"NUS_WID_Low_Level_Features/{folder}"
    image = [_read_rows(_file(root, f"{folder}/{part}_Normalized_{kind}.dat"), wanted) for kind in FEATURES]
    tags = _read_rows(_file(root, f"NUS_WID_Tags/{part}_Tags1k.dat"), wanted)
    return np.concatenate(image, axis=1), tags, table[wanted].argmax(axis=1)


def _file(root: Path, name: str) -> Path:
    if not (root / name).is_file():
        raise missing(f"NUS-WIDE's file {name}", [root], LAYOUT)
    return root / name


def _read_labels(path: Path) -> NDArray[np.int64]:
    try:
        marks = np.loadtxt(path, dtype=np.int64, ndmin=1)
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read as one 0 or 1 per line: {error}") from None
    if marks.ndim != 1 or not np.isin(marks, (0, 1)).all():
        raise DataError(f"{path} must have one 0 or 1 per line; get it again")
    return marks


def _read_rows(path: Path, wanted: NDArray[np.bool_]) -> NDArray[np.float32]:
    """The wanted lines as numbers; the others are not even parsed, or 160,000 rows would take minutes."""
    try:
        with path.open(encoding="ascii") as lines:
            return np.loadtxt(_pick(lines, wanted, path), dtype=np.float32, ndmin=2)
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read as numbers: {error}; get it again") from None


def _pick(lines: Iterator[str], wanted: NDArray[np.bool_], path: Path) -> Iterator[str]:
    count = 0
    for count, line in enumerate(lines, start=1):
        if count <= len(wanted) and wanted[count - 1]:
            yield line
    if count != len(wanted):
        raise RowsDisagree(f"{path} has {count} lines, the label files have {len(wanted)}; get it again")
