r"""A joint law of lengths small enough to write in a file: prompt bins, each with two quantile tables.

Requests are cut into bins by prompt length; within a bin prompt and output are independent, each a piecewise-linear
quantile function. What correlation there is lies between the bins, so E[P O] is kept up to the covariance inside one.
"""

from __future__ import annotations

__all__ = ["JointTable", "fit_joint_table"]

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from tileq_theory.errors import InputError
from tileq_theory.lengths import Independent, JointMixture, Pairs, QuantileTable
from tileq_theory.lengths.checks import Numbers

BIN_LEVELS = (0.0, 0.08, 0.16, 0.24, 0.32, 0.4, 0.48, 0.56, 0.64, 0.72, 0.8, 0.87, 0.93, 0.97, 0.99, 1.0)
PROMPT_LEVELS = (0.0, 0.25, 0.5, 0.75, 0.9, 0.98, 1.0)
OUTPUT_LEVELS = (0.0, 0.02, 0.08, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.96, 0.99, 1.0)
_FIRM = 1e4  # weight of the two equations that must hold, mean and longest, against the least squares


@dataclass(frozen=True, slots=True, eq=False)
class JointTable:
    """The table: bin shares, common quantile levels, and the quantiles of prompt and output in each bin.

    Parameters
    ----------
    shares
        Share of requests in each bin.
    prompt_levels, output_levels
        Probabilities from 0 to 1 at which quantiles are given.
    prompts, outputs
        Quantiles, tokens, one row a bin.
    """

    shares: Float[np.ndarray, "bin"]
    prompt_levels: Float[np.ndarray, "knot"]
    output_levels: Float[np.ndarray, "mark"]
    prompts: Float[np.ndarray, "bin knot"]
    outputs: Float[np.ndarray, "bin mark"]

    def law(self) -> JointMixture:
        """Return the joint law that the table stands for."""
        parts = [
            Independent(QuantileTable(self.prompt_levels, p), QuantileTable(self.output_levels, o))
            for p, o in zip(self.prompts, self.outputs, strict=True)
        ]
        return JointMixture(parts, self.shares.tolist())


def fit_joint_table(
    prompts: Numbers,
    outputs: Numbers,
    *,
    bin_levels: Numbers = BIN_LEVELS,
    prompt_levels: Numbers = PROMPT_LEVELS,
    output_levels: Numbers = OUTPUT_LEVELS,
) -> JointTable:
    """Return the table that fits recorded pairs.

    Bins are cut at the prompt quantiles `bin_levels` (equal prompts stay together). Within a bin the quantile
    function is the least-squares fit in the hat functions of the levels that starts at the bin's shortest length,
    ends at its longest and has its mean: means and extremes are kept, second moments nearly.

    Parameters
    ----------
    prompts, outputs
        Lengths of each request, tokens, whole numbers of at least 1.
    bin_levels, prompt_levels, output_levels
        Probabilities rising from 0 to 1.

    Raises
    ------
    InputError
        As `Pairs`, or for levels that do not rise from 0 to 1.
    """
    pairs = Pairs(prompts, outputs)
    levels = [_levels(name, v) for name, v in (("prompt", prompt_levels), ("output", output_levels))]
    cuts = np.unique(np.quantile(pairs.prompts, _levels("bin", bin_levels)[1:-1], method="inverted_cdf"))
    at = np.searchsorted(cuts, pairs.prompts, side="left")
    rows = [at == b for b in np.unique(at)]
    return JointTable(
        shares=np.array([row.mean() for row in rows]),
        prompt_levels=levels[0],
        output_levels=levels[1],
        prompts=np.array([_quantiles(pairs.prompts[row], levels[0]) for row in rows]),
        outputs=np.array([_quantiles(pairs.outputs[row], levels[1]) for row in rows]),
    )


def _levels(name: str, values: Numbers) -> Float[np.ndarray, "level"]:
    levels = np.asarray(values, dtype=float)
    if levels.ndim != 1 or levels.size < 2 or levels[0] != 0 or levels[-1] != 1 or (np.diff(levels) <= 0).any():
        raise InputError(f"{name}_levels must rise strictly from 0 to 1")
    return levels


def _quantiles(values: np.ndarray, levels: Float[np.ndarray, "level"]) -> Float[np.ndarray, "level"]:
    """Return the knots, shortest to longest, of the piecewise-linear function nearest to the quantile function."""
    from scipy.optimize import lsq_linear

    ordered = np.sort(values).astype(float)
    shortest, span = ordered[0], ordered[-1] - ordered[0]
    if span == 0:
        return np.full(levels.size, shortest)
    # integrals over (0, 1) by enough points that every interval of the levels has some
    points = max(2000, ordered.size)
    u = (np.arange(points) + 0.5) / points
    target = ordered[np.minimum((u * ordered.size).astype(int), ordered.size - 1)] - shortest
    # knots as increments of 0 or more, so that they never fall: increment i raises every knot from i + 1 on
    rising = np.array([np.interp(u, levels, row) for row in np.tri(levels.size, k=-1).T[:-1]]).T
    root = np.linalg.cholesky(rising.T @ rising / points + 1e-12 * np.eye(levels.size - 1)).T
    projected = np.linalg.solve(root.T, rising.T @ target / points)
    rows = np.vstack([root, _FIRM * np.ones(levels.size - 1), _FIRM * rising.mean(axis=0)])
    wanted = np.concatenate([projected, [_FIRM * span, _FIRM * target.mean()]])
    increments = lsq_linear(rows, wanted, bounds=(0, np.inf), method="bvls", tol=1e-14).x
    return np.asarray(shortest + np.concatenate([[0.0], np.cumsum(increments)]))
