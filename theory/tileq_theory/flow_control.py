r"""Flow control (Dong, Cao): cap how many requests of each class become active per slot.

Time runs in slots; in each, every active request generates one token. A request of class k (prompt l, output o) holds
l + j KV tokens in its j-th slot, so over its life

    w_k = sum_{j=1..o} (l + j) = l o + (o + o^2)/2

With lambda_k arrivals of class k per slot and memory M:

* necessary for any scheduler (Proposition 3.2): sum_k lambda_k w_k <= M;
* with budgets b_k (at most b_k activations of class k per slot, first come first served) the KV in use never exceeds
  sum_k b_k w_k, reached once b_k requests were activated in o_k consecutive slots; inequality (2) asks that it is <= M;
* each class then is a queue of its own, Q' = max(Q + A - b_k, 0), A ~ Poisson(lambda_k), and
  lambda_k < b_k for all k suffices for stability (Theorem 3.3).

The queue is that of M/D/b at its service epochs; its mean comes from Spitzer's identity or from the roots of
z^b = exp(-lambda (1 - z)), which Lambert's W gives in closed form.

Source: Dong, Cao, arXiv 2604.11001.
"""

from __future__ import annotations

__all__ = ["FlowClass", "FlowControl", "capacity_per_slot", "flow_control", "largest_equal_budget", "mean_queue"]

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tileq_theory.errors import InputError, nonnegative, positive, positive_int


@dataclass(frozen=True, slots=True)
class FlowClass:
    """A request class with known lengths.

    Parameters
    ----------
    prompt_tokens, output_tokens
        l (whole, 0 or more) and o (whole, at least 1).

    Examples
    --------
    >>> FlowClass(10, 20).workload
    410
    """

    prompt_tokens: int
    output_tokens: int

    def __post_init__(self) -> None:
        prompt = nonnegative("prompt_tokens", self.prompt_tokens)
        if prompt != int(prompt):
            raise InputError(f"prompt_tokens is {self.prompt_tokens!r}; expected a whole number of 0 or more")
        object.__setattr__(self, "prompt_tokens", int(prompt))
        object.__setattr__(self, "output_tokens", positive_int("output_tokens", self.output_tokens))

    @property
    def workload(self) -> int:
        """w = l o + (o + o^2)/2, token slots, exact."""
        o = self.output_tokens
        return self.prompt_tokens * o + (o + o * o) // 2


@dataclass(frozen=True, slots=True)
class FlowControl:
    """What given budgets guarantee.

    Parameters
    ----------
    workloads
        w_k, token slots.
    load
        sum lambda_k w_k / M: above 1 no scheduler is stable.
    peak_kv_tokens
        sum b_k w_k, the most KV ever in use under the budgets, reached in a busy period.
    fits
        peak_kv_tokens <= M (inequality 2).
    stable
        fits, and lambda_k < b_k for every class (Theorem 3.3).
    mean_queues
        Mean requests waiting after a slot's activations, per class; inf where lambda_k >= b_k.
    """

    workloads: tuple[int, ...]
    load: float
    peak_kv_tokens: int
    fits: bool
    stable: bool
    mean_queues: tuple[float, ...]

    @property
    def possible(self) -> bool:
        """True where the necessary condition holds: some scheduler may be stable."""
        return self.load <= 1


def flow_control(
    classes: Sequence[FlowClass], *, rates_per_slot: Sequence[float], budgets: Sequence[int], kv_capacity_tokens: float
) -> FlowControl:
    r"""Return what per-class activation budgets guarantee at given rates.

    Parameters
    ----------
    classes
        At least one.
    rates_per_slot
        lambda_k >= 0, Poisson arrivals of class k per slot.
    budgets
        b_k, whole, at least 1.
    kv_capacity_tokens
        M > 0, tokens.

    Raises
    ------
    InputError
        Lists of different lengths or a number outside its domain.

    References
    ----------
    arXiv 2604.11001, Proposition 3.2, inequality (2), Theorem 3.3.

    Examples
    --------
    >>> classes = [FlowClass(10, 20), FlowClass(10, 40), FlowClass(10, 60)]
    >>> plan = flow_control(classes, rates_per_slot=[3, 3, 3], budgets=[4, 4, 4], kv_capacity_tokens=16492)
    >>> plan.peak_kv_tokens, plan.stable, round(plan.mean_queues[0], 3)
    (16240, True, 0.801)
    """
    if not len(classes) == len(rates_per_slot) == len(budgets) or not classes:
        raise InputError(
            f"{len(classes)} classes, {len(rates_per_slot)} rates and {len(budgets)} budgets given; "
            "expected as many of each, at least one"
        )
    memory = positive("kv_capacity_tokens", kv_capacity_tokens)
    rates = [nonnegative(f"rates_per_slot[{k}]", r) for k, r in enumerate(rates_per_slot)]
    caps = [positive_int(f"budgets[{k}]", b) for k, b in enumerate(budgets)]
    workloads = tuple(c.workload for c in classes)
    peak = sum(b * w for b, w in zip(caps, workloads, strict=True))
    served = all(r < b for r, b in zip(rates, caps, strict=True))
    return FlowControl(
        workloads=workloads,
        load=math.fsum(r * w for r, w in zip(rates, workloads, strict=True)) / memory,
        peak_kv_tokens=peak,
        fits=peak <= memory,
        stable=served and peak <= memory,
        mean_queues=tuple(mean_queue(r, b) if r < b else math.inf for r, b in zip(rates, caps, strict=True)),
    )


