"""Customers of a bank and a telephone company, made up."""

from __future__ import annotations

import numpy as np
import pandas as pd

OWNERS = {"income": "bank", "age": "bank", "minutes": "telco", "city": "telco"}


def customers(rows: int = 160, seed: int = 0) -> tuple[pd.DataFrame, pd.Series]:
    """One table with a text column, and who leaves; its index is no row number."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "income": rng.normal(40_000, 8_000, rows),
            "age": rng.integers(18, 90, rows),
            "minutes": rng.gamma(2.0, 50.0, rows),
            "city": rng.choice(["Bonn", "Ulm", "Kiel"], rows),
        },
        index=rng.permutation(rows) + 1000,
    )
    leaves = (table["income"] - 40_000) / 8_000 - (table["minutes"] - 100) / 70 + (table["city"] == "Ulm") > 0.3
    return table, leaves.map({True: "leaves", False: "stays"})
