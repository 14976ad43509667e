"""Keep the memory of large temporaries between local steps.

glibc gives a freed block of some megabytes back to the system at once and fetches it again, page by page, in
the next step. It stops doing so for blocks up to the largest one it has seen freed, 32 MiB at most. So one such
block is taken and freed before the first step (`ms_per_round` of `colonnade bench speed` shows it). Elsewhere it does
nothing.
"""

from __future__ import annotations

import torch

BLOCK = 31 * 2**20  # bytes; with its header it must stay below 32 MiB


def keep_large_blocks() -> None:
    """Let the allocator see a large block freed."""
    torch.empty(BLOCK, dtype=torch.uint8)  # freed at once: nobody holds it
