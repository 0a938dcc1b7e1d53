"""What an inverse fit gives: the calibration, and what of it the latencies determined."""

from __future__ import annotations

__all__ = ["InverseFit", "RunFigures"]

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from tileq_profiling.calibration import Calibration
from tileq_profiling.inverse.identify import Combination
from tileq_theory.iteration_time import IterationTime

_WIDTH = 80


@dataclass(frozen=True, slots=True, eq=False)
class RunFigures:
    """One kind of measured figures of one run beside the fit's.

    Parameters
    ----------
    run, name, each
        Which run, which latency or rate; whether one value a request or figures over all of them.
    measured, predicted
        The values.
    """

    run: str
    name: str
    each: bool
    measured: Float[np.ndarray, "value"]
    predicted: Float[np.ndarray, "value"]

    @property
    def median_abs(self) -> float:
        """Median absolute relative error."""
        return float(np.median(np.abs(self.predicted / self.measured - 1)))

    @property
    def mean_error(self) -> float:
        """Relative error of the mean."""
        return float(self.predicted.mean() / self.measured.mean() - 1)


@dataclass(frozen=True, slots=True, eq=False)
class InverseFit:
    """An iteration time fitted to end-to-end latencies.

    Parameters
    ----------
    calibration
        Coefficients with intervals, held-out errors and error band; scope "latencies".
    overhead_s
        Time of a request outside of iterations (front end, network), as fitted.
    overhead_interval_s
        Its 95 % interval.
    combinations
        Combinations of all coefficients, best determined first: which of them the latencies tell.
    fixed
        Coefficient -> why it was not fitted, and what stands for it.
    figures
        Measured figures beside the fit's, by run and kind.
    assumed
        What the files do not say of the engine, and what was taken.
    largest_tokens
        Largest batch of the engine, tokens.
    """

    calibration: Calibration
    overhead_s: float
    overhead_interval_s: tuple[float, float]
    combinations: tuple[Combination, ...]
    fixed: Mapping[str, str]
    figures: tuple[RunFigures, ...]
    assumed: tuple[str, ...]
    largest_tokens: int

    @property
    def time(self) -> IterationTime:
        """The fitted iteration time."""
        return self.calibration.time

    def to_dict(self) -> dict[str, object]:
        """Return what the latencies determined as plain data (the coefficients are the calibration's)."""
        return {
            "overhead_s": self.overhead_s,
            "overhead_interval_s": list(self.overhead_interval_s),
            "combinations": [c.to_dict() for c in self.combinations],
            "fixed": dict(self.fixed),
            "figures": [
                {
                    "run": f.run,
                    "name": f.name,
                    "each": f.each,
                    "values": int(f.measured.size),
                    "median_abs": f.median_abs,
                    "mean_error": f.mean_error,
                }
                for f in self.figures
            ],
            "assumed": list(self.assumed),
        }

    def text(self) -> str:
        """Return the part of the report that other calibrations do not have, 80 columns wide."""
        low, high = (1e3 * x for x in self.overhead_interval_s)
        lines = [
            "What these latencies determine: combinations of coefficients, in units of",
            "their estimates, with standard errors",
            *(_combination(c) for c in self.combinations),
        ]
        if "overhead_s" not in self.fixed:
            told = f"[{low:.3g}, {high:.3g}]"
            lines.append(f"  outside of iterations a request spends {1e3 * self.overhead_s:.3g} ms {told}")
        if self.fixed:
            lines += textwrap.wrap(
                f"Not fitted (the warnings say why): {', '.join(self.fixed)}", _WIDTH, subsequent_indent="  "
            )
        lines += ["", "The runs on the fit", f"  {'':<44}{'values':>8}{'median':>11}{'mean':>11}"]
        lines += [
            f"  {f.run[:28] + ' ' + f.name:<44.44}{f.measured.size:>8}{f.median_abs:>11.1%}{f.mean_error:>+11.1%}"
            for f in self.figures
        ]
        for text in self.assumed:
            lines += textwrap.wrap(f"Assumed: {text}", _WIDTH, subsequent_indent="  ")
        return "\n".join(lines) + "\n"


def _combination(c: Combination) -> str:
    words = " ".join(f"{share:+.2f} {name.removesuffix('_s')}" for name, share in list(c.shares.items())[:3])
    error = f"{c.error:.1%}" if c.error < 10 else "> 1000%"
    return f"  {'told' if c.determined else 'NOT told':<9}{words:<60.60}{error:>9}"
