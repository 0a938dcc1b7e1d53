r"""Several servers: M/M/c exactly (Erlang C), M/G/c approximately, M/M/1/K and M/M/c/K exactly.

    C(c, a) = [a^c/c! c/(c - a)] / [sum_{k < c} a^k/k! + a^c/c! c/(c - a)],   a = lambda E[S] < c        (Erlang C)
    W(M/M/c) = C E[S]/(c - a),   P(W > t) = C exp(-(c - a) t/E[S])
    W(M/D/c) = E[Q]/lambda, Q' = max(Q + Poisson(a) - c, 0)                      (Crommelin; `flow_control.mean_queue`)
    W(M/G/c) ~ (1 + scv)/2 W(M/M/c)                                              (Lee and Longton 1959)
    W(M/G/c) ~ (1 + scv) / (2 scv/W(M/M/c) + (1 - scv)/W(M/D/c))                 (Kimura 1986, Poisson arrivals)

Above scv = 1 the second extrapolates; it stays above 0 because W(M/D/c) is at least half of W(M/M/c). Both are exact at
c = 1 and for exponential service, the second for constant service too. Their known bias: two moments do not determine
the waiting on several servers. Lee-Longton is too small for nearly constant service at light load (M/D/c: by the factor
(c + 1)/(2c) as the load goes to 0), and both are too large for heavy tails, where short jobs overtake long ones and the
true waiting may be a small part of the formula (Gupta, Harchol-Balter, Dai, Zwart, Queueing Systems 2010). Trust them
for scv up to about 4 and loads above about .5.
"""

from __future__ import annotations

__all__ = ["ManyServers", "bounded_queue", "erlang_b", "erlang_c", "many_servers", "mg_c"]

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float

from tileq_theory.errors import InputError, nonnegative, positive, positive_int
from tileq_theory.flow_control import mean_queue
from tileq_theory.latency.service import ServiceLaw

Formula = Literal["lee-longton", "kimura"]


def erlang_b(servers: int, offered: float) -> float:
    """Return the share of arrivals that find all servers busy in M/M/c/c (Erlang B); offered = lambda E[S] >= 0.

    Examples
    --------
    >>> round(erlang_b(2, 1.0), 6)  # (1/2)/(1 + 1 + 1/2)
    0.2
    """
    c, a = _count("servers", servers), nonnegative("offered", offered)
    blocked = 1.0
    for k in range(1, c + 1):  # the recursion is stable for every a
        blocked = a * blocked / (k + a * blocked)
    return blocked


def erlang_c(servers: int, offered: float) -> float:
    """Return P(W > 0) in M/M/c, 0 <= offered < servers.

    Raises
    ------
    InputError
        offered >= servers.

    Examples
    --------
    >>> round(erlang_c(1, 0.7), 12), round(erlang_c(2, 1.0), 12)
    (0.7, 0.333333333333)
    """
    c, a = _count("servers", servers), nonnegative("offered", offered)
    if a >= c:
        raise InputError(f"rate * E[S] is {a:.6g} on {c} server(s); expected it below the number of servers")
    blocked = erlang_b(c, a)
    return c * blocked / (c - a * (1 - blocked))


@dataclass(frozen=True, slots=True)
class ManyServers:
    """M/G/c in steady state.

    Parameters
    ----------
    load
        lambda E[S]/c.
    wait_probability
        P(W > 0); Erlang C's, exact for exponential service.
    waiting_s, response_s
        Means, seconds.
    exact
        True where the mean waiting is exact: one server, exponential service, and constant service with "kimura".
    """

    load: float
    wait_probability: float
    waiting_s: float
    response_s: float
    exact: bool

    def waiting_tail(self, time_s: float) -> float:
        """Return P(W > t), exponential with the mean above: exact for M/M/c, else an approximation."""
        if self.waiting_s == 0:
            return 0.0
        return self.wait_probability * math.exp(-time_s * self.wait_probability / self.waiting_s)


def many_servers(
    *, rate_per_s: float, servers: int, mean_service_s: float, scv: float = 1.0, formula: Formula = "kimura"
) -> ManyServers:
    """Return waiting on c servers, first come first served.

    Parameters
    ----------
    rate_per_s, mean_service_s
        lambda >= 0 and E[S] > 0, lambda E[S] < c.
    scv
        Squared coefficient of variation of service, 0 or more (1: exponential, where both formulas are exact).
    formula
        "kimura" or "lee-longton" (module docstring, with their bias).

    Raises
    ------
    InputError
        A load of 1 or more, or a parameter outside its domain.

    Examples
    --------
    >>> round(many_servers(rate_per_s=1.0, servers=2, mean_service_s=1.0).waiting_s, 6)
    0.333333
    >>> round(many_servers(rate_per_s=0.5, servers=1, mean_service_s=1.0, scv=0.0).waiting_s, 6)  # M/D/1
    0.5
    """
    c, mean = _count("servers", servers), positive("mean_service_s", mean_service_s)
    a, variation = nonnegative("rate_per_s", rate_per_s) * mean, nonnegative("scv", scv)
    if formula not in ("kimura", "lee-longton"):
        raise InputError(f"formula is {formula!r}; expected 'kimura' or 'lee-longton'")
    busy = erlang_c(c, a)
    exponential = busy * mean / (c - a)
    waiting = (1 + variation) / 2 * exponential
    if formula == "kimura" and exponential > 0 and variation != 1:
        constant = mean_queue(a, c) * mean / a
        if constant > 0:  # 0 by underflow where hardly anybody waits
            waiting = (1 + variation) / (2 * variation / exponential + (1 - variation) / constant)
    exact = c == 1 or variation == 1 or (variation == 0 and formula == "kimura")
    return ManyServers(a / c, busy, waiting, waiting + mean, exact)


def mg_c(rate_per_s: float, servers: int, law: ServiceLaw, formula: Formula = "kimura") -> ManyServers:
    """Return `many_servers` with the moments of a service law.

    Raises
    ------
    InputError
        As `many_servers`, or a law without a second moment.
    """
    law.finite_second_moment("M/G/c")
    return many_servers(rate_per_s=rate_per_s, servers=servers, mean_service_s=law.mean_s, scv=law.scv, formula=formula)


def bounded_queue(
    *, rate_per_s: float, service_rate_per_s: float, places: int, servers: int = 1
) -> Float[np.ndarray, "state"]:
    """Return the law of the number in system of M/M/c/K, any load: p_0, ..., p_K with K = `places` >= c.

    Raises
    ------
    InputError
        A number outside its domain, or fewer places than servers.

    Examples
    --------
    >>> bounded_queue(rate_per_s=1.0, service_rate_per_s=1.0, places=3).tolist()
    [0.25, 0.25, 0.25, 0.25]
    """
    rate, mu = nonnegative("rate_per_s", rate_per_s), positive("service_rate_per_s", service_rate_per_s)
    k, c = _count("places", places), _count("servers", servers)
    if k < c:
        raise InputError(f"places is {k} with {c} servers; expected a place in the system for every server")
    from tileq_theory.latency.birth_death import stationary

    return stationary(np.full(k, rate), mu * np.minimum(np.arange(1, k + 1), c))


def _count(name: str, value: float) -> int:
    """Return a whole number of servers or places that a recursion can go through."""
    count = positive_int(name, value)
    if count > 1_000_000:
        raise InputError(f"{name} is {value!r}; expected at most a million")
    return count
