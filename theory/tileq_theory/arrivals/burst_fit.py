r"""On-off bursts from recorded arrival times.

A process silent while off has, with r = 1/mean_on + 1/mean_off and I its dispersion, the index of dispersion of
counts in windows of length t (Fischer and Meier-Hellstern, MMPP cookbook, 1993)

    I(t) = 1 + (I - 1) (1 - (1 - exp(-r t))/(r t))

and gaps of squared coefficient of variation I. So the recorded rate and CV of gaps fix the rate and I, and r is
what is left to fit to the counts.
"""

from __future__ import annotations

__all__ = ["fit_on_off"]

import math

import numpy as np
from jaxtyping import Float

from tileq_theory.arrivals.on_off import OnOff
from tileq_theory.arrivals.trace import TraceArrivals
from tileq_theory.errors import InputError

WINDOWS_S = (1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0)


def index_of_dispersion(
    dispersion: float, switching_per_s: float, window_s: Float[np.ndarray, "window"]
) -> Float[np.ndarray, "window"]:
    """Return I(t) of on-off bursts at each window length."""
    x = switching_per_s * window_s
    return np.asarray(1 + (dispersion - 1) * (1 + np.expm1(-x) / x))


def fit_on_off(trace: TraceArrivals, windows_s: tuple[float, ...] = WINDOWS_S) -> OnOff:
    """Return on-off bursts of the trace's rate and CV, with counts dispersed as its own (least squares of ln I).

    Parameters
    ----------
    trace
        Recorded arrivals with a CV of gaps above 1.
    windows_s
        Window lengths at which counts are compared, seconds; those above a twentieth of the trace are left out.

    Raises
    ------
    InputError
        When gaps vary no more than Poisson's, or the trace is shorter than twenty of the shortest window.
    """
    from scipy.optimize import minimize_scalar

    dispersion, rate = trace.scv, trace.rate_per_s
    if dispersion <= 1:
        raise InputError(f"gaps have CV {dispersion**0.5:.3g}; on-off bursts need one above 1 (Poisson has 1)")
    span = trace.offsets_s[-1]
    windows = np.array([w for w in windows_s if 20 * w <= span])
    if windows.size == 0:
        raise InputError(f"the trace spans {span:g} s; expected at least {20 * min(windows_s):g} s to see its bursts")
    seen = np.log(np.maximum([trace.count_dispersion(float(w)) for w in windows], 1e-9))

    def distance(log_r: float) -> float:
        return float(np.sum((np.log(index_of_dispersion(dispersion, math.exp(log_r), windows)) - seen) ** 2))

    bounds = (math.log(1e-3 / windows[-1]), math.log(1e3 / windows[0]))
    r = math.exp(float(minimize_scalar(distance, bounds=bounds, method="bounded", options={"xatol": 1e-10}).x))
    odds = (dispersion - 1) * r / (2 * rate)  # (1 - share)/share of time on
    share = 1 / (1 + odds)
    mean_on = 1 / (r * (1 - share))
    return OnOff(rate / share, mean_on, mean_on * odds)
