"""Scores of a model on rows whose labels are known."""
