"""What a replay says: predicted against measured, in figures, per request and over time."""

from __future__ import annotations

__all__ = ["Comparison", "Path", "Quantity"]

from collections.abc import Mapping
from dataclasses import dataclass
from textwrap import wrap

import numpy as np
from jaxtyping import Float

from tileq_engine.run import Run
from tileq_theory.errors import InputError, near_matches


@dataclass(frozen=True, slots=True)
class Quantity:
    """One figure, measured and predicted.

    Examples
    --------
    >>> Quantity("ttft_s mean", 10.0, 9.0).error
    -0.1
    """

    name: str
    measured: float
    predicted: float

    @property
    def error(self) -> float:
        """Predicted over measured, less 1; NaN where the measured figure is 0."""
        return round(self.predicted / self.measured - 1, 12) if self.measured else float("nan")


@dataclass(frozen=True, slots=True, eq=False)
class Path:
    """One path over time: what the engine reported, and the replay at the same moments."""

    t_s: Float[np.ndarray, "tick"]
    measured: Float[np.ndarray, "tick"]
    predicted: Float[np.ndarray, "tick"]

    @property
    def distance(self) -> float:
        """Mean distance between the two, over the mean of the measured one."""
        known = np.isfinite(self.measured)
        mean = float(np.abs(self.measured[known]).mean()) if known.any() else 0.0
        return float(np.abs(self.predicted - self.measured)[known].mean()) / mean if mean else float("nan")


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """A measured run and its replay.

    Parameters
    ----------
    source
        The measured run.
    quantities
        Throughput, latencies and time averages, by name.
    per_request
        "ttft_s", "tpot_s", "e2e_s" -> measured and predicted value of each request, in order of arrival (NaN where
        there is none).
    paths
        "running", "waiting", "kv_usage" -> both paths at the moments of the engine's reports.
    run
        The replay.
    warnings
        What to know before relying on the comparison.
    """

    source: str
    quantities: Mapping[str, Quantity]
    per_request: Mapping[str, Float[np.ndarray, "2 request"]]
    paths: Mapping[str, Path]
    run: Run
    warnings: tuple[str, ...] = ()

    def error(self, name: str) -> float:
        """Return the relative error of a quantity."""
        if name not in self.quantities:
            raise InputError(f"{name!r} was not compared; {near_matches('quantities', name, self.quantities)}")
        return self.quantities[name].error

    def request_error(self, name: str) -> float:
        """Return the median absolute relative error of a latency over the requests; NaN where none was measured."""
        if name not in self.per_request:
            raise InputError(f"{name!r} was not compared; {near_matches('latencies', name, self.per_request)}")
        measured, predicted = self.per_request[name]
        known = np.isfinite(measured) & np.isfinite(predicted) & (measured > 0)
        return float(np.median(np.abs(predicted[known] / measured[known] - 1))) if known.any() else float("nan")

    def to_dict(self) -> dict[str, object]:
        """Return figures and errors as plain data."""
        return {
            "source": self.source,
            "quantities": {
                q.name: {"measured": q.measured, "predicted": q.predicted, "error": q.error}
                for q in self.quantities.values()
            },
            "per_request_median_abs_error": {name: self.request_error(name) for name in self.per_request},
            "path_distance": {name: path.distance for name, path in self.paths.items()},
            "warnings": list(self.warnings),
        }

    def text(self) -> str:
        """Return a table for a terminal of 80 columns."""
        lines = [f"Replay of {self.source}", f"  {'':<28}{'measured':>12}{'predicted':>12}{'error':>9}"]
        lines += [
            f"  {q.name:<28}{q.measured:>12.4g}{q.predicted:>12.4g}{q.error:>+9.1%}" for q in self.quantities.values()
        ]
        for name in self.per_request:
            lines.append(f"  {name + ' of each request, median absolute error':<52}{self.request_error(name):>9.1%}")
        for name, path in self.paths.items():
            lines.append(f"  {name + ' path, mean distance over mean':<52}{path.distance:>9.1%}")
        for text in self.warnings:
            lines += wrap(f"Warning: {text}", 80, initial_indent="  ", subsequent_indent="    ")
        return "\n".join(lines) + "\n"
