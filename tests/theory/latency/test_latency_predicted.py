"""Scheduling by predictions: closed forms in Bessel functions, limits, one bit, a simulation."""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass

import numpy as np
import pytest
from scipy import integrate, special, stats

from tileq_theory import InputError
from tileq_theory.latency import (
    ExponentialPrediction,
    LogNormalPrediction,
    Predictor,
    ServiceLaw,
    best_threshold,
    mg1,
    mg1_predicted,
    one_bit,
)

UNIT = ServiceLaw.exponential(1.0)


def bessel(policy: str, rate: float) -> float:
    """Exp(1) sizes, exponential predictions: f_p = 2 K0(z), E[S; Y > y] = 2 y K2(z), E[S^2; Y > y] = 2 y^1.5 K3(z)."""

    def kernel(y: float) -> float:
        z = 2 * math.sqrt(y)
        idle = 1 - rate * (1 - 2 * y * special.kv(2, z))
        if policy == "spjf":
            return 2 * special.kv(0, z) * rate / idle**2
        waiting = rate * (2 - 2 * y**1.5 * special.kv(3, z)) / (2 * idle**2)
        return 2 * special.kv(0, z) * waiting + 2 * math.sqrt(y) * special.kv(1, z) / idle

    value = sum(integrate.quad(kernel, a, b, limit=200)[0] for a, b in ((0, 1e-3), (1e-3, 1), (1, 20), (20, 400)))
    return value + (1 if policy == "spjf" else 0)


@pytest.mark.parametrize("rate", [0.3, 0.5, 0.7, 0.9])
@pytest.mark.parametrize("policy", ["spjf", "pspjf"])
def test_exponential_predictions_in_closed_form(policy: str, rate: float) -> None:
    answer = mg1_predicted(policy, rate_per_s=rate, service=UNIT, predictor=ExponentialPrediction())
    assert answer.response_s == pytest.approx(bessel(policy, rate), rel=1e-7)


@pytest.mark.parametrize(("policy", "exact"), [("spjf", "sjf"), ("pspjf", "psjf"), ("sprpt", "srpt")])
def test_better_predictions_come_nearer_to_exact_sizes(policy: str, exact: str) -> None:
    best = mg1(exact, rate_per_s=0.7, service=UNIT).response_s
    means = [
        mg1_predicted(policy, rate_per_s=0.7, service=UNIT, predictor=LogNormalPrediction(s)).response_s
        for s in (0.15, 0.3, 0.6)
    ]
    assert best < means[0] < means[1] < means[2]
    # the loss is of second order in sigma
    assert (means[1] - best) / (means[0] - best) == pytest.approx(4, rel=0.35)


def test_a_bias_common_to_all_changes_nothing() -> None:
    for policy in ("spjf", "pspjf"):  # remaining predicted size does depend on the scale
        one, other = (
            mg1_predicted(policy, rate_per_s=0.7, service=UNIT, predictor=LogNormalPrediction(0.5, bias)).response_s
            for bias in (0.0, 1.3)
        )
        assert one == pytest.approx(other, rel=1e-8)


