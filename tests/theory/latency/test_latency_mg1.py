"""M/G/1 with known sizes: published means, textbook cases, identities, and a simulation."""

from __future__ import annotations

import heapq
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tileq_theory import InputError
from tileq_theory.latency import ServiceLaw, mg1, mg1_by_size, priority_classes, waiting_law
from tileq_theory.lengths import Geometric, LogNormal, Uniform

POLICIES = ("fifo", "sjf", "psjf", "srpt")
TABLE = {
    0.5: (2.0, 1.7127, 1.5314, 1.4254),
    0.7: (3.3333, 2.3122, 2.0839, 1.8746),
    0.9: (10.0, 4.1969, 4.0518, 3.5521),
}


@pytest.mark.parametrize("load", TABLE)
def test_published_means_of_exponential_service(load: float) -> None:
    law = ServiceLaw.exponential(1.0)
    for policy, expected in zip(POLICIES, TABLE[load], strict=True):
        assert mg1(policy, rate_per_s=load, service=law).response_s == pytest.approx(expected, abs=5.1e-5)


def test_constant_service_makes_all_policies_the_same() -> None:
    law, rate = ServiceLaw.deterministic(0.5), 1.2
    expected = 0.5 + rate * 0.25 / (2 * (1 - 0.6))
    for policy in POLICIES:
        answer = mg1(policy, rate_per_s=rate, service=law)
        assert answer.response_s == pytest.approx(expected, rel=1e-12)
        assert answer.in_system == pytest.approx(1.05, rel=1e-12)  # one-token jobs with unit budget, M/D/1


def test_two_sizes_by_hand() -> None:
    """Sizes 1 and 3 with equal shares, rate 1/4: load 1/2; each formula in rational numbers."""
    law = ServiceLaw.discrete([1.0, 3.0], [0.5, 0.5])
    by_policy = {p: mg1_by_size(p, rate_per_s=0.25, service=law).response_s for p in POLICIES}
    second = 0.25 * 5  # lambda E[S^2]
    assert by_policy["fifo"] == pytest.approx([1 + second, 3 + second])
    assert by_policy["sjf"] == pytest.approx([1 + second / (2 * 0.875), 3 + second / (2 * 0.875 * 0.5)])
    assert by_policy["psjf"] == pytest.approx([1 + 0.125 / (2 * 0.875), 3 / 0.875 + second / (2 * 0.875 * 0.5)])
    # SRPT: a job of size 3 counts as 1 for a job of size 1 once it has 1 left; residence 1 + 2/(7/8)
    small = 1 + (0.125 + 0.25 * 0.5) / (2 * 0.875)
    assert by_policy["srpt"] == pytest.approx([small, 1 + 2 / 0.875 + second / (2 * 0.875 * 0.5)])


def test_nonpreemptive_shortest_first_is_cobham_with_a_class_a_size() -> None:
    sizes, shares = np.array([0.2, 0.5, 1.0, 2.5]), np.array([0.4, 0.3, 0.2, 0.1])
    law, rate = ServiceLaw.discrete(sizes, shares), 1.1
    classes = priority_classes(list(rate * shares), [ServiceLaw.deterministic(x) for x in sizes])
    assert mg1_by_size("sjf", rate_per_s=rate, service=law).response_s == pytest.approx(classes.response_s, rel=1e-12)
    ahead = priority_classes(list(rate * shares), [ServiceLaw.deterministic(x) for x in sizes], preemptive=True)
    assert mg1_by_size("psjf", rate_per_s=rate, service=law).response_s == pytest.approx(ahead.response_s, rel=1e-12)


@pytest.mark.parametrize(
    "law",
    [
        stats.gamma(0.4),
        stats.gamma(0.05),
        stats.weibull_min(0.6),
        stats.lognorm(1.2),
        stats.uniform(1, 2),
        stats.pareto(2.5),
        stats.erlang(3),
    ],
    ids=["gamma", "singular", "weibull", "lognormal", "uniform", "pareto", "erlang"],
)
def test_moments_and_order_of_policies_for_any_law(law: stats.rv_continuous) -> None:
    built = ServiceLaw.from_distribution(law)
    mean, second = float(law.mean()), float(law.var() + law.mean() ** 2)
    assert built.mean_s == pytest.approx(mean, rel=1e-9)
    assert built.second_moment_s2 == pytest.approx(second, rel=1e-7)
    rate = 0.8 / mean
    means = [mg1(p, rate_per_s=rate, service=built).response_s for p in POLICIES]
    assert means[0] == pytest.approx(mean + rate * second / (2 * 0.2), rel=1e-7)
    assert means[3] <= min(means) + 1e-12  # SRPT is optimal (Schrage)
    assert means[1] <= means[0]


