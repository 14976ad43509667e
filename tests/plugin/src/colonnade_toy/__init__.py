"""A method, a task and a metric for Colonnade."""
