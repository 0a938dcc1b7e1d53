r"""Stationary law of an M/G/1-type chain: the matrix G and Ramaswami's recursion.

G holds the phases in which the chain first enters the block below. It is the least nonnegative solution of
G = sum_k A_k G^k, found by the iteration with the fewest steps among the simple ones,

    G <- (I - sum_{k>=1} A_k G^{k-1})^{-1} A_0

With Abar_k = sum_{j>=k} A_j G^{j-k} and Bbar_k likewise, x_0 (sum_k B_k G^k) = x_0 and

    x_i = (x_0 Bbar_i + sum_{k=1}^{i-1} x_k Abar_{i+1-k}) (I - Abar_1)^{-1}

Every term is nonnegative, so nothing cancels (Ramaswami, A stable recursion for the steady state vector in Markov
chains of M/G/1 type, Stochastic Models 4, 1988).
"""

from __future__ import annotations

__all__ = ["first_passage", "stationary_levels"]

import numpy as np
from jaxtyping import Float

from tileq_theory.chain.drift import stationary_vector
from tileq_theory.chain.transitions import Blocks
from tileq_theory.errors import SolveError

_MOST_STEPS = 20_000
_TOLERANCE = 1e-14


def first_passage(inner: list[Float[np.ndarray, "state state"]]) -> Float[np.ndarray, "state state"]:
    """Return G of the blocks A_0, A_1, ...; stochastic when the chain is recurrent."""
    size = len(inner[0])
    identity = np.eye(size)
    guess: Float[np.ndarray, "state state"] = np.full((size, size), 1.0 / size)
    for _ in range(_MOST_STEPS):
        local = inner[-1]
        for block in inner[-2:0:-1]:  # Horner: A_1 + A_2 G + A_3 G^2 + ...
            local = block + local @ guess
        following: Float[np.ndarray, "state state"] = np.linalg.solve(identity - local, inner[0])
        change = float(np.abs(following - guess).sum(axis=1).max())
        guess = following
        if change < _TOLERANCE * size:
            return guess
    raise SolveError(
        f"first-passage matrix not converged after {_MOST_STEPS} steps: the load is too near 1; lower rate_per_s"
    )


def stationary_levels(blocks: Blocks, tail: float) -> Float[np.ndarray, "block state"]:
    """Return x_0, x_1, ... (rows, not yet normalised to 1 in total) until a block holds less than `tail` of the sum."""
    g = first_passage(blocks.inner)
    inner, boundary = _bars(blocks.inner, g), _bars(blocks.boundary, g)
    start = stationary_vector(boundary[0])
    leave = np.linalg.inv(np.eye(len(g)) - inner[1])
    rows, total = [start], 1.0
    while True:
        i = len(rows)
        flow = start @ boundary[i] if i < len(boundary) else np.zeros(len(g))
        for k in range(max(1, i + 2 - len(inner)), i):
            flow = flow + rows[k] @ inner[i + 1 - k]
        rows.append(np.clip(flow @ leave, 0.0, None))
        mass = float(rows[-1].sum())
        total += mass
        if i >= len(boundary) and mass < tail * total:
            return np.array(rows)
        if i > _MOST_STEPS:
            raise SolveError(f"queue law not exhausted after {i} blocks: the load is too near 1; lower rate_per_s")


def _bars(blocks: list[np.ndarray], g: np.ndarray) -> list[np.ndarray]:
    """Return sum_{j>=k} C_j G^{j-k} for every k."""
    sums = [blocks[-1]]
    for block in blocks[-2::-1]:
        sums.append(block + sums[-1] @ g)
    return sums[::-1]
