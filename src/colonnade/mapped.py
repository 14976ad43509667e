"""Numbers in files that are mapped into memory: matrices that may be larger than it.

Such a tensor is used like any other, but what is read of it the system loads from the file and may forget again, so it
takes no memory that could not be given back. Whatever copies a whole one must not: rows are taken where they are
needed. The file has no name any more once it is mapped, and is gone with the tensor, whatever happens.
"""

from __future__ import annotations

import contextlib
import math
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from colonnade.errors import DataError
from colonnade.temporary import temporary_folder

IN_MEMORY = 1 << 31  # bytes of float32 numbers; more are mapped from a file
BLOCK = 1 << 24  # bytes that are copied at once


def large(numbers: int) -> bool:
    """Whether so many numbers (float32) are kept in a file."""
    return 4 * numbers > IN_MEMORY


def is_mapped(tensor: Tensor) -> bool:
    """Whether a tensor lies in a file."""
    return tensor.device.type == "cpu" and tensor.untyped_storage().filename is not None


def zeros(shape: Sequence[int], *, on_disk: bool) -> Tensor:
    """Zeros in float32.

    Raises:
        DataError: there is no room for the file.
    """
    if not on_disk or not math.prod(shape):
        return torch.zeros(*shape)
    size, folder = math.prod(shape), temporary_folder()
    try:
        handle, name = tempfile.mkstemp(prefix="colonnade-", dir=folder)
        try:
            _reserve(handle, 4 * size)
            return torch.from_file(name, shared=True, size=size, dtype=torch.float32).reshape(*shape)
        finally:
            os.close(handle)
            with contextlib.suppress(OSError):  # where a mapped file keeps its name, the system removes it
                Path(name).unlink()
    except OSError as error:
        raise DataError(
            f"no room for {4 * size / 1e9:.1f} GB of encoded columns in {folder} ({error.strerror}); set TMPDIR to a "
            "folder on a larger disk"
        ) from None


def _reserve(handle: int, size: int) -> None:
    """Give a file its size; a full disk is noticed now, and not when a page is written."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(handle, 0, size)
    else:
        os.ftruncate(handle, size)


def taken(columns: Tensor, rows: Tensor) -> Tensor:
    """columns[rows]; of a mapped tensor, where they are many, in a file of their own."""
    if not is_mapped(columns) or not large(len(rows) * columns[:1].numel()):
        return columns[rows]
    out, size = zeros((len(rows), *columns.shape[1:]), on_disk=True), _rows_at_once(columns)
    for first in range(0, len(rows), size):
        out[first : first + size] = columns[rows[first : first + size]]
    return out


def side_by_side(parts: Sequence[Tensor]) -> Tensor:
    """Columns (N, ...) of several parties as one matrix (N, F); in a file, where one of them is."""
    flat = [part.flatten(1) for part in parts]
    if not any(map(is_mapped, parts)):
        return torch.cat(flat, dim=1)
    out = zeros((len(flat[0]), sum(part.shape[1] for part in flat)), on_disk=True)
    size = _rows_at_once(out)
    for first in range(0, len(out), size):
        out[first : first + size] = torch.cat([part[first : first + size] for part in flat], dim=1)
    return out


def _rows_at_once(columns: Tensor) -> int:
    return max(1, BLOCK // (4 * max(1, columns[:1].numel())))
