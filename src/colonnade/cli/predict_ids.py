"""`colonnade predict RUN --ids FILE`: ask the parties of other organisations about some customers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from colonnade.cli.operating import Journal, operated
from colonnade.cli.predictions import Answer, show, table_of
from colonnade.cli.screen import Screen
from colonnade.errors import ConfigError, DataError, RunError

if TYPE_CHECKING:
    import torch

    from colonnade.align.files import Alignment
    from colonnade.data.frames import Key
    from colonnade.data.table_file import TextFormat

Ids = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Aligned ids: a table, or one per line.", show_default=False)
]
DeployedConfig = Annotated[
    Path | None,
    typer.Option(
        "--config", metavar="COORDINATOR.toml", help="Default: the one the run was made with.", show_default=False
    ),
]
Absent = Annotated[
    Literal["refuse", "leave-out"],
    typer.Option(help="A party without a table, that does not answer, or that lacks a row."),
]
Patience = Annotated[float, typer.Option(min=0.1, help="Seconds to wait for the parties (--ids only).")]


@dataclass(frozen=True)
class When:
    """What to do when somebody is absent, and after how many seconds."""

    absent: Literal["refuse", "leave-out"]
    patience: float


def predict_ids(
    folder: Path, ids: tuple[Path, TextFormat], config: Path | None, when: When, answer: Answer, screen: Screen
) -> None:
    """Predict aligned ids, with whoever answers; `ids` are in a file, and if it is a text table, written so."""
    with operated(Journal("text", quiet=screen.as_json)) as notify:
        from colonnade.align.files import read_alignment
        from colonnade.deploy.predict import Wish, predict_rows
        from colonnade.deploy.settings import read_coordinator
        from colonnade.deploy.start import linked
        from colonnade.folder import claimed
        from colonnade.methods.without import check_can_leave_out
        from colonnade.run import Run
        from colonnade.service.versions import used_folder
        from colonnade.withdrawn import read_mark, read_withdrawn

        folder = used_folder(folder)
        run = Run.load(folder)
        if run.about["engine"] != "nats":
            raise RunError(f"{folder} is a simulated run; predict it with --rows or --tables")
        answer.check(run.model)
        if when.absent == "leave-out":  # before the parties are even looked for
            check_can_leave_out(run.method, run.state, run.privacy.secure_sum.use)
        read = read_coordinator(config or _config_of(folder))
        alignment = read_alignment(read.coordinator.alignment)
        names = read_wanted(ids[0], read.coordinator.id, ids[1])
        read_withdrawn(read.coordinator.withdrawn).check(names)
        rows, extends = _rows(names, alignment), alignment.extends
        wish = Wish(rows, alignment.presence, when.absent, when.patience, alignment.digest, extends)
        name = _deployed(folder).get("run", read.coordinator.run)  # the file may name another by now
        with claimed(folder), linked(read.credentials(), name, notify) as link:
            found = predict_rows(folder, link, wish, notify)
    if (mark := read_mark(folder)) is not None:
        screen.notify(f"note: this model was {mark}")
    show(screen, folder, answer.output, table_of(run.model, names, found, answer), None, found.left_out)


def _deployed(folder: Path) -> dict[str, str]:
    """What a run folder says of how it was deployed; nothing, where that cannot be read."""
    from colonnade.deploy.undertaking_files import DEPLOYMENT

    try:
        said = json.loads((folder / DEPLOYMENT).read_text())
    except (OSError, ValueError):
        return {}
    return {k: v for k, v in said.items() if isinstance(v, str)} if isinstance(said, dict) else {}


def _config_of(folder: Path) -> Path:
    path = Path(_deployed(folder).get("config", ""))
    if path == Path():
        raise RunError(f"{folder} does not say how it was deployed; name its coordinator.toml with --config")
    if not path.exists():
        raise ConfigError(f"{path.name} of {folder} is not where it was; name it with --config")
    return path


def read_wanted(path: Path, id: Key, text: TextFormat | None = None) -> list[str]:
    """The ids in a file: the id of a table, or the lines of a text, where `|` stands between the parts of an id."""
    from colonnade.align.ids import read_ids
    from colonnade.data.frames import ENDINGS

    if path.name.lower().endswith(ENDINGS):
        return list(read_ids(path, id, text=text))
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"the ids in {str(path)!r} cannot be read: {error}") from None
    return [line.strip() for line in lines if line.strip()]


def _rows(names: list[str], alignment: Alignment) -> torch.Tensor:
    import torch

    numbers: dict[str, int] = dict(zip(alignment.ids, alignment.rows.tolist(), strict=True))
    unknown = [name for name in names if name not in numbers]
    if unknown:
        import pandas as pd

        from colonnade.data.ids import written_differently

        written = written_differently(pd.Index(names), pd.Index(alignment.ids))
        how = f"; {written.format('this file', 'the alignment')}" if written else ""
        raise DataError(
            f"{len(unknown)} of {len(names)} ids are not among the aligned rows (first: {unknown[0]!r}){how}; "
            "leave them out, or extend the alignment with tables that list them (colonnade align --more on all sides)"
        )
    if len(set(names)) < len(names):
        raise DataError("an id is listed more than once; keep one line per id")
    return torch.tensor([numbers[name] for name in names], dtype=torch.int64)
