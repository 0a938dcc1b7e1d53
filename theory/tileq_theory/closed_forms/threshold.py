r"""Threshold-exclusive batching (THETA, EB+): closed forms; `tileq_theory.theta` has the functions.

A decode iteration of b sequences takes alpha_d + beta_d b, a prefill iteration of n tokens alpha_p + beta_p n. With N
slots and completion probability p0 per step the decode phase that frees theta N slots lasts

    E[T_d] = (beta_d N theta - alpha_d ln(1 - theta))/p0

and the cycle's throughput is best at the root theta0 of theta/(1 - theta) + ln(1 - theta) = p0 alpha_p/alpha_d. With
v = 1/(1 - theta) that reads v - ln v = 1 + p0 alpha_p/alpha_d, which the lower branch of Lambert's W solves.
"""

from __future__ import annotations

__all__ = ["FORMS", "THETA_CORRECTION", "THETA_CROSSOVER", "THETA_FRACTION", "THETA_THROUGHPUT"]

from collections.abc import Mapping
from typing import Any

from tileq_theory.closed_forms.base import ClosedForm, Condition, Quantity

_SOURCE = "Zhang, Nie, Pang, Ma, Wu, ICML 2026, arXiv 2606.00516"
_P0 = Quantity("completion_probability", "p_0", "probability that a decode step ends a request", "", "share")
_AP = Quantity("alpha_p_s", r"\alpha_p", "fixed time of a prefill phase", "s")
_AD = Quantity("alpha_d_s", r"\alpha_d", "fixed time of a decode iteration", "s")
_BP = Quantity("beta_p_s", r"\beta_p", "time of a prefill token", "s/token", "nonnegative")
_BD = Quantity("beta_d_s", r"\beta_d", "time of a decoded token", "s/token", "nonnegative")
_N = Quantity("slots", "N", "slots", "", "count")
_K = Quantity("threshold", "k", "free slots at which decoding gives way to prefill", "")
_TH = Quantity("theta", r"\theta", "threshold as a fraction of the slots", "", "share")
_ETA = Quantity("hazard_slope", r"\eta", "slope of the hazard rate p0 + eta t", "1/step", "real")
_ML = Quantity("prompt_tokens", r"\mu_L", "mean prompt", "tokens", "nonnegative")
_MO = Quantity("output_tokens", r"\mu_O", "mean output", "tokens")
_AMB = Quantity("alpha_mixed_s", r"\alpha_{MB}", "fixed time of a mixed iteration", "s", "nonnegative")
_BMB = Quantity("beta_mixed_s", r"\beta^e_{MB}", "time of a token in a mixed iteration", "s/token", "nonnegative")

_INSIDE = Condition(lambda v: 1 - v["theta"], "theta < 1")
_ABOVE = Condition(lambda v: v["theta"], "theta > 0")
_ENDS = Condition(lambda v: v["completion_probability"], "completion_probability > 0")


def _fraction(v: Mapping[str, Any]) -> Any:
    import sympy as sp

    ratio = v["completion_probability"] * v["alpha_p_s"] / v["alpha_d_s"]
    return 1 + 1 / sp.LambertW(-sp.exp(-1 - ratio), -1)


def _throughput(v: Mapping[str, Any]) -> Any:
    import sympy as sp

    freed = v["slots"] * v["theta"]
    prefill = v["alpha_p_s"] + v["beta_p_s"] * freed * v["prompt_tokens"]
    decode = (v["beta_d_s"] * freed - v["alpha_d_s"] * sp.log(1 - v["theta"])) / v["completion_probability"]
    return freed / (prefill + decode)


def _correction(v: Mapping[str, Any]) -> Any:
    import sympy as sp

    theta, p0 = v["theta"], v["completion_probability"]
    zeta = -sp.log(1 - theta)
    scale = v["hazard_slope"] * (1 - theta) ** 2 / (p0**2 * theta)
    tokens = v["beta_d_s"] * v["slots"] / v["alpha_d_s"] * (zeta - theta)
    return scale * (zeta * (theta / (1 - theta) - zeta / 2) + tokens)


def _crossover(v: Mapping[str, Any]) -> Any:
    import sympy as sp

    tokens = v["prompt_tokens"] + v["output_tokens"]
    weighted = (v["beta_p_s"] * v["prompt_tokens"] + v["beta_d_s"] * v["output_tokens"]) / tokens
    phases = (v["alpha_p_s"] - v["alpha_d_s"] * sp.log(1 - v["theta"]) * v["output_tokens"]) / v["threshold"]
    mixed = v["alpha_mixed_s"] * (1 + v["output_tokens"]) / v["slots"]
    return (phases - mixed) / tokens - (v["beta_mixed_s"] - weighted)


THETA_FRACTION = ClosedForm(
    "theta_fraction",
    "best threshold as a fraction of the slots, theta0",
    f"{_SOURCE}: theta/(1 - theta) + ln(1 - theta) = p0 alpha_p/alpha_d, solved with Lambert's W",
    "",
    (_P0, _AP, _AD),
    _fraction,
    (_ENDS,),
)
THETA_THROUGHPUT = ClosedForm(
    "theta_throughput",
    "requests per second of exclusive batching with threshold theta N, saturated, N large",
    f"{_SOURCE}: k/(alpha_p + beta_p k mu_L + E[T_d])",
    "1/s",
    (_N, _TH, _P0, _AP, _BP, _AD, _BD, _ML),
    _throughput,
    (_ABOVE, _INSIDE, _ENDS),
)
THETA_CORRECTION = ClosedForm(
    "theta_correction",
    "first-order change of theta0 when the hazard rate is p0 + eta t",
    f"{_SOURCE}, increasing failure rate",
    "",
    (_TH, _ETA, _P0, _AD, _BD, _N),
    _correction,
    (_ABOVE, _INSIDE, _ENDS),
)
THETA_CROSSOVER = ClosedForm(
    "theta_crossover",
    "seconds per token that mixing saves against exclusive batching: mixing wins where it is above 0",
    f"{_SOURCE}, crossover condition (8)",
    "s/token",
    (_TH, _K, _N, _AP, _BP, _AD, _BD, _AMB, _BMB, _ML, _MO),
    _crossover,
    (_INSIDE,),
)
FORMS = (THETA_FRACTION, THETA_THROUGHPUT, THETA_CORRECTION, THETA_CROSSOVER)
