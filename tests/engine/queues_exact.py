r"""Exact queues that referee the simulator: mean response times in closed form or by one integral.

Service S with density f, tail F^c, load rho = lambda E[S], rho(x) = lambda int_0^x t f(t) dt:

    FCFS  E[T] = lambda E[S^2] / (2 (1 - rho)) + E[S]                                  Pollaczek-Khinchine
    SJF   E[T] = E[S] + (lambda E[S^2]/2) int f(x) / (1 - rho(x))^2 dx                 non-preemptive
    PSJF  E[T(x)] = (lambda/2) int_0^x t^2 f / (1 - rho(x))^2 + x / (1 - rho(x))       preemptive, by size
    SRPT  E[T(x)] = (lambda/2) (int_0^x t^2 f + x^2 F^c(x)) / (1 - rho(x))^2 + int_0^x dt / (1 - rho(t))

Sources: Mitzenmacher and Shahout, arXiv 2503.07545 (table of the four orders at Exp(1) service); Cobham 1954
(two classes); Inoue, arXiv 1912.06322 (dynamic batching).
"""

from __future__ import annotations

import math

import numpy as np
from scipy.integrate import quad
from scipy.stats import poisson


def mm1_response(lam: float, mu: float) -> float:
    """M/M/1: E[T] = 1/(mu - lambda)."""
    return 1.0 / (mu - lam)


def mg1_fcfs_response(lam: float, mean: float, second: float) -> float:
    """M/G/1 FCFS: lambda E[S^2]/(2(1 - rho)) + E[S]."""
    return lam * second / (2 * (1 - lam * mean)) + mean


def md1_response(lam: float, service: float) -> float:
    """M/D/1: Pollaczek-Khinchine with E[S^2] = service^2."""
    return mg1_fcfs_response(lam, service, service**2)


def mm1k(lam: float, mu: float, k: int) -> tuple[float, float]:
    """M/M/1/K (K places, the server's included): (loss probability, mean response of those admitted)."""
    weights = [(lam / mu) ** n for n in range(k + 1)]
    p = [w / math.fsum(weights) for w in weights]
    in_system = math.fsum(n * q for n, q in enumerate(p))
    return p[k], in_system / (lam * (1 - p[k]))


def priority_waits(lam1: float, lam2: float, mu: float) -> tuple[float, float]:
    """Two-class non-preemptive M/M/1 (Cobham): mean waits, class 1 first. R = sum lambda_i E[S^2]/2 = rho/mu."""
    r1, r2 = lam1 / mu, lam2 / mu
    residual = (r1 + r2) / mu
    return residual / (1 - r1), residual / ((1 - r1) * (1 - r1 - r2))


def _exp_load(lam: float, x: float) -> float:
    """rho(x) for Exp(1): lambda (1 - (1 + x) e^-x)."""
    return lam * (1 - (1 + x) * math.exp(-x))


def _exp_second(x: float) -> float:
    """int_0^x t^2 e^-t dt."""
    return 2 - (x * x + 2 * x + 2) * math.exp(-x)


def _over_exp1(of_size: object) -> float:
    value, _ = quad(lambda x: of_size(x) * math.exp(-x), 0, 60, limit=400, epsabs=1e-12, epsrel=1e-11)  # type: ignore[operator]
    return float(value)


def exp1_sjf(lam: float) -> float:
    """Mean response, Exp(1) service, shortest job first without preemption."""
    return 1 + lam * _over_exp1(lambda x: (1 - _exp_load(lam, x)) ** -2)


def exp1_psjf(lam: float) -> float:
    """Mean response, Exp(1) service, preemptive shortest job first (by original size)."""

    def of_size(x: float) -> float:
        free = 1 - _exp_load(lam, x)
        return lam * _exp_second(x) / 2 / free**2 + x / free

    return _over_exp1(of_size)


def exp1_srpt(lam: float) -> float:
    """Mean response, Exp(1) service, shortest remaining processing time."""

    def waiting(x: float) -> float:
        return lam * (_exp_second(x) + x * x * math.exp(-x)) / 2 / (1 - _exp_load(lam, x)) ** 2

    # E[int_0^S dt/(1 - rho(t))] = int F^c(t)/(1 - rho(t)) dt, which spares a nested integral
    return _over_exp1(waiting) + _over_exp1(lambda t: 1 / (1 - _exp_load(lam, t)))


def inoue_response(lam: float, alpha: float, tau0: float) -> float:
    """Dynamic batching, take all, service alpha B + tau0: mean response from the chain B' = A + 1{A = 0}."""
    size = 64
    while True:
        b = np.arange(1, size + 1)
        means = lam * (alpha * b + tau0)
        step = poisson.pmf(np.arange(0, size + 1)[None, :], means[:, None])
        chain = step[:, 1:].copy()
        chain[:, 0] += step[:, 0]
        chain[:, -1] += 1 - chain.sum(axis=1)  # what lies beyond the cut joins the last state
        law = np.linalg.solve((chain.T - np.eye(size) + np.ones((size, size))), np.ones(size))
        if law[-1] < 1e-14:
            first, second = float(law @ b), float(law @ (b * b))
            return alpha + tau0 + (1 + 2 * lam * alpha) * (second - first) / (2 * lam * first)
        size *= 2


def inoue_bound(lam: float, alpha: float, tau0: float) -> float:
    """Inoue's upper bound min(phi0, phi1) of the mean response."""
    phi0 = (alpha + tau0) / (2 * (1 - lam * alpha)) * (1 + 2 * lam * tau0 + (1 - lam * tau0) / (1 + lam * alpha))
    phi1 = 1.5 * tau0 / (1 - lam * alpha) + alpha / 2 * (lam * alpha + 2) / (1 - (lam * alpha) ** 2)
    return min(phi0, phi1)
