"""Metrics in the text format of Prometheus: counts and latencies, never about one user."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest

disable_created_metrics()  # type: ignore[no-untyped-call]  # the time of a first event may identify a user

LATENCIES = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Bounds of histograms of seconds."""
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
"""Bounds of histograms of counts."""


class Metrics:
    """The metrics of one server; names begin with ``shuffledp_`` and its role."""

    content_type = "text/plain; version=0.0.4; charset=utf-8"

    def __init__(self, role: str) -> None:
        self._prefix = f"shuffledp_{role}_"
        self._registry = CollectorRegistry()
        self._refusals = self.counter("refusals", "Requests that were refused, by the name of the problem", ["problem"])

    def refused(self, problem: str) -> None:
        """Count a request that was answered with this problem."""
        self._refusals.labels(problem).inc()

    def counter(self, name: str, description: str, labels: Sequence[str] = ()) -> Counter:
        """A metric that only grows."""
        return Counter(self._prefix + name, description, labels, registry=self._registry)

    def gauge(self, name: str, description: str, labels: Sequence[str] = ()) -> Gauge:
        """A metric that goes up and down."""
        return Gauge(self._prefix + name, description, labels, registry=self._registry)

    def histogram(self, name: str, description: str, bounds: Sequence[float] = LATENCIES) -> Histogram:
        """The distribution of a quantity."""
        return Histogram(self._prefix + name, description, buckets=bounds, registry=self._registry)

    def values(self, name: str) -> dict[str, float]:
        """The values of a counter or gauge by its one label (an empty string without a label), as ``text`` has them."""
        return {
            next(iter(sample.labels.values()), ""): sample.value
            for metric in self._registry.collect()
            if metric.name == self._prefix + name
            for sample in metric.samples
        }

    def text(self) -> bytes:
        """All metrics in the text format of Prometheus."""
        return generate_latest(self._registry)
