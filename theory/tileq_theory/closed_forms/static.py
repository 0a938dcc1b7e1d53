r"""Static batches (FasterTransformer): B requests start together and the batch ends with its longest output.

Renewal reward: a cycle prefills B prompts, then decodes for as many steps as the longest of B outputs needs, and
completes B requests:

    lambda* = R B / (E[prefill time] + E[max of B decode lengths] * (time of a decode step))

E[max] follows from the survival function, E[max] = sum_{j >= 0} (1 - (1 - P(X > j))^B).
"""

from __future__ import annotations

__all__ = ["FORMS", "STATIC_CAPACITY", "expected_maximum", "expected_maximum_geometric"]

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float

from tileq_theory.closed_forms.base import ClosedForm, Quantity
from tileq_theory.closed_forms.quantities import NODES
from tileq_theory.errors import InputError, positive_int

_B = Quantity("batch_requests", "B", "requests of a batch", "", "count")
_PREFILL = Quantity("prefill_s", "t_p", "mean time to prefill the B prompts", "s")
_STEP = Quantity("decode_step_s", "t_d", "time of a decode step of the batch", "s", "nonnegative")
_MAX = Quantity(
    "longest_steps", r"E[\max_B D]", "mean decode steps of the longest of B requests", "steps", "nonnegative"
)


def _capacity(v: Mapping[str, Any]) -> Any:
    cycle = v["prefill_s"] + v["longest_steps"] * v["decode_step_s"]
    return v["nodes"] * v["batch_requests"] / cycle


STATIC_CAPACITY = ClosedForm(
    "static_capacity",
    "capacity with static batches",
    "renewal reward: B requests per cycle (Dai, Deng, Li, Peng, arXiv 2504.07347, section 4 describes the policy)",
    "1/s",
    (NODES, _B, _PREFILL, _MAX, _STEP),
    _capacity,
)
FORMS = (STATIC_CAPACITY,)


def expected_maximum(probabilities: Float[np.ndarray, "length"], size: int) -> float:
    r"""Return E[max of `size` independent lengths], exactly.

    E[max] = sum_{j >= 0} (1 - F(j)^B), F(j) = P(X <= j).

    Parameters
    ----------
    probabilities
        P(X = j) at index j = 0, 1, ...; non-negative, summing to 1 within 1e-9.
    size
        B, whole, at least 1.

    Raises
    ------
    InputError
        Probabilities that are negative, not finite or do not sum to 1; a size that is not a whole number of at least 1.

    Examples
    --------
    >>> expected_maximum(np.array([0.0, 0.5, 0.5]), 2)  # max of two lengths uniform on {1, 2}
    1.75
    """
    count = positive_int("size", size)
    law = np.asarray(probabilities, dtype=float)
    if law.size == 0 or not np.all(np.isfinite(law)) or law.min() < 0:
        raise InputError("probabilities: expected at least one, each finite and 0 or more")
    if abs(math.fsum(law) - 1) > 1e-9:
        raise InputError(f"probabilities sum to {math.fsum(law)!r}; expected 1 within 1e-9")
    # survival summed from the far end keeps small tails to full relative precision
    survival = np.append(np.cumsum(law[:0:-1])[::-1], 0.0)
    return math.fsum(-np.expm1(count * np.log1p(-np.minimum(survival[survival < 1], 1.0)))) + float(
        np.count_nonzero(survival >= 1)
    )


def expected_maximum_geometric(mean: float, size: int, *, tail: float = 1e-16) -> float:
    r"""Return E[max of `size` geometric lengths on 1, 2, ...] with the given mean.

    E[max] = sum_{j >= 0} (1 - (1 - q^j)^B), q = 1 - 1/mean; the sum stops where B q^j/(1 - q), a bound of what is
    left, falls below `tail` times the sum so far.

    Parameters
    ----------
    mean
        At least 1.
    size
        B, whole, at least 1.
    tail
        Relative truncation, in (0, 1).

    Raises
    ------
    InputError
        A parameter outside its domain.

    Examples
    --------
    >>> round(expected_maximum_geometric(2.0, 2), 12)  # 2*2 - 1/(1 - 1/4)
    2.666666666667
    """
    count = positive_int("size", size)
    if not (isinstance(mean, (int, float)) and math.isfinite(mean) and mean >= 1):
        raise InputError(f"mean is {mean!r}; expected a number of at least 1")
    if not 0 < tail < 1:
        raise InputError(f"tail is {tail!r}; expected a number in (0, 1)")
    if mean == 1:
        return 1.0
    log_q = math.log1p(-1 / mean)
    steps = math.ceil(math.log(count * mean / tail) / -log_q) + 1
    total, block = 1.0, 1 << 20  # j = 0 contributes 1
    for first in range(1, steps + 1, block):
        powers = np.exp(log_q * np.arange(first, min(first + block, steps + 1)))
        total += float(np.sum(-np.expm1(count * np.log1p(-powers))))
    return total
