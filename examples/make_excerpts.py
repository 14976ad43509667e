"""How the tables of docs/examples were cut out of public data sets: python make_excerpts.py FOLDER.

FOLDER holds the data sets as benchmarks/README.md names them (fate, bank_marketing, mfeat). Nothing is made up but the
ids of bank marketing and mfeat, which have none; fractions of mfeat are rounded to three digits, to keep files small.
"""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

import numpy as np
import pandas as pd

HERE = Path(__file__).parent
CLIENT = ["age", "job", "marital", "education", "default", "housing", "loan"]
CALLS = ["contact", "month", "day_of_week", "campaign", "pdays", "previous", "poutcome", "y"]  # no duration: too late
STATISTICS = ["emp.var.rate", "cons.price.idx", "cons.conf.idx", "euribor3m", "nr.employed"]
VIEWS = ("fac", "fou", "kar", "mor", "pix", "zer")


def write(frame: pd.DataFrame, path: str, separator: str = ",") -> None:
    target = HERE / path
    target.parent.mkdir(parents=True, exist_ok=True)
    content = frame.to_csv(index=False, sep=separator, lineterminator="\n").encode()
    target.write_bytes(gzip.compress(content, 9, mtime=0) if path.endswith(".gz") else content)
    print(f"{path}: {len(frame)} rows, {len(frame.columns)} columns, {target.stat().st_size:,} bytes")


def credit(source: Path, rng: np.random.Generator) -> None:
    """2,000 customers of the guest, most of them also the host's, and 20 new ones of both."""
    guest, host = (pd.read_csv(source / f"fate/default_credit_hetero_{side}.csv.gz") for side in ("guest", "host"))
    known, new, others = guest["id"][:2000], guest["id"][2000:2020], guest["id"][2020:2120]
    at_host = [*known.sample(1900, random_state=1), *others]
    write(guest[guest["id"].isin(known)], "credit/guest.csv.gz")
    write(host.set_index("id").loc[rng.permutation(at_host)].reset_index(), "credit/host.csv.gz")
    write(guest[guest["id"].isin(new)].drop(columns="y"), "credit/new/guest.csv")
    write(host[host["id"].isin(new)].iloc[::-1], "credit/new/host.csv")


def bank(source: Path) -> None:
    """3,000 of the calls, in the order of their time, as three tables; 20 new ones without the answer."""
    whole = pd.read_csv(source / "bank_marketing/bank-additional-full.csv.gz", sep=";")
    some = whole.sample(3020, random_state=0).sort_index()
    ids = [f"C{row:05d}" for row in some.index]
    new = np.isin(np.arange(len(some)), np.linspace(75, len(some) - 76, 20).astype(int))
    for name, columns in {"bank": CLIENT, "calls": CALLS, "statistics": STATISTICS}.items():
        table = some[columns].assign(customer=ids)[["customer", *columns]]
        write(table[~new], f"bank_marketing/{name}.csv.gz", ";")
        write(table[new].drop(columns="y", errors="ignore"), f"bank_marketing/new/{name}.csv", ";")


def mfeat(source: Path, rng: np.random.Generator) -> None:
    """30 of the 200 drawings of each digit, in six views and in another order in each."""
    with np.load(source / "mfeat/mfeat.npz") as stored:
        chosen = np.sort(np.concatenate([rng.permutation(np.flatnonzero(stored["y"] == k))[:30] for k in range(10)]))
        ids = rng.permutation([f"D{number:04d}" for number in range(len(chosen))])
        for name in VIEWS:
            values = stored[name][chosen]
            if values.dtype.kind == "f":
                values = np.vectorize(lambda value: float(f"{value:.3g}"))(values)
            view = pd.DataFrame(values, columns=[f"{name}{k}" for k in range(values.shape[1])])
            view.insert(0, "drawing", ids)
            write(view.sample(frac=1, random_state=len(name)), f"mfeat/{name}.csv.gz")
        labels = pd.DataFrame({"drawing": ids, "digit": stored["y"][chosen]})
    write(labels.sort_values("drawing"), "mfeat/digits.csv")


def counts(source: Path, rng: np.random.Generator) -> None:
    """All people, 20 of them as new ones; the insurer calls the id differently."""
    clinic, insurer = (pd.read_csv(source / f"fate/dvisits_hetero_{side}.csv.gz") for side in ("guest", "host"))
    new = np.isin(clinic["id"], rng.permutation(clinic["id"])[:20])
    renamed = insurer.rename(columns={"id": "member"})
    write(clinic[~new], "counts/clinic.csv.gz")
    write(renamed[~new].sample(frac=1, random_state=0), "counts/insurer.csv.gz")
    write(clinic[new].drop(columns="doctorco"), "counts/new/clinic.csv")
    write(renamed[new], "counts/new/insurer.csv")


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    credit(folder, np.random.default_rng(0))
    bank(folder)
    mfeat(folder, np.random.default_rng(0))
    counts(folder, np.random.default_rng(0))
