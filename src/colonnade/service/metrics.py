"""What is counted of calls over HTTP, as Prometheus reads it."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

BUCKETS = (0.005, 0.01, 0.015, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)  # seconds
TYPE = CONTENT_TYPE_LATEST


class Metrics:
    """A registry of its own: nothing of other libraries in this process is told."""

    def __init__(self, waiting: Callable[[], float], away: Callable[[], float], asked: Callable[[], float]) -> None:
        self.registry = CollectorRegistry()
        self.calls = Counter(
            "colonnade_predict_calls", "Calls for predictions, by caller and outcome", ["caller", "outcome"],
            registry=self.registry,
        )  # fmt: skip
        self.seconds = Histogram(
            "colonnade_predict_seconds", "From a call to its answer", buckets=BUCKETS, registry=self.registry
        )
        self.rows = Counter("colonnade_predict_rows", "Rows that were predicted", registry=self.registry)
        for name, told, value in (
            ("colonnade_predict_waiting", "Calls that wait for an answer", waiting),
            ("colonnade_predict_questions", "Questions to the parties, each for all calls that waited", asked),
            ("colonnade_parties_away", "Parties that did not answer the last question", away),
        ):
            Gauge(name, told, registry=self.registry).set_function(value)

    def text(self) -> bytes:
        """All of it, in Prometheus' text format."""
        return generate_latest(self.registry)
