r"""M/G/1 scheduled by predicted sizes: SPJF, PSPJF, SPRPT.

g(x, y) is the joint law of true and predicted size, f_p the density of predictions, rho(y) = lambda E[S; Y <= y],
m(y) = lambda E[S^2; Y <= y]. Mean response:

    SPJF   E[S] + (lambda E[S^2]/2) int f_p(y)/(1 - rho(y))^2 dy
    PSPJF  int [f_p(y) m(y)/(2 (1 - rho(y))^2) + E[S; Y in dy]/(1 - rho(y))]
    SPRPT  int int g(x, y) [(m(y) + lambda a(y))/(2 (1 - rho(y))^2) + int_0^x dz/(1 - rho((y - z)^+))] dx dy,
           a(y) = E[((S - (Y - y))^+)^2; Y > y]

Under SPRPT a job served longer than predicted has a rank below every newcomer's and is not preempted any more.
Sources: Mitzenmacher (ITCS 2020), the survey arXiv 2503.07545, and the SOAP analysis (Scully, Harchol-Balter,
Scheller-Wolf 2018) for SPRPT.
"""

from __future__ import annotations

__all__ = ["PREDICTED_POLICIES", "mg1_predicted"]

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from tileq_theory.errors import InputError, near_matches
from tileq_theory.latency.mg1 import Mg1
from tileq_theory.latency.predictors import Predictor
from tileq_theory.latency.quadrature import gauss, running_integral
from tileq_theory.latency.service import ServiceLaw, stable_load

PREDICTED_POLICIES = ("spjf", "pspjf", "sprpt")
_NEGLIGIBLE = 1e-11  # share of the second moment (or of the mean, where there is none) that may be left out


@dataclass(frozen=True, slots=True, eq=False)
class _Joint:
    """Panels over predictions y: masses and the moments of the true size, at the nodes and cumulated."""

    y: Float[np.ndarray, "node"]
    mass: Float[np.ndarray, "node"]
    work: Float[np.ndarray, "node"]
    work_below: Float[np.ndarray, "node"]
    square_below: Float[np.ndarray, "node"]
    left: Float[np.ndarray, "panel"]
    right: Float[np.ndarray, "panel"]
    x: Float[np.ndarray, "size"]
    x_mass: Float[np.ndarray, "size"]
    pair_mass: Float[np.ndarray, "node size"]


def mg1_predicted(policy: str, *, rate_per_s: float, service: ServiceLaw, predictor: Predictor) -> Mg1:
    """Return the mean response of an M/G/1 queue scheduled by predictions.

    Parameters
    ----------
    policy
        "spjf" (shortest predicted first), "pspjf" (preemptive) or "sprpt" (shortest predicted remaining).
    rate_per_s, service
        lambda >= 0 and the law of true sizes, lambda E[S] < 1; SPJF needs a second moment.
    predictor
        Law of the prediction given the size.

    Raises
    ------
    InputError
        An unknown policy, a load of 1 or more, or a law without the moments needed.

    Examples
    --------
    >>> from tileq_theory.latency.predictors import ExponentialPrediction
    >>> law = ServiceLaw.exponential(1.0)
    >>> [round(mg1_predicted(p, rate_per_s=0.5, service=law, predictor=ExponentialPrediction()).response_s, 4)
    ...  for p in PREDICTED_POLICIES]
    [1.7948, 1.6637, 1.6583]
    """
    if policy not in PREDICTED_POLICIES:
        raise InputError(f"policy {policy!r} is not known; {near_matches('policies', policy, PREDICTED_POLICIES)}")
    rate, load = stable_load(rate_per_s, service)
    joint = _joint(service, predictor)
    idle = 1 - rate * joint.work_below
    if policy == "spjf":
        second = service.finite_second_moment("SPJF")
        response = service.mean_s + rate * second / 2 * float(joint.mass @ idle**-2)
    elif policy == "pspjf":
        response = float(joint.mass @ (rate * joint.square_below / (2 * idle**2))) + float(joint.work @ (1 / idle))
    else:
        response = _sprpt(rate, joint, idle, predictor)
    return Mg1(policy, load, response, max(response - service.mean_s, 0.0), rate * response)


