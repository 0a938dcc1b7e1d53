r"""Threshold-exclusive batching (THETA; EB and EB+): when should decoding give way to prefill?

N slots, always a queue. Decode until k slots are free, then prefill as many requests, and again. A decode iteration
of b sequences takes alpha_d + beta_d b seconds, a prefill phase of n tokens alpha_p + beta_p n. A decode step ends
each request with probability p0 (geometric outputs; constant hazard rate). Waiting for more free slots shares
alpha_p among more requests but runs decode iterations emptier, which pays alpha_d for fewer tokens.

For N large, theta = k/N fixed, the active requests decay exponentially and

    E[T_d] = (beta_d N theta - alpha_d ln(1 - theta))/p0
    theta0 solves theta/(1 - theta) + ln(1 - theta) = p0 alpha_p/alpha_d,      k* = floor(theta0 N)

With zeta = -ln(1 - theta) the equation is e^zeta - 1 - zeta = p0 alpha_p/alpha_d; per-token times do not matter, as
every token is paid once whatever the threshold. `exact_cycle` drops the limit: it computes the renewal cycle of
finitely many slots from the binomial number of completions of each step.

Source: Zhang, Nie, Pang, Ma, Wu, ICML 2026, arXiv 2606.00516. The finite-N cycle (all freed slots are refilled, the
overshoot of the last step included) is this library's own and is marked so.
"""

from __future__ import annotations

__all__ = [
    "BatchingCosts",
    "Crossover",
    "ExactCycle",
    "best_threshold",
    "crossover",
    "exact_best_threshold",
    "exact_cycles",
    "increasing_hazard_correction",
    "theta_root",
    "threshold_throughput",
]

from tileq_theory.theta.costs import BatchingCosts
from tileq_theory.theta.exact import ExactCycle, exact_best_threshold, exact_cycles
from tileq_theory.theta.limit import best_threshold, increasing_hazard_correction, theta_root, threshold_throughput
from tileq_theory.theta.mixed import Crossover, crossover