def capacity_per_slot(
    classes: Sequence[FlowClass], *, kv_capacity_tokens: float, mix: Sequence[float] | None = None
) -> float:
    r"""Return the largest s such that rates s*mix_k satisfy sum lambda_k w_k <= M (Proposition 3.2).

    Parameters
    ----------
    classes
        At least one.
    kv_capacity_tokens
        M > 0, tokens.
    mix
        Direction of the rates, 0 or more and not all 0; all 1 by default, so that s is the rate of every class.

    Raises
    ------
    InputError
        No class, a mix of another length, or a number outside its domain.

    Examples
    --------
    >>> classes = [FlowClass(10, 20), FlowClass(10, 40), FlowClass(10, 60)]
    >>> round(capacity_per_slot(classes, kv_capacity_tokens=16492), 5)
    4.06207
    """
    shares = [1.0] * len(classes) if mix is None else [nonnegative(f"mix[{k}]", q) for k, q in enumerate(mix)]
    if not classes or len(shares) != len(classes) or not any(shares):
        raise InputError(
            f"{len(classes)} classes and a mix of {shares}; expected at least one class and as many shares, not all 0"
        )
    memory = positive("kv_capacity_tokens", kv_capacity_tokens)
    return memory / math.fsum(q * c.workload for q, c in zip(shares, classes, strict=True))


def largest_equal_budget(classes: Sequence[FlowClass], *, kv_capacity_tokens: float) -> int:
    r"""Return the largest b with sum_k b w_k <= M, the same budget for every class (0 when even 1 does not fit).

    Examples
    --------
    >>> classes = [FlowClass(10, 20), FlowClass(10, 40), FlowClass(10, 60)]
    >>> largest_equal_budget(classes, kv_capacity_tokens=16492)
    4
    """
    if not classes:
        raise InputError("no class given; expected at least one")
    return int(positive("kv_capacity_tokens", kv_capacity_tokens) // sum(c.workload for c in classes))


# ---------------------------------------------------------------------- the queue of one class

# below this decay rate Spitzer's series needs more terms than the root formula loses digits
_SLOW_DECAY = 1e-3


def mean_queue(rate_per_slot: float, budget: int) -> float:
    r"""Return E[Q] of Q' = max(Q + A - b, 0), A ~ Poisson(lambda), lambda < b.

    Two exact forms, chosen by precision:

        E[Q] = sum_{n>=1} E[(S_n - n b)^+]/n,  S_n ~ Poisson(n lambda)                        (Spitzer)
        E[Q] = sum_{j=1..b-1} 1/(1 - z_j) + (lambda^2 - b (b - 1))/(2 (b - lambda)),
               z_j = -(b/lambda) W0(-(lambda/b) e^{-lambda/b} e^{2 pi i j/b})                 (roots)

    Parameters
    ----------
    rate_per_slot
        lambda, 0 <= lambda < b.
    budget
        b, whole, at least 1.

    Raises
    ------
    InputError
        lambda >= b (the queue grows without limit) or a parameter outside its domain.

    Examples
    --------
    >>> round(mean_queue(3, 4), 3)
    0.801
    >>> round(mean_queue(0.5, 1), 12)  # M/D/1: lambda^2/(2 (1 - lambda))
    0.25
    """
    rate, servers = nonnegative("rate_per_slot", rate_per_slot), positive_int("budget", budget)
    if rate >= servers:
        raise InputError(
            f"rate_per_slot is {rate_per_slot!r} with budget {servers}; expected a rate below the budget, "
            "else the queue grows without limit"
        )
    if rate == 0:
        return 0.0
    decay = servers * math.log(servers / rate) - (servers - rate)
    return _spitzer(rate, servers, decay) if decay >= _SLOW_DECAY else _roots(rate, servers)


def _spitzer(rate: float, servers: int, decay: float) -> float:
    """Sum the series; its terms fall at least as fast as exp(-n decay), so 45/decay of them reach double precision."""
    from scipy.special import gammainc, gammaln

    n = np.arange(1, math.ceil(45 / decay) + 2, dtype=float)
    level, mean = n * servers, n * rate
    # E[(X - m)^+] = (mu - m) P(X >= m) + m P(X = m) for X ~ Poisson(mu), P(X >= m) = gammainc(m, mu)
    point = np.exp(level * np.log(mean) - mean - gammaln(level + 1))
    excess = (mean - level) * gammainc(level, mean) + level * point
    return math.fsum(np.maximum(excess, 0.0) / n)


def _roots(rate: float, servers: int) -> float:
    from scipy.special import lambertw

    share = rate / servers
    angles = np.exp(2j * np.pi * np.arange(1, servers) / servers)
    z = -lambertw(-share * np.exp(-share) * angles) / share
    return float(np.sum(1 / (1 - z)).real) + (rate * rate - servers * (servers - 1)) / (2 * (servers - rate))