def _sprpt(rate: float, joint: _Joint, idle: np.ndarray, predictor: Predictor) -> float:
    from scipy.interpolate import CubicHermiteSpline

    overrun = predictor.overrun(joint.y[:, None], joint.x[None, :]) @ joint.x_mass
    waiting = float(joint.mass @ (rate * (joint.square_below + overrun) / (2 * idle**2)))
    slow = 1 / idle
    half = (joint.right - joint.left) / 2
    table = slow.reshape(half.size, -1)
    totals = (table @ gauss()[1]) * half
    before = joint.left[0] + np.concatenate([[0.0], np.cumsum(totals)[:-1]])  # rho is 0 below the first panel
    running = (before[:, None] + table @ running_integral().T * half[:, None]).ravel()
    spline = CubicHermiteSpline(
        np.concatenate([[0.0], joint.y]), np.concatenate([[0.0], running]), np.append(1.0, slow)
    )
    rest = joint.y[:, None] - joint.x[None, :]
    # beyond its prediction a job runs undisturbed
    served = running[:, None] - spline(np.maximum(rest, 0.0)) + np.maximum(-rest, 0.0)
    return waiting + float(np.sum(joint.pair_mass * served))


def _joint(service: ServiceLaw, predictor: Predictor) -> _Joint:
    x, mass = _sizes(service, predictor.panel_ratio)
    low, high = predictor.spread
    ratio = predictor.panel_ratio
    first, last = max(float(x.min()) * low, 1e-12 * float(mass @ x)), float(x.max()) * high
    count = int(np.ceil(np.log(last / first) / np.log(ratio)))
    edges = np.concatenate([[0.0], np.geomspace(first, last, count + 1)])
    left, right = edges[:-1], edges[1:]
    base, weights = gauss()
    half = (right - left)[:, None] / 2
    nodes = left[:, None] + half * (base + 1)
    y = nodes.ravel()
    with np.errstate(over="ignore", under="ignore"):
        kernel = predictor.density(y[:, None], x[None, :]) * mass[None, :]
    moments = [kernel @ x**k for k in range(3)]
    cumulated = [_running(m, half) for m in moments]
    quad = (half * weights).ravel()
    return _Joint(
        y,
        moments[0] * quad,
        moments[1] * quad,
        cumulated[1],
        cumulated[2],
        left,
        right,
        x,
        mass,
        kernel * quad[:, None],
    )


def _running(values: np.ndarray, half: np.ndarray) -> np.ndarray:
    table = values.reshape(half.size, -1)
    totals = (table @ gauss()[1]) * half[:, 0]
    before = np.concatenate([[0.0], np.cumsum(totals)[:-1]])
    out: np.ndarray = (before[:, None] + table @ running_integral().T * half).ravel()
    return out


def _sizes(service: ServiceLaw, ratio: float) -> tuple[np.ndarray, np.ndarray]:
    """Return sizes and masses fine enough for the predictor: panels cut to the density's relative width."""
    points = service.points()
    x, mass = points.sizes_s, points.masses
    if service.nodes_s.size and ratio < 1.6:
        fine = service.refined(ratio).points()
        x, mass = fine.sizes_s, fine.masses
    # job sizes so small that they bring nothing to any moment only cost time
    weight = mass * (x if service.heavy else x * x)
    order = np.argsort(x)
    tail = np.cumsum(weight[order][::-1])[::-1] / weight.sum()
    keep = np.zeros(x.size, dtype=bool)
    keep[order] = (np.cumsum(mass[order]) > 1e-9) & (tail > _NEGLIGIBLE)
    keep &= mass > 0
    return x[keep], mass[keep]
