"""`python -m colonnade`: the same command line as `colonnade`."""

from __future__ import annotations

import os
import sys

# How often torch's threads ask whether the others are done before they sleep; read when torch is loaded. As it comes
# they ask for a millisecond, which on a busy machine takes the cores from those they wait for, many times a round.
SPINS = "1000"


def main() -> None:
    """Run the command line, or say in one sentence what to install for it."""
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPINS)
    try:
        from colonnade.cli.main import main as command_line
    except ModuleNotFoundError as missing:
        if missing.name not in {"typer", "rich"}:
            raise
        sys.exit(f"the command line needs {missing.name}, which is not installed: pip install 'colonnade[cli]'")
    command_line()


if __name__ == "__main__":
    main()
