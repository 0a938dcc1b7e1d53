r"""Token clipping: an M/G/1 whose outputs are cut at a limit n_max (Yang, Jiao, Xu).

    S = a min(N, n_max) + c,   rho = lambda E[S],   W = lambda E[S^2]/(2 (1 - rho))

E[min(N, n)^k] = int_0^n k t^{k-1} P(N > t) dt, taken in closed form for a log-normal law,

    E[min(N, n)^k] = exp(k mu + k^2 sigma^2/2) Phi(z - k sigma) + n^k (1 - Phi(z)),   z = (ln n - mu)/sigma,

and from the law's truncated moments otherwise. Clipping cuts the longest answers: a share P(N > n) of requests, and
E[(N - n)^+] tokens a request. Source: arXiv 2407.05347.
"""

from __future__ import annotations

__all__ = ["ClippedQueue", "LimitChoice", "TokenClipping", "lognormal_clipped_moment"]

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tileq_theory.errors import InputError, finite, nonnegative, positive
from tileq_theory.latency.impatience import ImpatientQueue, fixed_patience
from tileq_theory.latency.service import ServiceLaw


def lognormal_clipped_moment(mu: float, sigma: float, limit: float, order: int) -> float:
    """Return E[min(N, limit)^order] for ln N ~ Normal(mu, sigma^2), sigma > 0, order 1 or 2.

    Examples
    --------
    >>> round(lognormal_clipped_moment(7.0, 0.7, 800.0, 1), 3)
    714.152
    """
    from scipy.special import ndtr

    m, s, top = finite("mu", mu), positive("sigma", sigma), positive("limit", limit)
    z = (math.log(top) - m) / s
    inside = math.exp(order * m + order * order * s * s / 2) * float(ndtr(z - order * s))
    return inside + top**order * float(ndtr(-z))


@dataclass(frozen=True, slots=True)
class ClippedQueue:
    """The queue at one limit.

    Parameters
    ----------
    limit_tokens
        n_max (inf: none).
    load
        rho.
    waiting_s, response_s
        Means, seconds; inf at a load of 1 or more.
    clipped_share
        P(N > n_max).
    lost_tokens
        E[(N - n_max)^+] a request.
    lost_share
        The same over E[N].
    """

    limit_tokens: float
    load: float
    waiting_s: float
    response_s: float
    clipped_share: float
    lost_tokens: float
    lost_share: float


@dataclass(frozen=True, slots=True)
class LimitChoice:
    """The best limit, its cost and the queue there."""

    cost: float
    queue: ClippedQueue
    impatient: ImpatientQueue | None = None


