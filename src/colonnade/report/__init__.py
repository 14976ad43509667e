"""What a finished run looks like to people: words, tables, figures, one self-contained HTML page."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from colonnade.errors import RunError

if TYPE_CHECKING:
    from colonnade.record import RunRecord
    from colonnade.run import Run

__all__ = ["report"]


def report(runs: Run | str | Path | Iterable[Run | str | Path], folder: str | Path) -> Path:
    """Write report.html about one run, or several side by side, and the files beside it; the path of the page.

    Args:
        runs: a run, the folder of a saved one, or several of either.
        folder: where to, or the name of an .html file.

    Raises:
        RunError: there is no run, or a folder is none.

    Examples:
        >>> import tempfile, colonnade as cn
        >>> run = cn.fit(cn.sets.load_set("digits", parties=2), "vimadmm", rounds=5)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     cn.report(run, folder).name
        'report.html'
    """
    from colonnade.report.html import write_report  # pictures are an optional extra: imported only here
    from colonnade.report.worth import read_worth

    several = [runs] if isinstance(runs, (str, Path)) or hasattr(runs, "record") else list(runs)
    records = [record for one in several for record in _records(one)]
    if not records:
        raise RunError("report needs at least one run, e.g. report(run, 'page'); got none")
    whole = Path(several[0]) if len(several) == 1 and isinstance(several[0], (str, Path)) else None
    return write_report(records, Path(folder), worth=None if whole is None else read_worth(whole, records))


def _records(run: Any) -> list[RunRecord]:
    """The record of a run with what lies beside it; of a folder, those of all runs in it."""
    from colonnade.report.record import read_records, with_files

    if isinstance(run, (str, Path)):
        return read_records([Path(run)])
    if not hasattr(run, "record"):
        raise RunError(f"report needs runs, or folders of saved ones; got {run!r}")
    return [with_files(run.record(), run.path) if run.path is not None else run.record()]
