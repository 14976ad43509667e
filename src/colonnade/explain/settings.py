"""What is asked about a finished run, and the noise levels that the paper used."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from colonnade.config import Settings

# Standard deviations of the paper's experiments, in units of the columns: a noisy party in the test, and in training.
TEST_NOISE = {"mnist": 10.0, "cifar10": 1.0, "nus_wide": 1.0, "modelnet40": 3.0}
TRAINING_NOISE = {"mnist": 1.0, "cifar10": 3.0, "nus_wide": 1.0, "modelnet40": 1.0}


class ExplainSettings(Settings):
    """Which rows are looked at, and how closely."""

    rows: Literal["validation", "test"] = Field(
        "validation", description="rows to explain on; test rows only if asked for, because each look wears them out"
    )
    most_rows: int | None = Field(None, ge=1, description="only so many of them, chosen by the seed; unset: all")
    metric: str | None = Field(None, description="what parties contribute to; unset: the metric the run is judged by")
    noise: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="std of the noise on one party's columns, in their units; unset: the paper's for its data sets, "
        "else the deviation of the party's own columns",
    )
    draws: int = Field(3, ge=1, description="independent draws of that noise")
    silence: Literal["auto", "zero", "mean"] = Field(
        "auto",
        description="what stands for a masked party: zeros, or its mean over the rows; auto: zeros, if a model that "
        "gets only zeros has no opinion",
    )
    shapley: Literal["auto", "exact", "sampled", "none"] = Field(
        "auto", description="exact: every coalition; sampled: random orders; auto: exact for few parties"
    )
    exact_up_to: int = Field(
        14, ge=1, le=20, description="auto: exact up to so many parties; 4 fewer if predictions are not sums"
    )
    permutations: int = Field(200, ge=2, description="random orders of the parties, where Shapley values are sampled")
    rank_by: Literal["auto", "norm", "shapley", "mask", "noise"] = Field(
        "auto",
        description="the measure that ranks parties; auto: Shapley values, else masking, else noise",
    )
    uncovered: bool = Field(
        False, description="explain a run with noise although what leaves for it has none and no epsilon covers it"
    )
    pictures: int = Field(
        0, ge=0, description="rows whose columns each image party shows; 0: none, because these are the raw columns"
    )
    tsne: int = Field(
        0, ge=0, description="rows in a t-SNE of what the most and the least important party say; 0: none"
    )
    seed: int = Field(0, ge=0, description="of noise, orders and the choice of rows")


def published_noise(federation: str, table: dict[str, float]) -> float | None:
    """The paper's level for a federation such as "mnist-14"; None if the paper has none."""
    return table.get(federation.partition("-")[0])