@pytest.mark.parametrize("law", [stats.gamma(2.0), stats.lognorm(0.8), stats.uniform(0.5, 1.5)])
def test_mean_response_of_srpt_by_independent_quadrature(law: stats.rv_continuous) -> None:
    """Truncated moments and both integrals by scipy's adaptive quadrature instead of panels."""
    from scipy.integrate import quad, solve_ivp

    rate = 0.7 / law.mean()
    low, high = law.ppf(0) if law.ppf(0) > 0 else 0.0, law.ppf(1 - 1e-13)

    def slope(x: float, y: np.ndarray) -> np.ndarray:  # rho, m, R and the integral of T dF along x
        rho, m, r, _ = y
        response = r + (m + rate * x * x * law.sf(x)) / (2 * (1 - rho) ** 2)
        return np.array([rate * x * law.pdf(x), rate * x * x * law.pdf(x), 1 / (1 - rho), response * law.pdf(x)])

    start = [0.0, 0.0, low, 0.0]  # below the least size nothing preempts
    end = solve_ivp(slope, (low, high), start, method="DOP853", rtol=1e-11, atol=1e-13).y[3, -1]
    assert mg1("srpt", rate_per_s=rate, service=ServiceLaw.from_distribution(law)).response_s == pytest.approx(
        end, rel=1e-7
    )
    assert quad(law.pdf, low, high)[0] == pytest.approx(1.0, abs=1e-7)


def test_lengths_in_tokens_become_exact_atoms() -> None:
    for lengths in (Uniform(10, 1600), Geometric(200), LogNormal(5.0, 1.0), LogNormal(8.0, 1.6)):
        law = ServiceLaw.from_lengths(lengths, seconds_per_token=0.01, setup_s=0.2)
        assert law.mean_s == pytest.approx(0.2 + 0.01 * lengths.mean(), rel=1e-9)
        second = 0.04 + 0.004 * lengths.mean() + 1e-4 * lengths.second_moment()
        assert law.second_moment_s2 == pytest.approx(second, rel=2e-6)


