"""Exclusive against mixed batching: the crossover test of EB+."""

from __future__ import annotations

__all__ = ["Crossover", "crossover"]

import math
from dataclasses import dataclass

from tileq_theory.errors import nonnegative, positive
from tileq_theory.theta.costs import BatchingCosts, fraction


@dataclass(frozen=True, slots=True)
class Crossover:
    """Seconds of machine time that a request takes under exclusive and under mixed batching.

    Parameters
    ----------
    exclusive_s, mixed_s
        Seconds a request; the throughput is one over it.
    """

    exclusive_s: float
    mixed_s: float

    @property
    def mixed_wins(self) -> bool:
        """True when mixing serves more requests per second."""
        return self.mixed_s < self.exclusive_s

    @property
    def gain_of_exclusive(self) -> float:
        """Relative throughput gain of exclusive batching (negative where mixing wins)."""
        return self.mixed_s / self.exclusive_s - 1


def crossover(
    *,
    slots: int,
    threshold: float,
    theta: float,
    prompt_tokens: float,
    output_tokens: float,
    costs: BatchingCosts,
    alpha_mixed_s: float,
    beta_mixed_s: float,
) -> Crossover:
    r"""Compare exclusive batching at threshold k with mixed batching of N slots (the test of EB+).

    Per request, exclusive: (alpha_p + alpha_d zeta mu_O)/k + beta_p mu_L + beta_d mu_O, zeta = -ln(1 - theta);
    mixed: alpha_MB (1 + mu_O)/N + beta_MB (mu_L + mu_O). Mixing wins exactly when

        beta_MB - beta_EB < [(alpha_p + alpha_d zeta mu_O)/k - alpha_MB (1 + mu_O)/N]/(mu_L + mu_O),

    beta_EB = (beta_p mu_L + beta_d mu_O)/(mu_L + mu_O).

    Parameters
    ----------
    slots
        N (EB+ puts the observed occupancy here).
    threshold, theta
        k and theta; in the source theta0 and k = theta0 N.
    prompt_tokens, output_tokens
        mu_L >= 0, mu_O > 0, tokens.
    costs
        Times of the exclusive iterations.
    alpha_mixed_s, beta_mixed_s
        Fixed and per-token time of a mixed iteration; beta depends on its share of decode tokens.

    Raises
    ------
    InputError
        A parameter outside its domain.

    References
    ----------
    arXiv 2606.00516, crossover condition.

    Examples
    --------
    >>> costs = BatchingCosts(alpha_p_s=0.01, alpha_d_s=0.01, beta_p_s=2e-5, beta_d_s=3e-5)
    >>> test = dict(slots=128, threshold=12, theta=12 / 128, prompt_tokens=500, output_tokens=200, costs=costs)
    >>> crossover(**test, alpha_mixed_s=0.01, beta_mixed_s=2e-5).mixed_wins
    True
    >>> crossover(**test, alpha_mixed_s=0.01, beta_mixed_s=4e-5).mixed_wins
    False
    """
    n, k, share = positive("slots", slots), positive("threshold", threshold), fraction(theta)
    prompt, output = nonnegative("prompt_tokens", prompt_tokens), positive("output_tokens", output_tokens)
    phases = costs.alpha_p_s - costs.alpha_d_s * math.log1p(-share) * output
    exclusive = phases / k + costs.beta_p_s * prompt + costs.beta_d_s * output
    mixed = nonnegative("alpha_mixed_s", alpha_mixed_s) * (1 + output) / n
    return Crossover(exclusive, mixed + nonnegative("beta_mixed_s", beta_mixed_s) * (prompt + output))
