r"""Nested WAIT: thresholds when output lengths are not known in advance (Ao, Luo, Simchi-Levi, Wang).

Output stages are cut at l_1 < l_2 < ... into segments; a request reaches segment k when it has decoded l_{k-1} tokens
(l_0 = 0), which a share P(O > l_{k-1}) does. In the fluid equilibrium of WAIT, whose iteration lasts
DeltaT* = d0/(1 - d1 S), S = lambda E[(O + 1)(P + O/2)],

    n_k = lambda P(O > l_{k-1}) DeltaT*        requests in each stage of segment k

The threshold of a segment is that number, rounded up. The source's thresholds add a safety margin that grows with the
logarithm of the horizon; without it they are a reconstruction. arXiv 2504.11320.
"""

from __future__ import annotations

__all__ = ["NestedWait", "nested_wait"]

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tileq_theory.errors import InputError, nonnegative, positive, positive_int
from tileq_theory.lengths.base import JointLaw


@dataclass(frozen=True, slots=True)
class NestedWait:
    """Equilibrium and thresholds.

    Parameters
    ----------
    iteration_s, memory_tokens
        DeltaT* and M* = DeltaT* S.
    stage_requests
        n_k of each segment.
    thresholds
        ceil(n_k), at least 1.
    """

    iteration_s: float
    memory_tokens: float
    stage_requests: tuple[float, ...]
    thresholds: tuple[int, ...]


def nested_wait(
    *, rate_per_s: float, lengths: JointLaw, boundaries: Sequence[int], d0_s: float, d1_s: float
) -> NestedWait:
    """Return the fluid thresholds of nested WAIT.

    Parameters
    ----------
    rate_per_s
        lambda >= 0, requests per second of all kinds.
    lengths
        Joint law of prompt and output (decode steps).
    boundaries
        l_1 < l_2 < ..., whole numbers of at least 1; may be empty (one segment).
    d0_s, d1_s
        d0 > 0 (s), d1 >= 0 (s per scheduled KV token).

    Raises
    ------
    InputError
        Boundaries that do not increase, a number outside its domain, or d1 S >= 1, where no equilibrium exists.

    Examples
    --------
    >>> from tileq_theory.lengths import Fixed, Independent
    >>> plan = nested_wait(rate_per_s=300.0, lengths=Independent(Fixed(100), Fixed(200)), boundaries=[100, 250],
    ...                    d0_s=0.01, d1_s=0.0)
    >>> plan.stage_requests, plan.thresholds
    ((3.0, 3.0, 0.0), (3, 3, 1))
    """
    rate, d0, d1 = nonnegative("rate_per_s", rate_per_s), positive("d0_s", d0_s), nonnegative("d1_s", d1_s)
    marks = [positive_int(f"boundaries[{i}]", mark) for i, mark in enumerate(boundaries)]
    if sorted(set(marks)) != marks:
        raise InputError(f"boundaries are {marks}; expected increasing token counts")
    prompt, output = lengths.prompt_law, lengths.output_law
    # E[(O + 1)(P + O/2)] = E[P O] + E[P] + (E[O^2] + E[O])/2
    volume = lengths.mean_product() + prompt.mean() + (output.second_moment() + output.mean()) / 2
    load = rate * volume
    if d1 * load >= 1:
        raise InputError(
            f"d1_s * S is {d1 * load:.6g} at rate_per_s {rate:.6g}; expected it below 1 (else no equilibrium exists): "
            f"the rate must be below {1 / (d1 * volume):.6g}/s"
        )
    iteration = d0 / (1 - d1 * load)
    reach = output.survival(np.array([0.0, *marks]))
    stages = tuple(float(rate * share * iteration) for share in reach)
    # a product like 300 * .01 = 3.0000000000000004 is no reason for one request more
    whole = tuple(max(1, math.ceil(n * (1 - 1e-12))) for n in stages)
    return NestedWait(iteration, iteration * load, stages, whole)
