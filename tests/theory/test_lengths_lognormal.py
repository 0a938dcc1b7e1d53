"""The whole-number lognormal law: exact sums, its tail, and how far it is from the continuous law."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tileq_theory.errors import InputError
from tileq_theory.lengths import Clipped, LogNormal


def summed(law: LogNormal, last: int, step: int) -> tuple[float, float, float, float]:
    """The four moments from the probability masses of 1..last, last carrying the rest."""
    from scipy.special import ndtr

    edges = np.arange(1, last) + 0.5
    tail = np.concatenate([[1.0], ndtr((law.mu - np.log(edges)) / law.sigma), [0.0]])
    mass = tail[:-1] - tail[1:]
    x = np.arange(1, last + 1)
    m = -(-x // step)
    return tuple(float(mass @ v) for v in (x, x.astype(float) ** 2, m, step * (m * (m - 1) / 2) + x))  # type: ignore[return-value]


@settings(max_examples=30, deadline=None)
@given(st.floats(0, 9), st.floats(0.02, 3), st.integers(1, 2_000), st.sampled_from([100, 50_000, 200_000]))
def test_moments_of_a_bounded_law(mu: float, sigma: float, step: int, high: int) -> None:
    law = LogNormal(mu, sigma, high=high)
    found = (law.mean(), law.second_moment(), law.chunks(step), law.chunk_memory(step))
    # masses by differences of a float distribution function: 1e-16 each, over 2e5 terms
    assert found == pytest.approx(summed(law, high, step), rel=3e-10)


@pytest.mark.parametrize(("mu", "sigma"), [(7, 0.7), (4, 2.0), (7, 3.0), (10, 0.05), (13, 0.001), (1, 4)])
def test_rounding_moves_the_continuous_moments_by_what_theory_says(mu: float, sigma: float) -> None:
    """Law without limits: E[X^2] is near exp(2 mu + 2 sigma^2) + 1/12, E[X] near exp(mu + sigma^2/2).

    The bound: rounding moves a length by at most 1/2 (raising it to 1 by at most 1), so the mean by at most 1 and the
    second moment by at most E[X] + 1. A lost tail would show: for (7, 3) half of E[X^2] lies beyond 10^11 tokens.
    """
    law = LogNormal(mu, sigma)
    mean, square = math.exp(mu + sigma**2 / 2), math.exp(2 * mu + 2 * sigma**2)
    assert abs(law.mean() - mean) <= 1 + 1e-11 * mean
    assert abs(law.second_moment() - square) <= mean + 2 + 1e-11 * square


def test_against_forty_digits() -> None:
    """A narrow law whose whole sum fits in high-precision arithmetic."""
    law = LogNormal(5, 0.2)
    with mpmath.workdps(40):
        tail = [mpmath.ncdf((5 - mpmath.log(k + mpmath.mpf(1) / 2)) / mpmath.mpf(0.2)) for k in range(1, 1500)]
        mean = 1 + mpmath.fsum(tail)
        square = 1 + mpmath.fsum((2 * k + 1) * s for k, s in enumerate(tail, start=1))
    assert law.mean() == pytest.approx(float(mean), rel=1e-14)
    assert law.second_moment() == pytest.approx(float(square), rel=1e-14)


def test_summing_one_by_one_and_by_integrals_agree() -> None:
    """Chunks of 1 token cross into the integrals, chunks of 64 do not: E[X^2] by both, through sums of 64 terms."""
    law = LogNormal(8, 1.2, high=400_000)
    assert (law.mean(), law.second_moment()) == pytest.approx(summed(law, 400_000, 1)[:2], rel=1e-11)


def test_low_and_high_agree_with_clipping() -> None:
    law, wrapped = LogNormal(5, 1, low=20, high=900), Clipped(LogNormal(5, 1), 20, 900)
    for step in (1, 7, 64):
        assert law.chunks(step) == pytest.approx(wrapped.chunks(step), rel=1e-13)
        assert law.chunk_memory(step) == pytest.approx(wrapped.chunk_memory(step), rel=1e-13)


@pytest.mark.parametrize(("low", "high"), [(1000, None), (1000, 2000), (1, 5), (60, 60), (30, 50)])
def test_limits_far_from_the_bulk(low: int, high: int | None) -> None:
    law = LogNormal(4, 0.1, low=low, high=high)  # nearly all between 35 and 90
    found = (law.mean(), law.second_moment(), law.chunks(7), law.chunk_memory(7))
    k = np.arange(2500)
    lengths = np.clip(np.arange(1, 2501), low, high)
    tail = np.concatenate([[1.0], LogNormal(4, 0.1).survival(k[1:].astype(float)), [0.0]])
    mass, m = tail[:-1] - tail[1:], -(-lengths // 7)
    truth = [float(mass @ v) for v in (lengths, lengths**2, m, 7 * (m * (m - 1) / 2) + lengths)]
    assert found == pytest.approx(truth, rel=1e-12)


@settings(max_examples=40, deadline=None)
@given(st.floats(0, 12), st.floats(0.01, 2.5))
def test_chunks_fall_and_memory_is_between_its_bounds(mu: float, sigma: float) -> None:
    """E[X]/s <= E[m] < E[X]/s + 1, and the memory of one whole chunk is E[X]."""
    law = LogNormal(mu, sigma, high=100_000)
    for step in (1, 16, 512, 200_000):
        assert law.mean() / step * (1 - 1e-12) <= law.chunks(step) <= law.mean() / step + 1
    assert law.chunk_memory(200_000) == pytest.approx(law.mean(), rel=1e-12)
    assert law.chunk_memory(1) == pytest.approx((law.second_moment() + law.mean()) / 2, rel=1e-12)


def test_constructors_meet_what_they_are_named_for() -> None:
    law = LogNormal.from_percentiles(900, 4000)
    assert law.quantile(np.array([0.5, 0.99])).tolist() == [900, 4000]
    law = LogNormal.from_mean_cv(1000, 0.8)
    assert law.mean() == pytest.approx(1000, abs=0.01)
    assert math.sqrt(law.variance()) / law.mean() == pytest.approx(0.8, abs=1e-4)
    assert math.exp(LogNormal.from_median_cv(500, 1.5).mu) == pytest.approx(500)


def test_sigma_zero_is_one_length() -> None:
    law = LogNormal(math.log(300), 0.0)
    assert (law.mean(), law.second_moment(), law.longest, law.shortest) == (300, 90000, 300, 300)
    assert LogNormal(7, 0.01).shortest == 1  # improbable, not impossible
    assert law.quantile(np.array([0.1, 1.0])).tolist() == [300, 300]
    assert set(law.sample(np.random.default_rng(1), 9)) == {300}


@pytest.mark.parametrize(
    "make",
    [
        lambda: LogNormal(7, -0.1),
        lambda: LogNormal(math.nan, 0.7),
        lambda: LogNormal(7, 0.7, low=0),
        lambda: LogNormal(7, 0.7, low=10, high=9),
        lambda: LogNormal(7, 30.0),
        lambda: LogNormal.from_percentiles(900, 800),
        lambda: LogNormal.from_mean_cv(0, 1),
        lambda: LogNormal.from_mean_cv(100, -1),
    ],
)
def test_bad_input(make: object) -> None:
    with pytest.raises(InputError) as caught:
        make()  # type: ignore[operator]
    assert "\n" not in str(caught.value)
