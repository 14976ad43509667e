"""Estimators for scikit-learn: tables in, `fit`, `predict` and `score`, a federation of parties inside."""

from colonnade.estimators.classifier import VerticalClassifier
from colonnade.estimators.regressors import VerticalCountRegressor, VerticalRegressor

__all__ = ["VerticalClassifier", "VerticalCountRegressor", "VerticalRegressor"]
