r"""Many small nonnegative least-squares problems at once.

    x >= 0,  y = G x - g >= 0,  x'y = 0

is solved for a stack of normal equations by block principal pivoting (Portugal, Judice & Vicente, Math. Comp. 63,
1994): variables whose x or y is negative change sides, all of them while their number falls, the last one alone
otherwise (Murty's rule, which ends). A fit scans thousands of 7 x 7 problems, so they go through LAPACK together.
"""

from __future__ import annotations

__all__ = ["nonnegative_solutions"]

import numpy as np
from jaxtyping import Bool, Float

_ROUNDS = 100
_BACKUP = 3  # block exchanges allowed without progress
_RIDGE = 1e-12  # keeps exactly collinear columns solvable; moves a well-conditioned answer by 1e-12
_ZERO = 1e-11


def nonnegative_solutions(
    gram: Float[np.ndarray, "problem p p"], right: Float[np.ndarray, "problem p"]
) -> Float[np.ndarray, "problem p"]:
    """Return argmin over x >= 0 of x'G x/2 - g'x for each problem (columns that are all 0 get 0).

    Examples
    --------
    >>> nonnegative_solutions(np.array([[[2.0, 1.0], [1.0, 2.0]]]), np.array([[2.0, -1.0]])).round(9).tolist()
    [[1.0, 0.0]]
    """
    p = right.shape[1]
    size = np.sqrt(np.einsum("bii->bi", gram))
    live = size > 0
    size = np.where(live, size, 1.0)
    unit = gram / (size[:, :, None] * size[:, None, :]) + _RIDGE * np.eye(p)
    unit += np.where(live, 0.0, 1.0)[:, :, None] * np.eye(p)
    target = np.where(live, right / size, 0.0)
    return _pivot(unit, target) / size


def _pivot(unit: Float[np.ndarray, "problem p p"], target: Float[np.ndarray, "problem p"]) -> np.ndarray:
    problems, p = target.shape
    passive = np.ones((problems, p), dtype=bool)
    fewest = np.full(problems, p + 1)
    backup = np.full(problems, _BACKUP)
    out = np.zeros((problems, p))
    open_ = np.arange(problems)
    for _ in range(_ROUNDS):
        x = _solve(unit[open_], target[open_], passive[open_])
        slack = np.einsum("bij,bj->bi", unit[open_], x) - target[open_]
        scale = _ZERO * np.maximum(np.abs(target[open_]).max(axis=1, keepdims=True), 1e-300)
        wrong = np.where(passive[open_], x < -scale, slack < -scale)
        out[open_] = np.maximum(x, 0.0)
        count = wrong.sum(axis=1)
        if not count.any():
            break
        swap = _exchange(wrong, count, fewest, backup, open_)
        passive[open_] ^= swap
        open_ = open_[count > 0]
    return out


def _exchange(
    wrong: Bool[np.ndarray, "open p"],
    count: np.ndarray,
    fewest: np.ndarray,
    backup: np.ndarray,
    open_: np.ndarray,
) -> Bool[np.ndarray, "open p"]:
    """Return which variables change sides, and note the progress of each problem."""
    progress = count < fewest[open_]
    fewest[open_] = np.minimum(fewest[open_], count)
    backup[open_] = np.where(progress, _BACKUP, backup[open_] - 1)
    last = wrong.shape[1] - 1 - np.argmax(wrong[:, ::-1], axis=1)
    only_last = np.zeros_like(wrong)
    only_last[np.arange(wrong.shape[0]), last] = wrong.any(axis=1)
    return np.where((backup[open_] >= 0)[:, None], wrong, only_last)


def _solve(unit: np.ndarray, target: np.ndarray, passive: Bool[np.ndarray, "open p"]) -> np.ndarray:
    """Return x with the passive variables solved for and the others 0."""
    both = passive[:, :, None] & passive[:, None, :]
    matrix = np.where(both, unit, np.eye(target.shape[1]))
    right = np.where(passive, target, 0.0)
    x: np.ndarray = np.linalg.solve(matrix, right[:, :, None])[:, :, 0]
    return x