@dataclass(frozen=True, slots=True)
class TokenClipping:
    """Requests of one server without batching.

    Parameters
    ----------
    tokens
        Law of the output N in tokens, as a `ServiceLaw` whose seconds read as tokens (`ServiceLaw.from_lengths` with
        seconds_per_token=1, or `from_distribution`).
    seconds_per_token, setup_s
        a > 0 and c >= 0.
    rate_per_s
        lambda > 0.

    Examples
    --------
    >>> model = TokenClipping.lognormal(7.0, 0.7, seconds_per_token=0.0225, rate_per_s=1 / 40)
    >>> [(round(q.load, 4), round(q.waiting_s, 3)) for q in map(model.at, (800, 1600, 3000))]
    [(0.4017, 5.65), (0.6091, 22.319), (0.7336, 55.285)]
    """

    tokens: ServiceLaw
    seconds_per_token: float
    rate_per_s: float
    setup_s: float = 0.0

    def __post_init__(self) -> None:
        for name in ("seconds_per_token", "rate_per_s"):
            object.__setattr__(self, name, positive(name, getattr(self, name)))
        object.__setattr__(self, "setup_s", nonnegative("setup_s", self.setup_s))

    @classmethod
    def lognormal(
        cls, mu: float, sigma: float, *, seconds_per_token: float, rate_per_s: float, setup_s: float = 0.0
    ) -> TokenClipping:
        """Return the model with ln N ~ Normal(mu, sigma^2), N continuous as in the source."""
        from scipy.stats import lognorm

        if abs(finite("mu", mu)) + 50 * positive("sigma", sigma) > 700:
            raise InputError(
                f"mu is {mu!r} and sigma {sigma!r}; expected the logarithm of tokens: e^mu of them at the median"
            )
        law = lognorm(sigma, scale=math.exp(mu))
        named = ServiceLaw.from_distribution(law, name=f"lognormal({mu:g}, {sigma:g})")
        return cls(named, seconds_per_token, rate_per_s, setup_s)

    def service(self, limit_tokens: float) -> ServiceLaw:
        """Return the law of S = a min(N, n_max) + c, seconds."""
        law = self.tokens if math.isinf(limit_tokens) else self.tokens.clipped(limit_tokens)
        return law.affine(self.seconds_per_token, self.setup_s)

    def at(self, limit_tokens: float) -> ClippedQueue:
        """Return the queue at a limit above 0 (inf for none; a load of 1 or more is reported, its waiting is inf).

        Raises
        ------
        InputError
            A limit that is not above 0, or (no limit) a law without a second moment.
        """
        limit = limit_tokens if limit_tokens == math.inf else positive("limit_tokens", limit_tokens)
        service = self.service(limit)
        load, mean = self.rate_per_s * service.mean_s, service.mean_s
        second = service.finite_second_moment("Pollaczek-Khinchine")
        waiting = self.rate_per_s * second / (2 * (1 - load)) if load < 1 else math.inf
        full = self.tokens.mean_s
        lost = 0.0 if math.isinf(limit) else max(full - (mean - self.setup_s) / self.seconds_per_token, 0.0)
        share = 0.0 if math.isinf(limit) else float(self.tokens.survival(np.array([limit]))[0])
        return ClippedQueue(limit, load, waiting, waiting + mean, share, lost, lost / full)

    def largest_stable_limit(self) -> float:
        """Return the limit at which the load reaches 1 (inf when no limit is needed)."""
        if self.rate_per_s * self.service(math.inf).mean_s < 1:
            return math.inf
        if self.rate_per_s * self.setup_s >= 1:
            raise InputError(
                f"rate_per_s * setup_s is {self.rate_per_s * self.setup_s:.6g}; expected it below 1: no limit helps"
            )
        return _bisect(lambda n: self.rate_per_s * self.service(n).mean_s < 1, self.tokens.mean_s)

    def limit_for_waiting(self, waiting_s: float) -> ClippedQueue:
        """Return the queue at the largest limit whose mean waiting is at most `waiting_s` (inf if none is needed).

        Raises
        ------
        InputError
            A waiting time that no limit meets.
        """
        target = positive("waiting_s", waiting_s)
        if not self.tokens.heavy and self.at(math.inf).waiting_s <= target:
            return self.at(math.inf)
        low = self.at(1e-9 * self.tokens.mean_s)
        if low.waiting_s > target:
            raise InputError(
                f"waiting_s is {target:g}, but set-up times alone make {low.waiting_s:.6g} s; "
                "raise it or lower the rate"
            )
        return self.at(_bisect(lambda n: self.at(n).waiting_s <= target, self.tokens.mean_s))

    def best_limit(self, *, loss_weight_s: float, patience_s: float | None = None) -> LimitChoice:
        """Return the limit that minimises (mean waiting) + loss_weight_s * (share of answers' tokens lost).

        With `patience_s` = tau, a request leaves unserved when it would wait longer than tau. Then the cost is the mean
        waiting of those served plus loss_weight_s times the share of tokens lost to clipping or to leaving,
        1 - (1 - P(leave)) (1 - lost_share).

        Reconstruction: the source trades delay against clipped answers; its own objective was not at hand, so the
        weights are stated here. `cost_minimiser` takes any other objective.

        Raises
        ------
        InputError
            A weight or patience that is not above 0, or a load that no limit brings below 1 (without patience).
        """
        weight = positive("loss_weight_s", loss_weight_s)
        if patience_s is None:
            return self.cost_minimiser(lambda q: q.waiting_s + weight * q.lost_share)
        patience = positive("patience_s", patience_s)

        def at(limit: float) -> ImpatientQueue:
            service = self.service(limit)
            return fixed_patience(rate_per_s=self.rate_per_s, service=service, patience_s=patience, steps=256)

        def cost(limit: float) -> float:
            served = at(limit)
            kept = (1 - served.leave_share) * (1 - self.at(limit).lost_share)
            return served.waiting_s + weight * (1 - kept)

        limit = _golden(cost, *self._range(stable=False))
        return LimitChoice(cost(limit), self.at(limit), at(limit))

    def cost_minimiser(self, cost: Callable[[ClippedQueue], float]) -> LimitChoice:
        """Return the limit with the least `cost(queue)`, scanned over all scales and refined around the best."""
        limit = _golden(lambda n: cost(self.at(n)), *self._range(stable=True))
        queue = self.at(limit)
        return LimitChoice(cost(queue), queue)

    def _range(self, *, stable: bool) -> tuple[float, float]:
        points = self.tokens.points()
        order = np.argsort(points.sizes_s)
        upto = np.cumsum(points.masses[order])
        sizes = points.sizes_s[order]
        high = float(sizes[min(int(np.searchsorted(upto, 1 - 1e-7)), sizes.size - 1)])
        if stable:
            high = min(high, 0.999999 * self.largest_stable_limit())
        return 1e-6 * high, high  # a small weight puts the best limit far below the shortest usual answer


def _bisect(good: Callable[[float], bool], start: float) -> float:
    low, high = 0.0, start
    while good(high):
        low, high = high, 2 * high
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if good(middle) else (low, middle)
        if high - low <= 1e-12 * high:
            break
    return low


def _golden(cost: Callable[[float], float], low: float, high: float) -> float:
    """Return the minimiser on a logarithmic scale: the best of 160 points, refined between its neighbours."""
    from scipy.optimize import minimize_scalar

    grid = np.geomspace(low, high, 160)
    values = [cost(float(n)) for n in grid]
    best = int(np.argmin(values))
    left, right = grid[max(best - 1, 0)], grid[min(best + 1, grid.size - 1)]
    found = minimize_scalar(
        lambda u: cost(math.exp(u)), bounds=(math.log(left), math.log(right)), method="bounded", options={"xatol": 1e-9}
    )
    return float(grid[best]) if values[best] <= found.fun else math.exp(float(found.x))