@dataclass(frozen=True, slots=True)
class Blind(Predictor):
    """Predictions that know nothing of the size."""

    def density(self, y: np.ndarray, x: np.ndarray) -> np.ndarray:
        return np.exp(-y) * np.ones_like(x)

    def cdf(self, y: np.ndarray, x: np.ndarray) -> np.ndarray:
        return -np.expm1(-y) * np.ones_like(x)

    @property
    def spread(self) -> tuple[float, float]:
        return 1e-6, 60.0

    def sample(self, x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return rng.exponential(1.0, x.size)


def test_blind_predictions_are_first_come_first_served() -> None:
    """An order that does not look at sizes has FIFO's mean, without preemption for every law."""
    law = ServiceLaw.from_distribution(stats.gamma(2.0))
    blind = mg1_predicted("spjf", rate_per_s=0.35, service=law, predictor=Blind())
    assert blind.response_s == pytest.approx(mg1("fifo", rate_per_s=0.35, service=law).response_s, rel=1e-8)
    memoryless = mg1_predicted("pspjf", rate_per_s=0.7, service=UNIT, predictor=Blind())
    assert memoryless.response_s == pytest.approx(1 / 0.3, rel=1e-8)  # exponential: also with preemption


def simulated(policy: str, arrivals: np.ndarray, sizes: np.ndarray, called: np.ndarray) -> np.ndarray:
    done, heap, now, i = np.empty(sizes.size), [], 0.0, 0
    while i < sizes.size or heap:
        if not heap:
            now = max(now, arrivals[i])
        while i < sizes.size and arrivals[i] <= now:
            heapq.heappush(heap, (called[i], i, sizes[i]))
            i += 1
        key, job, left = heapq.heappop(heap)
        until = arrivals[i] if i < sizes.size and policy != "spjf" else math.inf
        run = min(left, until - now)
        now += run
        if run >= left - 1e-14:
            done[job] = now - arrivals[job]
        else:
            heapq.heappush(heap, (key - run if policy == "sprpt" else key, job, left - run))
    return done


@pytest.mark.parametrize("policy", ["pspjf", "sprpt"])
@pytest.mark.parametrize("predictor", [ExponentialPrediction(), LogNormalPrediction(0.8)], ids=["exp", "lognormal"])
def test_against_simulation(policy: str, predictor: Predictor) -> None:
    """Four cases at 0.1 % each, 24 replications: family-wise false-alarm rate at most 0.4 %."""
    rng, law, rate = np.random.default_rng(11), stats.gamma(1.5), 0.4
    means = []
    for _ in range(24):
        arrivals, sizes = np.cumsum(rng.exponential(1 / rate, 5000)), law.rvs(5000, random_state=rng)
        means.append(simulated(policy, arrivals, sizes, predictor.sample(sizes, rng))[400:].mean())
    service = ServiceLaw.from_distribution(law)
    expected = mg1_predicted(policy, rate_per_s=rate, service=service, predictor=predictor).response_s
    half = stats.t.ppf(0.9995, 23) * np.std(means, ddof=1) / math.sqrt(24)
    assert abs(np.mean(means) - expected) < half < 0.1 * expected


def test_one_bit_by_hand() -> None:
    """Exp(1), threshold 1, rate .8, right bits: shares, loads and second moments in closed form."""
    rate, e = 0.8, math.exp(-1)
    work_short, square_short = 1 - 2 * e, 2 - 5 * e
    rho_s = rate * work_short
    short_wait, long_wait = rate / (1 - rho_s), rate / ((1 - rho_s) * 0.2)  # lambda E[S^2]/2 = rate
    answer = one_bit(rate_per_s=rate, service=UNIT, threshold_s=1.0)
    assert answer.short_share == pytest.approx(1 - e, rel=1e-9)
    assert answer.response_s == pytest.approx(1 + (1 - e) * short_wait + e * long_wait, rel=1e-9)
    first = one_bit(rate_per_s=rate, service=UNIT, threshold_s=1.0, preemptive=True)
    assert first.short_response_s == pytest.approx(
        work_short / (1 - e) + rate * square_short / (2 * (1 - rho_s)), rel=1e-9
    )
    assert first.long_response_s == pytest.approx(2 / (1 - rho_s) + long_wait, rel=1e-9)
    front = one_bit(rate_per_s=rate, service=UNIT, threshold_s=1.0, preemptive=True, within="front")
    assert front.short_response_s == pytest.approx(work_short / (1 - e) / (1 - rho_s), rel=1e-9)


def test_one_bit_extremes_are_fifo_and_best_is_between() -> None:
    fifo, sjf = (mg1(p, rate_per_s=0.8, service=UNIT).response_s for p in ("fifo", "sjf"))
    for threshold in (1e-9, 1e4):
        assert one_bit(rate_per_s=0.8, service=UNIT, threshold_s=threshold).response_s == pytest.approx(fifo, rel=1e-6)
    best = best_threshold(rate_per_s=0.8, service=UNIT)
    noisy = best_threshold(rate_per_s=0.8, service=UNIT, predictor=ExponentialPrediction())
    assert sjf < best.response_s < noisy.response_s < fifo


def test_bad_input_is_named() -> None:
    with pytest.raises(InputError, match="did you mean spjf"):
        mg1_predicted("spj", rate_per_s=0.5, service=UNIT, predictor=ExponentialPrediction())
    with pytest.raises(InputError, match="load"):
        mg1_predicted("spjf", rate_per_s=1.5, service=UNIT, predictor=ExponentialPrediction())
    with pytest.raises(InputError, match="second moment"):
        heavy = ServiceLaw.from_distribution(stats.pareto(1.5))
        mg1_predicted("spjf", rate_per_s=0.1, service=heavy, predictor=ExponentialPrediction())
    with pytest.raises(InputError, match="sigma is 0"):
        LogNormalPrediction(0.01)
    with pytest.raises(InputError, match="threshold_s"):
        one_bit(rate_per_s=0.5, service=UNIT, threshold_s=0.0)
