"""Customers of a bank and a telephone company with every kind of column, and small models of them."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from colonnade import Federation, Run, fit


@cache
def shoppers(rows: int = 160, seed: int = 0) -> dict[str, pd.DataFrame]:
    """Numbers with holes, categories, dates; the telephone company holds the label."""
    rng = np.random.default_rng(seed)
    income, minutes = rng.normal(40.0, 8.0, rows), rng.gamma(2.0, 50.0, rows)
    city = rng.choice(["Bonn", "Ulm", "Kiel"], rows)
    churn = np.where(
        (income - 40) / 8 - (minutes - 100) / 70 + (city == "Ulm") > rng.normal(0.3, 0.5, rows), "yes", "no"
    )
    age = np.where(rng.random(rows) < 0.1, np.nan, rng.integers(18, 90, rows))
    since = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, rows), unit="D")
    bank = pd.DataFrame({"customer": range(rows), "income": income, "age": age, "since": since})
    telco = pd.DataFrame({"customer": range(rows), "minutes": minutes, "city": city, "churn": churn})
    return {"bank": bank, "telco": telco}


@cache
def trained(method: str = "vimadmm_j", encoder: str = "mlp", layers: int = 1) -> Run:
    """A few rounds, in float64."""
    federation = Federation.from_tables(shoppers(), labels="churn", id="customer")
    model: Any = {"encoder": encoder, "hidden": 8, "embedding": 4, "head": {"layers": layers}}
    return fit(federation, method, rounds=6, model=model, dtype="float64", progress=False)
