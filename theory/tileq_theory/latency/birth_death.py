"""Stationary law of a finite birth-death chain, in logarithms: no overflow at any load."""

from __future__ import annotations

__all__ = ["stationary"]

import numpy as np
from jaxtyping import Float

from tileq_theory.errors import InputError


def stationary(births: Float[np.ndarray, "step"], deaths: Float[np.ndarray, "step"]) -> Float[np.ndarray, "state"]:
    """Return p with p_n births_n = p_{n+1} deaths_n; births_n is the rate n -> n + 1, deaths_n the rate n + 1 -> n.

    Raises
    ------
    InputError
        Arrays of different lengths, a negative birth rate or a death rate that is not above 0.

    Examples
    --------
    >>> stationary(np.array([1.0, 1.0]), np.array([2.0, 2.0])).round(6).tolist()
    [0.571429, 0.285714, 0.142857]
    """
    if births.shape != deaths.shape:
        raise InputError(f"{births.size} birth and {deaths.size} death rates given; expected as many")
    if not ((births >= 0).all() and (deaths > 0).all() and np.isfinite(births).all() and np.isfinite(deaths).all()):
        raise InputError("birth rates must be finite and 0 or more, death rates finite and above 0")
    with np.errstate(divide="ignore"):
        logs = np.concatenate([[0.0], np.cumsum(np.log(births) - np.log(deaths))])
    weights = np.exp(logs - logs.max())
    law: Float[np.ndarray, "state"] = weights / weights.sum()
    return law
