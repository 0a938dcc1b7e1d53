r"""Stationary law of the truncated chain by GMRES, preconditioned by a thin chain, and corrected level by level.

With the weight of the empty node set to 1 the others solve a system without null space. Between the rounds of GMRES the
levels' total weights are set right, given the phases' law within each: with x_w the weights of level w, those of the
chain Q(w, w') = sum_d x_wd P((w, d), (w', .))/x_w, which is solved directly (iterative aggregation and disaggregation,
Koury, McAllister and Stewart, SIAM J. Algebraic Discrete Methods 5, 1984). That takes out the slowest motion near
saturation. The answer is judged by what it is, not by the solver's word: its residual |pi - pi P|_1 is returned too.
"""

from __future__ import annotations

__all__ = ["stationary_sparse"]

from typing import Any

import numpy as np
from jaxtyping import Float

from tileq_theory.chain.kernel import Kernel
from tileq_theory.chain.operator import Factors, factors
from tileq_theory.chain.thinned import thin_chain
from tileq_theory.errors import SolveError

_RESTART, _ROUNDS = 150, 12
_WANTED, _ENOUGH = 2e-15, 1e-11


def stationary_sparse(
    kernel: Kernel, counts: Float[np.ndarray, "duration count"], levels: int
) -> tuple[Float[np.ndarray, "level phase"], float]:
    """Return the law on the levels 0 to `levels` - 1, arrivals beyond the last lost, and its residual."""
    from scipy.sparse import identity
    from scipy.sparse.linalg import LinearOperator, gmres, splu

    chain = factors(kernel, counts, levels)
    size = chain.states - 1
    thin = (identity(chain.states, format="csc") - thin_chain(kernel, counts, levels).T.tocsc())[1:, 1:]
    inverse = LinearOperator((size, size), matvec=splu(thin.tocsc()).solve)
    one_way, back = chain.first.T.tocsr(), chain.second.T.tocsr()

    def missing(others: np.ndarray) -> np.ndarray:
        return np.asarray(others - (back @ (one_way @ np.append(0.0, others)))[1:])

    start = np.zeros(chain.states)
    start[0] = 1.0
    goal = chain.after(start)[1:]
    system = LinearOperator((size, size), matvec=missing)
    law, residual = start, np.inf
    to_level = chain.first @ _levels(chain, kernel.size)
    guess = np.append(1.0, inverse.matvec(goal))
    for _ in range(_ROUNDS):
        trial = _aggregated(chain.after(np.clip(guess, 0.0, None)), to_level, kernel.size)
        others, _ = gmres(
            system, goal, x0=trial[1:] / trial[0], rtol=1e-15, atol=0.0, restart=_RESTART, maxiter=1, M=inverse
        )
        guess = np.append(1.0, others)
        trial = _aggregated(chain.after(np.clip(guess, 0.0, None)), to_level, kernel.size)
        found = float(np.abs(chain.after(trial) - trial).sum())
        if found < residual:
            law, gain, residual = trial, residual / found, found
        if residual < _WANTED or (residual < _ENOUGH and gain < 2):
            break
    if residual > _ENOUGH:
        raise SolveError(
            f"stationary law of {chain.states} states: residual {residual:.2g} after {_ROUNDS} rounds of GMRES; "
            "lower rate_per_s (the load is too near 1) or take fewer residents"
        )
    return (law / law.sum()).reshape(levels, kernel.size), residual


def _levels(chain: Factors, size: int) -> Any:
    """Return the matrix that sends each middle state to its level: the rows of F_2 lie within one."""
    from scipy.sparse import csr_matrix

    second = chain.second
    levels = second.indices[second.indptr[:-1]] // size
    ones = np.ones(len(levels))
    return csr_matrix((ones, (np.arange(len(levels)), levels)), shape=(len(levels), chain.states // size))


def _aggregated(law: np.ndarray, to_level: Any, size: int) -> np.ndarray:
    """Return the law, summing to 1, with the levels' weights that follow from the phases' laws within them."""
    from scipy.sparse import csr_matrix, identity
    from scipy.sparse.linalg import splu

    rows = law.reshape(-1, size)
    weight = rows.sum(axis=1)
    known = weight > 0
    within = np.where(known[:, None], rows / np.where(known, weight, 1.0)[:, None], 1.0 / size)
    levels = len(weight)
    mean = csr_matrix((within.ravel(), (np.repeat(np.arange(levels), size), np.arange(levels * size))))
    moves = (mean @ to_level).tocsc()
    rest = (identity(levels, format="csc") - moves.T)[1:, 1:].tocsc()
    total = np.append(1.0, splu(rest).solve(np.asarray(moves[0, 1:].todense()).ravel()))
    total = np.clip(total, 0.0, None)
    scaled: np.ndarray = (within * (total / total.sum())[:, None]).ravel()
    return scaled
