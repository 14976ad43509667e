"""Public tables, cut between parties as their owners might be: what `colonnade bench tables` trains on.

A set is looked for in the data folder under the name it is distributed with. Nothing is encoded here: the parties get
their columns as they stand in the files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from colonnade.errors import ConfigError, MissingData

if TYPE_CHECKING:
    import pandas as pd

Goal = Literal["auc", "accuracy", "r2", "deviance"]

EVERY_LEVEL = {"rare": 1}  # published numbers are of columns whose rare levels each have a place
ADULT = (
    "age", "workclass", "fnlwgt", "education", "education_num", "marital_status", "occupation", "relationship", "race",
    "sex", "capital_gain", "capital_loss", "hours_per_week", "native_country", "income",
)  # fmt: skip
ADULT_PARTIES = {
    "employer": ("workclass", "occupation", "hours_per_week", "education", "education_num"),
    "bank": ("capital_gain", "capital_loss", "fnlwgt"),
    "registry": ("age", "marital_status", "relationship", "race", "sex", "native_country"),
}
BANK_PARTIES = {
    "bank": (
        "default",
        "housing",
        "loan",
        "contact",
        "month",
        "day_of_week",
        "campaign",
        "pdays",
        "previous",
        "poutcome",
    ),
    "registry": ("age", "job", "marital", "education"),
    "statistics": ("emp.var.rate", "cons.price.idx", "cons.conf.idx", "euribor3m", "nr.employed"),
}

CALL_PARTIES = {
    "bank": ("age", "job", "marital", "education", "default", "balance", "housing", "loan"),
    "call_centre": ("contact", "day", "month", "duration", "campaign", "pdays", "previous", "poutcome"),
}


@dataclass(frozen=True)
class TableSet:
    """Tables by party, row by row the same people, and their labels."""

    goal: Goal
    tables: Mapping[str, pd.DataFrame] = field(repr=False)
    labels: np.ndarray[Any, Any] = field(repr=False)

    def rows(self, chosen: np.ndarray[Any, Any]) -> dict[str, pd.DataFrame]:
        """Some rows of every party's table."""
        return {name: table.iloc[chosen].reset_index(drop=True) for name, table in self.tables.items()}


def folder_of(names: Iterable[str], folder: Path | None, bench: str) -> Path:
    """The folder of these sets, for a benchmark by name.

    Raises:
        ConfigError: there is no such set, or nobody said where the files are.
    """
    strange = next((name for name in names if name not in SETS), None)
    if strange is not None:
        raise ConfigError(f"there is no set {strange!r}; there are {', '.join(SETS)}")
    if folder is None:
        raise ConfigError(f"{bench} needs --data-dir: the folder that holds fate, bank_marketing, adult and mfeat")
    return folder


def read_set(name: str, folder: Path) -> TableSet:
    """A set by name.

    Raises:
        MissingData: its files are not in the folder.
    """
    return SETS[name](folder)


def _frame(folder: Path, part: str, **options: Any) -> pd.DataFrame:
    import pandas as pd  # an extra

    path = folder / part
    if not path.exists():
        raise MissingData(f"{path} is not there; bench tables needs it, see benchmarks/README.md for its source")
    return pd.read_csv(path, **options)


def _fate(name: str, goal: Goal, label: str, id: str, hosts: Mapping[str, str]) -> Callable[[Path], TableSet]:
    """A set of FATE's examples: the guest holds the label."""

    def read(folder: Path) -> TableSet:
        guest = _frame(folder, f"fate/{name}_guest.csv.gz").set_index(id)
        tables = {"guest": guest.drop(columns=label).reset_index(drop=True)}
        for party, file in hosts.items():
            host = _frame(folder, f"fate/{file}.csv.gz").set_index(id).loc[guest.index]
            tables[party] = host.reset_index(drop=True)
        return TableSet(goal, tables, guest[label].to_numpy())

    return read


def _adult(folder: Path) -> TableSet:
    import pandas as pd

    options = {"header": None, "names": list(ADULT), "skipinitialspace": True, "na_values": "?"}
    both = [
        _frame(folder, "adult/adult.data.gz", **options),
        _frame(folder, "adult/adult.test.gz", skiprows=1, **options),
    ]
    whole = pd.concat(both, ignore_index=True)
    rich = whole["income"].str.rstrip(".").eq(">50K").to_numpy()
    return TableSet("auc", _cut(whole, ADULT_PARTIES), rich.astype(np.int64))


def _bank(folder: Path) -> TableSet:
    """Without `duration`, which is known only when the call is over."""
    whole = _frame(folder, "bank_marketing/bank-additional-full.csv.gz", sep=";")
    return TableSet("auc", _cut(whole, BANK_PARTIES), whole["y"].eq("yes").to_numpy().astype(np.int64))


def bank_with_duration(folder: Path) -> TableSet:
    """The other file of this source, with `duration`, as others publish figures of it; in two parties."""
    whole = _frame(folder, "bank_marketing/bank-full.csv.gz", sep=";")
    return TableSet("auc", _cut(whole, CALL_PARTIES), whole["y"].eq("yes").to_numpy().astype(np.int64))


def _mfeat(folder: Path) -> TableSet:
    import pandas as pd

    path = folder / "mfeat/mfeat.npz"
    if not path.exists():
        raise MissingData(f"{path} is not there; bench tables needs it, see benchmarks/README.md for its source")
    with np.load(path) as stored:
        views = {name: stored[name] for name in ("fac", "fou", "kar", "mor", "pix", "zer")}
        labels = stored["y"].astype(np.int64)
    tables = {
        name: pd.DataFrame(view, columns=[f"{name}{i}" for i in range(view.shape[1])]) for name, view in views.items()
    }
    return TableSet("accuracy", tables, labels)


def _cut(whole: pd.DataFrame, parties: Mapping[str, tuple[str, ...]]) -> dict[str, pd.DataFrame]:
    return {party: whole[list(columns)] for party, columns in parties.items()}


SETS: Mapping[str, Callable[[Path], TableSet]] = {
    "credit": _fate("default_credit_hetero", "auc", "y", "id", {"host": "default_credit_hetero_host"}),
    "bank": _bank,
    "adult": _adult,
    "breast": _fate("breast_hetero", "auc", "y", "id", {"host": "breast_hetero_host"}),
    "vehicle": _fate("vehicle_scale_hetero", "accuracy", "y", "id", {"host": "vehicle_scale_hetero_host"}),
    "mfeat": _mfeat,
    "motor": _fate("motor_hetero", "r2", "motor_speed", "idx", {"host": "motor_hetero_host"}),
    "student": _fate("student_hetero", "r2", "y", "id", {"host": "student_hetero_host"}),
    "dvisits": _fate("dvisits_hetero", "deviance", "doctorco", "id", {"host": "dvisits_hetero_host"}),
}
