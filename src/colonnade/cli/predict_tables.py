"""`colonnade predict FOLDER --tables PARTY=FILE`: new tables of a trained model, raw or as numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from colonnade.cli.options import formats, id_option
from colonnade.errors import ConfigError, DataError

if TYPE_CHECKING:
    from colonnade.data.frames import Frames
    from colonnade.data.ids import Ids
    from colonnade.data.table_file import TextFormat
    from colonnade.model import Model
    from colonnade.predict import WhenAbsent


def read_new_tables(
    model: Model,
    tables: Sequence[str],
    ids: Sequence[str],
    said: Mapping[str, Sequence[str]],
    absent: WhenAbsent = "refuse",
) -> tuple[Any, Sequence[str]]:
    """What to hand to the model, and the names of the rows; `said` is how text files are written."""
    from colonnade.predict import check_preprocessing, read_rows

    check_preprocessing(model)
    parties = list(model.plans) or list(model.parts)
    files = dict(party_and_file(text) for text in tables)
    enough = set(files) <= set(parties) if absent == "leave-out" else set(files) == set(parties)
    if not enough or len(files) < len(tables):
        raise DataError(
            f"--tables needs one file for each of the parties {', '.join(parties)}; got {', '.join(files)} (with "
            "--absent leave-out, files of some will do, where the method can)"
        )
    id, text = id_option(ids, parties), formats(said, parties)
    if model.plans:
        rows = read_rows(model, _raw(model, files, id, text), id, absent)
        return rows, [str(name) for name in rows.index]
    return _arrays(model, files, id, text)


def _raw(model: Model, files: Mapping[str, str], id: Ids, written: Mapping[str, TextFormat]) -> Frames:
    """Raw tables; ids and the categories of the training stay text, whatever their values look like."""
    from colonnade.data.ids import id_columns_of_new
    from colonnade.data.new_rows import read_raw

    keys = id_columns_of_new(id, {party: plan.id for party, plan in model.plans.items()})
    return {party: read_raw(model.plans[party], file, written[party], keys.get(party)) for party, file in files.items()}


def _arrays(
    model: Model, files: Mapping[str, str], id: Ids, written: Mapping[str, TextFormat]
) -> tuple[Any, Sequence[str]]:
    """Tables of a model that was trained from arrays: numbers exactly as its networks read them, in order."""
    from colonnade.data.frames import as_frame, read_table
    from colonnade.data.ids import id_columns
    from colonnade.data.new_rows import match_rows

    keys = id_columns(id, files)
    read = {party: read_table(file, id=keys.get(party), text=written[party]) for party, file in files.items()}
    frames, index = match_rows({p: as_frame(f"party {p!r}", frame, None) for p, frame in read.items()}, keys)
    return {p: input_numbers(p, frame, model.parts[p].shape) for p, frame in frames.items()}, [
        str(name) for name in index
    ]


def party_and_file(text: str) -> tuple[str, str]:
    """PARTY=FILE."""
    party, equals, file = text.partition("=")
    if not (party and equals and file):
        raise ConfigError(f"--tables {text!r}: needed PARTY=FILE, e.g. --tables party_1=new.csv")
    return party, file


def input_numbers(party: str, frame: Any, shape: tuple[int, ...]) -> Any:
    """The columns of a table as the party's model inputs (N, *shape)."""
    import numpy as np

    width = int(np.prod(shape))
    if frame.shape[1] != width:
        raise DataError(f"the table of party {party!r} has {frame.shape[1]} columns of inputs; its model reads {width}")
    try:
        return frame.to_numpy(dtype=np.float64).reshape(len(frame), *shape)
    except (TypeError, ValueError):
        raise DataError(
            f"the table of party {party!r} has a column that is not numeric; its model reads numbers"
        ) from None
