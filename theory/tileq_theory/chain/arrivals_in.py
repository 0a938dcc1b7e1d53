r"""How many requests arrive during one iteration.

Arrivals are Poisson with rate lambda, so over an iteration of fixed length t their number is Poisson(lambda t). A
machine whose steps vary is covered by an Erlang length: k stages with mean t in all, which makes the number negative
binomial (k = 1: exponential lengths, a geometric number).

For any length T that does not depend on the arrivals, the mean time of the iteration that is spent with exactly n
arrivals behind it is

    e(n) = int P(A(s) = n, T > s) ds = P(A(T) > n)/lambda,   sum_n e(n) = E[T]

because the (n + 1)-th arrival ends that stay at rate lambda.
"""

from __future__ import annotations

__all__ = ["arrival_counts", "arrival_stays", "mean_square_s2"]

import math
from typing import Any

import numpy as np
from jaxtyping import Float

_NEGLIGIBLE = 1e-18


def arrival_counts(rate_per_s: float, lengths_s: Float[np.ndarray, "length"], stages: int | None) -> np.ndarray:
    """Return P(A = n), shape (length, most + 1): the mass beyond `most` is below 1e-18 and is given to it."""
    from scipy.stats import nbinom, poisson

    means = rate_per_s * lengths_s
    largest = means.max(keepdims=True)
    law: Any = poisson if stages is None else nbinom

    def parameters(mean: np.ndarray) -> tuple[np.ndarray, ...]:
        return (mean,) if stages is None else (np.full_like(mean, stages), stages / (stages + mean))

    most = 4
    while law.sf(most, *parameters(largest))[0] > _NEGLIGIBLE:
        most = math.ceil(1.25 * most)
    counts: np.ndarray = law.pmf(np.arange(most + 1)[None, :], *(p[:, None] for p in parameters(means)))
    scaled: np.ndarray = counts / counts.sum(axis=1, keepdims=True)
    return scaled


def arrival_stays(rate_per_s: float, counts: Float[np.ndarray, "length count"]) -> Float[np.ndarray, "length count"]:
    """Return e(n), seconds, from the counts' probabilities."""
    beyond = np.cumsum(counts[:, ::-1], axis=1)[:, ::-1]  # P(A >= n), summed from the small end
    stays = np.zeros_like(counts)
    stays[:, :-1] = beyond[:, 1:] / rate_per_s
    return stays


def mean_square_s2(lengths_s: Float[np.ndarray, "length"], stages: int | None) -> Float[np.ndarray, "length"]:
    """Return E[T^2] of each length: t^2, or t^2 (1 + 1/k) for k Erlang stages."""
    squares: Float[np.ndarray, "length"] = lengths_s**2 * (1.0 if stages is None else 1 + 1 / stages)
    return squares
