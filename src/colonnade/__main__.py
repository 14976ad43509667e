"""`python -m colonnade`: the same command line as `colonnade`."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line, or say in one sentence what to install for it."""
    try:
        from colonnade.cli.main import main as command_line
    except ModuleNotFoundError as missing:
        if missing.name not in {"typer", "rich"}:
            raise
        sys.exit(f"the command line needs {missing.name}, which is not installed: pip install 'colonnade[cli]'")
    command_line()


if __name__ == "__main__":
    main()
