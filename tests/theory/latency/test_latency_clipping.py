"""Token clipping, impatience, sizing, several servers and bounded queues."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tileq_theory import InputError
from tileq_theory.flow_control import mean_queue
from tileq_theory.latency import (
    ServiceLaw,
    SizingModel,
    TokenClipping,
    bounded_queue,
    erlang_b,
    erlang_c,
    fixed_patience,
    impatient_queue,
    lognormal_clipped_moment,
    many_servers,
    mg1,
    mg_c,
    priority_classes,
    stationary,
)
from tileq_theory.lengths import Uniform

YANG = TokenClipping.lognormal(7.0, 0.7, seconds_per_token=0.0225, rate_per_s=1 / 40)


# 55.28547 to five decimals, by the closed form and by 15-digit quadrature alike; published as 55.286
@pytest.mark.parametrize(
    ("limit", "load", "waiting"), [(800, 0.4017, 5.650), (1600, 0.6091, 22.319), (3000, 0.7336, 55.286)]
)
def test_published_clipping(limit: int, load: float, waiting: float) -> None:
    queue = YANG.at(limit)
    assert queue.load == pytest.approx(load, abs=5.1e-5)
    assert queue.waiting_s == pytest.approx(waiting, abs=6e-4)


@given(st.floats(10.0, 50000.0), st.floats(3.0, 8.0), st.floats(0.2, 1.4))
@settings(max_examples=25, deadline=None)
def test_truncated_moments_are_the_closed_form(limit: float, mu: float, sigma: float) -> None:
    model = TokenClipping.lognormal(mu, sigma, seconds_per_token=0.01, rate_per_s=1e-6)
    law = model.service(limit)
    assert law.mean_s == pytest.approx(0.01 * lognormal_clipped_moment(mu, sigma, limit, 1), rel=1e-8)
    assert law.second_moment_s2 == pytest.approx(1e-4 * lognormal_clipped_moment(mu, sigma, limit, 2), rel=1e-8)


def test_whole_token_laws_clip_exactly() -> None:
    tokens = ServiceLaw.from_lengths(Uniform(1, 100), seconds_per_token=1.0)
    queue = TokenClipping(tokens, 0.01, 0.5).at(60)
    values = np.minimum(np.arange(1, 101), 60)
    assert queue.load == pytest.approx(0.5 * 0.01 * values.mean(), rel=1e-12)
    assert queue.clipped_share == pytest.approx(0.4, rel=1e-12)
    assert queue.lost_tokens == pytest.approx(50.5 - values.mean(), rel=1e-9)


def test_limit_for_a_waiting_time_and_for_stability() -> None:
    assert YANG.limit_for_waiting(22.318809).limit_tokens == pytest.approx(1600, rel=1e-5)
    assert YANG.largest_stable_limit() == math.inf
    busy = TokenClipping.lognormal(7.0, 0.7, seconds_per_token=0.0225, rate_per_s=1 / 25)
    top = busy.largest_stable_limit()
    assert busy.at(top).load == pytest.approx(1.0, abs=1e-9)
    assert busy.at(0.9 * top).load < 1 < busy.at(1.1 * top).load
    with pytest.raises(InputError, match="no limit helps"):
        TokenClipping.lognormal(7.0, 0.7, seconds_per_token=0.0225, rate_per_s=1.0, setup_s=1.0).largest_stable_limit()


def test_best_limit_beats_its_neighbours() -> None:
    best = YANG.best_limit(loss_weight_s=200.0)
    limit = best.queue.limit_tokens
    for other in (0.8 * limit, 0.97 * limit, 1.03 * limit, 1.3 * limit):
        queue = YANG.at(other)
        assert queue.waiting_s + 200 * queue.lost_share > best.cost
    hurried = YANG.best_limit(loss_weight_s=20.0)
    assert hurried.queue.limit_tokens < limit  # answers worth less are cut shorter


def test_best_limit_with_impatience() -> None:
    short = TokenClipping.lognormal(7.0, 0.7, seconds_per_token=0.0225, rate_per_s=1 / 20)  # overloaded without a limit
    best = short.best_limit(loss_weight_s=40.0, patience_s=60.0)
    assert best.impatient is not None and 0 < best.impatient.leave_share < 1

    def cost(limit: float) -> float:
        served = fixed_patience(rate_per_s=1 / 20, service=short.service(limit), patience_s=60.0, steps=256)
        return served.waiting_s + 40 * (1 - (1 - served.leave_share) * (1 - short.at(limit).lost_share))

    assert 0.01 < best.queue.lost_share < 0.99  # the limit is inside the range
    assert best.cost < min(cost(f * best.queue.limit_tokens) for f in (0.7, 0.9, 1.1, 1.5))


@pytest.mark.parametrize(("rate", "theta"), [(0.5, 1.0), (1.0, 0.5), (3.0, 0.2)])
def test_exponential_impatience_is_a_birth_death_chain(rate: float, theta: float) -> None:
    """M/M/1+M: births lambda, deaths mu + (n - 1) theta; the share that leaves is 1 - mu P(busy)/lambda."""
    n = np.arange(1, 400)
    law = stationary(np.full(n.size, rate), 1 + (n - 1) * theta)
    leave = 1 - (1 - law[0]) / rate
    queue = impatient_queue(
        rate_per_s=rate, service=ServiceLaw.exponential(1.0), patience=lambda u: np.exp(-theta * u), horizon_s=60.0
    )
    assert queue.leave_share == pytest.approx(leave, abs=2e-5)
    assert queue.carried_load == pytest.approx(1 - law[0], abs=2e-5)


@pytest.mark.parametrize("service", [ServiceLaw.exponential(1.0), ServiceLaw.deterministic(1.0)], ids=["M", "D"])
def test_constant_patience_follows_the_loss_formula(service: ServiceLaw) -> None:
    from tileq_theory.latency import waiting_law

    rho, tau = 0.7, 2.5
    omega = float(waiting_law(rate_per_s=rho, service=service, horizon_s=tau, steps=8000).tail[-1])
    exact = (1 - rho) * omega / (1 - rho * omega)
    queue = fixed_patience(rate_per_s=rho, service=service, patience_s=tau)
    assert queue.leave_share == pytest.approx(exact, abs=2e-5)
    assert queue.carried_load == pytest.approx(rho * (1 - queue.leave_share), rel=1e-6)


SIZING = SizingModel(12, 0.05, 0.0005, 128, 512, 48, 128)


def test_published_sizing_point() -> None:
    best = SIZING.largest_rate(ttft_ms=60)
    assert best.rate_per_s == pytest.approx(2.94946, abs=5.1e-6)
    assert (best.waiting_ms, best.in_batch, best.itl_ms) == pytest.approx((14.219, 30.136, 19.905), abs=5.1e-4)
    assert best.ttft_ms == pytest.approx(60, rel=1e-9)


def test_sizing_inverse_finds_the_tighter_limit() -> None:
    both = SIZING.largest_rate(ttft_ms=60, itl_ms=18)
    assert both.itl_ms == pytest.approx(18, rel=1e-9) and both.ttft_ms < 60
    more = SIZING.at(both.rate_per_s * 1.0001)
    assert more.itl_ms > 18
    with pytest.raises(InputError, match="itl_ms is 5"):
        SIZING.largest_rate(itl_ms=5)
    with pytest.raises(InputError, match="no limit"):
        SIZING.largest_rate()


def test_one_state_sizing_is_m_m_1_k() -> None:
    """A batch of one: births lambda, one death rate, K = 1 + Q."""
    model = SizingModel(10, 0.1, 0.0, 64, 32, 1, 9)
    mu = 1000 * float(model.service_rates_per_ms()[0])
    point = model.at(0.8 * mu)
    law = bounded_queue(rate_per_s=0.8 * mu, service_rate_per_s=mu, places=10)
    geometric = 0.8 ** np.arange(11)
    assert law == pytest.approx(geometric / geometric.sum(), rel=1e-12)
    assert point.in_system == pytest.approx(float(law @ np.arange(11)), rel=1e-12)
    assert point.blocked == pytest.approx(law[-1], rel=1e-9)


@given(batch=st.integers(1, 20000), n=st.integers(1, 9000), m=st.integers(1, 2000))
@settings(max_examples=60, deadline=None)
def test_chunks_are_the_least_that_fit(batch: int, n: int, m: int) -> None:
    model = SizingModel(10, 0.1, 0.0, n, m, 8, 8)
    j = model.chunks(batch)
    fits = [(k + m) * (8192 * k - n) >= batch * (n + m) * k for k in (j, j - 1)]
    assert fits[0] and (j == 1 or not fits[1])


def test_erlang_by_direct_sums() -> None:
    for c, a in ((1, 0.3), (3, 2.0), (10, 9.5), (200, 180.0)):
        terms = [math.exp(k * math.log(a) - math.lgamma(k + 1)) for k in range(c + 1)]
        assert erlang_b(c, a) == pytest.approx(terms[-1] / math.fsum(terms), rel=1e-10)
        wait = terms[-1] * c / (c - a)
        assert erlang_c(c, a) == pytest.approx(wait / (math.fsum(terms[:-1]) + wait), rel=1e-10)
    assert bounded_queue(rate_per_s=2.0, service_rate_per_s=1.0, places=3, servers=3)[-1] == pytest.approx(
        erlang_b(3, 2.0)
    )


def test_many_servers_reduces_to_the_exact_cases() -> None:
    law = ServiceLaw.discrete([0.5, 2.0], [0.6, 0.4])
    for formula in ("kimura", "lee-longton"):
        one = mg_c(0.6, 1, law, formula)
        assert one.waiting_s == pytest.approx(mg1("fifo", rate_per_s=0.6, service=law).waiting_s, rel=1e-9)
        assert many_servers(rate_per_s=1.5, servers=2, mean_service_s=1.0, formula=formula).waiting_s == pytest.approx(
            erlang_c(2, 1.5) / 0.5, rel=1e-12
        )
    constant = many_servers(rate_per_s=3.0, servers=4, mean_service_s=1.0, scv=0.0)
    assert constant.waiting_s == pytest.approx(mean_queue(3.0, 4) / 3.0, rel=1e-12) and constant.exact
    # the stated bias of Lee and Longton: too small for constant service, most at light load
    lee = many_servers(rate_per_s=0.04, servers=4, mean_service_s=1.0, scv=0.0, formula="lee-longton")
    true = many_servers(rate_per_s=0.04, servers=4, mean_service_s=1.0, scv=0.0)
    assert lee.waiting_s / true.waiting_s == pytest.approx(5 / 8, rel=0.02)


def test_priorities_conserve_work_and_show_who_starves() -> None:
    laws = [ServiceLaw.exponential(1.0), ServiceLaw.deterministic(2.0), ServiceLaw.discrete([0.5, 4.0], [0.5, 0.5])]
    rates = [0.2, 0.1, 0.1]
    answer = priority_classes(rates, laws)
    loads = np.array([r * law.mean_s for r, law in zip(rates, laws, strict=True)])
    residual = sum(r * law.second_moment_s2 for r, law in zip(rates, laws, strict=True)) / 2
    rho = loads.sum()
    assert float(loads @ answer.waiting_s) == pytest.approx(rho * residual / (1 - rho), rel=1e-12)  # Kleinrock's law
    over = priority_classes([0.2, 0.4, 0.1], laws)
    assert math.isfinite(over.waiting_s[0]) and np.isinf(over.waiting_s[1:]).all()
    # the overloaded second class is always in service: the first meets (1 - .2)/2 jobs of 2 s, half done
    assert over.waiting_s[0] == pytest.approx((0.2 * 2 / 2 + 0.8 * 1.0) / 0.8, rel=1e-12)
    with pytest.raises(InputError, match="first class"):
        priority_classes([1.2, 0.1, 0.1], laws)
    with pytest.raises(InputError, match="2 rates and 3 laws"):
        priority_classes([0.1, 0.1], laws)


def test_bad_numbers_are_named() -> None:
    with pytest.raises(InputError, match="is 2 on 2 server"):
        erlang_c(2, 2.0)
    with pytest.raises(InputError, match="places is 1"):
        bounded_queue(rate_per_s=1.0, service_rate_per_s=1.0, places=1, servers=2)
    with pytest.raises(InputError, match="limit_tokens"):
        YANG.at(-5)
    with pytest.raises(InputError, match="alpha_ms"):
        SizingModel(-1, 0.05, 0.0005, 128, 512, 48, 128)
    with pytest.raises(InputError, match=r"outside \[0, 1\]"):
        impatient_queue(rate_per_s=0.5, service=ServiceLaw.exponential(1.0), patience=lambda u: 2 - u, horizon_s=5.0)


def test_sizing_times_are_positive_with_prompts_beyond_the_budget() -> None:
    """Prompts of several chunks: alone, S = tau(1) and ITL = alpha + w_d/m + nc delta/m."""
    model = SizingModel(12, 0.05, 0.0005, 20000, 40, 16, 10)
    point = model.at(1e-6)
    nc = model.chunks(1)
    assert nc > 1
    decode = 0.05 + 0.0005 * (20000 + 41 / 2)
    alone = 12 + decode + nc * model.token_time_ms(nc) / 40
    assert point.itl_ms == pytest.approx(alone, rel=1e-4)
    assert all(value >= 0 for value in (point.waiting_ms, point.prefill_ms, point.ttft_ms))


@pytest.mark.parametrize("weight", [0.05, 0.5, 20.0, 1e4])
def test_the_best_limit_beats_every_limit_however_small_the_weight(weight: float) -> None:
    model = TokenClipping.lognormal(7.0, 0.7, seconds_per_token=0.0225, rate_per_s=1 / 40)
    best = model.best_limit(loss_weight_s=weight)
    for limit in np.geomspace(0.1, 3e4, 300):
        queue = model.at(float(limit))
        assert best.cost <= (queue.waiting_s + weight * queue.lost_share) * (1 + 1e-9)
    if weight == 0.05:  # everything is clipped: W ~ lambda a^2 n^2/2, so n = weight/(E[N] lambda a^2)
        assert math.isclose(best.queue.limit_tokens, 0.05 / (model.tokens.mean_s * 0.0225**2 / 40), rel_tol=5e-3)
