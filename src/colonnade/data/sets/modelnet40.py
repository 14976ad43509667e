"""ModelNet40: objects of 40 classes, each drawn from 12 sides; one view per party.

Read from the shaded images `<class>/{train,test}/<object>_<view>.png`. As in the paper: the first 4 of 12
views, 56 x 56 pixels, and the first tenth of each class's training objects for validation.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from colonnade.data.fetch import missing, places
from colonnade.data.split import party_names
from colonnade.errors import ConfigError, DataError
from colonnade.extras import need
from colonnade.federation import Federation, RowSplit
from colonnade.randomness import permutation

VIEWS = 12
BETWEEN = ("", "modelnet40_images_new_12x", "shaded_images")  # folders the archives put around the classes
NAME = re.compile(r"(?P<object>.+)[._-]v?(?P<view>\d+)\.png")
LAYOUT = (
    "there is no address to download it from here; get the 12-view shaded images (modelnet40_images_new_12x) from "
    "https://github.com/jongchyisu/mvcnn_pytorch and unpack them as <class>/{train,test}/<object>_<view>.png"
)


class Thing(NamedTuple):
    """One object: its class number, the part it belongs to and its 12 images by view."""

    number: int
    part: str
    images: tuple[Path, ...]


def modelnet40(parties: int = 4, data_dir: str | Path | None = None, seed: int = 0, size: int = 56) -> Federation:
    """ModelNet40 with one view (N, 3, size, size) per party.

    Args:
        parties: 1 to 12: the first so many views.
        data_dir: a folder with the class folders, or one that holds it as `modelnet40`.
        seed: shuffles the training rows.
        size: pixels per side after scaling.

    Raises:
        MissingData: the images are not there.
        DataError: an object lacks views, an image cannot be read, or Pillow is not installed.
        ConfigError: an option is out of range.
    """
    if not 1 <= parties <= VIEWS:
        raise ConfigError(f"parties = {parties}: needed 1 to {VIEWS}, one per view")
    if size < 1:
        raise ConfigError(f"size = {size}: needed at least one pixel")
    things = _things(_root(places("modelnet40", data_dir)))
    columns = {
        name: _load([thing.images[view] for thing in things], size) for view, name in enumerate(party_names(parties))
    }
    return Federation.from_arrays(
        columns,
        torch.tensor([thing.number for thing in things]),
        task="multiclass",
        classes=1 + max(thing.number for thing in things),
        split=_split(things, seed),
        name=f"modelnet40-{parties}",
        scaled=True,
    )


def _root(folders: Sequence[Path]) -> Path:
    tried = [folder / inner for folder in folders for inner in BETWEEN]
    for root in tried:
        if any(root.glob("*/train")):
            return root
    raise missing("ModelNet40's folder <class>/train", tried, LAYOUT)


def _things(root: Path) -> list[Thing]:
    """All objects, training objects first, by class and name."""
    classes = sorted(folder.name for folder in root.iterdir() if (folder / "train").is_dir())
    grouped: dict[tuple[str, int, str], dict[int, Path]] = {}
    for part in ("train", "test"):
        for number, name in enumerate(classes):
            for path in sorted((root / name / part).glob("*.png")):
                match = NAME.fullmatch(path.name)
                if match is None:
                    raise DataError(f"{path} is not named <object>_<view>.png; rename or remove it")
                grouped.setdefault((part, number, match["object"]), {})[int(match["view"])] = path
    _check_views(root, grouped)
    by_view = {key: tuple(views[view] for view in sorted(views)) for key, views in grouped.items()}
    return [Thing(number, part, images) for (part, number, _), images in by_view.items()]


def _check_views(root: Path, grouped: dict[tuple[str, int, str], dict[int, Path]]) -> None:
    for part in ("train", "test"):
        if not any(key[0] == part for key in grouped):
            raise DataError(f"ModelNet40 in {root}: no images in <class>/{part}; needed <object>_<view>.png there")
    every = sorted({view for views in grouped.values() for view in views})
    short = [(key[2], sorted(set(every) - set(views))) for key, views in grouped.items() if len(views) < len(every)]
    if len(every) == VIEWS and not short:
        return
    if len(every) != VIEWS:
        raise DataError(f"ModelNet40 in {root}: needed {VIEWS} views per object, found view numbers {every}")
    named = ", ".join(f"{thing} (no view {', '.join(map(str, lacks))})" for thing, lacks in short[:3])
    raise DataError(f"ModelNet40 in {root}: {len(short)} objects lack views: {named}; get their images again")


def _load(paths: Sequence[Path], size: int) -> Tensor:
    """Images scaled to (N, 3, size, size) in [0, 1]."""
    pillow = need("PIL.Image", extra="images", purpose="reading ModelNet40")
    pixels = torch.empty(len(paths), 3, size, size)
    for row, path in enumerate(paths):
        pixels[row] = torch.from_numpy(_scaled(pillow, path, size)).permute(2, 0, 1)
    return pixels.div_(255)


def _scaled(pillow: Any, path: Path, size: int) -> Any:
    try:
        with pillow.open(path) as image:
            return np.array(image.convert("RGB").resize((size, size), pillow.Resampling.BILINEAR))
    except (OSError, SyntaxError, ValueError) as error:  # Pillow reports a broken PNG as a SyntaxError
        raise DataError(f"image {path} cannot be read: {error}; get it again") from None


def _split(things: Sequence[Thing], seed: int) -> RowSplit:
    """The reference program's: the first tenth of each class's training objects validates."""
    rows: dict[tuple[str, int], list[int]] = {}
    for row, thing in enumerate(things):
        rows.setdefault((thing.part, thing.number), []).append(row)
    train, validation = [], []
    for (part, _), members in rows.items():
        if part == "train":
            validation += members[: len(members) // 10]
            train += members[len(members) // 10 :]
    test = [row for row, thing in enumerate(things) if thing.part == "test"]
    return RowSplit(
        permutation(torch.tensor(train), seed, "split"),
        permutation(torch.tensor(validation, dtype=torch.int64), seed, "split", number=1),
        torch.tensor(test),
    )
