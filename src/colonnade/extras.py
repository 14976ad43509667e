"""Libraries that only some users install, imported when first needed.

A missing one is answered with the command that installs it, never with a bare ImportError.
"""

from __future__ import annotations

import threading
from importlib import import_module
from typing import Any

from colonnade.errors import DataError

# numpy reads the heading of an array with Python's own parser, which in Python 3.11 fails (SystemError, gh-106905) when
# the collector runs in one thread while another parses. A process has a thread for each of its runs.
ONE_READER = threading.RLock()


def need(module: str, *, extra: str, purpose: str) -> Any:
    """Import an optional library.

    Args:
        module: the dotted name to import.
        extra: the extra of `colonnade` that installs it.
        purpose: what it is needed for, as the beginning of a sentence.

    Raises:
        DataError: it is not installed.
    """
    try:
        return import_module(module)
    except ImportError:
        library = module.partition(".")[0]
        raise DataError(
            f"{purpose} needs {library}, which is not installed; run: pip install colonnade[{extra}]"
        ) from None