def simulate(policy: str, arrivals: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Event simulation of one server with exact sizes; returns responses in order of arrival."""
    done, heap, now, i = np.empty(sizes.size), [], 0.0, 0
    while i < sizes.size or heap:
        if not heap:
            now = max(now, arrivals[i])
        while i < sizes.size and arrivals[i] <= now:
            heapq.heappush(heap, [sizes[i], i, sizes[i]])
            i += 1
        key, job, left = heapq.heappop(heap)
        until = arrivals[i] if i < sizes.size and policy != "sjf" else math.inf
        run = min(left, until - now)
        now += run
        if run >= left - 1e-15:
            done[job] = now - arrivals[job]
            continue
        heapq.heappush(heap, [left - run if policy == "srpt" else key, job, left - run])
    return done


@pytest.mark.parametrize("policy", ["sjf", "psjf", "srpt"])
def test_against_simulation(policy: str) -> None:
    """Batch means over 24 replications; three policies at 0.1 % each: family-wise false-alarm rate at most 0.3 %."""
    rng, law = np.random.default_rng(7), stats.lognorm(1.0)
    rate = 0.6 / law.mean()
    means = []
    for _ in range(24):
        n = 6000
        arrivals = np.cumsum(rng.exponential(1 / rate, n))
        means.append(simulate(policy, arrivals, law.rvs(n, random_state=rng))[500:].mean())
    expected = mg1(policy, rate_per_s=rate, service=ServiceLaw.from_distribution(law)).response_s
    half = stats.t.ppf(1 - 0.0005, 23) * np.std(means, ddof=1) / math.sqrt(24)
    assert abs(np.mean(means) - expected) < half
    assert half < 0.1 * expected  # an interval that could not tell a wrong formula would prove nothing


@given(scale=st.floats(0.01, 100.0), load=st.floats(0.05, 0.95), policy=st.sampled_from(POLICIES))
@settings(max_examples=25, deadline=None)
def test_time_unit_only_scales_the_answer(scale: float, load: float, policy: str) -> None:
    law = ServiceLaw.discrete([0.1, 1.0, 4.0], [0.5, 0.3, 0.2])
    one = mg1(policy, rate_per_s=load / law.mean_s, service=law)
    other = mg1(policy, rate_per_s=load / law.mean_s / scale, service=law.affine(scale))
    assert other.response_s == pytest.approx(scale * one.response_s, rel=1e-9)
    assert other.in_system == pytest.approx(one.in_system, rel=1e-9)


def test_bad_input_is_named() -> None:
    law = ServiceLaw.exponential(1.0)
    with pytest.raises(InputError, match=r"load rate_per_s \* E\[S\] is 1"):
        mg1("fifo", rate_per_s=1.0, service=law)
    with pytest.raises(InputError, match="rate_per_s is -1"):
        mg1("srpt", rate_per_s=-1.0, service=law)
    with pytest.raises(InputError, match="did you mean srpt"):
        mg1("srtp", rate_per_s=0.5, service=law)
    heavy = ServiceLaw.from_distribution(stats.pareto(1.5))
    with pytest.raises(InputError, match="no finite second moment"):
        mg1("fifo", rate_per_s=0.1, service=heavy)
    assert math.isfinite(mg1("srpt", rate_per_s=0.2, service=heavy).response_s)  # needs the mean only
    with pytest.raises(InputError, match="no finite mean"):
        ServiceLaw.from_distribution(stats.pareto(0.9))
    with pytest.raises(InputError, match="sizes of 0 or more"):
        ServiceLaw.from_distribution(stats.norm(1.0, 1.0))
    with pytest.raises(InputError, match="sum to"):
        ServiceLaw.discrete([1.0], [0.9])


def test_waiting_law_of_exponential_service() -> None:
    """M/M/1: P(W > t) = rho exp(-(1 - rho) t), inside the bounds and at the middle."""
    rho = 0.7
    law = waiting_law(rate_per_s=rho, service=ServiceLaw.exponential(1.0), horizon_s=20.0)
    exact = rho * np.exp(-(1 - rho) * law.times_s)
    assert (law.lower <= exact + 1e-12).all() and (exact <= law.upper + 1e-12).all()
    assert np.abs(law.tail - exact).max() < 1e-6


def test_waiting_law_of_constant_service() -> None:
    """M/D/1: P(W <= t) for t < d is (1 - rho) exp(lambda t); its mean is Pollaczek-Khinchine's."""
    law = waiting_law(rate_per_s=0.8, service=ServiceLaw.deterministic(1.0), horizon_s=60.0, steps=6000)
    first = law.times_s < 1
    exact = 1 - 0.2 * np.exp(0.8 * law.times_s[first])
    assert (law.lower[first] <= exact + 1e-12).all() and (exact <= law.upper[first] + 1e-12).all()
    mean = float(np.trapezoid(law.tail, law.times_s))
    assert mean == pytest.approx(0.8 / (2 * 0.2), rel=1e-4)


def test_waiting_quantile_beyond_the_horizon_is_refused() -> None:
    law = waiting_law(rate_per_s=0.9, service=ServiceLaw.exponential(1.0), horizon_s=5.0, steps=200)
    assert law.quantile(0.05) == 0.0
    with pytest.raises(InputError, match="beyond the horizon"):
        law.quantile(0.99)


def test_mixture_of_densities_and_atoms_is_one_law() -> None:
    """Two exponentials and an atom against the same law given as one density, with the atom apart."""
    parts = [ServiceLaw.exponential(1.0), ServiceLaw.exponential(5.0)]
    mixed = ServiceLaw.mixture(parts, [0.6, 0.4])

    class Hyper:
        def pdf(self, x: np.ndarray) -> np.ndarray:
            return 0.6 * np.exp(-x) + 0.08 * np.exp(-x / 5)

        def sf(self, x: np.ndarray) -> np.ndarray:
            return 0.6 * np.exp(-x) + 0.4 * np.exp(-x / 5)

        def cdf(self, x: np.ndarray) -> np.ndarray:
            return 1 - self.sf(x)

        def ppf(self, q: np.ndarray) -> np.ndarray:
            grid = np.concatenate([[0.0], np.geomspace(1e-9, 500, 4000)])
            return np.interp(q, self.cdf(grid), grid)

        def support(self) -> tuple[float, float]:
            return 0.0, math.inf

    whole = ServiceLaw.from_distribution(Hyper())
    for policy in POLICIES:
        one, other = (mg1(policy, rate_per_s=0.3, service=law).response_s for law in (mixed, whole))
        assert one == pytest.approx(other, rel=1e-9)
    with_atom = ServiceLaw.mixture([mixed, ServiceLaw.deterministic(2.0)], [0.5, 0.5])
    assert with_atom.mean_s == pytest.approx((2.6 + 2.0) / 2)
    assert with_atom.second_moment_s2 == pytest.approx((0.6 * 2 + 0.4 * 50 + 4.0) / 2)
    before, after = with_atom.survival(np.array([2.0 - 1e-9, 2.0]))
    assert before - after == pytest.approx(0.5, abs=1e-8)
