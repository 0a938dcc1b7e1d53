"""Among optimal answers, the one with the fewest levels.

Optima are often degenerate: several sets of batch sizes reach the same rate. Any optimal primal answer pairs with any
optimal dual one, so the prices stay and only the primal part is replaced. One level is found in closed form, the
smallest first, since it costs the least latency; with more, levels are dropped one at a time while the rate stays.
"""

from __future__ import annotations

__all__ = ["fewest_levels"]

from dataclasses import replace
from typing import Any

import numpy as np

from tileq_theory.capacity.coefficients import Coefficients
from tileq_theory.capacity.levels import Level
from tileq_theory.capacity.limits import Limits
from tileq_theory.capacity.program import Solution, solve_program
from tileq_theory.capacity.single import single_level_iterations, single_level_rate
from tileq_theory.demand import Demand
from tileq_theory.errors import SolveError
from tileq_theory.iteration_time import IterationTime

_SAME = 1e-9
_USED = 1e-9


def fewest_levels(
    time: IterationTime, demand: Demand, limits: Limits, levels: list[Level], k: Coefficients, solution: Solution
) -> Solution:
    """Return an answer of the same rate and duals that uses as few of `levels` as found."""
    one = _one_level(time, demand, limits, levels, k, solution)
    if one is not None:
        return one
    used = [int(j) for j in np.argsort(solution.x) if solution.x[j] > _USED]
    best = solution
    while len(used) > 2:
        for j in used:
            keep = [i for i in used if i != j]
            smaller = _restricted(time, demand, limits, levels, k, solution, keep)
            if smaller is not None:
                best, used = smaller, [i for i in keep if smaller.x[i] > _USED]
                break
        else:
            return best
    return best


def _one_level(
    time: IterationTime, demand: Demand, limits: Limits, levels: list[Level], k: Coefficients, solution: Solution
) -> Solution | None:
    """Return the smallest single mixed level that reaches the rate, as an answer, or None."""
    sizes = np.array([level.tokens for level in levels], dtype=float)
    mixed = np.array([level.kind == "mixed" for level in levels])
    rates = single_level_rate(time, demand, limits, sizes) / (limits.nodes * k.rate_unit_per_s)
    fits = np.flatnonzero(mixed & (rates >= solution.rate * (1 - _SAME)))
    if not fits.size:
        return None
    j = int(fits[np.argmin(sizes[fits])])
    rate = float(rates[j])
    iterations = float(single_level_iterations(time, demand, limits, sizes[j])[0])
    part: dict[str, Any] = {name: np.zeros(len(levels)) for name in "xpdyz"}
    part["x"][j] = iterations * rate * k.rate_unit_per_s * k.tau_scale_s[j]
    for name in "pdyz":
        part[name][j] = rate
    return replace(solution, rate=rate, **part)


def _restricted(
    time: IterationTime,
    demand: Demand,
    limits: Limits,
    levels: list[Level],
    k: Coefficients,
    solution: Solution,
    keep: list[int],
) -> Solution | None:
    """Return an answer that uses only the levels `keep`, or None if that costs rate."""
    tokens = np.array([levels[i].tokens for i in keep])
    kinds = tuple(levels[i].kind for i in keep)
    try:
        small = solve_program(Coefficients.of(time, demand, limits, tokens, k.rate_unit_per_s, kinds))
    except SolveError:  # these levels alone cannot serve at all
        return None
    if small.rate < solution.rate * (1 - _SAME):
        return None
    part: dict[str, Any] = {name: np.zeros(len(levels)) for name in "xpdyz"}
    for name, values in part.items():
        values[keep] = getattr(small, name)
    return replace(solution, rate=small.rate, **part)
